"""Asking again when the stores have what the log has.

What is said is answered when it is committed, and applied a moment later: by a local log within the same turn, by one
over a network after a round trip, by stores that stand still when they go on. Who names a message in between must not
be told that there is none. So a message that is not found while the stores are behind is looked up once more when they
have applied everything that was committed; whoever waits longer than ``PATIENCE_MS`` for that is told to come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.errors import PixiuError
    from pixiu.ports.log import Log
    from pixiu.ports.scheduler import Scheduler

__all__ = ["PATIENCE_MS", "CatchingUp"]

PATIENCE_MS = 5_000
RETRY_MS = 1_000


class CatchingUp:
    """Those who wait for the stores, at most ``waiting_max`` of them."""

    def __init__(
        self,
        log: Log,
        scheduler: Scheduler,
        *,
        applied_all: Callable[[], int],
        when_applied: Callable[[int, Callable[[], object]], object],
        waiting_max: int,
    ) -> None:
        self._log = log
        self._scheduler = scheduler
        self._applied_all = applied_all
        self._when_applied = when_applied
        self._waiting_max = waiting_max
        self.waiting = 0

    @property
    def is_behind(self) -> bool:
        """Is there anything in the log that the stores do not show yet?"""
        return self._applied_all() < self._log.committed

    def wait(self, call: Callable[[], object], refuse: Callable[[PixiuError], object]) -> None:
        """Call when everything that is committed now is applied; refuse when that takes too long."""
        if self.waiting >= self._waiting_max:
            refuse(Overloaded(f"{self.waiting} actions wait for the stores already", retry_after_ms=RETRY_MS))
            return
        self.waiting += 1
        is_over = False

        def applied() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self.waiting -= 1
                timer.cancel()
                call()

        def too_late() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self.waiting -= 1
                refuse(Unavailable("the stores have not caught up with the log yet", retry_after_ms=RETRY_MS))

        timer = self._scheduler.after(PATIENCE_MS, too_late)
        self._when_applied(self._log.committed, applied)
