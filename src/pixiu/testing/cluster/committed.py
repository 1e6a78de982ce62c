"""Everything that the replicas of a simulated shard have ever committed, also what retention has removed since.

Each replica's journal is compared with it, record by record, as it commits. Stores are compared with what follows from
it, and it tells which tasks the log had noted as finished.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from pixiu.ports.log import NOTIFY, TASKS, TASKS_READER
from pixiu.queue.positions import unpack_rows
from pixiu.queue.storage.record import MESSAGE_KINDS, Kind, decode_block
from pixiu.queue.tail import records_of

if TYPE_CHECKING:
    from pixiu.ports.log import LogRecord
    from pixiu.queue.engine import Engine
    from pixiu.queue.storage.record import Frame

__all__ = ["CommittedLog"]

OWN_TOPICS = b"pixiu."


class CommittedLog:
    """The one log that all replicas must agree on. As far as it is needed, a ``ports.log.Log`` for rebuilds."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        """Of Pixiu's own topics."""
        self.committed = 0
        """The last event."""
        self.violation = ""
        self.tasks_noted: list[tuple[int, int]] = []
        """(event, through which event tasks are finished) of each note in the log."""
        self._event_ids: list[int] = []
        self._frames: dict[int, tuple[int, bytes]] = {}
        """The epoch and the block of each record, by its first event."""

    def compare(self, engine: Engine, after: int) -> int:
        """Take what a replica has committed behind ``after``. Returns through which event it was compared."""
        through = engine.commit_event_id
        after = max(after, engine.journal.first_event_id - 1)  # what came before arrived in a snapshot
        if after > self.committed:
            self.violation = self.violation or f"journals: no replica has shown events up to {after}"
            return through
        for _, _, frame in engine.journal.scan_after(after):
            if frame.last_event_id > through:
                break
            after = frame.last_event_id
            if frame.event_id > self.committed:
                self._add(frame)
            elif self._frames.get(frame.event_id) != (frame.epoch, frame.block) and not self.violation:
                self.violation = f"journals: replicas differ in event {frame.event_id}"
        return after

    def _add(self, frame: Frame) -> None:
        if frame.event_id != self.committed + 1:
            self.violation = self.violation or f"journals: event {frame.event_id} follows {self.committed}"
        self._frames[frame.event_id] = frame.epoch, frame.block
        self.committed = frame.last_event_id
        record = decode_block(frame.block)
        if record.kind in MESSAGE_KINDS and record.topic.startswith(OWN_TOPICS):
            for row in records_of(record, record.topic.decode()):
                self.records.append(row)
                self._event_ids.append(row.event_id)
        elif record.kind == Kind.POSITION and record.topic == TASKS.encode():
            for name, finished in unpack_rows(record.payload):
                if name == TASKS_READER:
                    self.tasks_noted.append((record.event_id, finished))

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Records behind an event."""
        first = bisect_right(self._event_ids, after)
        return self.records[first : first + limit]

    def tasks_finished_at(self, event_id: int) -> int:
        """Through which event tasks were noted as finished, in the log up to an event."""
        return max((finished for noted, finished in self.tasks_noted if noted <= event_id), default=0)

    def notifications(self) -> list[LogRecord]:
        """The tasks that ask for a notification."""
        return [record for record in self.records if record.topic == NOTIFY]
