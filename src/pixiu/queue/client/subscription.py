"""A topic, read to its end or for as long as you like, over as many connections as it takes.

::

    async for delivery in client.subscribe("order", name="billing"):
        handle(delivery)

When is a message handled? When you ask for the next one. A batch is acked when you ask for the message after
its last, so nothing is acked that your code has not seen through; if it raises, or the process dies, the
batch comes again: at least once. Leaving the loop acks nothing; call ``finish()`` first to count what you
have seen so far.

A lost connection is opened again, on any of the servers, after a backoff, and goes on after the last message
handled. What cannot get better by waiting is raised: the topic is gone (``NotFound``), the position is
(``Gone``), the name is taken (``Conflict``). When the topic is deleted or its lifetime ends, the loop ends.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pixiu.machines.queue_wire.commands import START_AFTER, START_NOW, START_TIME
from pixiu.machines.queue_wire.requests import encode_hello, encode_sub, encode_subscribe
from pixiu.machines.queue_wire.streams import BatchPushed, Ended, Refused
from pixiu.model.errors import Conflict, PixiuError, Unavailable
from pixiu.queue.client.answers import Hello, decode_object
from pixiu.queue.client.delivery import Delivery
from pixiu.queue.client.errors import error_of
from pixiu.queue.client.servers import Address, Backoff
from pixiu.queue.client.stream import SubscribeConnection

__all__ = ["Subscription", "SubscriptionOptions"]

CLOCK_DIFFERENCE_MS_MAX = 600_000
"""How far our clock and the server's may be apart; what is older than "now" is left out by its id."""

