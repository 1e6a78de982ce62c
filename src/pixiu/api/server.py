"""The HTTP server: uvicorn on a socket that it is given, or on connections that someone else has accepted.

::

    server = HttpServer(api, sock, tls=certificates.context)
    await server.start()
    …
    await server.stop()

``connection()`` is for a port that is shared with WebSockets: whoever accepts there looks at the first bytes, and hands
what is no upgrade over::

    protocol = server.connection()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    protocol.data_received(what_was_read)

uvicorn leaves signals to the node, writes no log of its own, believes no forwarding header, and speaks HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pixiu.api.strays import Strays, UvicornLog

if TYPE_CHECKING:
    import ssl
    from typing import Any

    from starlette.types import ASGIApp

__all__ = ["HttpServer"]

HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS = 10.0
"""A request's head must be there this long after the connection, or its own first byte. Dripping buys no time."""
IDLE_SECONDS = 30
STUCK_MS = 30_000
"""A client that takes nothing of its answer for this long is cut off."""
GRACE_SECONDS = 5
LOOPBACK = ("127.", "::1", "::ffff:127.")
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%b"
)
_TOO_MANY_BODY = b'{"error":{"code":"busy","message":"your address has too many connections open"}}'
_NO_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
)
_NO_HTTP_BODY = (
    b'{"error":{"code":"bad_request","message":"this is no request of HTTP/1.1, or its head is larger than 16 KiB"}}\n'
)


class _Addresses:
    """How many connections each address has, and may have. This machine's own (or none: a Unix socket) has no bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    def came(self, address: str) -> bool:
        """One more. False if that is one too many; it counts all the same, until it is gone."""
        count = self._counts[address] = self._counts.get(address, 0) + 1
        return count <= self._most or not address or address.startswith(LOOPBACK)

    def gone(self, address: str) -> None:
        """One less."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class HttpServer:
    """Serves one application until it is stopped."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        connections_max: int = 2_000,
        connections_per_address: int = 500,
        head_seconds: float = HEAD_SECONDS,
        idle_seconds: int = IDLE_SECONDS,
    ) -> None:
        """Without ``sock`` only connections that are handed over are served; they bring their own TLS."""
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=connections_max,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        config.ssl = tls
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # when it comes and goes the node says itself
        self._config = config
        self._sockets = [] if sock is None else [sock]
        self._head_seconds = head_seconds
        self._addresses = _Addresses(connections_per_address)
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve."""
        server = self._server
        server.lifespan = self._config.lifespan_class(self._config)
        server.lifespan.state["head_seconds"] = self._head_seconds
        server.lifespan.state["addresses"] = self._addresses
        server.lifespan.state["strays"] = Strays(asyncio.get_running_loop().time)
        await server.startup(sockets=self._sockets)
        self._task = asyncio.get_running_loop().create_task(server.main_loop())

    def connection(self, *, client: tuple[str, int] | None = None, scheme: str = "") -> asyncio.Protocol:
        """A protocol for a connection that was accepted elsewhere.

        ``client`` and ``scheme`` are what its socket does not know: who asks over another process, and whether by TLS.
        """
        server = self._server
        made = _Connection(self._config, server.server_state, server.lifespan.state)
        made.told_client, made.told_scheme = client, scheme
        return made

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    async def stop(self) -> None:
        """Take no more, answer what was asked, for a few seconds at most."""
        if self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._task = None
        await self._server.shutdown(sockets=self._sockets)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()


class _Connection(H11Protocol):
    """uvicorn's connection, with a deadline for the head of a request, and for whoever takes no answer."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {}, _loop)
        self._head_seconds: float = app_state["head_seconds"]
        self._addresses: _Addresses = app_state["addresses"]
        self._strays: Strays = app_state["strays"]
        self.logger = UvicornLog(self._strays)  # type: ignore[assignment]
        self._address = ""
        self._deadline: asyncio.TimerHandle | None = None
        self.told_client: tuple[str, int] | None = None
        self.told_scheme = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = self.told_client or self.client
        self.scheme = self.told_scheme or self.scheme  # type: ignore[assignment]
        found = transport.get_extra_info("socket")
        if found is not None and found.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._addresses.came(self._address):
            transport.write(_TOO_MANY % (len(_TOO_MANY_BODY), _TOO_MANY_BODY))
            transport.close()
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None:
            self._expect_head()
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._addresses.gone(self._address)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP: a word to whoever sent them, if their request is not being answered already.

        Whoever works on that request finds its client gone: h11 takes no other answer after this one.
        """
        self._strays.note("what came is no request of HTTP/1.1", self._address)
        cycle: RequestResponseCycle | None = self.cycle
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if not is_answering:
            self.transport.write(_NO_HTTP % (len(_NO_HTTP_BODY), _NO_HTTP_BODY))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that is not known is passed over, as HTTP has it: nothing is wrong, and nothing is missing."""

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
