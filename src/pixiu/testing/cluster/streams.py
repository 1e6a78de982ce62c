"""TCP between two processes of a simulated cluster: bytes arrive late and in order, or the connection ends.

While the network is cut nothing passes and nothing is lost: it arrives after the cut, if the connection still exists.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import WatchedReceiver
    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster

__all__ = ["Stream", "dial"]

AGAIN_MS = 200
HIGH_BYTES = 64 * 1024


class _Way:
    """One direction of a connection: the ``WatchedLink`` of the process that writes into it."""

    def __init__(self, stream: Stream, source: Process, target: Process) -> None:
        self.receiver: WatchedReceiver | None = None
        self.writer: WatchedReceiver | None = None
        self._stream = stream
        self._source = source
        self._target = target
        self._due_ms = 0.0
        self._bytes = 0
        self._is_paused = False

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._stream.is_over:
            return
        self._bytes += len(data)
        if self._bytes > HIGH_BYTES and not self._is_paused and self.writer is not None:
            self._is_paused = True
            self.writer.paused()
        self.later(partial(self._arrive, data))

    def pending(self) -> int:
        """Bytes on their way."""
        return self._bytes

    def close(self) -> None:
        """Close this end. It gets no further call; the other end reads what was written, then the close."""
        stream = self._stream
        stream.let_go(self)
        if not stream.is_over and not stream.is_closing:
            stream.is_closing = True
            self.later(lambda: stream.end(self._target, "the peer hung up"))

    def later(self, call: Callable[[], object]) -> None:
        """Make a call at the other end, in order, when the network lets it through."""
        cluster = self._stream.cluster
        now_ms = cluster.clock.now_us / 1000
        self._due_ms = due_ms = max(now_ms + cluster.delay_ms(), self._due_ms)
        cluster.scheduler.after(due_ms - now_ms, partial(self._pass, call))

    def _pass(self, call: Callable[[], object]) -> None:
        """Make the call, or wait for the end of a cut."""
        stream = self._stream
        cluster = stream.cluster
        if stream.is_over:
            return
        if cluster.is_cut(self._source, self._target):
            self._due_ms = max(self._due_ms, cluster.clock.now_us / 1000 + AGAIN_MS)
            cluster.scheduler.after(AGAIN_MS, partial(self._pass, call))
        else:
            self._target.hear(call)

    def _arrive(self, data: bytes) -> None:
        stream = self._stream
        self._bytes -= len(data)
        if stream.is_over or self.receiver is None:
            return
        self.receiver.received(data)
        if self._is_paused and self._bytes <= HIGH_BYTES // 2 and self.writer is not None:
            self._is_paused = False
            writer = self.writer
            self._source.hear(writer.resumed)


class Stream:
    """A connection between two processes."""

    def __init__(self, cluster: Cluster, source: Process, target: Process) -> None:
        self.cluster = cluster
        self.is_over = False
        self.is_closing = False
        self.there = _Way(self, source, target)
        self.back = _Way(self, target, source)
        self._ends = source, target
        source.streams.append(self)
        target.streams.append(self)

    def open(self, theirs: WatchedReceiver, ours: WatchedReceiver) -> None:
        """Tell both ends that the connection is open."""
        self.there.receiver = self.back.writer = theirs
        self.back.receiver = self.there.writer = ours
        theirs.opened(self.back)
        self.back.later(lambda: None if self.is_over else ours.opened(self.there))

    def let_go(self, way: _Way) -> None:
        """The end that writes into ``way`` has closed: it gets no further call, whatever the other end does."""
        opposite = self.back if way is self.there else self.there
        way.writer = opposite.receiver = None

    def end(self, told: Process, reason: str) -> None:
        """End the connection, and tell one end."""
        if self.is_over:
            return
        self.is_over = True
        source, target = self._ends
        for process in (source, target):
            if self in process.streams:
                process.streams.remove(self)
        receiver = self.back.receiver if told is source else self.there.receiver
        if receiver is not None and not told.is_dead:
            told.hear(lambda: receiver.lost(reason))

    def died(self, dead: Process) -> None:
        """One process is dead: the other end sees the close, after a network cut if there is one."""
        source, target = self._ends
        other = target if dead is source else source
        cluster = self.cluster

        def tell() -> None:
            if cluster.is_cut(dead, other):
                cluster.scheduler.after(AGAIN_MS, tell)
            else:
                self.end(other, "the peer is gone")

        cluster.scheduler.after(cluster.delay_ms(), tell)


class _Dialled:
    def __init__(self) -> None:
        self.is_given_up = False
        self.stream: Stream | None = None

    def close(self) -> None:
        """Give up the attempt, or close the connection."""
        self.is_given_up = True
        if self.stream is not None:
            self.stream.there.close()


def dial(
    cluster: Cluster,
    source: Process,
    address: str,
    boot: int | None,
    receiver: WatchedReceiver,
    accept: Callable[[Process], WatchedReceiver | None],
    *,
    timeout_ms: float = 0,
) -> _Dialled:
    """Begin to connect to an address. ``accept`` asks the process there for its end, in that process's own turn.

    ``boot`` names the process that is meant; None: any process at that address.
    """
    dialled = _Dialled()

    def refuse(reason: str) -> None:
        def tell() -> None:
            if not dialled.is_given_up:
                receiver.lost(reason)

        cluster.scheduler.after(cluster.delay_ms(), lambda: source.hear(tell))

    def arrive() -> None:
        target = cluster.nodes_by_address.get(address)
        if dialled.is_given_up or source.is_dead:
            return
        if target is None or boot not in (None, target.boot):
            refuse("connection refused")
            return
        if cluster.is_cut(source, target):
            cluster.scheduler.after(timeout_ms, lambda: refuse("timed out"))
            return

        def take() -> None:
            end = accept(target)
            if end is None or source.is_dead:
                refuse("the peer does not accept the connection")
            elif not dialled.is_given_up:
                dialled.stream = Stream(cluster, source, target)
                dialled.stream.open(end, receiver)

        target.hear(take)

    cluster.scheduler.after(cluster.delay_ms(), arrive)
    return dialled
