"""One wheel for the timers of all deliveries: exact to a tick, and almost free to set and to cancel.

Most timers are set again or cancelled long before they are due, so both only change a number. An item lies in one slot
of the wheel; when that slot's time comes, the item is put off, forgotten or fired, as its number then says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.relay.live import LiveInbox

__all__ = ["TICK_MS", "Timers"]

TICK_MS = 50


class Timers:
    """Calls ``fire`` for an inbox whose time has come. At most one timer per inbox."""

    def __init__(self, clock: Clock, scheduler: Scheduler, fire: Callable[[LiveInbox], object]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._fire = fire
        self._slots: dict[int, list[LiveInbox]] = {}
        self._timer: Timer | None = None
        self._next_tick = 0

    def set(self, inbox: LiveInbox, delay_ms: int) -> None:
        """Fire after this time, in place of an earlier setting."""
        due = (self._clock.monotonic_us() // 1000 + delay_ms) // TICK_MS + 1
        inbox.due = due
        if inbox.listed == 0 or inbox.listed > due:
            self._list(inbox, due)

    def close(self) -> None:
        """Fire nothing any more."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _list(self, inbox: LiveInbox, tick: int) -> None:
        inbox.listed = tick
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = []
            if self._timer is None or tick < self._next_tick:
                self._arm(tick)
        slot.append(inbox)

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        delay_ms = tick * TICK_MS - self._clock.monotonic_us() / 1000
        self._timer = self._scheduler.after(max(delay_ms, 0), self._turn)

    def _turn(self) -> None:
        now = self._clock.monotonic_us() // 1000 // TICK_MS
        self._timer = None
        for tick in sorted(tick for tick in self._slots if tick <= now):
            for inbox in self._slots.pop(tick):
                if inbox.listed != tick:  # it was set to an earlier time since, and lies there
                    continue
                inbox.listed = 0
                if inbox.due > now:
                    self._list(inbox, inbox.due)
                elif inbox.due:
                    inbox.due = 0
                    self._fire(inbox)
        if self._slots and self._timer is None:
            self._arm(min(self._slots))
