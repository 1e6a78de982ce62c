"""Says who was refused for want of the right key: whoever has an old secret tries again several times a second.

The first one of a kind is said at once, then one line every ten seconds with how many there were.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock

__all__ = ["KeyRefusals"]

log = logging.getLogger(__name__)

AGAIN_US = 10_000_000


class KeyRefusals:
    """Those of one queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._said_us: dict[str, int] = {}
        """By what was refused: there are a handful of commands."""
        self.peer_of: Callable[[Any], str] = lambda transport: ""
        """Where a connection comes from, as its transport knows."""

    def note(self, what: str, transport: Any) -> None:
        """Somebody has shown a wrong key, or none where one is needed."""
        self._counts[what] = count = self._counts.get(what, 0) + 1
        now = self._clock.monotonic_us()
        if what in self._said_us and now - self._said_us[what] < AGAIN_US:
            return
        log.warning(what, extra={"peer": self.peer_of(transport), "count": count})
        self._counts[what], self._said_us[what] = 0, now
