"""Rows of the embedded stores made and read in bulk, past the stores: for rebuilds at scale and for checks.

What these functions give is what a commit of the stores would have written, but that entries of one owner are in as few
blocks as they fit in. Rows of the same table come out in the order of their keys when owners are given in order.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, cast

from pixiu.backends.embedded.blocks import Blocks
from pixiu.backends.embedded.desk import Desk, Inbox, entry_prefix, entry_row
from pixiu.backends.embedded.layout import (
    BODY,
    ENTRY,
    INBOXES,
    MARK,
    META,
    PRIVATE,
    REFERENCES,
    SEND_KEY,
    TALK,
    TIMELINE,
    UNREAD,
    key1,
    key2,
    number,
    range_of,
)
from pixiu.model.inbox import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pixiu.backends.embedded.overlay import Overlay, Rows
    from pixiu.model.timeline import GroupRow, PrivateRow
    from pixiu.ports.keyvalue import KeyValue

__all__ = [
    "body_row",
    "group_row",
    "high_rows",
    "inbox_rows",
    "key_row",
    "private_rows",
    "stored_bodies",
    "stored_counters",
    "stored_desks",
    "stored_entries",
    "stored_group_rows",
    "stored_inboxes",
    "stored_keys",
    "stored_private_rows",
    "stored_unread",
    "unread_row",
]

_NOBODY = cast("Overlay", None)
_private = Struct(">QQ?")
_talk = Struct(">Q?")
_mark = Struct(">Bqq")
_group = Struct(">QQB")
_unread_key = Struct(">cQBQ")
_unread = Struct(">qQ")
_send_key = Struct(">QQq")
_count = Struct(">QI")
_KINDS = {"u": 1, "g": 2}
_KIND_NAMES = {1: "u", 2: "g"}


def private_rows(user: int, rows: Sequence[PrivateRow]) -> Rows:
    """A user's timeline, whole: rows in any order."""
    ordered = sorted(rows)
    encoded: Rows = []
    Blocks(_NOBODY, _private).encode(key1(PRIVATE, user), [row[:3] for row in ordered], encoded)
    by_peer: dict[int, list[tuple[int, bool]]] = {}
    for row in ordered:
        by_peer.setdefault(row.peer, []).append((row.message_id, row.is_incoming))
    for peer in sorted(by_peer):
        Blocks(_NOBODY, _talk).encode(key2(TALK, user, peer), by_peer[peer], encoded)
    encoded += [(key2(MARK, user, row.message_id), _mark.pack(*row[3:])) for row in ordered if any(row[3:])]
    return encoded


def group_row(group: int, row: GroupRow) -> tuple[bytes, bytes]:
    """One message of a group's timeline."""
    return key2(TIMELINE, group, row.message_id), _group.pack(row.from_user, row.previous, row.state)


def inbox_rows(
    user: int, states: Iterable[tuple[str, int, int, int, int, int]], entries: dict[str, list[Entry]]
) -> Rows:
    """All inboxes of a user, in the order of their opening: (platform, floor, latest, waiting, event_id, oldest_at)."""
    desk = Desk(user)
    encoded: Rows = []
    for platform, *counts in states:
        inbox = desk.inboxes[platform] = Inbox(len(desk.inboxes), platform.encode(), *counts)
        waiting = sorted(entries.get(platform, ()))
        Blocks(_NOBODY, entry_row).encode(entry_prefix(user, inbox), waiting, encoded)
    return [(key1(INBOXES, user), desk.encoded()), *encoded]


def body_row(message_id: int, references: int, body: bytes) -> tuple[bytes, bytes]:
    """A body with its count."""
    return key1(BODY, message_id), number.pack(references) + body


def unread_row(user: int, kind: str, owner: int, count: int, event_id: int) -> tuple[bytes, bytes]:
    """A counter; ``kind`` is u or g, as a conversation's."""
    return _unread_key.pack(UNREAD, user, _KINDS[kind], owner), _unread.pack(count, event_id)


def key_row(key: bytes, message_id: int, event_id: int, at: int) -> tuple[bytes, bytes]:
    """The first send under a key."""
    return SEND_KEY + key, _send_key.pack(message_id, event_id, at)


