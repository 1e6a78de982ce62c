"""A whole queue under power cuts, kills, torn, lost and reordered writes, full and failing disks: seed after seed.

A seed that fails is named in the failure; ``run_queue_world(seed)`` runs it again, step for step the same.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from pixiu.testing.queue.rot import RotWorld
from pixiu.testing.queue.world import run_queue_world
from tests.sim.queue_mutants import MUTANTS, ROT_MUTANTS

pytestmark = pytest.mark.sim

GROUPS = 8
SEEDS = 480
SEEDS_LONG = 6_000
ROT_SEEDS = 240
MUTANT_SEEDS_MAX = 400
FIRST_SEEDS = {"answers_many_with_one_error": 1390}
"""Of those that take long to give themselves away."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A crash is news everywhere but here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_seeds(seeds: range) -> Counter[str]:
    """Run them all; the first that fails says which one it was."""
    total: Counter[str] = Counter()
    for seed in seeds:
        try:
            report = run_queue_world(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        total.update(requests=report.requests, answered=report.answered, lost=report.lost, pushed=report.pushed)
        total.update(report.crashes)
    return total


@pytest.mark.feature("QB1", "QB2", "QB3")
@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(group: int) -> None:
    size = SEEDS // GROUPS
    total = run_seeds(range(group * size, (group + 1) * size))
    # A world in which nothing happens proves nothing.
    assert total["answered"] > 20 * size
    assert total["pushed"] > 5 * size
    assert total["machine"] > size // 2
    assert total["kill"] > size // 2


@pytest.mark.long
@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_acknowledged_is_lost_doubled_or_reordered_over_thousands_of_seeds(group: int) -> None:
    size = SEEDS_LONG // GROUPS
    run_seeds(range(1_000_000 + group * size, 1_000_000 + (group + 1) * size))


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(12):
        first, second = run_queue_world(seed), run_queue_world(seed)
        assert first == second
        assert first.trace != run_queue_world(seed + 100).trace


@pytest.mark.parametrize("name", MUTANTS)
def test_the_world_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    first = FIRST_SEEDS.get(name, 0)
    for seed in range(first, first + MUTANT_SEEDS_MAX):
        try:
            run_queue_world(seed)
        except Exception:  # noqa: BLE001 - whatever gives it away
            return
    pytest.fail(f"{MUTANT_SEEDS_MAX} seeds, and nobody noticed")


@pytest.mark.feature("QB1", "QB2")
def test_a_flipped_bit_is_reported_with_its_place_or_repaired_and_never_served() -> None:
    verdicts: Counter[tuple[str, str]] = Counter()
    for seed in range(ROT_SEEDS):
        world = RotWorld(seed)
        try:
            verdict = world.rot()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        verdicts[world.kind, verdict] += 1
    assert verdicts["journal.log", "reported"] + verdicts["journal.log", "refused"] > ROT_SEEDS // 6
    assert verdicts["topics.log", "reported"] > ROT_SEEDS // 10
    assert verdicts["journal.log", "harmless"] == 0


@pytest.mark.long
def test_thousands_of_flipped_bits() -> None:
    for seed in range(1_000_000, 1_006_000):
        try:
            RotWorld(seed).rot()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("name", ROT_MUTANTS)
def test_the_rotten_world_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ROT_MUTANTS[name](monkeypatch)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            RotWorld(seed, ("journal.log", "topics.log")).rot()
        except Exception:  # noqa: BLE001 - whatever gives it away
            return
    pytest.fail(f"{MUTANT_SEEDS_MAX} seeds, and nobody noticed")
