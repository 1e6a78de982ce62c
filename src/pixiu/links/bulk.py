"""Streams between processes, for what no datagram holds: made when they are needed, used in both directions.

A stream is authenticated as datagrams are (``SecureStream``). Bounds: while ``PENDING_BYTES_MAX`` wait for one peer it
is told no more, and what was to be sent is dropped, as a lost datagram is; what is sent at once is taken whole, however
much it is, or not at all: half a snapshot is good for nothing. ``STREAMS_MAX`` streams; an end that does not prove
itself within ``PROVE_MS`` is cut off; a stream that was quiet for ``IDLE_MS`` is closed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pixiu.machines.links.handshake import FRAME_BYTES_MAX, SecureStream
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.machines.links.sealing import Secrets
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.transport import Link, Links

__all__ = ["Bulk", "BulkEnd"]

log = logging.getLogger(__name__)

PENDING_BYTES_MAX = 16 * 2**20
STREAMS_MAX = 4_096
CONNECT_MS = 2_000
PROVE_MS = 5_000
IDLE_MS = 60_000


class BulkEnd:
    """One end of a stream: ``ports.transport.Receiver``."""

    def __init__(self, bulk: Bulk, stream: SecureStream, *, boot: int = 0, address: str = "") -> None:
        self.boot = boot
        self.address = address
        self.used_ms = bulk.now_ms()
        self._bulk = bulk
        self._stream = stream
        self._link: Link | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Is it closed?"""
        return self._is_over

    @property
    def is_open(self) -> bool:
        """Has the other end proved itself?"""
        return self._stream.is_open

    def send(self, contents: Sequence[bytes]) -> bool:
        """Send frames, now or when the other end has proved itself. False: too much waits, and none was taken."""
        self.used_ms = self._bulk.now_ms()
        pending = getattr(self._link, "pending", None)
        waiting = self._waiting_bytes + (pending() if pending is not None else 0)
        if self._is_over or waiting >= PENDING_BYTES_MAX or any(len(each) > FRAME_BYTES_MAX for each in contents):
            return False
        if self._link is not None and self._stream.is_open:
            for content in contents:
                self._link.write(self._stream.seal(content))
        else:
            self._waiting += contents
            self._waiting_bytes += sum(map(len, contents))
        return True

    def close(self) -> None:
        """End it."""
        self._is_over = True
        self._waiting = []
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._bulk.ended(self)

    # What the connection tells.

    def opened(self, link: Link) -> None:
        """There is a connection; prove who we are."""
        if self._is_over:
            link.close()
            return
        self._link = link
        link.write(self._stream.begin())

    def received(self, data: bytes) -> None:
        """Bytes of the other end."""
        was_open = self._stream.is_open
        try:
            out, frames = self._stream.feed(data)
            if out and self._link is not None:
                self._link.write(out)
            if not was_open and self._stream.is_open:
                self.boot = self._stream.peer
                self._bulk.proved(self)
                waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
                for content in waiting:
                    if self._link is not None:
                        self._link.write(self._stream.seal(content))
            for content in frames:
                self.used_ms = self._bulk.now_ms()
                self._bulk.receive(self.boot, self.address, content)
        except PixiuError as error:
            log.warning("a stream was cut", extra={"reason": str(error), "address": self.address})
            self.close()

    def paused(self) -> None:
        """Much waits; the bound is looked at when more is to be sent."""

    def resumed(self) -> None:
        """Little waits."""

    def lost(self, reason: str) -> None:
        """It has ended. What waited is lost, as datagrams may be."""
        self._link = None
        self.close()


class Bulk:
    """All streams of one process."""

    def __init__(
        self,
        secrets: Secrets,
        boot: int,
        links: Links,
        clock: Clock,
        scheduler: Scheduler,
        challenge: Callable[[], bytes],
    ) -> None:
        """``challenge`` gives 16 bytes that nobody can guess."""
        self.secrets = secrets
        self.receive: Callable[[int, str, bytes], object] = lambda _boot, _address, _content: None
        self._boot = boot
        self._links = links
        self._clock = clock
        self._scheduler = scheduler
        self._challenge = challenge
        self._ends: dict[int, BulkEnd] = {}
        self._unproved: dict[BulkEnd, None] = {}
        self._only_read: dict[BulkEnd, None] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def now_ms(self) -> int:
        """The time."""
        return self._clock.monotonic_us() // 1000

    def send(self, boot: int, address: str, contents: Sequence[bytes]) -> bool:
        """Send frames to a process; its stream is made if there is none. False: they could not be taken."""
        end = self._ends.get(boot)
        if end is None or end.is_over:
            if not address or (len(self._ends) >= STREAMS_MAX and not self._sweep()):
                return False
            stream = SecureStream(self.secrets, self._boot, self._challenge(), to=boot)
            end = self._ends[boot] = BulkEnd(self, stream, boot=boot, address=address)
            self._watch(end)
            self._links.connect(address, end, timeout_ms=CONNECT_MS)
        return end.send(contents)

    def accept(self) -> BulkEnd:
        """Somebody connects."""
        end = BulkEnd(self, SecureStream(self.secrets, self._boot, self._challenge()))
        if len(self._unproved) >= STREAMS_MAX:
            next(iter(self._unproved)).close()
        self._unproved[end] = None
        self._watch(end)
        return end

    def close(self) -> None:
        """End all."""
        for end in [*self._ends.values(), *self._unproved, *self._only_read]:
            end.close()

    # What streams tell.

    def proved(self, end: BulkEnd) -> None:
        """It is known who is at the other end. Of two streams with one process the first is used, both are read."""
        self._unproved.pop(end, None)
        known = self._ends.get(end.boot)
        if known is None or known.is_over:
            self._ends[end.boot] = end
        elif known is not end:
            self._only_read[end] = None

    def ended(self, end: BulkEnd) -> None:
        """A stream is over."""
        self._unproved.pop(end, None)
        self._only_read.pop(end, None)
        if self._ends.get(end.boot) is end:
            del self._ends[end.boot]

    def _watch(self, end: BulkEnd) -> None:
        self._scheduler.after(PROVE_MS, partial(self._look, end))

    def _look(self, end: BulkEnd) -> None:
        """Close a stream that has not proved itself by now, or that nobody has used for long."""
        left_ms = end.used_ms + IDLE_MS - self.now_ms()
        if end.is_over:
            return
        if not end.is_open or left_ms <= 0:
            end.close()
        else:
            self._scheduler.after(left_ms, partial(self._look, end))

    def _sweep(self) -> bool:
        """Close streams that nobody has used for long. True if there is room again."""
        kept_from = self.now_ms() - IDLE_MS
        for end in [end for end in self._ends.values() if end.used_ms < kept_from]:
            end.close()
        return len(self._ends) < STREAMS_MAX
