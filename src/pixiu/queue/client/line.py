"""Requests in order over one connection at a time, opened when needed and opened again when it breaks.

What happens to a request, and what its caller learns:

- There is room on the connection: it is sent at once.
- ``in_flight_max`` answers are owed: it waits here, in order.
- ``waiting_bytes_max`` wait here already: ``Overloaded``, at once; nothing was sent.
- No server can be reached until its patience has run out: ``Unavailable``; nothing was sent.
- The connection breaks after it was sent: ``FateUnknown``. Requests that still waited go out on the next one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy

from pixiu.machines.queue_wire import Kind
from pixiu.model.errors import Overloaded, PixiuError, Unavailable
from pixiu.queue.client.connection import Call, Connection
from pixiu.queue.client.servers import Address, Backoff

__all__ = ["Line"]

IDLE_S_MAX = 300.0
"""A connection unused for longer is replaced instead of trusted: servers close idle ones after a while."""

Opener = Callable[[Callable[[], None], Callable[[Connection], None]], Awaitable[Connection]]


class Line:
    """One place in the pool."""

    def __init__(
        self, opener: Opener, *, backoff: Backoff, patience_s: float, waiting_bytes_max: int, stale_s: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._opener = opener
        self._backoff = backoff
        self._patience_s = patience_s
        self._stale_s = stale_s
        self._waiting: deque[Call] = deque()
        self._waiting_bytes = 0
        self._waiting_bytes_max = waiting_bytes_max
        self._connection: Connection | None = None
        self._retired: set[Connection] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._must_back_off = False
        self._is_closed = False

    @property
    def load(self) -> int:
        """How many requests are in flight or wait."""
        return len(self._waiting) + (self._connection.in_flight if self._connection else 0)

    def submit(self, data: bytes, kind: Kind) -> Call:
        """Send a request as soon as its turn comes; the call's future is its answer."""
        if self._is_closed:
            raise Unavailable("this client is closed")
        call = Call(data, kind, self._loop.create_future(), self._loop.time())
        connection = self._connection
        if connection is not None and not self._waiting and connection.has_room:
            if connection.idle_s() < IDLE_S_MAX:
                connection.send(call)
                return call
            connection.retire()
        if self._waiting_bytes + len(data) > self._waiting_bytes_max:
            raise Overloaded(f"{self._waiting_bytes} bytes wait to be sent already; slow down and try again")
        self._waiting.append(call)
        self._waiting_bytes += len(data)
        self._go_on()
        return call

    def leave(self, address: Address) -> None:
        """Use this server no more; answers that it owes may still come."""
        connection = self._connection
        if connection is not None and connection.address == address:
            self._connection = None
            self._retired.add(connection)
            connection.retire()

    def abandon(self, address: Address) -> None:
        """Wait no longer for what this server owes."""
        for connection in (self._connection, *self._retired):
            if connection is not None and connection.address == address:
                connection.break_off(ConnectionError("another server leads now"))

    def _go_on(self) -> None:
        """Send what waits, as far as there is room; connect if there is nothing to send it on."""
        connection = self._connection
        if connection is None:
            if self._waiting and self._connecting is None and not self._is_closed:
                self._connecting = self._loop.create_task(self._connect())
            return
        while self._waiting and connection.has_room:
            call = self._take()
            if not call.future.done():
                connection.send(call)

    def _take(self) -> Call:
        call = self._waiting.popleft()
        self._waiting_bytes -= len(call.data)
        return call

    def _progressed(self) -> None:
        """An answer came: the server is well, so the next trouble is a new one."""
        if self._must_back_off:
            self._must_back_off = False
            self._backoff.reset()
        self._go_on()

    def _lost(self, connection: Connection) -> None:
        self._retired.discard(connection)
        if connection is not self._connection:
            return
        self._connection = None
        self._must_back_off = True
        self._fail_waiting(Unavailable("the queue does not answer"), older_than_s=self._stale_s)
        self._go_on()

    async def _connect(self) -> None:
        """Until connected, or nobody waits any more."""
        try:
            while self._waiting:
                if self._must_back_off:
                    await asyncio.sleep(self._backoff.next_s())
                self._must_back_off = True
                try:
                    self._connection = await self._opener(self._progressed, self._lost)
                except Unavailable as error:
                    self._fail_waiting(error, older_than_s=self._patience_s)
                except PixiuError as error:
                    self._fail_waiting(error)
                else:
                    if self._connection.is_usable:
                        break
                    self._connection = None  # Lost again before anyone could use it.
        finally:
            self._connecting = None
        self._go_on()

    def _fail_waiting(self, error: PixiuError, *, older_than_s: float = -1.0) -> None:
        now_s = self._loop.time()
        while self._waiting and now_s - self._waiting[0].since_s >= older_than_s:
            call = self._take()
            if not call.future.done():
                call.future.set_exception(copy(error))

    def close(self) -> "asyncio.Task[None] | None":
        """Stop; everything outstanding fails. Returns the task to wait for, if one was connecting."""
        self._is_closed = True
        self._fail_waiting(Unavailable("this client is closed"))
        for connection in (self._connection, *self._retired):
            if connection is not None:
                connection.break_off(ConnectionError("this client is closed"))
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
        return connecting
