"""The interval behind `make bench-ab`."""

from random import Random

import pytest

from benchmarks.ab.interval import median_interval


def test_twelve_pairs_are_bounded_by_the_third_and_the_tenth() -> None:
    interval = median_interval([float(value) for value in range(1, 13)])
    assert (interval.low, interval.median, interval.high) == (3.0, 6.5, 10.0)


def test_fewer_than_six_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 6"):
        median_interval([1.0] * 5)


def test_the_interval_contains_the_true_median_in_95_of_100_samples() -> None:
    random = Random(1)
    samples = [median_interval([random.lognormvariate(0, 0.2) for _ in range(12)]) for _ in range(2_000)]
    assert sum(sample.low <= 1.0 <= sample.high for sample in samples) / len(samples) >= 0.95
