"""Many messages in few datagrams, and back.

A batch for one peer becomes as many datagrams as it needs, each of at most 1200 bytes, so that no network cuts them
(E50). A message is never cut in the middle: it is divided where its meaning allows, or it is for a stream.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.links.codec import divide, encode, kind_of
from pixiu.machines.links.sealing import HEAD_BYTES
from pixiu.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.machines.links.messages import ClusterMessage

__all__ = ["CONTENT_BYTES_MAX", "DATAGRAM_BYTES_MAX", "MESSAGE_BYTES_MAX", "Encoded", "encoded", "pack", "unpack"]

DATAGRAM_BYTES_MAX = 1_200
CONTENT_BYTES_MAX = DATAGRAM_BYTES_MAX - HEAD_BYTES

_SHORT = Struct(">BH")
_LONG = Struct(">BI")
MESSAGE_BYTES_MAX = CONTENT_BYTES_MAX - _SHORT.size
"""The fields of one message that a datagram holds."""

Encoded = tuple[int, bytes]
"""The kind of a message, and its fields."""


def encoded(message: ClusterMessage) -> list[Encoded]:
    """A message as what is sent: itself, or parts of it that fit datagrams where it can be divided."""
    body = encode(message)
    if len(body) <= MESSAGE_BYTES_MAX:
        return [(kind_of(message), body)]
    parts = divide(message, -(-len(body) // MESSAGE_BYTES_MAX) + 1)
    if len(parts) == 1:
        return [(kind_of(message), body)]
    return [each for part in parts for each in encoded(part)]


def pack(messages: Iterable[Encoded]) -> tuple[list[bytes], list[Encoded]]:
    """The contents of datagrams, in order, and what is too large for one."""
    contents: list[bytes] = []
    large: list[Encoded] = []
    parts: list[bytes] = []
    size, head, head_bytes = 0, _SHORT.pack, _SHORT.size
    for kind, body in messages:
        length = len(body)
        if length > MESSAGE_BYTES_MAX:
            large.append((kind, body))
            continue
        size += length + head_bytes
        if size > CONTENT_BYTES_MAX:
            contents.append(b"".join(parts))
            parts, size = [], length + head_bytes
        parts.append(head(kind, length))
        parts.append(body)
    if parts:
        contents.append(b"".join(parts))
    return contents, large


def unpack(content: bytes) -> list[Encoded]:
    """The messages of a datagram. Raises ``RemoteProtocolError``."""
    return _unpack(content, _SHORT)


def frames(messages: Iterable[Encoded], bytes_max: int) -> list[bytes]:
    """Messages as frames of a stream, in order, as few as hold them; a message that is more than a frame is alone."""
    found: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for kind, body in messages:
        length = len(body) + _LONG.size
        if parts and size + length > bytes_max:
            found.append(b"".join(parts))
            parts, size = [], 0
        parts += (_LONG.pack(kind, len(body)), body)
        size += length
    if parts:
        found.append(b"".join(parts))
    return found


def unframe(content: bytes) -> list[Encoded]:
    """The messages of a stream's frame. Raises ``RemoteProtocolError``."""
    return _unpack(content, _LONG)


def _unpack(content: bytes, head: Struct) -> list[Encoded]:
    found: list[Encoded] = []
    begin, end, read, head_bytes = 0, len(content), head.unpack_from, head.size
    while begin < end:
        if end - begin < head_bytes:
            raise RemoteProtocolError("a message ends before it has begun")
        kind, size = read(content, begin)
        begin += head_bytes
        after = begin + size
        if after > end:
            raise RemoteProtocolError(f"a message claims {size} bytes, and {end - begin} are left")
        found.append((kind, content[begin:after]))
        begin = after
    return found
