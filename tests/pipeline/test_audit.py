"""Entries by Spark, as a rebuild needs them, against ``pixiu audit``. The books are tests/pipeline/test_books.py."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pixiu.backends.memory.stores import MemoryStores
from pixiu.node import cut_stopped
from pixiu.node.stopped import engine_without_loop
from pixiu.pipeline.jobs import audit as job
from pixiu.queue.log import EngineLog
from pixiu.roles.carrier.audit import Audit, AuditReport
from pixiu.roles.carrier.cut import Cut
from tests.pipeline.chaos import chaos
from tests.pipeline.logs import talk, with_node


def local_audit(data: Path, cut: Cut) -> AuditReport:
    """``pixiu audit`` with a cut of our own."""
    engine = engine_without_loop(data)
    engine.recover()
    try:
        audit = Audit(MemoryStores())
        for records in EngineLog(engine).scan(cut.event_id, 1000):
            for record in records:
                audit.take(record)
        return audit.close(cut)
    finally:
        engine.stop()


class Lake:
    """The tables of a log, straight from the source, and what the job makes of them."""

    def __init__(self, spark: Any, data: Path) -> None:
        def table(name: str) -> Any:
            return spark.read.format("pixiu").option("columns", name).load(str(data)).cache()

        self.spark = spark
        self.messages, self.deliveries, self.changes = map(table, ("messages", "deliveries", "changes"))
        self.inboxes = job.inboxes_of(self.changes).cache()
        meant = job.entries_of(self.messages, self.changes, self.inboxes).cache()
        self.entries = job.departures(meant, self.deliveries, self.changes, self.inboxes).cache()

    def counts(self) -> dict[str, int]:
        by_how = {row["how"]: row["count"] for row in self.entries.groupBy("how").count().collect()}
        return {
            "accepted": self.messages.count(),
            "intended": sum(by_how.values()),
            "acked": by_how.get("acked", 0),
            "expired": by_how.get("expired", 0),
            "dead": by_how.get("dead", 0),
            "waiting": by_how.get(None, 0),
        }


def named(report: AuditReport) -> set[tuple[Any, ...]]:
    return {
        (kind, row["reason"], row["user"], row["platform"], row["useq"], int(str(row["message_id"])))
        for kind, rows in (("lost", report.lost), ("duplicate", report.duplicates))
        for row in rows
    }


def spoil(cut: Cut, dice: random.Random) -> Iterator[str]:
    """Drop, double, swap and unbody entries of a cut."""
    full = [key for key, (_, entries, _) in cut.inboxes.items() if len(entries) >= 3]
    for key in dice.sample(full, min(4, len(full))):
        _, entries, missing = cut.inboxes[key]
        harm = dice.choice(["drop", "double", "swap", "body"])
        place = dice.randrange(len(entries) - 1)
        if harm == "drop":
            del entries[place]
        elif harm == "double":
            entries.append(entries[place]._replace(useq=entries[-1].useq + 1))
        elif harm == "swap":
            one, other = entries[place], entries[place + 1]
            entries[place], entries[place + 1] = one._replace(useq=other.useq), other._replace(useq=one.useq)
            entries.sort()
        else:
            missing.add(entries[place].message_id)
        yield harm


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_random_log(spark: Any, data: Path, seed: int) -> None:
    chaos(data, seed, 400)
    report = local_audit(data, cut_stopped(data))
    lake = Lake(spark, data)
    assert lake.counts() == {name: getattr(report, name) for name in lake.counts()}


@pytest.mark.long
def test_an_ordinary_log(spark: Any, data: Path) -> None:
    with_node(data, talk)
    report = local_audit(data, cut_stopped(data))
    lake = Lake(spark, data)
    assert lake.counts() == {name: getattr(report, name) for name in lake.counts()}


def test_an_inbox_that_is_emptied_in_time_is_not_replayed(spark: Any) -> None:
    """However much has come to it: only what waits takes room."""
    steps = []
    for useq in range(1, 21):
        steps += [(user, "ios", 10 * useq, -1, "added", useq, useq) for user in (1, 2, 3)]
        steps += [(1, "ios", 10 * useq + 1, 0, "acked", useq, useq)]
    steps += [(3, "ios", 55, 0, "acked", 1, 5), (3, "ios", 105, 0, "acked", 6, 10), (3, "ios", 155, 0, "acked", 1, 15)]
    schema = "user_id BIGINT, platform STRING, event_id BIGINT, part INT, what STRING, first_useq BIGINT, "
    frame = spark.createDataFrame(steps, schema + "through_useq BIGINT")
    assert [row.user_id for row in job.crowded_of(frame, 5).collect()] == [2]
    assert sorted(row.user_id for row in job.crowded_of(frame, 4).collect()) == [2, 3]
