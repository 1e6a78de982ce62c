"""Clients' sockets: what lies between bytes that arrive and a gateway that speaks frames.

Callbacks only, no task per connection. Whatever a client sends, and however slowly it reads, costs a bounded amount.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from picows import WSListener, WSMsgType, WSUpgradeResponseWithListener
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from pixiu.machines.session import CODECS, LENGTH_PREFIXED, BadFrame, FrameTooLarge, LengthPrefixed, decode_hello
from pixiu.model.errors import PixiuError
from pixiu.ports.clients import CloseCode
from pixiu.runtime.welcome import PICOWS_LOG, WELCOMES, Handed

if TYPE_CHECKING:
    from picows import WSFrame, WSTransport

    from pixiu.machines.session.upgrade import Upgrade
    from pixiu.model.session import LogoutCause
    from pixiu.ports.clients import ConnectedClient
    from pixiu.runtime.app_server import AppServer

__all__ = ["CLOSE_SECONDS", "TcpSocket", "WebSocket", "address_of", "bound_output", "make_websocket"]

READ_BUFFER_BYTES = 2048
"""What picows keeps per connection to begin with: 10 KiB of memory per idle client instead of 28."""
CLOSE_SECONDS = 2.0
"""How long a client may take to take its last bytes."""
REASON_BYTES_MAX = 120
HELLO_BYTES_MAX = 8 * 1024
"""The first frame over TCP: a token and a cursor. Of a stranger no more than that is kept."""
FRAMES_PER_TURN = 256
"""Frames of one client that are read in one turn of the loop; a frame counts once more for every 256 bytes. A read may
bring thousands of frames, and others would wait for all of them."""
FRAME_COST_SHIFT = 8
EARLY_MAX = 16
"""Frames of a client that waits for its turn; beyond this nothing is read from it until then."""


def bound_output(listener: asyncio.Server, mark: int) -> None:
    """The system keeps no more than this for a client that does not read. Connections have it from their listener."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        for found in listener.sockets:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, mark)


def unacknowledged(transport: asyncio.BaseTransport) -> int:
    """Bytes that the system has taken and the peer's system has not acknowledged; 0 where that is not known."""
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (AttributeError, OSError, ValueError):
        return 0
    return max(0, int.from_bytes(answer, sys.byteorder, signed=True))


