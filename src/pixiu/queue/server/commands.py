"""What each command of the wire does. Checks come in smss's order, with smss's texts."""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.messages import count_messages, split_messages
from pixiu.machines.queue_wire.responses import encode_append_answer, encode_done, encode_refused, encode_sized
from pixiu.model.errors import Gone, NotAllowed, NotFound, NotLeader, PixiuError, RequestError
from pixiu.model.version import __version__
from pixiu.queue.appends import number
from pixiu.queue.background import end_topic
from pixiu.queue.delays import HEAD, Delayed
from pixiu.queue.operations import Change
from pixiu.queue.positions import pack_rows
from pixiu.queue.server.answers import ALIVE, OK
from pixiu.queue.server.connection import MESSAGES_MAX, MESSAGES_PER_COST
from pixiu.queue.server.delay_pages import PAGE_BYTES_MAX, answer_page
from pixiu.queue.server.node_commands import NODE_HANDLERS
from pixiu.queue.server.parts import ROWS_MAX, append_part, delay_part, page_part, position_part
from pixiu.queue.server.subscriptions import Subscription
from pixiu.queue.storage.messages import split_head
from pixiu.queue.storage.record import Kind
from pixiu.queue.storage.retention import is_outdated
from pixiu.queue.storage.topics import LISTED_AT_ONCE, check_name, topic_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection, Request
    from pixiu.queue.storage.topics import Topic

POSITIONS_AT_ONCE = 500
"""Rows of Positions that are made in one turn: a few milliseconds."""

ACK_TIMEOUT_MS_MAX = 7 * 86_400_000

_I64 = Struct("<q")
_SUBSCRIBE = Struct("<BqBqH")


def create_topic(engine: Engine, connection: Connection, request: Request) -> None:
    """CreateTopic: name, leader, expiry, existence."""
    check_name(request.name)
    engine.check_reserved(request.name, connection.is_node)
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_MANAGES_TOPICS)
    (expires_at,) = _I64.unpack(request.part)
    name, ask = request.name, request.flags == wire.FLAG_WANT_EVENT_ID

    def sequence(batch: Batch) -> bytes:
        engine.topics.check_new(name, expires_at, batch.now_ms)
        event_id = batch.change(Kind.CREATE, name, request.part)
        engine.topics.create(name, event_id, batch.now_ms, expires_at, batch.changes)
        batch.changes.on_commit(lambda: engine.background.topic_created(expires_at))
        return encode_done(event_id) if ask else OK

    connection.submit(Change(connection, sequence), block=True)


def delete_topic(engine: Engine, connection: Connection, request: Request) -> None:
    """DeleteTopic: leader, existence. An expired topic that is not collected yet can be deleted.

    Pixiu's own stay, whoever asks: everything that was sent is in them.
    """
    engine.check_reserved(request.name, connection.is_node)
    if request.name.startswith(wire.RESERVED_PREFIX):
        raise NotAllowed(wire.TOPIC_STAYS)
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_MANAGES_TOPICS)
    name, ask = request.name, request.flags == wire.FLAG_WANT_EVENT_ID

    def sequence(batch: Batch) -> bytes:
        topic = engine.topics.get(name)
        if topic is None:
            raise NotFound(wire.TOPIC_NOT_EXIST)
        event_id = end_topic(engine, topic, batch)
        return encode_done(event_id) if ask else OK

    connection.submit(Change(connection, sequence), block=True)


