"""Many simulated clusters on all cores, for ``pixiu sim``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.testing.cluster.environment import STEPS, run
from pixiu.testing.cluster.mutants import MUTANTS, MUTANTS_OF_SHARDS
from pixiu.testing.seeds import Explanation, Outcome, Summary, judge, replay_of, run_until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CLUSTERS", "SHARDS", "Runs", "explain", "run_seeds"]

CHUNK = 2
SHRINK_TRIES = 30
NAMES = ("accepted", "stored", "failovers", "snapshots", "datagrams")
WORDS = (
    "messages accepted in rooms {accepted}, stored {stored}; failovers {failovers}, snapshots {snapshots}; "
    "datagrams {datagrams}"
)
"""What is counted, and how it is shown."""


class Runs:
    """One kind of simulated cluster."""

    def __init__(self, world: str, *, has_rooms: bool) -> None:
        self._world = world
        self._has_rooms = has_rooms

    def list_mutants(self) -> dict[str, str]:
        """Mutants of this world, and what each does."""
        return {
            name: words for name, (words, _) in MUTANTS.items() if self._has_rooms or name in MUTANTS_OF_SHARDS
        }  # fmt: skip

    def run_seeds(
        self,
        seeds: range,
        *,
        mutant: str = "",
        jobs: int = 1,
        keep: Sequence[int] | None = None,
        on_done: Callable[[int], object] = lambda count: None,
    ) -> Summary:
        """Run seeds in order until one fails."""
        one = partial(_run_one, mutant=mutant, keep=keep, has_rooms=self._has_rooms)
        return run_until_failure(one, seeds, jobs=jobs, chunk=CHUNK, on_done=on_done, names=NAMES, words=WORDS)

    def explain(self, seed: int, mutant: str = "", *, keep: Sequence[int] | None = None) -> Explanation:
        """Drop faults while the seed still fails."""

        def fails(lines: Sequence[int]) -> bool:
            return bool(run(seed, mutant, keep=lines, has_rooms=self._has_rooms).failure)

        kept = list(range(STEPS)) if keep is None else list(keep)
        if fails(kept):
            kept = shrink(kept, fails, tries_max=SHRINK_TRIES)
        last = run(seed, mutant, keep=kept, has_rooms=self._has_rooms)
        script = tuple(str(fault) for fault in last.script if fault.step in kept)
        return Explanation(seed, last.failure, script, replay_of(seed, kept, mutant, world=self._world))

    def trace_of(self, seed: int, mutant: str, *, keep: Sequence[int] | None) -> list[str]:
        """Everything that happens, line by line."""
        return list(run(seed, mutant, keep=keep, is_verbose=True, has_rooms=self._has_rooms).lines)


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None, has_rooms: bool) -> Outcome:
    def live() -> tuple[str, dict[str, int]]:
        result = run(seed, mutant, keep=keep, has_rooms=has_rooms)
        return result.failure, {name: getattr(result, name) for name in NAMES}

    return judge(seed, live)


CLUSTERS = Runs("cluster", has_rooms=True)
"""All roles of a cluster."""
SHARDS = Runs("shards", has_rooms=False)
"""The shard and its gateways alone, for a part of the cost."""
explain = CLUSTERS.explain
run_seeds = CLUSTERS.run_seeds