def address_of(transport: asyncio.BaseTransport) -> str:
    """Where a client is; empty if that has no name."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def make_websocket(
    server: AppServer,
    loop: asyncio.AbstractEventLoop,
    asked: Upgrade,
    address: str,
    transport: asyncio.Transport,
    wire: asyncio.Transport,
) -> asyncio.BufferedProtocol:
    """Picows' protocol, made as its own server makes it, and given the connection. ``wire`` is what is below TLS."""
    listener = WebSocket(server, loop, asked, address, transport, wire)
    made = WSProtocol(
        None,  # host and port, of a client
        None,  # path, of a client
        False,  # is it a client?
        partial(_welcome, WSUpgradeResponseWithListener(cast("Any", WELCOMES[asked.subprotocol]), listener)),
        PICOWS_LOG,
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
    transport.set_protocol(made)
    made.connection_made(Handed(transport))
    return cast("asyncio.BufferedProtocol", made)


def _welcome(response: WSUpgradeResponseWithListener, _: object) -> WSUpgradeResponseWithListener:
    """Everyone who came so far is welcome."""
    return response


class _Socket:
    """What the gateway and the parking ask of either kind of client.

    The first is a part of ``ports.clients.ClientTransport``, the second is ``parking.Parkable``.
    """

    if not TYPE_CHECKING:
        __slots__ = ()  # picows' listener has room of its own, so the slots are those of the classes below
    _server: AppServer
    _socket: asyncio.Transport
    _wire: asyncio.Transport  # the same, or what is below TLS
    _is_held: bool  # the gateway reads no more
    _is_parked: bool
    _loop: asyncio.AbstractEventLoop
    _client: ConnectedClient | None
    _early: deque[tuple[bytes, bool]]  # frames that wait for a turn of the loop
    _is_reading_on: bool
    has_spoken: bool
    number: int

    # Frames, a bounded number of them in one turn of the loop.

    def _frame(self, payload: bytes, *, is_text: bool) -> None:
        """A whole frame: for the gateway, now if this turn allows it."""
        server, cost = self._server, 1 + (len(payload) >> FRAME_COST_SHIFT)
        if server.reading is not self:
            server.reading, server.turn_left = self, FRAMES_PER_TURN
        if self._early or self._is_held or server.turn_left <= 0:
            self._early.append((payload, is_text))
            if not self._is_reading_on and not self._is_held:
                self._read_on_soon()
        elif self._client is not None:
            server.turn_left -= cost
            self._client.received(payload, is_text=is_text)

    def _read_on_soon(self) -> None:
        self._is_reading_on = True
        if not self._socket.is_closing():
            self._socket.pause_reading()
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Another turn's share of the frames that wait; then the socket is read again."""
        self._is_reading_on = False
        self._server.reading = None
        early, left = self._early, FRAMES_PER_TURN
        while early and left > 0 and not self._is_held:
            payload, is_text = early.popleft()
            left -= 1 + (len(payload) >> FRAME_COST_SHIFT)
            if self._client is not None:
                self._client.received(payload, is_text=is_text)
        if self._is_held:
            return
        if early:
            self._read_on_soon()
            return
        self._have_read()
        if not self._is_parked and not self._socket.is_closing():
            self._socket.resume_reading()

    def _have_read(self) -> None:
        """All frames that waited are read."""

    # The gateway may not know yet that the connection is gone.

    def write(self, data: bytes) -> None:
        """Send frames."""
        if not self._socket.is_closing():
            self._socket.write(data)

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return 0 if self._socket.is_closing() else self._socket.get_write_buffer_size()

    def outstanding(self) -> int:
        """These, and the bytes that the client's system has not acknowledged. What TLS adds counts, too."""
        if self._socket.is_closing():
            return 0
        waiting = self._socket.get_write_buffer_size()
        if self._wire is not self._socket:
            waiting += self._wire.get_write_buffer_size()
        return waiting + unacknowledged(self._wire)

    def pause_reading(self) -> None:
        """Take no more."""
        self._is_held = True
        if self._is_parked:
            self._server.parking.release(self)
            self._server.parking.came(self)
            self.wake()
        if not self._socket.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Go on: first with the frames that wait here."""
        self._is_held = False
        if self._early and self._client is not None:
            if not self._is_reading_on:
                self._read_on_soon()
        elif not self._is_parked and not self._is_reading_on and not self._socket.is_closing():
            self._socket.resume_reading()

    # What the parking of the silent calls.

    def park(self) -> bool:
        """Read no more until ``wake``. Nothing may wait to be written, or the loop would go on watching the socket."""
        if self._is_held or self._early or self._socket.is_closing():
            return False
        if self._socket.get_write_buffer_size() or self._wire.get_write_buffer_size():
            return False
        self._is_parked = True
        self._wire.pause_reading()
        return True

    def wake(self) -> None:
        """Read again."""
        self._is_parked = False
        if not self._wire.is_closing():  # what is above TLS may be: then it waits for the client's last word
            self._wire.resume_reading()

    def _may_park(self) -> None:
        """It has its session: from here on it may be silent."""
        self.number = self._wire.get_extra_info("socket").fileno()
        self._server.parking.came(self)


class WebSocket(WSListener, _Socket):
    """A WebSocket, seen from both sides: picows' listener and the gateway's transport."""

    # fmt: off
    __slots__ = (
        "_address", "_asked", "_client", "_early", "_goodbye", "_is_held", "_is_parked", "_is_reading_on", "_loop",
        "_parts", "_parts_are_text", "_parts_bytes", "_said_goodbye", "_server", "_socket", "_timer", "_wire", "_ws",
        "has_spoken", "number",
    )
    # fmt: on

    def __init__(
        self,
        server: AppServer,
        loop: asyncio.AbstractEventLoop,
        asked: Upgrade,
        address: str,
        transport: asyncio.Transport,
        wire: asyncio.Transport,
    ) -> None:
        self._server = server
        self._loop = loop
        self._socket = transport
        self._wire = wire
        self._asked: Upgrade | None = asked
        self._address = address
        self._client: ConnectedClient | None = None
        self._ws: WSTransport | None = None
        self._parts: list[bytes] | None = None  # of a message in several frames
        self._parts_bytes = 0
        self._parts_are_text = False
        self._said_goodbye = False
        self._goodbye: Any = None  # the code of a close frame behind frames that wait
        self._early = deque()
        self._is_reading_on = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._is_parked = False
        self.has_spoken = True
        self.number = -1

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        asked, self._asked = self._asked, None
        assert asked is not None
        self._ws = transport
        mark = self._server.settings.output_mark_bytes
        self._socket.set_write_buffer_limits(high=mark, low=mark // 4)  # tell when this much waits
        self._server.opened(self._socket)
        self._client = self._server.gateway.open(
            self, codec=asked.codec, is_websocket=True, token=asked.token, cursor=asked.cursor, address=self._address
        )
        self._may_park()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """One frame, which may be a part of a message."""
        self.has_spoken = True
        client, kind = self._client, frame.msg_type
        if client is None:
            return
        if kind == WSMsgType.TEXT or kind == WSMsgType.BINARY:
            if frame.rsv1 or frame.rsv2 or frame.rsv3 or self._parts is not None:
                client.failed(BadFrame("this frame does not belong here"))
            elif frame.fin:
                self._frame(frame.get_payload_as_bytes(), is_text=kind == WSMsgType.TEXT)
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
            self._said_goodbye = True
            self._goodbye = frame.get_close_code()
            if not self._early:
                self._have_read()

    def _have_read(self) -> None:
        transport = self._ws
        if self._goodbye is not None and transport is not None:
            if not transport.is_close_frame_sent:
                transport.send_close(self._goodbye)
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
            self._frame(whole, is_text=self._parts_are_text)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection is gone. If it is one of ten thousand, they are all here in one turn: the work waits.

        So does the freeing of what picows and the loop have of it, which this object holds until then.
        """
        self._server.parking.left(self)
        self._server.pace.later(self._leave)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ws = None
        self._server.closed(self._socket)
        client, self._client = self._client, None
        if client is not None:
            client.lost("quit" if self._said_goodbye else "send_error")

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again."""
        if self._client is not None:
            self._client.resume_writing()

    # What the gateway calls.

    def close(self, code: int, reason: str) -> None:
        """Say why, and hang up when the client has answered; or soon."""
        if self._ws is None or self._ws.is_disconnected:
            return
        self._ws.send_close(cast("Any", code), reason.encode()[:REASON_BYTES_MAX])
        self.resume_reading()  # for its answer
        if self._timer is None:
            self._timer = self._loop.call_later(CLOSE_SECONDS, self._socket.abort)


class TcpSocket(asyncio.Protocol, _Socket):
    """A client over TCP: frames behind their lengths, the first one a hello."""

    # fmt: off
    __slots__ = (
        "_client", "_early", "_frames", "_has_eof", "_is_closing", "_is_held", "_is_parked", "_is_pending",
        "_is_reading_on", "_is_text", "_is_waiting", "_loop", "_server", "_socket", "_timer", "_wire", "has_spoken",
        "number", "wire",
    )
    # fmt: on

    def __init__(self, server: AppServer, loop: asyncio.AbstractEventLoop) -> None:
        self.wire: asyncio.Transport | None = None
        self._server = server
        self._loop = loop
        self._frames = LengthPrefixed(HELLO_BYTES_MAX, then=server.gateway.frame_bytes_max)
        self._early = deque()
        self._is_reading_on = False
        self._has_eof = False
        self._is_waiting = False  # for its turn
        self._client: ConnectedClient | None = None
        self._is_text = True
        self._is_closing = False
        self._is_pending = False
        self._is_held = False
        self._is_parked = False
        self.has_spoken = True
        self.number = -1
        self._timer: asyncio.TimerHandle | None = None

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is here."""
        self._socket = cast("asyncio.Transport", transport)
        self._wire = self.wire or self._socket
        self._server.opened(self._socket)
        self._is_pending = True
        self._server.came(self._socket)
        mark = self._server.settings.output_mark_bytes
        self._socket.set_write_buffer_limits(high=mark, low=mark // 4)
        error = self._server.gateway.refusal(address_of(transport))
        if error is not None:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        """Bytes of frames."""
        self.has_spoken = True
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
        if self._client is not None:
            for frame in frames:
                self._frame(frame, is_text=self._is_text)
            return
        self._early += ((frame, True) for frame in frames)
        if self._is_waiting:
            if len(self._early) > EARLY_MAX:
                self.pause_reading()
        elif self._early:
            self._is_waiting = True
            self._server.spoke(self._socket)
            self._server.pace.run(self._begin)

    def _begin(self) -> None:
        """Its turn has come: the first frame is its hello, the others may be requests already."""
        self._is_waiting = False
        if not self._is_closing:
            self.resume_reading()
            self._hello(self._early.popleft()[0])
            early, self._early = self._early, deque()
            for frame, _ in early:
                self._frame(frame, is_text=self._is_text)

    def eof_received(self) -> bool:
        """The client closed its side: close ours once its frames are read."""
        self._has_eof = bool(self._early)
        return self._has_eof

    def _have_read(self) -> None:
        if self._has_eof:
            self._socket.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._is_closing = True
        self._said_hello()
        self._server.parking.left(self)
        self._server.pace.later(partial(self._leave, "quit" if exc is None else "send_error"))

    def _leave(self, cause: LogoutCause) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.closed(self._socket)
        client, self._client = self._client, None
        if client is not None:
            client.lost(cause)

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
            address=address_of(self._socket),
        )  # fmt: skip
        self._may_park()

    def _refuse(self, error: PixiuError) -> None:
        """Nobody knows its codec yet: JSON."""
        self._said_hello()
        self.write(LENGTH_PREFIXED.wrap(CODECS["json"].error(None, error)))
        self.close(CloseCode.BAD_REQUEST, error.code)

    def _said_hello(self) -> None:
        if self._is_pending:
            self._is_pending = False
            self._server.decided(self._socket)

    # What the gateway calls.

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
