"""The stream between a gateway and a hub on another machine: TCP, with the cluster's secret at both ends.

::

    streams = await listen(host, port, secrets, boot, lambda peer: hub.accept())
    …
    dial = connect(loop, address, secrets, link, boot=own, to=theirs)

The bytes are those of the Unix socket of a gateway process (``machines.wire``), in frames of
``machines.links.handshake``: whoever does not know the secret is cut off before the hub hears of it, and nobody in
between can change a byte. Nothing is hidden.

A gateway names the process that it means, by the boot id that the registry has. One that comes with an old address is
refused by the stream itself, so what is meant for one partition never reaches another.

Bounds: an end that does not prove itself within ``PROVE_MS`` is cut off; ``UNPROVED_MAX`` at a time, beyond which the
oldest gives way. What waits for the peer is bounded by the receiver, which looks at ``pending``.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from pixiu.machines.links.handshake import CHALLENGE_BYTES, SecureStream
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.runtime.local_links import LocalLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.links.sealing import Secrets
    from pixiu.ports.transport import WatchedLink, WatchedReceiver

__all__ = ["Dial", "HubStreams", "connect", "listen"]

log = logging.getLogger(__name__)

CHUNK_BYTES = 2**20
"""The most in one frame of the stream; more is several."""
CONNECT_MS = 2_000
PROVE_MS = 5_000
UNPROVED_MAX = 1_024


class _SealedEnd:
    """One end: the ``WatchedReceiver`` of a socket, and the ``WatchedLink`` of whoever receives what it says."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: SecureStream,
        proved: Callable[[_SealedEnd, int], WatchedReceiver | None],
        ended: Callable[[_SealedEnd, str], object],
    ) -> None:
        """``proved`` is told the other end's boot id and gives the receiver; None: it is not wanted any more."""
        self._loop = loop
        self._stream = stream
        self._proved = proved
        self._ended = ended
        self._socket: WatchedLink | None = None
        self._receiver: WatchedReceiver | None = None
        self._timer: asyncio.TimerHandle | None = loop.call_later((CONNECT_MS + PROVE_MS) / 1000, self._too_late)
        self._is_over = False

    # What the socket tells.

    def opened(self, link: WatchedLink) -> None:
        """There is a connection: begin to prove."""
        if self._is_over:
            link.close()
            return
        self._socket = link
        link.write(self._stream.begin())

    def received(self, data: bytes) -> None:
        """Bytes of the other end."""
        was_open = self._stream.is_open
        try:
            out, frames = self._stream.feed(data)
        except PixiuError as error:
            self._fail(str(error))
            return
        if out and self._socket is not None:
            self._socket.write(out)
        if self._stream.is_open and not was_open:
            self._open()
        for frame in frames:
            if self._receiver is not None:
                self._receiver.received(frame)

    def paused(self) -> None:
        """Much waits."""
        if self._receiver is not None:
            self._receiver.paused()

    def resumed(self) -> None:
        """Little waits."""
        if self._receiver is not None:
            self._receiver.resumed()

    def lost(self, reason: str) -> None:
        """It has ended, or could not be made."""
        self._socket = None
        self._fail(reason)

    # What the receiver calls.

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._socket is not None:
            sealed = [
                self._stream.seal(data[begin : begin + CHUNK_BYTES]) for begin in range(0, len(data), CHUNK_BYTES)
            ]
            self._socket.write(sealed[0] if len(sealed) == 1 else b"".join(sealed))

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return 0 if self._socket is None else self._socket.pending()

    def close(self) -> None:
        """End it; the receiver hears no more."""
        self._receiver = None
        self._end("closed")

    # Steps.

    def _open(self) -> None:
        self._stop_timer()
        self._receiver = receiver = self._proved(self, self._stream.peer)
        if receiver is None:
            self._end("not wanted any more")
        else:
            receiver.opened(self)

    def _too_late(self) -> None:
        self._timer = None
        self._fail("the peer did not prove itself in time")

    def _fail(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if self._is_over:
            return
        self._end(reason)
        if receiver is not None:
            receiver.lost(reason)

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._stop_timer()
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
        self._ended(self, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HubStreams:
    """Where gateways of other machines come in. Made by ``listen``."""

    def __init__(
        self,
        secrets: Callable[[], Secrets],
        boot: int,
        accept: Callable[[int], WatchedReceiver | None],
    ) -> None:
        self.refused = 0
        """Connections that did not prove themselves, or came for another process."""
        self._secrets = secrets
        self._boot = boot
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._unproved: dict[_SealedEnd, None] = {}

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None, "it does not listen"
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept nobody any more. Streams that are open are their receivers'."""
        if self._server is not None:
            self._server.close()
        for end in list(self._unproved):
            end.close()

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``Unavailable``."""
        try:
            self._server = await self._loop.create_server(self._connection, host, port)
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def _connection(self) -> asyncio.Protocol:
        stream = SecureStream(self._secrets(), self._boot, os.urandom(CHALLENGE_BYTES))
        end = _SealedEnd(self._loop, stream, self._proved, self._ended)
        if len(self._unproved) >= UNPROVED_MAX:
            next(iter(self._unproved)).close()
        self._unproved[end] = None
        return LocalLink(end)

    def _proved(self, end: _SealedEnd, peer: int) -> WatchedReceiver | None:
        del self._unproved[end]
        return self._accept(peer)

    def _ended(self, end: _SealedEnd, reason: str) -> None:
        if self._unproved.pop(end, self) is None:
            self.refused += 1
            log.info("a gateway's connection was refused", extra={"reason": reason})


async def listen(
    host: str,
    port: int,
    secrets: Callable[[], Secrets],
    boot: int,
    accept: Callable[[int], WatchedReceiver | None],
) -> HubStreams:
    """Take connections of gateways. Raises ``Unavailable``.

    ``secrets`` is asked anew for each connection; ``accept`` is told the gateway's boot id and gives its receiver, or
    None while nobody is wanted.
    """
    listener = HubStreams(secrets, boot, accept)
    await listener.start(host, port)
    return listener


class Dial:
    """A connection being made or open. Made by ``connect``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: SecureStream, receiver: WatchedReceiver) -> None:
        self._receiver: WatchedReceiver | None = receiver
        self._end = _SealedEnd(loop, stream, lambda _end, _peer: self._take(), self._over)
        self._task: asyncio.Task[None] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        """Connect."""
        self._task = loop.create_task(self._connect(loop, address))

    def close(self) -> None:
        """Give it up; the receiver hears no more."""
        self._receiver = None
        self._end.close()
        if self._task is not None:
            self._task.cancel()

    def _take(self) -> WatchedReceiver | None:
        receiver, self._receiver = self._receiver, None
        return receiver

    def _over(self, _end: _SealedEnd, reason: str) -> None:
        """It ended before it was open: nobody else tells the receiver."""
        receiver = self._take()
        if receiver is not None:
            receiver.lost(reason)

    async def _connect(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        host, _, port = address.rpartition(":")
        link = LocalLink(self._end)
        try:
            async with asyncio.timeout(CONNECT_MS / 1000):
                await loop.create_connection(lambda: link, host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError) as error:
            link.failed(str(error) or "timed out")


def connect(
    loop: asyncio.AbstractEventLoop,
    address: str,
    secrets: Secrets,
    receiver: WatchedReceiver,
    *,
    boot: int,
    to: int,
) -> Dial:
    """Begin to connect to the process ``to`` at ``HOST:PORT``; the receiver is told what becomes of it.

    ``boot`` is this process's boot id. ``opened`` comes when the other one has proved that it is the one.
    """
    stream = SecureStream(secrets, boot, os.urandom(CHALLENGE_BYTES), to=to)
    dial = Dial(loop, stream, receiver)
    dial.begin(loop, address)
    return dial
