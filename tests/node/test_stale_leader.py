"""A gateway that dials the address of a former leader gets no answer there, and ends up at the leader."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config import Settings
from pixiu.links.leaders import Leaders
from pixiu.machines.links.sealing import Secrets
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.shard import Shard
from pixiu.ports.authentication import Identity
from pixiu.ports.registry import Write
from pixiu.roles.gateway import Gateway, RoomSessions, ShardLinks
from pixiu.runtime import hub_streams
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler
from tests.roles.gateway.scene import FakeTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pixiu.links.leaders import Leader
    from pixiu.node.gateways.link import HubLink
    from pixiu.roles.gateway import NodeLink

SECRET = Secrets([b"sixteen bytes or more"])
OLD, NEW, OTHER = 101, 102, 103
"""Boot ids of processes."""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


class Replica:
    """The gateways' side of a replica: a real ``Shard``, with a real node where its host would be."""

    def __init__(self, world: World, node: EmbeddedNode, boot: int) -> None:
        names = node.messaging.proxy.context.directory
        self.hub = GatewayHub(node.messaging, names, SystemClock(), world.scheduler, world.settings.gateway)
        self.hub.start()
        self.accepted = 0
        self._accept = self.hub.accept
        self.hub.accept = self._counted_accept  # type: ignore[method-assign]
        self.has_lease = True
        self.boot = boot
        self.address = ""
        engine: Any = None
        self.shard = Shard(
            engine, world.scheduler, world.settings, world.root, name=f"shard-0-{boot}", boot=boot, secrets=SECRET,
            creates_users=False,
        )  # fmt: skip
        surface: Any = SimpleNamespace(is_open=True, hub=self.hub)
        replication: Any = SimpleNamespace(holds_lease=lambda: self.has_lease)
        self.shard.surface, self.shard._replication = surface, replication

    def _counted_accept(self) -> HubLink:
        self.accepted += 1
        return self._accept()

    async def listen(self, port: int = 0) -> None:
        self.address = await self.shard.listen("127.0.0.1", port)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def refused(self) -> int:
        listener = self.shard._listener._listener
        return 0 if listener is None else listener.refused

    async def stop(self) -> None:
        """The process ends, with its sockets."""
        await self.shard._listener.close()
        self.hub.stop()


class World:
    """A gateway with a registry in memory; its links are real."""

    def __init__(self, root: Path, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        self.root = root
        self.settings = Settings()
        self.scheduler = LoopScheduler(loop)
        self._stack = stack
        self._registry = MemoryRegistry(self.scheduler)
        self._session = self._registry.open()
        self._session.write(Write("/pubsub/shard/partition_num", {"count": 1}), lambda _version: None)
        clock = SystemClock()
        self.leaders = Leaders(self._registry.open(), self.scheduler, "/pubsub", "shard", poll_ms=100)
        self.dialled: list[int] = []
        self.shards = ShardLinks(
            "gateway-1", self.leaders, self._dial, clock, self.scheduler, self.settings.gateway,
            alone=RoomSessions(1, lambda: 1),
        )  # fmt: skip
        self.gateway = Gateway(
            self.shards, lambda token, done: done(Identity(token, "web", "d")), clock, self.scheduler,
            self.settings.gateway, names=self.shards.names,
        )  # fmt: skip

    def _dial(self, _shard: int, leader: Leader, link: NodeLink) -> hub_streams.Dial:
        self.dialled.append(leader.boot)
        loop = asyncio.get_running_loop()
        return hub_streams.connect(loop, leader.address, SECRET, link, boot=7, to=leader.boot)

    async def replica(self, boot: int, port: int = 0) -> Replica:
        folder = self.root / f"node-{boot}"
        node = await self._stack.enter_async_context(EmbeddedNode(folder, creates_users=True))
        made = Replica(self, node, boot)
        await made.listen(port)
        self._stack.push_async_callback(made.stop)
        return made

    def write_leader(self, epoch: int, replica: Replica) -> None:
        row = {"epoch": epoch, "name": replica.shard.name, "hub": replica.address, "boot": f"{replica.boot:x}"}
        self._session.write(Write("/pubsub/shard/partition0/leader", row), lambda _version: None)

    def start(self) -> None:
        self.gateway.start()
        self.shards.start(self.gateway)
        self.shards.open()

    def connect(self, user: str) -> tuple[FakeTransport, Any]:
        transport = FakeTransport()
        connection = self.gateway.open(
            transport, codec="json", is_websocket=True, token=user, cursor=0, address="127.0.0.1"
        )
        return transport, connection

    async def sends(self, sender: str, to: str) -> None:
        """Log a user in, and send a message; it must be accepted."""
        transport, connection = self.connect(sender)
        await until(lambda: transport.pushed("contacts"))
        frame = {"id": 1, "action": "send", "params": {"to": to, "text": "hi"}}
        connection.received(json.dumps(frame).encode(), is_text=True)
        await until(lambda: [each for each in transport.frames if each.get("id") == 1])
        (answer,) = [each for each in transport.frames if each.get("id") == 1]
        assert "result" in answer, answer


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(tmp_path, stack)
        yield made
        made.shards.stop()
        made.gateway.stop()
        made.scheduler.close()


async def test_former_leader_that_holds_no_lease_refuses_the_gateway(world: World) -> None:
    old, new = await world.replica(OLD), await world.replica(NEW)
    old.has_lease = False
    world.write_leader(1, old)
    world.start()
    await until(lambda: len(world.dialled) >= 3)
    refused, _ = world.connect("alice")
    await until(lambda: refused.closed)
    assert refused.closed == (1013, "unavailable")
    assert world.shards.problems()
    world.write_leader(2, new)
    await until(lambda: world.shards.is_useful)
    await world.sends("alice", "bob")
    assert (old.accepted, new.accepted) == (0, 1)
    world.write_leader(1, old)
    await asyncio.sleep(0.3)
    assert world.shards.is_useful and old.accepted == 0, "an entry of an earlier epoch is stale"


async def test_another_process_at_the_address_of_the_former_leader_refuses_the_gateway(world: World) -> None:
    old, new = await world.replica(OLD), await world.replica(NEW)
    await old.stop()
    other = await world.replica(OTHER, old.port)
    assert other.address == old.address
    world.write_leader(1, old)
    world.start()
    await until(lambda: other.refused >= 2)
    assert (world.shards.is_useful, other.accepted) == (False, 0)
    world.write_leader(2, new)
    await until(lambda: world.shards.is_useful)
    await world.sends("alice", "bob")
    assert (other.accepted, new.accepted) == (0, 1), "it leads too, but it is not the process that was meant"


async def test_gateway_leaves_a_leader_that_has_lost_its_lease_for_the_next_one(world: World) -> None:
    old, new = await world.replica(OLD), await world.replica(NEW)
    world.write_leader(1, old)
    world.start()
    await until(lambda: world.shards.is_useful)
    transport, _ = world.connect("alice")
    await until(lambda: transport.pushed("contacts"))
    old.has_lease = False  # its links are still open
    world.write_leader(2, new)
    await until(lambda: new.hub.sessions == 1)
    assert transport.pushed("resync") and transport.closed is None
    await until(lambda: not old.hub.links)
    await world.sends("carol", "bob")
    assert (old.accepted, world.dialled) == (1, [OLD, NEW])
