"""What each command of the wire does where the log is in Kafka. Checks come in the queue's order, with its texts.

What only a journal can do (copies of it, topics and subscribers of others) is refused with what to do instead.
"""

from __future__ import annotations

import json
from heapq import merge
from typing import TYPE_CHECKING

from pixiu.backends.kafka.served.intake import refusal_of
from pixiu.backends.kafka.served.served import PlaceReader
from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.log_answers import encode_scheduled, encode_topic_rows
from pixiu.machines.queue_wire.responses import encode_refused, encode_sized
from pixiu.model.errors import Conflict, NotAllowed, PixiuError, RequestError
from pixiu.model.version import __version__
from pixiu.ports.log import MAIN
from pixiu.queue.replication.feed_stream import FeedStream
from pixiu.queue.server.answers import OK
from pixiu.queue.server.commands import alive
from pixiu.queue.server.node_commands import KEY_HANDLERS
from pixiu.queue.server.parts import (
    ROWS_MAX,
    append_part,
    delay_part,
    feed_part,
    page_part,
    position_part,
    schedule_part,
)
from pixiu.queue.storage.messages import numbered, plain
from pixiu.queue.storage.topics import topic_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.backends.kafka.served.served import ServedLog
    from pixiu.ports.log import LogRecord, Scheduled
    from pixiu.queue.server.connection import Connection, Request

__all__ = ["KAFKA_HANDLERS"]

_TOPICS_ARE_KAFKAS = "make topics of your own in Kafka, and use its clients"
_COPIES_ARE_KAFKAS = "its copies are Kafka's: set the replicas of its topics (docs/engines.md)"
_LEASE = "another process of this role takes over when the owner ends: stop that one"


def hello(served: ServedLog, connection: Connection, _request: Request) -> None:
    """Hello: who is this, and what does it speak?"""
    connection.answer(
        _json({
            "version": wire.EXTENSION_VERSION, "server": f"pixiu {__version__}",
            "role": "leader" if served.is_leader else "follower", "epoch": served.epoch, "log": "kafka",
            "last_event_id": served.commit_event_id, "commit_event_id": served.commit_event_id,
        })
    )  # fmt: skip


def status(served: ServedLog, connection: Connection, request: Request) -> None:
    """Status: what a person wants to know of this process."""
    if request.name:
        raise RequestError(f"{wire.IN_KAFKA}: ask it for the size of a topic")
    connection.answer(
        _json({
            "server": f"pixiu {__version__}", "role": "leader" if served.is_leader else "follower",
            "epoch": served.epoch, "commit_event_id": served.commit_event_id, "topics": len(served.topics),
            "log": "" if served.log is None else str(served.log.address),
            "followers": [{"event_id": feed.event_id} for feed in served.feeds],
        })
    )  # fmt: skip


def append(served: ServedLog, connection: Connection, request: Request) -> None:
    """Append: numbered, and only once per key."""
    served.owned()
    unless_after, key, message = append_part(request.part)
    topic = served.topic(request.name, connection.is_node)
    served.intake.append(connection, topic, message, key, unless_after)


def schedule(served: ServedLog, connection: Connection, request: Request) -> None:
    """Schedule: publish one message at a time."""
    _check(served, connection)
    due, message = schedule_part(request.part)
    served.intake.schedule(connection, served.topic(request.name, connection.is_node), message, due)


def scheduled(served: ServedLog, connection: Connection, request: Request) -> None:
    """Scheduled: a page of what waits for a topic, by event id, with what it says."""
    _check(served, connection)
    after, limit = page_part(request.part)
    found = _waiting(served, after, request.name)
    rows = [(each.schedule_id, each.due, plain(each.payload)) for each, _ in zip(found, range(limit), strict=False)]
    connection.answer(encode_sized(encode_scheduled(rows)))


def list_delays(served: ServedLog, connection: Connection, request: Request) -> None:
    """Delays that wait, by event id: all are Pixiu's own."""
    after, limit = page_part(request.part)
    found = _waiting(served, after, request.name) if connection.is_node else iter(())
    rows = [
        {"event_id": each.schedule_id, "topic": each.topic, "due": each.due, "count": 1, "bytes": len(each.payload)}
        for each, _ in zip(found, range(limit or ROWS_MAX), strict=False)
    ]
    connection.answer(_json(rows))


def _waiting(served: ServedLog, after: int, name: bytes) -> Iterator[Scheduled]:
    """By id, as far as they are taken."""
    owned = served.owned()
    names = [name.decode(errors="replace")] if name else [topic.name.decode() for topic in served.topics]
    found = [owned.scheduled_after(after, topic) for topic in names]
    return merge(*found, key=lambda each: each.schedule_id)


def cancel_delay(served: ServedLog, connection: Connection, request: Request) -> None:
    """CancelDelay: it will not come."""
    owned = served.owned()
    event_id = delay_part(request.part)
    if not connection.is_node:
        connection.answer(encode_refused(wire.DELAYED_NOT_EXIST))
        return
    answer = served.intake.expect(connection, block=True)

    def done(result: bool | PixiuError) -> None:
        if isinstance(result, PixiuError):
            answer(refusal_of(result, is_taken=True))
        else:
            answer(OK if result else encode_refused(wire.DELAYED_NOT_EXIST))

    owned.unschedule(event_id, done)


