"""One batch for three tables, broken off at every point: nothing twice, nothing missing. Spark's part is played here.

The same with the real Spark and SIGKILL is tests/pipeline/test_kill.py; this one is through in seconds, so it tries
every point of every batch, also those between the commits of two tables.
"""

import json
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyspark")

import pyarrow as pa

from pixiu.model.errors import Conflict
from pixiu.pipeline.lake.feed import CRASH_POINTS, Feed
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.source.journal import JournalFolder
from tests.pipeline.logs import small_segments, talk, with_node
from tests.pipeline.test_archive import log_ids, rows

Written = namedtuple("Written", ["table", "name", "rows"])
BATCH = 50


class Crashed(Exception):
    """The process is gone."""


class Slices:
    """A DataFrame of slices, as far as a feed uses one. A task may be run twice: its first files are nobody's."""

    def __init__(self, values: list[tuple[str]]) -> None:
        self._batches = [pa.RecordBatch.from_pydict({"slice": [text]}) for (text,) in values]

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "Slices":  # noqa: N802 - Spark's name
        del schema
        self._function = function
        return self

    def collect(self) -> list[Written]:
        list(self._function(iter(self._batches[:1])))
        return [Written(*row.values()) for batch in self._function(iter(self._batches)) for row in batch.to_pylist()]


class Session:
    """A Spark session, as far as a feed's batch uses one."""

    def createDataFrame(self, values: list[tuple[str]], schema: str) -> Slices:  # noqa: N802 - Spark's name
        del schema
        return Slices(values)


class Spark:
    """Plans batches and remembers them, as Spark does in a checkpoint."""

    def __init__(self, data: Path, reached: Callable[[str], object]) -> None:
        place = Place(data)
        self.log = JournalFolder(data)
        tables = [LakeTable(place.lake, name, schema) for name, schema in LAKE_SCHEMAS.items()]
        session: Any = Session()
        self.feed = Feed(session, tables, place.checkpoints, {"path": str(data)}, BATCH, reached=reached)
        for name in ("offsets", "commits"):
            (self.feed.checkpoint / name).mkdir(parents=True, exist_ok=True)
        (self.feed.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
        (self.feed.checkpoint / "pixiu-start.json").write_text(json.dumps({"after": 0}))

    def run(self) -> None:
        end = self.log.end().event_id
        for number, after in enumerate(range(0, end, BATCH)):
            through = min(after + BATCH, end)
            if (self.feed.checkpoint / "commits" / str(number)).exists():
                continue
            (self.feed.checkpoint / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"event_id": {through}}}')
            self.feed._write(number)
            self.feed.reached("before-spark-commit")
            (self.feed.checkpoint / "commits" / str(number)).write_text("v1\n{}")


def breaks_off(data: Path, point: str, times: int) -> bool:
    """Run until a point is reached so many times; False if it ends before."""
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        seen += name == point
        if name == point and seen == times:
            raise Crashed

    try:
        Spark(data, reached).run()
    except Crashed:
        return True
    return False


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_broken_off(data: Path, point: str) -> None:
    with_node(data, talk, settings=small_segments())
    crashes = 0
    while breaks_off(data, point, crashes + 1):
        crashes += 1
    assert crashes >= 2
    feed = Spark(data, lambda name: None).feed
    tables = {table.name: table for table in feed.tables}
    assert sorted(number for (number,) in rows(tables["messages"], "message_id")) == log_ids(data)
    for name in ("deliveries", "changes"):
        keys = rows(tables[name], "event_id, part")
        assert len(keys) == len(set(keys)) > 0
    assert feed.through == JournalFolder(data).end().event_id


def test_a_hole_is_refused(data: Path) -> None:
    with_node(data, talk)
    spark = Spark(data, lambda name: None)
    (spark.feed.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"event_id": 5}')
    (spark.feed.checkpoint / "offsets" / "1").write_text('v1\n{}\n{"event_id": 9}')
    with pytest.raises(Conflict, match="events 1 to 5 would be missing"):
        spark.feed._write(1)
