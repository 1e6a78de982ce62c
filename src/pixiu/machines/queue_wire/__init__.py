"""The queue's protocol without the network: numbers, texts, messages, requests, answers and streams.

Everything here is bytes in, bytes or values out. docs/protocol-queue.md is the reference.

- ``commands``: command numbers, response codes, error texts, limits.
- ``messages``: ``Message``, ``pack``, ``unpack``, ``split_messages``.
- ``requests``: one ``encode_…`` per command.
- ``responses``: ``ResponseReader`` for answers in request order.
- ``streams``: what subscribers and smss replicas read; ``follow``: what followers read.
"""

from pixiu.machines.queue_wire.messages import Message, is_one_message, pack, split_messages, unpack
from pixiu.machines.queue_wire.responses import Kind, Response, ResponseReader
from pixiu.machines.queue_wire.streams import SubscribeReader

__all__ = [
    "Kind",
    "Message",
    "Response",
    "ResponseReader",
    "SubscribeReader",
    "is_one_message",
    "pack",
    "split_messages",
    "unpack",
]
