"""DuckDB's books against ``pixiu audit``, on ordinary logs and on random ones. Without Spark."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from pixiu.node import audit_stopped
from pixiu.pipeline.checker import check_audit
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.query import query_duckdb
from tests.pipeline.chaos import chaos
from tests.pipeline.logs import talk, with_node


def agree(data: Path, **window: Any) -> dict[str, Any]:
    report = audit_stopped(data, **window)
    assert report.lost_count == report.duplicate_count == report.undecodable == 0
    checked = check_audit(data, report.cut, **window)
    assert checked == {
        "accepted": report.accepted,
        "intended": report.intended,
        "acked": report.acked,
        "expired": report.expired,
        "dead": report.dead,
        "expected_waiting": report.waiting,
    }
    return checked


def test_an_ordinary_log(data: Path) -> None:
    with_node(data, talk)
    fill_lake(data)
    counts = agree(data)
    assert counts["acked"] > 10
    assert counts["dead"] > 0


@pytest.mark.parametrize("seed", range(8))
def test_a_random_log(data: Path, seed: int) -> None:
    """In the log of 2 an inbox is full while it is called ``first``, and gets a platform with another limit later."""
    chaos(data, seed, 400)
    fill_lake(data)
    counts = agree(data)
    assert counts["expired"] > 0
    agree(data, at_least=1_800_000_000_000 + 100_000, before=1_800_000_000_000 + 250_000)


def test_asking_writes_nothing(data: Path) -> None:
    with_node(data, talk)
    fill_lake(data)
    unfinished = data / "pipeline" / "lake" / "usage"
    unfinished.mkdir()
    assert query_duckdb(data, "SELECT count(*) FROM usage")[1] == [(0,)]
    assert list(unfinished.iterdir()) == []


def test_every_view_answers(data: Path) -> None:
    with_node(data, talk)
    fill_lake(data)
    for view in ("users", "chat_groups", "members", "messages", "receipts", "deliveries", "gaps", "latency"):
        names, rows = query_duckdb(data, f"SELECT * FROM {view}")
        assert names
        assert rows or view in ("gaps", "latency")
    _, rows = query_duckdb(data, "SELECT user_name, left_event IS NULL FROM members ORDER BY user_name")
    assert rows == [("alice", True), ("bob", True), ("carol", False)]
    _, rows = query_duckdb(data, "SELECT sender, recipient, text IS NULL FROM messages WHERE recalled_at IS NOT NULL")
    assert rows == [("alice", "bob", True)]
