"""One process of a simulated cluster: it lives, stands still, dies; and its session with the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.testing.cluster.wires import NodeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.cluster.streams import Stream
    from pixiu.testing.cluster.world import Cluster

__all__ = ["SESSION_MS", "Process", "SlowRegistry"]

SESSION_MS = 2_000


class Process:
    """What every process has."""

    def __init__(self, cluster: Cluster, role: str, partition: int = 0) -> None:
        cluster.boots += 1
        self.cluster = cluster
        self.role = role
        self.partition = partition
        self.boot = cluster.boots << 22
        self.address = f"node:{cluster.boots}"
        self.is_dead = False
        self.is_frozen = False
        self.held: list[Callable[[], object]] = []
        self.clock: Any = cluster.clock
        self.scheduler = NodeScheduler(self, cluster.scheduler)
        self.session = cluster.registry.open()
        self.registry = SlowRegistry(cluster, self)
        self.streams: list[Stream] = []
        cluster.nodes_by_address[self.address] = self

    def hear(self, call: Callable[[], object]) -> None:
        """Something arrives at its socket: one that is frozen finds it later."""
        if self.is_dead:
            return
        if self.is_frozen:
            self.held.append(call)
        else:
            call()

    def crash(self) -> None:
        """The process is gone; the registry notices later, whoever had a stream to it at once."""
        self.is_dead = True
        del self.cluster.nodes_by_address[self.address]
        self.cluster.scheduler.after(SESSION_MS, self.session.close)
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.died(self)

    def freeze(self) -> None:
        """It stands still; its session lives on."""
        self.is_frozen = True

    def thaw(self) -> None:
        """It goes on with what has gathered."""
        self.is_frozen = False
        held, self.held = self.held, []
        for call in held:
            self.cluster.scheduler.soon(call)


class SlowRegistry:
    """A session whose hints may be lost, and whose answers may be late: what is read is then of the past."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._process = process
        self._due_ms = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process.session, name)

    def watch(self, path: str, changed: Callable[[], object]) -> None:
        """Hints, if they come."""
        cluster, process = self._cluster, self._process

        def hint() -> None:
            if cluster.rng.random() >= cluster.weather.watch_loss:
                process.hear(changed)

        process.session.watch(path, hint)

    def when_session(self, call: Callable[[Any], object]) -> None:
        """What becomes of the session, told in the process's own turns."""
        self._process.session.when_session(lambda state: self._process.hear(lambda: call(state)))

    def register(self, folder: str, data: Any, done: Callable[[Any], object]) -> None:
        """As it is decided now; told later."""
        self._process.session.register(folder, data, self._later(done))

    def write(self, write: Any, done: Callable[[Any], object]) -> None:
        """As it is decided now; told later."""
        self._process.session.write(write, self._later(done))

    def swap(self, writes: Any, done: Callable[[Any], object]) -> None:
        """As it is decided now; told later."""
        self._process.session.swap(writes, self._later(done))

    def remove(self, path: str, done: Callable[[Any], object], *, version: int | None = None) -> None:
        """As it is decided now; told later."""
        self._process.session.remove(path, self._later(done), version=version)

    def read(self, path: str, done: Callable[[Any], object]) -> None:
        """As it is now; told later."""
        self._process.session.read(path, self._later(done))

    def _later(self, done: Callable[[Any], object]) -> Callable[[Any], object]:
        """In the order in which they were asked, as a session has it."""
        cluster, process, weather = self._cluster, self._process, self._cluster.weather

        def answered(result: Any) -> None:
            if not weather.registry_ms:
                process.hear(lambda: done(result))
                return
            now_ms = cluster.clock.now_us / 1000
            delay_ms = cluster.rng.random() * weather.registry_ms
            if cluster.rng.random() < 0.02:
                delay_ms *= 50
            self._due_ms = max(now_ms + delay_ms, self._due_ms)
            cluster.scheduler.after(self._due_ms - now_ms, lambda: process.hear(lambda: done(result)))

        return answered
