"""What waits for the writer: requests of connections, and changes of the queue's own."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from pixiu.ports.scheduler import raise_apart
from pixiu.queue.server.answers import OK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.queue.batch import Batch
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.topics import Topic

PlainPublish = tuple["Connection", bytes, "Topic", list[bytes]]
"""Several requests of one connection, one message each: who, the answers, which topic, the messages."""


class Plain:
    """Requests with one small message each, for one topic, one behind the other: who sent what.

    By far the most frequent case, so connections add to it themselves: two appends and a subtraction per message.
    """

    __slots__ = ("connections", "messages", "room", "room_at_first", "topic")

    def __init__(self, topic: Topic | None, room: int) -> None:
        self.topic = topic
        self.connections: list[Connection] = []
        self.messages: list[bytes] = []
        self.room = self.room_at_first = room
        """Bytes that may still come before those who send more have to wait."""


class Publish:
    """One request with several messages, large ones, or a wish to know its event id."""

    __slots__ = ("ask", "connection", "messages", "topic")

    def __init__(self, connection: Connection, topic: Topic, messages: list[bytes], *, ask: bool) -> None:
        self.connection = connection
        self.topic = topic
        self.messages = messages
        self.ask = ask


class Change:
    """Any other request: ``sequence`` numbers it within a batch and returns the answer."""

    __slots__ = ("connection", "failed", "sequence", "size")

    def __init__(
        self,
        connection: Connection | None,
        sequence: Callable[[Batch], bytes],
        *,
        size: int = 64,
        failed: Callable[[], object] | None = None,
    ) -> None:
        self.connection = connection
        self.sequence = sequence
        self.size = size
        self.failed = failed
        """Called when it was not, and will not be, written; for changes that nobody waits to be answered."""


class Answer:
    """An answer that must not overtake the ones that wait for the disk."""

    __slots__ = ("connection", "data")

    def __init__(self, connection: Connection, data: bytes) -> None:
        self.connection = connection
        self.data = data


Operation = Plain | PlainPublish | Publish | Change | Answer

NOBODYS = Plain(None, 0)
"""Open while no other is: it is no topic's, so nobody adds to it."""


def answer_each(replies: Iterable[tuple[Connection, bytes] | PlainPublish], soon: Callable[..., object]) -> None:
    """Tell everyone. One who fails at that fails alone: it is noted in a turn of its own."""
    for reply in replies:
        try:
            reply[0].answered(reply[1])
        except Exception as error:  # noqa: BLE001 - the others are told all the same
            raise_apart(soon, error)


def refusals_of(operations: Iterable[Operation], frame: bytes) -> list[tuple[Connection, bytes]]:
    """The same error for every operation, in the order of the requests; ready answers stay as they are."""
    replies: list[tuple[Connection, bytes]] = []
    for operation in operations:
        if type(operation) is Plain:
            replies.extend(zip(operation.connections, repeat(frame)))
        elif type(operation) is tuple:
            replies.append((operation[0], frame * (len(operation[1]) // len(OK))))
        elif type(operation) is Publish:
            replies.append((operation.connection, frame))
        elif type(operation) is Answer:
            replies.append((operation.connection, operation.data))
        elif isinstance(operation, Change):
            if operation.failed is not None:
                operation.failed()
            if operation.connection is not None:
                replies.append((operation.connection, frame))
    return replies
