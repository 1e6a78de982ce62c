"""The answers to ReadTopic and Scheduled: pages of rows.

::

    topic rows := i64 commit event id | rows of (i64 event id | i64 time | u32 size | message)
    scheduled  := rows of (i64 event id | i64 due | u32 size | messages)
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

from pixiu.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["decode_scheduled", "decode_topic_rows", "encode_scheduled", "encode_topic_rows"]

_ROW = Struct("<qqI")
_I64 = Struct("<q")

Row = tuple[int, int, bytes]


def encode_topic_rows(commit_event_id: int, rows: Iterable[Row]) -> bytes:
    """A page of a topic: (event id, time, message)."""
    return _I64.pack(commit_event_id) + _encode(rows)


def decode_topic_rows(body: bytes) -> tuple[int, list[Row]]:
    """The commit event id when it was read, and the rows."""
    if len(body) < _I64.size:
        raise RemoteProtocolError("a page of a topic that is too short")
    return _I64.unpack_from(body)[0], _decode(body, _I64.size)


def encode_scheduled(rows: Iterable[Row]) -> bytes:
    """What waits: (event id, due, messages)."""
    return _encode(rows)


def decode_scheduled(body: bytes) -> list[Row]:
    """What waits."""
    return _decode(body, 0)


def _encode(rows: Iterable[Row]) -> bytes:
    parts: list[bytes] = []
    for event_id, at, message in rows:
        parts += (_ROW.pack(event_id, at, len(message)), message)
    return b"".join(parts)


def _decode(body: bytes, position: int) -> list[Row]:
    rows: list[Row] = []
    try:
        while position < len(body):
            event_id, at, size = _ROW.unpack_from(body, position)
            position += _ROW.size
            if position + size > len(body):
                raise RemoteProtocolError("a page whose last row is cut off")
            rows.append((event_id, at, body[position : position + size]))
            position += size
    except error:
        raise RemoteProtocolError("a page whose last row is cut off") from None
    return rows
