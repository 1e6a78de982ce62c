"""The queue: a durable log with topics, spoken in the wire protocol of smss.

The names below are for programs that *use* a queue. They are loaded on first use, so that the server, which lives in
this package too, does not pay for them::

    from pixiu.queue import Client

    async with Client("127.0.0.1:12301") as queue:
        await queue.create_topic("order")
        event_id = await queue.publish("order", b"hello")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.queue.client import (
        Appended,
        BlockingClient,
        BlockingSubscription,
        Client,
        DelayedMessage,
        Delivery,
        FateUnknown,
        Hello,
        LockedSubscriber,
        Message,
        Position,
        Subscription,
        Topic,
        create_topic_once,
        delay_once,
        delete_topic_once,
        fetch_once,
        publish_many_once,
        publish_once,
        topics_once,
    )

__all__ = [
    "Appended",
    "BlockingClient",
    "BlockingSubscription",
    "Client",
    "DelayedMessage",
    "Delivery",
    "FateUnknown",
    "Hello",
    "LockedSubscriber",
    "Message",
    "Position",
    "Subscription",
    "Topic",
    "create_topic_once",
    "delay_once",
    "delete_topic_once",
    "fetch_once",
    "publish_many_once",
    "publish_once",
    "topics_once",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("pixiu.queue.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
