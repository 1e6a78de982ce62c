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
_BYTES_MIN = 16 * 1024
_LOOK_EVERY = 32
"""Events behind which it is looked at how much waits: asking costs as much as applying one."""


class CommitPace:
    """Learns from commits how much one may hold."""

    __slots__ = ("_bytes_max", "_events", "bytes")

    def __init__(self, settings: CarrierSettings) -> None:
        self._bytes_max = settings.commit_bytes
        self._events = 0
        self.bytes = settings.commit_bytes
        """About how much may wait."""

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

    def took(self, pending_bytes: int, microseconds: int) -> None:
        """A commit of this much has taken so long. One measure alone moves the bound half of the way."""
        self._events = 0
        if pending_bytes >= _BYTES_MIN:
            fitting = pending_bytes * COMMIT_US // max(microseconds, 1)
            self.bytes = min(max((self.bytes + fitting) // 2, _BYTES_MIN), self._bytes_max)
