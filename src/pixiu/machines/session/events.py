"""What a client says on its connection, apart from how it is encoded."""

from __future__ import annotations

from typing import NamedTuple

from pixiu.model.errors import RemoteProtocolError, RequestError

__all__ = [
    "CURSOR_MAX",
    "DEPTH_MAX",
    "FRAME_SLACK_BYTES",
    "ID_BYTES_MAX",
    "VALUES_MAX",
    "Ack",
    "BadFrame",
    "ClientEvent",
    "Encoded",
    "Hello",
    "Malformed",
    "Pong",
    "Request",
    "RequestId",
    "read_cursor",
]

DEPTH_MAX = 16
"""Objects and lists within each other, in one frame."""
VALUES_MAX = 16_384
"""Values in one binary frame."""
FRAME_SLACK_BYTES = 64 * 1024
"""What a frame may have beside the content of the largest message: names, ids, fields of its own."""
ID_BYTES_MAX = 64
CURSOR_MAX = 2**63 - 1

RequestId = int | str | None
"""A client's name for a request; comes back in the answer."""

Encoded = tuple[bytes, bytes]
"""A message's push without its cursor: what lies before it, and what behind."""


class BadFrame(RemoteProtocolError):
    """Not a frame at all. Nobody knows what the client means: say so, and close."""


class Request(NamedTuple):
    """Do something, and answer with the same id."""

    id: RequestId
    action: str
    params: dict[str, object]


class Ack(NamedTuple):
    """The client holds everything through this cursor."""

    cursor: int


class Pong(NamedTuple):
    """The client lives."""


class Hello(NamedTuple):
    """The first frame over TCP: who it is, where it was, and in which codec it will speak."""

    token: str
    cursor: int
    codec: str


class Malformed(NamedTuple):
    """A frame, but not a request that can be performed: refuse it, and go on."""

    id: RequestId
    reason: str


ClientEvent = Request | Ack | Pong | Malformed


def read_cursor(value: object) -> int:
    """A cursor: a text of digits, or a number. Raises ``RequestError``."""
    if type(value) is str and 0 < len(value) <= 19 and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or not 0 <= value <= CURSOR_MAX:
        raise RequestError("cursor must be one that a push or an answer gave")
    return value