NAME_IN_USE_S = 30.0
"""After a reconnect our own dead connection may hold the name until its ack timeout and this much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """What was asked for; the position moves, this does not."""

    topic: str
    name: str
    start: int
    value: int
    batch: int
    ack_timeout_ms: int
    take_over: bool
    remember: bool
    reconnect: bool
    patience_s: float


class Subscription:
    """Iterate over it, once. Close it, or use ``async with``, to free its name at once."""

    def __init__(
        self,
        options: SubscriptionOptions,
        *,
        connect: Callable[[], Awaitable[SubscribeConnection]],
        move_on: Callable[[Address], None],
        set_position: Callable[[str, str, int], Awaitable[None]],
        backoff: Backoff,
        clock_ms: Callable[[], int],
    ) -> None:
        self.options = options
        self.has_ended = False
        """True when the topic has ended or ``finish`` was called."""
        self.position: int | None = options.value if options.start == START_AFTER else None
        """The event id of the last message handled: where a later subscription goes on."""
        self._connect = connect
        self._move_on = move_on
        self._set_position = set_position
        self._backoff = backoff
        self._clock_ms = clock_ms
        self._connection: SubscribeConnection | None = None
        self._batch: list[Delivery] = []
        self._given = 0
        self._now: tuple[int, int] | None = None
        self._was_live = False
        self._is_heard = False
        self._is_closed = False
        self._lost_since_s: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while (delivery := self.take()) is None:
            if await self.next_batch() is None:
                raise StopAsyncIteration
        return delivery

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """Whole batches instead of single messages; each is acked when the next is asked for."""
        while (batch := await self.next_batch()) is not None:
            self.take_all()
            yield batch

    def take(self) -> Delivery | None:
        """The next message of the batch at hand, which handles the one before; None if there is none."""
        if self._given:
            self.position = self._batch[self._given - 1].event_id
        if self._given == len(self._batch):
            return None
        self._given += 1
        return self._batch[self._given - 1]

    def take_all(self) -> None:
        """The whole batch at hand has been given out."""
        self._given = len(self._batch)

    async def next_batch(self) -> list[Delivery] | None:
        """Ack the batch before and wait for the next; None when the topic has ended."""
        if self._batch:
            self.position = self._batch[-1].event_id
            self._batch = []
            self._given = 0
            if self._connection is not None:
                self._connection.ack()
        while not self.has_ended and not self._is_closed:
            try:
                if self._connection is None:
                    self._connection = await self._open()
                event = await self._connection.next_event()
            except Unavailable as error:
                await self._retry_or_raise(error)
                continue
            except PixiuError:
                self.close()
                raise
            if not isinstance(event, Refused):
                self._was_live = self._is_heard = True
                self._lost_since_s = None
                self._backoff.reset()
            match event:
                case BatchPushed(items):
                    topic = self.options.topic
                    first = self._now[0] if self._now is not None and self.position is None else -1
                    self._batch = [Delivery(topic, item[1], item[0], item[4]) for item in items if item[1] > first]
                    if self._batch:
                        return self._batch
                    self._connection.ack()
                case Ended():
                    self.has_ended = True
                    self.close()
                case Refused(text):
                    await self._refused(error_of(text, f"subscribing to {self.options.topic!r}"))
                case _:
                    pass  # Kept alive.
        return None

    async def finish(self) -> None:
        """Count everything given out so far as handled, and end."""
        if self._given:
            self.position = self._batch[self._given - 1].event_id
        is_whole = bool(self._batch) and self._given == len(self._batch)
        if is_whole and self._connection is not None:
            self._connection.ack(end=True)
        self.has_ended = True
        was_given = self._given
        self.close()
        if was_given and self.options.remember and not is_whole and self.position is not None:
            # The wire acks whole batches only: the rest of this one must come again.
            await self._set_position(self.options.topic, self.options.name, self.position)

    def close(self) -> None:
        """End without acking, and the loop with it. The name is free as soon as the server sees it."""
        self._is_closed = True
        self._batch = []
        self._given = 0
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        if self._connection is not None:  # Left with `break`, and not closed: do not hold the name.
            self._connection.abort_from_anywhere()

    async def _open(self) -> SubscribeConnection:
        connection = await self._connect()
        try:
            if self.options.start == START_NOW and self._now is None:
                # A connection lost before the first message must not skip any: remember what "now" was.
                body = await connection.ask(encode_hello(), "asking for the last event")
                self._now = (Hello.of(decode_object(body)).last_event_id, self._clock_ms())
                connection.begin(self._request(START_NOW, 0))
            elif self.position is None and self._now is not None:
                connection.begin(self._request(START_TIME, self._now[1] - CLOCK_DIFFERENCE_MS_MAX))
            elif self.position is None:
                connection.begin(self._request(self.options.start, self.options.value))
            else:
                connection.begin(self._request(START_AFTER, self.position))
        except BaseException:
            connection.abort()
            raise
        self._is_heard = False
        return connection

    def _request(self, start: int, value: int) -> bytes:
        options = self.options
        topic, name = options.topic.encode(), options.name.encode()
        if start == START_AFTER and not options.take_over and not options.remember:  # Old servers know this one too.
            timeout_ns = options.ack_timeout_ms * 1_000_000
            return encode_sub(topic, name, after=value, batch=options.batch, ack_timeout_ns=timeout_ns)
        return encode_subscribe(
            topic,
            name,
            start=start,
            value=value,
            batch=options.batch,
            ack_timeout_ms=options.ack_timeout_ms,
            take_over=options.take_over,
            remember=options.remember,
        )

    async def _refused(self, error: PixiuError) -> None:
        """A 400 ended the stream, or kept it from beginning."""
        is_own_ghost = isinstance(error, Conflict) and self._was_live
        if isinstance(error, Unavailable) or is_own_ghost:
            await self._retry_or_raise(error)
        else:
            self.close()
            raise error

    async def _retry_or_raise(self, error: PixiuError) -> None:
        """Wait a little, unless this has been going on for too long."""
        if self._is_closed:
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            if not self._is_heard:  # It takes connections and says nothing: try another.
                self._move_on(connection.address)
        now_s = asyncio.get_running_loop().time()
        if self._lost_since_s is None:
            self._lost_since_s = now_s
        lost_s = now_s - self._lost_since_s
        if isinstance(error, Conflict):
            may_go_on = lost_s < self.options.ack_timeout_ms / 1000 + NAME_IN_USE_S
        elif self._was_live:
            may_go_on = self.options.reconnect
        else:
            may_go_on = lost_s < self.options.patience_s
        if not may_go_on:
            raise error
        await asyncio.sleep(self._backoff.next_s())
