"""Links between processes of one machine: Unix sockets that only their owner may use.

::

    place = LocalPlace(data / "run")
    server = await listen_local(place.path("gateway.sock"), lambda: LocalLink(hub.accept()))
    …
    dial_local(loop, path, receiver)

A path of a Unix socket has a little more than a hundred bytes; where the data directory lies too deep for that, the
sockets are in a folder of their own in the system's place for such things, and go with the process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import WatchedReceiver

__all__ = ["LocalLink", "LocalPlace", "dial_local", "listen_local"]

PATH_BYTES_MAX = 103
"""What every system takes, with its ending zero."""
LONGEST_NAME = 20
HIGH_BYTES = 2**20
"""While more than this waits, the receiver is told that it is too much."""


class LocalPlace:
    """A folder for sockets, readable by its owner alone."""

    def __init__(self, wanted: Path) -> None:
        self._is_temporary = len(os.fsencode(wanted.absolute())) + 1 + LONGEST_NAME > PATH_BYTES_MAX
        if self._is_temporary:
            self._folder = Path(tempfile.mkdtemp(prefix="pixiu-"))
        else:
            wanted.mkdir(mode=0o700, exist_ok=True)
            wanted.chmod(0o700)
            self._folder = wanted

    def path(self, name: str) -> Path:
        """Where a socket of this name is. One that an earlier life left behind is removed."""
        found = self._folder.absolute() / name
        found.unlink(missing_ok=True)
        return found

    def close(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._folder, ignore_errors=True)


class LocalLink(asyncio.Protocol):
    """One connection, at either end: ``ports.transport.WatchedLink``."""

    def __init__(self, receiver: WatchedReceiver) -> None:
        self._receiver: WatchedReceiver | None = receiver
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there."""
        self._transport = cast("asyncio.Transport", transport)
        if self._receiver is None:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=HIGH_BYTES // 4)
        self._receiver.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if self._receiver is not None:
            self._receiver.received(data)

    def pause_writing(self) -> None:
        """Much waits."""
        if self._receiver is not None:
            self._receiver.paused()

    def resume_writing(self) -> None:
        """Little waits."""
        if self._receiver is not None:
            self._receiver.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.failed(str(exc) if exc is not None else "the peer hung up")

    def failed(self, reason: str) -> None:
        """Tell the receiver, once."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost(reason)

    # What the receiver calls.

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """End it, after what was written; a peer that reads nothing does not hold it up."""
        self._receiver = None
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() > HIGH_BYTES:
            transport.abort()
        elif transport is not None:
            transport.close()


async def listen_local(path: Path, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Accept connections at a path that is in a ``LocalPlace``."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        _bind(listener, path)
        return await asyncio.get_running_loop().create_unix_server(make, sock=listener)
    except BaseException:
        listener.close()
        raise


def _bind(listener: socket.socket, path: Path) -> None:
    listener.bind(str(path))
    path.chmod(0o600)


def dial_local(loop: asyncio.AbstractEventLoop, path: str, receiver: WatchedReceiver) -> asyncio.Task[None]:
    """Begin to connect; the receiver is told what becomes of it."""
    link = LocalLink(receiver)

    async def connect() -> None:
        try:
            await loop.create_unix_connection(lambda: link, path)
        except OSError as error:
            link.failed(error.strerror or str(error))

    return loop.create_task(connect())
