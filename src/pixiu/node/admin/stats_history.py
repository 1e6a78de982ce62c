"""The last half hour of a node in numbers, so that a chart that is opened now shows what happened before.

A sample is taken every two seconds: connections and sessions at that moment, and the rates and latencies since the
sample before. The newest 900 are kept in memory; a restart of the process begins with none.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pixiu.model.metric import HOP_SECONDS, quantile

if TYPE_CHECKING:
    from pixiu.im.draft import Answer
    from pixiu.node.admin.stats import Sample, Stats
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["StatsHistory"]

SAMPLE_MS = 2_000
SAMPLES_MAX = 900
LATE_FACTOR = 2.5
"""A sample that comes later than this many periods has no rates: the process was paused, so nothing was observed."""
RATES = ("accepted", "delivered", "acked", "room_deliveries", "room_messages")
HOPS = ("accept", "apply", "deliver", "ack")
COLUMNS = ("at", "connections", "sessions", *RATES, *HOPS)

Row = tuple[float | None, ...]


class StatsHistory:
    """A bounded ring of samples. Without ``start`` there is none: a node inside a program keeps no history."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._rows: deque[Row] = deque(maxlen=SAMPLES_MAX)
        self._before: Sample | None = None
        self._timer: Timer | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Take a sample now, and from now on regularly, until ``stop``."""
        self.sample()
        self._timer = scheduler.after(SAMPLE_MS, lambda: self.start(scheduler))

    def stop(self) -> None:
        """Take no further samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        """Add one sample; the oldest is dropped at the bound."""
        now, before = self._stats.sample(), self._before
        self._before = now
        measured: Row = (None,) * (len(RATES) + len(HOPS))
        if before is not None and 0 < now.monotonic_us - before.monotonic_us < LATE_FACTOR * SAMPLE_MS * 1000:
            seconds = (now.monotonic_us - before.monotonic_us) / 1_000_000
            rates = [round((now.counters[name] - before.counters[name]) / seconds, 2) for name in RATES]
            measured = (*rates, *(_p99_ms(before.hops[name], now.hops[name]) for name in HOPS))
        self._rows.append((now.at, now.connections, now.sessions, *measured))

    def read(self, after: int) -> Answer:
        """The samples taken after a time, oldest first, as one list per column; null: nothing was observed."""
        rows = [row for row in self._rows if (row[0] or 0) > after]
        columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
        return {
            "started_at": self._stats.started_at,
            "every_ms": SAMPLE_MS,
            "samples": {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)},
        }


def _p99_ms(before: list[int], now: list[int]) -> float | None:
    found = quantile(HOP_SECONDS, [count - old for count, old in zip(now, before, strict=True)], 0.99)
    return None if found is None else round(found * 1000, 3)
