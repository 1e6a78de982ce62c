"""Many worlds of the replicated log on all cores, as ``messaging.runs`` has it for whole platforms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.testing.replication.world import list_mutants, run
from pixiu.testing.seeds import Explanation, Outcome, Summary, judge, replay_of, run_until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["explain", "list_mutants", "run_seeds", "trace_of"]

CHUNK = 8
SHRINK_TRIES = 120
NAMES = ("accepted", "epochs")
WORDS = "writes accepted {accepted}, epochs {epochs}"
"""What is counted, and how that is told."""


def run_seeds(
    seeds: range,
    *,
    mutant: str = "",
    jobs: int = 1,
    keep: Sequence[int] | None = None,
    on_done: Callable[[int], object] = lambda count: None,
) -> Summary:
    """Run seeds in order until one fails."""
    one = partial(_run_one, mutant=mutant, keep=keep)
    return run_until_failure(one, seeds, jobs=jobs, chunk=CHUNK, on_done=on_done, names=NAMES, words=WORDS)


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None) -> Outcome:
    def live() -> tuple[str, dict[str, int]]:
        result = run(seed, mutant, keep=keep)
        return result.failure, {"accepted": result.acked, "epochs": result.epochs}

    return judge(seed, live)


def explain(seed: int, mutant: str = "", *, keep: Sequence[int] | None = None) -> Explanation:
    """Drop blows while the seed still fails."""

    def fails(lines: Sequence[int]) -> bool:
        return bool(run(seed, mutant, keep=lines).failure)

    kept = list(range(len(run(seed, mutant).script))) if keep is None else list(keep)
    if fails(kept):
        kept = shrink(kept, fails, tries_max=SHRINK_TRIES)
    last = run(seed, mutant, keep=kept)
    return Explanation(seed, last.failure, tuple(map(str, last.script)), replay_of(seed, kept, mutant, world="log"))


def trace_of(seed: int, mutant: str, *, keep: Sequence[int] | None) -> list[str]:
    """Everything that happens, line by line."""
    return list(run(seed, mutant, keep=keep, is_verbose=True).lines)
