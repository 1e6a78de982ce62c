"""How far the tables are, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.backends.tantivy.schema import index_folder
from pixiu.pipeline.lake.lock import holder_of
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.query import query_duckdb, tables_of
from pixiu.pipeline.search.embedded import look_at
from pixiu.pipeline.source.slices import log_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["audit_of", "status_of"]


def status_of(data: Path) -> dict[str, Any]:
    """Every table, and the index of messages, with position, lag, rows, files and bytes; the log's end; who writes."""
    place = Place(data)
    end = log_of(data, place.index).end().event_id
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
    index = look_at(data)
    if index is not None:
        state, documents = index
        sizes = [path.stat().st_size for path in index_folder(data).iterdir() if path.is_file()]
        tables.append(
            {
                "table": "search",
                "through": state.through,
                "lag": max(0, end - state.through),
                "rows": documents,
                "files": len(sizes),
                "bytes": sum(sizes),
                "version": 0,
            }
        )
    return {"log": end, "pid": holder_of(place.folder), "tables": tables}


def audit_of(data: Path) -> dict[str, Any]:
    """The newest audit in one line: its sums, what it found, and whether the books balance (None: no cut was taken)."""
    names = ("intended", "acked", "waiting", "expired", "dead", "resent", "expected_waiting")
    _, (sums,) = query_duckdb(data, f"SELECT {', '.join(f'sum({name})' for name in names)} FROM audit")
    _, ((lost, duplicates),) = query_duckdb(
        data,
        "SELECT count(*) FILTER (finding = 'lost'), count(*) FILTER (finding = 'duplicate') FROM lake_findings",
    )
    books: dict[str, Any] = {
        name: None if value is None else int(value) for name, value in zip(names, sums, strict=True)
    }
    balanced = None
    if books["waiting"] is not None:
        accounted = sum(books[name] for name in ("acked", "waiting", "expired", "dead"))
        balanced = books["intended"] == accounted and not lost and not duplicates
    return {**books, "lost": lost, "duplicates": duplicates, "balanced": balanced}
