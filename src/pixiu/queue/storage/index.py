"""The sidecar of a journal segment: one fixed-width entry per event id.

It answers "where is event N" with one read, and lets the pipeline decode a segment without a loop: most jobs need only
these columns. It is derived: a missing, short or stale index is rebuilt from its segment. ::

     0          8          16       20     28      36      44           52      60     61
    | event_id | position | length | time | frame | topic | message_id | key  | kind | 3 unused |
      i64        i64        u32      i64    i64     i64     i64          u64    u8

``position`` and ``length`` are the message's own bytes within the segment (for records that carry no message, the
payload's); ``frame`` is where the record's frame begins; ``topic`` is the topic's create event id, which is unique
over re-creation, or 0; ``key`` is the first 8 bytes of the key's digest, or 0. What is the same for all messages of a
record stands behind what differs, so that a whole record's entries are packed by one C-level ``map``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct

ENTRY_BYTES = 64

_ENTRY = Struct("<qqI44s")
_SHARED = Struct("<qqqqQB3x")
_WHOLE = Struct("<qqIqqqqQB3x")

assert _ENTRY.size == _WHOLE.size == ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the index."""

    event_id: int
    position: int
    length: int
    time_ms: int
    frame: int
    topic: int
    message_id: int
    key: int
    kind: int


def pack_entries(
    first_event_id: int,
    positions: Sequence[int],
    lengths: Sequence[int],
    *,
    time_ms: int,
    frame: int,
    topic: int,
    kind: int,
    message_id: int = 0,
    key: int = 0,
) -> bytes:
    """The entries of one record: consecutive event ids, one per length."""
    shared = _SHARED.pack(time_ms, frame, topic, message_id, key, kind)
    event_ids = range(first_event_id, first_event_id + len(lengths))
    return b"".join(map(_ENTRY.pack, event_ids, positions, lengths, repeat(shared)))


def pack_numbered_entries(
    first_event_id: int,
    positions: Sequence[int],
    lengths: Sequence[int],
    *,
    time_ms: int,
    frame: int,
    topic: int,
    kind: int,
    message_ids: Sequence[int],
    keys: Sequence[int],
) -> bytes:
    """The entries of a record whose messages carry numbers and keys of their own."""
    event_ids = range(first_event_id, first_event_id + len(lengths))
    return b"".join(
        map(
            _WHOLE.pack,
            event_ids, positions, lengths, repeat(time_ms), repeat(frame), repeat(topic), message_ids, keys,
            repeat(kind),
        )
    )  # fmt: skip


def unpack_entry(data: bytes, offset: int = 0) -> Entry:
    """The entry at ``offset``."""
    return Entry(*_WHOLE.unpack_from(data, offset))
