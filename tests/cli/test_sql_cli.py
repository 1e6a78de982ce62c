"""``pixiu sql``: what it takes, and how it shows what is wider than the terminal. On a lake without tables."""

from pathlib import Path

import duckdb
import pytest

from pixiu.cli.queue.output import fits, narrowed, record_lines
from pixiu.model.errors import RequestError
from pixiu.pipeline.query import check_reading_words, open_duckdb, query_duckdb


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "pipeline" / "lake").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM messages", "-- how many\nWITH a AS (SELECT 1) SELECT * FROM a", "DESCRIBE messages",
        "SHOW TABLES", "EXPLAIN SELECT 1", "(SELECT 1)", "VALUES (1)", "/* x */ select 1;",
    ],
)  # fmt: skip
def test_a_question_is_taken(data: Path, query: str) -> None:
    check_reading_words(query)
    assert query_duckdb(data, query)[1]


@pytest.mark.parametrize(
    "query, complaint",
    [
        ("", "there is no query"),
        ("  -- nothing", "there is no query"),
        ("DROP VIEW messages", "DROP is not taken"),
        ("CREATE TABLE a AS SELECT 1", "CREATE is not taken"),
        ("INSERT INTO messages VALUES (1)", "INSERT is not taken"),
    ],
)
def test_what_changes_something_or_asks_nothing_is_refused(data: Path, query: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        query_duckdb(data, query)
    with pytest.raises(RequestError, match=complaint):
        check_reading_words(query)


def test_a_connection_writes_no_files_whatever_it_is_asked(data: Path) -> None:
    with open_duckdb(data) as connection, pytest.raises(duckdb.Error, match="disabled by configuration"):
        connection.execute(f"COPY users TO '{data / 'taken'}'")


def test_who_names_a_table_that_is_not_there_is_told_which_ones_are(data: Path) -> None:
    with pytest.raises(RequestError, match=r"^there is no table nowhere; there are: .*\bmessages\b") as caught:
        query_duckdb(data, "SELECT * FROM nowhere")
    assert "pg_" not in str(caught.value)


def test_two_questions_at_once_are_refused(data: Path) -> None:
    with pytest.raises(RequestError, match="one query at a time"):
        query_duckdb(data, "SELECT 1; SELECT 2")


def test_what_does_not_fit_the_terminal_is_shown_record_by_record() -> None:
    columns = [f"column_{number}" for number in range(28)]
    assert not fits(columns, [["1"] * 28], 120)
    assert fits(columns[:3], [["1", "x" * 500, "3"]], 80)
    assert record_lines(["id", "text"], ["1", "two\nlines"]) == ["id    1", "text  two lines"]


def test_a_narrow_terminal_does_without_spare_columns() -> None:
    columns, lines = ("name", "role", "restarts"), [["carrier-0-1", "carrier", "0"]]
    spare = ("role", "restarts")
    assert narrowed(columns, lines, 80, spare) == (["name", "role", "restarts"], lines)
    assert narrowed(columns, lines, 25, spare) == (["name", "restarts"], [["carrier-0-1", "0"]])
    assert narrowed(columns, lines, 5, spare) == (["name"], [["carrier-0-1"]])
    assert narrowed(columns, lines, 5, ()) == (["name", "role", "restarts"], lines)
