"""The archive: every message once, whatever happens between the log and the lake. DuckDB is the judge."""

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

import duckdb

from pixiu.model.errors import Conflict
from pixiu.pipeline.lake.compaction import retain
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder
from tests.pipeline.logs import say, talk, with_node


def rows(table: LakeTable, what: str) -> list[Any]:
    """A query by DuckDB over the files of a table."""
    uris = table.uris()
    return duckdb.execute(f"SELECT {what} FROM read_parquet({uris})").fetchall() if uris else []


def log_ids(data: Path) -> list[int]:
    """The message ids that the log holds, by the source without Spark."""
    folder = JournalFolder(data)
    wanted = Wanted.rows_of("messages")
    return sorted(
        number
        for part in folder.plan(0, folder.end().event_id)
        for batch in decode(part, wanted)
        for number in batch.column("message_id").to_pylist()
    )


def lake_ids(pipeline: Pipeline) -> list[int]:
    return sorted(number for (number,) in rows(pipeline.table("messages"), "message_id"))


@pytest.fixture
def pipeline_of(spark: Any) -> Callable[..., Pipeline]:
    return lambda data, **options: Pipeline(data, lambda: spark, **options)


def test_archive(pipeline_of: Callable[..., Pipeline], data: Path) -> None:
    ids = with_node(data, talk)
    with pipeline_of(data, rows_per_trigger=40) as pipeline:
        added = pipeline.run(["archive"])
        assert lake_ids(pipeline) == log_ids(data)
        assert added["messages"] == len(log_ids(data))
        assert pipeline.run(["archive"]) == {"messages": 0, "deliveries": 0, "changes": 0, "traces": 0}

        recalled, kept = ids["private"][3], ids["private"][2]
        by_id = {
            row[0]: row[1:] for row in rows(pipeline.table("messages"), "message_id, text, recalled_at, day, bucket")
        }
        assert by_id[recalled][0] is None, "what was recalled is gone from the files"
        assert by_id[recalled][1] is not None
        assert by_id[kept][0] == "alice to bob 2"
        assert by_id[kept][2] == date.today()  # noqa: DTZ011 - tests run in one zone

        with_node(data, lambda node: say(node, 10, begin=100))
        pipeline.run(["archive"])
        assert lake_ids(pipeline) == log_ids(data)
        before = pipeline.table("messages").files()
        assert len(before) > 2
        done = {each.table: each for each in pipeline.compact(vacuum_hours=0)}
        assert done["messages"].files_after == 1
        assert lake_ids(pipeline) == log_ids(data)
        table = pipeline.table("messages")
        assert not any((table.folder / file.path).exists() for file in before), "vacuum removed them"
        found = rows(table, "message_id, conversation, bucket, read_at, delivered_at")
        assert [row[:3] for row in found] == sorted(
            [row[:3] for row in found], key=lambda row: (row[2], row[1], row[0])
        )
        assert {row[0] for row in found if row[3] is not None} == set(ids["private"][4:6])
        assert {row[0] for row in found if row[4] is not None} == {ids["private"][6]}

        assert retain(table, date(2021, 1, 1)) == 0
        assert retain(table, date(2121, 1, 1)) == 1
        assert table.through == pipeline.log.end().event_id, "what left by age is not read again"


@pytest.mark.long
def test_a_lost_checkpoint_is_said_and_costs_nothing(pipeline_of: Callable[..., Pipeline], data: Path) -> None:
    with_node(data, lambda node: say(node, 20))
    with pipeline_of(data) as pipeline:
        pipeline.run(["archive"])
    shutil.rmtree(data / "pipeline" / "checkpoints")
    with_node(data, lambda node: say(node, 10, begin=20))
    said: list[str] = []
    with pipeline_of(data, warn=said.append) as pipeline:
        pipeline.run(["archive"])
        assert lake_ids(pipeline) == log_ids(data)
    assert any("checkpoint of messages is lost" in line for line in said)

    shutil.rmtree(data / "pipeline" / "lake" / "messages")
    with_node(data, lambda node: say(node, 1, begin=30))
    said.clear()
    with pipeline_of(data, warn=said.append) as pipeline:
        pipeline.run(["archive"])
        assert lake_ids(pipeline) == log_ids(data)
    assert any("is set aside" in line for line in said)


def test_a_second_pipeline_is_refused(data: Path) -> None:
    with_node(data, lambda node: say(node, 1))

    def no_spark() -> Any:
        raise AssertionError("it is refused before Spark starts")

    with Pipeline(data, no_spark), pytest.raises(Conflict, match="another pipeline runs"):
        Pipeline(data, no_spark)
    with Pipeline(data, no_spark):
        pass
