"""Replicas of a shard in a simulated cluster: engine, queue server, replication and messaging are those of production.

Replaced are the disk, the network between replicas, the sockets of gateways, and the registry's server. Each replica
has clocks of its own. The parts that are coroutines run on a loop in virtual time (``node_loop``).
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.config import GatewaySettings, MessagingSettings, Settings
from pixiu.config.messaging import HornSettings
from pixiu.config.queue import JournalSettings, ReplicationSettings, TopicSettings
from pixiu.node.host import Opened
from pixiu.node.shard import Shard, Surface
from pixiu.queue.engine import Engine
from pixiu.queue.replication.control import SHARD, RegistryControl, partition_folder
from pixiu.queue.replication.driver import Replication
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage.snapshot import COMPLETE, DUMP_FOLDER, INCOMING, STORES_DUMP, load_dump
from pixiu.testing.cluster.links import ServerEnd, SimulatedLinks
from pixiu.testing.cluster.process import OwnClock, Process
from pixiu.testing.cluster.wires import SECRETS
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.node_loop import NodeLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.node.host import MessagingHost
    from pixiu.ports.transport import WatchedReceiver
    from pixiu.testing.cluster.world import Cluster

__all__ = ["ROOT", "MachineDisk", "ShardNode", "settings_of"]

ROOT = "/pubsub"
KEY = "a secret of simulated shards"
DATA = Path("/simulated")
"""The data directory. Nothing is there: files and stores are simulated."""
CONNECTIONS_MAX = 1_000
LEAVE_SECONDS, DRAIN_SECONDS = 1.0, 5.0
"""As in ``pixiu.node.serving``."""
JOURNAL_BYTES = 4 * 1024
"""With retention, about so much of the journal stays."""


def settings_of(*, has_retention: bool = False, fill_bytes: int = 0) -> Settings:
    """The settings of a shard, with short times, and without limits that this world does not test."""
    return Settings(
        gateway=GatewaySettings(lease_ms=2_000, resync_percent=25, connects_per_user=0),
        messaging=MessagingSettings(sends_per_second=0),
        horn=HornSettings(provider="none"),
        journal=JournalSettings(
            segment_bytes=4_096, fill_bytes=fill_bytes, retention_bytes=JOURNAL_BYTES if has_retention else 0,
            checkpoint_interval_ms=1_000, check_bytes_per_second=0,
        ),
        topics=TopicSettings(retention_interval_ms=1_000),
        replication=ReplicationSettings(  # ``SHARD_DEFAULTS``
            acknowledge="in-sync", heartbeat_ms=250, in_sync_timeout_ms=1_250, reconnect_ms=200
        ),
    )  # fmt: skip


class MachineDisk:
    """What a replica keeps beyond the life of a process, and the clocks of its machine."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, speed: float) -> None:
        self.clock = OwnClock(cluster.clock, speed)
        self.files = SimulatedDisk(rng, now_ms=self.clock.now_ms)
        self.queue = StoreContent()
        self.stores = StoreContent()
        self.snapshots = 0
        """How many snapshots of other replicas were installed."""
        self._rng = rng
        self._opened: list[DiskStore] = []

    def install_snapshot(self) -> None:
        """Move a snapshot that has arrived whole into place, as ``pixiu.node.stopped.open_store`` does."""
        files = self.files
        arrived = files.names(INCOMING)
        if COMPLETE.removeprefix(f"{INCOMING}/") in arrived:
            self.snapshots += 1
            if "queue" in arrived:
                files.move_folder(f"{INCOMING}/queue", "queue")
                self.queue = self._loaded(DUMP_FOLDER)
            if STORES_DUMP in arrived:
                files.move_folder(f"{INCOMING}/{STORES_DUMP}", STORES_DUMP)
                self.stores = self._loaded(STORES_DUMP)
        files.remove_folder(INCOMING)

    def _loaded(self, folder: str) -> StoreContent:
        content = StoreContent()
        store = SimulatedKeyValue(content)
        for name in self.files.names(folder):
            load_dump(self.files.content(f"{folder}/{name}"), store)
        store.flush()
        self.files.remove_folder(folder)
        return content

    def open(self, content: StoreContent) -> DiskStore:
        """A store that the present process has open."""
        store = DiskStore(content)
        self._opened.append(store)
        return store

    def detach(self) -> None:
        """The process is dead: its open stores no longer reach the disk."""
        for store in self._opened:
            store.detach()
        self._opened.clear()

    def lose_power(self) -> None:
        """The machine goes down: what was not flushed is gone, in part or as a whole."""
        self.files.crash()
        self.queue.crash(self._rng)
        self.stores.crash(self._rng)


