"""For scripts: connect, do one thing, close.

::

    event_id = publish_once("127.0.0.1:12301", "order", b"hello")

Each address is tried once, so a queue that is not there fails at once with ``Unavailable``. Who does more
than one thing is better served by ``BlockingClient``.
"""

from collections.abc import Iterable

from pixiu.queue.client.answers import Topic
from pixiu.queue.client.asynchronous import Body, Duration, Headers
from pixiu.queue.client.blocking import BlockingClient
from pixiu.queue.client.delivery import Delivery

__all__ = [
    "create_topic_once",
    "delay_once",
    "delete_topic_once",
    "fetch_once",
    "publish_many_once",
    "publish_once",
    "topics_once",
]


def _client(addresses: str) -> BlockingClient:
    return BlockingClient(addresses, pool=1, patience_s=0.0)


def publish_once(addresses: str, topic: str, body: Body, *, headers: Headers | None = None) -> int:
    """Publish one message; returns its event id."""
    with _client(addresses) as client:
        return client.publish(topic, body, headers=headers)


def publish_many_once(addresses: str, topic: str, bodies: Iterable[Body]) -> range:
    """Publish messages together, all or none; returns their event ids."""
    with _client(addresses) as client:
        return client.publish_many(topic, bodies)


def delay_once(addresses: str, topic: str, body: Body, *, after: Duration) -> int:
    """Publish after a while; returns the event id of the delay."""
    with _client(addresses) as client:
        return client.delay(topic, body, after=after)


def create_topic_once(addresses: str, topic: str, *, lifetime: Duration | None = None) -> int:
    """Create a topic; returns the event id."""
    with _client(addresses) as client:
        return client.create_topic(topic, lifetime=lifetime)


def delete_topic_once(addresses: str, topic: str) -> int:
    """Delete a topic; returns the event id."""
    with _client(addresses) as client:
        return client.delete_topic(topic)


def topics_once(addresses: str) -> list[Topic]:
    """All topics by name."""
    with _client(addresses) as client:
        return client.topics()


def fetch_once(addresses: str, topic: str, *, after: int = 0, count: int = 1) -> list[Delivery]:
    """Wait for ``count`` messages after an event id and return them (fewer if the topic ends)."""
    with _client(addresses) as client:
        deliveries: list[Delivery] = []
        with client.subscribe(topic, after=after, batch=min(count, 255)) as subscription:
            for delivery in subscription:
                deliveries.append(delivery)
                if len(deliveries) == count:
                    break
        return deliveries
