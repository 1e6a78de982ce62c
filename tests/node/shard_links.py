"""Replicas of a shard and gateways of a cluster in simulated time: one log, one registry, links made of queues.

Every replica applies the whole log into stores of its own. The registry says which one leads. A replica that leads no
more is not closed here: a test that wants a former leader to keep its links can have that.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.config import MessagingSettings, RoomSettings, Settings
from pixiu.config.gateway import GatewaySettings
from pixiu.links.leaders import Leaders
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.group_rooms import GroupRooms
from pixiu.node.messaging import Messaging, Place
from pixiu.ports.authentication import Identity
from pixiu.ports.registry import Write
from pixiu.roles.gateway import Gateway, LiveActions, NodeLink, RoomListening, RoomSessions, ShardLinks, WatchedPresence
from pixiu.roles.horn.providers import NoNotifications
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.node.links import Client, Pipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.leaders import Leader, LeaderMemory
    from pixiu.model.errors import PixiuError

__all__ = ["ADDRESS", "ROOT", "ClusterGateway", "ClusterWorld", "Replica"]

ROOT = "/pubsub"
ADDRESS = "127.0.0.1:1"


class LogView:
    """One replica's view of the log: it receives new records in turns of its own."""

    def __init__(self, log: MemoryLog, scheduler: SimulatedScheduler) -> None:
        self._log = log
        self._scheduler = scheduler
        self.receive: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        self.receive = receive
        if after < self._log.committed:
            self._scheduler.soon(receive)


class Replica:
    """The process that leads a shard in one epoch."""

    def __init__(self, world: ClusterWorld, shard: int, epoch: int, *, creates_users: bool = True) -> None:
        self.world = world
        self.shard, self.epoch, self.name = shard, epoch, f"shard-{shard}-{epoch}"
        self.is_frozen = self.is_dead = False
        self.scheduler = SimulatedScheduler(world.clock, random.Random(self.name), slow_us=0, pause_chance=0)
        self.pipes: list[Pipe] = []
        self.log = LogView(world.log, self.scheduler)
        world.replicas.append(self)
        self._session_count = 0
        self.messaging = Messaging(
            self.log, MemoryStores(), MemorySessions(), world.clock, self.scheduler, world.settings,
            notifications=NoNotifications(self.scheduler), creates_users=creates_users,
            place=Place(lambda: True, self._new_session_id),
        )  # fmt: skip
        context, relay = self.messaging.proxy.context, self.messaging.relay
        self.hub = GatewayHub(self.messaging, context.directory, world.clock, self.scheduler, world.settings.gateway)
        LiveActions(self.hub, context, self.scheduler, tell=relay.tell, is_present=relay.is_present)
        GroupRooms(self.hub, self.messaging, world.clock, self.scheduler, world.settings.rooms, shard)
        self.messaging.start(lambda: None)
        self.hub.start()

    def _new_session_id(self) -> int:
        """Unlike that of any other replica."""
        self._session_count += 1
        return (self.shard * 100 + self.epoch) << 32 | self._session_count

    def kill(self) -> None:
        self.is_dead = True
        for pipe in self.pipes:
            pipe.close()


class _Dialled:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def close(self) -> None:
        self._pipe.close()


class _Nobody:
    def close(self) -> None: ...


