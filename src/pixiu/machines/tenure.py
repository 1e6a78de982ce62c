"""When to try for a lock, when to renew it, and when to stop believing in it.

A lock in a store of others runs out by itself, so that a holder that died frees it. The holder must therefore stop
*before* it runs out, by its own clock, whether or not it can still reach the store. What it knows for certain is when
it sent the request that the store granted; the lock began later than that, so counting from there errs on the safe
side.

Events in (``poll``, ``granted``, ``refused``, ``failed``), commands out (``Try``, ``Renew``, ``Stop``). Time is an
argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Renew", "Stop", "Tenure", "TenureRules", "Try"]


class TenureRules(NamedTuple):
    """The times of smss's recipe, in milliseconds."""

    expire_ms: int = 30_000
    """The store forgets a lock that was not renewed for this long."""
    renew_ms: int = 25_000
    """How long after a grant it is renewed."""
    retry_ms: int = 20_000
    """How often one who has not got it tries."""
    again_ms: int = 500
    """How soon a renewal without an answer is tried again."""
    margin_ms: int = 1_000
    """The holder stops this long before the lock may be gone."""


@dataclass(frozen=True, slots=True)
class Try:
    """Ask for the lock."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Ask for more time."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Do nothing more in its name: it is lost, or may be."""


class Tenure:
    """One contender for one lock. At most one request is under way."""

    def __init__(self, rules: TenureRules) -> None:
        """Raises ``ValueError`` if the times leave no room for a renewal."""
        if not 0 < rules.renew_ms < rules.expire_ms - rules.margin_ms:
            raise ValueError(
                f"a lock of {rules.expire_ms} ms cannot be renewed after {rules.renew_ms} ms: "
                f"its holder stops {rules.margin_ms} ms before its end"
            )
        self._rules = rules
        self._asked_ms: int | None = None
        self._next_ms = 0
        self._until_ms: int | None = None

    def is_held(self, now_ms: int) -> bool:
        """May its holder act?"""
        return self._until_ms is not None and now_ms < self._until_ms

    def due_ms(self, now_ms: int) -> int:
        """How long until ``poll`` has something to say."""
        times = [] if self._asked_ms is not None else [self._next_ms]
        if self._until_ms is not None:
            times.append(self._until_ms)
        return max(0, min(times) - now_ms) if times else self._rules.again_ms

    def poll(self, now_ms: int) -> Try | Renew | Stop | None:
        """What is to be done now."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self._until_ms = None
            return Stop()
        if self._asked_ms is not None or now_ms < self._next_ms:
            return None
        self._asked_ms = now_ms
        return Try() if self._until_ms is None else Renew()

    def granted(self, now_ms: int) -> Stop | None:
        """The store said yes. Too late is no: the lock may be gone before this answer came."""
        asked_ms, self._asked_ms = self._asked_ms, None
        if asked_ms is None:
            return None
        until_ms = asked_ms + self._rules.expire_ms - self._rules.margin_ms
        if now_ms >= until_ms:
            return self._lose(now_ms)
        self._until_ms = until_ms
        self._next_ms = asked_ms + self._rules.renew_ms
        return None

    def refused(self, now_ms: int) -> Stop | None:
        """The store said no: somebody else has it."""
        self._asked_ms = None
        self._next_ms = now_ms + self._rules.retry_ms
        was_held, self._until_ms = self._until_ms is not None, None
        return Stop() if was_held else None

    def failed(self, now_ms: int) -> None:
        """No answer. A holder tries again soon, as long as it may believe in the lock; others wait their time."""
        self._asked_ms = None
        held = self._until_ms is not None
        self._next_ms = now_ms + (self._rules.again_ms if held else min(self._rules.retry_ms, 4 * self._rules.again_ms))

    def _lose(self, now_ms: int) -> Stop | None:
        self._next_ms = now_ms
        was_held, self._until_ms = self._until_ms is not None, None
        return Stop() if was_held else None
