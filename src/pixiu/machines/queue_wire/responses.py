"""Answers of the queue, from bytes, in the order of the requests.

Nothing in an answer says which request it belongs to, and its length field sits at a different place for
each kind, so the reader is told what is outstanding::

    reader = ResponseReader()
    reader.expect(Kind.DONE)                   # a Pub was sent
    reader.expect(Kind.SIZED)                  # then a List
    for response in reader.receive(data): ...  # answers come in that order, whole

The reader never guesses: an answer nobody asked for, an unknown code or a length past the bound raises
RemoteProtocolError, and from then on the connection is good for nothing but closing.
"""

import struct
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from pixiu.machines.queue_wire.commands import CODE_ALIVE, CODE_DONE, CODE_REFUSED, RESPONSE_HEADER_BYTES
from pixiu.machines.queue_wire.unread import Unread
from pixiu.model.errors import RemoteProtocolError

__all__ = [
    "AppendAnswer",
    "Kind",
    "Response",
    "ResponseReader",
    "decode_append_answer",
    "encode_append_answer",
    "encode_done",
    "encode_refused",
    "encode_sized",
]

BODY_BYTES_MAX_DEFAULT = 256 * 2**20

_head = struct.Struct("<Hq")
_sized_head = struct.Struct("<HI4x")
_refused_head = struct.Struct("<HH6x")
_append_answer = struct.Struct("<qqB")

TEXT_BYTES_MAX = 32767
"""smss's Java client reads the length as a signed 16-bit number."""

ANSWER_ALIVE = _head.pack(CODE_ALIVE, 0)


class Kind(IntEnum):
    """The shapes of a 200 answer outside the streams."""

    DONE = 0
    """Header only; bytes 2..9 may hold an event id (or an epoch)."""
    SIZED = 1
    """u32 length at 2, then a body: JSON, or Append's numbers."""


class Response(NamedTuple):
    """One whole answer."""

    code: int
    value: int
    """The i64 in the free bytes of a header-only answer; 0 if the server put none there."""
    body: bytes
    """The body of a sized answer, or the text of a refusal."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", errors="replace")


class ResponseReader:
    """Turns bytes into answers. Memory is bounded by one answer of ``body_bytes_max``."""

    def __init__(self, *, body_bytes_max: int = BODY_BYTES_MAX_DEFAULT) -> None:
        self._unread = Unread(RESPONSE_HEADER_BYTES)
        self._expected: deque[Kind] = deque()
        self._body_bytes_max = body_bytes_max
        self._is_broken = False

    @property
    def outstanding(self) -> int:
        """How many answers are still to come."""
        return len(self._expected)

    def expect(self, kind: Kind) -> None:
        """One more request of this kind is on its way."""
        self._expected.append(kind)

    def receive(self, data: bytes) -> list[Response]:
        """Take bytes as they come; return the answers that are now whole."""
        if self._is_broken:
            raise RemoteProtocolError("the connection broke the protocol earlier")
        if data and not self._expected:
            self._is_broken = True
            raise _unasked(data)
        buffer = self._unread.join(data)
        if buffer is None:
            return []
        responses: list[Response] = []
        position = 0
        end = len(buffer)
        needed = RESPONSE_HEADER_BYTES
        try:
            while end - position >= RESPONSE_HEADER_BYTES:
                stop = self._parse(buffer, position, responses)
                if stop > end:
                    needed = stop - position
                    break
                position = stop
            else:
                if position < end and not self._expected:
                    raise _unasked(buffer[position:])
        except RemoteProtocolError:
            self._is_broken = True
            raise
        self._unread.keep(buffer[position:], needed)
        return responses

    def _parse(self, buffer: bytes, start: int, responses: list[Response]) -> int:
        """Where the answer at ``start`` ends; it is added to ``responses`` if it is whole."""
        expected = self._expected
        if not expected:
            raise _unasked(buffer[start:])
        code: int
        value: int
        code, value = _head.unpack_from(buffer, start)
        body_start = start + RESPONSE_HEADER_BYTES
        if code == CODE_DONE:
            if expected[0] == Kind.DONE:
                expected.popleft()
                responses.append(Response(code, value, b""))
                return body_start
            length = value & 0xFFFFFFFF
            if length > self._body_bytes_max:
                raise RemoteProtocolError(f"an answer of {length} bytes; the bound is {self._body_bytes_max}")
        elif code == CODE_REFUSED:
            length = value & 0xFFFF
        elif code == CODE_ALIVE:
            length = 0
        else:
            raise RemoteProtocolError(f"an answer with code {code}, which is none of 200, 201, 400")
        stop = body_start + length
        if stop <= len(buffer):
            expected.popleft()
            responses.append(Response(code, 0, buffer[body_start:stop]))
        return stop


def _unasked(data: bytes) -> RemoteProtocolError:
    """A server that turns a connection away may say why before it is asked anything: pass that on."""
    is_refusal = data[:2] == CODE_REFUSED.to_bytes(2, "little")
    text = data[RESPONSE_HEADER_BYTES:1000].decode("utf-8", errors="replace") if is_refusal else ""
    return RemoteProtocolError(f"an answer that nobody asked for{': ' if text else ''}{text}")


class AppendAnswer(NamedTuple):
    """The numbers of an appended message."""

    event_id: int
    message_id: int
    repeat: bool
    """True: the key was there already, and these are the first append's numbers."""


def decode_append_answer(body: bytes) -> AppendAnswer:
    """The body of Append's answer."""
    if len(body) != _append_answer.size:
        raise RemoteProtocolError(f"Append answers with {_append_answer.size} bytes, not {len(body)}")
    event_id, message_id, repeat = _append_answer.unpack(body)
    return AppendAnswer(event_id, message_id, bool(repeat))


# The other direction, for servers.


def encode_done(value: int = 0) -> bytes:
    """200 without a body."""
    return _head.pack(CODE_DONE, value)


def encode_sized(body: bytes) -> bytes:
    """200 with its length at 2."""
    return _sized_head.pack(CODE_DONE, len(body)) + body


def encode_append_answer(event_id: int, message_id: int, repeat: bool) -> bytes:
    """The whole answer to Append."""
    return encode_sized(_append_answer.pack(event_id, message_id, repeat))


def encode_refused(text: str) -> bytes:
    """400 with a text that every client can read the length of."""
    body = text.encode()[:TEXT_BYTES_MAX]
    return _refused_head.pack(CODE_REFUSED, len(body)) + body
