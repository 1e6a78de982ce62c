"""All jobs over one log, twice: marts that add up, an audit that balances, views that both engines answer alike."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyspark")

from pixiu.model.errors import ConfigError
from pixiu.node import audit_stopped
from pixiu.pipeline.jobs.backfill import backfill, days_of_archive
from pixiu.pipeline.lake.schema import MART_SCHEMAS
from pixiu.pipeline.query import query_duckdb, query_spark
from pixiu.pipeline.runner import EVERY_JOBS, Pipeline
from pixiu.pipeline.search.embedded import look_at
from pixiu.pipeline.status import audit_of
from pixiu.pipeline.views import VIEWS
from tests.pipeline.logs import say, talk, with_node


def one(data: Path, query: str) -> tuple[Any, ...]:
    _, (row,) = query_duckdb(data, query)
    return row


@pytest.mark.long
def test_all_jobs(spark: Any, data: Path) -> None:
    with_node(data, talk)
    with Pipeline(data, lambda: spark) as pipeline:
        with pytest.raises(ConfigError, match="there is no job"):
            pipeline.run(["archives"])
        pipeline.run(EVERY_JOBS)
        found = look_at(data)
        assert found is not None
        assert (found[0].through, found[1]) == (pipeline.held_through(), 30), (
            "the job search reads what Spark has written"
        )
        with_node(data, lambda node: say(node, 7, begin=500))
        added = pipeline.run()
        assert added["messages"] == 7
        again = pipeline.run(["usage", "heat", "latency"])
        assert set(again) == set(MART_SCHEMAS)
        assert not any(again.values())
        check_marts(data)
        check_backfill(pipeline, data)
    check_marts(data)
    check_audit(data)
    check_engines(spark, data)


def check_marts(data: Path) -> None:
    """What two runs have added up to is what one look at the whole archive says."""
    assert one(data, "SELECT sum(messages), sum(bytes) FROM heat") == one(
        data, "SELECT count(*), sum(bytes) FROM lake_messages"
    )
    assert one(data, "SELECT sum(messages), sum(senders), sum(new_users) FROM usage") == (
        *one(
            data, "SELECT count(*), count(DISTINCT sender_id) FROM lake_messages WHERE notice IS NULL AND sender_id > 0"
        ),
        4,
    )
    assert one(data, "SELECT sum(messages) FROM usage_kinds") == one(data, "SELECT sum(messages) FROM usage")
    assert one(data, "SELECT sum(messages), max(max_ms) FROM latency WHERE hop = 'write'") == one(
        data, "SELECT count(*), max(unix_millis(written_at) - unix_millis(accepted_at)) FROM lake_messages"
    )
    assert one(data, "SELECT sum(messages) FROM latency WHERE hop = 'ack'")[0] > 10
    hops = {hop for (hop,) in query_duckdb(data, "SELECT DISTINCT hop FROM links")[1]}
    assert hops == {"write", "accept", "store", "push", "deliver", "ack"}
    assert one(data, "SELECT sum(messages) FROM lake_latency_buckets") == one(data, "SELECT sum(messages) FROM latency")
    assert one(data, "SELECT count(*) FROM latency WHERE p50_ms > p99_ms OR p99_ms > max_ms OR p50_ms IS NULL") == (0,)
    assert one(data, "SELECT count(*), count(DISTINCT user_id) FROM lake_first_days") == (4, 4)
    assert one(data, "SELECT sum(first_time_users), sum(sessions), max(peak_sessions) FROM usage") == (4, 2, 2)
    assert one(data, "SELECT min(cohort_users), sum(users) FROM retention WHERE day_number = 0") == (4, 4)


def check_backfill(pipeline: Pipeline, data: Path) -> None:
    """Days made again are what they were; what was wrong with them is gone, and other days are left alone."""
    first, last = days_of_archive(data)
    before = {
        name: query_duckdb(data, f"SELECT * FROM {name} ORDER BY ALL")[1] for name in ("usage", "heat", "latency")
    }
    throughs = {name: pipeline.mart(name).through for name in MART_SCHEMAS}
    heat = pipeline.mart("heat")
    heat.replace(heat.files()[:1], None, why="a test loses a file")
    assert query_duckdb(data, "SELECT * FROM heat ORDER BY ALL")[1] != before["heat"]
    for name in MART_SCHEMAS:
        backfill(pipeline, name, first, last)
    for name, rows in before.items():
        assert query_duckdb(data, f"SELECT * FROM {name} ORDER BY ALL")[1] == rows, name
    beyond = backfill(pipeline, "usage", last + timedelta(days=1), last + timedelta(days=2))
    assert beyond.rows_before == beyond.rows_after
    assert {name: pipeline.mart(name).through for name in MART_SCHEMAS} == throughs
    assert pipeline.files_max() > 1
    pipeline.compact()
    assert {len(pipeline.mart(name).files()) for name in MART_SCHEMAS} == {1}


def check_audit(data: Path) -> None:
    """Equal to the local audit; nothing is found where nothing is wrong."""
    report = audit_stopped(data)
    names = ("intended", "acked", "waiting", "expired", "dead", "resent")
    counted = one(data, f"SELECT {', '.join(f'sum({name})' for name in names)} FROM audit")
    assert dict(zip(names, map(int, counted), strict=True)) == {name: getattr(report, name) for name in names}
    assert query_duckdb(data, "SELECT * FROM findings")[1] == []
    assert audit_of(data)["balanced"] is True


def check_engines(spark: Any, data: Path) -> None:
    """DuckDB and Spark give the same rows for every view."""
    for view in VIEWS:
        names, rows = query_duckdb(data, f"SELECT * FROM {view}")
        spark_names, spark_rows = query_spark(spark, data, f"SELECT * FROM {view}")
        assert names == spark_names
        assert sorted(map(plain, rows)) == sorted(map(plain, spark_rows)), view


def plain(row: tuple[Any, ...]) -> list[str]:
    """A row in a form that does not depend on who made it."""
    return [
        str(value.timestamp()) if hasattr(value, "timestamp")
        else f"{float(value):.9g}" if isinstance(value, float) or type(value).__name__ == "Decimal"
        else str(bytes(value)) if isinstance(value, bytes | bytearray)
        else str(value)
        for value in row
    ]  # fmt: skip
