"""The whole messaging platform in simulated worlds: it keeps its promises, and every literal error is caught.

A seed that fails is named with the shortest script that still fails; ``pixiu sim --seeds 1 --first SEED`` replays it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pixiu.testing.messaging.mutants import MUTANTS
from pixiu.testing.messaging.runs import explain, list_mutants, run_seeds
from pixiu.testing.messaging.script import BLOWS, draw_script
from pixiu.testing.messaging.weather import draw_messaging_weather
from pixiu.testing.messaging.world import run

pytestmark = pytest.mark.sim

GROUPS = 8
SEEDS = 160
SEEDS_LONG = 4_000
SEEDS_PER_MUTANT = 200

# Which checklist entry a literal error stands against.
ERRORS = {"race": "B19", "T6": "T6", "E24": "B19", "E22": "B20", "kick-drops": "B20", "unapplied": "R20"}


def check(seeds: range) -> None:
    total: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed)
        assert not result.failure, str(explain(seed))
        total.update(accepted=result.accepted, taken=result.taken, ends=result.ends)
    # A world in which nothing happens proves nothing.
    assert total["accepted"] > 15 * len(seeds)
    assert total["taken"] > 15 * len(seeds)
    assert total["ends"] > len(seeds) // 2


@pytest.mark.feature("B18", "B19", "B20", "T6", "R20")
@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_accepted_is_lost_doubled_or_reordered_and_the_world_comes_to_rest(group: int) -> None:
    size = SEEDS // GROUPS
    check(range(group * size, (group + 1) * size))


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.feature("B18", "B19", "B20", "T6", "R20")
@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_is_lost_over_thousands_of_seeds(group: int) -> None:
    size = SEEDS_LONG // GROUPS
    check(range(1_000_000 + group * size, 1_000_000 + (group + 1) * size))


@pytest.mark.feature("E20", "E21", "E22", "E23", "E24", "E25", "E43")
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(name, marks=pytest.mark.feature(ERRORS[name])) if name in ERRORS else name
        for name in MUTANTS
        if name
    ],
)
def test_a_literal_error_is_caught(mutant: str) -> None:
    summary = run_seeds(range(SEEDS_PER_MUTANT), mutant=mutant)
    assert summary.failed is not None, f"{mutant} passed {SEEDS_PER_MUTANT} seeds"
    assert summary.failed.failure.startswith("Violation: "), summary.failed


def test_a_mutant_leaves_no_trace() -> None:
    before = run(3).trace
    assert run(3, "E23").trace != before
    assert run(3).trace == before


def test_the_same_seed_gives_the_same_trace() -> None:
    assert [run(seed).trace for seed in range(8)] == [run(seed).trace for seed in range(8)]
    assert len({run(seed).trace for seed in range(8)}) == 8


def test_the_trace_does_not_depend_on_the_process() -> None:
    program = "from pixiu.testing.messaging.world import run; print([run(seed).trace for seed in range(5)])"
    expected = str([run(seed).trace for seed in range(5)])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.strip() == expected


def test_every_kind_of_blow_is_struck() -> None:
    struck: Counter[str] = Counter()
    for seed in range(SEEDS):
        draws = random.Random(seed)
        script = draw_script(draws, draw_messaging_weather(draws))
        struck.update(line.kind for line in script.lines if line.is_blow)
    assert {kind for kind in BLOWS if struck[kind] >= 5} == set(BLOWS)


def test_a_failure_is_told_with_a_short_script_and_the_command_that_replays_it() -> None:
    failed = run_seeds(range(SEEDS_PER_MUTANT), mutant="E22").failed
    assert failed is not None
    explanation = explain(failed.seed, "E22")
    numbers = explanation.replay.partition("--keep ")[2].split()[0]
    keep = [int(number) for number in numbers.split(",")]
    assert len(keep) < len(run(failed.seed, "E22").lines) // 2
    assert run(failed.seed, "E22", keep=keep).failure == explanation.failure
    assert explanation.failure.split(":")[1] == failed.failure.split(":")[1]


def test_the_document_lists_every_mutant() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/simulation.md").read_text(encoding="utf-8")
    text = text.partition("\n## The replicated log\n")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+?) \| \d+ \| .+ \|$", text, flags=re.MULTILINE))
    assert rows == list_mutants()
