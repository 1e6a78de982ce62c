"""Actions by a Redis stream, with any client: the effect of the same action over HTTP, once, whoever dies."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey as Client

import pixiu
from pixiu.backends.redis.address import RedisAddress
from pixiu.config import DoorSettings, EngineSettings, MessagingSettings, Settings
from pixiu.model.errors import ConfigError, PixiuError
from pixiu.node.door import DELIVERIES_MAX, Door
from pixiu.node.embedded import EmbeddedNode
from tests.engines import ValkeyProcess

ROOT = Path(__file__).resolve().parents[2]

Valkey: Any = Client
"""Its answers have no types of their own."""


def settings_of(store: str, **door: Any) -> Settings:
    return Settings(
        engines=EngineSettings(store=store),
        messaging=MessagingSettings(sends_per_second=0),
        door=DoorSettings(**{"redis": "store", "claim_ms": 200, **door}),
    )


@asynccontextmanager
async def opened(root: Path, store: str, **door: Any) -> AsyncIterator[EmbeddedNode]:
    async with pixiu.Node.embedded(root, settings=settings_of(store, **door)) as node:
        yield node


async def until(is_so: Any, what: str = "it") -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not become so")


async def all_done(redis: Any) -> None:
    await until(lambda: not redis.exists("g:all") or redis.xlen("g:all") == 0, "the stream to be empty")


def add(redis: Any, action: str, uid: str = "", params: dict[str, Any] | None = None, **fields: str) -> str:
    more = {"uid": uid} if uid else {}
    if params is not None:
        more["params"] = json.dumps(params)
    entry: str = redis.xadd("g:all", {"action": action, **more, **fields})
    return entry


def answers(redis: Any, key: str = "g:answers") -> dict[str, dict[str, str]]:
    found = redis.xrange(key)
    assert len({fields["entry"] for _, fields in found}) == len(found), "nobody is answered twice"
    return {fields["entry"]: fields for _, fields in found}


SCRIPT: list[tuple[str, str, dict[str, Any]]] = [
    ("1", "create_user", {"name": "Ada", "city": "Turin"}),
    ("2", "create_user", {"name": "Bo"}),
    ("3", "create_user", {"name": "Cy"}),
    ("1", "contact", {"user": "2"}),
    ("1", "send", {"to": "2", "text": "hi", "send_id": "a"}),
    ("1", "send", {"to": "2", "text": "hi", "send_id": "a"}),
    ("2", "send", {"to": "1", "text": "yo"}),
    ("2", "send", {"to": "2", "text": "a note"}),
    ("1", "create_group", {"group": "9", "name": "Nine", "members": ["2"]}),
    ("3", "gsend", {"group": "9", "text": "let me in"}),
    ("3", "join", {"group": "9"}),
    ("3", "gsend", {"group": "9", "text": "thanks"}),
    ("2", "quit", {"group": "9"}),
    ("2", "history", {"group": "9"}),
    ("3", "block", {"user": "2"}),
    ("2", "send", {"to": "3", "text": "not heard"}),
    ("1", "unlink", {"user": "2"}),
    ("2", "unlink", {"user": "1"}),
]


@pytest.mark.feature("R01", "R02", "R03", "R04", "R05", "R07", "R10", "R19")
async def test_the_effect_is_that_of_the_same_action_over_http(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    """Two nodes, one asked through the stream and one without: what everybody sees is the same."""
    outcomes = []
    for way in ("stream", "call"):
        redis.flushall()
        async with opened(tmp_path / way, server.url) as node:
            if way == "stream":
                entries = [add(redis, action, uid, params) for uid, action, params in SCRIPT]
                await all_done(redis)
                given = answers(redis)
                codes = [given[entry].get("error") for entry in entries]
            else:
                codes = [await _called(node, uid, action, params) for uid, action, params in SCRIPT]
            await node.host.settled()
            outcomes.append((codes, await _seen(node), _keys(redis)))
    assert outcomes[0] == outcomes[1]
    codes = outcomes[0][0]
    assert [index for index, code in enumerate(codes) if code] == [9, 13, 15], "refused for the same reasons"


async def _called(node: EmbeddedNode, uid: str, action: str, params: dict[str, Any]) -> str | None:
    try:
        if action == "create_user":
            await node.act(None, action, user=uid, **params)
        else:
            await node.act(uid, action, **params)
    except PixiuError as error:
        return error.code
    return None


async def _seen(node: EmbeddedNode) -> list[object]:
    """What the three users see, without ids, times and send ids."""
    found: list[object] = []
    for user in "123":
        found += [_plain(await node.act(user, action)) for action in ("history", "contacts", "user")]
    found.append(_plain(await node.act("1", "group", group="9")))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        hidden = ("message_id", "at", "min", "max", "send_id")
        return {name: _plain(each) for name, each in value.items() if name not in hidden}
    return value


def _keys(redis: Any) -> dict[str, object]:
    """The seed's keys, as any client reads them."""
    found: dict[str, object] = {"gm:9": set(redis.smembers("gm:9")), "master": redis.hget("gi:9", "master")}
    for user in "123":
        found[f"u:{user}"] = redis.hget(f"u:{user}", "name")
        found[f"c:{user}"] = set(redis.zrange(f"c:{user}", 0, -1))
        found[f"r:{user}"] = dict(redis.zrange(f"r:{user}", 0, -1, withscores=True))
        found[f"s:{user}"] = [_plain(fields).get("text") for _, fields in redis.xrange(f"s:{user}")]
    found["gs:9"] = [fields.get("text", fields.get("action")) for _, fields in redis.xrange("gs:9")]
    return found


