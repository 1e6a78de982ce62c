"""Many seeds on all cores, and a failure told as shortly as it can be."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from pixiu.testing.messaging.mutants import MUTANTS
from pixiu.testing.messaging.script import Script, draw_script
from pixiu.testing.messaging.weather import draw_messaging_weather
from pixiu.testing.messaging.world import Result, run
from pixiu.testing.seeds import Explanation, Outcome, Summary, judge, replay_of, run_until_failure
from pixiu.testing.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["explain", "list_mutants", "run_seeds", "trace_of"]

SHRINK_TRIES = 120
CHUNK = 4
NAMES = ("accepted", "taken", "ends")
WORDS = "messages accepted {accepted}, taken by devices {taken}, crashes {ends}"
"""What is counted, and how that is told."""


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
    return run_until_failure(one, seeds, jobs=jobs, chunk=CHUNK, on_done=on_done, names=NAMES, words=WORDS)


def _run_one(seed: int, *, mutant: str, keep: Sequence[int] | None) -> Outcome:
    def live() -> tuple[str, dict[str, int]]:
        result = run(seed, mutant, keep=keep)
        return result.failure, {"accepted": result.accepted, "taken": result.taken, "ends": result.ends}

    return judge(seed, live)


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
    return Explanation(seed, last.failure, _told(last, _script(seed)), replay_of(seed, kept, mutant))


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
