"""What a task of the archive does: read a slice of the log once, and write the files of all tables that need it.

The files lie in folders that nobody reads yet. A task that Spark runs twice leaves files that nobody names, since only
the names that a task gave back are committed; ``vacuum`` removes the others.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.shape import ordered, shape
from pixiu.pipeline.records.unfold import unfold
from pixiu.pipeline.source.slices import records_in, slice_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pixiu.pipeline.records.unfold import Records
    from pixiu.pipeline.source.slices import AnySlice

__all__ = ["WRITTEN_DDL", "Target", "take_in", "take_in_batches"]

GROUP_ROWS = 65_536
"""Rows of one row group: what a reader that looks for one conversation has to read."""

_VARIED = {"message_id", "event_id", "accepted_at", "written_at", "text", "body", "send_id", "recalled_at", "bytes"}
"""Columns that hardly repeat: a dictionary of them would be work for nothing."""

WRITTEN_DDL = "table STRING, name STRING, rows BIGINT"
WRITTEN = pa.schema([("table", pa.string()), ("name", pa.string()), ("rows", pa.int64())])
"""What a task gives back: its files."""


class Target(NamedTuple):
    """Where the rows of a table go."""

    folder: str
    after: int
    """The table has everything through this event already."""


def take_in(part: AnySlice, targets: Mapping[str, Target]) -> Iterator[tuple[str, str, int]]:
    """Write the rows of a slice. Yields table, name of the file, rows."""
    found: dict[str, list[Any]] = {table: [] for table in targets}
    for records in records_in(part):
        for table, target in targets.items():
            if _has_news(records, target):
                rows = _behind(unfold(records, table), target.after)
                if rows.num_rows:
                    found[table].append(shape(table, rows))
    for table, batches in found.items():
        if batches:
            name = f"{part.after + 1:020d}-{secrets.token_hex(4)}.parquet"
            rows = pa.Table.from_batches(batches, schema=LAKE_SCHEMAS[table])
            batches.clear()
            count = rows.num_rows
            pieces = ordered(table, rows, GROUP_ROWS)
            del rows
            _write(pieces, LAKE_SCHEMAS[table], targets[table].folder, name)
            yield table, name, count


def _has_news(records: Records, target: Target) -> bool:
    return bool(records.rows) and int(records.event_id[-1]) > target.after


def _behind(rows: Any, after: int) -> Any:
    """The rows of later events: a batch may begin before the end of a table."""
    events = rows.column("event_id")
    return rows if not len(events) or events[0].as_py() > after else rows.filter(pc.greater(events, after))


def _write(pieces: Iterator[Any], schema: Any, folder: str, name: str) -> None:
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a text that came by Spark
    with pq.ParquetWriter(
        os.path.join(folder, name),  # noqa: PTH118
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name not in _VARIED],
        store_schema=False,
    ) as writer:
        for piece in pieces:
            writer.write_table(piece, row_group_size=GROUP_ROWS)


def take_in_batches(batches: Iterator[Any], targets: Mapping[str, Target]) -> Iterator[Any]:
    """For ``mapInArrow``: rows with slices in, rows with files out."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            rows = list(take_in(slice_of(text), targets))
            columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(WRITTEN)]
            yield pa.RecordBatch.from_arrays(columns, schema=WRITTEN)
