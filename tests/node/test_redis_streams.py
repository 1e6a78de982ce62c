"""Streams of users and groups in Redis, read with Redis's own commands against the document of seed 003."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import pixiu
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.routes import RedisRoutes
from pixiu.backends.redis.stores import RedisStores
from pixiu.config import CarrierSettings, EngineSettings, MessagingSettings, Settings
from pixiu.model.errors import PixiuError
from pixiu.model.pixiu_pb2 import NORMAL, P2P, MsgChat
from pixiu.node import rebuild_stores
from pixiu.node.embedded import EmbeddedNode
from pixiu.ports.routes import Route
from pixiu.ports.stores import Lane
from tests.engines import ValkeyProcess


@asynccontextmanager
async def opened(root: Path, url: str, **messaging: Any) -> AsyncIterator[EmbeddedNode]:
    settings = Settings(
        engines=EngineSettings(store=url),
        messaging=MessagingSettings(sends_per_second=0, **messaging),
        carrier=CarrierSettings(commit_ms=50),
    )
    async with pixiu.Node.embedded(root, settings=settings, creates_users=True) as node:
        yield node


def received(redis: Any, user: str, after: str = "0") -> tuple[list[dict[str, str]], str]:
    """``recive`` of the seed: what is behind a cursor, with pointers followed by their exact ids."""
    found: list[dict[str, str]] = []
    for _, entries in redis.xread({f"s:{user}": after}) or []:
        for entry, fields in entries:
            after = entry
            if "FW" not in fields:
                found.append(fields)
                continue
            bodies = redis.xrange(fields["FW"], fields["entry"], fields["entry"])
            if bodies:  # else it leads nowhere, and is skipped
                assert bodies[0][1]["id"] == fields["id"]
                found.append(bodies[0][1])
    return found, after


@pytest.mark.feature("R02", "R03", "R04", "R05", "R06", "R11", "R19")
async def test_a_body_is_once_and_everybody_else_has_a_pointer(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        sent = await node.send("1", to="2", text="hi", send_id="x", fields={"color": "red", "action": "mine"})
        await node.send("2", to="2", text="a note")
        await node.act("1", "contact", user="2")
        await node.create_group("1", "9", members=["2", "3"])
        said = await node.gsend("2", group="9", text="all")
        await node.act("3", "quit", group="9")
        await node.gsend("1", group="9", text="without 3")
        await node.act("1", "unlink", user="2")
        await node.host.settled()
        (entry, body), (_, note), (_, contact) = redis.xrange("s:2")[:3]
        assert body == {
            "id": sent["message_id"],
            "uid": "1",
            "tuid": "2",
            "at": str(sent["at"]),
            "text": "hi",
            "send_id": "x",
            "color": "red",
            "field:action": "mine",
        }
        assert redis.xrange("s:1")[0][1] == {"FW": "s:2", "id": sent["message_id"], "entry": entry}
        assert (note["text"], note["uid"], redis.zscore("r:2", "u:2")) == ("a note", "2", None), "once, and not unread"
        assert (contact["action"], contact["uid"], contact["tuid"]) == ("contact", "1", "2")
        group = redis.xrange("gs:9")
        told = [(fields.get("action"), fields["user"], fields.get("text")) for _, fields in group]
        assert told == [
            ("create", "1", None),
            (None, "2", "all"),
            ("quit", "3", None),
            (None, "1", "without 3"),
        ]
        for user in "12":
            pointers = [fields for _, fields in redis.xrange(f"s:{user}") if fields.get("FW") == "gs:9"]
            assert [fields["entry"] for fields in pointers] == [entry for entry, _ in group]
        assert [fields.get("text") for fields in received(redis, "3")[0]] == [None, "all"], "nothing after leaving"
        assert (redis.zscore("r:1", "g:9"), redis.zscore("r:2", "g:9")) == (1, 1)
        assert (redis.zscore("c:3", "g:9"), redis.zscore("r:3", "g:9")) == (None, None)
        last = redis.xrange("s:2")[-1][1]
        assert (last["action"], last["uid"], redis.zscore("c:1", "u:2")) == ("unlink", "1", None)
        assert said["message_id"] == group[1][1]["id"]


@pytest.mark.feature("R06")
async def test_a_thousand_sends_to_two_groups_at_once_lose_no_pointer(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, f"{server.url}?streams=5000") as node:
        for group in ("8", "9"):
            await node.create_group("1", group, members=["2", "3"])
        sends = [node.gsend(str(n % 3 + 1), group=str(8 + n % 2), text=str(n)) for n in range(1000)]
        ids = [sent["message_id"] for sent in await asyncio.gather(*sends)]
        await node.host.settled()
        for user in "123":
            got = [fields for fields in received(redis, user)[0] if "text" in fields]
            assert sorted(fields["id"] for fields in got) == sorted(ids)
            assert [fields["id"] for fields in got] == sorted(ids, key=int), "in the order of the log"
            assert redis.zscore(f"r:{user}", "g:8") + redis.zscore(f"r:{user}", "g:9") == 1000 - sum(
                n % 3 + 1 == int(user) for n in range(1000)
            )
        assert redis.xlen("gs:8") + redis.xlen("gs:9") == 1002, "one body each, and who created the groups"


@pytest.mark.feature("R14", "R15")
async def test_a_reader_goes_on_from_its_cursor_and_skips_what_leads_nowhere(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        first = await node.send("1", to="2", text="one")
        await node.send("1", to="2", text="two")
        await node.host.settled()
        got, cursor = received(redis, "2")
        assert [fields["text"] for fields in got] == ["one", "two"]
        await node.send("2", to="1", text="three")
        await node.act("1", "recall", message_id=first["message_id"])
        await node.host.settled()
        got, cursor = received(redis, "2", cursor)
        assert [(fields.get("text"), fields.get("action"), fields.get("ref")) for fields in got] == [
            ("three", None, None),
            (None, "recall", first["message_id"]),
        ]
        assert received(redis, "2", cursor) == ([], cursor)
        assert [fields.get("text") for fields in received(redis, "1")[0]] == ["two", "three", None]
        await node.create_group("1", "9", members=["2"])
        for number in range(5):
            await node.gsend("1", group="9", text=str(number))
        await node.host.settled()
        entries = redis.xrange("gs:9")
        assert redis.xrevrange("gs:9", count=3) == entries[::-1][:3]
        assert redis.xrange("gs:9", min=f"({entries[2][0]}", count=2) == entries[3:5]


async def test_what_an_erased_user_said_is_gone_and_the_users_own_stream(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        await node.create_group("1", "9", members=["2"])
        await node.send("2", to="1", text="secret")
        await node.send("1", to="2", text="kept by 1 alone")
        await node.gsend("2", group="9", text="secret")
        await node.gsend("1", group="9", text="stays")
        await node.act(None, "erase_user", user="2")
        await node.host.settled()
        texts = [fields.get("text") for key in ("s:1", "gs:9") for _, fields in redis.xrange(key)]
        assert "secret" not in texts
        assert "stays" in texts
        assert not redis.exists("s:2")


async def test_streams_are_bounded_or_not_there_and_large_groups_have_no_pointers(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path / "a", f"{server.url}?streams=100", group_inbox_limit=2) as node:
        await asyncio.gather(*(node.send("1", to="2", text=str(number)) for number in range(500)))
        await node.create_group("1", "9", members=["2", "3"])
        await node.gsend("1", group="9", text="to many")
        await node.host.settled()
        assert 100 <= redis.xlen("s:2") <= 200
        assert 100 <= redis.xlen("s:1") <= 200
        assert received(redis, "2")[0][-1]["text"] == "499"
        assert redis.xrevrange("gs:9", count=1)[0][1]["text"] == "to many"
        assert not redis.exists("s:3")
    redis.flushall()
    async with opened(tmp_path / "b", f"{server.url}?streams=0") as node:
        await node.send("1", to="2", text="x")
        await node.host.settled()
        assert not redis.exists("s:2", "s:1")


async def test_a_rebuild_writes_the_same_streams(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server.url) as node:
        await node.create_group("1", "9", members=["2"])
        for number in range(20):
            await node.send("1", to="2", text=str(number))
            await node.gsend("2", group="9", text=str(number))
        await node.host.settled()
        before = [received(redis, user)[0] for user in "12"]
    redis.xadd("g:all", {"action": "send"})
    rebuild_stores(tmp_path)
    assert [received(redis, user)[0] for user in "12"] == before
    assert redis.xlen("g:all") == 1, "what was not done yet stays"


@pytest.mark.feature("R20")
@pytest.mark.parametrize("layout", ["seed", "cluster"])
def test_a_commit_that_is_told_again_says_nothing_twice(server: ValkeyProcess, redis: Any, layout: str) -> None:
    """The connection broke before the answer: the same commands come once more, with others behind them."""
    stores = RedisStores(RedisAddress.parse(f"{server.url}?layout={layout}"), "n1")
    commits, overlay, streams = stores._commits, stores._overlay, stores.streams
    assert streams is not None
    chat = MsgChat(fromId=1, toId=2, tm=5, data=b"x", chatType=P2P, priority=NORMAL).SerializeToString()
    stores.commit({})
    for event in range(1, 200):
        streams.say_to_user(event, 1000 + event, 1, 2, chat)
        streams.say_to_user(event, 1000 + event, 1, 2, chat)  # a record that failed later on
        streams.say_in_group(event + 1000, 5000 + event, 1, 9, [1, 2], chat) if event == 199 else None
    commits.commit(list(overlay.commands()))
    commits._number -= 1
    streams.say_to_user(2000, 9000, 2, 1, chat)
    stores.commit({Lane.TIMELINES: 2000})
    streams.say_to_user(2000, 9000, 2, 1, chat)  # another part was behind, and the lane has gone back
    stores.commit({})
    one, two, nine = (
        [fields["id"] for _, fields in redis.xrange(key)]
        for key in (("s:1", "s:2", "gs:9") if layout == "seed" else ("s:{1}", "s:{2}", "gs:{9}"))
    )
    expected = [*(str(1000 + event) for event in range(1, 200)), "5199", "9000"]
    assert one == two == expected
    assert nine == ["5199"]
    stores.close()


@pytest.mark.feature("R20")
def test_a_commit_that_failed_in_the_middle_says_nothing_twice(server: ValkeyProcess, redis: Any) -> None:
    """Redis does not take back what a function did before one of its commands failed; another process goes on."""
    chat = MsgChat(fromId=1, toId=2, tm=5, data=b"x", chatType=P2P, priority=NORMAL).SerializeToString()
    redis.set("bad", "no sorted set")
    for is_new_process in (False, True):
        stores = RedisStores(RedisAddress.parse(server.url), "n1")
        first = 100 * (1 + is_new_process)
        assert stores.streams is not None
        stores.commit({})
        stores.streams.say_to_user(first, first, 1, 2, chat)
        stores.overlay.step("ZADD", "bad", 1, "x")
        with pytest.raises(PixiuError):
            stores.commit({Lane.TIMELINES: first})
        assert str(first) in [fields["id"] for _, fields in redis.xrange("s:2")], "half of it is there"
        if is_new_process:
            stores.close()
            stores = RedisStores(RedisAddress.parse(server.url), "n1")
            assert stores.streams is not None
            stores.streams.say_to_user(first, first, 1, 2, chat)  # the log brings it again
        else:
            redis.delete("bad")
        assert stores.streams is not None
        stores.streams.say_to_user(first + 1, first + 1, 1, 2, chat)
        stores.commit({Lane.TIMELINES: first + 1})
        stores.close()
        redis.set("bad", "no sorted set")
    for stream in ("s:1", "s:2"):
        assert [fields["id"] for _, fields in redis.xrange(stream)] == ["100", "101", "200", "201"]


def test_who_listens_in_a_room_is_shown_and_a_life_before_is_swept(server: ValkeyProcess, redis: Any) -> None:
    redis.sadd("pixiu:rooms", 7)
    redis.hset("pixiu:room:7", "1", "1-dead")
    stores = RedisStores(RedisAddress.parse(server.url), "n1")
    routes = RedisRoutes(stores.client, stores.keys_of)
    routes.enter(5, Route(1, 10, "g1", 1))
    routes.enter(5, Route(2, 20, "g2", 1))
    routes.enter(6, Route(2, 20, "g2", 1))
    routes.write()
    routes.write()
    assert redis.hgetall("pixiu:room:5") == {"10": "1-g1", "20": "2-g2"}
    assert set(redis.smembers("pixiu:rooms")) == {"5", "6"}
    assert not redis.exists("pixiu:room:7")
    routes.drop_gateway("g2")
    routes.write()
    assert redis.hgetall("pixiu:room:5") == {"10": "1-g1"}
    assert set(redis.smembers("pixiu:rooms")) == {"5"}
    redis.delete("pixiu:room:5", "pixiu:rooms")
    routes.write_all_again()
    routes.write()
    assert redis.hgetall("pixiu:room:5") == {"10": "1-g1"}
    routes.close()
    assert (redis.exists("pixiu:room:5"), routes.unwritten) == (0, 0)
    stores.close()
