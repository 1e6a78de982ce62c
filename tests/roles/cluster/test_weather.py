"""Whole clusters under everything at once, seed after seed; see ``pixiu.testing.cluster.weather``."""

import gc
import random

import pytest

from pixiu.testing.cluster.durable import Durable
from pixiu.testing.cluster.mutants import MUTANTS_OF_CARRIERS
from pixiu.testing.cluster.runs import CARRIERS, CLUSTERS, explain, run_seeds
from pixiu.testing.cluster.weather import run
from pixiu.testing.cluster.world import Cluster, Node

pytestmark = pytest.mark.sim


@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X48", "X62", "X74")
def test_one_seed() -> None:
    summary = run_seeds(range(3, 4))
    assert summary.failed is None, explain(summary.failed.seed)
    assert summary.accepted > 10
    assert summary.counts["stored"] == 40, "what people write to each other, in the same world"


@pytest.mark.feature("X48", "X50", "X51", "X62")
def test_carriers_alone_die_move_and_take_snapshots() -> None:
    summary = CARRIERS.run_seeds(range(2, 5))
    assert summary.failed is None, CARRIERS.explain(summary.failed.seed)
    assert summary.counts["stored"] == 3 * 40
    assert summary.counts["failovers"] and summary.counts["snapshots"]


def test_a_seed_is_one_run() -> None:
    first, again = (run(2, has_rooms=False) for _ in range(2))
    assert (first.stored, first.failovers, first.snapshots, first.datagrams, first.virtual_us) == (
        again.stored, again.failovers, again.snapshots, again.datagrams, again.virtual_us,
    )  # fmt: skip


def test_turns_of_a_process_leave_nothing_for_the_collector_to_look_for() -> None:
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


def test_an_audit_ends_with_the_turn_of_its_carrier() -> None:
    # It would wait for ever for what nobody applies any more, and the next one for it.
    cluster = Cluster(random.Random(5), heartbeat_ms=1_000)
    cluster.add_gateway()
    durable = Durable(cluster, random.Random(6), partitions=1, replicas=2)
    try:
        durable.talk(4)
        assert cluster.run_until(durable.rests, within_ms=60_000), durable.unsettled()
        auditor = next(node for node in durable.nodes.values() if node.life.is_serving)
        durable.log.is_out = True
        durable.audit(auditor)
        cluster.run(100)
        auditor.freeze()
        cluster.run(5_000)
        durable.log.is_out = False
        auditor.thaw()
        cluster.run(5_000)
        assert not auditor.life.is_serving
        assert cluster.run_until(durable.rests, within_ms=60_000), durable.unsettled()
        assert durable.judge() == ""
    finally:
        durable.end()


def test_an_error_that_is_put_back_is_caught_and_told() -> None:
    caught = CARRIERS.run_seeds(range(20), mutant="swap-without-compare")
    assert caught.failed is not None
    assert "I6" in caught.failed.failure
    assert CARRIERS.list_mutants().keys() == MUTANTS_OF_CARRIERS <= CLUSTERS.list_mutants().keys()


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mutant", sorted(MUTANTS_OF_CARRIERS))
def test_every_error_of_carriers_is_caught(mutant: str) -> None:
    summary = CARRIERS.run_seeds(range(200), mutant=mutant, jobs=2)
    assert summary.failed is not None, mutant


@pytest.mark.long
@pytest.mark.feature("X48", "X50", "X51", "X55", "X61", "X62")
@pytest.mark.timeout(14_400)
def test_many_seeds_of_carriers() -> None:
    summary = CARRIERS.run_seeds(range(1_000), jobs=2)
    assert summary.failed is None, CARRIERS.explain(summary.failed.seed)


@pytest.mark.long
@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X48", "X55", "X62", "X71", "X73", "X74")
@pytest.mark.timeout(14_400)
def test_many_seeds() -> None:
    summary = run_seeds(range(1_000), jobs=2)
    assert summary.failed is None, explain(summary.failed.seed)