def delay(engine: Engine, connection: Connection, request: Request) -> None:
    """Delay: leader, size, time, format, topic."""
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_PUBLISHES)
    if len(request.part) <= 16:
        raise RequestError(wire.BAD_DELAY)
    (delay_ms,) = _I64.unpack_from(request.part)
    if delay_ms < wire.DELAY_MS_MIN:
        raise RequestError(wire.DELAY_TOO_SHORT)
    payload = request.part[8:]
    messages = split_messages(payload, count_max=MESSAGES_MAX)
    if messages is None or len(messages) > MESSAGES_MAX:
        raise RequestError(wire.BAD_DELAY if messages is None else wire.TOO_MANY_MESSAGES)
    connection.charge(len(messages) // MESSAGES_PER_COST)
    engine.check_reserved(request.name, connection.is_node)
    # The clock shows the last whole millisecond: one more, or it fires early after a restart.
    due_ms = engine.background.steady.now_ms() + 1 + delay_ms
    name, ask = request.name, request.flags == wire.FLAG_WANT_EVENT_ID
    if due_ms >= 2**62:
        raise RequestError(wire.BAD_DELAY)

    def sequence(batch: Batch) -> bytes:
        topic = engine.topics.live(name, batch.now_ms)
        batch.close_run()  # its messages take their event ids first
        head = HEAD.pack(due_ms, batch.next_event_id)
        event_id = batch.change(Kind.DELAY, name, head + payload, topic_id=topic.create_event_id)
        engine.state.delays.add(Delayed(due_ms, event_id, name, payload), batch.changes)
        batch.changes.on_commit(lambda: engine.background.delay_added(due_ms))
        return encode_done(event_id) if ask else OK

    connection.submit(Change(connection, sequence, size=len(request.part)))


def alive(_engine: Engine, connection: Connection, _request: Request) -> None:
    """Alive."""
    connection.answer(ALIVE)


def topic_info(engine: Engine, connection: Connection, request: Request) -> None:
    """TopicInfo."""
    if not request.name:
        raise RequestError(wire.TOPIC_NAME_REQUIRED)
    engine.check_reserved(request.name, connection.is_node)
    topic = engine.topics.stored(request.name)
    if topic is None:
        raise NotFound(wire.TOPIC_NOT_EXIST)
    connection.answer(encode_sized(topic_json(topic).encode()))


def list_topics(engine: Engine, connection: Connection, _request: Request) -> None:
    """List."""
    _answer_topics(engine, connection)


def list_valid(engine: Engine, connection: Connection, request: Request) -> None:
    """ValidList: without deleted and expired topics."""
    (event_id,) = _I64.unpack(request.part)
    _answer_topics(engine, connection, engine.now_ms(), event_id)


def _answer_topics(
    engine: Engine, connection: Connection, now_ms: int | None = None, through_event_id: int = 0
) -> None:
    """Answer with the topics by name. Each turn of the loop makes ``LISTED_AT_ONCE`` rows at most."""
    objects: list[str] = []
    connection.block()

    def step(after: bytes) -> None:
        try:
            topics, reached = engine.topics.listed_page(after, LISTED_AT_ONCE, now_ms, through_event_id)
        except PixiuError as error:
            connection.answered(encode_refused(str(error)))
            return
        objects.extend(topic_json(topic) for topic in topics)
        connection.charge(LISTED_AT_ONCE if reached is not None else len(topics))
        if reached is not None:
            connection.in_turn(partial(step, reached))
        else:
            connection.answered(encode_sized((f"[{','.join(objects)}]" if objects else "").encode()))

    step(b"")


def sub(engine: Engine, connection: Connection, request: Request) -> None:
    """Sub, as smss has it."""
    has_timeout = request.header[4] == 1
    (event_id,) = _I64.unpack_from(request.part)
    timeout_ns = _I64.unpack_from(request.part, 8)[0] if has_timeout else 0
    name = request.part[20 if has_timeout else 12 :]
    default_us = engine.settings.ack_timeout_default_ms * 1000
    topic = engine.topic_to_read(request.name, connection.is_node)
    subscription = Subscription(
        engine.subscriptions,
        connection,
        topic,
        name,
        batch=request.header[3],
        ack_timeout_us=min(max(timeout_ns // 1000, 1), ACK_TIMEOUT_MS_MAX * 1000) if timeout_ns > 0 else default_us,
        remember=False,
        find_start=lambda: find_start(engine, topic, event_id),
    )
    subscription.start(take_over=False)
    connection.begin_stream(subscription)


def find_start(engine: Engine, topic: Topic, event_id: int) -> tuple[int, int]:
    """Where the message behind ``event_id`` is; 0 is the oldest that retention keeps."""
    logs = engine.topics.log_of(topic)
    days = engine.all_settings.topics.retention_days
    if event_id < 0 and logs.numbers:
        raise NotFound(wire.EVENT_ID_NOT_FOUND)
    number, position = logs.find(max(event_id, 0))
    if days and logs.numbers:
        outdated = [n for n in logs.numbers[:-1] if is_outdated(engine, logs.path(n), days)]
        if outdated and event_id == 0:
            return outdated[-1] + 1, 0
        if number in outdated:
            raise Gone(wire.EVENT_ID_EXPIRED)
    return number, position


def subscribe(engine: Engine, connection: Connection, request: Request) -> None:
    """Subscribe, with a start, take-over and a remembered position."""
    if len(request.part) < _SUBSCRIBE.size:
        raise RequestError(wire.BAD_EXTENSION_PART)
    start, value, batch, timeout_ms, name_bytes = _SUBSCRIBE.unpack_from(request.part)
    name = request.part[_SUBSCRIBE.size :]
    too_long = name_bytes > engine.settings.subscriber_name_bytes_max
    if len(name) != name_bytes or start > wire.START_TIME or too_long:
        raise RequestError(wire.BAD_EXTENSION_PART)
    topic = engine.topic_to_read(request.name, connection.is_node)
    timeout_ms = min(timeout_ms, ACK_TIMEOUT_MS_MAX) if timeout_ms > 0 else engine.settings.ack_timeout_default_ms

    def place() -> tuple[int, int]:
        if start == wire.START_NOW:
            return engine.topics.log_of(topic).end
        if start == wire.START_TIME:
            return engine.topics.log_of(topic).find_time(value)
        stored = engine.state.positions.get(topic, name) if start == wire.START_STORED else None
        return find_start(engine, topic, value if stored is None else stored)

    subscription = Subscription(
        engine.subscriptions,
        connection,
        topic,
        name,
        batch=batch,
        ack_timeout_us=timeout_ms * 1000,
        remember=bool(request.flags & wire.FLAG_REMEMBER),
        find_start=place,
    )
    subscription.start(take_over=bool(request.flags & wire.FLAG_TAKE_OVER))
    connection.begin_stream(subscription)


def append(engine: Engine, connection: Connection, request: Request) -> None:
    """Append: numbered, and only once per key."""
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_DECIDES)
    unless_after, key, message = append_part(request.part)
    engine.check_reserved(request.name, connection.is_node)
    headers, content = split_head(message)

    def sequence(batch: Batch) -> bytes:
        topic = engine.topics.live(request.name, batch.now_ms)
        appended = number(engine, batch, topic, headers, content, key=key, unless_after=unless_after)
        return encode_append_answer(appended.event_id, appended.message_id, repeat=appended.is_repeat)

    connection.submit(Change(connection, sequence, size=len(request.part)))


def positions(engine: Engine, connection: Connection, request: Request) -> None:
    """Positions of a topic's named subscribers. Each turn of the loop makes ``POSITIONS_AT_ONCE`` rows at most."""
    topic = engine.topic_to_read(request.name, connection.is_node)
    stored = engine.state.positions
    moved = {name: event_id for (each, name), event_id in stored.moved.items() if each is topic}
    others = deque(sorted({*moved, *topic.subscriptions}))  # some of them are stored, too
    rows: list[str] = []
    connection.block()

    def add(name: bytes, event_id: int) -> None:
        text = name.decode(errors="replace")
        row = {"subscriber": text, "event_id": moved.get(name, event_id), "live": name in topic.subscriptions}
        rows.append(json.dumps(row, separators=(",", ":"), ensure_ascii=False))

    def step(after: bytes) -> None:
        try:
            page = stored.page(topic, after, POSITIONS_AT_ONCE)
        except PixiuError as error:
            connection.answered(encode_refused(str(error)))
            return
        connection.charge(len(page))
        for name, event_id in page:
            while others and others[0] < name:
                add(others.popleft(), 0)
            if others and others[0] == name:
                others.popleft()
            add(name, event_id)
        if len(page) == POSITIONS_AT_ONCE:
            connection.in_turn(partial(step, page[-1][0]))
            return
        for name in others:
            add(name, 0)
        connection.answered(encode_sized(f"[{','.join(rows)}]".encode()))

    step(b"")


def set_position(engine: Engine, connection: Connection, request: Request) -> None:
    """SetPosition: put a named subscriber somewhere, or forget it."""
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_DECIDES)
    name, event_id = position_part(request.part, engine.settings.subscriber_name_bytes_max)
    topic = engine.topic_to_read(request.name, connection.is_node)

    def sequence(batch: Batch) -> bytes:
        if topic.is_deleted:
            raise NotFound(wire.TOPIC_NOT_EXIST)
        payload = pack_rows([(name, event_id)])
        engine.state.positions.moved.pop((topic, name), None)
        batch.change(Kind.POSITION, topic.name, payload, topic_id=topic.create_event_id)
        engine.state.positions.apply(topic, payload, batch.changes)
        return OK

    connection.submit(Change(connection, sequence), block=True)


def list_delays(engine: Engine, connection: Connection, request: Request) -> None:
    """Delays that wait, by event id."""
    after, limit = page_part(request.part)

    def is_wanted(delayed: Delayed) -> bool:
        is_seen = connection.is_node or not delayed.topic.startswith(wire.RESERVED_PREFIX)
        return is_seen and (not request.name or delayed.topic == request.name)

    answer_page(engine, connection, after, limit or ROWS_MAX, is_wanted, _delay_row, _json, bytes_max=PAGE_BYTES_MAX)


def _delay_row(delayed: Delayed) -> dict[str, object]:
    return {
        "event_id": delayed.event_id,
        "topic": delayed.topic.decode(errors="replace"),
        "due": delayed.due_ms,
        "count": count_messages(delayed.payload),
        "bytes": len(delayed.payload),
    }


def cancel_delay(engine: Engine, connection: Connection, request: Request) -> None:
    """CancelDelay: it will not come."""
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_DECIDES)
    event_id = delay_part(request.part)

    def sequence(batch: Batch) -> bytes:
        if not engine.background.cancel_delay(event_id, batch, with_reserved=connection.is_node):
            raise NotFound(wire.DELAYED_NOT_EXIST)
        return OK

    connection.submit(Change(connection, sequence), block=True)


