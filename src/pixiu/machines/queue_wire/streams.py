"""The streams that a connection turns into: what a subscriber and an smss replica read.

Each reader takes bytes as they come and returns whole events in order. A stream that ended takes no more
bytes; one that breaks the protocol raises RemoteProtocolError and stays broken. Memory is bounded by one
frame of ``bytes_max``.

::

    subscribe := 200 header, u8 count at 2, u32 length at 4 | items      one batch in flight
    item      := i64 time | i64 event id | i64 file of the next | i64 position of the next | message
    replica   := 200 header | u32 length | block
    any       := 201 header (keep-alive) · 255 header (ended) · 400 header, u16 length at 2 | text
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from pixiu.machines.queue_wire.commands import (
    BATCH_MAX,
    CODE_ALIVE,
    CODE_DONE,
    CODE_ENDED,
    CODE_REFUSED,
    RESPONSE_HEADER_BYTES,
)
from pixiu.machines.queue_wire.unread import Unread
from pixiu.model.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "BatchPushed",
    "BlockSent",
    "Ended",
    "Item",
    "KeptAlive",
    "Refused",
    "ReplicaReader",
    "StreamReader",
    "SubscribeReader",
    "encode_batch",
    "encode_block",
    "encode_ended",
]

BATCH_BYTES_MAX_DEFAULT = 256 * 2**20

_code = struct.Struct("<H")
_text_length = struct.Struct("<H")
_length = struct.Struct("<I")
_batch_head = struct.Struct("<HBxI2x")
_item_head = struct.Struct("<qqqqII")
_place = struct.Struct("<qqqq")

ITEM_HEADER_BYTES = 32


@dataclass(frozen=True, slots=True)
class KeptAlive:
    """201: nothing new, still here."""


@dataclass(frozen=True, slots=True)
class Ended:
    """255: the topic has ended, and the stream with it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """400: the stream ends, or did not begin, for this reason."""

    text: str


class Item(NamedTuple):
    """One message of a batch; its bytes are not looked into yet."""

    time_ms: int
    event_id: int
    next_file: int
    next_position: int
    message: bytes


@dataclass(frozen=True, slots=True)
class BatchPushed:
    """200 on a subscription: ack it to get the next."""

    items: list[Item]


@dataclass(frozen=True, slots=True)
class BlockSent:
    """200 on a replica stream: one record in the form of smss."""

    block: bytes


Event = TypeVar("Event")


class StreamReader(ABC, Generic[Event]):
    """What all streams have in common: headers, keep-alives, ends, refusals, bounds."""

    ends_with_255 = False

    def __init__(self, *, bytes_max: int = BATCH_BYTES_MAX_DEFAULT) -> None:
        self._unread = Unread(RESPONSE_HEADER_BYTES)
        self._bytes_max = bytes_max
        self.is_finished = False
        """True after an end or a refusal."""
        self.is_broken = False
        """True once the peer broke the protocol."""

    def receive(self, data: bytes) -> list[Event | KeptAlive | Ended | Refused]:
        """Take bytes as they come; return the events that are now whole."""
        events: list[Event | KeptAlive | Ended | Refused] = []
        if not data:
            return events
        if self.is_broken:
            raise RemoteProtocolError("the connection broke the protocol earlier")
        if self.is_finished:
            self.is_broken = True
            raise RemoteProtocolError("bytes after the end of the stream")
        buffer = self._unread.join(data)
        if buffer is None:
            return events
        position = 0
        end = len(buffer)
        needed = RESPONSE_HEADER_BYTES
        try:
            while position < end:
                if self.is_finished:
                    raise RemoteProtocolError("bytes after the end of the stream")
                if end - position < RESPONSE_HEADER_BYTES:
                    break
                stop = self._take(buffer, position, events)
                if stop > end:
                    needed = stop - position
                    break
                position = stop
        except RemoteProtocolError:
            self.is_broken = True
            raise
        self._unread.keep(buffer[position:], needed)
        return events

    def _take(self, buffer: bytes, start: int, events: list[Event | KeptAlive | Ended | Refused]) -> int:
        """Add the frame at ``start`` if it is whole; return where it ends (or at least ends)."""
        (code,) = _code.unpack_from(buffer, start)
        body = start + RESPONSE_HEADER_BYTES
        if code == CODE_DONE:
            body, stop = self._span(buffer, start)
            if stop - body > self._bytes_max:
                raise RemoteProtocolError(f"a frame of {stop - body} bytes; the bound is {self._bytes_max}")
            if stop <= len(buffer):
                events.append(self._event(buffer, start, body, stop))
            return stop
        if code == CODE_ALIVE:
            events.append(KeptAlive())
            return body
        if code == CODE_ENDED and self.ends_with_255:
            events.append(Ended())
            self.is_finished = True
            return body
        if code != CODE_REFUSED:
            raise RemoteProtocolError(f"a frame with code {code}, which this stream does not have")
        stop = body + int(_text_length.unpack_from(buffer, start + 2)[0])
        if stop <= len(buffer):
            events.append(Refused(buffer[body:stop].decode("utf-8", errors="replace")))
            self.is_finished = True
        return stop

    def _span(self, buffer: bytes, start: int) -> tuple[int, int]:
        """Where the body of the 200 frame at ``start`` begins and ends: its length is a u32 at 4."""
        body = start + RESPONSE_HEADER_BYTES
        return body, body + int(_length.unpack_from(buffer, start + 4)[0])

    @abstractmethod
    def _event(self, buffer: bytes, start: int, body: int, stop: int) -> Event:
        """The event of a whole 200 frame."""


