"""What was written and not acknowledged yet, laid over the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.backends.cassandra.job import Drop

__all__ = ["Pending"]

Row = TypeVar("Row")


class _Change(Generic[Row]):
    """A row as it is now; ``sent`` is the job that writes it so, 0 if none does yet."""

    __slots__ = ("is_new", "row", "sent")

    def __init__(self, row: Row, *, is_new: bool) -> None:
        self.row = row
        self.is_new = is_new
        self.sent = 0


class Pending(Generic[Row]):
    """Changes of the rows of one kind of owners, and what of theirs was dropped."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, _Change[Row]]] = {}
        self._dropped: dict[int, int] = {}
        """Ids through which an owner has no rows any more, until the tables know."""
        self.changed: dict[tuple[int, int], None] = {}
        """Owner and message id of what no job writes yet."""
        self.new_drops: list[Drop] = []
        self.count = 0
        """Rows in here."""

    def get(self, owner: int, message_id: int) -> Row | None:
        """A row, if it is in here."""
        rows = self._rows.get(owner)
        change = rows.get(message_id) if rows is not None else None
        return None if change is None else change.row

    def change(self, owner: int, message_id: int) -> tuple[Row, bool]:
        """A row that is in here, and whether all of it has to be written."""
        change = self._rows[owner][message_id]
        return change.row, change.is_new

    def put(self, owner: int, message_id: int, row: Row, *, is_new: bool) -> None:
        """A row becomes this. One that is new stays so until it is written."""
        rows = self._rows.setdefault(owner, {})
        change = rows.get(message_id)
        if change is None:
            rows[message_id] = _Change(row, is_new=is_new)
            self.count += 1
        else:
            change.row = row
            change.sent = 0
        self.changed[owner, message_id] = None

    def between(self, owner: int, after: int, before: int) -> Iterator[tuple[int, Row]]:
        """An owner's rows in here with ids above and below these, in no order."""
        for message_id, change in self._rows.get(owner, {}).items():
            if after < message_id < before:
                yield message_id, change.row

    # Drops.

    def hidden(self, owner: int) -> int:
        """The id through which the tables' rows do not count."""
        return self._dropped.get(owner, 0)

    def hides(self, owner: int, message_id: int) -> bool:
        """Was it dropped? What was dropped does not come again."""
        return message_id <= self._dropped.get(owner, 0)

    def drop(self, drop: Drop) -> None:
        """An owner's rows go, in here and, with the next job, in the tables."""
        rows = self._rows.get(drop.owner, {})
        for message_id in [each for each in rows if each <= drop.through]:
            del rows[message_id]
            self.count -= 1
            self.changed.pop((drop.owner, message_id), None)
        self._dropped[drop.owner] = max(drop.through, self._dropped.get(drop.owner, 0))
        self.new_drops.append(drop)

    def dropped(self, drop: Drop) -> None:
        """The tables know."""
        if self._dropped.get(drop.owner) == drop.through:
            del self._dropped[drop.owner]

    # Jobs.

    def sent(self, number: int) -> None:
        """A job writes all that has changed."""
        for owner, message_id in self.changed:
            self._rows[owner][message_id].sent = number
        self.changed = {}
        self.new_drops = []

    def written(self, owner: int, message_id: int, number: int) -> bool:
        """A job is done. True if the row has not changed since, and has left."""
        rows = self._rows.get(owner)
        change = rows.get(message_id) if rows is not None else None
        if rows is None or change is None:
            return False
        if change.sent != number:
            change.is_new = change.is_new and change.sent > number
            return False
        del rows[message_id]
        self.count -= 1
        if not rows:
            del self._rows[owner]
        return True
