"""The same life on a Redis with functions and on one that knows scripts alone; and the note of the last ack."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey as Client

import pixiu
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.last_acks import FIELD, PERIOD_SECONDS, LastAcks
from pixiu.backends.redis.stores import RedisStores
from pixiu.config import CarrierSettings, EngineSettings, MessagingSettings, Settings
from pixiu.node.embedded import EmbeddedNode
from pixiu.testing.scheduler import SimulatedClock
from tests.engines import ValkeyProcess
from tests.node.test_redis_node import _all_of

pytestmark = pytest.mark.engines

Valkey: Any = Client
"""Its answers have no types of their own."""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """As Redis before 7.0: it has never heard of functions."""
    with ValkeyProcess(tmp_path_factory.mktemp("scripted"), "--rename-command", "FUNCTION", "") as server:
        yield server


def opened(root: Path, url: str) -> EmbeddedNode:
    settings = Settings(
        engines=EngineSettings(store=url),
        messaging=MessagingSettings(sends_per_second=0),
        carrier=CarrierSettings(commit_ms=20),
    )
    return pixiu.Node.embedded(root, settings=settings, creates_users=True)


def streams_of(redis: Any) -> dict[str, list[dict[str, str]]]:
    """What is in every stream; which ids entries have is the server's affair."""
    found: dict[str, list[dict[str, str]]] = {}
    for key in sorted(redis.scan_iter("*s:*", _type="stream")):
        found[key] = [{name: fields[name] for name in fields if name != "entry"} for _, fields in redis.xrange(key)]
    return found


async def live(node: EmbeddedNode) -> None:
    """Some of everything that a function of the library does."""
    await node.create_group("1", "9", name="Nine", members=["2", "3"])
    await node.act("1", "contact", user="2")
    for number in range(5):
        await node.send("1", to="2", text=str(number), send_id=f"s{number}")
    sent = await node.send("1", to="2", text="oops")
    await node.act("1", "recall", message_id=sent["message_id"])
    await node.history("2", group="9")
    await node.gsend("3", group="9", text="all")
    phone = await node.connect("2", platform="ios")  # its first inbox gets another name
    for _ in range(3):
        await phone.receive(timeout_seconds=5)
    await phone.leave()
    await node.act("3", "quit", group="9")
    await node.send("4", to="1", text="bye")
    await node.act(None, "erase_user", user="4")
    await node.host.applied()
    await node.host.settled()


@pytest.mark.feature("R21")
async def test_scripts_have_the_same_effect_as_functions(
    tmp_path: Path, server: ValkeyProcess, redis: Any, scripted: ValkeyProcess
) -> None:
    with Valkey(port=scripted.port, decode_responses=True) as other:
        other.flushall()
        async with opened(tmp_path, server.url) as node:
            await live(node)
        async with opened(tmp_path, scripted.url) as node:  # another Redis is filled from the log
            await node.host.applied()
            await node.host.settled()
            calls = other.info("commandstats")
            assert "cmdstat_evalsha" in calls and "cmdstat_fcall" not in calls
            assert (await node.audit())["balanced"]
        assert "cmdstat_fcall" in redis.info("commandstats")
        contents = _all_of(redis), _all_of(other)
        for content in contents:  # who wrote it, and how far
            del content["pixiu:owner"], content["pixiu:meta"]
        assert contents[0] == contents[1]
        assert streams_of(redis) == streams_of(other) and len(streams_of(redis)) >= 4


@pytest.mark.feature("R21", "R15")
async def test_a_blocking_receive_keeps_to_its_timeout(
    tmp_path: Path, server: ValkeyProcess, redis: Any, scripted: ValkeyProcess
) -> None:
    """``recive`` of the seed is XREAD: with a timeout it ends without an answer, with 0 it waits for one."""
    for place, variant in enumerate((server, scripted)):
        with Valkey(port=variant.port, decode_responses=True) as reader:
            reader.flushall()

            def receive(block_ms: int, after: str = "$", *, reader: Any = reader) -> Any:
                return reader.xread({"s:2": after}, count=100, block=block_ms)

            async with opened(tmp_path / str(place), variant.url) as node:
                await node.send("1", to="2", text="before")
                await node.host.settled()
                began = time.monotonic()
                assert not await asyncio.to_thread(receive, 150)
                assert time.monotonic() - began >= 0.14
                waiting = asyncio.ensure_future(asyncio.to_thread(receive, 0))
                await asyncio.sleep(0.3)
                assert not waiting.done(), "0 is for ever"
                await node.send("1", to="2", text="at last")
                ((_, entries),) = await asyncio.wait_for(waiting, 10)
                assert [fields["text"] for _, fields in entries] == ["at last"]
                ((_, entries),) = await asyncio.to_thread(receive, 0, "0")
                assert [fields["text"] for _, fields in entries] == ["before", "at last"], "what is there comes at once"


# The last ack.


@pytest.mark.feature("B13")
@pytest.mark.parametrize("layout", ["seed", "cluster"])
def test_the_last_ack_is_written_once_in_a_period_and_only_rises(
    layout: str, server: ValkeyProcess, redis: Any
) -> None:
    address = RedisAddress.parse(f"{server.url}?layout={layout}")
    stores = RedisStores(address, "n1")
    clock = SimulatedClock()
    acks = LastAcks(stores.overlay, stores.keys_of, clock, users_max=2)
    keys = [stores.keys_of.user % user for user in (1, 2, 3)]

    def noted() -> list[str | None]:
        stores.commit({})
        return [redis.hget(key, FIELD) for key in keys]

    acks.acked(1, 2**53 + 1)
    acks.acked(2, 99)
    acks.acked(3, 5)
    assert noted() == [str(2**53 + 1), "99", None], "beyond the bound it waits for the next ack"
    acks.acked(1, 2**53 + 7)
    acks.acked(1, 2**53 + 2)
    acks.acked(3, 6)
    clock.now_us += (PERIOD_SECONDS - 1) * 1_000_000
    assert noted() == [str(2**53 + 1), "99", None]
    clock.now_us += 1_000_000
    assert noted() == [str(2**53 + 7), "99", "6"]
    clock.now_us += PERIOD_SECONDS * 1_000_000
    acks.acked(1, 2**53)  # a log that is applied again, from its beginning
    acks.acked(2, 100)
    assert noted() == [str(2**53 + 7), "100", "6"], "numbers are compared, not texts; none goes back"
    stores.close()


@pytest.mark.feature("B13")
async def test_a_node_notes_what_was_acked_last_if_it_is_told_to(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    for url, is_noted in ((f"{server.url}?last_ack=yes", True), (server.url, False)):
        redis.flushall()
        async with opened(tmp_path / str(is_noted), url) as node:
            sent = [await node.send("1", to="2", text=str(number)) for number in range(3)]
            phone = await node.connect("2", platform="ios")
            for _ in sent:
                await phone.receive(timeout_seconds=5)
            await phone.leave()
            await node.host.applied()
            await node.host.settled()
            assert redis.hget("u:2", FIELD) == (sent[-1]["message_id"] if is_noted else None)
            assert FIELD.removeprefix("pixiu:") not in (await node.act("2", "user"))["fields"]
