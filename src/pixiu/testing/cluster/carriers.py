"""Carriers in a simulated cluster: their lives, their hosts and their stores are those of production.

Replaced are the disk (a store that outlives the process), the log's network, and streams. Each has a clock of its own
speed. Whoever is asked whether it may serve is watched: of the replicas of one partition one may, at every moment.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.config import GatewaySettings, MessagingSettings, Settings
from pixiu.links.member import COUNT_KEY, count_path, folder_of
from pixiu.machines.serving import ServingRules
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.partitions import Share
from pixiu.node.processes.carrier.doubling import double_carriers
from pixiu.node.processes.carrier.engines import ReplicaStores
from pixiu.node.processes.carrier.host import CarrierHost
from pixiu.node.processes.carrier.life import CarrierLife
from pixiu.node.processes.carrier.snapshots import BULK, givers_in, take_snapshot
from pixiu.node.processes.carrier.stores import opened
from pixiu.queue.replication.control import RegistryControl
from pixiu.testing.cluster.log import LogClient, LogOverNetwork
from pixiu.testing.cluster.process import Process
from pixiu.testing.cluster.streams import dial
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.node_loop import NodeLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import WatchedReceiver
    from pixiu.testing.cluster.log import SharedLog
    from pixiu.testing.cluster.world import Cluster
    from pixiu.testing.scheduler import SimulatedClock

__all__ = ["CarrierNode", "Operator", "StoreDisk", "settings_of"]

ROOT = "/pubsub"
ROLE = "carrier"
PIECE_PAIRS = 16
"""Snapshots come in pieces, small as these stores are."""
RULES = ServingRules(lease_ms=1_200, renew_ms=250, behind_ms=3_000)


@lru_cache(maxsize=1_024)
def settings_of(node_id: int = 0) -> Settings:
    """Quick, and without limits that the world does not mean."""
    settings = Settings(
        gateway=GatewaySettings(lease_ms=2_000, resync_percent=25, connects_per_user=0),
        messaging=MessagingSettings(sends_per_second=0),
    )
    object.__setattr__(settings.queue, "node_id", node_id)
    return settings


class OwnClock:
    """A process's own: the steady one has its own speed."""

    def __init__(self, clock: SimulatedClock, speed: float) -> None:
        self._clock = clock
        self.speed = speed

    def now_ms(self) -> int:
        """The wall clock."""
        return self._clock.now_ms()

    def monotonic_us(self) -> int:
        """The steady clock."""
        return int(self._clock.now_us * self.speed)


class StoreDisk:
    """``StoreHome`` that outlives processes."""

    def __init__(self) -> None:
        self.content = StoreContent()
        self._coming = StoreContent()
        self._opened: list[SimulatedKeyValue] = []

    def open(self) -> SimulatedKeyValue:
        """What is in place."""
        return self._give(self.content)

    def throw_away(self) -> None:
        """It is gone."""
        self.content = StoreContent()

    def fresh(self) -> SimulatedKeyValue:
        """An empty one beside it."""
        self._coming = StoreContent()
        return self._give(self._coming)

    def adopt(self) -> None:
        """In one step."""
        self.content, self._coming = self._coming, StoreContent()

    def let_go(self) -> None:
        """The process is dead: whatever it had open leads nowhere any more."""
        for store in self._opened:
            store._content = StoreContent()
        self._opened.clear()

    def _give(self, content: StoreContent) -> SimulatedKeyValue:
        store = SimulatedKeyValue(content)
        self._opened = [*self._opened[-2:], store]
        return store


class _Host(CarrierHost):
    """The host, which says when it was chosen."""

    when_chosen: Callable[[], object]

    async def serve(self) -> None:
        """It is its turn."""
        self.when_chosen()
        await super().serve()


