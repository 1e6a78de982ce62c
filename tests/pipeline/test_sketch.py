"""Sketches as Spark writes them, read without it."""

import pytest

from pixiu.model.errors import CorruptData
from pixiu.pipeline.sketch import quantiles, values_of
from tests.pipeline.lakes import sketch_of

ONE = bytes.fromhex("02020f04c80008000000000000000000")
"""Of a single 0, by Spark 4."""

MANY = bytes.fromhex(
    "05010f00080008002c0100000000000008000500050000000d00000013000000130000001a0000000000000000000000"
    "2b01000000000000b5000000000000003e00000000000000f3000000000000007c000000000000000500000000000000"
    "ba000000000000004300000000000000f8000000000000000f0000000000000048000000000000008100000000000000"
    "8b00000000000000c4000000000000000201000000000000080000000000000010000000000000003700000000000000"
    "7000000000000000ae00000000000000e7000000000000001b0100000000000007000000000000003400000000000000"
    "38000000000000005000000000000000630000000000000087000000000000008f00000000000000a700000000000000"
    "bc00000000000000d100000000000000e100000000000000f20000000000000004010000000000002b01000000000000"
)
"""Of 0 to 299 with k = 8, by Spark 4; its own answers are below."""


def test_quantiles_equal_those_of_spark() -> None:
    assert quantiles([MANY], (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)) == [16, 56, 143, 225, 260, 299]
    values, weights = values_of(MANY)
    assert (len(values), int(weights.sum())) == (35, 300)
    assert quantiles([ONE], (0.5, 0.99)) == [0, 0]


def test_sketches_of_several_minutes_are_taken_together() -> None:
    low, high = sketch_of(range(100)), sketch_of(range(1000, 1100))
    assert quantiles([low, high], (0.25, 0.5, 0.75)) == [49, 99, 1049]
    assert quantiles([low, ONE, ONE], (0.5,)) == [48]


def test_what_is_no_sketch_is_refused() -> None:
    assert quantiles([], (0.5,)) == []
    with pytest.raises(CorruptData):
        quantiles([b"\x00" * 20], (0.5,))
