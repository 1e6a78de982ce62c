"""Many worlds of the replicated log on all cores, as ``messaging_runs`` has it for whole platforms."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from pixiu.testing.messaging_runs import Explanation
from pixiu.testing.replication_world import list_mutants, run
from pixiu.testing.seeds import until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Outcome", "Summary", "explain", "list_mutants", "run_seeds", "trace_of"]

CHUNK = 8
SHRINK_TRIES = 120


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed, in short."""

    seed: int
    failure: str
    accepted: int
    epochs: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds up to the first that failed."""

    seeds: int
    failed: Outcome | None
    accepted: int
    epochs: int
    median_cpu_seconds: float

    def numbers(self) -> dict[str, object]:
        """For programs."""
        return {
            "seeds": self.seeds, "accepted": self.accepted, "epochs": self.epochs,
            "median_cpu_seconds": round(self.median_cpu_seconds, 3),
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, every invariant held: {self.accepted} writes accepted in {self.epochs} epochs; "
            f"{self.median_cpu_seconds:.2f} s of CPU per seed (median)"
        )


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
    outcomes = until_failure(one, seeds, jobs=jobs, chunk=CHUNK, on_done=on_done)
    return Summary(
        seeds=len(outcomes),
        failed=outcomes[-1] if outcomes and outcomes[-1].failure else None,
        accepted=sum(outcome.accepted for outcome in outcomes),
        epochs=sum(outcome.epochs for outcome in outcomes),
        median_cpu_seconds=median(outcome.cpu_seconds for outcome in outcomes) if outcomes else 0.0,
    )


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None) -> Outcome:
    started = time.process_time()
    result = run(seed, mutant, keep=keep)
    return Outcome(seed, result.failure, result.acked, result.epochs, time.process_time() - started)


def explain(seed: int, mutant: str = "", *, keep: Sequence[int] | None = None) -> Explanation:
    """Drop blows while the seed still fails."""

    def fails(lines: Sequence[int]) -> bool:
        return bool(run(seed, mutant, keep=lines).failure)

    kept = list(range(len(run(seed, mutant).script))) if keep is None else list(keep)
    if fails(kept):
        kept = shrink(kept, fails, tries_max=SHRINK_TRIES)
    last = run(seed, mutant, keep=kept)
    command = f"pixiu sim --world log --seeds 1 --first {seed} --keep {','.join(map(str, kept)) or 'none'}"
    if mutant:
        command += f" --mutant {mutant}"
    return Explanation(seed, last.failure, tuple(map(str, last.script)), command)


def trace_of(seed: int, mutant: str, *, keep: Sequence[int] | None) -> list[str]:
    """Everything that happens, line by line."""
    return list(run(seed, mutant, keep=keep, is_verbose=True).lines)
