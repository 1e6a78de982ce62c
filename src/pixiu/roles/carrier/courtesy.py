"""Sends go before the carrier, for a while: a burst is in the log before it is in the stores.

While the writer is busy the carrier waits. While it only waits for the disk, the carrier does a little. That ends after
``yield_ms``, or when ``yield_count`` events wait: then both take turns, until there are no sends for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.config.messaging import CarrierSettings

__all__ = ["SHORT_TURN_US", "TURN_US", "Courtesy"]

TURN_US = 5_000
"""A turn ends after this, whatever is left of its batch: a message to a large audience is a lot of work."""
SHORT_TURN_US = 1_000
"""The same while sends go first: about as long as the writer waits for the disk."""
BURST_US = 20_000
"""Sends that come within this of each other are one burst."""


class Courtesy:
    """Who goes first, and how long the carrier's next turn may take."""

    __slots__ = ("_busy_us", "_count_max", "_since_us", "_yield_us", "turn_us")

    def __init__(self, settings: CarrierSettings) -> None:
        self._yield_us = settings.yield_ms * 1000
        self._count_max = settings.yield_count
        self._since_us: int | None = None
        self._busy_us = 0
        self.turn_us = TURN_US

    def yields(self, now_us: int, behind: int, *, is_writer_busy: bool) -> bool:
        """Does the carrier, so many events behind, let the writer go first?"""
        if is_writer_busy:
            self._busy_us = now_us
            if self._since_us is None:
                self._since_us = now_us
        elif now_us - self._busy_us > BURST_US:
            self._since_us = None
        since_us = self._since_us
        is_patient = since_us is not None and now_us - since_us < self._yield_us and behind < self._count_max
        self.turn_us = SHORT_TURN_US if is_patient else TURN_US
        return is_patient and is_writer_busy

    def caught_up(self) -> None:
        """Nothing waits for the carrier: the next burst is a new one."""
        self._since_us = None
