"""The port that clients know: WebSockets for the gateway, everything else for the HTTP server; and TCP beside it.

How one port serves both. A new connection is read until the head of its first request is there. If that asks for a
WebSocket, the connection is given to picows; if not, to a protocol that ``http_upstream`` makes, with the bytes that
were read. Either way it is the same socket in the same loop: nothing is copied from one connection to another, and
nobody is in between afterwards. ``http_upstream`` makes any ``asyncio.Protocol``; with uvicorn::

    config = uvicorn.Config(app, ws="none", lifespan="off")
    config.load()
    server_state = uvicorn.server.ServerState()
    make_http = lambda: config.http_protocol_class(config=config, server_state=server_state, app_state={})
    server = AppServer(gateway, settings.gateway, http_upstream=make_http)

A connection that began with plain HTTP stays with HTTP: a reverse proxy must open a new one for each WebSocket.

picows gets a head of our making: it takes only ``Connection: Upgrade`` word for word, while browsers may say more, and
it need not see tokens. Frames to clients are put together in ``machines/session`` and written to the socket in one
piece per turn; picows reads, answers pings and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, cast

from picows import WSListener, WSMsgType, WSUpgradeResponse, WSUpgradeResponseWithListener
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from pixiu.machines.session import CODECS, LENGTH_PREFIXED, BadFrame, FrameTooLarge, LengthPrefixed, decode_hello
from pixiu.machines.session.upgrade import HTTP, MORE, BadUpgrade, Upgrade, allows_origin, read_upgrade
from pixiu.model.errors import PixiuError, RateLimited, Unavailable
from pixiu.ports.clients import CloseCode
from pixiu.runtime.server import BACKLOG

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from picows import WSFrame, WSTransport

    from pixiu.config.gateway import GatewaySettings
    from pixiu.ports.clients import Clients, ConnectedClient

__all__ = ["AppServer"]

log = logging.getLogger(__name__)

PATH = "/ws"
READ_BUFFER_BYTES = 2048
"""What picows keeps per connection to begin with: 10 KiB of memory per idle client instead of 28."""
CLOSE_SECONDS = 5.0
"""How long a client may take to take its last bytes."""
PENDING_MAX = 4096
"""Connections that have not said yet what they want."""
REASON_BYTES_MAX = 120
PLAIN = "text/plain; charset=utf-8"
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
        self._servers: list[asyncio.Server] = []
        self._transports: set[asyncio.Transport] = set()
        self._is_empty = asyncio.Event()
        self.pending = 0
        """Connections that have not said yet what they want."""

    async def start(self, host: str, port: int, *, tcp_port: int = -1, reuse_port: bool = False) -> tuple[int, int]:
        """Listen. Returns the ports: of HTTP and WebSockets, and of TCP (-1 if it is not served)."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"backlog": BACKLOG, "ssl": self._tls, "reuse_port": reuse_port or None}
        front = await loop.create_server(lambda: Front(self, loop), host, port, **options)
        self._servers.append(front)
        found = _port_of(front)
        if tcp_port >= 0:
            raw = await loop.create_server(lambda: TcpClient(self, loop), host, tcp_port, **options)
            self._servers.append(raw)
            tcp_port = _port_of(raw)
        return found, tcp_port

    async def stop(self) -> None:
        """Take nobody any more, send everyone away, and wait until they have their last bytes."""
        for server in self._servers:
            server.close()
        drained = asyncio.Event()
        self.gateway.drain(drained.set)
        await drained.wait()
        if self._transports:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), CLOSE_SECONDS)
        for transport in list(self._transports):
            transport.abort()

    # Called by connections.

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


def _address_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


