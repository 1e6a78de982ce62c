"""Whole replicated journals in the simulated world: the right machine survives, every mutant is caught."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from pixiu.machines.replication import LeaveAsked
from pixiu.testing.replication import world as worlds
from pixiu.testing.replication.environment import NEMESIS_MS
from pixiu.testing.replication.world import World, explain, list_mutants, main, run
from pixiu.testing.shrink import shrink

pytestmark = pytest.mark.sim

SEEDS_PER_MUTANT = 300


def check(seeds: range) -> None:
    acked = 0
    for seed in seeds:
        result = run(seed)
        assert not result.failure, explain(result)
        acked += result.acked
    assert acked > 20 * len(seeds), "the worlds must be busy enough to mean something"


@pytest.mark.feature("X48", "X51", "X52", "X54")
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_nothing_acknowledged_is_lost_and_all_journals_become_equal(first: int) -> None:
    check(range(first, first + 50))


class DamagedWorld(World):
    """Now and then a node finds a damaged record in its journal, and later it is mended: others shall lead."""

    def run(self) -> None:
        dice = random.Random(len(self.script))
        for _ in range(6):
            at_ms, name = dice.uniform(500, NEMESIS_MS), dice.choice(list(self.nodes))
            self.simulation.after(at_ms, self._damage, name)
            self.simulation.after(at_ms + dice.uniform(100, NEMESIS_MS), self._mend, name)
        super().run()

    def _damage(self, name: str) -> None:
        node = self.nodes[name]
        self.registry.damaged |= {name}
        if node.is_up and not node.is_frozen:
            node.feed(LeaveAsked(stays=True))

    def _mend(self, name: str) -> None:
        self.registry.damaged -= {name}


def test_whoever_finds_damage_lets_others_lead_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "World", DamagedWorld)
    check(range(60))


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("first", range(1_000, 7_000, 500))
def test_thousands_of_seeds(first: int) -> None:
    check(range(first, first + 500))


# The literal errors that were weaknesses of smss's replication.
WEAKNESSES = {
    "lookup-by-record-start": "QE1",
    "append-error-advances": "QE2",
    "no-silence-timeout": "QE3",
}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(name, marks=pytest.mark.feature(WEAKNESSES[name])) if name in WEAKNESSES else name
        for name in list_mutants()
    ],
)
def test_a_literal_error_is_caught(mutant: str) -> None:
    assert any(run(seed, mutant).failure for seed in range(SEEDS_PER_MUTANT)), f"{mutant} passed every seed"


def test_the_same_seed_gives_the_same_trace() -> None:
    assert [run(seed).trace for seed in range(5)] == [run(seed).trace for seed in range(5)]
    assert len({run(seed).trace for seed in range(5)}) == 5


def test_the_trace_does_not_depend_on_the_process() -> None:
    program = "from pixiu.testing.replication.world import run; print([run(seed).trace for seed in range(4)])"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.strip() == str([run(seed).trace for seed in range(4)])


def test_a_failure_is_told_with_a_short_script_and_the_command_that_replays_it() -> None:
    result = next(found for found in (run(seed, "anyone-leads") for seed in range(SEEDS_PER_MUTANT)) if found.failure)
    text = explain(result)
    command = text.splitlines()[-1].removeprefix("replay: python -m pixiu.testing.replication.world ")
    blows = [line for line in text.splitlines() if line.startswith("  at ")]
    assert len(blows) < len(result.script)
    assert main(command.split()) == 1


def test_shrinking_keeps_exactly_what_is_needed() -> None:
    assert shrink(range(40), lambda kept: {3, 17, 31} <= set(kept)) == [3, 17, 31]
    assert shrink(range(5), lambda kept: True) == []
