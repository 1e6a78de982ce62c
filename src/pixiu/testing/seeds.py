"""Worlds of many seeds on all cores, in order, until one fails."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["until_failure"]


class Judged(Protocol):
    """What became of a seed."""

    @property
    def failure(self) -> str:
        """Why it failed; nothing if it did not."""
        ...


J = TypeVar("J", bound=Judged)


def until_failure(
    one: Callable[[int], J], seeds: range, *, jobs: int, chunk: int, on_done: Callable[[int], object]
) -> list[J]:
    """Run ``one`` for each seed; the last of the list is the one that failed, if any did."""
    outcomes: list[J] = []
    for outcome in _outcomes(one, seeds, jobs, chunk):
        outcomes.append(outcome)
        on_done(len(outcomes))
        if outcome.failure:
            break
    return outcomes


def _outcomes(one: Callable[[int], J], seeds: range, jobs: int, chunk: int) -> Iterator[J]:
    if jobs == 1 or len(seeds) == 1:
        yield from map(one, seeds)
        return
    # Each process begins from nothing, so that a seed's run cannot depend on the seeds before it in another process.
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(seeds))) as pool:
        yield from pool.imap(one, seeds, chunksize=chunk)
