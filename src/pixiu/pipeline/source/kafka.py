"""The log of a node that keeps it in Kafka, with the columns that the journal has.

A slice is a range of event ids, which the records carry in a header: offsets have holes where transactions end, and a
copy of the topic has other ones. Whoever reads a slice looks for its first offset by halving. Brokers, options and
passwords are read from the node's data directory, so nothing of them travels through Spark.

Spark's own Kafka source is a package that must be of Spark's very release, and none is published for the one that is
used here: so the pipeline reads by the node's own client. Who has that package gets the same columns out of
``format("kafka")`` by ``rows_of_kafka``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pixiu.backends.kafka.address import client_options, parse_address
from pixiu.machines.queue_wire.commands import HEADER_KEY, HEADER_MESSAGE_ID, MESSAGE_HEADER_BYTES
from pixiu.model.errors import CorruptData, Gone
from pixiu.pipeline.records.unfold import Records, unfold
from pixiu.pipeline.source.decode import BATCH_BYTES_MAX, BATCH_ROWS, Wanted
from pixiu.pipeline.source.journal import SLICE_ROWS, End
from pixiu.pipeline.source.schema import FULL, FULL_DDL, HEADER
from pixiu.queue.storage.messages import first_64, key_digest
from pixiu.queue.storage.record import Kind
from pixiu.runtime.log_note import read_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.reader import PartitionReader
    from pixiu.backends.kafka.records import Found

__all__ = ["KafkaLogOf", "KafkaSlice", "decode_kafka", "records_of_kafka", "rows_of_kafka"]

WAIT_MS = 30_000.0
"""One reading of a broker: then it counts as down."""

NUMBERED_BYTES = MESSAGE_HEADER_BYTES + 4 + len(HEADER_MESSAGE_ID) + 4 + 8 + 4 + len(HEADER_KEY) + 4
"""What a numbered message of the queue has before its key; the column ``bytes`` counts as the queue does."""


@dataclass(frozen=True, slots=True)
class KafkaSlice:
    """Some event ids of the log in Kafka: what one partition reads."""

    kafka: str
    """The data directory of the node whose log it is."""
    after: int
    through: int


class KafkaLogOf:
    """The log of a data directory, in Kafka."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def identity(self) -> str:
        """Which log it is. Raises ``CorruptData`` if it is not the one that the node's stores were made from."""
        from pixiu.backends.kafka.topics import Identity, Topics

        address, options, known = _kafka(self._data)
        found = Topics(address, options).identity()
        if found != Identity(*known):
            raise CorruptData(
                f"{address} is another log than the stores of {self._data} were made from (topic id {found.topic_id}, "
                f"not {known[1]}): start the node, and do what it says"
            )
        return " ".join(found)

    def end(self) -> End:
        """How far the owner has committed."""
        self.identity()
        newest = self._asked(lambda reader: reader.last(WAIT_MS))
        return End(0 if newest is None else newest[1].record.event_id, 0)

    def first_event_id(self) -> int:
        """The oldest event that Kafka still has."""

        def first(reader: PartitionReader) -> int:
            low, high = reader.ends(WAIT_MS)
            found = reader.first_at(low, WAIT_MS) if low < high else None
            return 1 if found is None else found[1].record.event_id

        return int(self._asked(first))

    def event_before(self, unix_ms: int) -> int:
        """The last event that was written before a time."""

        def before(reader: PartitionReader) -> int:
            offset = reader.search(lambda found: found.record.at < unix_ms, WAIT_MS)
            found = reader.first_at(offset, WAIT_MS) if offset < reader.ends(WAIT_MS)[1] else None
            return -1 if found is None else found[1].record.event_id - 1

        found = int(self._asked(before))
        return self.end().event_id if found < 0 else found

    def plan(self, after: int, through: int, *, rows_max: int = SLICE_ROWS) -> list[KafkaSlice]:
        """The slices that hold every event behind ``after``, through ``through``."""
        if through <= after:
            return []
        first = self.first_event_id()
        if after + 1 < first:
            raise Gone(
                f"events {after + 1} to {first - 1} are no longer in Kafka: it removed them before they were read. Its "
                "retention must have no limit (pixiu doctor)"
            )
        starts = range(after, through, rows_max)
        return [KafkaSlice(str(self._data), start, min(start + rows_max, through)) for start in starts]

    def _asked(self, ask: Callable[[PartitionReader], Any]) -> Any:
        reader = _reader(self._data)
        try:
            return ask(reader)
        finally:
            reader.close()


def _kafka(data: Path) -> tuple[KafkaAddress, dict[str, str], tuple[str, str]]:
    """Address, client's options, cluster id and topic id."""
    noted = read_note(data)
    if noted is None:
        raise CorruptData(f"the log of {data} is not in Kafka any more")
    return parse_address(noted["log"]), client_options(noted["client"]), (noted["cluster_id"], noted["topic_id"])


