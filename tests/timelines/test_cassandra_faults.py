"""Cassandra stands still, dies and returns while users talk: messages arrive, history says so, nothing is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pixiu
from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.config import CarrierSettings, EngineSettings, Settings
from pixiu.model.errors import Unavailable
from pixiu.model.timeline import PrivateRow
from pixiu.node.embedded import EmbeddedNode
from pixiu.ports.stores import Lane
from tools.cassandra_server import CassandraServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

Cql = Callable[..., list[Any]]
RECOVERY_SECONDS = 150


def settings(server: CassandraServer, keyspace: str) -> Settings:
    timelines = f"cassandra://{server.address}/{keyspace}?timeout_ms=1500"
    return Settings(engines=EngineSettings(timelines=timelines), carrier=CarrierSettings(lane_retry_ms=200))


async def all_of_it(node: EmbeddedNode) -> list[str]:
    """What Bob finds in his history with Alice, oldest first, once it answers."""
    async with asyncio.timeout(RECOVERY_SECONDS):
        while True:
            try:
                await node.host.applied()  # history shows what its lane has reached, and that was behind
                texts: list[str] = []
                after = "0"
                while (page := await node.act("bob", "history", after=after, **{"with": "alice"}))["messages"]:
                    texts += [str(message["text"]) for message in page["messages"]]
                    after = page["max"]
                return texts
            except Unavailable:
                await asyncio.sleep(0.2)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(RECOVERY_SECONDS):
        while not is_so():
            await asyncio.sleep(0.05)


async def settled(node: EmbeddedNode) -> None:
    """Until Cassandra has acknowledged everything."""
    end, stores = node.messaging.log.committed, node.messaging.stores

    def is_there() -> bool:
        node.messaging.carrier.commit()
        return stores.applied(Lane.TIMELINES) >= end

    await until(is_there)


@pytest.mark.feature("B01", "B08")
async def test_while_cassandra_stands_still_messages_arrive_and_history_is_unavailable(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        await node.create_user("alice")
        await node.create_user("bob")
        phone = await node.connect("bob", platform="ios")
        texts = [str(number) for number in range(60)]
        for text in texts[:10]:
            await node.send("alice", to="bob", text=text)
        cassandra.freeze()
        try:
            for text in texts[10:40]:
                await node.send("alice", to="bob", text=text)
            received = [(await phone.receive(timeout_seconds=60))["text"] for _ in range(40)]
            assert received == texts[:40]
            await until(lambda: any("timelines" in problem for problem in node.messaging.problems()))
            with pytest.raises(Unavailable, match="cassandra at"):
                await node.act("bob", "history", **{"with": "alice"})
            for text in texts[40:]:
                await node.send("alice", to="bob", text=text)
            assert [(await phone.receive(timeout_seconds=60))["text"] for _ in range(20)] == texts[40:]
        finally:
            cassandra.thaw()
        assert await all_of_it(node) == texts
        await until(lambda: not node.messaging.problems())
        phone.ack()
        assert (await node.audit())["balanced"]
        await settled(node)
    for owner in cql(f"SELECT DISTINCT pk, uid1 FROM {keyspace}.pchat"):
        rows = cql(f"SELECT draf FROM {keyspace}.pchat WHERE pk=%s AND uid1=%s", *owner)
        assert [row.draf.decode() for row in rows] == texts


@pytest.mark.feature("B01", "B08")
async def test_cassandra_is_killed_and_started_again_under_load(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        await node.create_user("alice")
        await node.create_user("bob")
        sent: list[str] = []
        is_over = False

        async def send() -> None:
            while not is_over:
                sent.append(str(len(sent)))
                await node.send("alice", to="bob", text=sent[-1])
                await asyncio.sleep(0.025)  # fifty a second are allowed

        sender = asyncio.create_task(send())
        try:
            await until(lambda: len(sent) > 100 or sender.done())
            cassandra.kill()
            await until(lambda: node.messaging.problems())
            with pytest.raises(Unavailable):
                await node.act("bob", "history", **{"with": "alice"})
            at = len(sent)
            await until(lambda: len(sent) > at + 100 or sender.done())
            assert not sender.done(), sender.exception()
        finally:
            await asyncio.to_thread(cassandra.start)
        await until(lambda: not node.messaging.problems())
        is_over = True
        await sender
        await node.connect("bob", platform="ios")
        assert await all_of_it(node) == sent
        assert (await node.audit())["balanced"]
        await settled(node)
    for owner in cql(f"SELECT DISTINCT pk, uid1 FROM {keyspace}.pchat"):
        rows = cql(f"SELECT draf FROM {keyspace}.pchat WHERE pk=%s AND uid1=%s", *owner)
        assert [row.draf.decode() for row in rows] == sent


def test_what_waits_is_bounded_and_sent_once_it_answers(
    cassandra: CassandraServer, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.backends.cassandra.timelines.WAITING_MAX", 50)
    address = Address(hosts=(cassandra.host,), port=cassandra.port, keyspace=keyspace, timeout_ms=1000)
    part = CassandraTimelines(address, lambda _: {})
    try:
        for number in range(1, 51):
            part.put_private(1, PrivateRow(number, 2, is_incoming=True))
        with pytest.raises(Unavailable, match="wait to be written"):
            part.put_private(1, PrivateRow(51, 2, is_incoming=True))
        cassandra.freeze()
        try:
            part.commit({Lane.TIMELINES: 50})
            with pytest.raises(Unavailable):
                part.flush()
            assert part.applied(Lane.TIMELINES) == 0
            for _ in range(3):  # at once, and not after three timeouts
                with pytest.raises(Unavailable, match="no answer in time"):
                    part.put_private(1, PrivateRow(51, 2, is_incoming=True))
                with pytest.raises(Unavailable, match="no answer in time"):
                    part.private_backward(1)
        finally:
            cassandra.thaw()
        assert part.sender.wait(1, RECOVERY_SECONDS)
        assert part.sender.failures >= 1
        assert part.applied(Lane.TIMELINES) == 50
        part.put_private(1, PrivateRow(51, 2, is_incoming=True))
        assert len(part.private_forward(1)) == 51
    finally:
        part.close()
