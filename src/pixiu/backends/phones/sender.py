"""Notifications on their way to one provider: so many at a time, so many that wait, and none while it asks for a rest.

A failure is not repeated here: it goes back to the log, which tries again later and outlives the process. Only the
provider's wish to be left alone is kept in memory: whoever waits, waits until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from pixiu.backends.phones.answers import PAUSE_MS_MAX, Verdict
from pixiu.ports.notifications import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.config.phones import PhoneSettings
    from pixiu.ports.notifications import Notification, Told

__all__ = ["Sender"]

log = logging.getLogger(__name__)

BACKOFF_MS_MIN = 1_000
BACKOFF_MS_MAX = 60_000


class Sender:
    """One provider's queue. ``perform`` does one notification; what it raises is a failure."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        settings: PhoneSettings,
        perform: Callable[[Notification], Awaitable[Verdict]],
    ) -> None:
        self._loop = loop
        self._name = name
        self._perform = perform
        self._in_flight_max = settings.in_flight_max
        self._waiting_max = settings.waiting_max
        self._waiting: deque[tuple[Notification, Told]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._backoff_ms = 0
        self._problem = ""

    def send(self, notification: Notification, done: Told) -> None:
        """As soon as there is room; refused if too many wait."""
        if len(self._waiting) >= self._waiting_max:
            self._loop.call_soon(done, Refused(f"{self._waiting_max} notifications wait for {self._name} already"))
            return
        self._waiting.append((notification, done))
        self._fill()

    async def close(self) -> None:
        """Give up what is under way, and tell nobody: the log has it still."""
        self._waiting.clear()
        if self._resume is not None:
            self._resume.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        while self._waiting and self._resume is None and len(self._tasks) < self._in_flight_max:
            task = self._loop.create_task(self._one(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._fill()

    async def _one(self, notification: Notification, done: Told) -> None:
        try:
            verdict = await self._perform(notification)
        except Exception as error:  # a notification's boundary: one that breaks must not stop the others
            log.warning("notification failed", extra={"provider": self._name}, exc_info=error)
            verdict = Verdict(Refused(f"{self._name}: {type(error).__name__}"))
        self._note(verdict)
        done(verdict.refused)

    def _note(self, verdict: Verdict) -> None:
        if verdict.is_down:
            self._pause(verdict.pause_ms)
        elif verdict.refused is None:
            self._backoff_ms = 0
            self._problem = ""
        if verdict.is_misconfigured and verdict.refused is not None and verdict.refused.reason != self._problem:
            self._problem = verdict.refused.reason
            log.error("a provider refuses notifications", extra={"provider": self._name, "reason": self._problem})

    def _pause(self, pause_ms: int) -> None:
        """For as long as it was asked for; else longer each time."""
        if self._resume is not None:
            return
        self._backoff_ms = min(max(2 * self._backoff_ms, BACKOFF_MS_MIN), BACKOFF_MS_MAX)
        wait_ms = min(pause_ms or self._backoff_ms, PAUSE_MS_MAX)
        log.warning("a provider wants a rest", extra={"provider": self._name, "wait_ms": wait_ms})
        self._resume = self._loop.call_later(wait_ms / 1000, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._fill()