def _reader(data: Path) -> PartitionReader:
    from pixiu.backends.kafka.reader import PartitionReader
    from pixiu.backends.kafka.records import LOG

    address, options, _ = _kafka(data)
    return PartitionReader(address, options, LOG)


def _entries(part: KafkaSlice) -> Iterator[list[Found]]:
    """The records of a slice that readers see, some thousands at a time. Ids rise; one may be missing."""
    reader = _reader(Path(part.kafka))
    try:
        reader.seek(reader.search(lambda found: found.record.event_id <= part.after, WAIT_MS))
        pending: list[Found] = []
        size, reached = 0, part.after
        while reached < part.through:
            chunk = reader.read(BATCH_ROWS, WAIT_MS)
            for _, found in chunk.found:
                record = found.record
                if record.event_id <= reached:
                    continue  # before the slice, or written once more by an owner that was not sure
                reached = record.event_id
                if reached <= part.through and found.is_visible:
                    pending.append(found)
                    size += len(record.payload)
            if chunk.is_end and reached < part.through:
                raise CorruptData(f"the log in Kafka ends with event {reached}, before event {part.through}")
            if len(pending) >= BATCH_ROWS or size >= BATCH_BYTES_MAX:
                yield pending
                pending, size = [], 0
        if pending:
            yield pending
    finally:
        reader.close()


def _batch(found: list[Found]) -> Any:
    """Records as a batch with all columns."""
    records = [each.record for each in found]
    numbered = [record.message_id > 0 for record in records]
    kinds = [
        int(Kind.APPEND if is_numbered else Kind.FIRE if each.schedule_id else Kind.PUBLISH)
        for each, is_numbered in zip(found, numbered, strict=True)
    ]
    sizes = [
        (NUMBERED_BYTES + len(record.key) if is_numbered else MESSAGE_HEADER_BYTES) + len(record.payload)
        for record, is_numbered in zip(records, numbered, strict=True)
    ]
    hashes = np.array([first_64(key_digest(record.key)) if record.key else 0 for record in records], dtype=np.uint64)
    times = np.array([record.at for record in records], dtype=np.int64)
    columns = [
        pa.array([record.event_id for record in records], pa.int64()),
        pa.array([record.message_id for record in records], pa.int64()),
        pa.array([record.topic for record in records], pa.string()),
        pa.array(kinds, pa.int32()),
        pa.array(times * 1000).view(HEADER.field("written_at").type),
        pa.array(hashes.view(np.int64)),
        pa.array(sizes, pa.int32()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.payload for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FULL)


def decode_kafka(part: KafkaSlice, wanted: Wanted) -> Iterator[Any]:
    """The messages of a slice in the order of their event ids."""
    for found in _entries(part):
        batch = _chosen(_batch(found), wanted)
        if not batch.num_rows:
            continue
        if wanted.table is not None:
            yield unfold(Records.of_rows(batch), wanted.table)
        else:
            yield batch if wanted.is_full else batch.select(HEADER.names)


def records_of_kafka(part: KafkaSlice) -> Iterator[Records]:
    """The records of a slice that tables are made of."""
    for found in _entries(part):
        batch = _chosen(_batch(found), Wanted.rows_of("messages"))
        if batch.num_rows:
            yield Records.of_rows(batch)


def _chosen(batch: Any, wanted: Wanted) -> Any:
    """The rows that are wanted, by the rules that the journal's reader has."""
    keep = np.ones(batch.num_rows, dtype=bool)
    if wanted.topics is not None:
        keep &= pc.is_in(batch.column("topic"), pa.array(sorted(wanted.topics))).to_numpy(zero_copy_only=False)
    if wanted.written_from_ms:
        keep &= batch.column("written_at").cast(pa.int64()).to_numpy() >= wanted.written_from_ms * 1000
    if wanted.table in ("deliveries", "traces"):
        keep &= batch.column("message_id").to_numpy() == 0
    return batch if keep.all() else batch.filter(pa.array(keep))


def rows_of_kafka(frame: DataFrame) -> DataFrame:
    """What Spark's own source gives of ``main`` (``format("kafka")``, with the option includeHeaders), as our columns.

    Ask it for ``kafka.isolation.level`` read_committed. What is no record of the log is left out.
    """
    columns = frame.selectExpr("headers", "value", "unix_millis(timestamp) AS at")
    return columns.mapInArrow(_rows, FULL_DDL)


def _rows(batches: Iterator[Any]) -> Iterator[Any]:
    from pixiu.backends.kafka.records import found_of

    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in ("headers", "value", "at")), strict=True)
        found = (
            found_of({each["key"]: each["value"] for each in headers or ()}, value or b"", at)
            for headers, value, at in rows
        )
        yield _batch([each for each in found if each is not None and each.is_visible])
