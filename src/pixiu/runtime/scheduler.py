"""The event loop as the queue sees it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class LoopScheduler:
    """``Scheduler`` on an asyncio loop. Blocking work runs in one thread, so it keeps its order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pixiu-disk")
        self.soon = loop.call_soon

    def after(self, delay_ms: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Run ``call`` once, later."""
        return self._loop.call_later(delay_ms / 1000, call)

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` in the thread, then ``done`` on the loop."""

        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except Exception as caught:  # noqa: BLE001 - handed to the loop, which decides
                error = caught
            self._loop.call_soon_threadsafe(done, error)

        self._thread.submit(run)

    def close(self) -> None:
        """Wait for the thread."""
        self._thread.shutdown(wait=True)


class NoTimer:
    """A timer that never comes."""

    def cancel(self) -> None:
        """Nothing to do."""


class NoScheduler:
    """For work on a stopped queue: nothing happens later, and blocking work is simply done."""

    def soon(self, call: Callable[[], object]) -> object:
        """Run it now."""
        return call()

    def after(self, delay_ms: float, call: Callable[[], object]) -> NoTimer:
        """Never: a stopped queue has no timers."""
        return NoTimer()

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run it here."""
        work()
        done(None)
