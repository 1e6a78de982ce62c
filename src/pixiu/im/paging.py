"""Pages of list answers: bounded in rows and in bytes.

The bound in bytes is about what a client receives: rows are measured as JSON. A page always holds at least one row, so
that a client that asks for page after page reaches the end, also where one row alone is larger than the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pixiu.im import params as read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.im.draft import Answer, Params

__all__ = ["ROWS_MAX", "fitting", "row_count", "row_limit", "size_of"]

ROWS_MAX = 1000
"""Rows in one page of people, groups or scheduled sends. Pages of messages hold ``messaging.page_max``."""

_encode = msgspec.json.Encoder().encode


def size_of(row: object) -> int:
    """Bytes of a row in a JSON list."""
    return len(_encode(row)) + 1


def fitting(rows: Iterable[Any], bytes_max: int) -> list[Any]:
    """The first rows, as many as fit into ``bytes_max``, and at least one if there is any."""
    found: list[Any] = []
    for row in rows:
        bytes_max -= size_of(row)
        if bytes_max < 0 and found:
            break
        found.append(row)
    return found


def row_count(answer: Answer) -> int:
    """How many rows the lists of an answer hold."""
    return sum(len(each) for each in answer.values() if isinstance(each, list))


def row_limit(params: Params) -> int:
    """How many rows were asked for, up to what a page may hold."""
    return min(read.number(params, "limit", at_least=1, default=ROWS_MAX) or ROWS_MAX, ROWS_MAX)
