"""What admins ask at a gateway of a cluster: the shard answers it over the gateway's link, as a node would."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config import Settings
from pixiu.config.registry import RegistryAddress
from pixiu.im.draft import Actor
from pixiu.links.leaders import Leaders
from pixiu.machines.links.sealing import Secrets
from pixiu.model.errors import Conflict, NotAllowed, NotFound, PixiuError, Unavailable
from pixiu.node.admin.administration import NodeAdministration
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.gateways.listener import HubListener
from pixiu.node.processes.gateway.administration import ClusterAdministration
from pixiu.node.shard import Surface
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

SECRET = Secrets([b"sixteen bytes or more"])
BOOT = 77


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


class World:
    """A node that is a shard, and a gateway that reaches it over TCP."""

    def __init__(self, node: EmbeddedNode, shards: ShardLinks, gateway: Gateway, surface: Surface) -> None:
        self.node, self.shards, self.gateway, self.surface = node, shards, gateway, surface
        self.direct = NodeAdministration(node.host)
        scheduler = surface.hub.scheduler
        self.registry = MemoryRegistry(scheduler).open()
        address = RegistryAddress("10.0.0.1:2181", "/pubsub")
        self.remote = ClusterAdministration(shards, address, registry=self.registry, root="/pubsub")

    async def connect(self, user: str) -> FakeTransport:
        transport = FakeTransport()
        self.gateway.open(transport, codec="json", is_websocket=True, token=user, cursor=0, address="127.0.0.1")
        await until(lambda: transport.pushed("contacts"))
        return transport


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    loop, clock, settings = asyncio.get_running_loop(), SystemClock(), Settings()
    scheduler = LoopScheduler(loop)
    registry = MemoryRegistry(scheduler)
    async with EmbeddedNode(tmp_path, creates_users=True) as node:
        surface = Surface(node.host, settings, scheduler, 0)
        surface.open()
        listener = HubListener(SECRET, BOOT, lambda: surface.hub)
        address = await listener.start("127.0.0.1", 0)
        session = registry.open()
        session.write(Write("/pubsub/shard/partition_num", {"count": 1}), lambda _version: None)
        row: dict[str, object] = {"epoch": 1, "name": "shard-0-0", "hub": address, "boot": f"{BOOT:x}"}
        session.write(Write("/pubsub/shard/partition0/leader", row), lambda _version: None)
        shards = ShardLinks(
            "gateway-1", Leaders(registry.open(), scheduler, "/pubsub", "shard"),
            lambda _shard, leader, link: hub_streams.connect(
                loop, leader.address, SECRET, link, boot=7, to=leader.boot
            ),
            clock, scheduler, settings.gateway, alone=RoomSessions(1, lambda: 1),
        )  # fmt: skip
        gateway = Gateway(
            shards, lambda token, done: done(Identity(token, "web", "d")), clock, scheduler, settings.gateway,
            names=shards.names,
        )  # fmt: skip
        gateway.start()
        shards.start(gateway)
        await until(lambda: shards.is_useful)
        yield World(node, shards, gateway, surface)
        shards.stop()
        gateway.stop()
        await listener.close()
        surface.stop()
    scheduler.close()


async def test_sessions_and_kick(world: World) -> None:
    alice, _ = await world.connect("alice"), await world.connect("bob")
    rows = await world.remote.sessions(None, 0, 10)
    assert rows == world.direct.sessions(None, 0, 10)
    assert [row["user"] for row in rows] == ["bob", "alice"], "newest first"
    (own,) = await world.remote.sessions("alice", 0, 10)
    assert await world.remote.sessions(None, int(str(rows[0]["session_id"])), 10) == [own]
    assert len(await world.remote.sessions(None, 0, 1)) == 1
    assert await world.remote.kick("alice", int(str(own["session_id"])), "enough") == 1
    await until(lambda: alice.closed)
    assert alice.pushed("kick") == [{"push": "kick", "reason": "enough"}]
    assert await world.remote.kick("bob", None, "enough") == 1
    with pytest.raises(NotFound):
        await world.remote.kick("nobody at all", None, "enough")


async def test_topics_have_sizes_and_a_tail(world: World) -> None:
    await world.node.send("alice", to="bob", text="hello")
    rows = await world.remote.topics("", 100)
    assert rows == world.direct.topics("", 100)
    (main,) = [row for row in rows if row["name"] == "pixiu.main"]
    assert main["bytes"]
    assert [row["name"] for row in await world.remote.topics("pixiu.main", 100)] == [
        row["name"] for row in rows if str(row["name"]) > "pixiu.main"
    ]
    tail = await world.remote.tail("pixiu.main", None, 2)
    assert tail == world.direct.tail("pixiu.main", None, 2)
    messages: Any = tail["messages"]
    assert len(messages) == 2
    after = await world.remote.tail("pixiu.main", int(messages[0]["event_id"]), 10)
    assert after["messages"] == messages[1:]
    with pytest.raises(NotFound):
        await world.remote.tail("no such topic", None, 2)


async def test_explain_names_the_hops_of_a_message(world: World) -> None:
    sent = await world.node.send("alice", to="bob", text="hello")
    found = await world.remote.explain(int(str(sent["message_id"])))
    assert (found["message_id"], found["from"], found["to"]) == (sent["message_id"], "alice", "bob")
    with pytest.raises(NotFound, match="no message 999"):
        await world.remote.explain(999)


async def test_stats_are_those_of_the_leader_and_name_the_map(world: World) -> None:
    await world.connect("alice")
    found = await world.remote.stats()
    assert found.keys() == world.direct.stats().keys()
    assert found["sessions"] == 1 and json.loads(json.dumps(found)) == found
    async with asyncio.timeout(10):  # with the next heartbeat
        while (found := await world.remote.stats())["connections"] != 1:
            await asyncio.sleep(0.05)
    assert found["connections_max"] == world.gateway.connections_max
    world.registry.write(Write("/pubsub/meta/partition0/1", {"admin": "127.0.0.1:8410"}), lambda _version: None)
    await asyncio.sleep(0)
    assert (await world.remote.stats())["map"] == "http://127.0.0.1:8410/"


async def test_stats_history_begins_when_the_replica_leads(world: World) -> None:
    found: Any = await world.remote.stats_history(0)
    assert len(found["samples"]["at"]) >= 1 and found["every_ms"] == 2_000
    assert (await world.remote.stats_history(found["samples"]["at"][-1]))["samples"]["at"] == []  # type: ignore[index]


async def test_dead_letters_replay_and_scheduled(world: World) -> None:
    at = SystemClock().now_ms() + 3_600_000
    made = await world.node.act("alice", "schedule", to="bob", text="later", at=at)
    (waiting,) = await world.remote.scheduled(0, 10)
    assert waiting == world.direct.scheduled(0, 10)[0] and waiting["schedule_id"] == made["schedule_id"]
    assert await world.remote.dead_letters(0, 10) == []
    world.node.host.log.publish("pixiu.tasks", b"\xff\xff no task", lambda _result: None)
    async with asyncio.timeout(10):
        while not (letters := await world.remote.dead_letters(0, 10)):
            await asyncio.sleep(0.02)
    assert letters == world.direct.dead_letters(0, 10)
    letter = int(str(letters[0]["id"]))
    await world.remote.replay(letter)
    with pytest.raises(Conflict):
        await world.remote.replay(letter)
    with pytest.raises(NotFound):
        await world.remote.replay(999_999_999)


async def test_what_is_not_available_names_the_command_instead(world: World) -> None:
    for ask, command in (
        (world.remote.redact, "pixiu queue redact"), (world.remote.cut, "pixiu audit --registry"),
        (world.remote.pipeline_report, "pixiu pipeline report"),
    ):  # fmt: skip
        with pytest.raises(NotFound, match=f"not available in a cluster; instead: .*{command}"):
            await ask()
    with pytest.raises(NotFound, match="not available in a cluster; instead: pixiu pipeline run"):
        world.remote.pipeline()


async def test_shard_that_cannot_be_reached_is_named(world: World) -> None:
    world.shards.stop()
    with pytest.raises(Unavailable, match="shard 0: ") as refused:
        await world.remote.stats()
    assert refused.value.retry_after_ms and "map" not in str(refused.value)
    world.registry.write(Write("/pubsub/meta/partition0/1", {"admin": "127.0.0.1:8410"}), lambda _version: None)
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match=r"shard 0: .*; the map of all processes: http://127\.0\.0\.1:8410/"):
        await world.remote.stats()


async def test_question_of_a_user_who_is_no_admin_is_refused(world: World) -> None:
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    world.shards.shards[0].link.call(Actor(7), "admin/stats", {}, answered.set_result)
    assert isinstance(await asyncio.wait_for(answered, 5), NotAllowed)
    unknown: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    world.shards.shards[0].link.call(Actor(0, is_admin=True), "admin/nonsense", {}, unknown.set_result)
    assert isinstance(await asyncio.wait_for(unknown, 5), NotFound)


async def test_question_that_fails_is_answered(world: World, caplog: pytest.LogCaptureFixture) -> None:
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    world.shards.shards[0].link.call(Actor(0, is_admin=True), "admin/tail", {}, answered.set_result)
    found = await asyncio.wait_for(answered, 5)
    assert type(found) is PixiuError and "log says why" in str(found)
    assert "admin_question_failed" in caplog.messages
