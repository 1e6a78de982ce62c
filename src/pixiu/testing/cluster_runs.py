"""Many clusters of rooms on all cores, as ``messaging_runs`` has it for whole platforms."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from pixiu.testing.cluster_mutants import MUTANTS
from pixiu.testing.cluster_weather import STEPS, run
from pixiu.testing.messaging_runs import Explanation
from pixiu.testing.seeds import until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Outcome", "Summary", "explain", "list_mutants", "run_seeds", "trace_of"]

CHUNK = 2
SHRINK_TRIES = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed, in short."""

    seed: int
    failure: str
    accepted: int
    datagrams: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds up to the first that failed."""

    seeds: int
    failed: Outcome | None
    accepted: int
    datagrams: int
    median_cpu_seconds: float

    def numbers(self) -> dict[str, object]:
        """For programs."""
        return {
            "seeds": self.seeds, "accepted": self.accepted, "datagrams": self.datagrams,
            "median_cpu_seconds": round(self.median_cpu_seconds, 3),
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, every invariant held: {self.accepted} messages accepted, {self.datagrams} datagrams; "
            f"{self.median_cpu_seconds:.2f} s of CPU per seed (median)"
        )


def list_mutants() -> dict[str, str]:
    """Errors that can be put back, and what each does."""
    return {name: words for name, (words, _) in MUTANTS.items()}


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
        datagrams=sum(outcome.datagrams for outcome in outcomes),
        median_cpu_seconds=median(outcome.cpu_seconds for outcome in outcomes) if outcomes else 0.0,
    )


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None) -> Outcome:
    started = time.process_time()
    with _quietly():
        result = run(seed, mutant, keep=keep)
    return Outcome(seed, result.failure, result.accepted, result.datagrams, time.process_time() - started)


@contextmanager
def _quietly() -> Iterator[None]:
    """What roles log of the trouble that they are made is of no use here."""
    logger = logging.getLogger("pixiu")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def explain(seed: int, mutant: str = "", *, keep: Sequence[int] | None = None) -> Explanation:
    """Drop blows while the seed still fails."""

    def fails(lines: Sequence[int]) -> bool:
        return bool(run(seed, mutant, keep=lines).failure)

    kept = list(range(STEPS)) if keep is None else list(keep)
    with _quietly():
        if fails(kept):
            kept = shrink(kept, fails, tries_max=SHRINK_TRIES)
        last = run(seed, mutant, keep=kept)
    command = f"pixiu sim --world cluster --seeds 1 --first {seed} --keep {','.join(map(str, kept)) or 'none'}"
    if mutant:
        command += f" --mutant {mutant}"
    script = tuple(str(blow) for blow in last.script if blow.step in kept)
    return Explanation(seed, last.failure, script, command)


def trace_of(seed: int, mutant: str, *, keep: Sequence[int] | None) -> list[str]:
    """Everything that happens, line by line."""
    with _quietly():
        return list(run(seed, mutant, keep=keep, is_verbose=True).lines)
