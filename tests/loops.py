"""A loop that runs while a test waits, for tests that are written as if nothing ran beside them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

__all__ = ["DrivenLoop"]


class _Within:
    def __init__(self, thing: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._thing = thing
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        asyncio._set_running_loop(self._loop)
        try:
            return method(*args, **options)
        finally:
            asyncio._set_running_loop(None)


class DrivenLoop:
    """One event loop, driven by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do this to the end."""
        return self.loop.run_until_complete(work)

    def within(self, thing: Any) -> Any:
        """The same thing; its methods are called as if by the loop."""
        return _Within(thing, self.loop)

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Run the loop until it is so."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never came"
            self.pass_ms(2)

    def pass_ms(self, milliseconds: float) -> None:
        """Run the loop for a while."""
        self.run(asyncio.sleep(milliseconds / 1000))

    def close(self) -> None:
        """Nothing runs here any more."""
        self.run(asyncio.sleep(0))
        self.loop.close()
