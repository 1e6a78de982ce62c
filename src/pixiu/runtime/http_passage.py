"""Plain HTTP that comes to a gateway process is the node's: it is passed on, byte for byte, over a Unix socket.

::

    client ── TLS? ── Passage ── Unix socket ── Arrival ── the node's HTTP server
                        │ a line, "10.0.0.7 51234 https", then what the client says
                        ▼
    who asks is known to the node as if it had accepted the connection itself

Either side is read no faster than the other takes. Only this machine's owner reaches the socket, so what the first line
says can be believed.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Protocol, cast

__all__ = ["Arrival", "Passage", "Passages"]

LINE_BYTES_MAX = 128
HIGH_BYTES = 64 * 1024
STUCK_MS = 30_000
"""A client that takes nothing of its answer for this long is cut off."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


class HandOver(Protocol):
    """Makes the protocol of a connection whose client is known: ``HttpServer.connection``."""

    def __call__(self, *, client: tuple[str, int], scheme: str) -> asyncio.Protocol: ...


class Passages:
    """The passages of one gateway process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, *, count_max: int) -> None:
        """``path`` is where the node accepts; beyond ``count_max`` a client is told 503."""
        self.loop = loop
        self.path = path
        self._count_max = count_max
        self._open: set[Passage] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def make(self) -> asyncio.BaseProtocol:
        """For a client that wants HTTP."""
        return Passage(self)

    def came(self, passage: Passage) -> bool:
        """One more. False if it is too many."""
        if len(self._open) >= self._count_max:
            return False
        self._open.add(passage)
        self._is_empty.clear()
        return True

    def went(self, passage: Passage) -> None:
        """One less."""
        self._open.discard(passage)
        if not self._open:
            self._is_empty.set()

    async def end(self, seconds: float) -> None:
        """Let those that are open end, for a while."""
        try:
            await asyncio.wait_for(self._is_empty.wait(), seconds)
        except TimeoutError:
            for passage in list(self._open):
                passage.abort()


class Passage(asyncio.Protocol):
    """The client's side of one connection."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        self._early: list[bytes] = []
        self._onward: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.client: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here; what it has said so far follows."""
        self.client = cast("asyncio.Transport", transport)
        if not self._passages.came(self):
            self.refuse()
            return
        self.client.set_write_buffer_limits(high=HIGH_BYTES)
        found = transport.get_extra_info("socket")
        if found is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)
        self.client.pause_reading()
        self._task = self._passages.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._passages.loop.create_unix_connection(lambda: _Onward(self), self._passages.path)
        except OSError:
            self.refuse()

    def data_received(self, data: bytes) -> None:
        """On it goes."""
        if self._onward is None:
            self._early.append(data)
        else:
            self._onward.write(data)

    def pause_writing(self) -> None:
        """The client takes no more."""
        if self._onward is not None and not self._onward.is_closing():
            self._onward.pause_reading()

    def resume_writing(self) -> None:
        """It does."""
        if self._onward is not None and not self._onward.is_closing():
            self._onward.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._passages.went(self)
        if self._task is not None:
            self._task.cancel()
        if self._onward is not None:
            self._onward.close()

    def refuse(self) -> None:
        """The node is not there, or too many ask."""
        if self.client is not None and not self.client.is_closing():
            self.client.write(BUSY)
            self.client.close()

    def abort(self) -> None:
        """Wait no more."""
        if self.client is not None:
            self.client.abort()

    def reached(self, onward: asyncio.Transport) -> None:
        """The node is there: say who asks, then what was said."""
        client = self.client
        assert client is not None
        if client.is_closing():
            onward.close()
            return
        self._onward = onward
        peer = client.get_extra_info("peername")
        host, port = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("-", 0)
        scheme = "https" if client.get_extra_info("sslcontext") is not None else "http"
        early, self._early = self._early, []
        onward.write(b"".join([f"{host.partition('%')[0]} {port} {scheme}\n".encode(), *early]))
        client.resume_reading()


class _Onward(asyncio.Protocol):
    """The node's side of a passage."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        onward = cast("asyncio.Transport", transport)
        onward.set_write_buffer_limits(high=HIGH_BYTES)
        self._passage.reached(onward)

    def data_received(self, data: bytes) -> None:
        client = self._passage.client
        if client is not None and not client.is_closing():
            client.write(data)

    def pause_writing(self) -> None:
        client = self._passage.client
        if client is not None and not client.is_closing():
            client.pause_reading()

    def resume_writing(self) -> None:
        client = self._passage.client
        if client is not None and not client.is_closing():
            client.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        client = self._passage.client
        if client is not None:
            client.close()


class Arrival(asyncio.Protocol):
    """A passage's end at the node: reads who asks, then hands the connection over."""

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A gateway process passes something on."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The first line, and what follows."""
        self._data += data
        line, newline, rest = self._data.partition(b"\n")
        if not newline:
            if len(line) > LINE_BYTES_MAX:
                self._transport.abort()
            return
        asking = _read_line(line)
        if asking is None:
            self._transport.abort()
            return
        client, scheme = asking
        protocol = self._hand_over(client=client, scheme=scheme)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)


def _read_line(line: bytes) -> tuple[tuple[str, int], str] | None:
    """Who asks, and over what; None if the line makes no sense."""
    try:
        host, port, scheme = line.decode("ascii").split(" ")
        if scheme not in ("http", "https"):
            return None
        return ("" if host == "-" else str(ip_address(host)), int(port)), scheme
    except ValueError:
        return None
