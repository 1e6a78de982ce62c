"""How the log's records lie in Kafka.

``main`` is the log: one partition, everything in order, each record with its event id in a header. So the event ids
belong to the records and not to Kafka's offsets, and a copy of the topic is a copy of the log. The other topics are
written in the same transaction, and are there for whoever looks for one kind of work:

====== ==========================================================================
state  compacted: who owns the log, what waits for its time, and positions
tasks  kicks and flushes, and one record per user of a push
notify notifications
retry  what failed and came back
due    scheduled sends whose time has come
dlq    dead letters
ledger what became of inbox entries
====== ==========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import Record, Task
from pixiu.ports.log import DEAD, MAIN, NOTIFY, SCHEDULE, TASKS, LogRecord
from pixiu.queue.positions import FORGET, unpack_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

__all__ = [
    "LEDGER",
    "LOG",
    "OWNER",
    "STATE",
    "VIEW_OF",
    "WANTER",
    "Entry",
    "Found",
    "KafkaRecord",
    "found_in",
    "found_of",
    "kafka_records",
    "position_in",
]

LOG = "main"
STATE = "state"
LEDGER = "ledger"
RETRY = "retry"
VIEW_OF = {NOTIFY: "notify", TASKS: "tasks", DEAD: "dlq", SCHEDULE: "due"}
"""Where the records of one of Pixiu's topics lie once more, alone."""
OWNER, WANTER = b"owner", b"wants"
"""The keys in ``state`` of whoever owns the log, and of who is about to."""

RECORD = ""
SET = "schedule"
DROP = "unschedule"
CLAIM = "owner"
WANT = "wants"
PLACE = "position"
"""What a record of the log does. All but ``RECORD`` take an event id that no reader sees."""
PUSHED = "push"
"""A row of one user of a push, in ``tasks`` alone: its event is the push."""


class Entry(NamedTuple):
    """One entry of the log, on its way to Kafka."""

    event_id: int
    number: int
    """Its message_id, or the newest that was given before it."""
    is_numbered: bool
    topic: str
    payload: bytes
    key: bytes
    at: int
    what: str = RECORD
    schedule_id: int = 0
    """Of a record that has waited, and of one that sets or drops what waits."""
    due: int = 0


class KafkaRecord(NamedTuple):
    """One record for the driver."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    at: int


class Found(NamedTuple):
    """One entry as it was read."""

    record: LogRecord
    number: int
    what: str
    schedule_id: int
    due: int

    @property
    def is_visible(self) -> bool:
        """Is it one for the log's readers?"""
        return self.what == RECORD


def kafka_records(entry: Entry) -> Iterator[KafkaRecord]:
    """The record of the log, first; then what else is written with it."""
    topic, at, number = entry.topic, entry.at, b"%d" % entry.number
    headers = [("event", b"%d" % entry.event_id), ("topic", topic.encode())]
    headers.append(("id" if entry.is_numbered else "last", number))
    if entry.key:
        headers.append(("send", entry.key))
    if entry.what:
        headers.append(("what", entry.what.encode()))
    if entry.schedule_id:
        headers.append(("schedule", b"%d" % entry.schedule_id))
    if entry.due:
        headers.append(("due", b"%d" % entry.due))
    record = _parsed(entry) if entry.is_numbered and topic == MAIN else None
    key = b"" if entry.what else _key(entry, record)
    yield KafkaRecord(LOG, key, entry.payload, headers, at)
    if entry.what == CLAIM:
        yield KafkaRecord(STATE, OWNER, entry.payload, headers, at)
    elif entry.what == SET:
        yield KafkaRecord(STATE, b"%d" % entry.schedule_id, entry.payload, headers, at)
    elif entry.what == PLACE:
        place = b"position %s %s" % (topic.encode(), entry.key)
        yield KafkaRecord(STATE, place, entry.payload if position_in(entry.payload) >= 0 else None, headers, at)
    elif entry.schedule_id:  # dropped, or fired
        yield KafkaRecord(STATE, b"%d" % entry.schedule_id, None, headers, at)
    if entry.what:
        return
    if topic in VIEW_OF:
        yield KafkaRecord(VIEW_OF[topic], key, entry.payload, headers, at)
        if entry.schedule_id and topic != SCHEDULE:
            yield KafkaRecord(RETRY, key, entry.payload, headers, at)
    elif not entry.is_numbered:
        yield KafkaRecord(LEDGER, key, entry.payload, headers, at)
    elif record is not None and record.WhichOneof("what") == "push":
        yield from _push_tasks(entry, record)


def position_in(payload: bytes) -> int:
    """The event id that an entry of a position says; below 0: it is forgotten."""
    return next((event_id for _, event_id in unpack_rows(payload)), FORGET)


def _push_tasks(entry: Entry, record: Record) -> Iterator[KafkaRecord]:
    """One task per user, as gomsg's queue has it: a reference, for a body may be large and users many."""
    for user in record.push.users:
        value = b'{"event_id":"%d","message_id":"%d","user":"%d"}' % (entry.event_id, entry.number, user)
        headers = [("push", b"%d" % entry.event_id), ("id", b"%d" % entry.number)]
        yield KafkaRecord(VIEW_OF[TASKS], b"%d" % user, value, headers, entry.at)


def _parsed(entry: Entry) -> Record | None:
    try:
        return Record.FromString(entry.payload)
    except DecodeError:
        return None


def _key(entry: Entry, record: Record | None) -> bytes:
    """What Kafka calls the key: the conversation, or the user whom a task is for."""
    if record is not None:
        if record.group:
            return b"g:%d" % record.group
        if record.to:
            return b"u:%d:%d" % (min(record.actor, record.to), max(record.actor, record.to))
        return b"u:%d" % record.actor
    if entry.topic in (NOTIFY, TASKS):
        try:
            task = Task.FromString(entry.payload)
        except DecodeError:
            return b""
        what = task.WhichOneof("what")
        return b"%d" % getattr(task, what).user if what in ("notify", "kick", "flush") else b""
    return b""


def found_in(message: Message) -> Found | None:
    """The entry that a message of Kafka's is, or belongs to; None for what others have written there."""
    return found_of(dict(message.headers() or ()), message.value() or b"", message.timestamp()[1])


def found_of(headers: Mapping[str, Any], value: bytes, at: int) -> Found | None:
    """The same of what another client has read."""
    try:
        if "push" in headers:
            return Found(LogRecord(int(headers["push"]), 0, "", b"", b"", at), int(headers["id"]), PUSHED, 0, 0)
        event_id = int(headers["event"])
        numbered = headers.get("id")
        number = int(numbered if numbered is not None else headers["last"])
        topic = headers["topic"].decode()
        what = headers.get("what", b"").decode()
        schedule_id, due = int(headers.get("schedule", b"0")), int(headers.get("due", b"0"))
    except (KeyError, ValueError, AttributeError, TypeError):
        return None
    message_id = number if numbered is not None else 0
    record = LogRecord(event_id, message_id, topic, value, headers.get("send", b""), at)
    return Found(record, number, what, schedule_id, due)
