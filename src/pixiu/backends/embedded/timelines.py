"""``Timelines`` on the overlay.

A private message is in its user's timeline, and in that of the conversation: both are blocks of what a commit brought,
and neither ever changes. What becomes of a message, receipts and recalls, is a row of its own, which most never get.
Rows are objects until the commit, or until a query needs them in their order.

A message id above the highest that was ever written is new: no look at the store is needed to write a row once only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from struct import Struct

from pixiu.backends.embedded.blocks import Blocks, put_all
from pixiu.backends.embedded.layout import (
    MARK,
    META,
    NUMBER_MAX,
    PRIVATE,
    TALK,
    TIMELINE,
    key1,
    key2,
    key3,
    number,
    range1,
)
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.backends.memory.timelines import with_receipts
from pixiu.model.timeline import GroupRow, PrivateRow, State

__all__ = ["EmbeddedTimelines"]

_HIGH = META + b"high:timelines"
_private = Struct(">QQ?")
_talk = Struct(">Q?")
_mark = Struct(">Bqq")
_group_row = Struct(">QQB")
_SCANNED = 32
"""From so many rows on, what has become of them is found by one scan rather than by a look for each."""
_UNMARKED = (0, 0, 0)
"""State and receipts of a row of which nothing was heard yet."""


class EmbeddedTimelines:
    """Private rows by user and by conversation, group rows by group."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._users = Blocks(overlay, _private)
        self._talks = Blocks(overlay, _talk)
        self._private: dict[int, dict[int, PrivateRow]] = {}
        self._group: dict[int, dict[int, GroupRow]] = {}
        self._count = 0
        self._high = int.from_bytes(overlay.get(_HIGH) or b"", "big")
        self._high_written = self._high
        overlay.attach(self)

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write one side of a private message; writing it again changes nothing."""
        message_id = row[0]
        if message_id <= self._high:
            self._put_again(user, row)
            return
        rows = self._private.get(user)
        if rows is None:
            self._private[user] = {message_id: row}
        elif message_id not in rows:
            rows[message_id] = row
        self._count += 1

    def _put_again(self, user: int, row: PrivateRow) -> None:
        """A row that is not above all others: it is there already, or belongs between them."""
        self._encode_private(user)
        message_id, peer, is_incoming = row[:3]
        if self._users.find(key1(PRIVATE, user), message_id) is None:
            self._users.insert(key1(PRIVATE, user), (message_id, peer, is_incoming))
            self._talks.insert(key2(TALK, user, peer), (message_id, is_incoming))
            if row[3:] != _UNMARKED:
                self._overlay.put(key2(MARK, user, message_id), _mark.pack(*row[3:]))

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
            entry = self._users.find(key1(PRIVATE, user), message_id)
            return None if entry is None else self._marked(user, [entry])[0]
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
        last = NUMBER_MAX if through is None else through
        if peer is None:
            rows = islice(self._users.forward(key1(PRIVATE, user), after, last), max(limit, 0))
            return self._marked(user, rows, is_whole=True)
        talk = islice(self._talks.forward(key2(TALK, user, peer), after, last), max(limit, 0))
        return self._marked(user, ((message_id, peer, is_incoming) for message_id, is_incoming in talk))

    def private_backward(
        self, user: int, *, before: int | None = None, down_to: int = 0, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        self._encode_private(user)
        last = NUMBER_MAX if before is None else before - 1
        if peer is None:
            return self._marked(user, islice(self._users.backward(key1(PRIVATE, user), down_to, last), max(limit, 0)))
        talk = islice(self._talks.backward(key2(TALK, user, peer), down_to, last), max(limit, 0))
        return self._marked(user, ((message_id, peer, is_incoming) for message_id, is_incoming in talk))

    def _marked(
        self, user: int, entries: Iterable[tuple[int, int, bool]], *, is_whole: bool = False
    ) -> list[PrivateRow]:
        """Entries with what has become of them. ``is_whole``: they rise, and lack none of the user's between them."""
        found = list(entries)
        if is_whole and len(found) >= _SCANNED:
            first, last = key2(MARK, user, found[0][0]), key2(MARK, user, found[-1][0] + 1)
            by_id = {int.from_bytes(key[-8:], "big"): mark for key, mark in self._overlay.scan(first, last)}
            return [
                PrivateRow(*entry, *_mark.unpack(by_id[entry[0]])) if entry[0] in by_id else PrivateRow(*entry)
                for entry in found
            ]
        marks = self._overlay.get_many([key2(MARK, user, entry[0]) for entry in found])
        return [
            PrivateRow(*entry) if mark is None else PrivateRow(*entry, *_mark.unpack(mark))
            for entry, mark in zip(found, marks, strict=True)
        ]

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
        gone = self._users.drop(key1(PRIVATE, user), 0, through)
        for peer in sorted({entry[1] for entry in gone}):
            self._talks.drop(key2(TALK, user, peer), 0, through)
        for message_id, _, _ in gone:
            self._overlay.delete(key2(MARK, user, message_id))
        return [entry[0] for entry in gone]

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
        return self._count * 30

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
            self._overlay.put(key2(MARK, user, row.message_id), _mark.pack(*row[3:]))

    def _encode_private(self, user: int) -> None:
        """Put a user's new rows into the overlay now, for a scan to find them."""
        rows = self._private.pop(user, None)
        if rows is not None:
            encoded: Rows = []
            self._put_private({user: rows}, encoded)
            put_all(self._overlay, encoded)

    def _encode_group(self, group: int) -> None:
        rows = self._group.pop(group, None)
        if rows is not None:
            encoded: Rows = []
            self._put_group(group, rows, encoded)
            put_all(self._overlay, encoded)

    def _put_private(self, changed: dict[int, dict[int, PrivateRow]], encoded: Rows) -> None:
        """The blocks of users, of conversations, and marks."""
        talks: Rows = []
        marks: Rows = []
        for user in sorted(changed):
            new = changed[user]
            if len(new) == 1:  # most users, most of the time
                ((message_id, peer, is_incoming, *mark),) = new.values()
                encoded.append((key2(PRIVATE, user, message_id), _private.pack(message_id, peer, is_incoming)))
                talks.append((key3(TALK, user, peer, message_id), _talk.pack(message_id, is_incoming)))
                if any(mark):
                    marks.append((key2(MARK, user, message_id), _mark.pack(*mark)))
                if message_id > self._high:
                    self._high = message_id
                continue
            rows = sorted(new.values())
            self._high = max(self._high, rows[-1][0])
            entries: list[tuple[int, int, bool]] = []
            by_peer: dict[int, list[tuple[int, bool]]] = {}
            for message_id, peer, is_incoming, state, delivered_at, read_at in rows:
                entries.append((message_id, peer, is_incoming))
                talk = by_peer.get(peer)
                if talk is None:
                    talk = by_peer[peer] = []
                talk.append((message_id, is_incoming))
                if state or delivered_at or read_at:
                    marks.append((key2(MARK, user, message_id), _mark.pack(state, delivered_at, read_at)))
            self._users.encode(key1(PRIVATE, user), entries, encoded)
            for peer in sorted(by_peer):
                self._talks.encode(key2(TALK, user, peer), by_peer[peer], talks)
        encoded.extend(talks)
        encoded.extend(marks)

    def _put_group(self, group: int, rows: dict[int, GroupRow], encoded: Rows) -> None:
        for message_id, row in rows.items():
            encoded.append((key2(TIMELINE, group, message_id), _encoded_group(row)))
            if message_id > self._high:
                self._high = message_id


def _group_page(pairs: Iterator[tuple[bytes, bytes]], limit: int) -> list[GroupRow]:
    return [_decoded_group(int.from_bytes(key[9:], "big"), value) for key, value in islice(pairs, max(limit, 0))]


def _encoded_group(row: GroupRow) -> bytes:
    return _group_row.pack(row.from_user, row.previous, row.state)


def _decoded_group(message_id: int, value: bytes) -> GroupRow:
    return GroupRow(message_id, *_group_row.unpack(value))
