"""An asyncio loop in virtual time, for the parts of a process that are coroutines.

It has no sockets and no threads: what is ready runs in the turns of the simulated scheduler, and time is the seed's. A
process that is frozen or dead runs nothing. So the same coroutines that run in production run here, step for step.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pixiu.testing.cluster.wires import NodeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.testing.cluster.process import Process
    from pixiu.testing.scheduler import SimulatedScheduler

__all__ = ["LoopScheduler", "NodeLoop"]


class NodeLoop:
    """The event loop of one process, as far as coroutines need one."""

    def __init__(self, process: Process, scheduler: SimulatedScheduler) -> None:
        self.errors: list[str] = []
        """Exceptions that nothing has caught."""
        self._process = process
        self.me: Any = self
        """The parts of an ``AbstractEventLoop`` that are used here."""
        self._scheduler = LoopScheduler(process, scheduler, self)
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def scheduler(self) -> LoopScheduler:
        """The scheduler of the process. In its calls this loop is the running one."""
        return self._scheduler

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within this, the loop is the running one."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.me)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def run(self, call: Callable[[], object]) -> None:
        """Make a call within which the loop is the running one."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.me)
        try:
            call()
        finally:
            asyncio._set_running_loop(before)

    def abandon(self) -> None:
        """The world is over: close the coroutines that still wait."""
        while self._tasks:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with self.running(), suppress(RuntimeError):  # one that waits while it ends, in a further task
                        task.get_coro().close()

    # What asyncio asks for.

    def time(self) -> float:
        """Seconds."""
        return float(self._process.clock.monotonic_us()) / 1e6

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        """In this turn."""
        handle = asyncio.Handle(callback, args, self.me, context)
        self._scheduler.soon(lambda: None if handle.cancelled() else handle._run())
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Later."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """At a time."""
        handle = asyncio.TimerHandle(when, callback, args, self.me, context)
        self._scheduler.after((when - self.time()) * 1000, lambda: None if handle.cancelled() else handle._run())
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a timer that is cancelled does nothing when it comes due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self.me)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        """A task of this loop."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self.me, name=name, context=context)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always, as far as anyone can ask."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception that nothing has caught: the world fails with it."""
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {type(error).__name__} {error}")


class LoopScheduler(NodeScheduler):
    """A process's scheduler in whose turns its loop is the running one."""

    def __init__(self, process: Process, scheduler: SimulatedScheduler, loop: NodeLoop) -> None:
        super().__init__(process, scheduler)
        self._loop = loop

    def after(self, delay_ms: float, call: Callable[[], object]) -> Any:
        """Call when the process's own clock has gone so far, and not a microsecond earlier."""
        speed = getattr(self._node.clock, "speed", 1.0)
        return super().after(delay_ms / speed + 0.002, call)

    def _run(self, call: Callable[[], object]) -> None:
        node = self._node
        if node.is_dead:
            return
        if node.is_frozen:
            node.held.append(partial(self._mine, call))
        else:
            self._loop.run(call)
