"""How fields lie in a frame: fixed numbers, texts and bytes behind their lengths, objects as MessagePack.

Reading believes no length and no count before it has looked at how much is there.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from pixiu.model.errors import (
    ConfigError,
    Conflict,
    CorruptData,
    Gone,
    NotAllowed,
    NotFound,
    NotLeader,
    Overloaded,
    PixiuError,
    RateLimited,
    RemoteProtocolError,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COUNT", "NUMBER", "Reader", "error_bytes", "names_bytes", "object_bytes", "text_bytes"]

COUNT = Struct(">I")
NUMBER = Struct(">Q")
_PAIR = Struct(">QI")
_ERROR = Struct(">BQ")

ERRORS: tuple[type[PixiuError], ...] = (
    PixiuError,
    RemoteProtocolError,
    RequestError,
    NotFound,
    NotAllowed,
    Conflict,
    TooLarge,
    Gone,
    Unauthenticated,
    Unavailable,
    Overloaded,
    RateLimited,
    NotLeader,
    CorruptData,
    ConfigError,
)
"""The errors that are told as what they are, by their places here; others as the nearest of their bases."""

_PLACES = {kind: place for place, kind in enumerate(ERRORS)}

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def text_bytes(text: str) -> bytes:
    """A text behind its length. What UTF-8 has no bytes for becomes a question mark."""
    data = text.encode(errors="replace")
    return COUNT.pack(len(data)) + data


def object_bytes(content: Mapping[str, object]) -> bytes:
    """An object behind its length. Raises ``RequestError`` for what has no place in one."""
    try:
        data = _encode(content)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"this cannot be passed on: {error}") from None
    return COUNT.pack(len(data)) + data


def names_bytes(names: Mapping[int, str]) -> bytes:
    """Numbers with their names."""
    parts = [COUNT.pack(len(names))]
    for number, name in names.items():
        data = name.encode(errors="replace")
        parts += (_PAIR.pack(number, len(data)), data)
    return b"".join(parts)


def error_bytes(error: PixiuError) -> bytes:
    """An error: its kind, what it says, and what its kind has beside that."""
    kind = next(each for each in type(error).__mro__ if each in _PLACES)
    later = error.retry_after_ms if isinstance(error, Unavailable) else 0
    leader = error.leader or "" if isinstance(error, NotLeader) else ""
    return _ERROR.pack(_PLACES[kind], later) + text_bytes(str(error)) + text_bytes(leader)


class Reader:
    """Takes fields from a frame, one after the other. Raises ``RemoteProtocolError`` where there is none."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def take(self, struct: Struct) -> tuple[Any, ...]:
        """Numbers."""
        position = self._position
        if len(self._data) - position < struct.size:
            raise RemoteProtocolError("a frame ends in the middle of a field")
        self._position = position + struct.size
        return struct.unpack_from(self._data, position)

    def number(self) -> int:
        """One number."""
        return int(self.take(NUMBER)[0])

    def count(self, least: int) -> int:
        """How many fields follow, each of ``least`` bytes or more."""
        found: int = self.take(COUNT)[0]
        if found * least > len(self._data) - self._position:
            raise RemoteProtocolError(f"a frame claims {found} fields and has no room for them")
        return found

    def rows(self, struct: Struct) -> list[tuple[Any, ...]]:
        """Rows of numbers, behind their count."""
        end = self.count(struct.size) * struct.size + self._position
        found = list(struct.iter_unpack(memoryview(self._data)[self._position : end]))
        self._position = end
        return found

    def data(self, size: int | None = None) -> bytes:
        """Bytes, behind their length unless that is known."""
        if size is None:
            size = self.count(1)
        position = self._position
        if len(self._data) - position < size:
            raise RemoteProtocolError("a frame ends in the middle of its bytes")
        self._position = position + size
        return self._data[position : position + size]

    def rest(self) -> bytes:
        """All that is left."""
        position, self._position = self._position, len(self._data)
        return self._data[position:]

    def text(self) -> str:
        """A text."""
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"a text in a frame is not UTF-8: {error}") from None

    def object(self) -> dict[str, Any]:
        """An object."""
        try:
            return _decode(self.data())
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"an object in a frame cannot be read: {error}") from None

    def names(self) -> dict[int, str]:
        """Numbers with their names."""
        found: dict[int, str] = {}
        for _ in range(self.count(_PAIR.size)):
            number, size = self.take(_PAIR)
            try:
                found[number] = self.data(size).decode()
            except UnicodeDecodeError as error:
                raise RemoteProtocolError(f"a name in a frame is not UTF-8: {error}") from None
        return found

    def error(self) -> PixiuError:
        """An error."""
        place, later = self.take(_ERROR)
        said, leader = self.text(), self.text()
        if place >= len(ERRORS):
            raise RemoteProtocolError(f"there is no error {place}")
        kind = ERRORS[place]
        if kind is NotLeader:
            return NotLeader(said, leader=leader or None, retry_after_ms=later)
        error: PixiuError = kind(said)
        if isinstance(error, Unavailable):
            error.retry_after_ms = later
        return error

    def end(self) -> None:
        """Nothing may be left."""
        if self._position != len(self._data):
            raise RemoteProtocolError(f"a frame has {len(self._data) - self._position} bytes too many")
