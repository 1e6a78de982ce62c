"""What waits for its time, and the one timer that wakes for it."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Scheduled
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Waiting"]

LOOK_MS_MAX = 60_000
"""A clock that was set is noticed after this at the latest."""


class Waiting:
    """Committed schedules. ``fire`` is told each one that is due; it is gone from here then."""

    def __init__(self, clock: Clock, scheduler: Scheduler, fire: Callable[[Scheduled], object]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._fire = fire
        self._by_id: dict[int, Scheduled] = {}
        self._due: list[tuple[int, int]] = []
        self._timer: Timer | None = None
        self._is_running = False

    def __len__(self) -> int:
        return len(self._by_id)

    def start(self, waiting: Iterable[Scheduled]) -> None:
        """Begin with these."""
        self._is_running = True
        for each in sorted(waiting, key=lambda each: each.schedule_id):
            self._put(each)
        self._arm()

    def stop(self) -> None:
        """Wake no more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, scheduled: Scheduled) -> None:
        """One more."""
        self._put(scheduled)
        if self._due[0][1] == scheduled.schedule_id:
            self._arm()

    def _put(self, scheduled: Scheduled) -> None:
        schedule_id = scheduled.schedule_id
        self._by_id[schedule_id] = scheduled
        heappush(self._due, (scheduled.due, schedule_id))

    def take(self, schedule_id: int) -> Scheduled | None:
        """Take one out; None if it does not wait."""
        return self._by_id.pop(schedule_id, None)

    def of(self, topic: str) -> list[Scheduled]:
        """Those of a topic, by due time."""
        found = [each for each in self._by_id.values() if each.topic == topic]
        return sorted(found, key=lambda each: (each.due, each.schedule_id))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and self._is_running:
            delay = min(max(self._due[0][0] - self._clock.now_ms(), 1), LOOK_MS_MAX)
            self._timer = self._scheduler.after(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        while self._due and self._due[0][0] <= now:
            scheduled = self._by_id.pop(heappop(self._due)[1], None)
            if scheduled is not None:
                self._fire(scheduled)
        self._arm()
