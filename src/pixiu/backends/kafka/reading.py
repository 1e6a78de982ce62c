"""Reading the log: from memory, or from Kafka for whoever is behind.

Reading blocks, like reading a file, and like that it is bounded: a Kafka that does not answer makes ``Unavailable``,
never a hole. What was committed a moment ago may not be readable in Kafka yet; every reading knows the event that it
has to reach, and memory begins right behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.backends.kafka.driver import unavailable
from pixiu.backends.kafka.memory import Anchors, Recent, RecentTopic
from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.records import LOG, VIEW_OF
from pixiu.model.errors import CorruptData, Gone, NotFound, Unavailable
from pixiu.ports.log import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.metrics import KafkaCounters
    from pixiu.ports.log import LogRecord

__all__ = ["FOLLOW_MS", "PATIENT_MS", "SCAN_MS", "Beginning", "LogReading", "searched"]

FOLLOW_MS = 100.0
"""One reading by who follows, on the loop: then it is asked again later."""
TOPIC_MS = 1_000.0
"""One reading of a single topic, or one step of a search, on the loop: rare, and often with a new connection."""
SCAN_MS = 5_000.0
"""One reading by an audit on the loop."""
PATIENT_MS = 30_000.0
"""One reading by a command, or in a thread."""
PRELOAD_MAX = 10_000
"""Unfinished tasks that a start reads into memory at once; with more, they are read as they are performed."""


class Beginning(NamedTuple):
    """What a log's owner reads back before it follows the log on a loop."""

    committed: int
    topics: dict[str, RecentTopic]
    anchor: tuple[int, int] | None
    """The first event that the stores lack, and an offset at or before it."""


class _Sequence:
    """Reads on where it ended, without a search."""

    def __init__(self, reader: PartitionReader) -> None:
        self.reader = reader
        self.reached = -1
        """Everything through this event was given."""
        self.offset = 0
        """Where it was put last."""


