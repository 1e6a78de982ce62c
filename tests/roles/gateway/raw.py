"""A WebSocket made by hand: it reads when it is told to, and sends whatever it is told to."""

from __future__ import annotations

import asyncio
import json
import socket
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CLOSE", "CONTINUATION", "PING", "PONG", "TEXT", "RawWebSocket", "frame_of", "handshake"]

CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10


def handshake(token: str, *, path: str = "/ws", headers: str = "") -> bytes:
    """A browser's request, with headers of one's own."""
    return (
        f"GET {path}?token={token} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    ).encode()


def frame_of(kind: int, payload: bytes = b"", *, is_masked: bool = True, is_last: bool = True, rsv: int = 0) -> bytes:
    """A client's frame; masked with zeros, so that it can be read."""
    first, mask, size = is_last << 7 | rsv << 4 | kind, is_masked << 7, len(payload)
    if size < 126:
        head = bytes((first, mask | size))
    elif size < 2**16:
        head = pack(">BBH", first, mask | 126, size)
    else:
        head = pack(">BBQ", first, mask | 127, size)
    return head + (b"\0" * 4 if is_masked else b"") + payload


class RawWebSocket:
    """One connection. ``receive_bytes`` is how much its system keeps for it while it does not read."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.frames: list[dict[str, Any]] = []
        self.pings = 0
        self.close_code = 0
        self.is_over = False
        self._data = b""
        self._number = 0

    @classmethod
    async def open(cls, port: int, token: str, *, receive_bytes: int = 0, address: str = "127.0.0.1") -> RawWebSocket:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if address != "127.0.0.1":
            sock.bind((address, 0))
        await loop.sock_connect(sock, ("127.0.0.1", port))
        made = cls(sock)
        await loop.sock_sendall(sock, handshake(token))
        async with asyncio.timeout(5):
            while b"\r\n\r\n" not in made._data:
                made._data += await loop.sock_recv(sock, 1)
        assert made._data.startswith(b"HTTP/1.1 101 "), made._data
        made._data = b""
        return made

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def request(self, action: str, **params: object) -> int:
        self._number += 1
        frame = {"id": self._number, "action": action, "params": params}
        await self.send(frame_of(TEXT, json.dumps(frame).encode()))
        return self._number

    async def ack(self) -> None:
        """Ack everything that has been read."""
        cursor = self.pushed("message")[-1]["cursor"]
        await self.send(frame_of(TEXT, json.dumps({"action": "ack", "params": {"cursor": cursor}}).encode()))

    async def read_until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        """Read until something holds; or until the end, if that comes first."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while not self.is_over and not condition():
                try:
                    data = await loop.sock_recv(self.sock, 65536)
                except ConnectionError:
                    data = b""
                self.is_over = not data
                self._data += data
                self._parse()

    async def read_slowly(
        self, condition: Callable[[], object], *, count: int, pause: float, seconds: float = 30.0
    ) -> None:
        """Read at most ``count`` bytes, pause, and so on, until something holds or the connection ends."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while not self.is_over and not condition():
                try:
                    data = await loop.sock_recv(self.sock, count)
                except ConnectionError:
                    data = b""
                self.is_over = not data
                self._data += data
                self._parse()
                await asyncio.sleep(pause)

    async def read_to_the_end(self, seconds: float = 10.0) -> None:
        await self.read_until(lambda: False, seconds)

    def _parse(self) -> None:
        data, position = self._data, 0
        while len(data) - position >= 2:
            size, start = data[position + 1], position + 2
            wide = {126: 2, 127: 8}.get(size, 0)
            if len(data) < start + wide:
                break
            if wide:
                size, start = int.from_bytes(data[start : start + wide]), start + wide
            if len(data) < start + size:
                break
            self._take(data[position] & 0x0F, data[start : start + size])
            position = start + size
        self._data = data[position:]

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == TEXT:
            self.frames.append(json.loads(payload))
        elif kind == PING:
            self.pings += 1
        elif kind == CLOSE:
            (self.close_code,) = unpack(">H", payload[:2])

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("push") == name]

    @property
    def texts(self) -> list[str]:
        return [frame["message"].get("text", "") for frame in self.pushed("message")]

    def close(self) -> None:
        self.sock.close()