class DiskStore(SimulatedKeyValue):
    """A store that rejects use after it is closed."""

    def __init__(self, content: StoreContent) -> None:
        super().__init__(content)
        self._is_closed = False

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch."""
        assert not self._is_closed, "a store that is closed is written to"
        super().write(puts, deletes)

    def close(self) -> None:
        """Let go."""
        self._is_closed = True

    def detach(self) -> None:
        """Whatever is written from now on is lost."""
        self._content = StoreContent()
        self._is_closed = False


class _WatchedShard(Shard):
    """The shard of production, which tells each time that it has another surface."""

    when_surface: Callable[[Surface], object] = staticmethod(lambda _surface: None)
    _surface: Surface | None = None

    @property
    def surface(self) -> Surface | None:
        """What gateways reach; None while there is no host."""
        return self._surface

    @surface.setter
    def surface(self, surface: Surface | None) -> None:
        self._surface = surface
        if surface is not None:
            self.when_surface(surface)


class ShardNode(Process):
    """One process that is a replica of the shard."""

    def __init__(self, cluster: Cluster, name: str, disk: MachineDisk, settings: Settings, watcher: Watcher) -> None:
        super().__init__(cluster, SHARD, address=name)
        self.name = name
        self.disk = disk
        self.watcher = watcher
        self.settings = settings
        self.clock = disk.clock
        self.loop = NodeLoop(self, cluster.scheduler)
        self.scheduler = self.loop.scheduler
        self.scheduler.disk_ms = lambda: cluster.rng.random() * cluster.environment.disk_ms
        self.led_until_us = 0
        """When it lost the lead; 0 if it leads or never led."""
        self.is_ending = False
        self.engine: Engine
        self.server: QueueServer
        self.replication: Replication
        self.shard: _WatchedShard
        self.loop.run(self._start)

    def _start(self) -> None:
        """As ``pixiu.node.serving.Node.start`` does."""
        disk, scheduler, settings = self.disk, self.scheduler, self.settings
        disk.install_snapshot()
        self.engine = engine = Engine(settings, disk.files, disk.open(disk.queue), self.clock, scheduler, key="0" * 64)
        engine.take_keys((KEY,))
        engine.recover(is_follower=True)
        self.server = QueueServer(engine, HANDLERS, connections_max=CONNECTIONS_MAX)
        self.shard = shard = _WatchedShard(
            engine, scheduler, settings, DATA, name=self.name, boot=self.boot, secrets=SECRETS, creates_users=True
        )
        shard.open_stores = self._open_stores
        shard.when_surface = self._surface_made
        control = RegistryControl(
            self.registry, scheduler, folder=partition_folder(ROOT, 0), name=self.name, address=self.address,
            more={"hub": self.address, "boot": f"{self.boot:x}"},
        )  # fmt: skip
        self.replication = replication = engine.replication = Replication(
            engine, name=self.name, follow=None, links=SimulatedLinks(self.cluster, self, _accept_queue),
            restart=self._restart, control=control,
        )  # fmt: skip
        engine.committed_hooks.append(self._committed)
        engine.start()
        self.server.start()
        shard.start(replication)
        self._watch(replication)
        replication.start()

    def _open_stores(self) -> Opened:
        store = self.disk.open(self.disk.stores)
        return Opened(store, EmbeddedStores(store))

    # What the world watches.

    def _watch(self, replication: Replication) -> None:
        leading, ended = replication.when_leading, replication.when_leading_ended

        def begun(epoch: int) -> None:
            self.led_until_us = 0
            self.watcher.began_to_lead(self)
            leading(epoch)

        def over(reason: str) -> None:
            self.led_until_us = self.cluster.clock.now_us
            ended(reason)

        replication.when_leading, replication.when_leading_ended = begun, over

    def _committed(self) -> None:
        self.watcher.committed(self)

    def _surface_made(self, surface: Surface) -> None:
        host, opening = self.shard.host, surface.open
        assert host is not None

        def opened() -> None:
            self.watcher.began_to_serve(self, host)
            opening()

        setattr(surface, "open", opened)  # noqa: B010 - of this one object
        horn = host.messaging.horn
        perform = horn.perform

        def performed(task: Any, done: Any) -> None:
            self.watcher.notified(self, host, task.notify.user, task.notify.message_id)
            perform(task, done)

        setattr(horn, "perform", performed)  # noqa: B010
        self.watcher.made_host(self, host)

    @property
    def host(self) -> MessagingHost | None:
        """The messaging of this process; None between two hosts."""
        return self.shard.host

    def holds_lease(self) -> bool:
        """Whether it leads now, by its own clock."""
        return not self.is_dead and self.replication.holds_lease()

    @property
    def is_serving(self) -> bool:
        """Whether it takes gateways now."""
        return not self.is_dead and self.shard.is_serving

    # Its connections.

    def hear(self, call: Callable[[], object]) -> None:
        """Deliver something, in the process's own turn and with its own loop."""
        super().hear(partial(self.loop.run, call))

    def accept_queue(self) -> WatchedReceiver:
        """A connection to the queue's port."""
        return ServerEnd(self.server, self.scheduler)

    def accept_gateway(self) -> WatchedReceiver | None:
        """A connection to the hub's port, as ``HubListener`` accepts it."""
        hub: GatewayHub | None = self.shard._hub()
        if hub is None:
            return None
        self.watcher.accepted_gateway(self)
        link = hub.accept()
        push = link.push

        def pushed(session_id: int, pushes: Any) -> None:
            self.watcher.pushed(self)
            push(session_id, pushes)

        setattr(link, "push", pushed)  # noqa: B010
        return link

    # Its end.

    def _restart(self) -> None:
        """A snapshot has arrived: the process opens everything again."""
        self.watcher.wants_restart(self)

    def crash(self, *, loses_power: bool = False) -> None:
        """Kill the process, or with ``loses_power`` its whole machine."""
        super().crash()
        self.disk.detach()
        if loses_power:
            self.disk.lose_power()

    def stop(self, done: Callable[[], object]) -> None:
        """Stop in order, as on SIGTERM, then call ``done``."""
        self.is_ending = True

        async def run() -> None:
            await self._stop()
            self.end(session_ms=0)
            self.disk.detach()
            self.cluster.scheduler.soon(done)

        self.hear(lambda: self.loop.create_task(run()))

    async def _stop(self) -> None:
        """As ``pixiu.node.serving.Node.stop`` does."""
        await self.shard.stop()
        left, drained = asyncio.Event(), asyncio.Event()
        self.replication.leave(left.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(left.wait(), LEAVE_SECONDS)
        self.replication.stop()
        self.engine.background.log_positions()
        self.engine.writer.when_flushed(drained.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(drained.wait(), DRAIN_SECONDS)
        self.server.close_all()
        await asyncio.sleep(0)
        self.engine.background.stop()
        self.engine.stop()

    def abandon(self) -> None:
        """The world is over."""
        self.disk.detach()
        self.loop.abandon()


class Watcher:
    """Receives what a replica does. The judge overrides what it checks."""

    def committed(self, node: ShardNode) -> None:
        """Something was committed; a leader has acknowledged it."""

    def made_host(self, node: ShardNode, host: MessagingHost) -> None:
        """The replica applies its copy of the log."""

    def began_to_lead(self, node: ShardNode) -> None:
        """The replica leads the log."""

    def began_to_serve(self, node: ShardNode, host: MessagingHost) -> None:
        """The replica is about to take gateways."""

    def accepted_gateway(self, node: ShardNode) -> None:
        """The replica takes a gateway."""

    def pushed(self, node: ShardNode) -> None:
        """The replica pushes messages to a session."""

    def notified(self, node: ShardNode, host: MessagingHost, user: int, message_id: int) -> None:
        """The replica performs a notification."""

    def wants_restart(self, node: ShardNode) -> None:
        """The replica has a snapshot to open."""


def _accept_queue(target: Process) -> WatchedReceiver | None:
    return target.accept_queue() if isinstance(target, ShardNode) else None
