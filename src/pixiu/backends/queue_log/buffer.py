"""What a process has of a log that is elsewhere: the newest stretch of it, and of some topics a little more.

It follows, so it knows the log through ``reached`` and nothing behind that. Bounds: ``BUFFER_BYTES_MAX`` of records;
what was read gives way, and when nothing was, the log is asked to wait (``is_full``). Of each topic that is read on its
own ``TOPIC_COUNT_MAX`` records stay beside it; who reads more slowly than that fetches a page.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pixiu.model.errors import RemoteProtocolError
from pixiu.ports.log import NOTIFY, SCHEDULE, TASKS, LogRecord, Scheduled
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import body_of
from pixiu.queue.storage.record import MESSAGE_KINDS, Kind, Record, decode_block, read_frames
from pixiu.queue.tail import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogBuffer", "decoded"]

BUFFER_BYTES_MAX = 32 * 2**20
TOPIC_COUNT_MAX = 10_000
STRETCHES = 64
"""Memory gives way by about this part of it at a time."""
_ROW_BYTES = 200
_RESERVED = b"pixiu."
_TOPICS = (NOTIFY, TASKS, SCHEDULE)


def decoded(frames: bytes, after: int) -> Iterator[tuple[int, Record, list[LogRecord]]]:
    """Journal frames: the last event id of each, what it is, and the records of Pixiu's topics behind ``after``.

    Raises ``RemoteProtocolError`` for bytes that are no journal.
    """
    try:
        for _, frame in read_frames(frames):
            record = decode_block(frame.block)
            rows: list[LogRecord] = []
            if record.kind in MESSAGE_KINDS and record.topic.startswith(_RESERVED):
                rows = records_of(record, record.topic.decode())
                if record.event_id <= after:
                    rows = [row for row in rows if row.event_id > after]
            yield frame.last_event_id, record, rows
    except (ValueError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the log has sent what is no record: {error}") from None


class _Kept:
    """The newest records of one topic: all behind ``since``."""

    __slots__ = ("records", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.records: deque[LogRecord] = deque()

    def add(self, record: LogRecord) -> None:
        self.records.append(record)
        if len(self.records) > TOPIC_COUNT_MAX:
            self.since = self.records.popleft().event_id

    def after(self, after: int, limit: int) -> list[LogRecord]:
        """Who asks for what is behind an event has what is before it."""
        records = self.records
        while records and records[0].event_id <= after:
            self.since = records.popleft().event_id
        return [record for record, _ in zip(records, range(limit), strict=False)]


class LogBuffer:
    """Takes frames, gives records."""

    def __init__(self, *, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._stretch_bytes = bytes_max // STRETCHES
        self.reached = 0
        """Everything through here has come."""
        self._from = 1
        """Memory is complete from this event id on."""
        self._stretches: deque[tuple[int, list[LogRecord], int]] = deque()
        """(last event id, records, size), oldest first, without holes."""
        self._size = 0
        self._read_after = 0
        self._kept: dict[str, _Kept] = {topic: _Kept(0) for topic in _TOPICS}
        self.scheduled: dict[int, Scheduled] = {}
        """What waits for its time, as far as it is known."""

    def begin(self, after: int) -> None:
        """Start, or start again, behind an event."""
        self.reached = self._read_after = after
        self._from = after + 1
        self._stretches.clear()
        self._size = 0
        self._kept = {topic: _Kept(after) for topic in _TOPICS}

    @property
    def is_full(self) -> bool:
        """Is there more than the reader has got round to?"""
        return self._size > self._bytes_max

    def take(self, frames: bytes) -> bool:
        """More of the log. True if it is any."""
        records: list[LogRecord] = []
        size = 0
        before = self.reached
        for last, record, rows in decoded(frames, before):
            if last <= self.reached:
                continue
            if record.event_id > self.reached + 1:
                raise RemoteProtocolError(f"the log goes on with event {record.event_id} behind {self.reached}")
            self._note(record, rows)
            records += rows
            size += sum(len(row.payload) + _ROW_BYTES for row in rows)
            self.reached = last
            if size >= self._stretch_bytes:
                self._add(records, size)
                records, size = [], 0
        if self.reached == before:
            return False
        self._add(records, size)
        self._make_room()
        return True

    def _add(self, records: list[LogRecord], size: int) -> None:
        size += _ROW_BYTES
        self._stretches.append((self.reached, records, size))
        self._size += size

    def _note(self, record: Record, rows: list[LogRecord]) -> None:
        if record.kind in (Kind.FIRE, Kind.CANCEL):
            self.scheduled.pop(HEAD.unpack_from(record.payload)[1], None)
        elif record.kind == Kind.DELAY and record.topic.startswith(_RESERVED):
            due, event_id = HEAD.unpack_from(record.payload)
            topic = record.topic.decode()
            self.scheduled[event_id] = Scheduled(event_id, due, topic, body_of(record.payload[HEAD.size :]))
        kept = self._kept.get(rows[0].topic) if rows else None
        if kept is not None:
            for row in rows:
                kept.add(row)

    def _make_room(self) -> None:
        stretches = self._stretches
        while self._size > self._bytes_max and stretches and stretches[0][0] <= self._read_after:
            last, _, size = stretches.popleft()
            self._size -= size
            self._from = last + 1

    def has(self, after: int) -> bool:
        """Is everything behind this event, as far as it has come, in memory?"""
        return after + 1 >= self._from

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Records behind ``after``, about ``limit`` of them."""
        self._read_after = after
        self._make_room()
        found: list[LogRecord] = []
        for last, records, _ in self._stretches:
            if last <= after:
                continue
            if records and records[0].event_id <= after:
                records = [record for record in records if record.event_id > after]
            found += records
            if len(found) >= limit:
                break
        return found

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord] | None:
        """Of one topic behind ``after``; None if memory does not reach back that far."""
        kept = self._kept.get(topic)
        if kept is None or after < kept.since:
            return None
        return kept.after(after, limit)

    def topic_since(self, topic: str) -> int | None:
        """Behind which event memory has all of a topic."""
        kept = self._kept.get(topic)
        return None if kept is None else kept.since
