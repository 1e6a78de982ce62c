"""``pixiu pipeline`` and ``pixiu sql`` as people use them."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.cli.main import main
from pixiu.cli.queue.asking import hours_of
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.lake.lock import LakeLock
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from tests.needs import require_java
from tests.pipeline.logs import talk, with_node


def pixiu(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pixiu", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | (env or {}),
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "data"
    with_node(path, talk)
    fill_lake(path)
    return path


def test_sql(data: Path) -> None:
    code, out, _ = pixiu(
        "sql", "SELECT count(*) AS n FROM messages WHERE sender = 'carol'", "--data", str(data), "--json"
    )
    assert (code, json.loads(out)) == (0, [{"n": 5}])
    code, out, _ = pixiu("sql", "SELECT user_id, name FROM users ORDER BY name LIMIT 1", "--data", str(data), "--json")
    (row,) = json.loads(out)
    assert isinstance(row["user_id"], str)
    assert row["name"] == "Alice"
    code, out, _ = pixiu("sql", "SELECT name FROM users ORDER BY name", "--data", str(data))
    assert out.split() == ["Alice", "Bob", "Carol", "Dave"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM nothing", "nothing"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("COPY users TO '/tmp/pixiu-sql-test'", "COPY is not accepted"),
    ],
)
def test_sql_refuses_in_one_line_what_it_cannot_do(data: Path, query: str, words: str) -> None:
    code, _, error = pixiu("sql", query, "--data", str(data))
    assert code == 1
    assert words in error
    assert "Traceback" not in error


def heat_up(data: Path, room: str, deliveries: int, members: int) -> None:
    """One minute of a live room, as a run would have written it."""
    schema = MART_SCHEMAS["heat"]
    table = LakeTable(Place(data).lake, "heat", schema)
    folder = table.new_folder("made")
    (table.folder / folder).mkdir(parents=True)
    row = {"day": date(2026, 11, 15), "minute": datetime(2026, 11, 15, 12, tzinfo=UTC), "bucket": 1}
    row |= {"conversation": f"r:{room}", "messages": 60, "bytes": 1, "deliveries": deliveries, "members": members}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), table.folder / folder / "rows.parquet")
    table.append(folder, through=table.through + 1)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """In this process: it is quick, and there are many."""
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "plan", *arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    code, _, error = planned(capsys, "--data", str(data))
    assert (code, "there is no lake" in error) == (1, True)
    Place(data).lake.mkdir(parents=True)
    code, out, _ = planned(capsys, "--data", str(data))
    assert (code, out) == (0, "nothing to do: no room and no partition is above its bound\n")
    heat_up(data, "hall", 60 * 3000, 20_000)
    heat_up(data, "yard", 60 * 3000, 10)
    file = tmp_path / "plan.json"
    options = ("--data", str(data), "--broker-deliveries", "2000", "--partitions", "2")
    code, out, error = planned(capsys, *options, "--out", str(file))
    assert code == 0, error
    assert out.splitlines()[0] == "room hall: 64 virtual rooms (20000 sessions, more than 10000)"
    plan = json.loads(file.read_text(encoding="utf-8"))
    assert [(each["role"], each["to"]) for each in plan["double"]] == [("broker", 4)]
    assert (plan["version"], plan["days"]) == (1, ["2026-11-09", "2026-11-15"])
    assert [each["per_second"] for each in plan["load"]["broker"]] in ([4500, 1500], [1500, 4500])
    assert planned(capsys, "--data", str(data), "--partitions", "3")[0] == 2
    assert planned(capsys, "--data", str(data), "--out", str(tmp_path))[0] == 2


def test_status(data: Path) -> None:
    code, out, _ = pixiu("pipeline", "status", "--data", str(data), "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["pid"] is None
    assert {each["table"]: each["lag"] for each in found["tables"]} == dict.fromkeys(LAKE_SCHEMAS, 0)
    assert all(each["rows"] > 0 for each in found["tables"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pipeline", "run", "--once", "--data", "nowhere"], 1, "there is no log in nowhere"),
        (["pipeline", "run", "--data", "nowhere"], 2, "say --once, or --every"),
        (["pipeline", "run", "--once", "--every", "1m"], 2, "say --once, or --every"),
        (["pipeline", "run", "--once", "--audit-every", "1m"], 2, "--audit-every goes with --every"),
        (["pipeline", "report", "--data", "nowhere"], 1, "there is no log in nowhere"),
        (["pipeline", "report", "--json", "--html", "x.html"], 2, "say one of --html and --json"),
        (["sql", "SELECT 1", "--data", "nowhere"], 1, "there is no lake in nowhere"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], code: int, words: str) -> None:
    got, _, error = pixiu(*arguments)
    assert (got, words in error) == (code, True), error
    assert error.count("\n") == 1


def test_report(data: Path, tmp_path: Path) -> None:
    code, out, _ = pixiu("pipeline", "report", "--data", str(data), "--json")
    assert (code, json.loads(out)["usage"]["users"]) == (0, 4)
    code, out, _ = pixiu("pipeline", "report", "--data", str(data), "--html", str(tmp_path / "page.html"))
    assert (code, out) == (0, f"wrote {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, _, error = pixiu("pipeline", "report", "--data", str(data), "--html", str(tmp_path / "no" / "page.html"))
    assert (code, error.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rooms"], "there is no mart 'rooms'; there are: usage, heat, latency"),
        (["--from", "yesterday"], "--from takes a day like 2026-11-15, or an event id, not 'yesterday'"),
        (["--from", "2020-01-01"], "cannot be made: the archive has"),
        (["--from", "999999999"], "nothing at or behind event 999999999"),
    ],
)
def test_a_backfill_that_cannot_be_is_refused_before_anything_is_done(
    data: Path, arguments: list[str], words: str
) -> None:
    require_java()
    code, _, error = pixiu("pipeline", "backfill", *arguments, "--data", str(data))
    assert (code, words in error) == (2, True), error


def test_a_second_pipeline_is_refused_at_once(data: Path) -> None:
    require_java()
    with LakeLock(Place(data).folder):
        code, _, error = pixiu("pipeline", "run", "--once", "--data", str(data))
    assert code == 1
    assert "another pipeline runs" in error


def test_without_java_it_says_what_to_do(data: Path) -> None:
    code, _, error = pixiu("pipeline", "run", "--once", "--data", str(data), env={"PATH": "", "JAVA_HOME": ""})
    assert code == 1
    assert error.startswith("pixiu: the pipeline needs Java 17")
    assert error.count("\n") == 1


def test_nothing_of_it_is_loaded_by_a_server() -> None:
    check = (
        "import sys, pixiu.cli.main, pixiu.cli.serve, pixiu.cli.pipeline, pixiu.cli.sql, pixiu.node.serving;"
        "heavy = {'pyspark', 'pyarrow', 'duckdb', 'deltalake', 'numpy'};"
        "sys.exit(bool(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("keep", "hours"), [("0", 0), ("30m", 1), ("1h", 1), ("61m", 2), ("7d", 168)])
def test_files_are_kept_at_least_as_long_as_was_said(keep: str, hours: int) -> None:
    assert hours_of(keep) == hours
