"""Commands for Pixiu's own roles in other processes: following the log, reading its topics, sending at a time.

They are the network's side of ``ports.log.Log``, and for connections that have shown the node's key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.log_answers import encode_scheduled, encode_topic_rows
from pixiu.machines.queue_wire.responses import encode_done, encode_sized
from pixiu.model.errors import NotAllowed, NotLeader
from pixiu.queue.delays import HEAD, Delayed
from pixiu.queue.log import topic_messages
from pixiu.queue.operations import Change
from pixiu.queue.replication.feed_stream import FeedStream, whole_records_before
from pixiu.queue.replication.replica_stream import JournalReader
from pixiu.queue.server.delay_pages import answer_page
from pixiu.queue.server.parts import feed_part, page_part, schedule_part
from pixiu.queue.storage.record import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection, Request

__all__ = ["LOG_HANDLERS"]


def feed(engine: Engine, connection: Connection, request: Request) -> None:
    """Feed: the committed journal, from behind an event."""
    _check(engine, connection)
    reader = JournalReader(engine, whole_records_before(engine, feed_part(request.part)))
    stream = FeedStream(engine, connection, reader)
    connection.begin_stream(stream)
    stream.start()


def read_topic(engine: Engine, connection: Connection, request: Request) -> None:
    """ReadTopic: a page of one topic's messages behind an event, which need not be one of them."""
    _check(engine, connection)
    after, limit = page_part(request.part)
    topic = engine.topic_to_read(request.name, connection.is_node)
    found = topic_messages(engine.topics.log_of(topic), after, limit)
    connection.answer(encode_sized(encode_topic_rows(engine.commit_event_id, found)))


def schedule(engine: Engine, connection: Connection, request: Request) -> None:
    """Schedule: publish one message at a time."""
    _check(engine, connection)
    due, message = schedule_part(request.part)
    name = request.name

    def sequence(batch: Batch) -> bytes:
        topic = engine.topics.live(name, batch.now_ms)
        batch.close_run()  # its messages take their event ids first
        head = HEAD.pack(due, batch.next_event_id)
        event_id = batch.change(Kind.DELAY, name, head + message, topic_id=topic.create_event_id)
        engine.state.delays.add(Delayed(due, event_id, name, message), batch.changes)
        batch.changes.on_commit(lambda: engine.background.delay_added(due))
        return encode_done(event_id)

    connection.submit(Change(connection, sequence, size=len(request.part)))


def scheduled(engine: Engine, connection: Connection, request: Request) -> None:
    """Scheduled: a page of what waits for a topic, by event id, with what it says."""
    _check(engine, connection)
    after, limit = page_part(request.part)

    def row(delayed: Delayed) -> tuple[int, int, bytes]:
        return delayed.event_id, delayed.due_ms, delayed.payload

    def encode(rows: list[tuple[int, int, bytes]]) -> bytes:
        return encode_sized(encode_scheduled(rows))

    answer_page(engine, connection, after, limit, lambda each: each.topic == request.name, row, encode)


def _check(engine: Engine, connection: Connection) -> None:
    if not connection.is_node:
        raise NotAllowed(wire.TOPIC_RESERVED)
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_DECIDES)


LOG_HANDLERS: dict[int, Callable[[Engine, Connection, Request], None]] = {
    wire.FEED: feed,
    wire.READ_TOPIC: read_topic,
    wire.SCHEDULE: schedule,
    wire.SCHEDULED: scheduled,
}
