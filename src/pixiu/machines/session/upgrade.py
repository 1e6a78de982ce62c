"""The head of an HTTP request, read just far enough to know whether a WebSocket is asked for.

One port serves both: what asks for a WebSocket goes to the gateway, everything else, untouched, to the HTTP server.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from pixiu.machines.session.events import read_cursor
from pixiu.model.errors import RequestError

__all__ = [
    "HEAD_BYTES_MAX",
    "HTTP",
    "MORE",
    "SUBPROTOCOLS",
    "BadUpgrade",
    "Upgrade",
    "allows_origin",
    "is_head_here",
    "read_upgrade",
]

HEAD_BYTES_MAX = 16 * 1024
SUBPROTOCOLS = {"pixiu.json.v1": "json", "pixiu.proto.v1": "proto"}
"""Names on the wire, and the codecs that they stand for."""

FIELDS_MAX = 32
_USUAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~=&/?-"
"""What is written in a URL as it is meant. Everything else is written otherwise, or means something there."""
_IS_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*\r\n", re.IGNORECASE)
# fmt: off
_NAMES = frozenset({
    "accept-encoding", "accept-language", "authorization", "cache-control", "connection", "cookie", "host", "origin",
    "pragma", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-protocol", "sec-websocket-version",
    "upgrade", "user-agent",
})
# fmt: on
"""Names that are surely well written: nearly all that come."""
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")
"""Sixteen bytes in base64."""


class _Word:
    """An answer that has no content."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


MORE = _Word("MORE")
"""Not enough bytes to tell."""
HTTP = _Word("HTTP")
"""Not a WebSocket: for the HTTP server."""


class BadUpgrade(RequestError):
    """It asks for a WebSocket, and cannot have it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Upgrade(NamedTuple):
    """A WebSocket is asked for."""

    path: str
    token: str
    """From the URL, or from ``Authorization: Bearer``; empty if there is none."""
    cursor: int
    key: str
    subprotocol: str
    """The first of the client's choices that is known; empty if it offers none."""
    codec: str
    origin: str
    host: str
    size: int
    """Bytes of the head; what follows is the client's first frames."""


def is_head_here(data: bytes) -> bool:
    """Would ``read_upgrade`` say more than ``MORE``?"""
    return not data.startswith(b"GET "[: len(data)]) or b"\r\n\r\n" in data or len(data) > HEAD_BYTES_MAX


def read_upgrade(data: bytes) -> Upgrade | _Word:
    """What the first bytes of a connection ask for. Raises ``BadUpgrade``."""
    if not data.startswith(b"GET "[: len(data)]):
        return HTTP
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return MORE if len(data) <= HEAD_BYTES_MAX else HTTP  # which knows how to say that it is too long
    if not _IS_UPGRADE.search(data, 0, end + 2):
        return HTTP
    lines = data[:end].decode("latin-1").split("\r\n")
    try:
        _, target, version = lines[0].split(" ")
    except ValueError:
        raise BadUpgrade(400, "the request line is not one of HTTP/1.1") from None
    if version != "HTTP/1.1":
        raise BadUpgrade(400, f"a WebSocket needs HTTP/1.1, not {version[:20]!r}")
    headers = _headers(lines[1:])
    path, query = _target(target)
    subprotocol = _subprotocol(headers.get("sec-websocket-protocol", ""))
    return Upgrade(
        path,
        query.get("token") or _bearer(headers.get("authorization", "")),
        _cursor(query.get("cursor", "")),
        _key(headers),
        subprotocol,
        SUBPROTOCOLS[subprotocol] if subprotocol else "json",
        headers.get("origin", ""),
        headers.get("host", ""),
        end + 4,
    )


def allows_origin(upgrade: Upgrade, origins: str) -> bool:
    """May a page of this origin connect? ``*`` is any, empty is the server's own; programs have no origin."""
    origin = upgrade.origin.lower()
    if not origin or origins.strip() == "*":
        return True
    if origin in (each.strip().lower() for each in origins.split(",")):
        return True
    return bool(upgrade.host) and origin.partition("://")[2] == upgrade.host.lower()


def _headers(lines: list[str]) -> dict[str, str]:
    """Headers by lower-case name; repeated ones as one list."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or (name not in _NAMES and (len(name.split()) != 1 or name != name.strip())):
            raise BadUpgrade(400, "a header line is not one of HTTP/1.1")
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _target(target: str) -> tuple[str, dict[str, str]]:
    path, _, asked = target.partition("?")
    if not target.encode("latin-1").translate(None, _USUAL) and "?" not in asked:  # as nearly all are
        pairs = [each.partition("=") for each in asked.split("&")]
        if len(pairs) <= FIELDS_MAX and path.startswith("/") and not path.startswith("//"):
            return path, {name: value for name, _, value in pairs if value}
    try:
        parts = urlsplit(target)
        query = parse_qs(parts.query, max_num_fields=FIELDS_MAX, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise BadUpgrade(400, "the URL cannot be read") from None
    return parts.path, {name: values[-1] for name, values in query.items()}


def _bearer(value: str) -> str:
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cursor(value: str) -> int:
    try:
        return read_cursor(value) if value else 0
    except RequestError as error:
        raise BadUpgrade(400, str(error)) from None


def _key(headers: dict[str, str]) -> str:
    """Check the handshake."""
    said = headers.get("connection", "").lower()
    if said != "upgrade" and "upgrade" not in (word.strip() for word in said.split(",")):
        raise BadUpgrade(400, "a WebSocket needs Connection: Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise BadUpgrade(426, "a WebSocket needs Sec-WebSocket-Version: 13")
    key = headers.get("sec-websocket-key", "")
    if _KEY.fullmatch(key) is None:
        raise BadUpgrade(400, "Sec-WebSocket-Key must be sixteen bytes in base64")
    return key


def _subprotocol(offered: str) -> str:
    if offered in SUBPROTOCOLS:
        return offered
    offers = [offer.strip() for offer in offered.split(",") if offer.strip()]
    for offer in offers:
        if offer in SUBPROTOCOLS:
            return offer
    if offers:
        raise BadUpgrade(400, f"known subprotocols are {', '.join(SUBPROTOCOLS)}")
    return ""
