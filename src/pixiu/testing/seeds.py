"""Worlds of many seeds on all cores, in order, until one fails; and what is told of them, whatever the world."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from pixiu.model.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.pool import Pool

__all__ = ["Explanation", "Outcome", "Summary", "judge", "replay_of", "run_until_failure"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed, in short."""

    seed: int
    failure: str
    """Why it failed; nothing if it did not."""
    counts: Mapping[str, int]
    """What happened in it, by name; ``accepted`` is among them."""
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds up to the first that failed."""

    seeds: int
    failed: Outcome | None
    counts: Mapping[str, int]
    median_cpu_seconds: float
    words: str
    """The counts in a sentence, with their names in braces."""
    stopped_of: int = 0
    """So many were asked for, where Ctrl-C ended it; else 0."""

    @property
    def accepted(self) -> int:
        """How much the worlds took in."""
        return self.counts["accepted"]

    def numbers(self) -> dict[str, object]:
        """For programs."""
        return {"seeds": self.seeds, **self.counts, "median_cpu_seconds": round(self.median_cpu_seconds, 3)}

    def __str__(self) -> str:
        of = counted(self.stopped_of or self.seeds, "seed")
        seeds = f"stopped after {self.seeds} of {of}" if self.stopped_of else of
        return (
            f"{seeds}, every invariant held: {self.words.format_map(self.counts)}; "
            f"{self.median_cpu_seconds:.2f} s of CPU per seed (median)"
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


def judge(seed: int, live: Callable[[], tuple[str, Mapping[str, int]]]) -> Outcome:
    """Live through a world, which tells its failure and its counts."""
    started = time.process_time()
    failure, counts = live()
    return Outcome(seed, failure, counts, time.process_time() - started)


def run_until_failure(
    one: Callable[[int], Outcome],
    seeds: range,
    *,
    jobs: int,
    chunk: int,
    on_done: Callable[[int], object],
    names: Sequence[str],
    words: str,
) -> Summary:
    """Run ``one`` for each seed until one fails, or until Ctrl-C. ``names`` are those of the counts."""
    outcomes: list[Outcome] = []
    is_stopped = False
    try:
        for outcome in _outcomes(one, seeds, jobs, chunk):
            outcomes.append(outcome)
            on_done(len(outcomes))
            if outcome.failure:
                break
    except KeyboardInterrupt:
        is_stopped = True
    return Summary(
        seeds=len(outcomes),
        failed=outcomes[-1] if outcomes and outcomes[-1].failure else None,
        counts={name: sum(outcome.counts[name] for outcome in outcomes) for name in names},
        median_cpu_seconds=median(outcome.cpu_seconds for outcome in outcomes) if outcomes else 0.0,
        words=words,
        stopped_of=len(seeds) if is_stopped else 0,
    )


def replay_of(seed: int, kept: Sequence[int], mutant: str, *, world: str = "") -> str:
    """The command that runs a seed again with only these lines of its script."""
    command = "pixiu sim" + (f" --world {world}" if world else "")
    command += f" --seeds 1 --first {seed} --keep {','.join(map(str, kept)) or 'none'}"
    return command + (f" --mutant {mutant}" if mutant else "")


def _outcomes(one: Callable[[int], Outcome], seeds: range, jobs: int, chunk: int) -> Iterator[Outcome]:
    if jobs == 1 or len(seeds) == 1:
        yield from map(one, seeds)
        return
    # Each process begins from nothing, so that a seed's run cannot depend on the seeds before it in another process.
    with _pool(min(jobs, len(seeds))) as pool:
        yield from pool.imap(one, seeds, chunksize=chunk)


def _pool(jobs: int) -> Pool:
    """Processes that do not hear Ctrl-C: a terminal sends it to all, and whoever asked for them ends them."""
    make = multiprocessing.get_context("spawn").Pool
    if threading.current_thread() is not threading.main_thread():
        return make(jobs)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return make(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
