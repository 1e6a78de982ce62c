"""A node whose stores are in Redis: the same life, and the seeds' keys as any Redis client reads them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey as Client

import pixiu
from pixiu.config import EngineSettings, InboxSettings, MessagingSettings, Settings
from pixiu.model.errors import ConfigError, Conflict
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.node import audit_stopped, rebuild_stores
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.remembered import open_redis
from tests.engines import ValkeyProcess

Valkey: Any = Client
"""Its answers have no types of their own."""


@asynccontextmanager
async def opened(root: Path, server: ValkeyProcess, **settings: Any) -> AsyncIterator[EmbeddedNode]:
    messaging = MessagingSettings(sends_per_second=100_000, send_burst=100_000)
    chosen = Settings(engines=EngineSettings(store=server.url), messaging=messaging, **settings)
    async with pixiu.Node.embedded(root, settings=chosen, creates_users=True) as node:
        yield node


@pytest.mark.feature("P04", "P25", "R15")
async def test_a_life_with_a_restart_a_rebuild_and_audits(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server) as node:
        await node.create_group("1", "9", members=["2", "3"])
        for number in range(5):
            await node.send("1", to="2", text=str(number))
            await node.gsend("3", group="9", text=f"all {number}")
        await node.act("1", "contact", user="2")
        await node.act("2", "block", user="3")
    async with opened(tmp_path, server) as node:
        phone = await node.connect("2", platform="ios")
        texts = [(await phone.receive(timeout_seconds=5)).get("text") for _ in range(12)]
        assert [text for text in texts if text in list("01234")] == list("01234")
        await phone.leave()
        report = await node.audit()
        assert (report["balanced"], report["acked"]) == (True, 12)
        history = await node.history("2", **{"with": "1"})
        assert [message["text"] for message in history["messages"]] == list("43210")
    before = _all_of(redis)
    assert audit_stopped(tmp_path).as_json()["balanced"]
    rebuild_stores(tmp_path)
    after = _all_of(redis)
    for content in (before, after):  # how far it is
        del content["pixiu:owner"], content["pixiu:meta"]
    assert after == before, "made again from the log, every key is what it was"
    assert audit_stopped(tmp_path).as_json()["balanced"]


def _all_of(redis: Any) -> dict[str, object]:
    """Every key that says something, as Redis has it."""
    with Valkey(port=redis.connection_pool.connection_kwargs["port"]) as raw:
        found: dict[str, object] = {}
        for key in sorted(raw.keys("*")):
            kind = raw.type(key)
            name = key.decode("latin-1")
            if kind == b"string":
                found[name] = raw.get(key)
            elif kind == b"hash":
                found[name] = raw.hgetall(key)
            elif kind == b"set":
                found[name] = set(raw.smembers(key))
            elif kind == b"zset":
                found[name] = raw.zrange(key, 0, -1, withscores=True)
            elif not name.startswith("bsgmsg_"):
                found[name] = kind
        return {name: value for name, value in found.items() if not name.startswith("pixiu:bsgmsg:")}


@pytest.mark.feature("P05")
async def test_sessions_are_a_hash_of_platform_and_gateway(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    redis.sadd("pixiu:present", 77)
    redis.hset("msg/u:77/ss", "5", "ios-dead")
    async with opened(tmp_path, server) as node:
        phone = await node.connect("2", platform="ios")
        assert phone.session is not None
        await _until(lambda: redis.hgetall("msg/u:2/ss") == {str(phone.session.session_id): "ios-local"})
        assert redis.hgetall("msg/u:77/ss") == {}, "what a life before has left is gone"
        redis.hset("msg/u:2/ss", "999", "ios-forged")
        web = await node.connect("2", platform="web")
        assert web.session is not None
        expected = {str(phone.session.session_id): "ios-local", str(web.session.session_id): "web-local"}
        await _until(lambda: redis.hgetall("msg/u:2/ss") == expected)
        await phone.leave()
        await _until(lambda: redis.hgetall("msg/u:2/ss") == {str(web.session.session_id): "web-local"})
    assert redis.hgetall("msg/u:2/ss") == {}


async def _until(is_so: Any) -> None:
    for _ in range(300):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become so")


@pytest.mark.feature("P18", "P20")
async def test_what_waits_is_a_sorted_set_and_bodies_are_counted(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server, inbox=InboxSettings(offline_max=80)) as node:
        for platform in ("ios", "web"):
            await (await node.connect("2", platform=platform)).leave()
        sent = [await node.send("1", to="2", text=str(number)) for number in range(100)]
        await node.host.settled()
        ids = [message["message_id"] for message in sent]
        waiting = redis.zrange("msg/u:2/p:ios/oms", 0, -1, withscores=True)
        assert [name for name, _ in waiting] == ids[-80:]
        assert [int(score) for _, score in waiting] == [message["at"] // 1000 for message in sent[-80:]]
        # Two inboxes of 2, one of 1, a row of the timeline at each side; the evicted ones have left three of these.
        assert [redis.get(f"msg/om:{number}/n") for number in (ids[0], ids[-1])] == ["2", "5"]
        chat = _chat(redis, f"msg/om:{ids[-1]}/m")
        assert (chat.data, str(chat.msgId)) == (b"99", ids[-1])
        phone = await node.connect("2", platform="ios")
        for _ in range(80):
            await phone.receive(timeout_seconds=5)
        await phone.leave()
        await node.host.applied()
        await node.host.settled()
        assert redis.exists("msg/u:2/p:ios/oms") == 0
        assert redis.get(f"msg/om:{ids[-1]}/n") == "4"


def _chat(redis: Any, key: str) -> MsgChat:
    with Valkey(port=redis.connection_pool.connection_kwargs["port"]) as raw:
        return MsgChat.FromString(raw.get(key))


@pytest.mark.feature("R01", "R02", "R05", "R11")
async def test_rosters_and_counts_are_the_keys_of_the_seed(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server) as node:
        await node.create_user("1", "Ada", avatar="a.png", city="Turin")
        await node.act("1", "contact", user="2")
        await node.create_group("1", "9", name="Nine", members=["2", "3"])
        await node.send("1", to="2", text="x")
        await node.gsend("3", group="9", text="y")
        await node.host.settled()
        profile = redis.hgetall("u:1")
        assert {name: profile[name] for name in ("name", "avatar", "city", "pixiu:id")} == {
            "name": "Ada",
            "avatar": "a.png",
            "city": "Turin",
            "pixiu:id": "1",
        }
        assert set(redis.zrange("c:1", 0, -1)) == {"u:2", "g:9"}
        assert set(redis.smembers("gm:9")) == {"1", "2", "3"}
        info = redis.hgetall("gi:9")
        assert (info["name"], info["master"]) == ("Nine", "1")
        assert redis.zscore("r:2", "u:1") == 1
        assert redis.zscore("r:2", "g:9") == 1
        assert redis.zscore("r:3", "g:9") == 0, "one's own is not unread"
        last = (await node.history("2", group="9"))["max"]
        await node.act("2", "read", group="9", through=last)
        await node.act("3", "quit", group="9")
        await node.host.settled()
        assert (redis.zscore("r:2", "g:9"), redis.zscore("r:2", "u:1")) == (0, 1)
        assert set(redis.smembers("gm:9")) == {"1", "2"}
        assert redis.zscore("c:3", "g:9") is None
        assert redis.zscore("r:3", "g:9") is None


@pytest.mark.feature("B10", "B11", "B21")
async def test_the_newest_of_a_group_are_a_list_that_survives_a_restart(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server) as node:
        await node.create_group("1", "9", members=["2"])
        await node.gsend("1", group="9", text="first")
        await node.history("2", group="9")
        for number in range(3):
            await node.gsend("1", group="9", text=str(number))
        await node.host.settled()
        with Valkey(port=server.port) as raw:
            chats = [MsgChat.FromString(body) for body in raw.lrange("bsgmsg_9", 0, -1)]
        assert [chat.data for chat in chats][:4] == [b"2", b"1", b"0", b"first"]
    async with opened(tmp_path, server) as node:
        assert node.messaging.stores.recent.is_warm(9)
        await node.gsend("1", group="9", text="after")
        page = await node.history("2", group="9", limit=2)
        assert [message["text"] for message in page["messages"]] == ["after", "2"]


async def test_a_second_node_on_the_same_redis_is_refused(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path / "a", server) as node:
        await node.send("1", to="2", text="x")
        with pytest.raises(Conflict, match=r"belong to node .* delete the key pixiu:owner"):
            async with opened(tmp_path / "b", server):
                raise AssertionError("it was let in")
        await node.send("1", to="2", text="y")


async def test_a_wrong_address_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    for url, problem in [
        ("redis://a:1,b:2", "names 2 servers"),
        ("redis://a/x", "number of a database"),
        ("redis://a?size=2", "no option 'size'"),
        ("redis://a?layout=flat", "seed or cluster"),
        ("redis+cluster://a?layout=seed", "cluster on a cluster"),
        ("redis+sentinel://a", "name of the master"),
        ("redis://a:99999", "HOST:PORT"),
        ("mongo://a", "embedded, or redis"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            async with pixiu.Node.embedded(tmp_path, settings=Settings(engines=EngineSettings(store=url))):
                raise AssertionError("it started")


async def test_many_sends_share_a_round_trip(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server) as node:
        await asyncio.gather(*(node.send("1", to="2", text="warm") for _ in range(20)))
        await node.host.settled()
        before = redis.info("commandstats"), node.host.redis_round_trips
        for number in range(200):
            await node.send("1", to="2", text="x", send_id=str(number))
        await node.host.settled()
        trips = node.host.redis_round_trips - before[1]
        assert trips <= 200, "a share of a commit, and nothing to look up"
        calls = {name: stats["calls"] for name, stats in redis.info("commandstats").items()}
        commits = calls["cmdstat_fcall"] - before[0]["cmdstat_fcall"]["calls"]
        assert 1 <= commits <= 100, "many sends are one commit"


def test_without_the_client_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixiu.backends.redis.stores", None)
    with pytest.raises(ConfigError, match=r"needs the package valkey .*install it with: "):
        open_redis(tmp_path, "redis://127.0.0.1")
