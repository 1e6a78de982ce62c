"""One virtual time for a node and everything outside it.

The node has an event loop of its own, which dies with it; devices, networks and blows live on a heap that does not.
Whichever has the earlier thing to do does it. While the node is frozen, time passes outside and nothing of the node
runs; what was due then is late.
"""

from __future__ import annotations

import heapq
from math import ceil, inf
from typing import TYPE_CHECKING

from pixiu.testing.scheduler import SimulatedScheduler
from pixiu.testing.simulation import Simulation

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pixiu.testing.scheduler import SimulatedClock, SimulatedTimer

__all__ = ["NodeScheduler", "Outside"]


class NodeScheduler(SimulatedScheduler):
    """A node's event loop that can say when it wants to run next."""

    def after(self, delay_ms: float, call: Callable[[], object]) -> SimulatedTimer:
        """Run ``call`` once, later, and never early: a rest of a microsecond is a whole one."""
        return super().after(ceil(delay_ms * 1000) / 1000 + 0.0005 if delay_ms > 0 else 0, call)

    def next_us(self) -> float:
        """When the next timer is due; infinity if there is none."""
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else inf

    def slow(self, slow_us: int) -> None:
        """From now on a flush takes up to this long."""
        self._slow_us = slow_us

    def run_one(self) -> None:
        """Run the next timer, and what it makes ready."""
        due_us, _, timer = heapq.heappop(self._timers)
        self.clock.now_us = max(self.clock.now_us, due_us)
        if timer.call is not None:
            timer.call()
        self.run_ready()


class Outside(Simulation):
    """What happens outside the node, in turns with the node."""

    def __init__(
        self,
        rng: random.Random,
        clock: SimulatedClock,
        *,
        steps_max: int,
        node_next_us: Callable[[], float],
        run_node: Callable[[], object],
        is_verbose: bool = False,
    ) -> None:
        super().__init__(rng, steps_max=steps_max, is_verbose=is_verbose)
        self._clock = clock
        self._node_next_us = node_next_us
        self._run_node = run_node
        self.now_ms = clock.now_us / 1000

    def run(self, *, until_ms: float) -> None:
        """Let virtual time pass, inside and outside."""
        clock, heap = self._clock, self._heap
        until_us = int(until_ms * 1000)
        while True:
            inside = self._node_next_us()
            outside = heap[0][0] * 1000 if heap else inf
            if min(inside, outside) > until_us:
                break
            self.steps += 1
            if self.steps > self._steps_max:
                raise TimeoutError(f"no end after {self.steps} steps")
            if inside <= outside:
                self._run_node()
            else:
                _, _, action, arguments = heapq.heappop(heap)
                clock.now_us = max(clock.now_us, ceil(outside))
                self.now_ms = clock.now_us / 1000
                action(*arguments)
            self.now_ms = clock.now_us / 1000
        clock.now_us = max(clock.now_us, until_us)
        self.now_ms = clock.now_us / 1000
