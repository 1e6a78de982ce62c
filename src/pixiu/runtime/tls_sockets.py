"""TLS on a socket that we know, too.

The loop would put TLS on a connection itself, and show only what lies above it. Whoever is above it cannot stop the
socket below from being read, and ten thousand such sockets that break at once are one turn of the loop (see
``parking``).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
from typing import TYPE_CHECKING, Any, Protocol, cast

import uvloop
import uvloop.loop

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["AboveTls", "over_tls"]


class AboveTls(Protocol):
    """A protocol that may lie above TLS."""

    wire: asyncio.Transport | None
    """The socket below, from when there is one. None: there is no TLS."""


def _telling(base: Any) -> Any:
    """A loop's own TLS, which tells the protocol above of the socket below."""

    class Telling(base):  # type: ignore[misc]
        __slots__ = ("_above",)

        def __init__(self, loop: asyncio.AbstractEventLoop, above: AboveTls, context: ssl.SSLContext, **options: Any):
            super().__init__(loop, above, context, None, server_side=True, **options)
            self._above: AboveTls | None = above

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            above, self._above = self._above, None
            assert above is not None
            above.wire = cast("asyncio.Transport", transport)
            super().connection_made(transport)

    return Telling


_OF_UVLOOP = _telling(uvloop.loop.SSLProtocol)  # type: ignore[attr-defined]
_OF_ASYNCIO = _telling(asyncio.sslproto.SSLProtocol)


def over_tls(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], AboveTls],
    context: ssl.SSLContext,
    *,
    handshake_seconds: float,
    shutdown_seconds: float,
) -> Callable[[], asyncio.BaseProtocol]:
    """What makes a protocol for each new connection, with TLS in between."""
    kind = _OF_UVLOOP if isinstance(loop, uvloop.Loop) else _OF_ASYNCIO

    def made() -> asyncio.BaseProtocol:
        found = kind(
            loop, make(), context, ssl_handshake_timeout=handshake_seconds, ssl_shutdown_timeout=shutdown_seconds
        )
        return cast("asyncio.BaseProtocol", found)

    return made
