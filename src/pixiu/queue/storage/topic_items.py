"""How a topic's log lies on disk: its items, and the lines of the sidecar that vouch for them. See ``topic_log``."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CHUNK", "CHUNK_BYTES", "ITEM_HEADER_BYTES", "Item", "items_of"]

ITEM_HEADER_BYTES = 32
CHUNK = Struct("<qqqII")
"""First event id, last event id, position, length, checksum."""
CHUNK_BYTES = CHUNK.size

_ITEM = Struct("<qqqqI")
_CONTENT_AT = 8
"""A message's content begins behind its two lengths."""


class Item(NamedTuple):
    """One message of a piece of a log: where it begins, without its header, and where it ends."""

    event_id: int
    start: int
    end: int


def items_of(data: bytes) -> Iterator[Item]:
    """The items of a piece that begins with one."""
    at = 0
    while at + _ITEM.size <= len(data):
        _, event_id, _, _, content_bytes = _ITEM.unpack_from(data, at)
        start = at + ITEM_HEADER_BYTES
        at = start + _CONTENT_AT + content_bytes
        yield Item(event_id, start, at)
