"""Marts of some days made again from the archive, in the place of what was there, at once.

A mart is partial sums that were added up run by run. After a mend of a job, or where rows are doubted, its days are
computed again: one commit takes the old rows out and puts the new ones in; a reader sees the one or the other. How far
the mart holds the log stays as it was, and so does every other day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError, NotFound
from pixiu.pipeline.jobs import marts
from pixiu.pipeline.lake.compaction import read_table
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.query import query_duckdb

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.pipeline.runner import Pipeline

__all__ = ["Remade", "backfill", "day_of_text", "days_of_archive"]

HANDED = timedelta(days=1)
"""Hand-overs are looked for in the day before, too."""

_DAYS = " UNION ALL ".join(f"SELECT day, event_id FROM lake_{name}" for name in LAKE_SCHEMAS)


@dataclass(frozen=True, slots=True)
class Remade:
    """What became of one mart."""

    mart: str
    rows_before: int
    rows_after: int


def days_of_archive(data: Path) -> tuple[date, date]:
    """The first and the last day that the archive has. Raises ``NotFound`` if it has none."""
    _, ((first, last),) = query_duckdb(data, f"SELECT min(day), max(day) FROM ({_DAYS})")
    if first is None:
        raise NotFound(f"the archive is empty; fill it with: pixiu pipeline run --once --data {data}")
    return first, last


def day_of_text(data: Path, option: str, text: str) -> date:
    """A day as it is written, or that of an event."""
    if text.isdecimal():
        _, ((day,),) = query_duckdb(data, f"SELECT min(day) FROM ({_DAYS}) WHERE event_id >= {int(text)}")
        if day is None:
            raise ConfigError(f"{option}: the archive has nothing at or behind event {text}")
        return date.fromisoformat(str(day))
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} takes a day like 2026-11-15, or an event id, not {text!r}") from None


def backfill(pipeline: Pipeline, mart: str, first: date, last: date) -> Remade:
    """Make the rows of these days again, both included. Days that the archive does not have must not be among them."""
    if mart not in MART_SCHEMAS:
        raise ConfigError(f"there is no mart {mart!r}; there are: {', '.join(MART_SCHEMAS)}")
    table = pipeline.mart(mart)
    is_within = f"day BETWEEN DATE'{first}' AND DATE'{last}'"
    sources = {
        name: read_table(pipeline.spark, pipeline.table(name)).where(f"event_id <= {table.through}")
        for name in LAKE_SCHEMAS
    }
    new = marts.New(*(sources[name].where(is_within) for name in marts.New._fields))
    kept = read_table(pipeline.spark, table, table.files()).where(f"NOT ({is_within})")
    if mart in marts.OF_SUMS:
        handed = sources["deliveries"].where(f"day BETWEEN DATE'{first - HANDED}' AND DATE'{last}'")
        made = marts.OF_SUMS[mart](marts.hop_sums(marts.hops(*new[:2], handed, new.traces)))
    else:
        made = marts.rows_of(mart, new, kept)
    made = made.where(is_within)
    files = table.files()
    folder = table.new_folder("backfill")
    kept.unionByName(made).coalesce(1).write.parquet(str(table.folder / folder))
    table.replace(files, folder, why=f"backfill {first} to {last}")
    return Remade(mart, sum(file.rows for file in files), sum(file.rows for file in table.files()))
