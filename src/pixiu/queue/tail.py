"""The newest committed records in memory, for roles in this process.

Whoever keeps up is served from here, without touching a file; whoever falls behind the bound reads the journal's
segments, in order, until it has caught up.

A burst waits here as the writer had it, in columns: its records are made when they are read. A hundred thousand of them
that only wait would be work for Python's collector, while the writer has enough to do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any

from pixiu.machines.queue_wire.commands import RESERVED_PREFIX
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData, Gone
from pixiu.ports.log import LogRecord
from pixiu.queue.batch import Appends
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import body_of, number_key_and_body
from pixiu.queue.storage.record import MESSAGE_KINDS, Kind, Record, decode_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pixiu.queue.batch import Batch, Run
    from pixiu.queue.engine import Engine
    from pixiu.queue.storage.record import Frame
    from pixiu.queue.storage.segment import Segment

__all__ = ["Tail"]

TAIL_BYTES_MAX = 32 * 2**20
"""Payloads kept in memory."""
_ROW_BYTES = 200


class _Stretch:
    """What one batch has brought: the events from ``first`` to ``last``."""

    __slots__ = ("_records", "columns", "copies", "first", "last", "size")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.size = 0
        self.columns: list[tuple[Iterable[Any], ...]] = []
        """Of each run, the fields of its records."""
        self.copies: list[tuple[Record, str]] = []
        """Of a follower: records of its leader's journal, with their topics."""
        self._records: list[LogRecord] = []

    def records(self) -> list[LogRecord]:
        """Its records: made once, since whoever stops in the middle comes again."""
        columns, self.columns = self.columns, []
        for each in columns:
            self._records.extend(map(tuple.__new__, repeat(LogRecord), zip(*each, strict=False)))
        copies, self.copies = self.copies, []
        for record, topic in copies:
            self._records.extend(records_of(record, topic))
        return self._records


