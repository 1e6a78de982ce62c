"""The journal of a simulated process as the judge reads it: records, what is on disk, and what retention removed."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.queue.replication.status import log_state_of
from pixiu.queue.storage.record import Frame, Kind, decode_block
from pixiu.testing.queue.oracle import journal_frames

if TYPE_CHECKING:
    from pixiu.machines.replication import EpochStart, LogState
    from pixiu.queue.engine import Engine
    from pixiu.testing.disk import SimulatedDisk

__all__ = ["JournalView", "Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record: the event_ids it takes up, the epoch of its writer, its content."""

    first_event_id: int
    through: int
    epoch: int
    content: str
    is_message: bool


class JournalView:
    """What is on one disk. ``engine`` is the process that writes it, or None while it is down."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.engine: Engine | None = None
        self._records: list[Record] = []
        self._ends: list[int] = []

    def reread(self, *, before: list[Record] | None = None) -> None:
        """Read the disk again. ``before``: what came before a snapshot; else what retention removed is kept."""
        records = [_record_of(frame) for frame in journal_frames(self._disk)] if self._has_journal() else []
        kept = self._records if before is None else before
        if records:
            kept = [record for record in kept if record.through < records[0].first_event_id]
        elif before is None:
            kept = []
        self._records = kept + records
        self._ends = [record.through for record in self._records]

    def _has_journal(self) -> bool:
        return bool(self._disk.files("queue/journal"))

    @property
    def records(self) -> list[Record]:
        """All of them, also those that retention removed here."""
        engine = self.engine
        if engine is not None:
            tail = self._ends[-1] if self._ends else 0
            if engine.journal.last_event_id < tail:
                self.reread()
            elif engine.journal.last_event_id > tail:
                for _, _, frame in engine.journal.scan_after(tail):
                    self._records.append(_record_of(frame))
                    self._ends.append(self._records[-1].through)
        return self._records

    @property
    def tail_event_id(self) -> int:
        """The last event_id, 0 when empty."""
        if self.engine is not None:
            return self.engine.journal.last_event_id
        return self._ends[-1] if self._ends else 0

    @property
    def durable_event_id(self) -> int:
        """The last flushed event_id."""
        return self.tail_event_id if self.engine is None else log_state_of(self.engine).durable_event_id

    @property
    def has_unflushed(self) -> bool:
        """Whether a flush would change anything."""
        return self.durable_event_id < self.tail_event_id

    def epochs(self) -> tuple[EpochStart, ...]:
        """The history of epochs, as the process has it; without those that have no record."""
        starts = self.state().epochs
        ends = [*(start.first_event_id for start in starts[1:]), self.tail_event_id + 1]
        return tuple(start for start, end in zip(starts, ends, strict=True) if start.first_event_id < end)

    def state(self) -> LogState:
        """The event that the machine receives."""
        assert self.engine is not None
        return log_state_of(self.engine)

    def after(self, event_id: int, *, limit: int, through: int) -> tuple[Record, ...]:
        """Up to ``limit`` records after ``event_id``, none that ends after ``through``."""
        records = self.records
        start = bisect_right(self._ends, event_id)
        return tuple(records[start : min(start + limit, bisect_right(self._ends, through))])


def _record_of(frame: Frame) -> Record:
    record = decode_block(frame.block)
    content = f"{record.kind} {record.payload!r}"
    is_message = record.kind in (Kind.APPEND, Kind.PUBLISH)
    if not is_message:
        content = f"{record.event_id} {content}"
    return Record(record.event_id, record.event_id + frame.count - 1, frame.epoch, content, is_message)