def high_rows(message_id: int) -> Rows:
    """The highest message id that was ever written."""
    return [(META + b"high:" + name, number.pack(message_id)) for name in (b"bodies", b"timelines")]


# And back.


def stored_bodies(store: KeyValue) -> Iterator[tuple[int, int, bytes]]:
    """message_id, references, body."""
    changed = {
        message_id: count
        for _, value in store.scan(*range_of(REFERENCES))
        for message_id, count in _count.iter_unpack(value)
    }
    for key, value in store.scan(*range_of(BODY)):
        message_id = int.from_bytes(key[1:], "big")
        yield message_id, changed.get(message_id, int.from_bytes(value[:8], "big")), value[8:]


def stored_private_rows(store: KeyValue) -> Iterator[tuple[int, int, int, bool, int, int, int]]:
    """user, message_id, peer, is_incoming, state, delivered_at, read_at."""
    for key, value in store.scan(*range_of(PRIVATE)):
        user = int.from_bytes(key[1:9], "big")
        entries = list(_private.iter_unpack(value))
        marks = store.get_many([key2(MARK, user, entry[0]) for entry in entries])
        for entry, mark in zip(entries, marks, strict=True):
            state, delivered_at, read_at = (0, 0, 0) if mark is None else _mark.unpack(mark)
            yield user, *entry, state, delivered_at, read_at


def stored_group_rows(store: KeyValue) -> Iterator[tuple[int, int, int, int, int]]:
    """group, message_id, from_user, previous, state."""
    for key, value in store.scan(*range_of(TIMELINE)):
        yield int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big"), *_group.unpack(value)


def stored_inboxes(store: KeyValue) -> Iterator[tuple[int, str, int, int, int, int]]:
    """user, platform, number, floor, latest, waiting."""
    for key, value in store.scan(*range_of(INBOXES)):
        user = int.from_bytes(key[1:], "big")
        for place, (platform, inbox) in enumerate(Desk.decoded(user, value).inboxes.items()):
            yield user, platform, place, inbox.floor, inbox.latest, inbox.waiting


def stored_entries(store: KeyValue) -> Iterator[tuple[int, int, int, int]]:
    """user, number of the inbox, useq, message_id: also of entries below the floor, which nobody reads."""
    for key, value in store.scan(*range_of(ENTRY)):
        user, place = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:11], "big")
        for useq, message_id, *_ in entry_row.iter_unpack(value):
            yield user, place, useq, message_id


def stored_unread(store: KeyValue) -> Iterator[tuple[int, str, int, int]]:
    """user, kind, owner, count."""
    for key, value in store.scan(*range_of(UNREAD)):
        _, user, kind, owner = _unread_key.unpack(key)
        yield user, _KIND_NAMES[kind], owner, _unread.unpack(value)[0]


def stored_counters(store: KeyValue) -> Iterator[tuple[int, str, int, int, int]]:
    """user, kind, owner, count, and the event that has touched the count last."""
    for key, value in store.scan(*range_of(UNREAD)):
        _, user, kind, owner = _unread_key.unpack(key)
        count, event_id = _unread.unpack(value)
        yield user, _KIND_NAMES[kind], owner, count, event_id


def stored_keys(store: KeyValue) -> Iterator[tuple[bytes, int, int, int]]:
    """The key of a send; message_id, event_id and time of what was accepted under it."""
    for key, value in store.scan(*range_of(SEND_KEY)):
        yield key[1:], *_send_key.unpack(value)


def stored_desks(store: KeyValue) -> Iterator[tuple[Desk, dict[int, list[Entry]]]]:
    """All inboxes of each user, and the entries that wait, by the number of the inbox."""
    for key, value in store.scan(*range_of(INBOXES)):
        desk = Desk.decoded(int.from_bytes(key[1:], "big"), value)
        waiting: dict[int, list[Entry]] = {}
        for inbox in desk.inboxes.values():
            if inbox.waiting:
                prefix = entry_prefix(desk.user, inbox)
                blocks = store.scan(prefix, (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big"))
                rows = (Entry(*row) for _, block in blocks for row in entry_row.iter_unpack(block))
                waiting[inbox.number] = [entry for entry in rows if entry.useq > inbox.floor]
        yield desk, waiting
