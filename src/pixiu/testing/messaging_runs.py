"""Many seeds on all cores, and a failure told as shortly as it can be."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from pixiu.testing.messaging_mutants import MUTANTS
from pixiu.testing.messaging_script import Script, draw_script
from pixiu.testing.messaging_weather import draw_messaging_weather
from pixiu.testing.messaging_world import Result, run
from pixiu.testing.seeds import until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Explanation", "Outcome", "Summary", "explain", "list_mutants", "run_seeds", "trace_of"]

SHRINK_TRIES = 120
CHUNK = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed, in short."""

    seed: int
    failure: str
    accepted: int
    taken: int
    ends: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds up to the first that failed."""

    seeds: int
    failed: Outcome | None
    accepted: int
    taken: int
    ends: int
    median_cpu_seconds: float

    def numbers(self) -> dict[str, object]:
        """For programs."""
        return {
            "seeds": self.seeds, "accepted": self.accepted, "taken": self.taken, "ends": self.ends,
            "median_cpu_seconds": round(self.median_cpu_seconds, 3),
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, every invariant held: {self.accepted} messages accepted, {self.taken} "
            f"taken by devices, {self.ends} crashes; {self.median_cpu_seconds:.2f} s of CPU per seed (median)"
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a seed fails, and how little it takes."""

    seed: int
    failure: str
    script: tuple[str, ...]
    replay: str

    def __str__(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.script) or "  nothing has to happen"
        return f"seed {self.seed}: {self.failure}\n{lines}\nreplay: {self.replay}"


def list_mutants() -> dict[str, str]:
    """Name and description of each error that can be put back."""
    return {name: mutant.what for name, mutant in MUTANTS.items() if name}


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
        taken=sum(outcome.taken for outcome in outcomes),
        ends=sum(outcome.ends for outcome in outcomes),
        median_cpu_seconds=median(outcome.cpu_seconds for outcome in outcomes) if outcomes else 0.0,
    )


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None) -> Outcome:
    started = time.process_time()
    result = run(seed, mutant, keep=keep)
    spent = time.process_time() - started
    return Outcome(seed, result.failure, result.accepted, result.taken, result.ends, spent)


def explain(seed: int, mutant: str = "", *, keep: Sequence[int] | None = None) -> Explanation:
    """Drop users, blows and deeds while the seed still fails in the same way."""
    first = run(seed, mutant, keep=keep)
    kind = _kind(first)

    def fails(lines: Sequence[int]) -> bool:
        return _kind(run(seed, mutant, keep=lines)) == kind

    kept = [line.number for line in first.lines]
    if kind:
        kept = _without_users(kept, _script(seed), fails)
        kept = shrink(kept, fails, tries_max=SHRINK_TRIES)
    last = run(seed, mutant, keep=kept)
    command = f"pixiu sim --seeds 1 --first {seed} --keep {','.join(map(str, kept)) or 'none'}"
    if mutant:
        command += f" --mutant {mutant}"
    return Explanation(seed, last.failure, _told(last, _script(seed)), command)


def trace_of(seed: int, mutant: str, *, keep: Sequence[int] | None) -> list[str]:
    """Everything that happens, line by line."""
    result = run(seed, mutant, keep=keep, is_verbose=True)
    return [str(line) for line in (*result.lines, *result.notes)]


def _kind(result: Result) -> str:
    """What kind of failure it is: its type and the invariant."""
    return " ".join(result.failure.split(" ")[:2])


def _script(seed: int) -> Script:
    draws = random.Random(seed)
    return draw_script(draws, draw_messaging_weather(draws))


def _without_users(kept: list[int], script: Script, fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Drop all that a user does, user by user."""
    for user in range(len(script.born_ms)):
        theirs = {
            line.number for line in script.lines if line.who >= 0 and script.devices[line.who].user == user
        } & set(kept)
        candidate = [number for number in kept if number not in theirs]
        if theirs and fails(candidate):
            kept = candidate
    return kept


def _told(result: Result, script: Script) -> tuple[str, ...]:
    """Who takes part, then what happens."""
    devices = sorted({line.who for line in result.lines if line.who >= 0})
    who = [
        f"device {index}: {script.names[script.devices[index].user]} on {script.devices[index].platform}, "
        f"{script.devices[index].habit}"
        for index in devices
    ]
    return (*who, *map(str, result.lines))
