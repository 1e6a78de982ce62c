"""How frames lie in a stream of bytes: as WebSocket frames, or behind their lengths."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pixiu.machines.session.events import BadFrame
from pixiu.model.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LENGTH_PREFIXED", "WEBSOCKET_BINARY", "WEBSOCKET_TEXT", "Envelope", "FrameTooLarge", "LengthPrefixed"]

_LENGTH = Struct(">I")
_WEBSOCKET_16 = Struct(">BBH")
_WEBSOCKET_64 = Struct(">BBQ")
_TEXT, _BINARY = 0x81, 0x82
_SHORT_TEXT = [bytes((_TEXT, size)) for size in range(126)]
_SHORT_BINARY = [bytes((_BINARY, size)) for size in range(126)]


class FrameTooLarge(BadFrame, TooLarge):
    """A frame over the limit. It is not read, so nobody knows where the next one begins."""

    code = "too_large"


class Envelope(NamedTuple):
    """What goes around a payload."""

    wrap: Callable[[bytes], bytes]
    ping: bytes
    """A sign of life to ask for one; empty where a push has to do."""


def _websocket_text(payload: bytes) -> bytes:
    size = len(payload)
    return (_SHORT_TEXT[size] if size < 126 else _long_header(_TEXT, size)) + payload


def _websocket_binary(payload: bytes) -> bytes:
    size = len(payload)
    return (_SHORT_BINARY[size] if size < 126 else _long_header(_BINARY, size)) + payload


def _long_header(first: int, size: int) -> bytes:
    return _WEBSOCKET_16.pack(first, 126, size) if size < 0x10000 else _WEBSOCKET_64.pack(first, 127, size)


def _length_prefixed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


WEBSOCKET_TEXT = Envelope(_websocket_text, b"\x89\x00")
WEBSOCKET_BINARY = Envelope(_websocket_binary, b"\x89\x00")
LENGTH_PREFIXED = Envelope(_length_prefixed, b"")


class LengthPrefixed:
    """Takes bytes as they come, gives whole frames: each behind its length, four bytes, the highest first.

    Never holds more than one frame that is not whole. Nothing is allocated ahead of the bytes that arrive.
    """

    __slots__ = ("_buffer", "_bytes_max", "_need", "_then")

    def __init__(self, bytes_max: int, *, then: int = 0) -> None:
        """``then`` is the bound of all frames behind the first one, if that is another."""
        self._bytes_max = bytes_max
        self._then = then or bytes_max
        self._buffer = bytearray()
        self._need = 4

    def feed(self, data: bytes) -> list[bytes]:
        """Frames that are whole now. Raises ``FrameTooLarge``: then all is lost, close.

        What comes before a frame that is too large is not given either: it would be answered into a closed connection.
        """
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._need:
            return []
        frames: list[bytes] = []
        position, end = 0, len(buffer)
        while end - position >= 4:
            (size,) = _LENGTH.unpack_from(buffer, position)
            if size > self._bytes_max:
                raise FrameTooLarge(f"a frame may have {self._bytes_max} bytes, not {size}")
            if end - position - 4 < size:
                self._need = size + 4
                break
            frames.append(bytes(buffer[position + 4 : position + 4 + size]))
            position += size + 4
            self._bytes_max = self._then
        else:
            self._need = 4
        del buffer[:position]
        return frames

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole."""
        return len(self._buffer)
