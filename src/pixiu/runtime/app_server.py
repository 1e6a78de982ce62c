"""The port that clients know: WebSockets for the gateway, everything else for the HTTP server; and TCP beside it.

How one port serves both. A new connection is read until the head of its first request is there. If that asks for a
WebSocket, the connection is given to picows; if not, to a protocol that ``http_upstream`` makes, with the bytes that
were read. Either way it is the same socket in the same loop: nothing is copied from one connection to another, and
nobody is in between afterwards. ``http_upstream`` makes any ``asyncio.Protocol``: ``HttpServer.connection`` of
``pixiu.api.server``, which is uvicorn, or a test's own::

    server = AppServer(gateway, settings.gateway, http_upstream=http.connection)
    port, tcp_port = await server.start("127.0.0.1", 8400, tcp_port=8401)

A connection that began with plain HTTP stays with HTTP: a reverse proxy must open a new one for each WebSocket.

picows gets a head of our making: it takes only ``Connection: Upgrade`` word for word, while browsers may say more, and
it need not see tokens. Frames to clients are put together in ``machines/session`` and written to the socket in one
piece per turn; picows reads, answers pings and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from pixiu.machines.session.upgrade import (
    HEAD_BYTES_MAX,
    HTTP,
    MORE,
    BadUpgrade,
    Upgrade,
    allows_origin,
    is_head_here,
    read_upgrade,
)
from pixiu.model.errors import RateLimited, Unavailable
from pixiu.runtime.client_sockets import CLOSE_SECONDS, TcpSocket, address_of, bound_output, make_websocket
from pixiu.runtime.pace import Pace
from pixiu.runtime.parking import Parking
from pixiu.runtime.server import BACKLOG
from pixiu.runtime.tls_sockets import over_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from pixiu.config.gateway import GatewaySettings
    from pixiu.ports.clients import Clients

__all__ = ["AppServer"]

PATH = "/ws"
PENDING_MAX = 4096
"""Connections that have not said yet what they want. When one more comes, the one that dawdled longest goes: so who
says at once what it wants gets in, however many others say nothing."""
PLAIN = "text/plain; charset=utf-8"
_NEVER = float("inf")
STATUS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    426: "Upgrade Required",
    429: "Too Many Requests",
    503: "Service Unavailable",
}


class AppServer:
    """Listens for clients. Whoever makes it decides who answers plain HTTP."""

    def __init__(
        self,
        gateway: Clients,
        settings: GatewaySettings,
        *,
        http_upstream: Callable[[], asyncio.BaseProtocol] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.gateway = gateway
        self.settings = settings
        self.http_upstream = http_upstream
        self._tls = tls
        self.reading: object = None
        """The socket whose frames came last; it may give ``turn_left`` of them to the gateway in this turn."""
        self.turn_left = 0
        self._servers: list[asyncio.Server] = []
        self._transports: set[asyncio.Transport] = set()
        self._is_empty = asyncio.Event()
        self._undecided: dict[asyncio.Transport, float] = {}
        self._hello_seconds = settings.hello_timeout_ms / 1000
        self._hello_timer: asyncio.TimerHandle | None = None
        self._pace: Pace | None = None
        self._parking: Parking | None = None

    @property
    def parking(self) -> Parking:
        """The silent clients, of whom a crowd may go at once."""
        if self._parking is None:
            self._parking = Parking(asyncio.get_running_loop())
        return self._parking

    @property
    def pace(self) -> Pace:
        """The coming and going of clients, which must not stop those who are there."""
        if self._pace is None:
            self._pace = Pace(asyncio.get_running_loop())
        return self._pace

    @property
    def is_listening(self) -> bool:
        """Is the port of HTTP open? What is still missing then is that of TCP."""
        return bool(self._servers)

    async def start(self, host: str, port: int, *, tcp_port: int = -1, reuse_port: bool = False) -> tuple[int, int]:
        """Listen. Returns the ports: of HTTP and WebSockets, and of TCP (-1 if it is not served)."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"backlog": BACKLOG, "reuse_port": reuse_port or None}
        front = await loop.create_server(self._making(loop, lambda: Front(self, loop)), host, port, **options)
        self._servers.append(front)
        bound_output(front, self.settings.output_mark_bytes)
        found = _port_of(front)
        if tcp_port >= 0:
            raw = await loop.create_server(self._making(loop, lambda: TcpSocket(self, loop)), host, tcp_port, **options)
            self._servers.append(raw)
            bound_output(raw, self.settings.output_mark_bytes)
            tcp_port = _port_of(raw)
        return found, tcp_port

    def _making(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], Front | TcpSocket]
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Who does not finish its handshake of TLS holds a socket no longer than who says nothing."""
        if self._tls is None:
            return make
        return over_tls(
            loop, make, self._tls, handshake_seconds=self._hello_seconds, shutdown_seconds=CLOSE_SECONDS
        )  # fmt: skip

    async def stop(self) -> None:
        """Take nobody any more, send everyone away, and wait until they have their last bytes."""
        for server in self._servers:
            server.close()
        for transport in list(self._undecided):
            transport.abort()
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        drained = asyncio.Event()
        self.gateway.drain(drained.set)
        await drained.wait()
        if self._transports:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), CLOSE_SECONDS)
        for transport in list(self._transports):
            transport.abort()
        if self._parking is not None:
            self._parking.close()

    @property
    def pending(self) -> int:
        """Connections that have not said yet what they want."""
        return len(self._undecided)

    # Called by connections.

    def came(self, transport: asyncio.Transport) -> None:
        """Somebody is here, and has some time to say what it wants.

        Of too many who have said nothing, the one who is here for longest has to go.
        """
        loop = asyncio.get_running_loop()
        self._undecided[transport] = loop.time() + self._hello_seconds
        if self._hello_timer is None:
            self._hello_timer = loop.call_later(self._hello_seconds, self._look_for_late)
        if len(self._undecided) > PENDING_MAX:
            oldest = next(iter(self._undecided))
            del self._undecided[oldest]
            oldest.abort()

    def spoke(self, transport: asyncio.Transport) -> None:
        """It has said what it wants in time; from here on it waits for us."""
        if transport in self._undecided:
            self._undecided[transport] = _NEVER

    def _look_for_late(self) -> None:
        """One timer for all who have not spoken: they came in this order, and all have the same time."""
        loop = asyncio.get_running_loop()
        now, self._hello_timer = loop.time(), None
        for transport, until in list(self._undecided.items()):
            if until <= now:
                transport.abort()
            elif until != _NEVER:
                self._hello_timer = loop.call_later(until - now, self._look_for_late)
                break

    def decided(self, transport: asyncio.Transport) -> None:
        """It is known what this connection wants, or it is gone."""
        self._undecided.pop(transport, None)

    def opened(self, transport: asyncio.Transport) -> None:
        """A client of the gateway."""
        self._transports.add(transport)
        self._is_empty.clear()

    def closed(self, transport: asyncio.Transport) -> None:
        """It is gone."""
        self._transports.discard(transport)
        if not self._transports:
            self._is_empty.set()


def _port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


class Front(asyncio.Protocol):
    """A new connection of the HTTP port, until it is known what it wants."""

    def __init__(self, server: AppServer, loop: asyncio.AbstractEventLoop) -> None:
        self.wire: asyncio.Transport | None = None
        self._server = server
        self._loop = loop
        self._data = b""
        self._is_done = False
        self._is_waiting = False  # for its turn
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is here."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.came(self._transport)

    def data_received(self, data: bytes) -> None:
        """The head, or a part of it."""
        if self._is_done:
            return
        self._data += data
        if self._is_waiting:
            if len(self._data) > HEAD_BYTES_MAX and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        elif is_head_here(self._data):
            self._is_waiting = True
            self._server.spoke(self._transport)
            self._server.pace.run(self._decide)

    def _decide(self) -> None:
        """What does it want? Its first request is here."""
        self._is_waiting = False
        if self._is_done or self._transport.is_closing():
            return
        if self._is_paused:
            self._transport.resume_reading()
        try:
            asked = read_upgrade(self._data)
        except BadUpgrade as error:
            self._answer(error.status, str(error))
            return
        if isinstance(asked, Upgrade):
            self._upgrade(asked)
        elif asked is HTTP:
            self._pass_on()
        else:
            assert asked is MORE

    def connection_lost(self, exc: Exception | None) -> None:
        """It went before it said anything, or was answered here."""
        self._done()

    def _done(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._server.decided(self._transport)

    def _pass_on(self) -> None:
        """Plain HTTP."""
        make = self._server.http_upstream
        if make is None:
            self._answer(404, f"there is nothing here but WebSockets at {PATH}")
            return
        self._done()
        protocol = make()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        _feed(protocol, self._data)

    def _upgrade(self, asked: Upgrade) -> None:
        if asked.path != PATH:
            self._answer(404, f"WebSockets are at {PATH}")
            return
        if not allows_origin(asked, self._server.settings.origins):
            self._answer(403, f"gateway.origins does not have {asked.origin[:100]!r}")
            return
        address = address_of(self._transport)
        error = self._server.gateway.refusal(address)
        if error is not None:
            later = error.retry_after_ms if isinstance(error, Unavailable) else 0
            self._answer(429 if isinstance(error, RateLimited) else 503, str(error), retry_after_ms=later)
            return
        self._done()
        wire = self.wire or self._transport
        protocol = make_websocket(self._server, self._loop, asked, address, self._transport, wire)
        head = _UPGRADE_HEAD % asked.key.encode("ascii")
        _feed(protocol, head + self._data[asked.size :])

    def _answer(self, status: int, text: str, *, retry_after_ms: int = 0) -> None:
        """Say no, and hang up."""
        body = f"{text}\n".encode()
        later = f"Retry-After: {-(-retry_after_ms // 1000)}\r\n" if retry_after_ms else ""
        head = (
            f"HTTP/1.1 {status} {STATUS[status]}\r\nContent-Type: {PLAIN}\r\nContent-Length: {len(body)}\r\n"
            f"{later}Connection: close\r\n\r\n"
        )
        self._done()
        self._transport.write(head.encode() + body)
        self._transport.close()


_UPGRADE_HEAD = (
    b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n"
)


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give a protocol bytes as if they had just been read."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        cast("asyncio.Protocol", protocol).data_received(data)
        return
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
