"""The queue from your program: ``Client`` for asyncio, ``BlockingClient`` without, ``…_once`` for scripts."""

from pixiu.machines.queue_wire import Message
from pixiu.queue.client.answers import Appended, DelayedMessage, Hello, Position, Topic
from pixiu.queue.client.asynchronous import Client
from pixiu.queue.client.blocking import BlockingClient, BlockingSubscription
from pixiu.queue.client.delivery import Delivery
from pixiu.queue.client.errors import FateUnknown
from pixiu.queue.client.locked import LockedSubscriber
from pixiu.queue.client.one_shot import (
    create_topic_once,
    delay_once,
    delete_topic_once,
    fetch_once,
    publish_many_once,
    publish_once,
    topics_once,
)
from pixiu.queue.client.subscription import Subscription

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
