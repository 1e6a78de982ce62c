"""The median of paired ratios and its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with bounds that hold it with at least 95 % confidence."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Bound the median by order statistics, which assumes nothing about the distribution.

    The k-th smallest and k-th largest of n values enclose the median unless fewer than k values fall on one side, and
    each value falls on either side with probability 1/2. Raises ValueError for fewer than 6 values: no pair of order
    statistics reaches 95 % then.
    """
    ordered = sorted(values)
    count = len(ordered)
    rank, missed = 0, 0.0
    while True:
        missed += 2 * comb(count, rank) / 2**count
        if missed > 1 - CONFIDENCE:
            break
        rank += 1
    if rank == 0:
        raise ValueError(f"{count} pairs are too few for a 95 % interval; measure at least 6")
    return Interval(median(ordered), ordered[rank - 1], ordered[count - rank])