class Front(asyncio.Protocol):
    """A new connection of the HTTP port, until it is known what it wants."""

    def __init__(self, server: AppServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._data = b""
        self._is_done = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is here."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.pending += 1
        if self._server.pending > PENDING_MAX:
            self._answer(503, "too many connections wait; try again")
            return
        self._timer = self._loop.call_later(self._server.settings.hello_timeout_ms / 1000, self._too_late)

    def data_received(self, data: bytes) -> None:
        """The head, or a part of it."""
        if self._is_done:
            return
        self._data += data
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
            self._server.pending -= 1
            if self._timer is not None:
                self._timer.cancel()

    def _too_late(self) -> None:
        self._transport.abort()

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
        address = _address_of(self._transport)
        error = self._server.gateway.refusal(address)
        if error is not None:
            later = error.retry_after_ms if isinstance(error, Unavailable) else 0
            self._answer(429 if isinstance(error, RateLimited) else 503, str(error), retry_after_ms=later)
            return
        self._done()
        protocol = _websocket(self._server, self._loop, asked, address)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
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
    b"GET /ws HTTP/1.1\r\nHost: pixiu\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
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


class _QuietLog(logging.LoggerAdapter[logging.Logger]):
    """picows notes every connection, and every mistake of a client as an error of ours. Only our own remain."""

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """A connection came or went."""

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """A client broke the protocol."""
        self.debug(msg, *args, **kwargs)


_PICOWS_LOG = _QuietLog(logging.getLogger("pixiu.runtime.picows"), {})


def _websocket(
    server: AppServer, loop: asyncio.AbstractEventLoop, asked: Upgrade, address: str
) -> asyncio.BufferedProtocol:
    """Picows' protocol, made as its own server makes it."""

    def listener(_: object) -> WSUpgradeResponseWithListener:
        chosen = {"Sec-WebSocket-Protocol": asked.subprotocol} if asked.subprotocol else None
        response = WSUpgradeResponse.create_101_response(chosen)
        return WSUpgradeResponseWithListener(response, WebSocketClient(server, loop, asked, address))

    made = WSProtocol(
        None,  # host and port, of a client
        None,  # path, of a client
        False,  # is it a client?
        listener,
        _PICOWS_LOG,
        True,  # an exception of ours ends the connection
        None,  # the head is here, there is nothing to wait for
        False,  # pings are the gateway's
        60,
        60,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,  # pongs are ours, so that a ping counts as a sign of life
        server.gateway.frame_bytes_max,
        None,
        READ_BUFFER_BYTES,
    )
    return cast("asyncio.BufferedProtocol", made)


class WebSocketClient(WSListener):
    """A WebSocket, seen from both sides: picows' listener and the gateway's transport."""

    # fmt: off
    __slots__ = (
        "_address", "_asked", "_client", "_loop", "_parts", "_parts_are_text", "_parts_bytes", "_server", "_socket",
        "_timer", "_ws",
    )
    # fmt: on

    def __init__(self, server: AppServer, loop: asyncio.AbstractEventLoop, asked: Upgrade, address: str) -> None:
        self._server = server
        self._loop = loop
        self._asked: Upgrade | None = asked
        self._address = address
        self._client: ConnectedClient | None = None
        self._ws: WSTransport | None = None
        self._parts: list[bytes] | None = None  # of a message in several frames
        self._parts_bytes = 0
        self._parts_are_text = False
        self._timer: asyncio.TimerHandle | None = None

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        asked, self._asked = self._asked, None
        assert asked is not None
        self._ws = transport
        self._socket = transport.underlying_transport
        mark = self._server.settings.output_mark_bytes
        self._socket.set_write_buffer_limits(high=mark, low=mark // 4)
        self._server.opened(self._socket)
        self._client = self._server.gateway.open(
            self, codec=asked.codec, is_websocket=True, token=asked.token, cursor=asked.cursor, address=self._address
        )

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """One frame, which may be a part of a message."""
        client, kind = self._client, frame.msg_type
        if client is None:
            return
        if kind == WSMsgType.TEXT or kind == WSMsgType.BINARY:
            if frame.rsv1 or frame.rsv2 or frame.rsv3 or self._parts is not None:
                client.failed(BadFrame("this frame does not belong here"))
            elif frame.fin:
                client.received(frame.get_payload_as_bytes(), is_text=kind == WSMsgType.TEXT)
            else:
                self._parts, self._parts_bytes = [], 0
                self._parts_are_text = kind == WSMsgType.TEXT
                self._continue(client, frame)
        elif kind == WSMsgType.CONTINUATION:
            self._continue(client, frame)
        elif kind == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
            client.heard()
        elif kind == WSMsgType.PONG:
            client.heard()
        elif kind == WSMsgType.CLOSE:
            if not transport.is_close_frame_sent:
                transport.send_close(frame.get_close_code())
            transport.disconnect()

    def _continue(self, client: ConnectedClient, frame: WSFrame) -> None:
        if self._parts is None:
            client.failed(BadFrame("a continuation of nothing"))
            return
        self._parts_bytes += frame.payload_size
        most = self._server.gateway.frame_bytes_max
        if self._parts_bytes > most or len(self._parts) > 1024:
            self._parts = None
            client.failed(FrameTooLarge(f"a message may have {most} bytes"))
            return
        self._parts.append(frame.get_payload_as_bytes())
        if frame.fin:
            whole, self._parts = b"".join(self._parts), None
            client.received(whole, is_text=self._parts_are_text)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.closed(self._socket)
        client, self._client = self._client, None
        if client is not None:
            client.lost()

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again."""
        if self._client is not None:
            self._client.resume_writing()

    # What the gateway calls.

    def write(self, data: bytes) -> None:
        """Send frames."""
        self._socket.write(data)

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Take no more."""
        if not self._socket.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if not self._socket.is_closing():
            self._socket.resume_reading()

    def close(self, code: int, reason: str) -> None:
        """Say why, and hang up when the client has answered; or soon."""
        assert self._ws is not None
        self._ws.send_close(cast("Any", code), reason.encode()[:REASON_BYTES_MAX])
        self.resume_reading()  # for its answer
        if self._timer is None:
            self._timer = self._loop.call_later(CLOSE_SECONDS, self._socket.abort)


class TcpClient(asyncio.Protocol):
    """A client over TCP: frames behind their lengths, the first one a hello."""

    # fmt: off
    __slots__ = (
        "_client", "_frames", "_is_closing", "_is_pending", "_is_text", "_loop", "_server", "_socket", "_timer",
    )
    # fmt: on

    def __init__(self, server: AppServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._frames = LengthPrefixed(server.gateway.frame_bytes_max)
        self._client: ConnectedClient | None = None
        self._is_text = True
        self._is_closing = False
        self._is_pending = False
        self._timer: asyncio.TimerHandle | None = None

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is here."""
        self._socket = cast("asyncio.Transport", transport)
        self._server.opened(self._socket)
        self._server.pending += 1
        self._is_pending = True
        mark = self._server.settings.output_mark_bytes
        self._socket.set_write_buffer_limits(high=mark, low=mark // 4)
        error = self._server.gateway.refusal(_address_of(transport))
        if error is None and self._server.pending > PENDING_MAX:
            error = Unavailable("too many connections wait; try again", retry_after_ms=1000)
        if error is not None:
            self._refuse(error)
            return
        self._timer = self._loop.call_later(self._server.settings.hello_timeout_ms / 1000, self._socket.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes of frames."""
        if self._is_closing:
            return
        try:
            frames = self._frames.feed(data)
        except PixiuError as error:
            if self._client is not None:
                self._client.failed(error)
            else:
                self._refuse(error)
            return
        for frame in frames:
            if self._client is not None:
                self._client.received(frame, is_text=self._is_text)
            elif not self._is_closing:
                self._hello(frame)

    def eof_received(self) -> bool:
        """The client says no more: neither do we."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._is_closing = True
        self._said_hello()
        self._server.closed(self._socket)
        client, self._client = self._client, None
        if client is not None:
            client.lost()

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again."""
        if self._client is not None:
            self._client.resume_writing()

    # The beginning.

    def _hello(self, frame: bytes) -> None:
        try:
            hello = decode_hello(frame)
        except PixiuError as error:
            self._refuse(error)
            return
        self._said_hello()
        self._is_text = CODECS[hello.codec].is_text
        self._client = self._server.gateway.open(
            self, codec=hello.codec, is_websocket=False, token=hello.token, cursor=hello.cursor,
            address=_address_of(self._socket),
        )  # fmt: skip

    def _refuse(self, error: PixiuError) -> None:
        """Nobody knows its codec yet: JSON."""
        self._said_hello()
        self.write(LENGTH_PREFIXED.wrap(CODECS["json"].error(None, error)))
        self.close(CloseCode.BAD_REQUEST, error.code)

    def _said_hello(self) -> None:
        if self._is_pending:
            self._is_pending = False
            self._server.pending -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What the gateway calls.

    def write(self, data: bytes) -> None:
        """Send frames."""
        self._socket.write(data)

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Take no more."""
        if not self._socket.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if not self._socket.is_closing():
            self._socket.resume_reading()

    def close(self, code: int, reason: str) -> None:
        """Hang up, after what was written; TCP has no words for why.

        The client hangs up first: bytes of it that nobody has read would make the system drop what it was sent.
        """
        self._is_closing = True
        if self._socket.can_write_eof() and not self._socket.is_closing():
            self._socket.write_eof()
            self.resume_reading()
        else:
            self._socket.close()
        self._timer = self._loop.call_later(CLOSE_SECONDS, self._socket.abort)
