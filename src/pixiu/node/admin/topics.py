"""The queue's topics as an admin sees them: how large, who is how far behind, and what came last."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.messages import Message
from pixiu.model.errors import NotFound
from pixiu.node.admin.letters import record_view
from pixiu.ports.log import MAIN, NOTIFY, SCHEDULE, TASKS, LogRecord
from pixiu.ports.stores import Lane
from pixiu.queue.log import topic_messages, topic_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Answer
    from pixiu.model.message import PublicNames
    from pixiu.queue.engine import Engine
    from pixiu.queue.log import TopicMessage
    from pixiu.queue.storage.topics import Topic

__all__ = ["TopicViews"]

BODY_BYTES_MAX = 4096
"""A longer message is shown in part."""
HEADERS_MAX = 16
HEADER_BYTES_MAX = 256
SUBSCRIBERS_MAX = 100

_CARRIED = {MAIN.encode(): (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)} | dict.fromkeys(
    (each.encode() for each in (NOTIFY, TASKS, SCHEDULE)), (Lane.TASKS,)
)
"""Who reads Pixiu's own topics, in this process."""


class TopicViews:
    """Looks at topics. ``applied`` says how far a lane of the carrier is."""

    def __init__(self, engine: Engine, names: PublicNames, applied: Callable[[Lane], int]) -> None:
        self._engine = engine
        self._names = names
        self._applied = applied

    def page(self, after: str, limit: int) -> list[Answer]:
        """Topics behind a name, in the order of names, each with its subscribers."""
        topics = self._engine.topics
        return [self._view(topic) for topic in topics.stored_after(after.encode(), limit)]

    def busiest(self, limit: int) -> list[Answer]:
        """Those that were used last, without opening any that is closed."""
        return [self._view(topic) for topic in self._engine.topics.busiest(limit)]

    def tail(self, name: str, after: int | None, limit: int) -> Answer:
        """The newest messages of a topic, or those behind an event id, oldest first."""
        topic = self._engine.topics.get(name.encode())
        if topic is None or topic.is_gone(self._engine.now_ms()):
            raise NotFound(f"there is no topic {name!r}")
        log = self._engine.topics.log_of(topic)
        start = log.before_last(limit) if after is None else after
        if topic.is_reserved:
            rows = [self._record_row(record) for record in topic_records(log, name, start, limit)]
        else:
            rows = [_message_row(message) for message in topic_messages(log, start, limit)]
        return {"topic": self._view(topic), "messages": rows}

    def _view(self, topic: Topic) -> Answer:
        log = self._engine.topics.log_of(topic)
        last = log.last_event_id
        return {
            "name": topic.name.decode(errors="replace"),
            "at": topic.create_ms,
            "expires_at": topic.expires_at,
            "is_reserved": topic.is_reserved,
            "bytes": log.total_size,
            "last_event_id": str(last),
            "subscribers": self._subscribers(topic, last),
        }

    def _subscribers(self, topic: Topic, last: int) -> list[Answer]:
        lanes = _CARRIED.get(topic.name, ())
        # A lane that has passed the topic's last message has it all, whatever the log holds beyond.
        found = [_place(f"carrier: {lane.value}", self._applied(lane), last, is_live=True) for lane in lanes]
        positions = self._engine.subscriptions.positions
        stored = positions.page(topic, b"", SUBSCRIBERS_MAX)
        names = {name: None for name, _ in stored} | dict.fromkeys(topic.subscriptions)
        for name in list(names)[: SUBSCRIBERS_MAX - len(found)]:
            place = positions.get(topic, name)
            text = name.decode(errors="replace")
            found.append(_place(text, 0 if place is None else place, last, is_live=name in topic.subscriptions))
        return found

    def _record_row(self, record: LogRecord) -> Answer:
        row: Answer = {"event_id": str(record.event_id), "at": record.at, "bytes": len(record.payload)}
        if record.message_id:
            row["message_id"] = str(record.message_id)
        return {**row, **record_view(record, self._names)}


def _place(name: str, place: int, last: int, *, is_live: bool) -> Answer:
    return {"name": name, "event_id": str(place), "lag": max(last - place, 0), "is_live": is_live}


def _message_row(found: TopicMessage) -> Answer:
    message = Message.decode(found.message)
    row: Answer = {
        "event_id": str(found.event_id),
        "at": found.at,
        "bytes": len(message.body),
        "body": b64encode(message.body[:BODY_BYTES_MAX]).decode(),
    }
    if len(message.body) > BODY_BYTES_MAX:
        row["is_cut"] = True
    if message.headers:
        row["headers"] = {
            name[:HEADER_BYTES_MAX].decode(errors="replace"): value[:HEADER_BYTES_MAX].decode(errors="replace")
            for name, value in message.headers[:HEADERS_MAX]
        }
    return row
