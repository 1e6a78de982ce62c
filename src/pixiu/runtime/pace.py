"""Work that may wait a little, so that a crowd at the door does not stop the talk inside.

Ten thousand clients that were cut come back within a second. Each costs half a millisecond, and the loop would serve
all of them who are ready before it looks at anyone else. Here their work gets a slice of each turn of the loop; what
does not fit waits for the next turn, in order.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["SLICE_SECONDS", "Pace"]

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.001
"""Time of one turn of the loop for such work; the last piece may run over."""
COLLECT_AFTER = 128
"""Pieces of work after which the collector looks at what is new. It counts what was made less what was freed, so while
a crowd leaves it does not look at all, and then at everything that was made meanwhile: that took 20 to 50 ms."""


class Pace:
    """Runs work at once while there is time in this turn, else in a later one. Whoever adds work bounds how much."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds: float = SLICE_SECONDS,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._now = now
        self._spent = 0.0
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_near = False
        self._since_collected = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, work: Callable[[], object]) -> None:
        """Run it, now or soon; after everything that was added before it."""
        if self._waiting or self._spent >= self._seconds:
            self._waiting.append(work)
        else:
            self._timed(work)
        if not self._is_near:
            self._is_near = True
            self._loop.call_soon(self._next_turn)

    def later(self, work: Callable[[], object]) -> None:
        """Run it in a later turn, after everything that was added before it. Costs nearly nothing now."""
        self._waiting.append(work)
        if not self._is_near:
            self._is_near = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_near = False
        self._spent = 0.0
        waiting = self._waiting
        while waiting:
            self._timed(waiting.popleft())
            if self._spent >= self._seconds:
                break
        if waiting:
            self._is_near = True
            self._loop.call_soon(self._next_turn)
        if self._since_collected >= COLLECT_AFTER and gc.isenabled():
            self._since_collected = 0
            gc.collect(1)

    def _timed(self, work: Callable[[], object]) -> None:
        began = self._now()
        try:
            work()
        except Exception:  # one client's trouble is not the others'
            log.exception("a connection could not be opened or closed")
        self._spent += self._now() - began
        self._since_collected += 1
