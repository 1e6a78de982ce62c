"""Find what has waited too long, a page at a time, and note it as expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pixiu.config import InboxSettings
    from pixiu.model.inbox import InboxState
    from pixiu.ports.clock import Clock
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.relay.deliveries import Deliveries
    from pixiu.roles.relay.metrics import RelayCounters

__all__ = ["ENTRIES_PER_TURN", "STATES_PER_TURN", "Sweep"]

STATES_PER_TURN = 500
ENTRIES_PER_TURN = 2_000


class Sweep:
    """Walks all inboxes every ``sweep_interval_ms``. It only notes: the carrier removes what the log says."""

    def __init__(
        self,
        inboxes: Inboxes,
        deliveries: Deliveries,
        clock: Clock,
        scheduler: Scheduler,
        settings: InboxSettings,
        counters: RelayCounters,
    ) -> None:
        self._inboxes = inboxes
        self._deliveries = deliveries
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._counters = counters
        self._timer: Timer | None = None
        self._after: tuple[int, str] | None = None
        self._states: list[InboxState] = []  # those of the last page with something too old, last one first
        self._useq = 0  # how far the one that is being looked through has been read

    def start(self) -> None:
        """Sweep from now on."""
        self._timer = self._scheduler.after(self._settings.sweep_interval_ms, self._turn)

    def stop(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        try:
            has_more = self.step()
        except Unavailable:
            has_more = False
            self._after, self._states = None, []
        self._timer = self._scheduler.after(1 if has_more else self._settings.sweep_interval_ms, self._turn)

    def step(self) -> bool:
        """Look at one page of inboxes, or of one inbox's entries. True if there is more to do at once."""
        if self._states:
            self._sweep_page(self._states[-1])
            return True
        limit = self._clock.now_ms() - self._settings.expire_ms
        page = self._inboxes.states(after=self._after, limit=STATES_PER_TURN)
        if not page:
            self._after = None
            return False
        self._after = (page[-1].user, page[-1].platform)
        self._states = [state for state in page if state.waiting and state.oldest_at <= limit][::-1]
        self._useq = self._states[-1].floor if self._states else 0
        return True

    def _sweep_page(self, state: InboxState) -> None:
        limit = self._clock.now_ms() - self._settings.expire_ms
        key = (state.user, state.platform)
        entries = self._inboxes.after(state.user, state.platform, self._useq, ENTRIES_PER_TURN).entries
        old = [entry.useq for entry in entries if entry.at <= limit]
        for useq in old:
            self._deliveries.rows.expired.add(key, useq, useq)
        self._counters.expired += len(old)
        self._deliveries.flush_soon()
        if entries and len(old) == len(entries) == ENTRIES_PER_TURN:
            self._useq = entries[-1].useq
            return
        self._states.pop()
        self._useq = self._states[-1].floor if self._states else 0