def positions(served: ServedLog, connection: Connection, request: Request) -> None:
    """Positions of a topic's names."""
    name = served.topic(request.name, connection.is_node).name.decode()
    rows = [
        {"subscriber": who.decode(errors="replace"), "event_id": event_id, "live": False}
        for (topic, who), event_id in sorted(served.owned().positions.items())
        if topic == name
    ]
    connection.answer(_json(rows))


def set_position(served: ServedLog, connection: Connection, request: Request) -> None:
    """SetPosition: put a name somewhere, or forget it."""
    owned = served.owned()
    name, event_id = position_part(request.part, served.settings.subscriber_name_bytes_max)
    topic = served.topic(request.name, connection.is_node)
    answer = served.intake.expect(connection, block=True)

    def done(result: bool | PixiuError) -> None:
        answer(refusal_of(result, is_taken=True) if isinstance(result, PixiuError) else OK)

    owned.set_position(topic.name.decode(), name, event_id, done)


def read_topic(served: ServedLog, connection: Connection, request: Request) -> None:
    """ReadTopic: a page of one topic's messages behind an event."""
    _check(served, connection)
    after, limit = page_part(request.part)
    name = served.topic(request.name, connection.is_node).name.decode()
    if name == MAIN:
        raise RequestError(f"{wire.IN_KAFKA}: {MAIN} is the log itself, read it with Feed")
    answer = served.intake.expect(connection, block=True)

    def done(through: int, rows: list[LogRecord] | PixiuError) -> None:
        if isinstance(rows, PixiuError):
            answer(refusal_of(rows, is_taken=False))
        else:
            answer(encode_sized(encode_topic_rows(through, [(row.event_id, row.at, _message(row)) for row in rows])))

    served.rows(name, after, limit, done)


def _message(record: LogRecord) -> bytes:
    if record.message_id:
        return numbered(0, record.payload, record.message_id, record.key)
    return plain(record.payload)


def topic_info(served: ServedLog, connection: Connection, request: Request) -> None:
    """TopicInfo."""
    if not request.name:
        raise RequestError(wire.TOPIC_NAME_REQUIRED)
    served.owned()
    connection.answer(encode_sized(topic_json(served.topic(request.name, connection.is_node)).encode()))


def list_topics(_served: ServedLog, connection: Connection, _request: Request) -> None:
    """List and ValidList: topics of others, of which there are none."""
    connection.answer(encode_sized(b""))


def create_topic(served: ServedLog, connection: Connection, request: Request) -> None:
    """CreateTopic: Pixiu's own are there; others are not made here."""
    served.owned()
    if request.name.startswith(wire.RESERVED_PREFIX):
        served.topic(request.name, connection.is_node)
        raise Conflict(wire.TOPIC_EXIST)
    raise NotAllowed(f"{wire.IN_KAFKA}: {_TOPICS_ARE_KAFKAS}")


def feed(served: ServedLog, connection: Connection, request: Request) -> None:
    """Feed: the committed log, from behind an event."""
    _check(served, connection)
    reader = PlaceReader(served, feed_part(request.part))
    stream = _Feed(served, connection, reader)
    reader.wake = stream.send
    connection.begin_stream(stream)
    stream.start()


class _Feed(FeedStream):
    """A feed that the log knows of: how far the slowest one is, is worth knowing."""

    def __init__(self, served: ServedLog, connection: Connection, reader: PlaceReader) -> None:
        super().__init__(served, connection, reader)
        self._feeds, self._place = served.feeds, reader
        served.feeds.add(reader)

    def close(self) -> None:
        """The applier is gone."""
        super().close()
        self._feeds.discard(self._place)


def flush(served: ServedLog, connection: Connection, _request: Request) -> None:
    """Flush: answered when everything accepted so far is in Kafka."""
    owned = served.owned()
    answer = served.intake.expect(connection, block=True)
    owned.when_flushed(lambda: answer(OK))


def _check(served: ServedLog, connection: Connection) -> None:
    if not connection.is_node:
        raise NotAllowed(wire.TOPIC_RESERVED)
    served.owned()


def _refuse(advice: str) -> Callable[[ServedLog, Connection, Request], None]:
    def refuse(_served: ServedLog, _connection: Connection, _request: Request) -> None:
        raise NotAllowed(f"{wire.IN_KAFKA}: {advice}")

    return refuse


def _json(value: object) -> bytes:
    return encode_sized(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


KAFKA_HANDLERS: dict[int, Callable[[ServedLog, Connection, Request], None]] = {
    wire.ALIVE: alive,
    wire.HELLO: hello,
    wire.STATUS: status,
    wire.APPEND: append,
    wire.SCHEDULE: schedule,
    wire.SCHEDULED: scheduled,
    wire.DELAYS: list_delays,
    wire.CANCEL_DELAY: cancel_delay,
    wire.POSITIONS: positions,
    wire.SET_POSITION: set_position,
    wire.READ_TOPIC: read_topic,
    wire.TOPIC_INFO: topic_info,
    wire.LIST: list_topics,
    wire.VALID_LIST: list_topics,
    wire.CREATE_TOPIC: create_topic,
    wire.FEED: feed,
    wire.FLUSH: flush,
    **KEY_HANDLERS,
    **dict.fromkeys((wire.DELETE_TOPIC, wire.DELAY, wire.SUB, wire.SUBSCRIBE), _refuse(_TOPICS_ARE_KAFKAS)),
    **dict.fromkeys((wire.FOLLOW, wire.SNAPSHOT, wire.REPLICA), _refuse(_COPIES_ARE_KAFKAS)),
    **dict.fromkeys((wire.PROMOTE, wire.JOIN), _refuse(_LEASE)),
}