def flush(engine: Engine, connection: Connection, _request: Request) -> None:
    """Flush: answered when everything accepted so far is on disk."""
    connection.block()

    def done() -> None:
        reason = engine.writer.poisoned
        connection.answered(OK if reason is None else encode_refused(reason))

    engine.writer.when_flushed(done)


def hello(engine: Engine, connection: Connection, _request: Request) -> None:
    """Hello: who is this, and what does it speak?"""
    connection.answer(
        _json(
            {
                "version": wire.EXTENSION_VERSION,
                "server": f"pixiu {__version__}",
                "role": "leader" if engine.is_leader else "follower",
                "epoch": engine.state.epoch,
                "last_event_id": engine.journal.last_event_id,
                "commit_event_id": engine.commit_event_id,
            }
        )
    )


def _json(value: object) -> bytes:
    return encode_sized(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


HANDLERS: dict[int, Callable[[Engine, Connection, Request], None]] = {
    wire.SUB: sub,
    wire.CREATE_TOPIC: create_topic,
    wire.DELETE_TOPIC: delete_topic,
    wire.DELAY: delay,
    wire.ALIVE: alive,
    wire.TOPIC_INFO: topic_info,
    wire.VALID_LIST: list_valid,
    wire.LIST: list_topics,
    wire.HELLO: hello,
    wire.APPEND: append,
    wire.SUBSCRIBE: subscribe,
    wire.POSITIONS: positions,
    wire.SET_POSITION: set_position,
    wire.DELAYS: list_delays,
    wire.CANCEL_DELAY: cancel_delay,
    wire.FLUSH: flush,
    **NODE_HANDLERS,
}


def _refuse(_engine: Engine, _connection: Connection, _request: Request) -> None:
    raise NotAllowed(f"{wire.IN_KAFKA}: use its own topics and clients")


HANDLERS_WITHOUT_JOURNAL = dict.fromkeys(HANDLERS, _refuse) | {
    number: HANDLERS[number] for number in (wire.ALIVE, wire.HELLO, wire.AUTHORIZE, wire.CHALLENGE, wire.PROVE)
}
"""Of a shard whose log is in Kafka: its queue has no topics."""
