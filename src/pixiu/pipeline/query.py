"""SQL over the lake, by DuckDB in this process or by Spark: the same views, the same rows."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from pixiu.model.errors import NotFound, RequestError
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, ERASURE_SCHEMAS, LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["check_reading_words", "open_duckdb", "query_duckdb", "query_spark"]

TABLES = LAKE_SCHEMAS | MART_SCHEMAS | AUDIT_SCHEMAS | ERASURE_SCHEMAS
READING = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "SHOW", "EXPLAIN"})
TAKEN = "say SELECT (or WITH, FROM, VALUES, DESCRIBE, SHOW, EXPLAIN)"
_SPARK_ON_QUERIES = "SQLQueryContextLogger"
_PROBLEM_LINES_MAX = 12
"""A parse error shows the query beneath it."""
Answer = tuple[list[str], list[tuple[Any, ...]]]


def tables_of(data: Path) -> dict[str, LakeTable]:
    """The tables of a lake that is there."""
    place = Place(data.resolve())
    if not place.lake.is_dir():
        raise NotFound(f"there is no lake in {data} yet; make it with: pixiu pipeline run --once --data {data}")
    found = {name: LakeTable.for_reading(place.lake, name, schema) for name, schema in TABLES.items()}
    return {name: table for name, table in found.items() if table is not None}


@contextmanager
def open_duckdb(data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with all views. It may read the lake, and nothing else, and writes nothing."""
    tables = tables_of(data)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE MACRO unix_millis(moment) AS epoch_ms(moment)")
        for name, schema in TABLES.items():
            uris = tables[name].uris() if name in tables else []
            if uris:
                names = ", ".join(f'"{column}"' for column in schema.names)
                files = ", ".join("'" + uri.replace("'", "''") + "'" for uri in uris)
                # Files of an older program may lack columns: the empty table has them all.
                connection.register(f"empty_{name}", schema.empty_table())
                rows = f"SELECT * FROM read_parquet([{files}], union_by_name = true)"
                connection.execute(
                    f"CREATE VIEW lake_{name} AS SELECT {names} FROM (FROM empty_{name} UNION ALL BY NAME {rows})"
                )
            else:
                connection.register(f"lake_{name}", schema.empty_table())
        for name, text in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {text}")
        lake = str(Place(data.resolve()).lake).replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{lake}']")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def query_duckdb(data: Path, text: str) -> Answer:
    """Names of columns, and rows."""
    with open_duckdb(data) as connection:
        try:
            _check_reads(connection.extract_statements(text))
            found = connection.execute(text)
            return [column[0] for column in found.description or []], found.fetchall()
        except duckdb.CatalogException as error:
            raise RequestError(_unknown_table(str(error)) or str(error)) from error
        except duckdb.Error as error:
            raise RequestError(str(error)) from error


def _unknown_table(problem: str) -> str:
    """In our words: DuckDB would name tables of its own that are spelled alike."""
    found = re.match(r"Catalog Error: Table with name (.+) does not exist", problem)
    return f"there is no table {found[1]}; there are: {', '.join(VIEWS)}" if found else ""


def _check_reads(statements: list[duckdb.Statement]) -> None:
    """One question, and nothing else: the views are made for it and gone behind it, so a change would be lost."""
    if not statements:
        raise RequestError(f"there is no query: {TAKEN}")
    if len(statements) > 1:
        raise RequestError("one query at a time")
    if statements[0].type not in (
        duckdb.StatementType.SELECT,
        duckdb.StatementType.EXPLAIN,
        duckdb.StatementType.MULTI,
    ):
        raise RequestError(f"{statements[0].type.name} is not taken, since nothing can be changed here: {TAKEN}")


def check_reading_words(text: str) -> None:
    """The same by the first word, for an engine that does not say what a text is."""
    found = re.match(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*([A-Za-z]*)", text, flags=re.DOTALL)
    word = "" if found is None else found.group(1).upper()
    if not word:
        raise RequestError(f"there is no query: {TAKEN}")
    if word not in READING:
        raise RequestError(f"{word} is not taken, since nothing can be changed here: {TAKEN}")


def query_spark(spark: SparkSession, data: Path, text: str) -> Answer:
    """The same by Spark."""
    from pyspark.errors import PySparkException

    from pixiu.pipeline.lake.compaction import empty_frame, read_table

    check_reading_words(text)
    tables = tables_of(data)
    for name, schema in TABLES.items():
        frame = read_table(spark, tables[name]) if name in tables else empty_frame(spark, schema)
        frame.createOrReplaceTempView(f"lake_{name}")
    for name, view in VIEWS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {view}")
    logging.getLogger(_SPARK_ON_QUERIES).setLevel(logging.CRITICAL)  # it would print the same, and all of Java's stack
    try:
        found = spark.sql(text)
        return found.columns, [tuple(row) for row in found.collect()]
    except PySparkException as error:
        raise RequestError(_in_short(str(error))) from error


def _in_short(problem: str) -> str:
    """What Spark says is wrong, and where in the query; not the plan that it had made by then."""
    lines = problem.split("\n\nJVM", 1)[0].strip().splitlines()
    ends = next((number for number, line in enumerate(lines) if re.search(r"pos \d+;$", line)), _PROBLEM_LINES_MAX)
    return "\n".join(lines[: ends + 1]).rstrip(";") or "Spark does not say what is wrong"


assert pa  # DuckDB registers Arrow tables by it
