"""``pixiu search`` and the job ``search`` as people use them."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tantivy")

from pixiu.cli.main import main
from pixiu.pipeline.lake.local import fill_lake
from tests.pipeline.bulk_server import BulkServer
from tests.pipeline.logs import talk, with_node

pytestmark = pytest.mark.feature("B03")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, archived, and not indexed yet."""
    path = tmp_path_factory.mktemp("search") / "data"
    with_node(path, talk)
    fill_lake(path)
    return path


def pixiu(*arguments: str) -> tuple[int, str, str]:
    """The command, in this process: a new one for each would take longer than all of its work."""
    out, error = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), error.getvalue()


@pytest.fixture(scope="module")
def indexed(data: Path) -> Path:
    code, _, error = pixiu("search", "alice", "--user", "alice", "--data", str(data))
    assert (code, "has not indexed any message" in error) == (1, True)
    code, out, error = pixiu("pipeline", "run", "search", "--once", "--data", str(data), "--json")
    assert code == 0, error
    assert json.loads(out.splitlines()[-1])["added"] == {"search": 31}
    return data


def found(*arguments: str) -> Any:
    code, out, error = pixiu("search", *arguments, "--json")
    assert code == 0, error
    return json.loads(out)


def test_status_says_how_far_it_is(indexed: Path) -> None:
    code, out, _ = pixiu("pipeline", "status", "--data", str(indexed), "--json")
    rows = {each["table"]: each for each in json.loads(out)["tables"]}
    assert (code, rows["search"]["rows"], rows["search"]["lag"]) == (0, 30, 0)


def test_as_operator_and_as_users(indexed: Path) -> None:
    where = ("--data", str(indexed))
    page = found("群里", "--limit", "3", *where)
    assert [each["text"] for each in page["messages"]] == ["群里说 3", "群里说 2", "群里说 1"]
    assert found("群里", "--cursor", page["cursor"], *where)["messages"][0]["text"] == "群里说 0"
    assert found("群里", "--user", "carol", *where)["messages"] == [], "carol has quit"
    mine = found("群里 from:carol in:team", "--user", "bob", *where)
    assert (len(mine["messages"]), mine["messages"][0]["highlights"]) == (4, [[0, 2]])
    code, out, _ = pixiu("search", "myself in:dave", *where)
    assert (code, out.splitlines()[-1]) == (0, "    note to myself")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["!?"], 1, "no word to look for"),
        (["x from:nobody"], 1, "no user 'nobody'"),
        (["x", "--user", "nobody"], 1, "no user 'nobody'"),
        (["x", "--cursor", "y"], 2, "--cursor"),
        (["x", "--token", "t"], 2, "--token is for --url"),
        (["x", "--url", "http://127.0.0.1:9"], 2, "say who searches"),
    ],
)
def test_refusals(indexed: Path, arguments: list[str], code: int, words: str) -> None:
    done, _, error = pixiu("search", *arguments, "--data", str(indexed))
    assert (done, words in error, error.count("\n")) == (code, True, 1), error


def test_the_second_sink(indexed: Path) -> None:
    run = ("pipeline", "run", "search", "--once", "--sink", "opensearch", "--data", str(indexed))
    with BulkServer() as server:
        code, out, error = pixiu(*run, "--url", server.url, "--json")
        assert code == 0, error
        assert json.loads(out.splitlines()[-1])["added"] == {"search": 31}
        texts = {each.get("text") for each in server.documents.values()}
        assert "群里说 3" in texts
        assert "alice to bob 3" not in texts, "it was recalled"
        code, out, _ = pixiu(*run, "--url", server.url, "--json")
        assert json.loads(out.splitlines()[-1])["added"] == {"search": 0}
