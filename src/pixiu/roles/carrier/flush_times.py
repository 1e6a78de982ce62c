"""How long it takes from a flush of the log until the stores have it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.traces import TraceRows
    from pixiu.ports.clock import Clock

__all__ = ["FlushTimes"]

_TIMED_MAX = 64
"""Flushes whose way into the stores is timed at once; those that come meanwhile are not."""


class FlushTimes:
    """Told of flushes and of what was applied; observes seconds, and writes rows of those with messages."""

    def __init__(self, clock: Clock, observe: Callable[[float], object], traces: TraceRows) -> None:
        self._clock = clock
        self._observe = observe
        self._traces = traces
        self._flushes: deque[tuple[int, int]] = deque()
        """The event id of a flush, and when it came."""
        self._numbered = self._traced = 0
        """The newest event with a message_id that a lane has seen; the newest flush that a row was written for."""

    def begin_after(self, event_id: int) -> None:
        """What came before is not timed."""
        self._numbered = self._traced = event_id
        self._traces.begin_after(event_id)

    def flushed(self, event_id: int) -> None:
        """The log has more, through here."""
        if len(self._flushes) < _TIMED_MAX:
            self._flushes.append((event_id, self._clock.monotonic_us()))

    def seen(self, numbered: int) -> None:
        """A lane has seen a message."""
        self._numbered = max(self._numbered, numbered)

    def applied(self, event_id: int) -> None:
        """Every lane is through here.

        Rows are written for flushes with messages alone: one for a flush of rows would never end.
        """
        flushes = self._flushes
        if not flushes or flushes[0][0] > event_id:
            return
        now_us, now_ms = self._clock.monotonic_us(), self._clock.now_ms()
        while flushes and flushes[0][0] <= event_id:
            through, flushed_us = flushes.popleft()
            took_us = now_us - flushed_us
            self._observe(took_us / 1e6)
            if self._numbered > self._traced:
                self._traced = through
                self._traces.flushed(through, now_ms - took_us // 1000, took_us)
