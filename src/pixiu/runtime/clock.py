"""The machine's clocks."""

import time
from typing import Final

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_BOOTTIME counts the time for which the machine was suspended: a lease must not outlive that."""


class SystemClock:
    """The one place that reads the time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment, also those for which the machine was suspended, where it can tell."""
        return time.clock_gettime_ns(_STEADY) // 1000
