"""``Timelines`` on dicts."""

from dataclasses import replace

from pixiu.model.timeline import GroupRow, PrivateRow, State

__all__ = ["MemoryTimelines", "with_receipts"]


def with_receipts(row: PrivateRow, delivered_at: int, read_at: int) -> PrivateRow:
    """A row with receipts noted. The first time of each holds, and what was recalled stays recalled."""
    delivered_at = row.delivered_at or delivered_at
    read_at = row.read_at or read_at
    state = row.state
    if state != State.RECALLED:
        state = State.READ if read_at else State.DELIVERED if delivered_at else State.NORMAL
    return PrivateRow(row.message_id, row.peer, row.is_incoming, int(state), delivered_at, read_at)


class MemoryTimelines:
    """Rows by owner and message id; queries sort and filter."""

    def __init__(self) -> None:
        self._private: dict[int, dict[int, PrivateRow]] = {}
        self._group: dict[int, dict[int, GroupRow]] = {}

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write one side of a private message; writing it again changes nothing."""
        self._private.setdefault(user, {}).setdefault(row.message_id, row)

    def put_group(self, group: int, row: GroupRow) -> None:
        """Write a group message; writing it again changes nothing."""
        self._group.setdefault(group, {}).setdefault(row.message_id, row)

    def private_row(self, user: int, message_id: int) -> PrivateRow | None:
        """One side of a private message."""
        return self._private.get(user, {}).get(message_id)

    def group_row(self, group: int, message_id: int) -> GroupRow | None:
        """One group message."""
        return self._group.get(group, {}).get(message_id)

    def mark(self, user: int, message_id: int, *, delivered_at: int = 0, read_at: int = 0) -> bool:
        """Note receipts in a user's row, if it exists. True if anything changed."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        marked = with_receipts(row, delivered_at, read_at)
        self._private[user][message_id] = marked
        return marked != row

    def recall_private(self, user: int, message_id: int) -> bool:
        """Mark one side as recalled, for good. False if there is no such row."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        self._private[user][message_id] = row._replace(state=int(State.RECALLED))
        return True

    def recall_group(self, group: int, message_id: int) -> bool:
        """Mark a group message as recalled, for good. False if there is no such row."""
        row = self.group_row(group, message_id)
        if row is None:
            return False
        self._group[group][message_id] = replace(row, state=int(State.RECALLED))
        return True

    def private_forward(
        self, user: int, *, after: int = 0, through: int | None = None, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Rising, behind ``after``; with ``through``, not beyond it."""
        rows = self._private.get(user, {})
        return [
            rows[number]
            for number in sorted(rows)
            if number > after and (through is None or number <= through) and peer in (None, rows[number].peer)
        ][: max(limit, 0)]

    def private_backward(
        self, user: int, *, before: int | None = None, down_to: int = 0, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        rows = self._private.get(user, {})
        return [
            rows[number]
            for number in sorted(rows, reverse=True)
            if number > down_to and (before is None or number < before) and peer in (None, rows[number].peer)
        ][: max(limit, 0)]

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        """Rising, behind ``after``."""
        rows = self._group.get(group, {})
        return [rows[number] for number in sorted(rows) if number > after][: max(limit, 0)]

    def group_backward(
        self, group: int, *, before: int | None = None, down_to: int = 0, limit: int = 100
    ) -> list[GroupRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        rows = self._group.get(group, {})
        return [
            rows[number]
            for number in sorted(rows, reverse=True)
            if number > down_to and (before is None or number < before)
        ][: max(limit, 0)]

    def drop_private(self, user: int, *, through: int) -> list[int]:
        """Remove a user's rows through here; returns their message ids."""
        rows = self._private.get(user, {})
        gone = sorted(number for number in rows if number <= through)
        for number in gone:
            del rows[number]
        return gone

    def drop_group(self, group: int, *, through: int) -> list[int]:
        """Remove a group's rows through here; returns their message ids."""
        rows = self._group.get(group, {})
        gone = sorted(number for number in rows if number <= through)
        for number in gone:
            del rows[number]
        return gone
