"""The loop, the socket and the streams of a process in a simulated cluster, and the environment that they are in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pixiu.machines.links.handshake import FRAME_BYTES_MAX
from pixiu.machines.links.sealing import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster, Node
    from pixiu.testing.scheduler import SimulatedScheduler

__all__ = ["SECRETS", "Environment", "NodeScheduler", "SimulatedBulk", "SimulatedDatagrams"]

SECRETS = Secrets([b"a secret for tests only"])


@dataclass(slots=True)
class Environment:
    """How network and registry behave: chances from 0 to 1, times in ms."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_ms_min: float = 0.2
    delay_ms_max: float = 1.0
    reorder: float = 0.0
    watch_loss: float = 0.0
    late: float = 0.0
    """The chance that a message takes up to ``late_ms_max``."""
    late_ms_max: float = 5_000.0
    registry_ms: float = 0.0
    """The registry's answers take up to this long, some of them fifty times as long."""
    disk_ms: float = 0.0
    """A flush takes up to this long."""
    cuts: set[tuple[str, str]] = field(default_factory=set)


class NodeScheduler:
    """The loop of one process. Nothing runs once the process is dead; what comes due while it is frozen waits."""

    def __init__(self, node: Process, scheduler: SimulatedScheduler) -> None:
        self._node = node
        self._scheduler = scheduler
        self._soon = scheduler.soon
        self._after = scheduler.after
        self._offloaded: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()
        self.disk_ms: Callable[[], float] = lambda: 0.0
        """How long the next piece of work beside the loop takes."""
        self._mine = self._run  # made once: half of a world's time is calls through here

    def soon(self, call: Callable[[], object]) -> None:
        """At the end of this turn, if the process still runs."""
        self._soon(partial(self._mine, call))

    def after(self, delay_ms: float, call: Callable[[], object]) -> Any:
        """Later, if the process still runs then."""
        return self._after(delay_ms, partial(self._mine, call))

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Do work beside the loop: a little later, one piece at a time, and none once the process is dead."""
        self._offloaded.append((work, done))
        if len(self._offloaded) == 1:
            self.after(self.disk_ms(), self._work)

    def _work(self) -> None:
        work, done = self._offloaded[0]
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:  # noqa: BLE001 - handed to the loop, which decides
            error = raised
        self.soon(lambda: done(error))
        self._offloaded.popleft()
        if self._offloaded:
            self.after(self.disk_ms(), self._work)

    def _run(self, call: Callable[[], object]) -> None:
        """Make a call of the process. Waiting calls form no reference cycles, which would keep the collector busy."""
        node = self._node
        if node.is_dead:
            return
        if node.is_frozen:
            node.held.append(partial(self._mine, call))
        else:
            call()


class SimulatedDatagrams:
    """The datagram socket of one process."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.is_full = False
        self.when_free: Callable[[], object] = lambda: None
        self._cluster = cluster
        self._node = node

    def send(self, address: str, data: bytes) -> bool:
        """One datagram."""
        self._cluster.carry(self._node, address, data)
        return True


class SimulatedBulk:
    """Streams for large messages: they lose nothing while both processes run and the network is not cut."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.secrets = SECRETS
        self.receive: Callable[[int, str, bytes], object] = lambda _boot, _address, _content: None
        self._cluster = cluster
        self._node = node

    def send(self, boot: int, address: str, contents: Sequence[bytes]) -> bool:
        """Send frames. False if the process that is meant does not run, or one of them is too large."""
        target = self._cluster.nodes_by_address.get(address)
        if any(len(each) > FRAME_BYTES_MAX for each in contents):
            return False
        if target is None or target.boot != boot or self._cluster.is_cut(self._node, target):
            return False
        source = self._node
        bulk = getattr(target, "bulk", None)
        if not isinstance(bulk, SimulatedBulk):
            return False

        def hear() -> None:
            for content in contents:
                bulk.receive(source.boot, "", content)

        self._cluster.scheduler.after(
            self._cluster.delay_ms() * 3, lambda: None if target.is_dead else target.hear(hear)
        )
        return True
