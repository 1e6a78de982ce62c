"""Which Kafka a broker is. The driver does not tell, so it is asked in Kafka's own words: one ApiVersions request."""

from __future__ import annotations

import socket
from struct import Struct, error
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

__all__ = ["release_of", "supported_metadata_version"]

_API_VERSIONS = 18
_VERSION = 3
_FEATURE = b"metadata.version"
_RELEASES = ((28, "4.2 or newer"), (26, "4.1"), (22, "4.0"), (21, "3.9"), (20, "3.8"), (15, "3.7"), (12, "3.6"),
             (9, "3.5"), (8, "3.4"), (1, "3.3"))  # fmt: skip
"""From this metadata.version on it is this release."""

_size = Struct(">i")
_head = Struct(">hhih")
_short = Struct(">h")
ANSWER_BYTES_MAX = 1_000_000


def release_of(host: str, port: int, tls: ssl.SSLContext | None = None, *, timeout_seconds: float = 5) -> str:
    """The release of a broker, like "4.1"; empty if it cannot be told, as before 3.3. It is asked before a login."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds) as link:
            if tls is None:
                level = supported_metadata_version(_asked(link))
            else:
                with tls.wrap_socket(link, server_hostname=host) as inside:
                    level = supported_metadata_version(_asked(inside))
    except (OSError, IndexError, ValueError, error):
        return ""
    return next((release for first, release in _RELEASES if level >= first), "")


def _asked(link: socket.socket) -> bytes:
    name = b"pixiu"
    body = _head.pack(_API_VERSIONS, _VERSION, 1, len(name)) + name + b"\0"
    body += bytes([len(name) + 1]) + name + b"\x02" + b"1" + b"\0"
    link.sendall(_size.pack(len(body)) + body)
    (size,) = _size.unpack(_exactly(link, 4))
    if not 0 < size <= ANSWER_BYTES_MAX:
        raise ValueError("no answer of Kafka's")
    return _exactly(link, size)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise OSError("the broker hung up")
        data += piece
    return data


def supported_metadata_version(answer: bytes) -> int:
    """The newest metadata.version that a broker can do, from its answer; 0 if it names none."""
    at = 6  # correlation id, error code
    count, at = _varint(answer, at)
    for _ in range(count - 1):
        at = _skip_tags(answer, at + 6)
    at += 4  # throttled for so long
    tags, at = _varint(answer, at)
    for _ in range(tags):
        tag, at = _varint(answer, at)
        size, at = _varint(answer, at)
        if tag == 0:
            return _feature(answer, at)
        at += size
    return 0


def _feature(answer: bytes, at: int) -> int:
    count, at = _varint(answer, at)
    for _ in range(count - 1):
        size, at = _varint(answer, at)
        name, at = answer[at : at + size - 1], at + size - 1
        if name == _FEATURE:
            return int(_short.unpack_from(answer, at + 2)[0])
        at = _skip_tags(answer, at + 4)
    return 0


def _skip_tags(answer: bytes, at: int) -> int:
    count, at = _varint(answer, at)
    for _ in range(count):
        _, at = _varint(answer, at)
        size, at = _varint(answer, at)
        at += size
    return at


def _varint(answer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = answer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without end")
