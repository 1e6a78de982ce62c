"""Books that are brought up step by step are those that are made at once, and those of ``pixiu audit`` and DuckDB.

Spark only hands tasks out; here they run in this process, but for one test.
"""

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import HistoryTrimmed, Record
from pixiu.node import audit_stopped, cut_stopped
from pixiu.node.erasure import erase_stopped
from pixiu.pipeline.books import run as books_run
from pixiu.pipeline.books.keys import hashes_of, look_up
from pixiu.pipeline.checker import check_audit
from pixiu.pipeline.lake.erasure import blank_lake
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.query import query_duckdb
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.status import audit_of
from pixiu.ports.log import MAIN
from pixiu.roles.carrier.cut import Cut
from tests.pipeline.chaos import chaos
from tests.pipeline.logs import say, talk, with_node
from tests.pipeline.test_audit import local_audit, named, spoil

ROOT = Path(__file__).resolve().parents[2]
PART_ROWS = 20

Done = namedtuple("Done", ["done"])


class Tasks:
    """A DataFrame of tasks, as far as an audit uses one. A task may be run twice."""

    def __init__(self, texts: list[tuple[str]], schema: str, began: Callable[[int], object]) -> None:
        self._batches = [pa.RecordBatch.from_pydict({"task": [text]}) for (text,) in texts]
        self._began = began
        del schema

    def repartition(self, count: int) -> "Tasks":
        assert count == len(self._batches)
        return self

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "Tasks":  # noqa: N802 - Spark's name
        self._function = function
        del schema
        return self

    def collect(self) -> list[Done]:
        list(self._function(iter(self._batches[:1])))
        return [Done(row["done"]) for batch in self._function(self._in_turn()) for row in batch.to_pylist()]

    def _in_turn(self) -> Iterator[Any]:
        for number, batch in enumerate(self._batches):
            self._began(number)
            yield batch


class Session:
    """A Spark session, as far as an audit uses one. ``began`` is told of every task."""

    def __init__(self, began: Callable[[int], object] = lambda number: None) -> None:
        self._began = began

    def createDataFrame(self, texts: list[tuple[str]], schema: str) -> Tasks:  # noqa: N802 - Spark's name
        return Tasks(texts, schema, self._began)


class Crashed(Exception):
    """The process is gone."""


def no_cut(data: Path) -> Cut:
    raise Unavailable("nobody looks")


def audit(
    data: Path, cut: Callable[[Path], Cut] = no_cut, *, told: list[str] | None = None, dies_at: str = "",
    spark: Any = None,
) -> Pipeline:  # fmt: skip
    def reached(point: str) -> None:
        if point == dies_at:
            raise Crashed

    session: Any = spark or Session()
    said: list[str] = [] if told is None else told
    with Pipeline(data, lambda: session, take_cut=cut, warn=said.append, reached=reached) as pipeline:
        assert set(pipeline.run(["audit"])) == {"audit", "findings"}
    return pipeline


def books(data: Path) -> tuple[list[Any], set[Any]]:
    found = query_duckdb(data, "SELECT finding, reason, user_id, platform, useq, message_id FROM findings")[1]
    assert len(found) == len(set(found))
    return query_duckdb(data, "SELECT * FROM audit ORDER BY window_start, user_id, platform")[1], set(found)


def at_once(data: Path, cut: Callable[[Path], Cut]) -> tuple[list[Any], set[Any]]:
    """The books of the same lake, from its beginning."""
    for path in (data / "pipeline" / "books").glob("0*"):
        (path / "state.json").unlink()
    told: list[str] = []
    audit(data, cut, told=told)
    assert any("made again" in text for text in told)
    return books(data)


def in_steps(data: Path, seed: int, steps: int, cut: Cut) -> tuple[list[Any], set[Any]]:
    """The books through random events, and through the end."""
    for event in sorted(random.Random(seed).sample(range(2, cut.event_id), steps)):
        fill_lake(data, through=event)
        audit(data)
    fill_lake(data, through=cut.event_id)
    told: list[str] = []
    audit(data, lambda _: cut, told=told)
    assert told == []
    return books(data)


def balanced(data: Path) -> None:
    """``pixiu audit``, DuckDB's query and the books say the same."""
    report, found = audit_stopped(data), audit_of(data)
    names = ("intended", "acked", "expired", "dead")
    assert {name: found[name] for name in names} == {name: getattr(report, name) for name in names}
    assert found["waiting"] == found["expected_waiting"] == report.waiting
    checked = check_audit(data, report.cut)
    assert {name: checked[name] for name in names} == {name: found[name] for name in names}
    rows = query_duckdb(data, "SELECT count(*) FROM audit WHERE intended <> acked + waiting + expired + dead")[1]
    assert rows == [(0,)]