class SubscribeReader(StreamReader[BatchPushed]):
    """Reads the answer to Sub and Subscribe."""

    ends_with_255 = True

    def _event(self, buffer: bytes, start: int, body: int, stop: int) -> BatchPushed:
        count = buffer[start + 2]
        items = []
        for _ in range(count):
            if stop - body <= ITEM_HEADER_BYTES + 8:
                raise RemoteProtocolError(f"a batch of {count} messages ends inside one of them")
            time_ms, event_id, next_file, next_position, content, _ = _item_head.unpack_from(buffer, body)
            message = body + ITEM_HEADER_BYTES
            body = message + 8 + content
            if not content or body > stop:
                raise RemoteProtocolError(f"a batch of {count} messages ends inside one of them")
            items.append(Item(time_ms, event_id, next_file, next_position, buffer[message:body]))
        if not items or body != stop:
            raise RemoteProtocolError(f"a batch of {count} messages with {stop - body} bytes left over")
        return BatchPushed(items)


class ReplicaReader(StreamReader[BlockSent]):
    """Reads the answer to smss's Replica: the length follows the header instead of being in it."""

    def _span(self, buffer: bytes, start: int) -> tuple[int, int]:
        body = start + RESPONSE_HEADER_BYTES + 4
        if len(buffer) < body:
            return body, body
        return body, body + int(_length.unpack_from(buffer, start + RESPONSE_HEADER_BYTES)[0])

    def _event(self, buffer: bytes, start: int, body: int, stop: int) -> BlockSent:
        return BlockSent(buffer[body:stop])


# The other direction, for servers.


def encode_batch(items: Iterable[Item]) -> bytes:
    """One push to a subscriber."""
    pieces: list[bytes] = []
    for item in items:
        pieces += (_place.pack(*item[:4]), item.message)
    if not 1 <= len(pieces) // 2 <= BATCH_MAX:
        raise LocalProtocolError(f"a batch has 1 to {BATCH_MAX} messages, not {len(pieces) // 2}")
    body = b"".join(pieces)
    return _batch_head.pack(CODE_DONE, len(pieces) // 2, len(body)) + body


def encode_ended() -> bytes:
    """255."""
    return _code.pack(CODE_ENDED) + bytes(8)


def encode_block(block: bytes) -> bytes:
    """One record of the replica stream."""
    return b"".join((_code.pack(CODE_DONE), bytes(8), _length.pack(len(block)), block))
