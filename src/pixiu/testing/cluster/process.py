"""One process of a simulated cluster: it runs, is frozen, or dies. And its session with the registry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pixiu.testing.cluster.wires import NodeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.cluster.streams import Stream
    from pixiu.testing.cluster.world import Cluster
    from pixiu.testing.scheduler import SimulatedClock

__all__ = ["SESSION_MS", "OwnClock", "Process", "SlowRegistry"]

SESSION_MS = 2_000
"""How long the registry keeps the session of a process that has died."""
LATE_ANSWERS = 0.02
LATE_FACTOR = 50
"""The share of the registry's answers that take so many times as long."""


class OwnClock:
    """The clocks of one machine: the steady one has its own speed, the wall clock its own offset."""

    def __init__(self, clock: SimulatedClock, speed: float = 1.0) -> None:
        self._clock = clock
        self.speed = speed
        self.offset_ms = 0
        """How far somebody has set the wall clock."""

    def now_ms(self) -> int:
        """The wall clock."""
        return self._clock.now_ms() + self.offset_ms

    def monotonic_us(self) -> int:
        """The steady clock."""
        return int(self._clock.now_us * self.speed)


class Process:
    """What every process has."""

    def __init__(self, cluster: Cluster, role: str, partition: int = 0, *, address: str = "") -> None:
        """``address`` is that of its machine, for a process that is started again there; empty: one of its own."""
        cluster.boots += 1
        self.cluster = cluster
        self.role = role
        self.partition = partition
        self.boot = cluster.boots << 22
        self.address = address or f"node:{cluster.boots}"
        self.is_dead = False
        self.is_frozen = False
        self.thawed_us = 0
        """When it went on after it was frozen last."""
        self.held: list[Callable[[], object]] = []
        self.clock: Any = cluster.clock
        self.scheduler = NodeScheduler(self, cluster.scheduler)
        self.session = cluster.registry.open()
        if cluster.is_registry_down:
            self.session.suspend()
        self.registry = SlowRegistry(cluster, self)
        self.streams: list[Stream] = []
        cluster.nodes_by_address[self.address] = self

    def hear(self, call: Callable[[], object]) -> None:
        """Deliver something to the process: at once, or when it is thawed. A dead process gets nothing."""
        if self.is_dead:
            return
        if self.is_frozen:
            self.held.append(call)
        else:
            call()

    def crash(self) -> None:
        """End the process. Its peers notice broken streams soon, the registry notices when its session times out."""
        self.end(session_ms=SESSION_MS)

    def end(self, *, session_ms: int) -> None:
        """End the process; its session with the registry lasts ``session_ms`` longer."""
        self.is_dead = True
        self.held.clear()
        del self.cluster.nodes_by_address[self.address]
        self.cluster.scheduler.after(session_ms, self._end_session)
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.died(self)

    def _end_session(self) -> None:
        """A registry that is down expires no session."""
        if self.cluster.is_registry_down:
            self.cluster.scheduler.after(SESSION_MS, self._end_session)
        else:
            self.session.close()

    def freeze(self) -> None:
        """Stop it; its session with the registry lives on."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Let it go on, with all that was delivered and all that came due meanwhile."""
        self.is_frozen = False
        self.thawed_us = self.cluster.clock.now_us
        held, self.held = self.held, []
        for call in held:
            self.cluster.scheduler.soon(partial(Process.hear, self, call))


class SlowRegistry:
    """A session whose hints may be lost, and whose answers may be late: what is read is then of the past."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._process = process
        self._due_ms = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process.session, name)

    def watch(self, path: str, changed: Callable[[], object]) -> None:
        """Hints, some of which are lost."""
        cluster, process = self._cluster, self._process

        def hint() -> None:
            if cluster.rng.random() >= cluster.environment.watch_loss:
                process.hear(changed)

        process.session.watch(path, hint)

    def when_session(self, call: Callable[[Any], object]) -> None:
        """Report changes of the session in the process's own turns."""
        self._process.session.when_session(lambda state: self._process.hear(lambda: call(state)))

    def register(self, folder: str, data: Any, done: Callable[[Any], object]) -> None:
        """Decided now, answered later."""
        self._process.session.register(folder, data, self._later(done))

    def write(self, write: Any, done: Callable[[Any], object]) -> None:
        """Decided now, answered later."""
        self._process.session.write(write, self._later(done))

    def swap(self, writes: Any, done: Callable[[Any], object]) -> None:
        """Decided now, answered later."""
        self._process.session.swap(writes, self._later(done))

    def remove(self, path: str, done: Callable[[Any], object], *, version: int | None = None) -> None:
        """Decided now, answered later."""
        self._process.session.remove(path, self._later(done), version=version)

    def read(self, path: str, done: Callable[[Any], object]) -> None:
        """Read now, answered later."""
        self._process.session.read(path, self._later(done))

    def _later(self, done: Callable[[Any], object]) -> Callable[[Any], object]:
        """Answers come in the order of the requests, as in a session with ZooKeeper."""
        cluster, process, environment = self._cluster, self._process, self._cluster.environment

        def answered(result: Any) -> None:
            if not environment.registry_ms:
                process.hear(lambda: done(result))
                return
            now_ms = cluster.clock.now_us / 1000
            delay_ms = cluster.rng.random() * environment.registry_ms
            if cluster.rng.random() < LATE_ANSWERS:
                delay_ms *= LATE_FACTOR
            self._due_ms = max(now_ms + delay_ms, self._due_ms)
            cluster.scheduler.after(self._due_ms - now_ms, lambda: process.hear(lambda: done(result)))

        return answered
