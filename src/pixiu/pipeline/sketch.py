"""Quantiles from KLL sketches, without Spark.

Spark keeps latencies as sketches of Apache DataSketches (``kll_sketch_agg_bigint``). A sketch holds values of several
levels; one of level ``n`` stands for ``2**n`` measured ones. To merge sketches is to take their values together, each
with its weight; a quantile is then a place in the sorted values. The layout that is read here is that of
``KllLongsSketch.toByteArray``: a preamble, the levels' places, the smallest and the largest value, the values.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from pixiu.model.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["quantiles", "values_of"]

_FAMILY = 15
_EMPTY, _SINGLE = 1, 4
_PREAMBLE = struct.Struct("<QHBx")
_LEVELS_AT = 20


def values_of(sketch: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The values of a sketch, and how many measured ones each stands for."""
    if len(sketch) < 8 or sketch[2] != _FAMILY:
        raise CorruptData("this is no KLL sketch")
    flags = sketch[3]
    if flags & _EMPTY:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if flags & _SINGLE:
        return np.frombuffer(sketch, "<i8", 1, 8), np.ones(1, np.int64)
    _, _, levels = _PREAMBLE.unpack_from(sketch, 8)
    places = np.frombuffer(sketch, "<i4", levels, _LEVELS_AT).astype(np.int64)
    begin = _LEVELS_AT + 4 * levels + 16  # behind the smallest and the largest value
    values = np.frombuffer(sketch, "<i8", -1, begin)
    ends = np.append(places[1:], places[0] + len(values))
    weights = np.repeat(np.int64(1) << np.arange(levels, dtype=np.int64), ends - places)
    return values, weights


def quantiles(sketches: Iterable[bytes], shares: Sequence[float]) -> list[int]:
    """The values below which these shares lie, over all sketches together; nothing if nothing was measured."""
    found = [values_of(bytes(each)) for each in sketches]
    if not found:
        return []
    values = np.concatenate([values for values, _ in found])
    weights = np.concatenate([weights for _, weights in found])
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(weights[order])
    places = np.searchsorted(reached, np.asarray(shares) * reached[-1], side="left")
    return [int(values[min(place, len(values) - 1)]) for place in places]
