"""Sessions that are over leave the table: one by one while they are few, in a storm all at once.

A gateway whose clients are cut off all at once (T5) would write once for each of them. Instead, as soon as few are
left, it begins a new epoch: that is one write, it makes all that were there before dead, and the few are listed again.
Until then the table has sessions that are none; whoever meets one repairs it, as after a crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.sessions import Sessions

__all__ = ["FEW", "WINDOW_MS", "Leaving"]

log = logging.getLogger(__name__)

FEW = 500
"""So many sessions leave at once, per window; so many are written in one turn; so many may be listed again."""
WINDOW_MS = 1_000
LOOKS_MAX = 10
"""While many go on leaving, so many windows are waited for the end of it."""


class Leaving:
    """Takes sessions of one gateway from the table."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        scheduler: Scheduler,
        *,
        remaining: Callable[[], int],
        renew: Callable[[], object],
        end: Callable[[], object],
    ) -> None:
        """``remaining``: how many sessions live. ``renew`` begins a new epoch and lists them again; ``end`` ends it."""
        self._sessions = sessions
        self._clock = clock
        self._scheduler = scheduler
        self._remaining = remaining
        self._renew = renew
        self._end = end
        self._began_us = 0
        self._count = 0
        self._gone: list[tuple[int, int]] = []
        self._seen = 0  # of them, at the last look
        self._looks = 0
        self._timer: Timer | None = None

    def remove(self, user: int, session_id: int) -> None:
        """A session is over. Its row goes now, or with all the others within about a second."""
        now_us = self._clock.monotonic_us()
        if now_us - self._began_us >= WINDOW_MS * 1000:
            self._began_us, self._count = now_us, 0
        self._count += 1
        if self._count <= FEW and not self._gone:
            self._unlist(user, session_id)
            return
        self._gone.append((user, session_id))
        if len(self._gone) > FEW and self._remaining() <= FEW:
            self._invalidate()
        elif self._timer is None:
            self._timer = self._scheduler.after(WINDOW_MS, self._settle)

    def stop(self) -> None:
        """The gateway ends, with all its sessions: nothing of it is left in the table."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gone:
            self._gone = []
            try:
                self._end()
            except Unavailable:
                log.warning("the epoch was not ended; the next one will")

    def _invalidate(self) -> None:
        count, self._gone = len(self._gone), []
        self._seen = self._looks = 0
        log.warning("many sessions ended at once: a new epoch", extra={"sessions": count})
        try:
            self._renew()
        except Unavailable:
            log.warning("no new epoch; dead sessions are removed when they are met")

    def _settle(self) -> None:
        """After a window: what is still there, a batch per turn."""
        self._timer = None
        if len(self._gone) > FEW and self._remaining() <= FEW:
            self._invalidate()
            return
        if len(self._gone) - self._seen > FEW and self._looks < LOOKS_MAX:
            self._seen, self._looks = len(self._gone), self._looks + 1
            self._timer = self._scheduler.after(WINDOW_MS, self._settle)
            return
        self._seen = self._looks = 0
        batch, self._gone = self._gone[:FEW], self._gone[FEW:]
        for user, session_id in batch:
            self._unlist(user, session_id)
        self._seen = len(self._gone)
        if self._gone:
            self._timer = self._scheduler.after(0, self._settle)

    def _unlist(self, user: int, session_id: int) -> None:
        try:
            self._sessions.remove(user, session_id)
        except Unavailable:
            log.warning("session not removed", extra={"session_id": session_id, "user": user})
