"""What picows is given in place of what it would make itself for each connection: log, answer, socket.

A login costs a fraction of a millisecond, and much of that was asked of the system twice. Only what is the client's own
is made for each.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pixiu.machines.session.upgrade import SUBPROTOCOLS

if TYPE_CHECKING:
    import asyncio

__all__ = ["PICOWS_LOG", "WELCOMES", "Handed"]


class _QuietLog(logging.LoggerAdapter[logging.Logger]):
    """picows notes every connection, and every mistake of a client as an error of ours. Only our own remain."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        """Asked for every connection: what picows notes of each frame is of no use here."""
        return level > logging.DEBUG and super().isEnabledFor(level)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """A connection came or went."""

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """A client broke the protocol."""
        self.debug(msg, *args, **kwargs)


PICOWS_LOG = _QuietLog(logging.getLogger("pixiu.runtime.picows"), {})


class _Welcome:
    """The answer to a handshake. One for each subprotocol serves all: picows adds what is a client's own, and sends."""

    __slots__ = ("_head", "headers")
    status = HTTPStatus.SWITCHING_PROTOCOLS

    def __init__(self, subprotocol: str) -> None:
        chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
        head = f"HTTP/1.1 101 Switching Protocols\r\n{chosen}Connection: upgrade\r\nUpgrade: websocket\r\n"
        self._head = head.encode()
        self.headers: dict[str, str] = {}

    def to_bytes(self) -> bytearray:
        """All of it."""
        return bytearray(b"%bSec-WebSocket-Accept: %b\r\n\r\n" % (self._head, self.headers[_ACCEPT].encode()))


_ACCEPT = "Sec-WebSocket-Accept"
WELCOMES = {subprotocol: _Welcome(subprotocol) for subprotocol in ("", *SUBPROTOCOLS)}


class _SetSocket:
    """A socket whose options are as they should be: the loop sets them. Asking picows' way costs twelve calls each."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Its descriptor."""
        return self._number

    def setsockopt(self, *_: object) -> None:
        """Nothing: the loop has said TCP_NODELAY."""

    def getsockopt(self, *_: object) -> int:
        """Only for a line of a log that nobody keeps."""
        return 0


class Handed:
    """A transport as picows sees it; the loop's own is behind it."""

    __slots__ = ("_behind", "abort", "close", "get_write_buffer_size", "write", "writelines")

    def __init__(self, behind: asyncio.Transport) -> None:
        self._behind = behind
        self.abort = behind.abort
        self.close = behind.close
        self.get_write_buffer_size = behind.get_write_buffer_size
        self.write = behind.write
        self.writelines = behind.writelines

    def get_extra_info(self, name: str) -> object:
        """What picows asks for: the socket, who is at its ends (for its log only), and whether there is TLS."""
        if name == "socket":
            return _SetSocket(self._behind.get_extra_info("socket").fileno())
        return self._behind.get_extra_info(name) if name == "ssl_object" else None
