"""Small files become large ones; what was recalled goes for good; what is too old leaves.

A run rewrites only files that are small, or that hold messages which were recalled since they were written, or days
that nobody wants any more. None of it moves a position: one commit removes the old files and adds the new ones. The
old ones stay on disk for readers that still use them, until ``vacuum``. Marts are partial sums, and are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from pixiu.pipeline.jobs.archive import fold, marks_of
from pixiu.pipeline.jobs.marts import keys_of, rolled_up
from pixiu.pipeline.lake.schema import MART_SCHEMAS, ORDER
from pixiu.pipeline.lake.table import DATA, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.pipeline.lake.table import DataFile, LakeTable

__all__ = ["Compacted", "compact", "empty_frame", "first_ack", "kept_from", "read_table"]

TARGET_BYTES = 128 * 2**20
"""Files are made about this long; from half of it on they are left alone."""

FOLDED = "pixiu.folded"
"""The event through which recalls are folded into messages."""

KEPT_FROM = "pixiu.kept_from"
"""The oldest day that retention left, in days since 1970."""

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to one table."""

    table: str
    files_before: int
    files_after: int
    rewritten: int


def read_table(spark: SparkSession, table: LakeTable, files: list[DataFile] | None = None) -> DataFrame:
    """A table as a DataFrame; with ``files``, these of its files alone."""
    paths = [str(table.folder / file.path) for file in (table.files() if files is None else files)]
    if not paths:
        return empty_frame(spark, table.schema)
    return spark.read.schema(_spark_schema(table.schema)).parquet(*paths)


def empty_frame(spark: SparkSession, schema: Any) -> DataFrame:
    """No rows, with the columns of a table."""
    return spark.createDataFrame([], _spark_schema(schema))


def _spark_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def kept_from(table: LakeTable) -> date | None:
    """The oldest day that retention has left in a table; None if it has never taken any."""
    days = table.position(KEPT_FROM)
    return _EPOCH + timedelta(days=days) if days else None


def first_ack(table: LakeTable, after: int, through: int) -> datetime | None:
    """When the oldest ack behind ``after`` was noted; None if there is none. Asked of DuckDB, as recalls are."""
    uris = [str(table.folder / file.path) for file in table.files() if _may_be_behind(file, after)]
    if not uris:
        return None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        ((ms,),) = connection.execute(
            "SELECT min(epoch_ms(noted_at)) FROM read_parquet(?) "
            "WHERE what = 'acked' AND event_id > ? AND event_id <= ?",
            [uris, after, through],
        ).fetchall()
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def compact(
    open_spark: Callable[[], SparkSession],
    table: LakeTable,
    changes: LakeTable,
    *,
    only_recalls: bool = False,
    oldest: date | None = None,
    target_bytes: int = TARGET_BYTES,
    reached: Callable[[str], object] = lambda point: None,
) -> Compacted:
    """Rewrite what needs it. ``only_recalls`` leaves small files alone; days before ``oldest`` leave the table."""
    table.refresh()
    files = [file for file in table.files() if not file.path.startswith(f"{DATA}/{NOW}")]
    chosen, gone = _choose(files, None if only_recalls else target_bytes // 2, oldest)
    positions: dict[str, int] = {}
    if table.name == "messages":
        changes.refresh()
        chosen |= {file.path: file for file in _with_recalls(table, changes, files) if file.path not in gone}
        positions[FOLDED] = changes.through
    if oldest is not None:
        positions[KEPT_FROM] = max(table.position(KEPT_FROM), (oldest - _EPOCH).days)
    if not chosen:
        if gone or any(table.position(name) < number for name, number in positions.items()):
            table.replace(gone.values(), None, why="nothing to rewrite", positions=positions)
        return Compacted(table.name, len(files), len(files) - len(gone), 0)
    folder = table.new_folder("compacted")
    # Recalls alone: those that are new. Receipts from before are folded in by a compaction.
    marks_after = table.position(FOLDED) if only_recalls else 0
    rows = _rewritten(open_spark(), table, changes, list(chosen.values()), oldest, marks_after)
    order = ORDER.get(table.name) or keys_of(table.schema)
    count = max(1, -(-sum(file.size for file in chosen.values()) // target_bytes))
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *order)
    rows.sortWithinPartitions(*order).select(*table.schema.names).write.parquet(str(table.folder / folder))
    reached("during-compaction")
    table.replace([*chosen.values(), *gone.values()], folder, why="compaction", positions=positions)
    return Compacted(table.name, len(files), len(table.files()), len(chosen))


def _choose(
    files: list[DataFile], small_below: int | None, oldest: date | None
) -> tuple[dict[str, DataFile], dict[str, DataFile]]:
    """The files to rewrite since they are small or partly too old, and those that are too old altogether."""
    gone, chosen = {}, {}
    if oldest is not None:
        gone = {file.path: file for file in files if file.day_max is not None and file.day_max < oldest}
        chosen = {file.path: file for file in files if file.day_min is not None and file.day_min < oldest}
    small = [file for file in files if small_below is not None and file.size < small_below and file.path not in gone]
    if len(small) > 1:
        chosen |= {file.path: file for file in small}
    return {path: file for path, file in chosen.items() if path not in gone}, gone


def _rewritten(
    spark: SparkSession, table: LakeTable, changes: LakeTable, files: list[DataFile], oldest: date | None,
    marks_after: int,
) -> DataFrame:  # fmt: skip
    """The rows of these files as they should be now."""
    rows = read_table(spark, table, files)
    if oldest is not None:
        rows = rows.where(f"day >= DATE '{oldest.isoformat()}'")
    if table.name == "messages":
        return fold(rows, marks_of(_changes(spark, changes, marks_after)))
    return rolled_up(table.schema, rows) if table.name in MART_SCHEMAS or table.name == "audit" else rows


def _changes(spark: SparkSession, changes: LakeTable, after: int) -> DataFrame:
    """The changes behind an event, from the files that have any."""
    files = [file for file in changes.files() if _may_be_behind(file, after)]
    return read_table(spark, changes, files).where(f"event_id > {after}")


def _may_be_behind(file: DataFile, after: int) -> bool:
    return file.event_max is None or file.event_max > after


def _with_recalls(table: LakeTable, changes: LakeTable, files: list[DataFile]) -> list[DataFile]:
    """The files with messages that were recalled behind what is folded in already, and that still say what they said.

    Asked of DuckDB: mostly there are none, and to find that out Spark would need seconds.
    """
    after = table.position(FOLDED)
    marks = [str(changes.folder / file.path) for file in changes.files() if _may_be_behind(file, after)]
    if not marks or not files:
        return []
    with duckdb.connect() as connection:
        recalled = connection.execute(
            "SELECT about FROM read_parquet(?) WHERE what = 'recalled' AND event_id > ?",
            [marks, after],
        ).fetchall()
        ids = [number for (number,) in recalled]
        near = [file for file in files if any(_may_hold(file, number) for number in ids)]
        if not near:
            return []
        paths = {str(table.folder / file.path): file for file in near}
        found = connection.execute(
            "SELECT DISTINCT filename FROM read_parquet(?, filename = true) "
            "WHERE recalled_at IS NULL AND message_id IN (SELECT unnest(?))",
            [list(paths), ids],
        ).fetchall()
    return [paths[name] for (name,) in found]


def _may_hold(file: DataFile, message_id: int) -> bool:
    return file.message_min is None or file.message_max is None or file.message_min <= message_id <= file.message_max
