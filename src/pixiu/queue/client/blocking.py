"""The queue without asyncio: the same verbs, each of which returns when it is done.

::

    with BlockingClient("127.0.0.1:12301") as queue:
        queue.publish("order", b"hello")
        for delivery in queue.subscribe("order", name="billing"):
            print(delivery.body)

It runs the asynchronous client on a loop in a thread of its own, so both behave alike: one pool, one set of
rules for retries, one reconnect. It may be shared by threads; their requests are pipelined.
"""

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pixiu.blocking import LoopThread
from pixiu.model.errors import Unavailable
from pixiu.queue.client.answers import Appended, DelayedMessage, Hello, Position, Topic
from pixiu.queue.client.asynchronous import Body, Client, ClientOptions, Duration, Headers, SubscribeOptions
from pixiu.queue.client.delivery import Delivery
from pixiu.queue.client.subscription import Subscription

__all__ = ["BlockingClient", "BlockingSubscription"]

Answer = TypeVar("Answer")


class BlockingClient:
    """Publishes, subscribes and manages topics. Takes the same arguments as ``Client``."""

    def __init__(self, addresses: str | Sequence[str] = "127.0.0.1:12301", **options: Unpack[ClientOptions]) -> None:
        self._client = Client(addresses, **options)
        self._thread = LoopThread("pixiu-queue-client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on this client's loop and wait for it."""
        return self._thread.run(work)

    @property
    def address(self) -> str:
        """The server in use now."""
        return self._client.address

    def close(self) -> None:
        """Close every connection and end the thread. Whatever is outstanding fails."""
        with suppress(Unavailable):  # it is closed already
            self.run(self._client.close())
        self._thread.stop()

    # Messages.

    def publish(self, topic: str, body: Body, *, headers: Headers | None = None, trace_id: str = "") -> int:
        """Publish one message; returns its event id."""
        return self.run(self._client.publish(topic, body, headers=headers, trace_id=trace_id))

    def publish_many(
        self, topic: str, bodies: Iterable[Body], *, headers: Headers | None = None, trace_id: str = ""
    ) -> range:
        """Publish messages together, all or none; returns their event ids."""
        return self.run(self._client.publish_many(topic, bodies, headers=headers, trace_id=trace_id))

    def delay(
        self, topic: str, body: Body, *, after: Duration, headers: Headers | None = None, trace_id: str = ""
    ) -> int:
        """Publish after a while, at least a second; returns the event id that ``cancel_delay`` takes."""
        return self.run(self._client.delay(topic, body, after=after, headers=headers, trace_id=trace_id))

    def append(
        self,
        topic: str,
        body: Body,
        *,
        key: Body = b"",
        unless_after: int = 0,
        headers: Headers | None = None,
        trace_id: str = "",
    ) -> Appended:
        """Append a numbered message, unless its key came after event ``unless_after`` already."""
        return self.run(
            self._client.append(topic, body, key=key, unless_after=unless_after, headers=headers, trace_id=trace_id)
        )

    def subscribe(self, topic: str, **options: Unpack[SubscribeOptions]) -> "BlockingSubscription":
        """Read a topic: ``for delivery in client.subscribe("order", name="billing")``."""
        return BlockingSubscription(self, self._client.subscribe(topic, **options))

    # Topics.

    def create_topic(
        self,
        topic: str,
        *,
        lifetime: Duration | None = None,
        expires_at: datetime | int | None = None,
        trace_id: str = "",
    ) -> int:
        """Create a topic, for ever unless it has a lifetime or an end; returns the event id."""
        work = self._client.create_topic(topic, lifetime=lifetime, expires_at=expires_at, trace_id=trace_id)
        return self.run(work)

    def delete_topic(self, topic: str, *, trace_id: str = "") -> int:
        """Delete a topic; all its subscribers are told. Returns the event id."""
        return self.run(self._client.delete_topic(topic, trace_id=trace_id))

    def topic_info(self, topic: str) -> Topic:
        """One topic."""
        return self.run(self._client.topic_info(topic))

    def topics(self, *, only_valid: bool = False) -> list[Topic]:
        """All topics by name."""
        return self.run(self._client.topics(only_valid=only_valid))

    # Delayed messages and positions.

    def delays(self, *, after: int = 0, limit: int = 1000) -> list[DelayedMessage]:
        """A page of the delayed messages after event id ``after``, by event id. Only an empty page is the end."""
        return self.run(self._client.delays(after=after, limit=limit))

    def cancel_delay(self, event_id: int) -> None:
        """Cancel a delayed message, by what ``delay`` returned."""
        self.run(self._client.cancel_delay(event_id))

    def positions(self, topic: str) -> list[Position]:
        """The named subscribers of a topic and where they are."""
        return self.run(self._client.positions(topic))

    def set_position(self, topic: str, name: str, event_id: int) -> None:
        """Store where a subscriber is; -1 forgets it."""
        self.run(self._client.set_position(topic, name, event_id))

    # The server.

    def alive(self) -> None:
        """Returns if the queue answers."""
        self.run(self._client.alive())

    def hello(self) -> Hello:
        """Version, role and how far the log goes."""
        return self.run(self._client.hello())

    def status(self) -> dict[str, Any]:
        """Role, epoch, followers and their lag, flush level, topics, bytes."""
        return self.run(self._client.status())

    def topic_size(self, topic: str) -> dict[str, Any]:
        """``messages`` (None where they are too many to be counted), ``bytes``, ``last_event_id``."""
        return self.run(self._client.topic_size(topic))

    def promote(self, *, force: bool = False) -> int:
        """Make the connected server the leader; returns the new epoch."""
        return self.run(self._client.promote(force=force))

    def flush(self) -> None:
        """Returns when everything accepted so far is on disk."""
        self.run(self._client.flush())


class BlockingSubscription:
    """Iterate over it, once. As in ``Subscription``, asking for the next message handles the last."""

    def __init__(self, client: BlockingClient, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> int | None:
        """The event id of the last message handled."""
        return self._subscription.position

    @property
    def has_ended(self) -> bool:
        """True when the topic has ended or ``finish`` was called."""
        return self._subscription.has_ended

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            delivery = self._subscription.take()
            if delivery is not None:
                yield delivery
            elif self._client.run(self._subscription.next_batch()) is None:
                return

    def batches(self) -> Iterator[list[Delivery]]:
        """Whole batches instead of single messages; each is acked when the next is asked for."""
        while (batch := self._client.run(self._subscription.next_batch())) is not None:
            self._subscription.take_all()
            yield batch

    def finish(self) -> None:
        """Count everything given out so far as handled, and end."""
        self._client.run(self._subscription.finish())

    def close(self) -> None:
        """End without acking."""
        self._client.run(self._close())

    async def _close(self) -> None:
        self._subscription.close()
