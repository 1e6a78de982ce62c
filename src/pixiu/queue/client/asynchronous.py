"""The queue from asyncio.

::

    async with Client("127.0.0.1:12301") as queue:
        await queue.create_topic("order")
        event_id = await queue.publish("order", b"hello", headers={"from": "shop"})
        async for delivery in queue.subscribe("order", name="billing"):
            print(delivery.event_id, delivery.body)

Requests are pipelined over a pool of connections. Everything about one topic goes over one of them, so calls
that were started in order are stored in order. Addresses may be several, ``"a:12301,b:12301"``: a server
that cannot be reached, or says that it is not the leader, is left for the next. With a registry,
``Client("zk://a:2181,b:2181/pubsub")``, the leader is found there, and found again when another is elected.

Bounds: 1,024 requests in flight per connection, further ones wait in the client, and when 64 MiB wait the
next is refused with ``Overloaded``. A request whose connection breaks raises ``FateUnknown`` if it may have
been done; reads, and ``append`` with a key, are repeated instead, because that is safe.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict
from weakref import WeakSet

from pixiu.machines.queue_wire import Kind, Message, pack
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.commands import START_AFTER, START_NOW, START_STORED, START_TIME
from pixiu.machines.queue_wire.responses import decode_append_answer
from pixiu.model.errors import LocalProtocolError, TooLarge
from pixiu.queue.client.answers import (
    Appended,
    DelayedMessage,
    Hello,
    Position,
    Topic,
    decode_list,
    decode_object,
)
from pixiu.queue.client.keys import key_bytes
from pixiu.queue.client.pool import SILENCE_S_MAX, Pool, PoolOptions
from pixiu.queue.client.servers import parse_addresses
from pixiu.queue.client.subscription import Subscription, SubscriptionOptions

if TYPE_CHECKING:
    from pixiu.ports.registry import Registry

__all__ = ["Body", "Client", "ClientOptions", "Duration", "Headers", "SubscribeOptions"]

Body = bytes | str
Headers = Mapping[str, str | bytes]
Duration = timedelta | int
"""A ``timedelta``, or whole milliseconds."""


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of ``Client``, for those who pass them on."""

    registry: "str | Registry | None"
    partition: int
    pool: int
    key: str | bytes | None
    patience_s: float
    response_timeout_s: float
    connect_timeout_s: float
    silence_s_max: float
    in_flight_max: int
    waiting_bytes_max: int
    payload_bytes_max: int
    answer_bytes_max: int
    backoff_first_s: float
    backoff_cap_s: float
    random: Random | None


class SubscribeOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.subscribe``."""

    name: str | None
    after: int
    from_now: bool
    from_stored: bool
    from_time: datetime | int | None
    batch: int
    ack_timeout: Duration
    take_over: bool
    remember: bool
    reconnect: bool


class Client:
    """Publishes, subscribes and manages topics. Use it as ``async with Client(…) as queue``."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:12301",
        *,
        registry: "str | Registry | None" = None,
        partition: int = 0,
        pool: int = 4,
        key: str | bytes | None = None,
        patience_s: float = 10.0,
        response_timeout_s: float = 10.0,
        connect_timeout_s: float = 3.0,
        silence_s_max: float = SILENCE_S_MAX,
        in_flight_max: int = 1024,
        waiting_bytes_max: int = 64 * 2**20,
        payload_bytes_max: int = 16 * 2**20,
        answer_bytes_max: int = 256 * 2**20,
        backoff_first_s: float = 0.05,
        backoff_cap_s: float = 5.0,
        random: Random | None = None,
    ) -> None:
        """Connects when first needed.

        ``registry`` (or an address ``zk://HOST:PORT/PATH``) names a queue that elects its leader: requests go to
        whoever leads partition ``partition``, and follow it. ``key`` is the node's key, for reserved topics.
        ``patience_s`` is how long a request waits for a server that can be reached; 0 tries each address once.
        ``response_timeout_s`` is how long a connection may stay silent while it owes an answer, before it is
        broken off.
        """
        self._random = random or Random()
        self._payload_bytes_max = payload_bytes_max
        self._patience_s = patience_s
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        if registry is None and isinstance(addresses, str) and addresses.startswith("zk://"):
            registry = addresses
        self._pool = Pool(
            PoolOptions(
                addresses=() if registry is not None else parse_addresses(addresses),
                registry=registry,
                partition=partition,
                connections=pool,
                key=key_bytes(key) if isinstance(key, str) else key,
                patience_s=patience_s,
                response_timeout_s=response_timeout_s,
                connect_timeout_s=connect_timeout_s,
                silence_s_max=silence_s_max,
                in_flight_max=in_flight_max,
                waiting_bytes_max=waiting_bytes_max,
                answer_bytes_max=answer_bytes_max,
                backoff_first_s=backoff_first_s,
                backoff_cap_s=backoff_cap_s,
            ),
            random=self._random,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The server in use now."""
        return str(self._pool.servers.current)

    async def close(self) -> None:
        """Close every connection. Whatever is outstanding fails."""
        for subscription in list(self._subscriptions):
            subscription.close()
        await self._pool.close()

    # Messages.

    async def publish(self, topic: str, body: Body, *, headers: Headers | None = None, trace_id: str = "") -> int:
        """Publish one message; returns its event id (0 from a server that does not tell)."""
        return await self.publish_message(topic, Message.of(body, headers), trace_id=trace_id)

    async def publish_message(self, topic: str, *messages: Message, trace_id: str = "") -> int:
        """Publish messages that are ready, all or none; returns the first event id."""
        payload = self._payload(messages)
        request = wire.encode_pub(topic.encode(), payload, want_event_id=True, trace_id=trace_id.encode())
        return (await self._pool.ask(topic, request, f"publishing to {topic!r}")).value

    async def publish_many(
        self, topic: str, bodies: Iterable[Body], *, headers: Headers | None = None, trace_id: str = ""
    ) -> range:
        """Publish messages together, all or none; returns their event ids, which are consecutive."""
        messages = [Message.of(body, headers) for body in bodies]
        if not messages:
            return range(0)
        first = await self.publish_message(topic, *messages, trace_id=trace_id)
        return range(first, first + len(messages)) if first else range(0)

    async def delay(
        self, topic: str, body: Body, *, after: Duration, headers: Headers | None = None, trace_id: str = ""
    ) -> int:
        """Publish after a while, at least a second; returns the event id that ``cancel_delay`` takes."""
        payload = self._payload([Message.of(body, headers)])
        request = wire.encode_delay(
            topic.encode(),
            payload,
            delay_ms=_milliseconds(after),
            want_event_id=True,
            trace_id=trace_id.encode(),
        )
        return (await self._pool.ask(topic, request, f"delaying a message to {topic!r}")).value

    async def append(
        self,
        topic: str,
        body: Body,
        *,
        key: Body = b"",
        unless_after: int = 0,
        headers: Headers | None = None,
        trace_id: str = "",
    ) -> Appended:
        """Append a numbered message, unless its key came after event ``unless_after`` already.

        With a key it is safe to repeat, and is repeated by itself when a connection breaks. ``Conflict``
        means that the queue does not remember keys back to ``unless_after``: read more of the topic, and ask
        again.
        """
        key_bytes = key.encode() if isinstance(key, str) else key
        message = self._payload([Message.of(body, headers)])
        request = wire.encode_append(
            topic.encode(), message, key=key_bytes, unless_after=unless_after, trace_id=trace_id.encode()
        )
        about = f"appending to {topic!r}"
        response = await self._pool.ask(topic, request, about, kind=Kind.SIZED, is_safe=bool(key_bytes))
        answer = decode_append_answer(response.body)
        return Appended(answer.event_id, answer.message_id, answer.repeat)

    def change_key(self, key: str) -> None:
        """Show this key from now on, wherever a connection is made: the cluster's secret has changed."""
        self._pool.change_key(key_bytes(key) or None)

    def subscribe(
        self,
        topic: str,
        *,
        name: str | None = None,
        after: int = 0,
        from_now: bool = False,
        from_stored: bool = False,
        from_time: datetime | int | None = None,
        batch: int = 100,
        ack_timeout: Duration = 30_000,
        take_over: bool = False,
        remember: bool = False,
        reconnect: bool = True,
    ) -> Subscription:
        """Read a topic: ``async for delivery in client.subscribe("order", name="billing")``.

        It starts after the event id ``after`` (0: the oldest message), or from now, or from a time, or from
        the position stored for ``name`` (``after`` if none is). ``remember`` has the queue store the
        position with each ack. A name has one live connection; ``take_over`` waits for it instead of
        failing. Without a name it gets one of its own. A batch must be handled within ``ack_timeout``.
        """
        if name is None and (from_stored or remember or take_over):
            raise LocalProtocolError("from_stored, remember and take_over need a subscriber's name")
        start, value = _start(after, from_now, from_stored, from_time)
        if not 1 <= batch <= 255:
            raise LocalProtocolError(f"a batch has 1 to 255 messages, not {batch}")
        options = SubscriptionOptions(
            topic=topic,
            name=f"client-{self._random.getrandbits(64):016x}" if name is None else name,
            start=start,
            value=value,
            batch=batch,
            ack_timeout_ms=_milliseconds(ack_timeout),
            take_over=take_over,
            remember=remember,
            reconnect=reconnect,
            patience_s=self._patience_s,
        )
        subscription = Subscription(
            options,
            connect=self._pool.connect_stream,
            move_on=self._pool.servers.move_on,
            set_position=self.set_position,
            backoff=self._pool.new_backoff(),
            clock_ms=_clock_ms,
        )
        self._subscriptions.add(subscription)
        return subscription

    # Topics.

    async def create_topic(
        self,
        topic: str,
        *,
        lifetime: Duration | None = None,
        expires_at: datetime | int | None = None,
        trace_id: str = "",
    ) -> int:
        """Create a topic, for ever unless it has a lifetime or an end; returns the event id."""
        if lifetime is not None and expires_at is not None:
            raise LocalProtocolError("give a topic a lifetime or expires_at, not both")
        expires_at_ms = 0 if expires_at is None else _unix_ms(expires_at)
        if lifetime is not None:
            expires_at_ms = _clock_ms() + _milliseconds(lifetime)
        request = wire.encode_create_topic(
            topic.encode(), expires_at_ms=expires_at_ms, want_event_id=True, trace_id=trace_id.encode()
        )
        return (await self._pool.ask(topic, request, f"creating topic {topic!r}")).value

    async def delete_topic(self, topic: str, *, trace_id: str = "") -> int:
        """Delete a topic; all its subscribers are told. Returns the event id."""
        request = wire.encode_delete_topic(topic.encode(), want_event_id=True, trace_id=trace_id.encode())
        return (await self._pool.ask(topic, request, f"deleting topic {topic!r}")).value

    async def topic_info(self, topic: str) -> Topic:
        """One topic."""
        about = f"looking for topic {topic!r}"
        return Topic.of(decode_object(await self._pool.read(wire.encode_topic_info(topic.encode()), about)))

    async def topics(self, *, only_valid: bool = False) -> list[Topic]:
        """All topics by name; ``only_valid`` leaves out those that expired but are not collected yet."""
        request = wire.encode_valid_list() if only_valid else wire.encode_list()
        return [Topic.of(value) for value in decode_list(await self._pool.read(request, "listing topics"))]

    # Delayed messages and positions.

    async def delays(self, *, after: int = 0, limit: int = 1000) -> list[DelayedMessage]:
        """A page of the delayed messages after event id ``after``, by event id. Only an empty page is the end."""
        body = await self._pool.read(wire.encode_delays(after=after, limit=limit), "listing delayed messages")
        return [DelayedMessage.of(value) for value in decode_list(body)]

    async def cancel_delay(self, event_id: int) -> None:
        """Cancel a delayed message, by what ``delay`` returned. ``NotFound`` if it fired already."""
        await self._pool.ask("", wire.encode_cancel_delay(event_id), f"cancelling delayed message {event_id}")

    async def positions(self, topic: str) -> list[Position]:
        """The named subscribers of a topic and where they are."""
        body = await self._pool.read(wire.encode_positions(topic.encode()), f"reading positions of {topic!r}")
        return [Position.of(value) for value in decode_list(body)]

    async def set_position(self, topic: str, name: str, event_id: int) -> None:
        """Store where a subscriber is; -1 forgets it."""
        request = wire.encode_set_position(topic.encode(), name.encode(), event_id=event_id)
        await self._pool.ask(topic, request, f"storing the position of {name!r} in {topic!r}", is_safe=True)

    # The server.

    async def alive(self) -> None:
        """Returns if the queue answers."""
        await self._pool.ask("", wire.encode_alive(), "asking for life", is_safe=True)

    async def hello(self) -> Hello:
        """Version, role and how far the log goes."""
        return Hello.of(decode_object(await self._pool.read(wire.encode_hello(), "saying hello")))

    async def status(self) -> dict[str, Any]:
        """Role, epoch, followers and their lag, flush level, topics, bytes."""
        return decode_object(await self._pool.read(wire.encode_status(), "asking for the status"))

    async def topic_size(self, topic: str) -> dict[str, Any]:
        """``messages`` (None where they are too many to be counted), ``bytes``, ``last_event_id``."""
        request = wire.encode_status(topic=topic.encode())
        return decode_object(await self._pool.read(request, f"asking for the size of topic {topic!r}"))

    async def promote(self, *, force: bool = False) -> int:
        """Make the connected server the leader; returns the new epoch."""
        return (await self._pool.ask("", wire.encode_promote(force=force), "promoting", moves_on=False)).value

    async def join(self, registry: str, *, secret_file: str = "") -> int:
        """Let the connected server bring the log that it leads to a registry; returns its epoch."""
        request = wire.encode_join(registry.encode(), secret_file.encode())
        return (await self._pool.ask("", request, "joining", moves_on=False)).value

    async def flush(self) -> None:
        """Returns when everything accepted so far is on disk."""
        await self._pool.ask("", wire.encode_flush(), "flushing", is_safe=True)

    def _payload(self, messages: Iterable[Message]) -> bytes:
        payload = pack(messages)
        if len(payload) > self._payload_bytes_max:
            raise TooLarge(f"a payload has at most {self._payload_bytes_max} bytes, not {len(payload)}")
        return payload


def _start(after: int, from_now: bool, from_stored: bool, from_time: datetime | int | None) -> tuple[int, int]:
    if from_now + from_stored + (from_time is not None) > 1:
        raise LocalProtocolError("a subscription starts from now, from_stored or from_time: choose one")
    if from_now:
        return START_NOW, 0
    if from_stored:
        return START_STORED, after
    if from_time is not None:
        return START_TIME, _unix_ms(from_time)
    return START_AFTER, after


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _milliseconds(duration: Duration) -> int:
    return duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration


def _unix_ms(moment: datetime | int) -> int:
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
