"""What a part of Pixiu counts, apart from how it is exported.

Counting is adding to a plain number, or to a ``Histogram``, which any part may own whether or not anyone
scrapes it. A ``Metric`` declares the name and meaning under which ``pixiu.runtime.metrics`` exports it.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["HOP_SECONDS", "LATENCY_SECONDS", "Histogram", "Metric", "Snapshot", "Value", "quantile", "quantile_of"]

# fmt: off
LATENCY_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)
# fmt: on
"""Bucket bounds for what should take milliseconds."""

HOP_SECONDS = (
    *(round(step * 10**power, 6) for power in range(-5, 1) for step in (1, 1.5, 2, 3, 4, 5, 7)),
    10.0, 15.0, 30.0, 60.0,
)  # fmt: skip
"""Bucket bounds for one hop of a message, from ten microseconds to a minute: fine enough to read a p99 off them."""


class Histogram:
    """Counts of values by bucket: a plain object that any part may own, whether or not anyone scrapes."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        assert list(bounds) == sorted(set(bounds))
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value, or ``count`` values that are the same."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def cumulative(self) -> list[tuple[str, float]]:
        """Pairs of upper bound and how many values were at most that, as Prometheus wants them."""
        pairs: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip([*map(repr, map(float, self.bounds)), "+Inf"], self.counts, strict=True):
            running += count
            pairs.append((bound, running))
        return pairs


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value below which ``share`` of what was counted lies, as near as buckets tell; None if nothing was counted.

    Within a bucket values are taken to lie evenly. What lies beyond the last bound is given as that bound.
    """
    wanted = share * sum(counts)
    if wanted <= 0:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return bounds[-1]


Value = int | float | Histogram | Mapping[tuple[str, ...], int | float | Histogram]
Snapshot = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is declared: names, kind, what it means, by which labels it is split."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.startswith("pixiu_"), self.name
        assert (self.kind == "counter") == self.name.endswith("_total"), self.name


def quantile_of(values: Collection[float], share: float) -> float | None:
    """The value below which this share of some values lies; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3)