class LogReading:
    """All readings of one log."""

    def __init__(self, address: KafkaAddress, options: dict[str, str], counters: KafkaCounters) -> None:
        self._address = address
        self._options = options
        self._counters = counters
        self.recent = Recent()
        self.anchors = Anchors()
        self.committed = 0
        self._topics: dict[str, RecentTopic] = {}
        self._behind: dict[str, _Sequence] = {}
        self.wait_ms = PATIENT_MS
        """Until the log is followed on a loop."""

    # Beginning.

    def prepare(self, committed: int, *, applied: int, finished: int) -> Beginning:
        """Read what an owner needs. The log ends with ``committed``; tasks are finished through ``finished``.

        Blocks, may run in a thread, and changes nothing here.
        """
        topics = {}
        for topic in VIEW_OF:
            after = min(finished, committed)
            records = self._preload(topic, after, committed)
            topics[topic] = RecentTopic(committed) if records is None else RecentTopic(after, records)
        anchor = None
        if applied < committed:
            reader = PartitionReader(self._address, self._options, LOG)
            try:
                anchor = applied + 1, searched(self._address, reader, applied, PATIENT_MS, is_log=True)
            finally:
                reader.close()
        return Beginning(committed, topics, anchor)

    def begin(self, beginning: Beginning, more: Sequence[tuple[int, Sequence[LogRecord]]] | None = None) -> None:
        """Follow the log from here. ``more`` continues what memory has up to this event; without it memory is empty."""
        if more is None:
            self.recent.begin(beginning.committed)
        for last, records in more or ():
            self.recent.add(last, records)
        if beginning.anchor is not None:
            self.anchors.add(*beginning.anchor)
        self._topics, self.committed, self.wait_ms = beginning.topics, beginning.committed, FOLLOW_MS

    def stand_by(self, after: int) -> None:
        """Follow behind this event what another node writes; ``add`` brings it."""
        self.recent.begin(after)
        self.committed, self.wait_ms = after, FOLLOW_MS

    def _preload(self, topic: str, after: int, committed: int) -> list[LogRecord] | None:
        """What is unfinished of a topic; None if it is too much."""
        if after >= committed:
            return []
        reader = PartitionReader(self._address, self._options, VIEW_OF[topic])
        try:
            reader.seek(searched(self._address, reader, after, PATIENT_MS, is_log=False))
            records: list[LogRecord] = []
            while len(records) <= PRELOAD_MAX:
                chunk = reader.read(PRELOAD_MAX, PATIENT_MS)
                for _, found in chunk.found:
                    if after < found.record.event_id <= committed and found.record.topic == topic:
                        records.append(found.record)
                if chunk.is_end:
                    return records
            return None
        finally:
            reader.close()

    # Following.

    def add(self, event_id: int, records: Sequence[LogRecord]) -> None:
        """A batch was committed."""
        self.recent.add(event_id, records)
        self.committed = event_id
        for record in records:
            if record.topic != MAIN:
                topic = self._topics.get(record.topic)
                if topic is not None:
                    topic.add(record)

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Committed records behind ``after``; none only when there is none."""
        while after < self.committed:
            if after + 1 >= self.recent.first:
                return self.recent.read(after, limit)
            records, after = self._read_behind(after, min(self.recent.first - 1, self.committed), limit)
            if records:
                return records
        return []

    def _read_behind(self, after: int, through: int, limit: int) -> tuple[list[LogRecord], int]:
        """Records from Kafka behind ``after``, not beyond ``through``, and the event that they bring the reader to."""
        sequence = self._behind.get(LOG)
        if sequence is None or sequence.reached != after:
            sequence = self._position(LOG, after, self.wait_ms)
        records, reached, is_end, is_beyond = _read(sequence.reader, after, through, limit, self.wait_ms)
        sequence.reached = -1
        if is_end and reached == after:
            raise self._not_yet(reached, through)
        if not is_beyond:  # else the reader has passed what memory has now, and may forget
            sequence.reached = reached
        self._counters.read_back += len(records)
        return records, reached

    def _not_yet(self, reached: int, through: int) -> Exception:
        return unavailable(self._address, f"its log reads through event {reached}, and {through} was committed")

    def _position(self, topic: str, after: int, wait_ms: float) -> _Sequence:
        """Stand before the first record behind an event."""
        sequence = self._behind.get(topic)
        if sequence is None:
            sequence = self._behind[topic] = _Sequence(PartitionReader(self._address, self._options, topic))
        sequence.reached = -1
        reader = sequence.reader
        offset = self.anchors.offset_before(after + 1) if topic == LOG else None
        if offset is None:
            offset = searched(self._address, reader, after, max(wait_ms, TOPIC_MS), is_log=topic == LOG)
        sequence.offset = offset
        reader.seek(offset)
        sequence.reached = after
        return sequence

    # One topic.

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first."""
        if topic not in VIEW_OF:
            raise NotFound(f"there is no topic {topic}")
        recent = self._topics.get(topic)
        if recent is not None and after >= recent.after:
            return recent.read(after, limit)
        found = self._topic_behind(topic, after, limit, 0 if recent is None else recent.forgotten)
        if recent is not None and len(found) < limit:
            found += recent.read(max(after, recent.after), limit - len(found))
        return found

    def _topic_behind(self, topic: str, after: int, limit: int, needed: int) -> list[LogRecord]:
        """From Kafka, up to where memory begins; not before ``needed`` was seen, if the end comes first."""
        recent = self._topics.get(topic)
        through = self.committed if recent is None else recent.after
        view = VIEW_OF[topic]
        sequence = self._behind.get(view)
        if sequence is None or sequence.reached != after:
            sequence = self._position(view, after, self.wait_ms)
        sequence.reached = -1
        records: list[LogRecord] = []
        while len(records) < limit:
            chunk = sequence.reader.read(limit - len(records), max(self.wait_ms, TOPIC_MS))
            for _, found in chunk.found:
                record = found.record
                if record.topic == topic and after < record.event_id <= through:
                    records.append(record)
            last = chunk.found[-1][1].record.event_id if chunk.found else 0
            if last >= through:
                break
            if chunk.is_end:
                if needed > max(after, last, records[-1].event_id if records else 0):
                    raise self._not_yet(last, needed)
                break
        else:
            sequence.reached = records[-1].event_id
        self._counters.read_back += len(records)
        return records

    # Everything.

    def first_event_id(self) -> int:
        """The oldest event that Kafka still has; behind the last if it has none."""
        reader = PartitionReader(self._address, self._options, LOG)
        try:
            wait_ms = max(self.wait_ms, SCAN_MS)
            low, high = reader.ends(wait_ms)
            first = reader.first_at(low, wait_ms) if low < high else None
            return self.committed + 1 if first is None else first[1].record.event_id
        finally:
            reader.close()

    def last_event_id(self) -> int:
        """The newest event that is there."""
        reader = PartitionReader(self._address, self._options, LOG)
        try:
            newest = reader.last(self.wait_ms)
            return 0 if newest is None else newest[1].record.event_id
        finally:
            reader.close()

    def scan_after(self, after: int, through: int, batch: int, wait_ms: float) -> Iterator[list[LogRecord]]:
        """Every record behind an event, in batches, beside whoever follows."""
        reader = PartitionReader(self._address, self._options, LOG)
        try:
            if after < through:
                reader.seek(searched(self._address, reader, after, wait_ms, is_log=True))
            while after < through:
                records, reached, is_end, _ = _read(reader, after, through, batch, wait_ms)
                if is_end and reached == after:
                    raise CorruptData(f"{self._address.topic(LOG)} ends with event {after}, before event {through}")
                after = reached
                yield records
        finally:
            reader.close()

    def find(self, message_id: int, wait_ms: float) -> LogRecord | None:
        """The record with this number; None if there is none."""
        reader = PartitionReader(self._address, self._options, LOG)
        try:
            offset = reader.search(lambda found: found.number < message_id, wait_ms)
            found = reader.first_at(offset, wait_ms) if offset < reader.ends(wait_ms)[1] else None
            record = None if found is None else found[1].record
            return record if record is not None and record.message_id == message_id else None
        finally:
            reader.close()

    def close(self) -> None:
        """Let go of all readers."""
        for sequence in self._behind.values():
            sequence.reader.close()
        self._behind.clear()


