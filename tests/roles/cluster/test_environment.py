"""Whole clusters under faults, seed after seed; see ``pixiu.testing.cluster.environment``."""

import asyncio
import gc
import random

import pytest

from pixiu.testing.cluster.durable import Durable
from pixiu.testing.cluster.environment import run
from pixiu.testing.cluster.mutants import MUTANTS_OF_SHARDS, mutated
from pixiu.testing.cluster.runs import CLUSTERS, SHARDS, explain, run_seeds
from pixiu.testing.cluster.shards import ShardNode
from pixiu.testing.cluster.world import Cluster, Node

pytestmark = pytest.mark.sim

STORED = 40
"""Messages that people write to each other in every world."""


@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X48", "X62", "X74")
def test_one_seed() -> None:
    summary = run_seeds(range(3, 4))
    assert summary.failed is None, explain(summary.failed.seed)
    assert summary.accepted > 10
    assert summary.counts["stored"] == STORED, "people write to each other in the same world"


@pytest.mark.feature("X48", "X50", "X51", "X62")
def test_shards_alone_fail_over_and_copy_snapshots() -> None:
    summary = SHARDS.run_seeds(range(2, 8))
    assert summary.failed is None, SHARDS.explain(summary.failed.seed)
    assert summary.counts["stored"] == 6 * STORED
    assert summary.counts["failovers"] and summary.counts["snapshots"]


def is_sent_after_leading_again() -> bool:
    """One replica leads, another one takes a scheduled message, and the first one leads again when it is due."""
    cluster = Cluster(random.Random(7), heartbeat_ms=1_000)
    cluster.add_gateway()
    durable = Durable(cluster, random.Random(8), replicas=2)
    one, other = durable.people[:2]
    try:
        assert cluster.run_until(durable.rests, within_ms=60_000), durable.unsettled()
        first = hand_over(cluster, durable)
        one.schedule(other.user, "later", in_ms=15_000)
        assert cluster.run_until(lambda: "later" in one.scheduled, within_ms=10_000)
        hand_over(cluster, durable)
        assert durable.leader is first
        return cluster.run_until(durable.rests, within_ms=60_000) and not durable.judge()
    finally:
        durable.end()


def hand_over(cluster: Cluster, durable: Durable) -> ShardNode:
    """Let another replica lead. Returns the one that has led."""
    before = durable.leader
    assert before is not None
    before.freeze()
    assert cluster.run_until(lambda: any(node is not before and node.is_serving for node in durable.nodes.values()))
    before.thaw()
    assert cluster.run_until(lambda: durable.leader is not None and durable.leader.replication.in_sync_count == 2)
    return before


@pytest.mark.parametrize("mutant", ["", "delays-asleep"])
def test_a_replica_that_leads_again_sends_scheduled_messages(mutant: str) -> None:
    with mutated(mutant):
        assert is_sent_after_leading_again() == (not mutant)


def test_a_seed_is_one_run() -> None:
    first, again = (run(2, has_rooms=False) for _ in range(2))
    assert (first.stored, first.failovers, first.snapshots, first.datagrams, first.virtual_us) == (
        again.stored, again.failovers, again.snapshots, again.datagrams, again.virtual_us,
    )  # fmt: skip


def test_turns_of_a_process_leave_nothing_for_the_collector() -> None:
    cluster = Cluster(random.Random(1))
    scheduler = Node(cluster, "publisher").scheduler
    gc.collect()
    gc.disable()
    try:
        for _ in range(1_000):
            scheduler.soon(lambda: None)
            scheduler.after(1, lambda: None)
        cluster.run(10)
        assert gc.collect() < 1_000
    finally:
        gc.enable()


def test_an_audit_ends_with_the_leadership_of_its_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(random.Random(5), heartbeat_ms=1_000)
    cluster.add_gateway()
    durable = Durable(cluster, random.Random(6), replicas=2)
    try:
        durable.talk(4)
        assert cluster.run_until(durable.rests, within_ms=60_000), durable.unsettled()
        auditor = durable.leader
        assert auditor is not None
        assert auditor.host is not None
        monkeypatch.setattr(auditor.host, "applied", lambda: asyncio.Event().wait())  # the next record never comes
        durable.audit(auditor)
        auditor.freeze()
        cluster.run(5_000)
        auditor.thaw()
        cluster.run(5_000)
        assert not auditor.is_serving
        assert cluster.run_until(durable.rests, within_ms=60_000), durable.unsettled()
        assert durable.judge() == ""
    finally:
        durable.end()


CAUGHT_SOON = {
    "swap-without-compare": 0, "serve-unapplied": 23, "stale-leader": 0, "pushes-on": 21, "tasks-again": 2,
    "snapshot-without-inboxes": 2, "snapshot-torn": 2, "snapshot-without-stores": 2,
}  # fmt: skip
"""The first seed that caught each mutant when this was written. Another change may need some seeds more."""


@pytest.mark.parametrize("mutant", CAUGHT_SOON)
def test_mutants_of_shards_are_caught_soon(mutant: str) -> None:
    first = CAUGHT_SOON[mutant]
    assert SHARDS.run_seeds(range(first, first + 40), mutant=mutant).failed is not None


def test_the_worlds_list_their_mutants() -> None:
    assert SHARDS.list_mutants().keys() == MUTANTS_OF_SHARDS <= CLUSTERS.list_mutants().keys()
    assert CAUGHT_SOON.keys() | {"delays-asleep"} == MUTANTS_OF_SHARDS


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mutant", sorted(MUTANTS_OF_SHARDS))
def test_every_mutant_of_shards_is_caught(mutant: str) -> None:
    summary = SHARDS.run_seeds(range(200), mutant=mutant, jobs=2)
    assert summary.failed is not None, mutant


@pytest.mark.long
@pytest.mark.feature("X48", "X50", "X51", "X62")
@pytest.mark.timeout(14_400)
def test_many_seeds_of_shards() -> None:
    summary = SHARDS.run_seeds(range(1_000), jobs=2)
    assert summary.failed is None, SHARDS.explain(summary.failed.seed)


@pytest.mark.long
@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X48", "X62", "X71", "X73", "X74")
@pytest.mark.timeout(14_400)
def test_many_seeds() -> None:
    summary = run_seeds(range(1_000), jobs=2)
    assert summary.failed is None, explain(summary.failed.seed)
