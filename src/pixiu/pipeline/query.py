"""SQL over the lake, by DuckDB in this process or by Spark: the same views, the same rows.

A query of a user runs read-only. DuckDB gets its rows from Arrow and may open no file at all. Spark runs the query in a
session without the functions that reach Java or files, after the parsed plan was found to consist of query nodes.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds

from pixiu.model.errors import NotFound, RequestError
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, ERASURE_SCHEMAS, LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.read_only import check_analyzed, check_duckdb, check_parsed, restrict
from pixiu.pipeline.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["open_duckdb", "query_duckdb", "query_spark"]

TABLES = LAKE_SCHEMAS | MART_SCHEMAS | AUDIT_SCHEMAS | ERASURE_SCHEMAS
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
    """A connection with all views, for the program's own queries: DuckDB opens the files of the lake itself."""
    with duckdb.connect() as connection:
        _add_views(connection, tables_of(data))
        lake = str(Place(data.resolve()).lake).replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{lake}']")
        _lock(connection)
        yield connection


@contextmanager
def _open_read_only(data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with all views that can open no file, so no statement can write one.

    ``allowed_directories`` allows writing as well as reading, and DuckDB allows its ``temp_directory`` by itself. So
    Arrow reads the lake, and no directory is set for temporary files: a query that runs out of memory fails.
    """
    with duckdb.connect() as connection:
        _add_views(connection, tables_of(data), through_arrow=True)
        connection.execute("SET temp_directory = ''")
        _lock(connection)
        yield connection


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _add_views(
    connection: duckdb.DuckDBPyConnection, tables: dict[str, LakeTable], *, through_arrow: bool = False
) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE MACRO unix_millis(moment) AS epoch_ms(moment)")
    for name, schema in TABLES.items():
        uris = tables[name].uris() if name in tables else []
        if not uris:
            connection.register(f"lake_{name}", schema.empty_table())
        elif through_arrow:
            connection.register(f"lake_{name}", ds.dataset(uris, schema=schema, format="parquet"))
        else:
            names = ", ".join(f'"{column}"' for column in schema.names)
            files = ", ".join("'" + uri.replace("'", "''") + "'" for uri in uris)
            # Files of an older program may lack columns: the empty table has them all.
            connection.register(f"empty_{name}", schema.empty_table())
            rows = f"SELECT * FROM read_parquet([{files}], union_by_name = true)"
            connection.execute(
                f"CREATE VIEW lake_{name} AS SELECT {names} FROM (FROM empty_{name} UNION ALL BY NAME {rows})"
            )
    for name, text in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {text}")


def query_duckdb(data: Path, text: str) -> Answer:
    """Names of columns, and rows. Raises ``RequestError`` for anything but one query."""
    with _open_read_only(data) as connection:
        try:
            check_duckdb(connection, text)
            found = connection.execute(text)
            return [column[0] for column in found.description or []], found.fetchall()
        except duckdb.CatalogException as error:
            raise RequestError(_unknown_table(str(error)) or str(error)) from error
        except duckdb.OutOfMemoryException as error:
            raise RequestError(f"{error}; narrow the query, or use --engine spark") from error
        except duckdb.Error as error:
            raise RequestError(str(error)) from error


def _unknown_table(problem: str) -> str:
    """In our words: DuckDB would name tables of its own that are spelled alike."""
    found = re.match(r"Catalog Error: Table with name (.+) does not exist", problem)
    return f"there is no table {found[1]}; there are: {', '.join(VIEWS)}" if found else ""


def query_spark(spark: SparkSession, data: Path, text: str) -> Answer:
    """The same by Spark, in a session of its own that shares the Java process."""
    from pyspark.errors import PySparkException

    from pixiu.pipeline.lake.compaction import empty_frame, read_table

    tables = tables_of(data)
    session = spark.newSession()
    restrict(session)
    for name, schema in TABLES.items():
        frame = read_table(session, tables[name]) if name in tables else empty_frame(session, schema)
        frame.createOrReplaceTempView(f"lake_{name}")
    for name, view in VIEWS.items():
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {view}")
    logging.getLogger(_SPARK_ON_QUERIES).setLevel(logging.CRITICAL)  # it would print the same, and all of Java's stack
    try:
        check_parsed(session, text)
        found = session.sql(text)
        check_analyzed(found)
        return found.columns, [tuple(row) for row in found.collect()]
    except PySparkException as error:
        raise RequestError(_in_short(str(error))) from error


def _in_short(problem: str) -> str:
    """What Spark says is wrong, and where in the query; not the plan that it had made by then."""
    lines = problem.split("\n\nJVM", 1)[0].strip().splitlines()
    ends = next((number for number, line in enumerate(lines) if re.search(r"pos \d+;$", line)), _PROBLEM_LINES_MAX)
    return "\n".join(lines[: ends + 1]).rstrip(";") or "Spark does not say what is wrong"
