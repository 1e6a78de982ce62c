"""Time and turns that a seed decides: a clock that moves when told to, and an event loop without waiting.

Work beside the loop runs in a real thread that moves only while the loop stands still: at every disk operation it may
hand the turn back for a while of virtual time. So a commit can come between two flushes of a checkpoint, as on a real
machine, and the same seed still gives the same run.
"""

from __future__ import annotations

import threading
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["Power", "PowerCut", "SimulatedClock", "SimulatedScheduler", "SimulatedTimer"]

START_MS = 1_760_000_000_000


class PowerCut(BaseException):
    """The process ends here. No handler of the code under test may catch it."""


class Power:
    """Ends the process at some operation on a disk or a store: ``cut_after`` operations from now, if set."""

    def __init__(self) -> None:
        self.cut_after: int | None = None
        self.operations = 0

    def use(self) -> bool:
        """Count one operation. True if it is the one that does not end; the caller does a part of it and raises."""
        self.operations += 1
        if self.cut_after is None:
            return False
        self.cut_after -= 1
        return self.cut_after < 0


class SimulatedClock:
    """Two clocks on one virtual time. ``stepped_ms`` is how far someone has set the wall clock."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.stepped_ms = 0

    def now_ms(self) -> int:
        """The wall clock."""
        return START_MS + self.now_us // 1000 + self.stepped_ms

    def monotonic_us(self) -> int:
        """The steady clock."""
        return self.now_us


class SimulatedTimer:
    """A call that waits."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Make sure that it does not run."""
        self.call = None


class SimulatedScheduler:
    """The queue's event loop, in virtual time. One per life of the process."""

    def __init__(self, clock: SimulatedClock, rng: random.Random, *, slow_us: int, pause_chance: float) -> None:
        self.clock = clock
        self._rng = rng
        self._slow_us = slow_us
        self._pause_chance = pause_chance
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[int, int, SimulatedTimer]] = []
        self._tie = 0
        self._beside = _Beside()
        self._waiting: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()
        self._is_working = False
        self._told_us = 0

    # The port.

    def soon(self, call: Callable[[], object]) -> None:
        """Run ``call`` in this turn."""
        self._ready.append(call)

    def after(self, delay_ms: float, call: Callable[[], object]) -> SimulatedTimer:
        """Run ``call`` once, later."""
        timer = SimulatedTimer(call)
        self._tie = tie = self._tie + 1
        due_us = self.clock.now_us + (int(delay_ms * 1000) if delay_ms > 0 else 0)
        heappush(self._timers, (due_us, tie, timer))
        return timer

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` beside the loop, one at a time, in order."""
        self._waiting.append((work, done))
        if not self._is_working:
            self._is_working = True
            self._later(self._begin_work)

    # Work beside the loop.

    def _later(self, call: Callable[[], object]) -> None:
        self.after(self._rng.randint(0, self._slow_us) / 1000, call)

    def _begin_work(self) -> None:
        self._beside.start(self._waiting[0][0])
        self._look_at_work()

    def _go_on_with_work(self) -> None:
        self._beside.resume()
        self._look_at_work()

    def _look_at_work(self) -> None:
        if not self._beside.has_ended:
            self._later(self._go_on_with_work)
            return
        error = self._beside.error
        if isinstance(error, PowerCut):
            raise error
        _, done = self._waiting.popleft()
        # The loop hears of finished work in the order in which it was finished.
        self._told_us = max(self._told_us, self.clock.now_us + self._rng.randint(0, self._slow_us))
        self.after((self._told_us - self.clock.now_us) / 1000, lambda: done(error))
        if self._waiting:
            self._later(self._begin_work)
        else:
            self._is_working = False

    def disk_time(self) -> None:
        """A flush takes its time: the loop waits for it, work beside the loop lets the loop go on."""
        if self._beside.is_current:
            if self._rng.random() < self._pause_chance:
                self._beside.pause()
        else:
            self.clock.now_us += self._rng.randint(0, self._slow_us)

    # What the world does.

    def run_ready(self, turns_max: int = 100_000) -> None:
        """Run what is ready now; time stands still."""
        ready = self._ready
        for _ in range(turns_max):
            if not ready:
                return
            ready.popleft()()
        raise AssertionError(f"still busy after {turns_max} turns")

    def run_for(self, milliseconds: float) -> None:
        """Let virtual time pass."""
        clock, timers, ready = self.clock, self._timers, self._ready
        until_us = clock.now_us + int(milliseconds * 1000)
        self.run_ready()
        while timers and timers[0][0] <= until_us:
            due_us, _, timer = heappop(timers)
            call = timer.call
            if call is None:
                continue
            if due_us > clock.now_us:
                clock.now_us = due_us
            call()
            if ready:
                self.run_ready()
        clock.now_us = max(clock.now_us, until_us)

    def finish_work(self) -> None:
        """Let all work beside the loop end, as a process does before it goes."""
        while self._is_working:
            self.run_for(1)

    def close(self) -> None:
        """End the thread, wherever its work stands. Nothing of this life runs any more."""
        self._ready.clear()
        self._timers.clear()
        self._beside.close()


class _Beside:
    """A thread that runs only while its owner waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._work: Callable[[], None] | None = None
        self._is_closed = False
        self.has_ended = True
        self.error: BaseException | None = None

    @property
    def is_current(self) -> bool:
        """Is the caller this thread?"""
        return threading.current_thread() is self._thread

    def start(self, work: Callable[[], None]) -> None:
        """Run ``work`` up to its first pause or its end."""
        self._work, self.error, self.has_ended = work, None, False
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="simulated-disk", daemon=True)
            self._thread.start()
        self.resume()

    def resume(self) -> None:
        """Give the turn to the thread, and wait for it to give it back."""
        self._go.release()
        self._stopped.acquire()

    def pause(self) -> None:
        """Called by the work: give the turn back."""
        self._stopped.release()
        self._go.acquire()
        if self._is_closed:
            raise PowerCut

    def _loop(self) -> None:
        self._go.acquire()
        while not self._is_closed:
            assert self._work is not None
            try:
                self._work()
            except (Exception, PowerCut) as error:  # noqa: BLE001 - handed to the loop, which decides
                self.error = error
            self.has_ended = True
            self._stopped.release()
            self._wait()

    def _wait(self) -> None:
        if not self._is_closed:
            self._go.acquire()

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        if self._thread is not None:
            self._go.release()
            self._thread.join()