class Tail:
    """Records of Pixiu's own topics, as they are committed."""

    def __init__(self, engine: Engine, *, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._stretches: deque[_Stretch] = deque()
        """Oldest first, without holes."""
        self._size = 0
        self._from = engine.commit_event_id + 1
        """Memory is complete from this event id on."""
        self._names: dict[bytes, str] = {}
        self._reader: Iterator[tuple[Segment, int, Frame]] | None = None
        self._read_through = 0

    def committed(self, batch: Batch) -> None:
        """Take in what a batch has brought."""
        first = self._engine.commit_event_id + 1
        if batch.last_event_id < first:
            return  # nothing but answers, which nobody would come for
        stretch = _Stretch(first, batch.last_event_id)
        for run in batch.runs:
            if run.topic.name.startswith(RESERVED_PREFIX):
                stretch.size += sum(map(len, run.messages)) + _ROW_BYTES * len(run.messages)
                stretch.columns.append(self._columns(run, batch.now_ms))
        self._append(stretch)

    def copied(self, record: Record, count: int) -> None:
        """Take in a record of ``count`` events that this node, as a follower, has copied, and that is committed now."""
        stretch = _Stretch(record.event_id, record.event_id + count - 1)
        if record.kind in MESSAGE_KINDS and record.topic.startswith(RESERVED_PREFIX):
            stretch.size = len(record.payload) + _ROW_BYTES * count
            stretch.copies.append((record, self._name(record.topic)))
        self._append(stretch)

    def _append(self, stretch: _Stretch) -> None:
        if stretch.first != (self._stretches[-1].last + 1 if self._stretches else self._from):
            self._stretches.clear()  # events were committed that were not given here
            self._size, self._from = 0, stretch.first
        self._stretches.append(stretch)
        self._size += stretch.size
        while self._size > self._bytes_max and self._stretches:
            self._let_go()

    def _let_go(self) -> None:
        """Of the oldest ones."""
        gone = self._stretches.popleft()
        self._size -= gone.size
        self._from = gone.last + 1

    def _columns(self, run: Run, now_ms: int) -> tuple[Iterable[Any], ...]:
        """What records are made of, field by field."""
        event_ids = range(run.first_event_id, run.first_event_id + len(run.messages))
        topic, at = repeat(self._name(run.topic.name)), repeat(now_ms)
        if type(run) is Appends:
            return event_ids, run.message_ids, topic, run.bodies, run.keys, at
        return event_ids, repeat(0), topic, map(body_of, run.messages), repeat(b""), at

    def _name(self, name: bytes) -> str:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = name.decode()
        return known

    def read(self, after: int, limit: int) -> tuple[list[LogRecord], int]:
        """Records behind ``after``, about ``limit`` of them, and the event id that they bring the reader to."""
        if self._end <= after < self._engine.commit_event_id:
            # A record that opens an epoch, and all that a follower copies, is committed without a batch.
            self._stretches.clear()
            self._size, self._from = 0, self._engine.commit_event_id + 1
        if after + 1 < self._from:
            return self.read_segments(after, limit)
        self._reader = None
        found: list[LogRecord] = []
        through = after
        while self._stretches and self._stretches[0].last <= after:
            self._let_go()
        for stretch in self._stretches:
            records = stretch.records()
            if stretch.first <= after:
                records = records[bisect_left(records, (after + 1,)) :]
            found += records
            through = stretch.last
            if len(found) >= limit:
                break
        return found, through

    @property
    def _end(self) -> int:
        """The last event that memory covers."""
        return self._stretches[-1].last if self._stretches else self._from - 1

    def read_segments(self, after: int, limit: int) -> tuple[list[LogRecord], int]:
        """As ``read``, from the journal's files. A reader that goes on where it ended does not search again."""
        engine = self._engine
        is_going_on = self._reader is not None and self._read_through == after
        if self._reader is None or not is_going_on:
            if after < engine.journal.first_event_id - 1:
                raise Gone(f"events up to {engine.journal.first_event_id - 1} are no longer in the journal")
            # A reader may stand in the middle of a record of many: begin with that whole record.
            first = engine.journal.frame_of(after + 1).event_id
            self._reader = engine.journal.scan_after(first - 1)
        found: list[LogRecord] = []
        through = after
        committed = engine.commit_event_id
        for _, _, frame in self._reader:
            if frame.last_event_id > committed:
                self._reader = None
                break
            through = frame.last_event_id
            found += self._decoded(frame, after)
            if len(found) >= limit or through + 1 >= self._from:
                break
        else:
            self._reader = None
        self._read_through = through
        if is_going_on and through == after:  # the reader had ended before the newest records were written
            self._reader = None
            return self.read_segments(after, limit)
        return found, through

    def _decoded(self, frame: Frame, after: int) -> list[LogRecord]:
        if RESERVED_PREFIX not in frame.block[:200]:
            return []
        record = decode_block(frame.block)
        if record.kind not in MESSAGE_KINDS or not record.topic.startswith(RESERVED_PREFIX):
            return []
        rows = records_of(record, self._name(record.topic))
        return rows if record.event_id > after else [row for row in rows if row.event_id > after]


def records_of(record: Record, topic: str) -> list[LogRecord]:
    """What a journal record of messages holds, message by message."""
    payload = record.payload[HEAD.size :] if record.kind == Kind.FIRE else record.payload
    messages = split_messages(payload)
    if messages is None:
        raise CorruptData(f"event {record.event_id}: its payload is not messages")
    if record.kind == Kind.APPEND:
        return [
            LogRecord(event_id, message_id, topic, body, key, record.write_ms)
            for event_id, (message_id, key, body) in enumerate(map(number_key_and_body, messages), record.event_id)
        ]
    return [
        LogRecord(event_id, 0, topic, body_of(message), b"", record.write_ms)
        for event_id, message in enumerate(messages, record.event_id)
    ]
