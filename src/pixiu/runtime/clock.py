"""The machine's clocks."""

import time


class SystemClock:
    """The one place that reads the time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment."""
        return time.monotonic_ns() // 1000
