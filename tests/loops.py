"""A loop that runs while a test waits, for tests that are written as if nothing ran beside them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["DrivenLoop"]


class DrivenLoop:
    """One event loop, driven by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do this to the end."""
        return self.loop.run_until_complete(work)

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
