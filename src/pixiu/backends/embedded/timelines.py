"""``Timelines`` on the overlay.

A private row is written twice per side: by user, and by user and peer, so that one conversation is one range and no
page reads a row it does not return. Rows are objects until the commit, or until a query needs them in their order.

A message id above the highest that was ever written is new: no look at the store is needed to write a row once only.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from struct import Struct

from pixiu.backends.embedded.layout import (
    META,
    NUMBER_MAX,
    PRIVATE,
    TALK,
    TIMELINE,
    key2,
    key3,
    number,
    range1,
    range2,
)
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.backends.memory.timelines import with_receipts
from pixiu.model.timeline import GroupRow, PrivateRow, State

__all__ = ["EmbeddedTimelines"]

_HIGH = META + b"high:timelines"
_INCOMING = 0x80
_row = Struct(">QB")
_row_with_receipts = Struct(">QBqq")
_group_row = Struct(">QQB")


class EmbeddedTimelines:
    """Private rows by user and by conversation, group rows by group."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._private: dict[int, dict[int, PrivateRow]] = {}
        self._group: dict[int, dict[int, GroupRow]] = {}
        self._count = 0
        self._high = int.from_bytes(overlay.get(_HIGH) or b"", "big")
        self._high_written = self._high
        overlay.attach(self)

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write one side of a private message; writing it again changes nothing."""
        message_id = row[0]
        rows = self._private.get(user)
        if message_id <= self._high and self._overlay.get(key2(PRIVATE, user, message_id)) is not None:
            return
        if rows is None:
            self._private[user] = {message_id: row}
        elif message_id not in rows:
            rows[message_id] = row
        self._count += 1

    def put_group(self, group: int, row: GroupRow) -> None:
        """Write a group message; writing it again changes nothing."""
        message_id = row.message_id
        rows = self._group.get(group)
        if message_id <= self._high and self._overlay.get(key2(TIMELINE, group, message_id)) is not None:
            return
        if rows is None:
            self._group[group] = {message_id: row}
        elif message_id not in rows:
            rows[message_id] = row
        self._count += 1

    def private_row(self, user: int, message_id: int) -> PrivateRow | None:
        """One side of a private message."""
        rows = self._private.get(user)
        row = rows.get(message_id) if rows is not None else None
        if row is None and 0 <= message_id <= self._high:
            value = self._overlay.get(key2(PRIVATE, user, message_id))
            return None if value is None else _decoded(message_id, value)
        return row

    def group_row(self, group: int, message_id: int) -> GroupRow | None:
        """One group message."""
        rows = self._group.get(group)
        row = rows.get(message_id) if rows is not None else None
        if row is None and 0 <= message_id <= self._high:
            value = self._overlay.get(key2(TIMELINE, group, message_id))
            return None if value is None else _decoded_group(message_id, value)
        return row

    def mark(self, user: int, message_id: int, *, delivered_at: int = 0, read_at: int = 0) -> bool:
        """Note receipts in a user's row, if it exists. True if anything changed."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        marked = with_receipts(row, delivered_at, read_at)
        if marked == row:
            return False
        self._change(user, marked)
        return True

    def recall_private(self, user: int, message_id: int) -> bool:
        """Mark one side as recalled, for good. False if there is no such row."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        if row.state != State.RECALLED:
            self._change(user, row._replace(state=int(State.RECALLED)))
        return True

    def recall_group(self, group: int, message_id: int) -> bool:
        """Mark a group message as recalled, for good. False if there is no such row."""
        row = self.group_row(group, message_id)
        if row is None:
            return False
        recalled = replace(row, state=int(State.RECALLED))
        rows = self._group.get(group)
        if rows is not None and message_id in rows:
            rows[message_id] = recalled
        else:
            self._overlay.put(key2(TIMELINE, group, message_id), _encoded_group(recalled))
        return True

    def private_forward(
        self, user: int, *, after: int = 0, through: int | None = None, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Rising, behind ``after``; with ``through``, not beyond it."""
        self._encode_private(user)
        pairs = self._overlay.scan(*_range(user, peer, after, NUMBER_MAX if through is None else through))
        return _private_page(pairs, limit)

    def private_backward(
        self, user: int, *, before: int | None = None, down_to: int = 0, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        self._encode_private(user)
        pairs = self._overlay.scan_back(*_range(user, peer, down_to, NUMBER_MAX if before is None else before - 1))
        return _private_page(pairs, limit)

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        """Rising, behind ``after``."""
        self._encode_group(group)
        return _group_page(self._overlay.scan(*range1(TIMELINE, group, after, NUMBER_MAX)), limit)

    def group_backward(
        self, group: int, *, before: int | None = None, down_to: int = 0, limit: int = 100
    ) -> list[GroupRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        self._encode_group(group)
        through = NUMBER_MAX if before is None else before - 1
        return _group_page(self._overlay.scan_back(*range1(TIMELINE, group, down_to, through)), limit)

    def drop_private(self, user: int, *, through: int) -> list[int]:
        """Remove a user's rows through here; returns their message ids."""
        self._encode_private(user)
        rows = _private_page(self._overlay.scan(*range1(PRIVATE, user, -1, through)), None)
        for row in rows:
            self._overlay.delete(key2(PRIVATE, user, row.message_id))
            self._overlay.delete(key3(TALK, user, row.peer, row.message_id))
        return [row.message_id for row in rows]

    def drop_group(self, group: int, *, through: int) -> list[int]:
        """Remove a group's rows through here; returns their message ids."""
        self._encode_group(group)
        keys = [key for key, _ in self._overlay.scan(*range1(TIMELINE, group, -1, through))]
        for key in keys:
            self._overlay.delete(key)
        return [int.from_bytes(key[9:], "big") for key in keys]

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return self._count * 62

    def save(self, rows: Rows) -> None:
        """Turn rows into bytes, in the order of their keys."""
        self._put_private(self._private, rows)
        for group, group_rows in self._group.items():
            self._put_group(group, group_rows, rows)
        self._private = {}
        self._group = {}
        self._count = 0
        if self._high != self._high_written:
            rows.append((_HIGH, number.pack(self._high)))
            self._high_written = self._high

    def written(self) -> None:
        """Nothing is held for longer."""

    def _change(self, user: int, row: PrivateRow) -> None:
        rows = self._private.get(user)
        if rows is not None and row.message_id in rows:
            rows[row.message_id] = row
        else:
            value = _encoded(row)
            self._overlay.put(key2(PRIVATE, user, row.message_id), value)
            self._overlay.put(key3(TALK, user, row.peer, row.message_id), value)

    def _encode_private(self, user: int) -> None:
        """Put a user's new rows into the overlay now, for a scan to find them."""
        rows = self._private.pop(user, None)
        if rows is not None:
            encoded: Rows = []
            self._put_private({user: rows}, encoded)
            for key, value in encoded:
                self._overlay.put(key, value)

    def _encode_group(self, group: int) -> None:
        rows = self._group.pop(group, None)
        if rows is not None:
            encoded: Rows = []
            self._put_group(group, rows, encoded)
            for key, value in encoded:
                self._overlay.put(key, value)

    def _put_private(self, changed: dict[int, dict[int, PrivateRow]], encoded: Rows) -> None:
        pack, high, append = _row.pack, self._high, encoded.append
        talks: Rows = []
        for user in sorted(changed):
            for message_id, row in changed[user].items():
                _, peer, is_incoming, state, delivered_at, read_at = row
                if delivered_at or read_at:
                    value = _encoded(row)
                else:
                    value = pack(peer, state | _INCOMING if is_incoming else state)
                append((key2(PRIVATE, user, message_id), value))
                talks.append((key3(TALK, user, peer, message_id), value))
                if message_id > high:
                    high = message_id
        encoded.extend(talks)
        self._high = high

    def _put_group(self, group: int, rows: dict[int, GroupRow], encoded: Rows) -> None:
        for message_id, row in rows.items():
            encoded.append((key2(TIMELINE, group, message_id), _encoded_group(row)))
            if message_id > self._high:
                self._high = message_id


def _range(user: int, peer: int | None, after: int, through: int) -> tuple[bytes, bytes]:
    if peer is None:
        return range1(PRIVATE, user, after, through)
    return range2(TALK, user, peer, after, through)


def _private_page(pairs: Iterator[tuple[bytes, bytes]], limit: int | None) -> list[PrivateRow]:
    stop = None if limit is None else max(limit, 0)
    return [_decoded(int.from_bytes(key[-8:], "big"), value) for key, value in islice(pairs, stop)]


def _group_page(pairs: Iterator[tuple[bytes, bytes]], limit: int) -> list[GroupRow]:
    return [_decoded_group(int.from_bytes(key[9:], "big"), value) for key, value in islice(pairs, max(limit, 0))]


def _encoded(row: PrivateRow) -> bytes:
    flags = row.state | _INCOMING if row.is_incoming else row.state
    if row.delivered_at or row.read_at:
        return _row_with_receipts.pack(row.peer, flags, row.delivered_at, row.read_at)
    return _row.pack(row.peer, flags)


def _decoded(message_id: int, value: bytes) -> PrivateRow:
    if len(value) == _row.size:
        peer, flags = _row.unpack(value)
        return PrivateRow(message_id, peer, flags >= _INCOMING, flags & ~_INCOMING)
    peer, flags, delivered_at, read_at = _row_with_receipts.unpack(value)
    return PrivateRow(message_id, peer, flags >= _INCOMING, flags & ~_INCOMING, delivered_at, read_at)


def _encoded_group(row: GroupRow) -> bytes:
    return _group_row.pack(row.from_user, row.previous, row.state)


def _decoded_group(message_id: int, value: bytes) -> GroupRow:
    return GroupRow(message_id, *_group_row.unpack(value))
