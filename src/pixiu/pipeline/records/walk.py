"""Protobuf for a whole batch at once: all messages of a batch are walked in step, field by field, by numpy.

Nine of ten records have the same few fields, so a batch of thousands is through after a dozen steps, and a step is a
handful of array operations. It knows what pixiu.proto uses: varints, lengths, and how to pass over the rest. A message
that it cannot walk is marked as bad, for the real parser to judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["PADDING", "Walked", "walk"]

PADDING = 16
"""Bytes that must be readable behind the last message."""

_VARINT, _I64, _BYTES, _I32 = 0, 1, 2, 5
_STEPS_MAX = 512
"""Fields of one message, repeats counted; a message with more is left to the real parser."""

_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)


class Walked:
    """The fields of a batch of messages. What a message does not have is 0, and has an empty span."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers: dict[int, Any] = {}
        self._spans: dict[int, tuple[Any, Any]] = {}
        self.is_bad: Any = np.zeros(count, dtype=bool)
        self.seen: set[int] = set()

    def number(self, field: int) -> Any:
        """A varint field, as int64."""
        if field not in self._numbers:
            self._numbers[field] = np.zeros(self._count, dtype=np.int64)
        return self._numbers[field]

    def span(self, field: int) -> tuple[Any, Any]:
        """Where a field of bytes begins and ends."""
        if field not in self._spans:
            self._spans[field] = np.zeros(self._count, dtype=np.int64), np.zeros(self._count, dtype=np.int64)
        return self._spans[field]

    def has(self, field: int) -> Any:
        """Which messages have this field of bytes, though it may be empty."""
        return self.span(field)[0] > 0


def walk(buffer: Any, start: Any, end: Any) -> Walked:
    """Walk the messages at ``start`` to ``end`` in a buffer of bytes that is padded; ``start`` must be above 0."""
    words: Any = buffer[: len(buffer) // 8 * 8].view("<u8")
    walked = Walked(len(start))
    rows = np.flatnonzero(start < end)
    cursor, stop = start[rows].astype(np.int64), end[rows].astype(np.int64)
    for _ in range(_STEPS_MAX):
        if not len(rows):
            return walked
        following = _step_together(walked, buffer, words, rows, cursor, stop)
        if following is not None:
            more = following < stop
            if more.all():
                cursor = following
            else:
                rows, cursor, stop = rows[more], following[more], stop[more]
            continue
        tag, cursor = _varints(buffer, words, cursor)
        value, behind = _varints(buffer, words, np.minimum(cursor, len(buffer) - PADDING))
        wire, field = tag & 7, tag >> 3
        is_bytes = wire == _BYTES
        following = np.where(wire == _VARINT, behind, cursor + np.where(wire == _I64, 8, 4))
        following = np.where(is_bytes, behind + np.where(value < 0, stop, value), following)
        good = (following <= stop) & np.isin(wire, (_VARINT, _BYTES, _I64, _I32)) & (field > 0)
        if not good.all():
            walked.is_bad[rows[~good]] = True
            rows, stop, wire, field = rows[good], stop[good], wire[good], field[good]
            value, behind, following, is_bytes = value[good], behind[good], following[good], is_bytes[good]
        for number in np.unique(field).tolist():
            here = field == number
            walked.seen.add(number)
            numbers = here & (wire == _VARINT)
            if numbers.any():
                walked.number(number)[rows[numbers]] = value[numbers]
            spans = here & is_bytes
            if spans.any():
                begins, ends = walked.span(number)
                begins[rows[spans]], ends[rows[spans]] = behind[spans], following[spans]
        more = following < stop
        rows, cursor, stop = rows[more], following[more], stop[more]
    walked.is_bad[rows] = True
    return walked


def _step_together(walked: Walked, buffer: Any, words: Any, rows: Any, cursor: Any, stop: Any) -> Any | None:
    """One step where all messages have the same field next, which is the rule; None where they have not."""
    tags = buffer[cursor]
    tag = int(tags[0])
    wire, field = tag & 7, tag >> 3
    if tag >= 128 or not field or wire not in (_VARINT, _BYTES) or not (tags == tag).all():
        return None
    value, behind = _varints(buffer, words, cursor + 1)
    following = behind if wire == _VARINT else behind + value
    if (following > stop).any() or (wire == _BYTES and (value < 0).any()):
        return None
    walked.seen.add(field)
    if wire == _VARINT:
        walked.number(field)[rows] = value
    else:
        begins, ends = walked.span(field)
        begins[rows], ends[rows] = behind, following
    return following


def _varints(buffer: Any, words: Any, at: Any) -> tuple[Any, Any]:
    """The varints at these bytes as int64, and where each ends."""
    first = buffer[at]
    long = np.flatnonzero(first >= 128)
    if len(long) == len(at):
        return _long_varints(buffer, words, at)
    value = first.astype(np.int64)
    behind = at + 1
    if len(long):
        value[long], behind[long] = _long_varints(buffer, words, at[long])
    return value, behind


def _long_varints(buffer: Any, words: Any, at: Any) -> tuple[Any, Any]:
    """The same for varints of two to ten bytes: eight bytes at a time, folded without a loop."""
    # Two aligned words hold the eight bytes; gathering them unaligned would make numpy copy the whole buffer.
    place, shift = at >> 3, ((at & 7) << 3).astype(np.uint64)
    word = (words[place] >> shift) | (words[place + 1] << (np.uint64(63) - shift) << np.uint64(1))
    ends = ~word & _HIGH
    # The lowest set bit of ``ends`` is the top bit of the last byte; what lies above it is not ours.
    last = ends & (~ends + np.uint64(1))
    is_long = ends == 0
    mask = np.where(is_long, ~np.uint64(0), (last << np.uint64(1)) - np.uint64(1))
    mask = np.where(last == np.uint64(1 << 63), ~np.uint64(0), mask)
    kept = word & mask & _LOW
    kept = (kept & np.uint64(0x007F007F007F007F)) | ((kept & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    kept = (kept & np.uint64(0x00003FFF00003FFF)) | ((kept & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    value = (kept & np.uint64(0x000000000FFFFFFF)) | ((kept & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    # Bits below the last byte's top bit, counted in bytes.
    length = np.bitwise_count(last - np.uint64(1)).astype(np.int64) // 8 + 1
    ninth = np.flatnonzero(is_long)
    if len(ninth):
        high = buffer[at[ninth] + 8].astype(np.uint64)
        tenth = buffer[at[ninth] + 9].astype(np.uint64)
        value[ninth] |= (high & np.uint64(0x7F)) << np.uint64(56)
        value[ninth] |= np.where(high >= 128, (tenth & np.uint64(1)) << np.uint64(63), np.uint64(0))
        length[ninth] = np.where(high >= 128, 10, 9)
    return value.view(np.int64), at + length
