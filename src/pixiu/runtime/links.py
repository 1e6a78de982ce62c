"""TCP connections to other nodes, as callbacks."""

import asyncio
from typing import cast

from pixiu.ports.transport import Receiver


class TcpLink(asyncio.Protocol):
    """One connection being made, open, or over."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver: Receiver | None = receiver
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there."""
        self._transport = cast("asyncio.Transport", transport)
        if self._receiver is None:
            self._transport.abort()
        else:
            self._receiver.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if self._receiver is not None:
            self._receiver.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self.failed(str(error) if error is not None else "the peer closed the connection")

    def failed(self, reason: str) -> None:
        """Tell the receiver, once."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost(reason)

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """End it."""
        self._receiver = None
        if self._transport is not None:
            self._transport.close()


class TcpLinks:
    """Opens connections on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> TcpLink:
        """Begin to connect to ``HOST:PORT``."""
        link = TcpLink(receiver)
        task = self._loop.create_task(self._connect(address, link, timeout_ms / 1000))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return link

    async def _connect(self, address: str, link: TcpLink, seconds: float) -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(seconds):
                await self._loop.create_connection(lambda: link, host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError) as error:
            link.failed(str(error) or "timed out")

    def close(self) -> None:
        """Give up what is still being made."""
        for task in self._tasks:
            task.cancel()
