"""What was said, for good: a private message once per side, a group message once. Rows refer to bodies in xiu.

The six private and two group queries of seed 004. ``after`` and ``before`` are exclusive; ``between`` takes both ends.
Forward pages rise, backward pages fall. With ``peer`` a private query sees one conversation only.
"""

from typing import Protocol

from pixiu.model.timeline import GroupRow, PrivateRow

__all__ = ["Timelines"]


class Timelines(Protocol):
    """Every timeline. Implementations pass ``tests/contracts/timelines.py``."""

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write one side of a private message; writing it again changes nothing."""
        ...

    def put_group(self, group: int, row: GroupRow) -> None:
        """Write a group message; writing it again changes nothing."""
        ...

    def private_row(self, user: int, message_id: int) -> PrivateRow | None:
        """One side of a private message."""
        ...

    def group_row(self, group: int, message_id: int) -> GroupRow | None:
        """One group message."""
        ...

    def mark(self, user: int, message_id: int, *, delivered_at: int = 0, read_at: int = 0) -> bool:
        """Note receipts in a user's row, if it exists; the first time of each holds. True if anything changed."""
        ...

    def recall_private(self, user: int, message_id: int) -> bool:
        """Mark one side as recalled, for good. False if there is no such row."""
        ...

    def recall_group(self, group: int, message_id: int) -> bool:
        """Mark a group message as recalled, for good. False if there is no such row."""
        ...

    def private_forward(
        self, user: int, *, after: int = 0, through: int | None = None, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Rising, behind ``after``; with ``through``, not beyond it (forward, forward-between)."""
        ...

    def private_backward(
        self,
        user: int,
        *,
        before: int | None = None,
        down_to: int = 0,
        limit: int = 100,
        peer: int | None = None,
    ) -> list[PrivateRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``.

        Four of seed 004's queries: backward, backward-from (before), backward-to (down_to), backward-between (both).
        """
        ...

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        """Rising, behind ``after``."""
        ...

    def group_backward(
        self, group: int, *, before: int | None = None, down_to: int = 0, limit: int = 100
    ) -> list[GroupRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        ...

    def drop_private(self, user: int, *, through: int) -> list[int]:
        """Retention: remove a user's rows through here; returns their message ids."""
        ...

    def drop_group(self, group: int, *, through: int) -> list[int]:
        """Retention: remove a group's rows through here; returns their message ids."""
        ...
