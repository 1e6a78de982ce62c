"""The same secret on a stream: who is at the other end, and that nobody changes what it says.

Each end begins with a challenge; each proves that it knows the secret by a tag over both; then every frame carries a
tag under a key that is made of both challenges, over its number in the stream::

    ─▶ | "PXS" 3 | version 1 | key 1 | from 8 | to 8 | challenge 16 |      ◀─ the same from the other end
    ─▶ | tag 16 |                                                         ◀─ | tag 16 |
    ─▶ | length 4 | tag 16 | frame … |  …

``to`` is 0 from the end that accepts, which does not know yet who comes. A frame that was taken from another stream, or
from another place of this one, has the wrong tag, and the stream ends: nobody knows what is true after that.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.links.sealing import TAG_BYTES, tag_of
from pixiu.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from pixiu.machines.links.sealing import Secrets

__all__ = ["CHALLENGE_BYTES", "FRAME_BYTES_MAX", "SecureStream"]

VERSION = 1
CHALLENGE_BYTES = 16
FRAME_BYTES_MAX = 4 * 2**20
"""The largest frame of a stream: what is more comes in several."""

_HELLO = Struct(">3sBBQQ16s")
_LENGTH = Struct(">I")
_NUMBER = Struct(">Q")
_MAGIC = b"PXS"


class SecureStream:
    """One end of a stream: bytes in, frames out, and the other way round."""

    def __init__(self, secrets: Secrets, boot: int, challenge: bytes, *, to: int = 0) -> None:
        """``to`` is whom this end has called; 0 at the end that was called."""
        assert len(challenge) == CHALLENGE_BYTES
        self._secrets = secrets
        self._boot = boot
        self._to = to
        self._hello = _HELLO.pack(_MAGIC, VERSION, secrets.number, boot, to, challenge)
        self._buffer = bytearray()
        self._stage = 0
        self._theirs = b""
        self._key = b""
        self._sent = 0
        self._received = 0
        self.peer = 0
        """The other end's boot id, as soon as it has proved that it knows the secret."""

    @property
    def is_open(self) -> bool:
        """Has the other end proved who it is?"""
        return self._stage == 2

    def begin(self) -> bytes:
        """What to write first."""
        return self._hello

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """What to write now, and the frames that are whole. Raises ``RemoteProtocolError``: then all is lost, close."""
        self._buffer += data
        out = b""
        if self._stage == 0 and len(self._buffer) >= _HELLO.size:
            out = self._greeted(bytes(self._buffer[: _HELLO.size]))
            del self._buffer[: _HELLO.size]
        if self._stage == 1 and len(self._buffer) >= TAG_BYTES:
            self._proved(bytes(self._buffer[:TAG_BYTES]))
            del self._buffer[:TAG_BYTES]
        return out, self._frames() if self._stage == 2 else []

    def seal(self, frame: bytes) -> bytes:
        """A frame as bytes to write."""
        assert self._stage == 2, "nobody has proved anything yet"
        self._sent += 1
        tag = tag_of(self._key, self._hello, _NUMBER.pack(self._sent), frame)
        return _LENGTH.pack(len(frame)) + tag + frame

    # Steps.

    def _greeted(self, hello: bytes) -> bytes:
        magic, version, key_number, boot, to, _ = _HELLO.unpack(hello)
        if magic != _MAGIC or version != VERSION:
            raise RemoteProtocolError("the peer does not speak as a node of the cluster does")
        if hello == self._hello:
            raise RemoteProtocolError("the peer says what it is told")
        if to not in (0, self._boot) or (self._to and boot != self._to):
            raise RemoteProtocolError("the peer is another process than the one that was meant")
        self._theirs = hello
        secrets = self._secrets
        # Both ends use the caller's key, if the one that is called has it, too.
        number = secrets.number if self._to else key_number
        known = secrets.named(number)
        if known is None:
            raise RemoteProtocolError("the peer uses a secret that is not known here")
        first, second = (self._hello, hello) if self._to else (hello, self._hello)
        self._key = blake2b(first + second, key=known, digest_size=32).digest()
        self._stage = 1
        self.peer = boot
        return tag_of(self._key, self._hello)

    def _proved(self, tag: bytes) -> None:
        if not compare_digest(tag, tag_of(self._key, self._theirs)):
            self.peer = 0
            raise RemoteProtocolError("the peer does not know the cluster's secret")
        self._stage = 2

    def _frames(self) -> list[bytes]:
        buffer, frames, position = self._buffer, [], 0
        head = _LENGTH.size + TAG_BYTES
        while len(buffer) - position >= head:
            (size,) = _LENGTH.unpack_from(buffer, position)
            if size > FRAME_BYTES_MAX:
                raise RemoteProtocolError(f"a frame may have {FRAME_BYTES_MAX} bytes, not {size}")
            if len(buffer) - position - head < size:
                break
            tag = bytes(buffer[position + _LENGTH.size : position + head])
            frame = bytes(buffer[position + head : position + head + size])
            self._received += 1
            if not compare_digest(tag, tag_of(self._key, self._theirs, _NUMBER.pack(self._received), frame)):
                raise RemoteProtocolError("a frame is not what the peer has sent")
            frames.append(frame)
            position += head + size
        del buffer[:position]
        return frames
