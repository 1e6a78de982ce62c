"""What the cluster's benchmarks compute with, without running them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.cluster.failover import longest_gap
from benchmarks.cluster.load import body_of
from benchmarks.cluster.mesh import HEADERS_BYTES, simulated
from benchmarks.cluster.scaling import FIGURES, SHARD_REPLICAS, Habits, figures_from, plan
from pixiu.machines.links.sealing import HEAD_BYTES

if TYPE_CHECKING:
    from pathlib import Path

MEASURED = {
    "gateway_deliveries": 1_000_000.0,
    "gateway_frames": 100_000.0,
    "gateway_sends": 5_000.0,
    "proxy_messages": 200_000.0,
    "broker_messages": 100_000.0,
    "router_news": 50_000.0,
    "shard_leader": 50_000.0,
    "shard_follower": 100_000.0,
    "connection_kib": 15.0,
    "mesh_cpu_per_peer": 50e-6,
}


def test_a_plan_needs_what_is_measured_and_nothing_else() -> None:
    assert MEASURED.keys() == FIGURES.keys()
    for name in FIGURES:
        with pytest.raises(KeyError, match=name):
            plan({key: value for key, value in MEASURED.items() if key != name}, 1_000_000, Habits())


def test_more_people_need_more_and_a_faster_core_less() -> None:
    million = plan(MEASURED, 1_000_000, Habits())
    ten = plan(MEASURED, 10_000_000, Habits())
    assert ten.gateway == pytest.approx(10 * million.gateway, abs=10)
    hundred = plan(MEASURED, 100_000_000, Habits())
    assert hundred.shard == pytest.approx(10 * ten.shard, abs=10)
    assert ten.cores > million.cores > 0
    faster = plan({**MEASURED, "gateway_sends": 50_000.0}, 10_000_000, Habits())
    assert faster.gateway < ten.gateway
    assert faster.shard == ten.shard
    assert plan({**MEASURED, "shard_follower": 200_000.0}, 10_000_000, Habits()).shard < ten.shard


def test_messages_beyond_what_one_shard_leader_can_do_need_more_clusters() -> None:
    habits = Habits()
    most = int(MEASURED["shard_leader"] * habits.busy_share * 60 / habits.stored_per_minute)
    assert plan(MEASURED, most, habits).shards == 1
    beyond = plan(MEASURED, most + 1_000, habits)
    assert beyond.shards == 2
    assert beyond.bottleneck == "one shard's leader, 1.0 times what it can: 2 clusters"
    assert beyond.cores > plan(MEASURED, most, habits).cores


def test_shard_costs_its_leader_and_two_followers_and_at_least_a_core_each() -> None:
    habits = Habits(stored_per_minute=60, busy_share=1.0)
    assert plan(MEASURED, 10, habits).shard == SHARD_REPLICAS
    made = plan(MEASURED, 10_000_000, habits)
    assert made.shard == 10_000_000 / 50_000 + 2 * 10_000_000 / 100_000
    assert made.shards == 200


def test_memory_decides_where_people_say_nothing() -> None:
    quiet = Habits(stored_per_minute=0.001, in_rooms_share=0.0)
    assert "memory" in plan(MEASURED, 50_000_000, quiet).bottleneck


def test_figures_are_read_from_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"sections": [{"key": "scaling", "runs": [{"figures": MEASURED}]}]}))
    assert figures_from(path) == MEASURED
    path.write_text(json.dumps({"sections": [{"key": "path", "runs": []}]}))
    with pytest.raises(ValueError, match="no section scaling"):
        figures_from(path)


def test_the_gap_that_counts_is_the_one_after_the_strike() -> None:
    assert longest_gap([0.0, 5.0, 5.1, 7.0, 7.1], began=5.05) == pytest.approx(1.9)
    assert longest_gap([1.0, 2.0], began=3.0) == float("inf"), "nothing was accepted any more"


def test_bodies_have_the_size_that_was_asked_for() -> None:
    assert {len(body_of(f"load-{number}", 100)) for number in (0, 10, 100)} == {100}
    json.loads(body_of("load-0", 100))


def test_a_simulated_mesh_costs_a_beat_and_an_answer_for_each_other_node() -> None:
    cost = simulated(5, 2.0)
    assert cost.beats == 4
    beat, answer = 3 + 8, 3 + 13
    assert cost.bytes_out == 4 * (2 * (HEADERS_BYTES + HEAD_BYTES) + beat + answer)
