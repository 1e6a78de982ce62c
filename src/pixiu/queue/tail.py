"""The newest committed records in memory, for roles in this process.

Whoever keeps up is served from here, without touching a file; whoever falls behind the bound reads the journal's
segments, in order, until it has caught up.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import RESERVED_PREFIX
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData, Gone
from pixiu.ports.log import LogRecord
from pixiu.queue.batch import Appends
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import body_of, number_key_and_body
from pixiu.queue.storage.record import MESSAGE_KINDS, Kind, Record, decode_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.queue.batch import Batch, Run
    from pixiu.queue.engine import Engine
    from pixiu.queue.storage.record import Frame
    from pixiu.queue.storage.segment import Segment

__all__ = ["Tail"]

TAIL_BYTES_MAX = 32 * 2**20
"""Payloads kept in memory."""
_ROW_BYTES = 200


class Tail:
    """Records of Pixiu's own topics, as they are committed."""

    def __init__(self, engine: Engine, *, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._stretches: deque[tuple[int, int, list[LogRecord], int]] = deque()
        """(first and last event id that it covers, its records, its size), oldest first, without holes."""
        self._size = 0
        self._from = engine.commit_event_id + 1
        """Memory is complete from this event id on."""
        self._names: dict[bytes, str] = {}
        self._reader: Iterator[tuple[Segment, int, Frame]] | None = None
        self._read_through = 0

    def committed(self, batch: Batch) -> None:
        """Take in what a batch has brought."""
        records: list[LogRecord] = []
        size = 0
        for run in batch.runs:
            if run.topic.name.startswith(RESERVED_PREFIX):
                size += sum(map(len, run.messages)) + _ROW_BYTES * len(run.messages)
                records += self._records(run, batch.now_ms)
        first = self._engine.commit_event_id + 1
        if first != (self._stretches[-1][1] + 1 if self._stretches else self._from):
            self._stretches.clear()  # some were committed while this node followed another
            self._size, self._from = 0, first
        self._stretches.append((first, batch.last_event_id, records, size))
        self._size += size
        while self._size > self._bytes_max and self._stretches:
            _, last, _, gone = self._stretches.popleft()
            self._size -= gone
            self._from = last + 1

    def _records(self, run: Run, now_ms: int) -> Iterator[LogRecord]:
        topic = self._name(run.topic.name)
        event_ids = range(run.first_event_id, run.first_event_id + len(run.messages))
        if type(run) is Appends:
            rows = zip(event_ids, run.message_ids, repeat(topic), run.bodies, run.keys, repeat(now_ms))
        else:
            bodies = map(body_of, run.messages)
            rows = zip(event_ids, repeat(0), repeat(topic), bodies, repeat(b""), repeat(now_ms))
        return map(tuple.__new__, repeat(LogRecord), rows)

    def _name(self, name: bytes) -> str:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = name.decode()
        return known

    def read(self, after: int, limit: int) -> tuple[list[LogRecord], int]:
        """Records behind ``after``, about ``limit`` of them, and the event id that they bring the reader to."""
        if after + 1 < self._from:
            return self.read_segments(after, limit)
        self._reader = None
        found: list[LogRecord] = []
        through = after
        while self._stretches and self._stretches[0][1] <= after:
            self._size -= self._stretches[0][3]
            self._from = self._stretches.popleft()[1] + 1
        for first, last, records, _ in self._stretches:
            if first <= after:
                records = [record for record in records if record.event_id > after]
            found += records
            through = last
            if len(found) >= limit:
                break
        return found, through

    def read_segments(self, after: int, limit: int) -> tuple[list[LogRecord], int]:
        """As ``read``, from the journal's files. A reader that goes on where it ended does not search again."""
        engine = self._engine
        if self._reader is None or self._read_through != after:
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