class CarrierNode(Process):
    """One replica of a partition of the users."""

    def __init__(self, cluster: Cluster, log: SharedLog, name: str, partition: int, disk: StoreDisk) -> None:
        super().__init__(cluster, ROLE, partition)
        self.name = name
        self.disk = disk
        self.log = log
        self.clock = OwnClock(cluster.clock, 0.9 + 0.2 * cluster.rng.random())
        self.loop = NodeLoop(self, cluster.scheduler)
        self.scheduler = self.loop.scheduler
        self.view: LogOverNetwork | None = None
        """The log, as this life of it sees it."""
        self.chosen_us = 0
        """When it began its turn to serve."""
        self.when_asked: Callable[[CarrierNode], object] = lambda _node: None
        """Told when it is about to act as the one that serves."""
        entry = cluster.registry.read(count_path(ROOT, ROLE)).get("")
        count = 1 if entry is None else int(str(entry.data[COUNT_KEY]))
        self.partitions = count
        self.share = Share(partition, count if partition < count else 2 * count)
        self._settings = settings_of(cluster.boots % 1000)
        more = {
            "role": ROLE, "partition": partition, "boot": f"{self.boot:x}", "admin": "", BULK: self.address,
        }  # fmt: skip
        control = RegistryControl(
            self.registry, self.scheduler, folder=folder_of(ROOT, ROLE, partition), name=name,
            address=self.address, more=more,
        )  # fmt: skip
        with self.loop.running():
            self.life = CarrierLife(
                name, RULES, control, self.clock, self.scheduler, begin=self._begin, take_snapshot=self._take
            )
            self.life.start()

    @property
    def host(self) -> CarrierHost | None:
        """Of this life."""
        return self.life.host

    def hear(self, call: Callable[[], object]) -> None:
        """Something arrives: in its own turn, with its own loop."""
        super().hear(partial(self.loop.run, call))

    def crash(self) -> None:
        """The process is gone; what it has written stays."""
        super().crash()
        self.disk.let_go()

    async def _begin(self, may_serve: Callable[[], bool]) -> CarrierHost:
        view = LogOverNetwork(self.cluster, self, self.log)
        await view.open()

        def watched() -> bool:
            may = may_serve()
            if may:
                self.when_asked(self)
            return may

        client: Any = LogClient(view, self.log)
        queue: Any = view
        host = _Host(
            client, queue, self._stores(), self.clock, self.scheduler, self._settings,
            partitions=self.partitions, may_serve=watched, creates_users=True,
        )  # fmt: skip
        host.when_chosen = self._chosen
        host.giving.piece_pairs = PIECE_PAIRS
        self.view = view
        return host

    def _stores(self) -> ReplicaStores:
        store, made_for = opened(self.disk, self.share)
        return ReplicaStores(store, made_for, EmbeddedStores(store))

    def _chosen(self) -> None:
        self.chosen_us = self.cluster.clock.now_us

    async def _take(self, applied: int) -> int:
        folder = self.cluster.registry.read(f"{ROOT}/{ROLE}")
        wanted = list(dict.fromkeys([self.share.partition, self.share.partition % self.partitions]))
        problem: PixiuError = Unavailable("nobody gives a snapshot")
        for address, boot in givers_in(folder, self.name, wanted):

            def reach(receiver: WatchedReceiver, address: str = address, boot: int = boot) -> Any:
                return dial(self.cluster, self, address, boot, receiver, _give)

            try:
                return await take_snapshot(reach, self.disk, self.share, applied=applied)
            except PixiuError as error:
                problem = error
        raise problem


def _give(target: Process) -> WatchedReceiver | None:
    host = target.host if isinstance(target, CarrierNode) else None
    return None if host is None else host.giving.accept()


class Operator(Process):
    """Whoever doubles the carriers: the tool of production, again and again until it is done."""

    def __init__(self, cluster: Cluster, log: SharedLog, *, replicas: int) -> None:
        super().__init__(cluster, "operator")
        self.loop = NodeLoop(self, cluster.scheduler)
        self.scheduler = self.loop.scheduler
        self.count = 0
        """What it has doubled to."""
        view = LogOverNetwork(cluster, self, log)
        self._client: Any = LogClient(view, log)
        self._replicas = replicas

    def hear(self, call: Callable[[], object]) -> None:
        """In its own turn, with its own loop."""
        super().hear(partial(self.loop.run, call))

    def double(self) -> None:
        """Begin."""
        with self.loop.running():
            self.loop.create_task(self._double())

    async def _double(self) -> None:
        try:
            registry: Any = self.registry
            self.count = await double_carriers(registry, ROOT, self._client, replicas=self._replicas)
        except (PixiuError, TimeoutError):
            self.scheduler.after(500, self.double)