class ClusterGateway:
    """A gateway of the cluster, without sockets."""

    is_frozen = is_dead = False

    def __init__(
        self, world: ClusterWorld, name: str, *, memory: LeaderMemory | None = None, has_registry: bool = True
    ) -> None:
        self.world = world
        self.scheduler = SimulatedScheduler(world.clock, random.Random(name), slow_us=0, pause_chance=0)
        settings = world.settings
        self.registry = world.registry.open()
        if not has_registry:
            self.registry.suspend()
        self.leaders = Leaders(self.registry, self.scheduler, ROOT, "shard", memory=memory)
        self.room_sessions = 0
        self.shards = ShardLinks(
            name, self.leaders, self._dial, world.clock, self.scheduler, settings.gateway,
            alone=RoomSessions(1, self._new_session_id),
        )  # fmt: skip
        self.gateway = Gateway(
            self.shards, self._authenticate, world.clock, self.scheduler, settings.gateway, names=self.shards.names
        )
        WatchedPresence(self.gateway, self.shards.act)
        self.gone: list[int] = []
        self.rooms = RoomListening(
            self.gateway, settings.rooms, world.clock, act=self.shards.act, session_gone=self.gone.append
        )
        self.shards.receive_room = self.rooms.receive
        self.gateway.start()
        self.shards.start(self.gateway)
        self.shards.open()

    def _new_session_id(self) -> int:
        self.room_sessions += 1
        return 2**60 + self.room_sessions

    @staticmethod
    def _authenticate(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        user, _, device = token.partition(".")
        done(Identity(user, "web", device or user))

    def _dial(self, shard: int, leader: Leader, link: NodeLink) -> _Dialled | _Nobody:
        replica = self.world.leaders.get(shard)
        if replica is None or replica.is_dead or (replica.name, replica.epoch) != (leader.name, leader.epoch):
            self.scheduler.soon(lambda: link.lost("connection refused"))
            return _Nobody()
        end = replica.hub.accept()
        up = Pipe(replica.scheduler, end, link)
        down = Pipe(self.scheduler, link, end)
        up.other, down.other = down, up
        replica.pipes.append(down)
        end.opened(down)
        link.opened(up)
        return _Dialled(up)

    def connect(self, user: str, *, cursor: int = 0) -> Client:
        client = Client(self, user, cursor=cursor)  # type: ignore[arg-type]
        self.world.clients.append((self, client))
        self.world.run(60)
        return client


class ClusterWorld:
    """Everything."""

    def __init__(self, shards: int = 1, gateways: int = 2, *, creates_users: bool = True, **gateway: Any) -> None:
        """Every shard has a leader. All users are at shard 0; more shards have links."""
        self.settings = Settings(
            gateway=GatewaySettings(
                **{"lease_ms": 1_000, "presence_delay_ms": 10, "resync_percent": 0, **gateway}
            ),
            rooms=RoomSettings(says_per_second=0),
            messaging=MessagingSettings(sends_per_second=0),
        )  # fmt: skip
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.registry = MemoryRegistry(self.scheduler)
        self.session = self.registry.open()
        self.log = MemoryLog(self.clock, self.scheduler)
        self.replicas: list[Replica] = []
        self.log._receive = self._committed
        self.leaders: dict[int, Replica] = {}
        self.clients: list[tuple[ClusterGateway, Client]] = []
        self.gateways: list[ClusterGateway] = []
        self.creates_users = creates_users
        if shards:
            self.write("shard/partition_num", {"count": shards})
        for shard in range(shards):
            self.lead(shard, epoch=1)
        self.gateways += [ClusterGateway(self, f"gateway-{number}") for number in range(1, gateways + 1)]
        self.run(100)

    def _committed(self) -> None:
        for replica in self.replicas:
            if not replica.is_dead:
                replica.scheduler.soon(replica.log.receive)

    def write(self, path: str, data: dict[str, object]) -> None:
        self.session.write(Write(f"{ROOT}/{path}", data), lambda _version: None)

    def write_leader(self, shard: int, epoch: int, name: str) -> None:
        self.write(f"shard/partition{shard}/leader", {"epoch": epoch, "name": name, "hub": ADDRESS})

    def lead(self, shard: int = 0, *, epoch: int) -> Replica:
        """A new replica leads a shard."""
        replica = self.leaders[shard] = Replica(self, shard, epoch, creates_users=self.creates_users)
        replica.scheduler.run_ready()
        self.write_leader(shard, epoch, replica.name)
        return replica

    def run(self, milliseconds: int) -> None:
        """Let time pass, for those who are not frozen."""
        for _ in range(milliseconds):
            self.clock.now_us += 1000
            for _ in range(3):  # there and back
                self.scheduler.run_for(0)
                processes: list[Replica | ClusterGateway] = [*self.replicas, *self.gateways]
                for process in processes:
                    if not (process.is_frozen or process.is_dead):
                        process.scheduler.run_for(0)
            for _, client in self.clients:
                client.look()
