"""The extensions' own parts of a request, taken apart and checked. What does not fit raises ``RequestError``."""

from __future__ import annotations

from struct import Struct

from pixiu.machines.queue_wire.commands import BAD_EXTENSION_PART
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import RequestError
from pixiu.queue.positions import FORGET

__all__ = ["KEY_BYTES_MAX", "ROWS_MAX", "append_part", "delay_part", "feed_part", "page_part", "position_part"]

KEY_BYTES_MAX = 512
ROWS_MAX = 10_000
"""Rows in one answer."""

_I64 = Struct("<q")
_U16 = Struct("<H")
_PAGE = Struct("<qI")


def append_part(part: bytes) -> tuple[int, bytes, bytes]:
    """Append: unless_after, the key, the one message."""
    if len(part) < 10:
        raise RequestError(BAD_EXTENSION_PART)
    (unless_after,) = _I64.unpack_from(part)
    (key_bytes,) = _U16.unpack_from(part, 8)
    key, message = part[10 : 10 + key_bytes], part[10 + key_bytes :]
    messages = split_messages(message)
    if len(key) != key_bytes or key_bytes > KEY_BYTES_MAX or messages is None or len(messages) != 1:
        raise RequestError(BAD_EXTENSION_PART)
    return unless_after, key, message


def position_part(part: bytes, name_bytes_max: int) -> tuple[bytes, int]:
    """SetPosition: the subscriber's name, and the event id."""
    (size,) = _U16.unpack_from(part) if len(part) >= 10 else (-1,)
    if size < 0 or len(part) != 10 + size:
        raise RequestError(BAD_EXTENSION_PART)
    (event_id,) = _I64.unpack_from(part, 2 + size)
    if event_id < FORGET or size > name_bytes_max:
        raise RequestError(BAD_EXTENSION_PART)
    return part[2 : 2 + size], event_id


def page_part(part: bytes) -> tuple[int, int]:
    """Delays: behind which event, and how many rows at most."""
    if len(part) != _PAGE.size:
        raise RequestError(BAD_EXTENSION_PART)
    after, limit = _PAGE.unpack(part)
    return after, min(limit, ROWS_MAX)


def delay_part(part: bytes) -> int:
    """CancelDelay: which one."""
    if len(part) != _I64.size:
        raise RequestError(BAD_EXTENSION_PART)
    return int(_I64.unpack(part)[0])


def feed_part(part: bytes) -> int:
    """Feed: behind which event."""
    after = delay_part(part)
    if after < 0:
        raise RequestError(BAD_EXTENSION_PART)
    return after
