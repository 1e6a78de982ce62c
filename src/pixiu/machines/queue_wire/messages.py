"""One message, and the payload that packs one or more of them.

::

    payload := message message ...            no count, no separator
    message := u32 content length | u32 header count | headers | body
    header  := u32 length | key | u32 length | value

    content length = bytes of headers and body, at least 1; the two leading u32 are not counted.

smss never looks inside the content, so one lying header count breaks every consumer of the topic. Here both
ends check: ``split_messages`` is the server's door and refuses what does not fit to the byte.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pixiu.machines.queue_wire.commands import HEADER_KEY, HEADER_MESSAGE_ID, MESSAGE_HEADER_BYTES
from pixiu.model.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["Message", "count_messages", "is_one_message", "pack", "split_messages", "unpack"]

_pair = struct.Struct("<II")
_pack_pair = _pair.pack
_read_pair = _pair.unpack_from
_one = struct.Struct("<I")
_pack_one = _one.pack
_read_one = _one.unpack_from

CONTENT_BYTES_MAX = 2**32 - 1 - MESSAGE_HEADER_BYTES


def split_messages(payload: bytes, *, count_max: int = 2**31) -> list[bytes] | None:
    """The messages of a payload, or None if it is not exactly one or more well-formed messages.

    Stops one beyond ``count_max``: whoever has a bound sees that it is passed, without paying for the rest.
    """
    size = len(payload)
    if size <= 8:
        return None
    content, header_count = _read_pair(payload, 0)
    if content == size - 8:  # One message, by far the most common payload: no copy.
        if header_count and _body_start(payload, 8, size, header_count) < 0:
            return None
        return [payload]
    messages = []
    start = 0
    while start < size:
        if size - start <= 8:
            return None
        content, header_count = _read_pair(payload, start)
        end = start + 8 + content
        if not content or end > size:
            return None
        if header_count and _body_start(payload, start + 8, end, header_count) < 0:
            return None
        messages.append(payload[start:end])
        start = end
        if len(messages) > count_max:
            break
    return messages


def count_messages(payload: bytes) -> int:
    """How many messages a payload holds that ``split_messages`` has accepted before."""
    count = start = 0
    size = len(payload)
    while start + MESSAGE_HEADER_BYTES < size:
        start += MESSAGE_HEADER_BYTES + _read_one(payload, start)[0]
        count += 1
    return count


def is_one_message(payload: bytes) -> bool:
    """True if the payload is exactly one well-formed message (what Append takes)."""
    messages = split_messages(payload)
    return messages is not None and len(messages) == 1


def _body_start(payload: bytes, start: int, end: int, header_count: int) -> int:
    """Where the body begins after the headers, or -1 if they do not fit between start and end."""
    if header_count > (end - start) >> 3:  # A header is at least 8 bytes: bounds the loop before it runs.
        return -1
    for _ in range(header_count):
        for _ in (0, 1):
            if end - start < 4:
                return -1
            start += 4 + _read_one(payload, start)[0]
            if start > end:
                return -1
    return start


@dataclass(frozen=True, slots=True)
class Message:
    """What a publisher sends and a subscriber gets: headers in order, and a body. Not both empty."""

    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @classmethod
    def of(cls, body: bytes | str, headers: Mapping[str, str | bytes] | None = None) -> Self:
        """Build one from what callers have at hand; text is encoded as UTF-8."""
        if not headers:
            return cls(_as_bytes(body))
        pairs = tuple((_as_bytes(key), _as_bytes(value)) for key, value in headers.items())
        if any(not key for key, _ in pairs):
            raise LocalProtocolError("a header needs a name: smss's Java client misreads an empty one")
        return cls(_as_bytes(body), pairs)

    def encode(self) -> bytes:
        """The bytes of this message. A message with neither headers nor body cannot be sent."""
        if not self.headers:
            if not self.body:
                raise LocalProtocolError("a message needs a body or a header; this one has neither")
            return _pack_pair(len(self.body), 0) + self.body
        parts = []
        for key, value in self.headers:
            parts += [_pack_one(len(key)), key, _pack_one(len(value)), value]
        headers = b"".join(parts)
        content = len(headers) + len(self.body)
        if content > CONTENT_BYTES_MAX:
            raise LocalProtocolError(f"a message holds at most {CONTENT_BYTES_MAX} bytes, not {content}")
        return _pack_pair(content, len(self.headers)) + headers + self.body

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse exactly one message; anything else raises RemoteProtocolError."""
        size = len(data)
        if size <= 8:
            raise RemoteProtocolError(f"a message has more than 8 bytes, not {size}")
        content, header_count = _read_pair(data, 0)
        if content != size - 8:
            raise RemoteProtocolError(f"a message of {size} bytes claims {content} bytes of content")
        if not header_count:
            return cls(data[8:])
        body_start = _body_start(data, 8, size, header_count)
        if body_start < 0:
            raise RemoteProtocolError(f"{header_count} headers do not fit into {content} bytes of content")
        pairs = []
        start = 8
        for _ in range(header_count):
            key, start = _read_field(data, start)
            value, start = _read_field(data, start)
            pairs.append((key, value))
        return cls(data[body_start:], tuple(pairs))

    def header(self, name: str | bytes) -> bytes | None:
        """The value of the first header of that name, or None."""
        wanted = _as_bytes(name)
        for key, value in self.headers:
            if key == wanted:
                return value
        return None

    @property
    def message_id(self) -> int | None:
        """The number that Append gave this message, if it came by Append."""
        value = self.header(HEADER_MESSAGE_ID)
        return int.from_bytes(value, "little", signed=True) if value is not None and len(value) == 8 else None

    @property
    def key(self) -> bytes | None:
        """The key it was appended with, if it came by Append."""
        return self.header(HEADER_KEY)


def pack(messages: Iterable[Message]) -> bytes:
    """The payload of a Pub or Delay: one or more messages back to back."""
    payload = b"".join([message.encode() for message in messages])
    if not payload:
        raise LocalProtocolError("a payload holds at least one message")
    return payload


def unpack(payload: bytes) -> list[Message]:
    """The messages of a payload; raises RemoteProtocolError if it is not well-formed."""
    messages = split_messages(payload)
    if messages is None:
        raise RemoteProtocolError("not a payload of whole messages")
    return [Message.decode(message) for message in messages]


def _read_field(data: bytes, start: int) -> tuple[bytes, int]:
    end = start + 4 + _read_one(data, start)[0]
    return data[start + 4 : end], end


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
