"""The time, as an argument, so that a simulated world can own it."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read and that may step, one that only rises."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. May step back when someone sets the clock."""
        ...

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment. Never steps."""
        ...