@pytest.mark.feature("R10", "R20")
async def test_an_entry_that_is_given_again_takes_effect_once(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    """Redis was set back: it has forgotten the acks, and everything comes a second time, under the same ids."""
    async with opened(tmp_path, server.url, rights="admins") as node:
        for uid, action, params in SCRIPT:
            add(redis, action, uid, params)
        add(redis, "system", params={"to": "1", "text": "told"})
        add(redis, "create_group", "1", {"name": "no id"})
        everything = redis.xrange("g:all")
        await all_done(redis)
        await node.host.settled()
        first, count = await _seen(node), node.host.log.committed
        given = answers(redis)
        kept = [(entry, fields) for entry, fields in everything if "result" in given[entry]]  # what was refused may do
        assert len(kept) > 5
        redis.delete("g:all", "g:answers")
        for entry, fields in kept:
            redis.xadd("g:all", fields, id=entry)
        await until(lambda: node.host.door is not None and not node.host.door.problems())
        await until(lambda: redis.xlen("g:answers") == len(kept))
        await node.host.settled()
        assert await _seen(node) == first
        changed = [record for record in node.host.log.read(count, 100) if record.topic == "pixiu.main"]
        assert len(changed) <= 3, "profiles may be written again, and say the same"


@pytest.mark.feature("R10")
async def test_consumers_share_the_stream_and_a_dead_ones_work_is_claimed(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    for user in "12":
        add(redis, "create_user", user)
    sends = [add(redis, "send", "1", tuid="2", text=str(number)) for number in range(300)]
    redis.xgroup_create("g:all", "g:group", "0")
    taken = redis.xreadgroup("g:group", "dead", {"g:all": ">"}, count=2)[0][1]
    assert len(taken) == 2, "who has read the first two, and will never answer"
    async with opened(tmp_path, server.url, redis="", window=8) as node:
        settings = DoorSettings(redis="x", claim_ms=200, window=8)
        clock, address = node.host.engine.clock, RedisAddress.parse(server.url)
        doors = [Door(address, name, settings, node.messaging, clock, lambda: True) for name in ("one", "two")]
        loop = asyncio.get_running_loop()
        for door in doors:
            door.start(loop)
        await until(lambda: redis.xlen("g:all") < 150, "half of it to be done")
        await doors[0].stop()
        await all_done(redis)
        consumers = {each["name"] for each in redis.xinfo_consumers("g:all", "g:group")}
        assert consumers == {"dead", "one", "two"}
        assert doors[1].claimed >= 1
        assert redis.xpending("g:all", "g:group")["pending"] == 0
        await doors[1].stop()
        # What was sent before its sender was created is refused; all else was said, once, under one id.
        given = answers(redis)
        results = [json.loads(given[entry]["result"]) for entry in sends if "result" in given[entry]]
        history = await _whole_history(node)
        assert sorted(each["message_id"] for each in results) == sorted(history)
        assert len(set(history)) == len(history)


async def _whole_history(node: EmbeddedNode) -> list[str]:
    found: list[str] = []
    page = await node.history("2", with_="1", limit=100)
    while page["messages"]:
        found += [message["message_id"] for message in page["messages"]]
        page = await node.history("2", with_="1", limit=100, before=page["min"])
    return found


@pytest.mark.feature("R10")
async def test_what_makes_no_sense_is_put_aside_with_the_reason_and_the_stream_goes_on(
    tmp_path: Path, server: ValkeyProcess, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    redis.xgroup_create("g:all", "g:group", "0", mkstream=True)
    poison = add(redis, "create_user", "77")
    for number in range(DELIVERIES_MAX):
        if number == 0:
            redis.xreadgroup("g:group", "crashes", {"g:all": ">"})
        else:
            redis.xclaim("g:all", "g:group", "crashes", 0, [poison])
    bad = {
        redis.xadd("g:all", {"hello": "world"}): "action is missing",
        redis.xadd("g:all", {"action": "sned", "uid": "1"}): "no action 'sned'",
        redis.xadd("g:all", {"action": "send", "to": "2"}): "uid is missing",
        redis.xadd("g:all", {"action": "send", "uid": "1", "params": "{"}): "no JSON",
        redis.xadd("g:all", {"action": "send", "uid": "1", "text": b"\xff\xfe"}): "not UTF-8",
        redis.xadd("g:all", {"action": "system", "text": "x"}): "uid is missing",
        poison: "never finished",
    }
    good = add(redis, "create_user", "1")
    async with opened(tmp_path, server.url):
        await all_done(redis)
    given = answers(redis)
    with Valkey(port=server.port, decode_responses=True, encoding_errors="replace") as lenient:
        aside = answers(lenient, "g:malformed")
    assert aside.keys() == bad.keys()
    for entry, reason in bad.items():
        assert reason in aside[entry]["message"]
        assert given[entry]["error"] == "bad_request"
    assert aside[next(iter(bad))]["hello"] == "world", "as it was"
    assert "result" in given[good]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.feature("R10")
async def test_rights_are_those_of_users_unless_admins_are_allowed(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        add(redis, "create_user", "1")
        system = add(redis, "system", "1", {"to": "1", "text": "x"})
        await all_done(redis)
        assert answers(redis)[system]["error"] == "forbidden"
        assert node.host.door is not None
        assert (node.host.door.done, node.host.door.refused) == (1, 1)
    redis.delete("g:answers")
    async with opened(tmp_path, server.url, rights="admins"):
        pushed = add(redis, "push", params={"uids": ["1"], "msg_bodies": [{"text": "x"}]})
        await all_done(redis)
        assert "result" in answers(redis)[pushed]


async def test_answers_are_bounded_and_what_cannot_be_done_now_stays_pending(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url, answers_max=100) as node:
        for user in "12":
            add(redis, "create_user", user)
        for number in range(500):
            add(redis, "send", "1", tuid="2", text=str(number))
        await all_done(redis)
        assert 100 <= redis.xlen("g:answers") <= 200
        await node.host.applied()
        long = add(redis, "history", "2", {"with": "1", "limit": 100})
        for _ in range(3):
            add(redis, "send", "1", tuid="2", text="x" * 60_000)
        longer = add(redis, "history", "2", {"with": "1", "limit": 100})
        await all_done(redis)
        await node.host.applied()
        again = add(redis, "history", "2", {"with": "1", "limit": 100})
        await all_done(redis)
        given = answers(redis)
        assert len(json.loads(given[long]["result"])["messages"]) == 100
        assert "result" in given[longer]
        assert given[again]["result"] == "{}"
        assert "ask over HTTP" in given[again]["message"]
        # A node that is going back to what its stores have accepts nothing.
        node.messaging._has_started = False
        entry = add(redis, "send", "1", tuid="2", text="later")
        await until(lambda: redis.xpending("g:all", "g:group")["pending"] == 1)
        await asyncio.sleep(0.5)
        assert redis.xpending_range("g:all", "g:group", "-", "+", 10)[0]["message_id"] == entry
        node.messaging._has_started = True
        await all_done(redis)
        assert "result" in answers(redis)[entry]


@pytest.mark.feature("P28")
async def test_a_door_beside_embedded_stores_tells_when_its_redis_is_away_and_goes_on_after(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server:
        url = f"{server.url}?timeout_ms=300&probe_ms=50"
        async with opened(tmp_path / "node", "embedded", redis=url) as node:
            with Valkey(port=server.port, decode_responses=True) as redis:
                add(redis, "create_user", "1")
                await all_done(redis)
            await until(lambda: not node.host.door_problems())
            server.stop()
            await until(lambda: any("is down" in problem for problem in node.host.door_problems()), "the door to know")
            await node.act("1", "user")
            server.start()
            await until(lambda: not node.host.door_problems(), "the door to be back")
            with Valkey(port=server.port, decode_responses=True) as redis:
                sent = add(redis, "send", "1", tuid="1", text="back")
                await until(lambda: sent in answers(redis))


@pytest.mark.feature("T1", "R10")
async def test_the_layout_for_clusters_has_its_answers_in_the_slot_of_the_stream(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, f"{server.url}?layout=cluster"):
        made = add(redis, "create_user", "1", name="Ada")
        wrong = redis.xadd("g:all", {"action": "nothing"})
        await until(lambda: redis.xlen("{g:all}:answers") == 2)
        assert json.loads(answers(redis, "{g:all}:answers")[made]["result"])["name"] == "Ada"
        assert wrong in answers(redis, "{g:all}:malformed")
        assert redis.xlen("g:all") == 0


async def test_a_door_to_nowhere_is_refused(tmp_path: Path) -> None:
    for door, problem in [("store", "the stores are in no Redis"), ("http://x", "must be redis://")]:
        with pytest.raises(ConfigError, match=problem):
            async with opened(tmp_path, "embedded", redis=door):
                raise AssertionError("it started")


@pytest.mark.feature("R10")
async def test_the_example_of_the_document_does_what_it_says(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    text = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    lines = [match[1] for match in re.finditer(r"^redis-cli (.+)$", text, re.MULTILINE)]
    asked = [shlex.split(line) for line in lines]
    added = [words for words in asked if words[:2] == ["XADD", "g:all"]]
    assert len(added) >= 4
    async with opened(tmp_path, server.url) as node:
        entries = [redis.execute_command(*words) for words in added]
        await all_done(redis)
        given = answers(redis)
        assert all("result" in given[entry] for entry in entries), given
        await node.host.settled()
        for words in asked:
            if words not in added:
                assert redis.execute_command(*words), words
