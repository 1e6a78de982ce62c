"""``pixiu sql``: which queries it accepts, and how it prints rows wider than the terminal. On a lake without tables."""

import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.cli.main import main
from pixiu.cli.queue.output import fits, narrowed, record_lines
from pixiu.model.errors import RequestError
from pixiu.pipeline.query import query_duckdb
from pixiu.runtime.datadir import DataDirectory
from tests.needs import require_java


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "pipeline" / "lake").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM messages", "-- how many\nWITH a AS (SELECT 1) SELECT * FROM a", "DESCRIBE messages",
        "SHOW TABLES", "EXPLAIN SELECT 1", "(SELECT 1)", "VALUES (1)", "/* x */ select 1;", "SUMMARIZE messages",
        "EXPLAIN ANALYZE SELECT 1", "/* x */ EXPLAIN (FORMAT json) SELECT 1", "explain analyze from messages",
        "PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)", "EXPLAIN (ANALYZE, FORMAT json) (SELECT 1)",
    ],
)  # fmt: skip
def test_duckdb_answers_queries(data: Path, query: str) -> None:
    assert query_duckdb(data, query)[1]


@pytest.mark.parametrize(
    "query, complaint",
    [
        ("", "there is no query"),
        ("  -- nothing", "there is no query"),
        ("EXPLAIN", "syntax error"),
        ("DROP VIEW messages", "DROP is not accepted"),
        ("CREATE TABLE a AS SELECT 1", "CREATE is not accepted"),
        ("INSERT INTO messages VALUES (1)", "INSERT is not accepted"),
        ("EXPLAIN ANALYZE CREATE TABLE a AS SELECT 1", "CREATE is not accepted"),
        ("EXPLAIN INSERT INTO messages VALUES (1)", "INSERT is not accepted"),
        ("SET memory_limit = '1GB'", "SET is not accepted"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("EXPLAIN SELECT 1; DROP VIEW messages", "2 statements"),
    ],
)
def test_duckdb_refuses_anything_but_one_query(data: Path, query: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        query_duckdb(data, query)


ATTEMPTS = [
    "COPY users TO '{file}'",
    "EXPLAIN ANALYZE COPY users TO '{file}'",
    "EXPLAIN (ANALYZE) COPY users TO '{file}'",
    "/* x */ EXPLAIN /* y */ ANALYZE COPY users TO '{file}' (FORMAT parquet)",
    " -- EXPLAIN\nEXPLAIN ANALYZE -- SELECT\nCOPY users TO '{file}'",
    "WITH a AS (COPY users TO '{file}') SELECT 1",
    "SELECT * FROM (WITH a AS (COPY users TO '{file}') SELECT 1)",
    "EXPLAIN ANALYZE WITH a AS (COPY users TO '{file}') SELECT 1",
    "EXPORT DATABASE '{file}'",
    "ATTACH '{file}'",
    "CALL enable_logging(storage = 'file', storage_path = '{file}')",
    "FROM enable_logging(storage = 'file', storage_path = '{file}')",
    "FROM enable_profiling(save_location = '{file}')",
    "FROM query('COPY users TO ''{file}''')",
    "SET profiling_output = '{file}'",
    "EXPLAIN ANALYZE SET profiling_output = '{file}'",
    "PRAGMA enable_profiling('{file}')",
    "INSTALL httpfs FROM '{file}'",
    "LOAD '{file}'",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_blob('{lake}/*')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM 'https://127.0.0.1/a.parquet'",
]
PLACES = ["{data}/pipeline/lake/taken", ".tmp/taken", "{data}/taken"]


def test_duckdb_reads_and_writes_no_file(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(data)
    (data / ".tmp").mkdir()
    before = sorted(data.rglob("*"))
    for attempt in ATTEMPTS:
        for place in PLACES if "{file}" in attempt else [""]:
            query = attempt.format(file=place.format(data=data), lake=data / "pipeline" / "lake")
            with pytest.raises(SystemExit) as ended:
                main(["sql", query, "--data", str(data)])
            assert ended.value.code == 1, query
            assert "Traceback" not in capsys.readouterr().err
            assert sorted(data.rglob("*")) == before, query


def test_unknown_table_error_lists_the_tables(data: Path) -> None:
    with pytest.raises(RequestError, match=r"^there is no table nowhere; there are: .*\bmessages\b") as caught:
        query_duckdb(data, "SELECT * FROM nowhere")
    assert "pg_" not in str(caught.value)


def test_what_does_not_fit_the_terminal_is_shown_record_by_record() -> None:
    columns = [f"column_{number}" for number in range(28)]
    assert not fits(columns, [["1"] * 28], 120)
    assert fits(columns[:3], [["1", "x" * 500, "3"]], 80)
    assert record_lines(["id", "text"], ["1", "two\nlines"]) == ["id    1", "text  two lines"]


def test_a_narrow_terminal_does_without_spare_columns() -> None:
    columns, lines = ("name", "role", "restarts"), [["shard-0-1", "shard", "0"]]
    spare = ("role", "restarts")
    assert narrowed(columns, lines, 80, spare) == (["name", "role", "restarts"], lines)
    assert narrowed(columns, lines, 25, spare) == (["name", "restarts"], [["shard-0-1", "0"]])
    assert narrowed(columns, lines, 5, spare) == (["name"], [["shard-0-1"]])
    assert narrowed(columns, lines, 5, ()) == (["name", "role", "restarts"], lines)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_pixiu_sql_does_not_run_the_copy_that_explain_analyze_runs(tmp_path: Path, engine: str) -> None:
    if engine == "spark":
        require_java()
    data = tmp_path / "data"
    DataDirectory.open(data).close()
    (data / "pipeline" / "lake").mkdir(parents=True, exist_ok=True)
    target = data / "pipeline" / "lake" / "taken.parquet"
    query = f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{target}'"
    command = [sys.executable, "-m", "pixiu", "sql", query, "--data", str(data), "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1 and "COPY" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.rglob("taken*"))