def searched(address: KafkaAddress, reader: PartitionReader, after: int, wait_ms: float, *, is_log: bool) -> int:
    """The offset before the first record behind an event. Raises ``Gone`` if the log begins later."""
    low, high = reader.ends(wait_ms)
    if is_log and low < high:
        first = reader.first_at(low, wait_ms)
        if first is not None and after + 1 < first[1].record.event_id:
            raise Gone(
                f"events up to {first[1].record.event_id - 1} are no longer in {address.topic(LOG)}: Kafka has removed "
                "them. Its retention must have no limit (pixiu doctor)"
            )
    if after <= 0:
        return low
    return reader.search(lambda found: found.record.event_id <= after, wait_ms)


def _read(
    reader: PartitionReader, after: int, through: int, limit: int, wait_ms: float
) -> tuple[list[LogRecord], int, bool, bool]:
    """Visible records behind ``after`` and not beyond ``through``, and the event reached.

    Also whether Kafka has no more, and whether the reader has gone beyond ``through``.
    """
    records: list[LogRecord] = []
    reached, is_end, is_beyond = after, False, False
    while reached < through and len(records) < limit and not is_end:
        try:
            chunk = reader.read(limit, wait_ms)
        except Unavailable:
            if reached == after:  # nothing was taken from the reader: it goes on here
                raise
            break
        is_end = chunk.is_end
        for _, found in chunk.found:
            event_id = found.record.event_id
            if reached < event_id <= through:
                reached = event_id
                if found.is_visible:
                    records.append(found.record)
            is_beyond = is_beyond or event_id > through
    return records, reached, is_end, is_beyond
