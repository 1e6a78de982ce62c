"""When the stores commit, and what happens meanwhile.

Stores of this process commit at once, and hold the loop. An engine elsewhere is given the commit and left to work: the
loop goes on, sends are accepted and pushes leave, but nothing more is applied before the answer is there. So what is
written is what was applied, in one piece, as if everybody had waited.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError
from pixiu.ports.stores import Begins, Lane
from pixiu.roles.carrier.commit_pace import CommitPace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.messaging import CarrierSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.metrics import CarrierCounters

__all__ = ["Commits"]

log = logging.getLogger(__name__)

_POLL_MS = 1


class Commits:
    """Of one carrier."""

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        scheduler: Scheduler,
        settings: CarrierSettings,
        counters: CarrierCounters,
        *,
        applied: Callable[[], dict[Lane, int] | None],
        is_behind: Callable[[], bool],
        ended: Callable[[], object],
    ) -> None:
        """``applied``: where the lanes are, or None while that may not be written; ``ended``: they may go on."""
        self._stores = stores
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._counters = counters
        self._applied = applied
        self._is_behind = is_behind
        self._ended = ended
        self._begins = stores if isinstance(stores, Begins) else None
        self._pace = CommitPace(settings, clock.monotonic_us())
        self._timer: Timer | None = None
        self._begun: dict[Lane, int] | None = None
        self._begun_us = self._held_us = self._pending = 0
        """Of the one that is under way: since when, how long it has held the loop, how much it writes."""
        self._look_timer: Timer | None = None
        self.is_running = False
        self.problem = ""
        """Why the last one failed; empty if it did not."""

    @property
    def is_under_way(self) -> bool:
        """Is an engine at work? Then nothing may be applied."""
        return self._begun is not None

    def touch(self, events: int = 0) -> None:
        """Something was applied or finished: make it durable soon."""
        if not self.is_running or self._begun is not None:
            return
        pace = self._pace
        if pace.is_look_due(events) and self._stores.pending_bytes >= pace.bound(is_behind=self._is_behind()):
            if self._is_behind():
                self._start()
            elif not pace.is_due:  # not in one go with what was just applied: answers come in between
                pace.is_due = True
                self._scheduler.soon(self._start_due)
        elif self._timer is None:
            self._timer = self._scheduler.after(self._settings.commit_ms, self._start)

    def commit(self, *, has_more: bool = False, waits: bool = True) -> bool:
        """Make the stores durable with their positions, with ``has_more`` even if none has moved. False: later.

        Without ``waits`` an engine elsewhere is left to work.
        """
        if self._begun is not None and not self._end():
            return False
        self._pace.is_due = False
        _cancel(self._timer)
        self._timer = None
        applied, stores = self._applied(), self._stores
        if applied is None:
            self._later()
            return False
        if not has_more and all(stores.applied(lane) == position for lane, position in applied.items()):
            return True
        self._pending, self._begun_us = stores.pending_bytes, self._clock.monotonic_us()
        try:
            if self._pace.is_forgetting_due(self._begun_us):
                stores.groups.forget_left(min(stores.applied(lane) for lane in applied if lane is not Lane.TASKS))
            if not waits and self._begins is not None and self._begins.begin_commit(applied):
                self._begun = applied
                self._held_us = self._clock.monotonic_us() - self._begun_us
                self._look_timer = self._scheduler.after(_POLL_MS, self._look)
                return True
            stores.commit(applied)
        except PixiuError as error:
            return self._failed(error)
        return self._done(self._clock.monotonic_us() - self._begun_us)

    def forget(self) -> None:
        """A store has lost what it had: nobody asks any more what became of the one that was under way."""
        self._begun = None
        _cancel(self._look_timer)

    def _start_due(self) -> None:
        if self._pace.is_due and self.is_running:
            self._start()

    def _start(self) -> None:
        if self._begun is None:
            self.commit(waits=False)

    def _look(self) -> None:
        self._look_timer = None
        if self._begun is None or self._begins is None:
            return
        if self._begins.is_answered((self._clock.monotonic_us() - self._begun_us) // 1000):
            self._end()
        else:
            self._look_timer = self._scheduler.after(_POLL_MS, self._look)

    def _end(self) -> bool:
        """See the end of the one that is under way."""
        assert self._begun is not None
        begun, self._begun = self._begun, None
        _cancel(self._look_timer)
        began_us = self._clock.monotonic_us()
        try:
            self._stores.commit(begun)
        except PixiuError as error:
            is_done = self._failed(error)
        else:
            now_us = self._clock.monotonic_us()
            is_done = self._done(self._held_us + now_us - began_us, now_us - self._begun_us)
            self.touch()  # tasks may have been finished meanwhile
        self._ended()
        return is_done

    def _done(self, held_us: int, waited_us: int = 0) -> bool:
        self.problem = ""
        self._counters.commits += 1
        self._pace.took(self._pending, held_us, waited_us)
        return True

    def _failed(self, error: PixiuError) -> bool:
        log.warning("commit failed", extra={"reason": str(error)})
        self.problem = str(error) or type(error).__name__
        self._later()
        return False

    def _later(self) -> None:
        if self.is_running:
            self._timer = self._scheduler.after(self._settings.lane_retry_ms, self._start)


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
