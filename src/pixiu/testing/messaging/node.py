"""A node of the messaging platform on simulated hardware: the real queue, the real stores, the real roles.

What outlives the process is here (disk, two key-value stores); what does not is made anew by ``boot``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pixiu.backends.embedded.sessions import EmbeddedSessions
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.node.messaging import Messaging
from pixiu.ports.notifications import Refused
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.queue.replication.driver import Replication
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.messaging.gateway import Gateway
from pixiu.testing.messaging.virtual_time import NodeScheduler
from pixiu.testing.messaging.wires import NODE
from pixiu.testing.queue.world import NoLinks
from pixiu.testing.scheduler import Power, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.notifications import Notification, Told
    from pixiu.ports.sessions import Sessions
    from pixiu.ports.stores import Stores
    from pixiu.testing.messaging.world import World

__all__ = ["FLAKY", "Node"]

FLAKY = ("timelines", "inboxes", "bodies", "unread", "groups", "contacts", "users", "keys")
"""Stores that may be down on their own."""


class FlakyStore:
    """A store that is down when the world says so: whatever is asked of it then raises ``Unavailable``."""

    def __init__(self, store: object, name: str, down: set[str]) -> None:
        self._store = store
        self._name = name
        self._down = down

    def __getattr__(self, attribute: str) -> object:
        if attribute == "late_store":  # a mutant's own business
            return self._store
        if self._name in self._down:
            raise Unavailable(f"the store of {self._name} is down")
        return getattr(self._store, attribute)


class Provider:
    """Whoever tells phones. Takes its time, and does not always take a notification."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.taken: list[Notification] = []

    def send(self, notification: Notification, done: Told) -> None:
        """Take it, or say why not, a little later."""
        world = self._world
        is_taken = world.rng.random() >= world.weather.provider_errors
        if is_taken:
            self.taken.append(notification)
        world.node.scheduler.after(world.rng.uniform(0, 50), lambda: done(None if is_taken else Refused("no route")))