@pytest.fixture
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users are in several parts."""
    monkeypatch.setattr(books_run, "ROWS_PER_PART", PART_ROWS)


def test_an_ordinary_log(data: Path) -> None:
    with_node(data, talk)
    cut = cut_stopped(data)
    stepped = in_steps(data, 1, 3, cut)
    balanced(data)
    assert audit_of(data)["balanced"] is True
    assert audit_of(data)["resent"] == audit_stopped(data).resent
    assert stepped == at_once(data, lambda _: cut)
    assert {row[2] for row in stepped[0]} == {"first", "ios", "web", "tv"}


@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize("seed", [187, *(pytest.param(seed, marks=pytest.mark.long) for seed in (*range(20), 156))])
def test_a_random_log(data: Path, seed: int) -> None:
    """Rows of the ledger say things of entries that left long ago; stores have lost, doubled and swapped entries.

    In the logs of 156 and 187 a ledger calls an entry both expired and dead.
    """
    chaos(data, seed, 400)
    cut = cut_stopped(data)
    stepped = in_steps(data, seed, 4, cut)
    balanced(data)
    assert stepped[1] == set()
    assert list(spoil(cut, random.Random(seed)))
    cut.inboxes[99, "ios"] = next(iter(cut.inboxes.values()))
    audit(data, lambda _: cut)
    spoilt = books(data)
    assert spoilt[1] == named(local_audit(data, cut))
    assert spoilt == at_once(data, lambda _: cut)
    audit(data, cut_stopped)
    assert books(data) == stepped, "what was mended is no longer found"
    assert sum(row[9] for row in stepped[0]) > 0, "some were handed over out of order"


@pytest.mark.long
@pytest.mark.usefixtures("_parts")
def test_tasks_of_spark(spark: Any, data: Path) -> None:
    """The same books, and marts that read what is new, where Spark runs the tasks."""
    chaos(data, 3, 200)
    cut = cut_stopped(data)
    fill_lake(data, through=cut.event_id // 2)
    audit(data, spark=spark)
    fill_lake(data)
    audit(data, lambda _: cut, spark=spark)
    assert books(data) == at_once(data, lambda _: cut)
    balanced(data)
    with Pipeline(data, lambda: spark) as pipeline:
        pipeline.run(["usage", "heat", "latency"])
        before = pipeline.rows_read["messages"]
        with_node(data, lambda node: say(node, 10))
        fill_lake(data)
        pipeline.run(["usage", "heat", "latency"])
        # By usage, presence, first_days and heat; by latency once for both of its tables.
        assert pipeline.rows_read["messages"] - before <= 10 * 6


@pytest.mark.parametrize("point", ["audit-written", "audit-committed"])
def test_killed(data: Path, point: str) -> None:
    """Broken off before and behind the commit: the next run brings the same books."""
    chaos(data, 1, 300)
    cut = cut_stopped(data)
    fill_lake(data, through=cut.event_id // 2)
    with pytest.raises(Crashed):
        audit(data, dies_at=point)
    audit(data)
    fill_lake(data)
    with pytest.raises(Crashed):
        audit(data, lambda _: cut, dies_at=point)
    audit(data, lambda _: cut)
    broken = books(data)
    balanced(data)
    assert broken == at_once(data, lambda _: cut)


@pytest.mark.crash
@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize(
    "point",
    [
        "task-3",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("task-1", "audit-written", "audit-committed")),
    ],
)
def test_killed_with_sigkill(data: Path, point: str) -> None:
    """A process dies with some tasks done, before and behind the commit: the next run brings the same books."""
    chaos(data, 2, 300)
    cut = cut_stopped(data)
    for through in (cut.event_id // 2, cut.event_id):  # books from nothing, and books that are brought up
        fill_lake(data, through=through)
        command = [sys.executable, "-m", "tests.pipeline.audit_child", str(data), point]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)
        assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
        told: list[str] = []
        audit(data, no_cut if through < cut.event_id else lambda _: cut, told=told)
        assert not any("made again" in text for text in told)
    taken_up = books(data)
    balanced(data)
    assert taken_up == at_once(data, lambda _: cut)
    kept = {path.name for path in (data / "pipeline" / "books").iterdir()} - {"keys"}
    assert kept == {f"{cut.event_id:020d}"}, "nothing of the broken runs is left"


@pytest.mark.feature("R20")
@pytest.mark.usefixtures("_parts")
def test_a_user_is_erased_between_two_audits(data: Path) -> None:
    """Files are written again without what was said; no row is counted twice, and what comes later is added."""
    with_node(data, talk)
    fill_lake(data)
    audit(data, cut_stopped)
    before = {row[2]: row[3:] for row in books(data)[0]}
    erase_stopped(data, "bob")
    fill_lake(data)
    assert sum(each.rewritten for each in blank_lake(Place(data).lake)) > 0
    told: list[str] = []
    pipeline = audit(data, cut_stopped, told=told)
    assert told == []
    assert pipeline.rows_read["messages"] < 10, "the files that were written again are not read again"
    balanced(data)
    stepped = books(data)
    assert stepped[1] == set()
    assert {row[2]: row[3:] for row in stepped[0]} != before, "what waited for the user has ended"
    with_node(data, lambda node: say(node, 5, begin=500, to="dave"))
    fill_lake(data)
    blank_lake(Place(data).lake)
    audit(data, cut_stopped)
    balanced(data)
    assert books(data) == at_once(data, cut_stopped)


def test_what_an_audit_reads_follows_what_is_new(data: Path) -> None:
    """The same files and rows, however much came before; and none without news."""
    with_node(data, talk)
    fill_lake(data)
    audit(data)
    read: list[tuple[Counter[str], Counter[str]]] = []
    for step in range(3):
        with_node(data, partial(say, count=10, begin=1000 * (step + 1)))
        fill_lake(data)
        pipeline = audit(data)
        read.append((pipeline.files_read, pipeline.rows_read))
    assert read[0][1]["messages"] == 10
    assert read[0] == read[1] == read[2]
    assert not audit(data).files_read.total()


def test_what_was_accepted_twice_is_found_once_and_stays(data: Path) -> None:
    with_node(data, talk)
    fill_lake(data)
    audit(data)
    messages = data / "pipeline" / "lake" / "messages"
    (path,) = messages.glob("data/*/*.parquet")
    (row,) = [each for each in pq.read_table(path).to_pylist() if each["send_id"] == "bob3"]
    with_node(data, lambda node: say(node, 3, begin=700))
    fill_lake(data)
    (new,) = [file for file in messages.glob("data/*/*.parquet") if file != path]
    table = pq.read_table(new)
    rows = table.to_pylist()
    rows[1] |= {"send_id": row["send_id"], "sender_id": row["sender_id"]}
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), new)
    audit(data)
    expected = {("duplicate", "accepted twice", None, None, None, rows[1]["message_id"])}
    assert books(data)[1] == expected
    with_node(data, lambda node: say(node, 2, begin=800))
    fill_lake(data)
    audit(data)
    assert books(data)[1] == expected


def test_a_send_id_that_was_forgotten_may_be_used_again(data: Path) -> None:
    """History was trimmed between the two, and the second is no repetition; a third one would be."""

    async def again(node: Any) -> None:
        first = await node.send("ann", to="bob", text="one", send_id="same")
        number = node.messaging.proxy.context.directory.user("ann")
        key = number.to_bytes(8, "big") + b"same"
        cut = HistoryTrimmed(through=int(first["message_id"]), users=[number], keys=[key])
        done = asyncio.Event()
        node.host.log.publish(MAIN, Record(at=1, trimmed=cut).SerializeToString(), lambda _: done.set())
        await done.wait()
        second = first
        while second["message_id"] == first["message_id"]:  # until it is applied, it is a repeat
            second = await node.send("ann", to="bob", text="two", send_id="same")

    async def settle(node: Any) -> None:
        for name in ("ann", "bob"):
            await node.create_user(name)
        await again(node)

    with_node(data, settle)
    fill_lake(data)
    audit(data)
    assert not [each for each in books(data)[1] if each[0] == "duplicate"]


def test_keys_that_were_there_before(tmp_path: Path) -> None:
    """Files are searched and merged: there are few of them, whatever comes."""
    dice = np.random.default_rng(1)
    names: list[str] = []
    seen: set[int] = set()
    for _ in range(50):
        keys = dice.integers(0, 5_000, int(dice.integers(1, 60)))
        expected = sorted({int(key) for key in keys if int(key) in seen or list(keys).count(key) > 1})
        names, found = look_up(keys, tmp_path, names)
        assert found.tolist() == expected
        seen |= {int(key) for key in keys}
        sizes = [len(np.load(tmp_path / name)) for name in names]
        assert sorted(sizes, reverse=True) == sizes
        assert len(sizes) <= 12
    assert {int(key) for name in names for key in np.load(tmp_path / name)} == seen


def test_hashes_tell_senders_and_texts_apart() -> None:
    texts = ["", "a", "b", "ab", "ba", "aa", "中文", *(f"x{number}" for number in range(2000))]
    senders = np.arange(3).repeat(len(texts))
    found = hashes_of(senders, pa.array(texts * 3))
    assert len(set(found.tolist())) == 3 * len(texts)
    assert (hashes_of(senders[5:9], pa.array(texts * 3)[5:9]) == found[5:9]).all()
