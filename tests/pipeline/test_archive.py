"""The archive: every message once, whatever happens between the log and the lake. DuckDB is the judge."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.model.errors import Conflict
from pixiu.pipeline.lake.compaction import compact, first_ack, kept_from
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.query import query_duckdb, query_spark
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
        check_marts_are_compacted(pipeline, data)


def check_marts_are_compacted(pipeline: Pipeline, data: Path) -> None:
    """Partial sums of two runs become one file, with the same sums; files that nobody needs go, the audit's too."""
    lake = sorted(path.name for path in pipeline.place.lake.iterdir())
    assert query_spark(pipeline.spark, data, "SELECT count(*) FROM heat")[1] == [(0,)]
    assert sorted(path.name for path in pipeline.place.lake.iterdir()) == lake, "asking writes nothing"
    pipeline.run(["usage"])
    with_node(data, lambda node: say(node, 3, begin=200))
    pipeline.run(["archive", "usage"])
    sums = query_duckdb(data, "SELECT what, sum(messages), sum(bytes), count(*) FROM lake_usage GROUP BY what")[1]
    table = LakeTable(pipeline.place.lake, "usage", MART_SCHEMAS["usage"])
    before = table.files()
    assert len(before) == 2
    audit = LakeTable(pipeline.place.lake, "findings", AUDIT_SCHEMAS["findings"])
    unused = audit.folder / audit.new_folder("unfinished")
    unused.mkdir(parents=True)
    pipeline.compact(vacuum_hours=0)
    table.refresh()
    assert len(table.files()) == 1
    assert not any((table.folder / file.path).exists() for file in before)
    assert not unused.exists()
    added = query_duckdb(data, "SELECT what, sum(messages), sum(bytes), count(*) FROM lake_usage GROUP BY what")[1]
    assert sorted(row[:3] for row in added) == sorted(row[:3] for row in sums)
    assert {row[0]: row[3] for row in added}["sent"] < {row[0]: row[3] for row in sums}["sent"]


DAYS = [date(2030, 1, 1), date(2030, 1, 2), date(2030, 1, 9)]


def test_days_that_are_too_old_leave_by_rewriting(spark: Any, data: Path) -> None:
    with_node(data, lambda node: say(node, 1))
    said: list[str] = []
    with Pipeline(data, lambda: spark, warn=said.append) as pipeline:
        table = pipeline.table("deliveries")
        for number, days in enumerate((DAYS[:1], DAYS[:2], DAYS[2:])):
            put(table, [{"day": day, "what": "acked", "event_id": number} for day in days], through=10 + number)
        done = compact(lambda: spark, table, pipeline.table("changes"), oldest=DAYS[1], target_bytes=1)
        assert (done.files_before, done.files_after, done.rewritten) == (3, 2, 1)
        assert sorted(rows(table, "day")) == [(day,) for day in DAYS[1:]]
        assert table.through == 12, "what left by age is not read again"
        assert kept_from(table) == DAYS[1]

        messages = pipeline.table("messages")
        assert compact(lambda: spark, messages, pipeline.table("changes"), oldest=DAYS[1]).rewritten == 0
        assert pipeline.run(["audit"]) == {}
    assert "no audit: retention let messages go from before 2030-01-02" in said[0]


def test_acks_are_matched_with_hand_overs_before_the_first_of_them(spark: Any, data: Path) -> None:
    with_node(data, lambda node: say(node, 1))
    with Pipeline(data, lambda: spark) as pipeline:
        table = pipeline.table("deliveries")
        moments = [datetime.combine(day, time(12), UTC) for day in DAYS]
        put(
            table,
            [
                {"event_id": 11 + 2 * place + part, "what": what, "noted_at": moment, "day": moment.date()}
                for place, moment in enumerate(moments)
                for part, what in enumerate(("handed", "acked"))
            ],
            through=20,
        )
        assert first_ack(table, 10, 20) == moments[0]
        assert first_ack(table, 14, 20) == moments[2]
        assert first_ack(table, 20, 20) is None
        assert pipeline._handed(10, 20).count() == 6
        assert [row.event_id for row in pipeline._handed(14, 20).orderBy("event_id").collect()] == [15, 16]
        assert pipeline._handed(20, 20).count() == 0


def put(table: LakeTable, values: list[dict[str, Any]], *, through: int) -> None:
    """Rows as a file of their own; what they do not say is null."""
    folder = table.new_folder("put")
    (table.folder / folder).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(values, schema=table.schema), table.folder / folder / "rows.parquet")
    table.append(folder, through=through)


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
    assert any("checkpoint of the archive is lost" in line for line in said)

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
