"""An event loop in a thread of its own, for those who wait: whoever asks gets an answer, also while it ends.

The blocking clients of the queue and of the SDK, which may not know each other, and the blocking publisher run on it.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, until it is stopped."""

    def __init__(self, name: str, *, what: str = "client") -> None:
        """``what`` is called closed when it is."""
        self._closed = f"this {what} is closed"
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it. Raises ``Unavailable`` once this is stopped, or is stopped meanwhile."""
        with self._lock:
            if self._is_over:
                work.close()
                raise Unavailable(self._closed)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable(self._closed) from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; whoever still waits is told so."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
        finally:
            self._loop.close()


async def _end_all() -> None:
    await asyncio.sleep(0)  # what was handed in just before the end becomes a task first
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
