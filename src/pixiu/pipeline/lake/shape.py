"""Rows as the archive keeps them: with conversation, day and bucket, in the order of their table. Arrow and numpy only.

A message's ``day`` is that of its number, not of its clock: whoever knows a message id knows the day, so a recall or a
receipt finds its message without a search.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.lake.schema import BUCKETS, LAKE_SCHEMAS, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bucket_of", "ordered", "shape"]

_DAY_MS = 86_400_000
_ODD = np.uint64(0x9E3779B97F4A7C15)
_TOP_BITS = np.uint64(64 - (BUCKETS - 1).bit_length())
_MASK = 2**64 - 1


def shape(table: str, rows: Any) -> Any:
    """A batch of rows, as records give them, with all columns of the archive's table."""
    if table == "messages":
        return _messages(rows)
    at = rows.column("accepted_at" if table == "changes" else "noted_at")
    return _built(table, rows, {"day": at.cast(pa.date32())})


def _messages(rows: Any) -> Any:
    sender, recipient, group = (rows.column(name).to_numpy() for name in ("sender_id", "recipient_id", "group_id"))
    in_group = (recipient == 0) & (group > 0)
    is_push = pc.fill_null(pc.equal(rows.column("notice"), "push"), False).to_numpy(zero_copy_only=False) & ~in_group
    low, high = np.minimum(sender, recipient), np.maximum(sender, recipient)
    names = pc.binary_join_element_wise("u", pa.array(low).cast(pa.string()), pa.array(high).cast(pa.string()), ":")
    if in_group.any():
        names = pc.if_else(
            pa.array(in_group), pc.binary_join_element_wise("g", pa.array(group).cast(pa.string()), ":"), names
        )
    if is_push.any():
        names = pc.if_else(pa.array(is_push), "push", names)
    low, high = np.where(in_group, 0, np.where(is_push, 0, low)), np.where(in_group, group, np.where(is_push, 0, high))
    made_ms = (rows.column("message_id").to_numpy() >> (NODE_BITS + SEQUENCE_BITS)) + SNOWFLAKE_EPOCH_MS
    days = (made_ms // _DAY_MS).astype(np.int32)
    return _built(
        "messages",
        rows,
        {"conversation": names, "day": pa.array(days).view(pa.date32()), "bucket": pa.array(_buckets(low, high))},
    )


def _built(table: str, rows: Any, more: dict[str, Any]) -> Any:
    schema, here = LAKE_SCHEMAS[table], set(rows.schema.names)
    return pa.RecordBatch.from_arrays(
        [
            more[field.name] if field.name in more
            else rows.column(field.name) if field.name in here
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )  # fmt: skip


def _buckets(low: Any, high: Any) -> Any:
    mixed = (low.astype(np.uint64) * _ODD + high.astype(np.uint64)) * _ODD
    return ((mixed ^ (mixed >> np.uint64(29))) * _ODD >> _TOP_BITS).astype(np.int32)


def bucket_of(conversation: str) -> int:
    """The bucket of a conversation by its name."""
    kind, *numbers = conversation.split(":")
    low, high = ([0, *map(int, numbers)] if kind == "g" else list(map(int, numbers))) or [0, 0]
    mixed = (low * int(_ODD) + high) * int(_ODD) & _MASK
    return ((mixed ^ (mixed >> 29)) * int(_ODD) & _MASK) >> int(_TOP_BITS)


def ordered(table: str, rows: Any, piece_rows: int) -> Iterator[Any]:
    """A table of rows in the order of its files, piece by piece: there is never a second copy of all of them."""
    columns, schema = rows.columns, rows.schema
    del rows
    for number, column in enumerate(columns):
        # Many small chunks would make every look-up a search. A column's own are gone before the next is joined.
        columns[number] = column.combine_chunks()
        del column
    rows = pa.Table.from_arrays(columns, schema=schema)
    del columns
    order = _order([_sortable(rows.column(name).chunk(0)) for name in ORDER[table]])
    for start in range(0, rows.num_rows, piece_rows):
        yield (
            rows.slice(start, piece_rows) if order is None else rows.take(pa.array(order[start : start + piece_rows]))
        )


def _order(keys: list[Any]) -> Any | None:
    """As ``lexsort``, the first key before the others; None if that is how they are.

    Rows come in the order of their events, and sorting is stable: the last keys mostly make no difference. Keys that
    fit into one number are sorted as one.
    """
    count = next(number for number in range(len(keys) + 1) if _rises(keys[number:]))
    if not count:
        return None
    keys = keys[:count]
    spans = [int(key.max()) - int(key.min()) + 1 for key in keys]
    if math.prod(spans) >= 2**62:
        return np.lexsort(keys[::-1])
    packed = np.zeros(len(keys[0]), dtype=np.int64)
    for key, span in zip(keys, spans, strict=True):
        packed = packed * span + (key.astype(np.int64) - int(key.min()))
    return np.argsort(packed, kind="stable")


def _rises(keys: list[Any]) -> bool:
    """Are rows in the order of these keys already?"""
    is_level: Any = True
    for key in keys:
        is_same = key[1:] == key[:-1]
        if (is_level & ~is_same & (key[1:] < key[:-1])).any():
            return False
        is_level = is_level & is_same
    return True


def _sortable(column: Any) -> Any:
    """Numbers that sort as the values of a column do, nulls first."""
    if pa.types.is_string(column.type):
        found = column.dictionary_encode()
        ranks = np.empty(len(found.dictionary) + 1, dtype=np.int64)
        ranks[pc.sort_indices(found.dictionary).to_numpy()] = np.arange(len(found.dictionary))
        ranks[-1] = -1
        return ranks[pc.fill_null(found.indices, len(found.dictionary)).to_numpy(zero_copy_only=False)]
    if pa.types.is_date(column.type):
        column = column.view(pa.int32())
    return pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
