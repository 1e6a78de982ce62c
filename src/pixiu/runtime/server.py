"""Listening sockets for protocols that are written as callbacks."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

BACKLOG = 1024


async def listen(make_connection: Callable[[], object], host: str, port: int) -> asyncio.Server:
    """Accept connections; each gets an object with the methods of ``asyncio.Protocol``.

    The queue's connections do not inherit from asyncio, so that they run in the simulated world as well; the loop only
    asks for the methods.
    """
    loop = asyncio.get_running_loop()
    factory = cast("Callable[[], asyncio.BaseProtocol]", make_connection)
    return await loop.create_server(factory, host, port, backlog=BACKLOG)


def address_of(server: asyncio.Server) -> str:
    """``HOST:PORT`` of a listening socket, the host in brackets where it has colons."""
    host, port = server.sockets[0].getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Where a connection comes from; empty if it is gone."""
    found = None if transport is None else transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) and len(found) >= 2 else ""


def watch_peer(transport: asyncio.BaseTransport) -> None:
    """Let the system notice a peer that died without a word: after half a minute of silence, within another."""
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def end_writing(transport: asyncio.Transport) -> None:
    """Send what was written and then the end of the stream; the peer's bytes are still read."""
    if not transport.is_closing() and transport.can_write_eof():
        transport.write_eof()


def reset_on_close(transport: asyncio.BaseTransport) -> None:
    """Make closing drop unsent bytes at once, so that a peer that takes nothing holds no kernel memory of ours."""
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
