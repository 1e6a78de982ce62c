"""Carriers and gateways of a cluster in simulated time: one log, partitions that each have their own users, a registry.

Each carrier applies the whole log into stores of its own, so it knows everybody, and serves those who are its own.
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
from pixiu.model.partitions import Share
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.messaging import Messaging, Place
from pixiu.node.processes.carrier.group_rooms import GroupRooms
from pixiu.ports.authentication import Identity
from pixiu.ports.registry import Write
from pixiu.roles.gateway import (
    CarrierLinks,
    ClusterLive,
    Gateway,
    GroupTalk,
    LiveActions,
    NodeLink,
    RoomListening,
    RoomSessions,
)
from pixiu.roles.horn.providers import NoNotifications
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.node.links import Client, Pipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.leaders import Leader
    from pixiu.model.errors import PixiuError
    from pixiu.ports.log import LogRecord

__all__ = ["Carrier", "ClusterGateway", "ClusterWorld"]

ROOT = "/pubsub"


class LogView:
    """One carrier's reading of the log. It may lag behind."""

    def __init__(self, log: MemoryLog, scheduler: SimulatedScheduler) -> None:
        self._log = log
        self._scheduler = scheduler
        self._stands_at: int | None = None
        self.receive: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        self.receive = receive
        if after < self._log.committed:
            self._scheduler.soon(receive)

    @property
    def committed(self) -> int:
        return self._log.committed if self._stands_at is None else self._stands_at

    def read(self, after: int, limit: int) -> list[LogRecord]:
        return [record for record in self._log.read(after, limit) if record.event_id <= self.committed]

    def lag(self) -> None:
        """Hear of nothing new, until ``catch_up``."""
        self._stands_at = self._log.committed

    def catch_up(self) -> None:
        self._stands_at = None
        self._scheduler.soon(self.receive)


class Carrier:
    """The process that serves one partition."""

    def __init__(self, world: ClusterWorld, partition: int, epoch: int, *, creates_users: bool = True) -> None:
        self.world = world
        self.partition, self.epoch, self.name = partition, epoch, f"carrier-{partition}-{epoch}"
        self.is_frozen = self.is_dead = False
        self.scheduler = SimulatedScheduler(world.clock, random.Random(self.name), slow_us=0, pause_chance=0)
        self.pipes: list[Pipe] = []
        self.log = LogView(world.log, self.scheduler)
        world.readers.append(self)
        sessions = MemorySessions()
        self._session_count = 0
        self.messaging = Messaging(
            self.log, MemoryStores(), sessions, world.clock, self.scheduler, world.settings,
            notifications=NoNotifications(self.scheduler), creates_users=creates_users,
            place=Place(Share(partition, world.count), world.count, lambda: True, self._new_session_id),
        )  # fmt: skip
        context, relay = self.messaging.proxy.context, self.messaging.relay
        self.hub = GatewayHub(self.messaging, context.directory, world.clock, self.scheduler, world.settings.gateway)
        self.hub.catch_up = self._catch_up
        self.caught_up = 0
        LiveActions(
            self.hub, context, self.scheduler, tell=relay.tell, is_present=relay.is_present,
            knows=Share(partition, world.count),
        )  # fmt: skip
        GroupRooms(self.hub, self.messaging, world.clock, self.scheduler, world.settings.rooms, partition)
        self.messaging.start(lambda: None)
        self.hub.start()

    def _new_session_id(self) -> int:
        """Like no other's in the cluster."""
        self._session_count += 1
        return (self.partition * 100 + self.epoch) << 32 | self._session_count

    def _catch_up(self, done: Callable[[], object]) -> None:
        self.caught_up += 1
        self.log.catch_up()
        self.messaging.carrier.when_applied(self.world.log.committed, done)

    def kill(self) -> None:
        self.is_dead = True
        for pipe in self.pipes:
            pipe.close()

    @property
    def runs(self) -> bool:
        return not (self.is_dead or self.is_frozen)


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

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self.world = world
        self.scheduler = SimulatedScheduler(world.clock, random.Random(name), slow_us=0, pause_chance=0)
        settings = world.settings
        self.leaders = Leaders(world.registry.open(), self.scheduler, ROOT, "carrier")
        self.room_sessions = 0
        self.carriers = CarrierLinks(
            name, self.leaders, self._dial, world.clock, self.scheduler, settings.gateway,
            alone=RoomSessions(1, self._new_session_id),
        )  # fmt: skip
        self.gateway = Gateway(
            self.carriers, self._authenticate, world.clock, self.scheduler, settings.gateway, names=self.carriers.names
        )
        ClusterLive(self.gateway, self.carriers)
        self.gone: list[int] = []
        self.rooms = RoomListening(
            self.gateway, settings.rooms, world.clock, act=GroupTalk(self.carriers).act, session_gone=self.gone.append
        )
        self.carriers.receive_room = self.rooms.receive
        self.gateway.start()
        self.carriers.start(self.gateway)
        self.carriers.open()

    def _new_session_id(self) -> int:
        self.room_sessions += 1
        return 2**60 + self.room_sessions

    @staticmethod
    def _authenticate(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        user, _, device = token.partition(".")
        done(Identity(user, "web", device or user))

    def _dial(self, partition: int, leader: Leader, link: NodeLink) -> _Dialled | _Nobody:
        carrier = self.world.carriers.get(partition)
        if carrier is None or carrier.is_dead or (carrier.name, carrier.epoch) != (leader.name, leader.epoch):
            self.scheduler.soon(lambda: link.lost("nobody listens"))
            return _Nobody()
        end = carrier.hub.accept()
        up = Pipe(carrier.scheduler, end, link)
        down = Pipe(self.scheduler, link, end)
        up.other, down.other = down, up
        carrier.pipes.append(down)
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

    def __init__(self, partitions: int = 2, gateways: int = 2, *, creates_users: bool = True, **gateway: Any) -> None:
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
        self.readers: list[Carrier] = []
        self.log._receive = self._committed
        self.carriers: dict[int, Carrier] = {}
        self.clients: list[tuple[ClusterGateway, Client]] = []
        self.gateways: list[ClusterGateway] = []
        self.creates_users = creates_users
        self.count = partitions
        self.write("carrier/partition_num", {"count": partitions}) if partitions else None
        for partition in range(partitions):
            self.serve(partition, epoch=1)
        self.gateways += [ClusterGateway(self, f"gateway-{number}") for number in range(1, gateways + 1)]
        self.run(100)

    def _committed(self) -> None:
        for reader in self.readers:
            if not reader.is_dead:
                reader.scheduler.soon(reader.log.receive)

    def write(self, path: str, data: dict[str, object]) -> None:
        self.session.write(Write(f"{ROOT}/{path}", data), lambda _version: None)

    def serve(self, partition: int, *, epoch: int) -> Carrier:
        """A replica begins to serve a partition."""
        carrier = self.carriers[partition] = Carrier(self, partition, epoch, creates_users=self.creates_users)
        carrier.scheduler.run_ready()
        self.write(
            f"carrier/partition{partition}/leader", {"epoch": epoch, "name": carrier.name, "address": "127.0.0.1:1"}
        )
        return carrier

    def run(self, milliseconds: int) -> None:
        """Let time pass, for those who do not stand still."""
        for _ in range(milliseconds):
            self.clock.now_us += 1000
            for _ in range(3):  # there and back
                self.scheduler.run_for(0)
                processes: list[Carrier | ClusterGateway] = [*self.readers, *self.gateways]
                for process in processes:
                    if not (process.is_frozen or process.is_dead):
                        process.scheduler.run_for(0)
            for _, client in self.clients:
                client.look()
