"""The server's answers, as bytes. Header and body always leave in one write."""

from struct import Struct

OK = b"\xc8\x00" + bytes(8)
ALIVE = b"\xc9\x00" + bytes(8)
ENDED = b"\xff\x00" + bytes(8)

ERROR_BYTES_MAX = 32_000
"""Old clients read the length as a signed short."""

_ERROR = Struct("<HH6x")
_JSON = Struct("<HI4x")
_BATCH = Struct("<HBxI2x")
_ID = Struct("<Hq")
_STREAM = Struct("<HBxI2x")
_NUMBERS = Struct("<HI4xqqB")


def error_frame(text: str) -> bytes:
    """A 400 with its reason."""
    data = text.encode(errors="replace")[:ERROR_BYTES_MAX]
    return _ERROR.pack(400, len(data)) + data


def json_frame(text: str) -> bytes:
    """A 200 with JSON; an empty text is the empty list."""
    data = text.encode()
    return _JSON.pack(200, len(data)) + data


def batch_frame(count: int, items: bytes) -> bytes:
    """A push to a subscriber."""
    return _BATCH.pack(200, count, len(items)) + items


def ok_with(event_id: int) -> bytes:
    """A 200 that carries an event id in its free bytes."""
    return _ID.pack(200, event_id)


def numbers_frame(event_id: int, message_id: int, *, is_repeat: bool) -> bytes:
    """The answer to an append."""
    return _NUMBERS.pack(200, 17, event_id, message_id, is_repeat)


def stream_frame(kind: int, body: bytes) -> bytes:
    """One message of a follow or snapshot stream."""
    return _STREAM.pack(200, kind, len(body)) + body
