"""A replica's stores on their way to another replica: what is said, and how it is known to be whole.

::

    taker  ── ask: partition 2, partitions 2 ──▶ giver
    taker  ◀── head: layout 4, partition 2, partitions 2, applied 8
    taker  ◀── pairs, again and again: each key (length 4), value (length 4)
    taker  ◀── end: how many pairs 8, SHA-256 of all frames of pairs 32
    taker  ◀── or: no, with the reason

Each frame is length 4, kind 1, content. Nothing of it counts before the end has come and agrees.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Ask", "End", "Frames", "Head", "No", "Pairs", "Summing", "encode", "fits", "pairs_in"]

FRAME_BYTES_MAX = 64 * 2**20
_FRAME = struct.Struct(">IB")
_ASK = struct.Struct(">HH")
_HEAD = struct.Struct(">IHHQ")
_END = struct.Struct(">Q32s")
_LENGTH = struct.Struct(">I")


class Ask(NamedTuple):
    """Somebody wants what this partition has."""

    partition: int
    partitions: int


class Head(NamedTuple):
    """What follows: of which layout and partition, and through which event it is applied."""

    layout: int
    partition: int
    partitions: int
    applied: int


class Pairs(NamedTuple):
    """Some pairs, as they are sent."""

    content: bytes


class End(NamedTuple):
    """All pairs were sent."""

    pairs: int
    digest: bytes


class No(NamedTuple):
    """There will be no snapshot."""

    reason: str


Said = Ask | Head | Pairs | End | No


def fits(ask: Ask, head: Head) -> bool:
    """Is it a snapshot of the same partition, or of the one that a new partition comes of, before the flip?"""
    if ask.partition == head.partition:
        return True
    return head.partitions <= ask.partitions and ask.partition % head.partitions == head.partition


def encode(said: Said) -> bytes:
    """One frame."""
    match said:
        case Ask():
            kind, content = 1, _ASK.pack(*said)
        case Head():
            kind, content = 2, _HEAD.pack(*said)
        case Pairs(content):
            kind = 3
        case End():
            kind, content = 4, _END.pack(*said)
        case No(reason):
            kind, content = 5, reason.encode()
    return _FRAME.pack(len(content), kind) + content


def _decoded(kind: int, content: bytes) -> Said:
    try:
        match kind:
            case 1:
                return Ask(*_ASK.unpack(content))
            case 2:
                return Head(*_HEAD.unpack(content))
            case 3:
                return Pairs(content)
            case 4:
                return End(*_END.unpack(content))
            case 5:
                return No(content.decode())
            case _:
                raise RemoteProtocolError(f"a snapshot has no frames of kind {kind}")
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a frame of a snapshot makes no sense: {error}") from error


class Frames:
    """Bytes of a stream, as frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> list[Said]:
        """What is complete now. Raises ``RemoteProtocolError``."""
        waiting = self._waiting
        waiting += data
        found: list[Said] = []
        while len(waiting) >= _FRAME.size:
            length, kind = _FRAME.unpack_from(waiting)
            if length > FRAME_BYTES_MAX:
                raise RemoteProtocolError(f"a frame of a snapshot of {length} bytes")
            end = _FRAME.size + length
            if len(waiting) < end:
                break
            found.append(_decoded(kind, bytes(waiting[_FRAME.size : end])))
            del waiting[:end]
        return found


class Summing:
    """What both ends count of the pairs."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = sha256()

    def made(self, pairs: Iterable[tuple[bytes, bytes]]) -> Pairs:
        """The next ones, to be sent."""
        parts: list[bytes] = []
        for key, value in pairs:
            parts += (_LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value)
            self._count += 1
        content = b"".join(parts)
        self._sum.update(content)
        return Pairs(content)

    def came(self, pairs: Pairs) -> list[tuple[bytes, bytes]]:
        """The next ones, which were sent. Raises ``RemoteProtocolError``."""
        found = list(pairs_in(pairs.content))
        self._count += len(found)
        self._sum.update(pairs.content)
        return found

    def end(self) -> End:
        """What is known of all of them."""
        return End(self._count, self._sum.digest())


def pairs_in(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values. Raises ``RemoteProtocolError`` where they are cut."""
    at, found = 0, []
    while at < len(content):
        for _ in range(2):
            if at + _LENGTH.size > len(content):
                raise RemoteProtocolError("a pair of a snapshot is cut")
            (length,) = _LENGTH.unpack_from(content, at)
            at += _LENGTH.size
            if at + length > len(content):
                raise RemoteProtocolError("a pair of a snapshot is cut")
            found.append(content[at : at + length])
            at += length
        yield found[0], found[1]
        found.clear()
