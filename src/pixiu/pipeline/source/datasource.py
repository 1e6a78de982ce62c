"""``format("pixiu")``: the log for Spark, as a batch and as a stream.

::

    spark.dataSource.register(PixiuDataSource)
    spark.read.format("pixiu").option("columns", "header").load("pixiu-data")
    spark.readStream.format("pixiu").option("topics", "pixiu.main").load("pixiu-data")

An offset is ``{"event_id": N}``: everything through N has been read. The source deletes nothing, whatever is committed.
Classes here are pickled by Spark, so they hold plain values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pixiu.model.errors import ConfigError
from pixiu.node.processes.cluster_secrets import queue_key, read_secrets
from pixiu.pipeline.records.schema import DDL
from pixiu.pipeline.source.decode import Wanted
from pixiu.pipeline.source.remote import RemoteLog
from pixiu.pipeline.source.schema import FULL_DDL, HEADER_DDL
from pixiu.pipeline.source.slices import AnyLog, AnySlice, batches_in, log_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

__all__ = ["PixiuDataSource", "SourceOptions"]

OPTIONS = (
    "path", "server", "topics", "columns", "startingEventId", "startingTime", "endingEventId",
    "maxRowsPerTrigger", "rowsPerPartition", "indexFolder", "secretFile",
)  # fmt: skip

PARTITION_ROWS = 1_000_000
"""Rows of one partition, if nobody says otherwise. They flow through in batches, so that many take no more memory, and
Java takes 50 ms for each partition beside its rows."""

COLUMNS = {"header": HEADER_DDL, "full": FULL_DDL, **DDL}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What ``.option(…)`` may say, checked."""

    path: str | None
    server: str | None
    columns: str
    wanted: Wanted
    starting_event_id: int | None
    starting_time_ms: int | None
    ending_event_id: int | None
    rows_per_trigger: int | None
    rows_per_partition: int
    index_folder: str | None
    key: str = ""
    """Shown to a server that wants one: the first line of the option secretFile's file."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read the options; raise ``ConfigError`` for what is unknown or makes no sense."""
        known = {name.lower(): name for name in OPTIONS}
        given = {known.get(name.lower(), name): value for name, value in options.items()}
        unknown = sorted(set(given) - set(OPTIONS))
        if unknown:
            raise ConfigError(f"format pixiu has no option {unknown[0]!r}; it has {', '.join(OPTIONS)}")
        if ("path" in given) == ("server" in given):
            raise ConfigError(
                "format pixiu reads one log: give load() a data directory, or the option server=HOST:PORT"
            )
        columns = given.get("columns", "full")
        if columns not in COLUMNS:
            raise ConfigError(f"option columns is header or full, or a table ({', '.join(DDL)}), not {columns!r}")
        if "startingEventId" in given and "startingTime" in given:
            raise ConfigError("give startingEventId or startingTime, not both")
        topics = [name for name in (part.strip() for part in given.get("topics", "").split(",")) if name]
        starting_time = _number(given, "startingTime", 0)
        wanted = Wanted(columns == "full", frozenset(topics) if topics else None, starting_time or 0)
        if columns in DDL:
            if topics:
                raise ConfigError(f"the table {columns} is made from one topic: leave out the option topics")
            wanted = Wanted.rows_of(columns, starting_time or 0)
        return cls(
            path=given.get("path"),
            server=given.get("server"),
            key=queue_key(read_secrets(Path(given["secretFile"])), "") if "secretFile" in given else "",
            columns=columns,
            wanted=wanted,
            starting_event_id=_number(given, "startingEventId", 1),
            starting_time_ms=starting_time,
            ending_event_id=_number(given, "endingEventId", 0),
            rows_per_trigger=_number(given, "maxRowsPerTrigger", 1),
            rows_per_partition=_number(given, "rowsPerPartition", 1) or PARTITION_ROWS,
            index_folder=given.get("indexFolder"),
        )

    def log(self) -> AnyLog:
        """The log that is to be read."""
        if self.server is not None:
            return RemoteLog(self.server, self.key)
        assert self.path is not None
        return log_of(Path(self.path), Path(self.index_folder) if self.index_folder else None)

    def first_offset(self, log: AnyLog) -> int:
        """Behind which event reading begins."""
        if self.starting_event_id is not None:
            return self.starting_event_id - 1
        if self.starting_time_ms is not None:
            return log.event_before(self.starting_time_ms)
        return log.first_event_id() - 1

    def last_offset(self, log: AnyLog) -> int:
        """How far may be read now."""
        end = log.end().event_id
        return end if self.ending_event_id is None else min(end, self.ending_event_id)


def _number(options: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"option {name} is a whole number from {least} on, not {options[name]!r}")
    return int(text)


class SlicePartition(InputPartition):
    """One partition: some events of one segment, of a server's log, or of Kafka's."""

    def __init__(self, part: AnySlice) -> None:
        super().__init__(part)
        self.part = part


def _read(partition: InputPartition | None, wanted: Wanted) -> Iterator[Any]:
    if not isinstance(partition, SlicePartition):
        return iter(())  # where nothing was planned, Spark asks all the same, with None
    return batches_in(partition.part, wanted)


class PixiuDataSource(DataSource):
    """The log of a Pixiu server."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pixiu"

    def schema(self) -> str:
        """Depends on the option ``columns``."""
        return COLUMNS[SourceOptions.of(self.options).columns]

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return PixiuReader(SourceOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For ``spark.readStream``."""
        return PixiuStreamReader(SourceOptions.of(self.options))


class PixiuReader(DataSourceReader):
    """Everything that is committed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """By segment, and by rows within a long one."""
        log = self._options.log()
        after, through = self._options.first_offset(log), self._options.last_offset(log)
        rows = self._options.rows_per_partition
        return [SlicePartition(part) for part in log.plan(after, through, rows_max=rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one partition."""
        return _read(partition, self._options.wanted)


class PixiuStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows. Admission is by events: ``maxRowsPerTrigger`` of them at most."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: int | None = None
        """With AvailableNow, where this run ends."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        return {"event_id": self._options.first_offset(self._options.log())}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As the option says."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What comes later is for the next run."""
        self._target = self._end()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """How far the next batch goes."""
        end = self._end() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["event_id"] + limit.max_rows)
        return {"event_id": max(end, start["event_id"])}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """For the lag in a query's progress."""
        return {"event_id": self._end()}

    def _end(self) -> int:
        return self._options.last_offset(self._options.log())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The slices between two offsets."""
        log, rows = self._options.log(), self._options.rows_per_partition
        return [SlicePartition(part) for part in log.plan(start["event_id"], end["event_id"], rows_max=rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of one partition."""
        return _read(partition, self._options.wanted)
