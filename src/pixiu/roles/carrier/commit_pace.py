"""How much is applied before the stores commit: as much as a commit can write without anyone noticing.

A commit holds the loop. Fewer and larger ones cost less, since what one brings for a user or a conversation is one row;
a very large one makes everyone wait. What a commit takes is measured, and the next ones are made to fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.config.messaging import CarrierSettings

__all__ = ["COMMIT_US", "CommitPace"]

COMMIT_US = 10_000
"""How long a commit should hold the loop at most."""
WAIT_US = 40_000
"""How long nothing should be applied because another engine is at work: pushes come later by as much."""
_BYTES_MIN = 16 * 1024
_FORGET_INTERVAL_US = 60_000_000
_LOOK_EVERY = 32
"""Events behind which it is looked at how much waits: asking costs as much as applying one."""


class CommitPace:
    """Learns from commits how much one may hold."""

    __slots__ = ("_bytes_max", "_events", "_forgot_us", "bytes", "is_due")

    def __init__(self, settings: CarrierSettings, now_us: int = 0) -> None:
        self._bytes_max = settings.commit_bytes
        self._events = 0
        self.bytes = settings.commit_bytes
        """About how much may wait."""
        self.is_due = False
        """Has one been asked for that is still to come?"""
        self._forgot_us = now_us

    def is_look_due(self, events: int) -> bool:
        """So many more were applied: is it time to see how much waits?"""
        self._events += events
        if self._events < _LOOK_EVERY:
            return False
        self._events = 0
        return True

    def bound(self, *, is_behind: bool) -> int:
        """What may wait. Who has a lot to catch up with has nobody waiting for the loop, and commits more at once."""
        return self._bytes_max if is_behind else self.bytes

    def is_forgetting_due(self, now_us: int) -> bool:
        """Now and then: nobody asks any more who was a member before what every lane has durably applied."""
        if now_us - self._forgot_us < _FORGET_INTERVAL_US:
            return False
        self._forgot_us = now_us
        return True

    def took(self, pending_bytes: int, held_us: int, waited_us: int = 0) -> None:
        """A commit of this much has held the loop so long, and the carrier. One measure moves the bound half way."""
        self._events = 0
        if pending_bytes >= _BYTES_MIN:
            fitting = pending_bytes * COMMIT_US // max(held_us, waited_us * COMMIT_US // WAIT_US, 1)
            self.bytes = min(max((self.bytes + fitting) // 2, _BYTES_MIN), self._bytes_max)
