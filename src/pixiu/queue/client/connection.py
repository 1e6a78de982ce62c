"""One connection that carries many requests at once.

No task per request: a request is a future in a queue, everything asked for in one turn of the loop leaves in
one write, and answers resolve the futures in order. Nothing in an answer says which request it belongs to,
so one answer that never came would hand every later caller its predecessor's answer. Therefore a connection
that stays silent for too long while it owes an answer, or answers nonsense, is broken for good and never
used again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from pixiu.machines.queue_wire import Kind, Response, ResponseReader
from pixiu.machines.queue_wire.commands import CODE_REFUSED
from pixiu.model.errors import NotAllowed, RemoteProtocolError, Unavailable
from pixiu.queue.client.errors import FateUnknown, error_of
from pixiu.queue.client.keys import show_key
from pixiu.queue.client.servers import Address

__all__ = ["Call", "Connection"]


WRITE_BUFFER_BYTES = 1 << 20
"""With more than this unsent, further calls wait in the line."""


class Call:
    """One request and the future of its answer."""

    __slots__ = ("address", "data", "future", "kind", "since_s")

    def __init__(self, data: bytes, kind: Kind, future: "asyncio.Future[Response]", since_s: float) -> None:
        self.data = data
        self.kind = kind
        self.future = future
        self.since_s = since_s
        """When it was asked for; once it is sent, when it was sent."""
        self.address: Address | None = None
        """Where it was sent."""


class Connection(asyncio.Protocol):
    """Sends calls, resolves their futures in order, and breaks as a whole."""

    def __init__(
        self,
        address: Address,
        *,
        in_flight_max: int,
        response_timeout_s: float,
        body_bytes_max: int,
        on_progress: Callable[[], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self.address = address
        self.is_usable = False
        """True from connected until broken or closed."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader(body_bytes_max=body_bytes_max)
        self._in_flight: deque[Call] = deque()
        self._in_flight_max = in_flight_max
        self._outgoing: list[bytes] = []
        self._is_paused = False
        self._is_retired = False
        self._response_timeout_s = response_timeout_s
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._on_progress = on_progress
        self._on_lost = on_lost

    @property
    def has_room(self) -> bool:
        """True if one more call may be sent now."""
        return self.is_usable and not self._is_paused and len(self._in_flight) < self._in_flight_max

    @property
    def in_flight(self) -> int:
        """How many answers are owed."""
        return len(self._in_flight)

    def idle_s(self) -> float:
        """How long nothing has been asked and nothing been heard."""
        return 0.0 if self._in_flight else self._loop.time() - self._heard_s

    def send(self, call: Call) -> None:
        """Send with everything else of this turn of the loop. Only when ``has_room``."""
        call.since_s = self._loop.time()
        call.address = self.address
        self._reader.expect(call.kind)
        self._in_flight.append(call)
        self._outgoing.append(call.data)
        if len(self._outgoing) == 1:
            self._loop.call_soon(self._write)
        if self._timer is None:
            self._timer = self._loop.call_later(self._response_timeout_s, self._check_silence)

    async def authorize(self, key: bytes) -> None:
        """Show the node's key without saying it, before anything else; the server shows it, too."""
        try:
            await show_key(self._asked, key, self.address)
        except NotAllowed:
            self.break_off(ConnectionError("not authorized"))
            raise

    async def _asked(self, request: bytes) -> bytes:
        """One answer on the way to an authorized connection."""
        call = Call(request, Kind.SIZED, self._loop.create_future(), 0.0)
        self.send(call)
        try:
            response = await call.future
        except FateUnknown as error:  # Known well enough: nothing was asked for yet.
            raise Unavailable(f"{self.address} closed the connection while it was authorized") from error
        except asyncio.CancelledError:
            self.break_off(ConnectionError("cancelled"))
            raise
        if response.code == CODE_REFUSED:
            self.break_off(ConnectionError("not authorized"))
            raise error_of(response.text, f"authorizing at {self.address}")
        return response.body

    def _write(self) -> None:
        if self._transport is not None and self.is_usable:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _check_silence(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        silent_since_s = max(self._heard_s, self._in_flight[0].since_s)
        left_s = silent_since_s + self._response_timeout_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_silence)
        else:
            self.break_off(TimeoutError(f"no answer within {self._response_timeout_s:g} s"))

    def retire(self) -> None:
        """Take no more calls; close when the last answer is there."""
        self._is_retired = True
        if not self._in_flight:
            self.break_off(ConnectionError("closed by this client"))

    def break_off(self, reason: BaseException) -> None:
        """End it now. Whoever waits for an answer learns that nobody knows what became of the request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        was_usable, self.is_usable = self.is_usable, False
        if self._transport is not None:
            self._transport.abort()
        self._outgoing.clear()
        while self._in_flight:
            future = self._in_flight.popleft().future
            if not future.done():
                message = f"lost the connection to {self.address} ({reason}); the request may have been done"
                error = FateUnknown(message)
                error.__cause__ = reason
                future.set_exception(error)
        if was_usable:
            self._on_lost(self)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.is_usable = True
        self._heard_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Bytes came in: resolve what they answer."""
        self._heard_s = self._loop.time()
        try:
            responses = self._reader.receive(data)
        except RemoteProtocolError as error:
            self.break_off(error)
            return
        in_flight = self._in_flight
        for response in responses:
            future = in_flight.popleft().future
            if not future.done():  # A caller may have given up; its answer is dropped in its place.
                future.set_result(response)
        if self._is_retired and not in_flight:
            self.break_off(ConnectionError("closed by this client"))
        else:
            self._on_progress()

    def connection_lost(self, error: Exception | None) -> None:
        """The peer closed, or the network did."""
        self.break_off(error or ConnectionError("the server closed it"))

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_paused = False
        self._on_progress()
