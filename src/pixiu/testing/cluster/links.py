"""Connections between the replicas of a simulated shard: ``ports.transport.Links`` over simulated streams.

The peer's end is the queue server's own connection, so the follow stream, the proof of the key and snapshots are those
of production, byte for byte.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pixiu.testing.cluster.streams import dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.transport import Receiver, WatchedLink, WatchedReceiver
    from pixiu.queue.server.server import QueueServer
    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster

__all__ = ["ServerEnd", "SimulatedLinks"]


class _CallerEnd:
    """The end that has dialled. A ``Link`` for its owner, a ``WatchedReceiver`` for the stream."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver: Receiver | None = receiver
        self._link: WatchedLink | None = None

    # For the owner.

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a connection."""
        if self._link is not None:
            self._link.write(data)

    def pending(self) -> int:
        """Bytes on their way."""
        return 0 if self._link is None else self._link.pending()

    def close(self) -> None:
        """End the connection, or the attempt to make it; the receiver gets no further call."""
        self._receiver = None
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # For the stream.

    def opened(self, link: WatchedLink) -> None:
        """The connection is there."""
        if self._receiver is None:
            link.close()
        else:
            self._link = link
            self._receiver.opened(self)

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if self._receiver is not None:
            self._receiver.received(data)

    def paused(self) -> None:
        """Replicas write little to their leader, and do not watch how much of it waits."""

    def resumed(self) -> None:
        """See ``paused``."""

    def lost(self, reason: str) -> None:
        """The connection failed or was closed."""
        receiver, self._receiver, self._link = self._receiver, None, None
        if receiver is not None:
            receiver.lost(reason)


class SimulatedLinks:
    """Opens connections for one process."""

    def __init__(self, cluster: Cluster, process: Process, accept: Callable[[Process], WatchedReceiver | None]) -> None:
        """``accept`` returns the end of the process that is dialled."""
        self._cluster = cluster
        self._process = process
        self._accept = accept

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> _CallerEnd:
        """Begin to connect to the process that is at ``address`` now."""
        end = _CallerEnd(receiver)
        dial(self._cluster, self._process, address, None, end, self._accept, timeout_ms=timeout_ms)
        return end


class ServerEnd:
    """A connection of the queue server: its transport, and the end of the stream that it is on."""

    def __init__(self, server: QueueServer, scheduler: Scheduler) -> None:
        self._connection = server.connection()
        self._scheduler = scheduler
        self._link: WatchedLink | None = None
        self._is_paused = False
        self._held: deque[bytes] = deque()

    # For the stream.

    def opened(self, link: WatchedLink) -> None:
        """A peer has connected."""
        self._link = link
        self._connection.connection_made(self)

    def received(self, data: bytes) -> None:
        """Bytes from the peer, held back while the server does not read."""
        self._held.append(data)
        self._deliver()

    def paused(self) -> None:
        """Much is on its way."""
        self._connection.pause_writing()

    def resumed(self) -> None:
        """Most of it has arrived."""
        self._connection.resume_writing()

    def lost(self, _reason: str) -> None:
        """The peer is gone."""
        if self._link is not None:
            self._link = None
            self._connection.connection_lost(None)

    def _deliver(self) -> None:
        while self._held and not self._is_paused and self._link is not None:
            self._connection.data_received(self._held.popleft())

    # For the server.

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._link is not None:
            self._link.write(data)

    def close(self) -> None:
        """Close after pending writes; the connection is notified in a later turn, as in asyncio."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
            self._scheduler.soon(lambda: self._connection.connection_lost(None))

    abort = close

    def pause_reading(self) -> None:
        """Hold back what the peer sends."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        self._scheduler.soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        """Bytes on their way."""
        return 0 if self._link is None else self._link.pending()
