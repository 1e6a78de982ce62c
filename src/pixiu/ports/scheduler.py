"""When to run what: the queue's only way to wait.

The queue is written as callbacks, not coroutines: no task per connection and no await per message. That makes it fast,
and it lets a simulated world decide the order in which things happen.
"""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that has been put off."""

    def cancel(self) -> None:
        """Make sure that it does not run."""
        ...


class Scheduler(Protocol):
    """An event loop, reduced to what the queue needs."""

    def soon(self, call: Callable[[], object]) -> object:
        """Run ``call`` after everything that is ready now, in this turn of the loop."""
        ...

    def after(self, delay_ms: float, call: Callable[[], object]) -> Timer:
        """Run ``call`` once, ``delay_ms`` from now."""
        ...

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run blocking ``work`` beside the loop, in the order given, then ``done`` with its error on the loop."""
        ...


def raise_apart(soon: Callable[[Callable[[], object]], object], error: Exception) -> None:
    """Raise an error in a turn of its own, where the loop notes it: who fails at an answer keeps nobody from theirs."""

    def fail() -> None:
        raise error

    soon(fail)
