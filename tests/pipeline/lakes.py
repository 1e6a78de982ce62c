"""A lake made without Spark, for tests of what only reads it."""

from pathlib import Path

from pixiu.pipeline.lake.intake import Target, take_in
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.source.journal import JournalFolder

__all__ = ["make_lake"]


def make_lake(data: Path, *, through: int | None = None) -> None:
    """Every table of the archive, through an event, by what Spark's tasks do."""
    folder = JournalFolder(data)
    end = folder.end().event_id if through is None else through
    tables = {name: LakeTable(Place(data).lake, name, schema) for name, schema in LAKE_SCHEMAS.items()}
    files = {name: table.new_folder("made") for name, table in tables.items()}
    targets = {name: Target(str(table.folder / files[name]), table.through) for name, table in tables.items()}
    for part in folder.plan(min(target.after for target in targets.values()), end):
        for _ in take_in(part, targets):
            pass
    for name, table in tables.items():
        table.append(files[name], through=end)
