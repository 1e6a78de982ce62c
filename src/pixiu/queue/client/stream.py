"""The connection of one subscription: batches in, acks out."""

import asyncio
from collections import deque
from typing import cast

from pixiu.machines.queue_wire import Kind, ResponseReader, SubscribeReader
from pixiu.machines.queue_wire.commands import ACK_CONTINUE, ACK_END, CODE_REFUSED
from pixiu.machines.queue_wire.streams import BatchPushed, Ended, KeptAlive, Refused
from pixiu.model.errors import RemoteProtocolError, Unavailable
from pixiu.queue.client.errors import error_of
from pixiu.queue.client.servers import Address

__all__ = ["SubscribeConnection"]

StreamEvent = BatchPushed | KeptAlive | Ended | Refused


class SubscribeConnection(asyncio.Protocol):
    """Holds at most one batch that was not acked; a server that pushes a second one breaks the protocol."""

    def __init__(self, address: Address, *, batch_bytes_max: int, silence_s_max: float) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answers = ResponseReader()
        self._reader: SubscribeReader | None = None
        self._batch_bytes_max = batch_bytes_max
        self._silence_s_max = silence_s_max
        self._events: deque[StreamEvent] = deque()
        self._bodies: deque[bytes] = deque()
        self._owed = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def ask(self, request: bytes, about: str) -> bytes:
        """One ordinary request before the stream begins, such as Challenge; returns the answer's body."""
        assert self._reader is None, "the stream has begun"
        self._answers.expect(Kind.SIZED)
        self._write(request)
        while not self._bodies:
            await self._wait()
        body = self._bodies.popleft()
        if isinstance(body, _RefusedText):
            raise error_of(body.decode("utf-8", errors="replace"), about)
        return body

    def begin(self, request: bytes) -> None:
        """Send Sub or Subscribe; from now on events come."""
        self._reader = SubscribeReader(bytes_max=self._batch_bytes_max)
        self._write(request)

    async def next_event(self) -> StreamEvent:
        """The next event. Raises Unavailable when the connection is lost or silent for too long."""
        while not self._events:
            await self._wait()
        return self._events.popleft()

    def ack(self, *, end: bool = False) -> None:
        """The batch has been handled: send the next, or end. A lost connection is noticed later."""
        self._owed = False
        self._write(ACK_END if end else ACK_CONTINUE)

    def close(self) -> None:
        """Close, after what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort_from_anywhere(self) -> None:
        """The same from a finalizer, which may run in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.abort)

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and self._error is None:
            self._transport.write(data)

    async def _wait(self) -> None:
        if isinstance(self._error, RemoteProtocolError):
            raise self._error
        if self._error is not None:
            raise Unavailable(f"lost the connection to {self.address} ({self._error})")
        assert self._waiter is None, "two wait on one subscription"
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(self._silence_s_max):
                await self._waiter
        except TimeoutError:
            self.abort()
            raise Unavailable(f"{self.address} has been silent for {self._silence_s_max:g} s") from None
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        try:
            if self._reader is None:
                for response in self._answers.receive(data):
                    body = response.body
                    self._bodies.append(_RefusedText(body) if response.code == CODE_REFUSED else body)
            else:
                for event in self._reader.receive(data):
                    self._take(event)
        except RemoteProtocolError as error:
            self._error = error
            self.abort()
        self._wake()

    def _take(self, event: StreamEvent) -> None:
        if isinstance(event, BatchPushed):
            if self._owed:
                raise RemoteProtocolError("a second batch before the first was acked")
            self._owed = True
        if not isinstance(event, KeptAlive) or not self._events:
            self._events.append(event)

    def connection_lost(self, error: Exception | None) -> None:
        """The peer closed, or the network did. Events that came before still count."""
        if self._error is None:
            self._error = error or ConnectionError("the server closed it")
        self._wake()


class _RefusedText(bytes):
    """The text of a 400, kept apart from bodies."""