class Node:
    """One node, through all its lives."""

    scheduler: NodeScheduler
    engine: Engine
    log: EngineLog
    stores: Stores
    messaging: Messaging
    store: SimulatedKeyValue
    queue_store: SimulatedKeyValue

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self.power = Power()
        self.disk = SimulatedDisk(
            world.rng, block_bytes=world.weather.block_bytes, power=self.power, now_ms=self.clock.now_ms
        )
        self.queue_content = StoreContent()
        self.content = StoreContent()
        self.provider = Provider(world)
        self.state = "down"
        """down, starting or up."""
        self.lives = 0
        self.is_frozen = False
        self.down: set[str] = set()
        """Stores that are down on their own."""
        self.is_store_full = False
        self.is_queue_store_full = False
        self.slow_us = world.weather.slow_us
        self.gateway: Gateway | None = None
        self._mailbox: list[tuple[str, int, tuple[object, ...]]] = []

    # Time.

    def next_us(self) -> float:
        """When this node wants to run next."""
        return inf if self.state == "down" or self.is_frozen else self.scheduler.next_us()

    def run_one(self) -> None:
        """Run what is due."""
        self._guard(self.scheduler.run_one)

    def _guard(self, call: Callable[[], object]) -> None:
        """The power may go at any operation on a disk."""
        scheduler = self.scheduler
        try:
            call()
            scheduler.run_ready()
        except PowerCut:
            self.world.nemesis.power_went()

    def receive(self, client: str, connection: int, message: tuple[object, ...]) -> None:
        """A message has arrived: now, or when the node thaws; nobody is there while it is down."""
        if self.state == "down":
            self.world.wires.send_surely(NODE, client, connection, ("close", "lost"))
        elif self.is_frozen:
            self._mailbox.append((client, connection, message))
        else:
            gateway = self.gateway
            assert gateway is not None
            self._guard(lambda: gateway.receive(client, connection, message))

    def freeze(self) -> None:
        """Stand still: connections stay, nothing runs."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Go on; what has arrived meanwhile comes first."""
        self.is_frozen = False
        mailbox, self._mailbox = self._mailbox, []
        for client, connection, message in mailbox:
            self.receive(client, connection, message)

    # Lives.

    def boot(self) -> None:
        """Start a process on what is there, as ``pixiu.node`` does."""
        world = self.world
        self.lives += 1
        self.state = "starting"
        self.is_frozen = False
        self.scheduler = NodeScheduler(
            self.clock, world.rng, slow_us=self.slow_us, pause_chance=world.weather.pause_chance
        )
        self.disk.disk_time = self.scheduler.disk_time
        world.note("boot", self.lives)
        try:
            self._assemble()
            self._guard(lambda: self.log.open(self._opened))
        except PowerCut:
            world.nemesis.power_went()
        except (Unavailable, OSError) as error:  # no room: the process ends, and is started again
            world.note("no start", error)
            world.nemesis.failed_to_start()

    def _assemble(self) -> None:
        world, settings = self.world, self.world.weather.settings_in(self.lives)
        scheduler = self.scheduler
        self.queue_store = SimulatedKeyValue(self.queue_content, self.power, scheduler.disk_time)
        self.queue_store.fail_write = lambda: self.is_queue_store_full
        self.store = SimulatedKeyValue(self.content, self.power, scheduler.disk_time)
        self.store.fail_write = lambda: self.is_store_full
        self.engine = engine = Engine(settings, self.disk, self.queue_store, self.clock, scheduler, key="0" * 64)
        engine.recover()
        replication = Replication(engine, name="alone", follow=None, links=NoLinks(), restart=_never)
        engine.replication = replication
        engine.start()
        replication.start()
        self.log = EngineLog(engine)
        sessions: Sessions
        if world.weather.is_embedded:
            self.stores = EmbeddedStores(self.store)
            sessions = EmbeddedSessions(self.store)
        else:
            self.stores = MemoryStores()
            sessions = MemorySessions(numbers_after=self.lives << 32)
        world.mutant.change_stores(self)
        if world.has_flaky_stores:
            for name in FLAKY:
                setattr(self.stores, name, FlakyStore(getattr(self.stores, name), name, self.down))
        self.messaging = Messaging(
            self.log, self.stores, sessions, self.clock, scheduler, settings,
            notifications=self.provider, is_writer_busy=lambda: self.log.is_busy,
        )  # fmt: skip
        self.messaging.relay._liveness_ms = world.weather.liveness_ms
        self.gateway = Gateway(self, self.messaging)

    def _opened(self, error: PixiuError | None) -> None:
        if error is not None:
            self.world.note("no start", error)
            self.scheduler.after(100, lambda: self.log.open(self._opened))
            return
        self.messaging.start(self._started)

    def _started(self) -> None:
        assert self.gateway is not None
        self.state = "up"
        self.gateway.has_started = True

    def stop(self, done: Callable[[object], object]) -> None:
        """End in order: the roles first, then the queue."""

        def stop() -> None:
            self.messaging.stop()
            assert self.engine.replication is not None
            self.engine.replication.stop()
            self.engine.background.log_positions()
            self.engine.writer.when_flushed(flushed)

        def flushed() -> None:
            self.engine.background.stop()
            done(None)

        self._guard(stop)

    def end(self, kind: str) -> None:
        """The process is gone; with ``crash``, so is what was not flushed."""
        if self.state == "down":
            return
        self.state = "down"
        self.power.cut_after = None
        self.is_frozen = False
        self._mailbox.clear()
        self.scheduler.close()
        gateway, self.gateway = self.gateway, None
        if gateway is not None:
            for number, connection in gateway.connections.items():
                self.world.wires.send_surely(NODE, connection.client, number, ("close", "lost"))
        if kind == "crash":
            self.disk.crash()
            self.queue_content.crash(self.world.rng)
            self.content.crash(self.world.rng)
        self.world.note("ends by", kind)


def _never() -> None:
    raise AssertionError("nobody sends snapshots here")
