"""Small files become large ones; what was recalled goes for good; what is too old leaves.

A run rewrites only files that are small, or that hold messages which were recalled since they were written. Both change
no row count and move no position: one commit removes the old files and adds the new ones. The old ones stay on disk for
readers that still use them, until ``vacuum``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from pixiu.pipeline.jobs.archive import fold, marks_of
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, ORDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.pipeline.lake.table import DataFile, LakeTable

__all__ = ["Compacted", "compact", "gather", "read_table", "retain"]

TARGET_BYTES = 128 * 2**20
"""Files are made about this long; from half of it on they are left alone."""

FOLDED = "pixiu.folded"
"""The event through which recalls are folded into messages."""


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
    schema = _spark_schema(table)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def _spark_schema(table: LakeTable) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema)


def compact(
    open_spark: Callable[[], SparkSession],
    table: LakeTable,
    changes: LakeTable,
    *,
    only_recalls: bool = False,
    target_bytes: int = TARGET_BYTES,
    reached: Callable[[str], object] = lambda point: None,
) -> Compacted:
    """Rewrite what needs it. ``only_recalls`` leaves small files alone."""
    table.refresh()
    files = table.files()
    small = [] if only_recalls else [file for file in files if file.size < target_bytes // 2]
    chosen = {file.path: file for file in small if len(small) > 1}
    if table.name == "messages":
        changes.refresh()
        chosen |= {file.path: file for file in _with_recalls(table, changes, files)}
    folded = {FOLDED: changes.through} if table.name == "messages" else {}
    if not chosen:
        if folded and changes.through > table.position(FOLDED):
            table.replace([], None, why="nothing to fold", positions=folded)
        return Compacted(table.name, len(files), len(files), 0)
    spark = open_spark()
    rows = read_table(spark, table, list(chosen.values()))
    if table.name == "messages":
        rows = fold(rows, marks_of(read_table(spark, changes)))
    order = ORDER[table.name]
    count = max(1, -(-sum(file.size for file in chosen.values()) // target_bytes))
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *order)
    folder = table.new_folder("compacted")
    rows.sortWithinPartitions(*order).select(*LAKE_SCHEMAS[table.name].names).write.parquet(str(table.folder / folder))
    reached("during-compaction")
    table.replace(chosen.values(), folder, why="compaction", positions=folded)
    return Compacted(table.name, len(files), len(table.files()), len(chosen))


def gather(open_spark: Callable[[], SparkSession], table: LakeTable) -> Compacted:
    """The files of a mart as one: each run adds a small one. Their rows stay as they are."""
    table.refresh()
    files = table.files()
    if len(files) < 2:
        return Compacted(table.name, len(files), len(files), 0)
    folder = table.new_folder("compacted")
    read_table(open_spark(), table, files).coalesce(1).write.parquet(str(table.folder / folder))
    table.replace(files, folder, why="compaction")
    return Compacted(table.name, len(files), len(table.files()), len(files))


def _with_recalls(table: LakeTable, changes: LakeTable, files: list[DataFile]) -> list[DataFile]:
    """The files with messages that were recalled behind what is folded in already, and that still say what they said.

    Asked of DuckDB: mostly there are none, and to find that out Spark would need seconds.
    """
    marks = changes.uris()
    if not marks or not files:
        return []
    with duckdb.connect() as connection:
        recalled = connection.execute(
            "SELECT about FROM read_parquet(?) WHERE what = 'recalled' AND event_id > ?",
            [marks, table.position(FOLDED)],
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


def retain(table: LakeTable, oldest: date) -> int:
    """Let files go whose newest day is before ``oldest``. Returns how many; ``vacuum`` removes them from disk."""
    table.refresh()
    gone = [file for file in table.files() if file.day_max is not None and file.day_max < oldest]
    if gone:
        table.replace(gone, None, why=f"retention before {oldest.isoformat()}")
    return len(gone)
