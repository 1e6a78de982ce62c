"""The archive's tables, filled in this process without Spark: for small logs, and where there is no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.pipeline.lake.intake import Target, take_in
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.source.journal import JournalFolder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fill_lake"]


def fill_lake(data: Path, *, through: int | None = None) -> None:
    """Append to every archive table what the log holds beyond it, through an event (the log's end by default).

    The rows are those of Spark's tasks, one slice of the log at a time instead of several in parallel.
    """
    folder = JournalFolder(data)
    end = folder.end().event_id if through is None else through
    tables = {name: LakeTable(Place(data).lake, name, schema) for name, schema in LAKE_SCHEMAS.items()}
    files = {name: table.new_folder("local") for name, table in tables.items()}
    targets = {name: Target(str(table.folder / files[name]), table.through) for name, table in tables.items()}
    for part in folder.plan(min(target.after for target in targets.values()), end):
        for _ in take_in(part, targets):
            pass
    for name, table in tables.items():
        table.append(files[name], through=end)
