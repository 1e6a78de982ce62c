"""A lake made without Spark, for tests of what only reads it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder

__all__ = ["make_lake"]


def make_lake(data: Path, *, through: int | None = None) -> None:
    """Every table of the archive, through an event; what Spark derives (conversation, day, bucket) is null."""
    folder = JournalFolder(data)
    end = folder.end().event_id if through is None else through
    for name, schema in LAKE_SCHEMAS.items():
        table = LakeTable(Place(data).lake, name, schema)
        wanted = Wanted.rows_of(name)
        batches = [batch for part in folder.plan(table.through, end) for batch in decode(part, wanted)]
        rows: Any = pa.Table.from_batches(batches, schema=wanted.schema)
        for field in schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        files = table.new_folder("made")
        (table.folder / files).mkdir(parents=True)
        pq.write_table(rows.select(schema.names), table.folder / files / "rows.parquet")
        table.append(files, through=end)
