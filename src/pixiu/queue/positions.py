"""Where named subscribers are, when they asked the server to remember.

Each ack moves a position in memory; what moved is logged at most once a second and when the subscriber leaves. So a
position may be a second old after a crash: some messages come twice, none is skipped.
"""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.ports.keyvalue import KeyValue
    from pixiu.queue.storage.changes import Changes
    from pixiu.queue.storage.topics import Topic

FORGET = -1

_PREFIX = b"p"
_TOPIC = Struct(">q")
_EVENT_ID = Struct("<q")
_ROW = Struct("<qH")


class Positions:
    """Stored positions, and the ones that moved since."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store
        self.moved: dict[tuple[Topic, bytes], int] = {}

    def get(self, topic: Topic, subscriber: bytes) -> int | None:
        """The last event id that this subscriber acked."""
        moved = self.moved.get((topic, subscriber))
        if moved is not None:
            return None if moved == FORGET else moved
        value = self._store.get(_key(topic, subscriber))
        return None if value is None else int(_EVENT_ID.unpack(value)[0])

    def of_topic(self, topic: Topic) -> Iterator[tuple[bytes, int]]:
        """Every stored position of a topic."""
        start = _PREFIX + _TOPIC.pack(topic.create_event_id)
        for key, value in self._store.scan(start, _PREFIX + _TOPIC.pack(topic.create_event_id + 1)):
            yield key[9:], int(_EVENT_ID.unpack(value)[0])

    def page(self, topic: Topic, after: bytes, limit: int) -> list[tuple[bytes, int]]:
        """Stored positions of a topic, those of the first ``limit`` subscribers behind ``after`` by name."""
        start = _key(topic, after) + b"\0" if after else _key(topic, b"")
        found = self._store.scan(start, _PREFIX + _TOPIC.pack(topic.create_event_id + 1))
        return [(key[9:], int(_EVENT_ID.unpack(value)[0])) for key, value in islice(found, limit)]

    def apply(self, topic: Topic, payload: bytes, changes: Changes) -> None:
        """Take over the rows of a POSITION record."""
        for subscriber, event_id in unpack_rows(payload):
            if event_id == FORGET:
                changes.delete(_key(topic, subscriber))
            else:
                changes.put(_key(topic, subscriber), _EVENT_ID.pack(event_id))

    def forget_moved(self, topic: Topic, payload: bytes) -> None:
        """The log knows better than this node's own subscribers where these are."""
        for subscriber, _ in unpack_rows(payload):
            self.moved.pop((topic, subscriber), None)

    def drop_topic(self, topic: Topic, changes: Changes) -> None:
        """The topic is gone, and its positions with it."""
        for subscriber, _ in self.of_topic(topic):
            changes.delete(_key(topic, subscriber))
        for key in [key for key in self.moved if key[0] is topic]:
            del self.moved[key]


def pack_rows(rows: list[tuple[bytes, int]]) -> bytes:
    """The payload of a POSITION record."""
    return b"".join(_ROW.pack(event_id, len(name)) + name for name, event_id in rows)


def unpack_rows(payload: bytes) -> Iterator[tuple[bytes, int]]:
    """Read ``pack_rows`` back."""
    at = 0
    while at < len(payload):
        event_id, size = _ROW.unpack_from(payload, at)
        at += _ROW.size
        yield payload[at : at + size], event_id
        at += size


def _key(topic: Topic, subscriber: bytes) -> bytes:
    return _PREFIX + _TOPIC.pack(topic.create_event_id) + subscriber
