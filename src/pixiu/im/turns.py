"""Which action runs in which turn of the event loop, so that many expensive ones do not run in one turn.

A client may send 64 requests in one segment, and each may take 30 ms. Actions run at once while the actions of this
turn have taken less than ``TURN_US``. The others wait, and each later turn runs them for ``TURN_US``: the users take
turns, so that an action of one user waits for one action of each other user, whatever they have sent. Messages to users
and groups do not wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["TURN_US", "Turns"]

TURN_US = 5_000
"""How long actions may take in one turn. The action that passes it ends first."""


class Turns:
    """Runs actions now or in a later turn; those of one user in their order."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._spent_us = 0
        """In this turn."""
        self._is_counting = False
        """Whether the end of this turn is scheduled."""
        self._waiting: dict[int, deque[Callable[[], object]]] = {}
        """By user, in the order in which the users are next."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def is_free(self, user: int) -> bool:
        """May an action of this user run now?"""
        return self._spent_us < TURN_US and user not in self._waiting

    def wait(self, user: int, call: Callable[[], object]) -> None:
        """Run an action in a later turn. ``call`` must not raise."""
        self._waiting.setdefault(user, deque()).append(call)

    def run(self, call: Callable[[], object]) -> None:
        """Run an action now, and count the time that it takes."""
        if not self._is_counting:
            self._is_counting = True
            self._scheduler.soon(self._next_turn)
        begun_us = self._clock.monotonic_us()
        try:
            call()
        finally:
            self._spent_us += self._clock.monotonic_us() - begun_us

    def _next_turn(self) -> None:
        self._is_counting = False
        self._spent_us = 0
        while self._waiting and self._spent_us < TURN_US:
            user = next(iter(self._waiting))
            waiting = self._waiting.pop(user)
            call = waiting.popleft()
            if waiting:
                self._waiting[user] = waiting
            self.run(call)
