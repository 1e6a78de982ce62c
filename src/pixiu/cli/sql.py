"""``pixiu sql``: questions to the tables that the pipeline makes."""

from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json, print_rows

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NUMBERS_OF_THINGS = ("_id", "_event", "_by")
"""Columns that end so hold 64-bit numbers, which JSON carries as texts."""


class Engine(StrEnum):
    """What computes the answer."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@app.command(
    epilog=examples(
        "pixiu sql 'SELECT count(*) FROM messages'",
        "pixiu sql 'SELECT sender, count(*) AS sent FROM messages GROUP BY sender' --json",
    )
)
def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT", help='Such as "SELECT count(*) FROM messages".')],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Of this data directory.")] = DEFAULT_DATA,
    engine: Annotated[Engine, typer.Option("--engine", help="What computes it.")] = Engine.DUCKDB,
    json: Json = False,
) -> None:
    """Ask the lake: messages, users, chat_groups, members, receipts, deliveries, gaps, latency.

    The views show what the pipeline has read so far (pixiu pipeline status says how far that is). Nothing is changed.
    """
    from pixiu.pipeline.session import open_session, require_packages

    require_packages()
    from pixiu.pipeline.query import query_duckdb, query_spark

    if engine is Engine.SPARK:
        spark = open_session(data / "pipeline" / "work")
        try:
            names, rows = query_spark(spark, data, query)
        finally:
            spark.stop()
    else:
        names, rows = query_duckdb(data, query)
    if json:
        print_json([{name: _json(name, value) for name, value in zip(names, row, strict=True)} for row in rows])
    else:
        print_rows(names, [[_text(value) for value in row] for row in rows], empty="no rows", may_be_records=True)


def _json(name: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith(_NUMBERS_OF_THINGS):
        return str(value)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000 + 0.5)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_json(name, each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _text(value: Any) -> str | int | float | bool | None:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
