"""Journal frames made of Kafka's entries, as whoever follows the log reads them: every event id once, without a hole.

Messages that follow each other and came at one time are one record, as a group commit is. What the log's readers do not
see in Kafka becomes the journal's word for it (``DELAY``, ``CANCEL``, ``POSITION``); an id that says nothing (a new
owner, a batch that was given up) is taken up by an ``EPOCH`` record, as a new leader of the queue leaves ids out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.backends.kafka.records import DROP, PLACE, RECORD, SET, Entry
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import numbered, plain
from pixiu.queue.storage.record import Kind, encode_block, encode_frame
from pixiu.queue.storage.state import epoch_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pixiu.backends.kafka.records import Found

__all__ = ["PIECE_BYTES", "Piece", "entry_of", "gap_frame", "pieces_of"]

PIECE_BYTES = 256 * 1024
"""About so much goes to a reader at once; a record is never cut."""
RECORD_COUNT_MAX = 1_000
"""Messages in one record."""
_CLAIMED = epoch_payload(0, "")


class Piece(NamedTuple):
    """Whole frames of a stretch of the log."""

    first: int
    last: int
    frames: bytes


def entry_of(found: Found) -> Entry:
    """An entry that was read, as the one that was written."""
    record = found.record
    return Entry(
        record.event_id, found.number, record.message_id != 0, record.topic, record.payload, record.key, record.at,
        found.what, found.schedule_id, found.due,
    )  # fmt: skip


def pieces_of(after: int, entries: Iterable[Entry]) -> Iterator[Piece]:
    """All events behind ``after``, through the last of these entries, which rise."""
    frames: list[bytes] = []
    first, size, reached = after + 1, 0, after
    for frame, last in _frames(after, entries):
        frames.append(frame)
        size += len(frame)
        reached = last
        if size >= PIECE_BYTES:
            yield Piece(first, reached, b"".join(frames))
            frames, first, size = [], reached + 1, 0
    if frames:
        yield Piece(first, reached, b"".join(frames))


def gap_frame(first: int, last: int, at: int) -> bytes:
    """Event ids that say nothing."""
    return _frame(Kind.EPOCH, first, b"", _CLAIMED, at, last - first + 1)


def _frames(after: int, entries: Iterable[Entry]) -> Iterator[tuple[bytes, int]]:
    """Each frame, and the last event id of it."""
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.event_id <= after:
            continue
        if run and not (_is_next(run[-1], entry) and len(run) < RECORD_COUNT_MAX and size < PIECE_BYTES):
            yield _run_frame(run), after
            run, size = [], 0
        if entry.event_id > after + 1:
            yield gap_frame(after + 1, entry.event_id - 1, entry.at), entry.event_id - 1
        after = entry.event_id
        if _is_message(entry):
            run.append(entry)
            size += len(entry.payload)
        else:
            yield _change_frame(entry), after
    if run:
        yield _run_frame(run), after


def _is_message(entry: Entry) -> bool:
    return entry.what == RECORD and not entry.schedule_id


def _is_next(last: Entry, entry: Entry) -> bool:
    """Do both belong into one record?"""
    return (
        _is_message(entry)
        and entry.event_id == last.event_id + 1
        and entry.topic == last.topic
        and entry.is_numbered == last.is_numbered
        and entry.at == last.at
    )


def _run_frame(run: list[Entry]) -> bytes:
    first = run[0]
    if first.is_numbered:
        payload = b"".join([numbered(0, each.payload, each.number, each.key) for each in run])
        return _frame(Kind.APPEND, first.event_id, first.topic.encode(), payload, first.at, len(run))
    payload = b"".join([plain(each.payload) for each in run])
    return _frame(Kind.PUBLISH, first.event_id, first.topic.encode(), payload, first.at, len(run))


def _change_frame(entry: Entry) -> bytes:
    head = HEAD.pack(entry.due or entry.at, entry.schedule_id)
    topic = entry.topic.encode()
    if entry.what == RECORD:
        return _frame(Kind.FIRE, entry.event_id, topic, head + plain(entry.payload), entry.at)
    if entry.what == SET:
        return _frame(Kind.DELAY, entry.event_id, topic, head + plain(entry.payload), entry.at)
    if entry.what == DROP:
        return _frame(Kind.CANCEL, entry.event_id, topic, head, entry.at)
    if entry.what == PLACE:
        return _frame(Kind.POSITION, entry.event_id, topic, entry.payload, entry.at)
    return gap_frame(entry.event_id, entry.event_id, entry.at)


def _frame(kind: Kind, event_id: int, topic: bytes, payload: bytes, at: int, count: int = 1) -> bytes:
    block = encode_block(kind, event_id, topic, payload, write_ms=at, receive_ms=at)
    return encode_frame(block, epoch=0, count=count, flushed_through=0)
