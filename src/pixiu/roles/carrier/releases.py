"""References to bodies that have ended, and that bodies still count.

Whoever takes rows or entries out of a store notes their messages here, and then has them released. A release that fails
in the middle is gone on with by the next attempt: what has left its store is not found there again, so it must not be
forgotten here. Until all are released the stores hold half a record, and nothing may be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.ports.bodies import Bodies

__all__ = ["Releases"]


class Releases:
    """What one lane has to release."""

    __slots__ = ("_bodies", "_counted_through", "ids")

    def __init__(self, bodies: Bodies, counted_through: int = 0) -> None:
        """``counted_through``: what ended up to this event is counted out already, though rows of it may be there.

        So it is where rows are in another engine than bodies, and that one is behind.
        """
        self.ids: list[int] = []
        """A message for each reference."""
        self._bodies = bodies
        self._counted_through = counted_through

    def note(self, message_ids: Iterable[int], event_id: int) -> None:
        """References that have ended with an event."""
        if event_id > self._counted_through:
            self.ids.extend(message_ids)

    def release(self) -> None:
        """Give them up, one by one. Raises ``Unavailable``; then the rest is still here."""
        ids, release = self.ids, self._bodies.release
        while ids:
            release(ids[-1])
            ids.pop()
