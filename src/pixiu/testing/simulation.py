"""Virtual time: a heap of things to happen, one source of chance, one hash over all that happened.

A world is built on this: nothing in it reads a clock or sleeps, so a run takes milliseconds, and the same seed
gives the same run, event for event. ``trace`` is a CRC over every step; two runs with one trace are the same run.
"""

from __future__ import annotations

import heapq
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["Simulation"]


class Simulation:
    """Runs actions in the order of their virtual time; equal times keep the order in which they were planned."""

    def __init__(self, rng: random.Random, *, steps_max: int, is_verbose: bool = False) -> None:
        self.rng = rng
        self.now_ms = 0.0
        self.steps = 0
        self.trace = 0
        self.lines: list[str] = []
        self._steps_max = steps_max
        self._is_verbose = is_verbose
        self._tie = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []

    def after(self, delay_ms: float, action: Callable[..., object], *arguments: object) -> None:
        """Plan ``action(*arguments)`` in ``delay_ms`` of virtual time."""
        self._tie += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._tie, action, arguments))

    def run(self, *, until_ms: float) -> None:
        """Let virtual time pass. More steps than the bound allows are a failure, not a hang."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(heap)
            self.steps += 1
            if self.steps > self._steps_max:
                raise TimeoutError(f"no end after {self.steps} steps")
            action(*arguments)
        self.now_ms = max(self.now_ms, until_ms)

    def note(self, *words: object) -> None:
        """Add a step to the trace."""
        line = f"{self.now_ms:9.2f} " + " ".join(map(str, words))
        self.trace = zlib.crc32(line.encode(), self.trace)
        if self._is_verbose:
            self.lines.append(line)
