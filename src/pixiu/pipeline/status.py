"""How far the tables are, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.pipeline.lake.lock import holder_of
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.query import tables_of
from pixiu.pipeline.source.journal import JournalFolder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["status_of"]


def status_of(data: Path) -> dict[str, Any]:
    """Every table with its position, lag, rows, files and bytes; the end of the log; who writes now."""
    place = Place(data)
    end = JournalFolder(data, index_folder=place.index).end().event_id
    tables = []
    for name, table in (tables_of(data) if place.lake.is_dir() else {}).items():
        files = table.files()
        tables.append(
            {
                "table": name,
                "through": table.through,
                "lag": max(0, end - table.through),
                "rows": sum(file.rows for file in files),
                "files": len(files),
                "bytes": sum(file.size for file in files),
                "version": table.version,
            }
        )
    return {"log": end, "pid": holder_of(place.folder), "tables": tables}
