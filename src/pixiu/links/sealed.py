"""A connection whose ends have proved that they know the cluster's secret, and whose every byte is tagged.

It stands between a TCP connection and whoever speaks over it, at either end, and neither knows::

    server = await loop.create_server(lambda: LocalLink(door.accept()), …)            # SealedDoor
    LocalLink(SealedEnd(stream, lambda: receiver))                                    # the end that calls

Until the other end has proved itself nobody is told of it. Bounds: ``WAITING_MAX`` that have not yet, beyond which the
oldest goes, each for at most ``PROVE_MS``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.links.handshake import FRAME_BYTES_MAX, SecureStream
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.links.sealing import Secrets
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.transport import WatchedLink, WatchedReceiver

__all__ = ["SealedDoor", "SealedEnd"]

log = logging.getLogger(__name__)

WAITING_MAX = 256
PROVE_MS = 5_000


class SealedEnd:
    """One end: ``WatchedReceiver`` of the connection, ``WatchedLink`` of whoever speaks over it."""

    def __init__(self, stream: SecureStream, proved: Callable[[], WatchedReceiver | None]) -> None:
        """``proved`` is called when it is known that the other end may speak, and gives who listens to it; or None."""
        self._stream = stream
        self._proved = proved
        self._link: WatchedLink | None = None
        self._inner: WatchedReceiver | None = None
        self._is_over = False
        self._was_proved = False
        self.ended: Callable[[], object] = lambda: None
        """Told when it is no longer waited for, one way or the other."""
        self.unproved: Callable[[str], object] = lambda _reason: None
        """Told if it ends before the other end has proved anything, by whomever but ``close``."""

    @property
    def is_waiting(self) -> bool:
        """Has the other end still to prove itself?"""
        return not self._is_over and not self._stream.is_open

    # What the connection tells.

    def opened(self, link: WatchedLink) -> None:
        """There is a connection: say who we are."""
        self._link = link
        link.write(self._stream.begin())

    def received(self, data: bytes) -> None:
        """Bytes of the other end."""
        was_open = self._stream.is_open
        try:
            out, frames = self._stream.feed(data)
        except PixiuError as error:
            log.warning("a link was cut", extra={"reason": str(error)})
            self._lose(str(error))
            return
        if out and self._link is not None:
            self._link.write(out)
        if not was_open and self._stream.is_open:
            self.ended()
            self._was_proved = True
            self._inner = self._proved()
            if self._inner is None:
                self.close()
                return
            self._inner.opened(self)
        for content in frames:
            if self._inner is not None:
                self._inner.received(content)

    def paused(self) -> None:
        """Much waits."""
        if self._inner is not None:
            self._inner.paused()

    def resumed(self) -> None:
        """Little waits."""
        if self._inner is not None:
            self._inner.resumed()

    def lost(self, reason: str) -> None:
        """It has ended."""
        self._link = None
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._is_over:
            return
        inner, self._inner = self._inner, None
        self.close()
        if inner is not None:
            inner.lost(reason)
        elif not self._was_proved:
            self.unproved(reason)

    # What whoever speaks calls.

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a connection."""
        if self._link is not None and self._stream.is_open:
            for at in range(0, len(data), FRAME_BYTES_MAX):
                self._link.write(self._stream.seal(data[at : at + FRAME_BYTES_MAX]))

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return 0 if self._link is None else self._link.pending()

    def close(self) -> None:
        """End it."""
        self._inner = None
        self._is_over = True
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self.ended()


class SealedDoor:
    """Where others of the cluster connect."""

    def __init__(
        self,
        secrets: Secrets,
        boot: int,
        scheduler: Scheduler,
        challenge: Callable[[], bytes],
        accept: Callable[[], WatchedReceiver | None],
    ) -> None:
        """``accept`` gives an end for whoever has proved itself; None: nobody is wanted now."""
        self.secrets = secrets
        self._boot = boot
        self._scheduler = scheduler
        self._challenge = challenge
        self._accept = accept
        self._waiting: dict[SealedEnd, None] = {}

    def accept(self) -> SealedEnd:
        """Somebody connects."""
        end = SealedEnd(SecureStream(self.secrets, self._boot, self._challenge()), self._accept)
        if len(self._waiting) >= WAITING_MAX:
            next(iter(self._waiting)).close()
        self._waiting[end] = None
        end.ended = lambda: self._waiting.pop(end, None)
        self._scheduler.after(PROVE_MS, lambda: end.close() if end.is_waiting else None)
        return end

    def close(self) -> None:
        """Let go of those who have not proved anything."""
        for end in list(self._waiting):
            end.close()
