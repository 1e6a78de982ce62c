"""A UDP socket on the event loop: many datagrams per wake-up, no copy of our own, never blocking."""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["UdpSocket"]

log = logging.getLogger(__name__)

BURST = 64
"""Datagrams taken per wake-up: then others have their turn."""
BUFFER_BYTES = 4 * 2**20
DATAGRAM_BYTES_MAX = 65_536
ADDRESSES_MAX = 65_536
FULL = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS)


class UdpSocket:
    """``ports.datagrams.Datagrams``. ``received`` is told of each datagram and where it came from."""

    def __init__(self, loop: asyncio.AbstractEventLoop, received: Callable[[bytes, str], object]) -> None:
        self.is_full = False
        self.when_free: Callable[[], object] = lambda: None
        self.failed = 0
        """Datagrams that the system refused: nobody listens there, or there is no way."""
        self._loop = loop
        self._received = received
        self._socket: socket.socket | None = None
        self._addresses: dict[str, tuple[str, int]] = {}
        self._names: dict[tuple[str, int], str] = {}

    def bind(self, host: str, port: int) -> int:
        """Listen. Returns the port. Raises ``OSError``."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                opened.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            opened.bind((host, port))
        except BaseException:
            opened.close()
            raise
        self._socket = opened
        self._loop.add_reader(opened.fileno(), self._readable)
        return int(opened.getsockname()[1])

    def send(self, address: str, data: bytes) -> bool:
        """Send one. False if the system takes no more for now."""
        opened = self._socket
        if opened is None:
            return True
        try:
            opened.sendto(data, self._addresses.get(address) or self._resolve(address))
        except OSError as error:
            if error.errno in FULL:
                self._wait()
                return False
            self.failed += 1
        except ValueError:
            self.failed += 1
        return True

    def close(self) -> None:
        """Hear and say no more."""
        opened, self._socket = self._socket, None
        if opened is not None:
            self._loop.remove_reader(opened.fileno())
            if self.is_full:
                self._loop.remove_writer(opened.fileno())
            opened.close()

    # Steps.

    def _readable(self) -> None:
        opened, names = self._socket, self._names
        for _ in range(BURST):
            if opened is None or self._socket is None:
                return
            try:
                data, source = opened.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:  # an earlier datagram found nobody: the system tells so here
                self.failed += 1
                continue
            name = names.get(source[:2])
            if name is None:
                if len(names) >= ADDRESSES_MAX:
                    names.clear()
                host = f"[{source[0]}]" if ":" in source[0] else source[0]
                name = names[source[:2]] = f"{host}:{source[1]}"
            self._received(data, name)

    def _resolve(self, address: str) -> tuple[str, int]:
        """``HOST:PORT`` as the system wants it. Names are looked up by the registry's readers, not per datagram."""
        host, _, port = address.rpartition(":")
        if len(self._addresses) >= ADDRESSES_MAX:
            self._addresses.clear()
        found = self._addresses[address] = (host.strip("[]"), int(port))
        return found

    def _wait(self) -> None:
        opened = self._socket
        if not self.is_full and opened is not None:
            self.is_full = True
            self._loop.add_writer(opened.fileno(), self._writable)

    def _writable(self) -> None:
        opened = self._socket
        if opened is not None:
            self._loop.remove_writer(opened.fileno())
        self.is_full = False
        self.when_free()
