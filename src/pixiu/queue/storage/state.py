"""The derived state: what the journal's records mean for topics, delays, positions and epochs.

The writer changes this state as it numbers; a follower and recovery change it by reading records back. Both come to the
same result, and applying a record twice changes nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pixiu.queue.delays import HEAD, Delayed, Delays
from pixiu.queue.positions import Positions
from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.messages import number_and_key
from pixiu.queue.storage.record import MESSAGE_KINDS, Frame, Kind, Record
from pixiu.queue.storage.segment import messages_of
from pixiu.queue.storage.topics import dead_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.ports.keyvalue import KeyValue
    from pixiu.queue.storage.topic_log import End, Window
    from pixiu.queue.storage.topics import Topic, Topics

APPLIED_KEY = b"m/applied"
MESSAGE_ID_KEY = b"m/message_id"
SHOWN_KEY = b"m/shown"
FLUSHED_KEY = b"m/flushed"
_EPOCH_PREFIX = b"e"
_I64 = Struct("<q")
_BIG = Struct(">q")
_EPOCH = Struct("<I")


class State:
    """Everything but the journal."""

    def __init__(self, store: KeyValue, topics: Topics) -> None:
        self.store = store
        self.topics = topics
        self.delays = Delays(store)
        self.positions = Positions(store)
        self.epochs: list[tuple[int, int]] = [
            (_BIG.unpack(key[1:])[0], _I64.unpack(value)[0]) for key, value in store.scan(b"e", b"f")
        ]
        """(epoch, its first event id), oldest first."""
        self.last_message_id = self.number(MESSAGE_ID_KEY)
        self._shown = self.number(SHOWN_KEY)

    @property
    def epoch(self) -> int:
        """The newest epoch in this log."""
        return self.epochs[-1][0] if self.epochs else 0

    @property
    def shown(self) -> int:
        """How far this store, and whoever read from this node, has got."""
        return self._shown

    def write(self, changes: Changes, through: int) -> None:
        """One batch of the store, with the event id that it brings it to."""
        self._shown = max(self._shown, through)
        changes.put(SHOWN_KEY, _I64.pack(self._shown))
        self.store.write(changes.puts, changes.deletes)

    @property
    def applied(self) -> int:
        """The event id that the last checkpoint covers."""
        return self.number(APPLIED_KEY)

    @property
    def flushed(self) -> int:
        """The journal was on disk at least through here."""
        return self.number(FLUSHED_KEY)

    def number(self, key: bytes) -> int:
        """A stored number, 0 if there is none."""
        value = self.store.get(key)
        return 0 if value is None else int(_I64.unpack(value)[0])

    def begin_epoch(self, epoch: int, event_id: int, changes: Changes) -> None:
        """A new leader's log begins here."""
        if epoch > self.epoch:
            self.epochs.append((epoch, event_id))
            changes.put(_EPOCH_PREFIX + _BIG.pack(epoch), _I64.pack(event_id))

    def cut_epochs(self, event_id: int) -> None:
        """Forget epochs that began behind ``event_id``."""
        gone = [each for each in self.epochs if each[1] > event_id]
        self.epochs = [each for each in self.epochs if each[1] <= event_id]
        self.store.write([], [_EPOCH_PREFIX + _BIG.pack(epoch) for epoch, _ in gone])

    def save_checkpoint(self, through: int, ends: dict[Topic, End], removed: Iterable[int] = ()) -> None:
        """Everything through here is durable in topic logs (as far as ``ends``) and store: replay begins behind it."""
        rows = self.topics.rows_of(ends)
        rows += [(APPLIED_KEY, _I64.pack(through)), (MESSAGE_ID_KEY, _I64.pack(self.last_message_id))]
        self.store.write(rows, [dead_key(number) for number in removed])
        self.topics.flushed(ends)
        self.topics.dead.difference_update(removed)

    def apply(
        self, record: Record, frame: Frame, messages: list[bytes] | None = None, *, to_log: bool = True
    ) -> tuple[Topic, Window] | None:
        """Do what a record says. Returns the topic and its new messages, if it brought any.

        ``messages``: those of the record, if they are known already. Without ``to_log`` the topic's own log is left
        as it is, to be completed later.
        """
        changes = Changes()
        shown: tuple[Topic, Window] | None = None
        if frame.epoch > self.epoch:
            self.begin_epoch(frame.epoch, record.event_id, changes)
        name = record.topic
        topic = self.topics.get(name) if name else None
        if topic is not None and topic.create_event_id > record.event_id:
            topic = None
        if record.kind in MESSAGE_KINDS:
            known = messages or messages_of(record, frame.count)
            shown = self._apply_messages(record, topic if to_log else None, known, changes)
        elif record.kind == Kind.CREATE:
            if topic is None or topic.create_event_id != record.event_id:
                (expires_at,) = _I64.unpack(record.payload)
                self.topics.create(name, record.event_id, record.write_ms, expires_at, changes)
        elif record.kind == Kind.DELETE:
            if topic is not None:
                self.delete_topic(topic, changes)
        elif record.kind == Kind.DELAY:
            due_ms, event_id = HEAD.unpack_from(record.payload)
            self.delays.add(Delayed(due_ms, event_id, name, record.payload[HEAD.size :]), changes)
        elif record.kind == Kind.CANCEL:
            due_ms, event_id = HEAD.unpack(record.payload)
            self.delays.remove(due_ms, event_id, changes)
        elif record.kind == Kind.POSITION and topic is not None:
            self.positions.apply(topic, record.payload, changes)
            self.positions.forget_moved(topic, record.payload)
        if not changes.is_empty:
            self.write(changes, frame.last_event_id)
        changes.committed()
        return shown

    def _apply_messages(
        self, record: Record, topic: Topic | None, messages: list[bytes], changes: Changes
    ) -> tuple[Topic, Window] | None:
        if record.kind == Kind.FIRE:
            due_ms, event_id = HEAD.unpack_from(record.payload)
            self.delays.remove(due_ms, event_id, changes)
        if record.kind == Kind.APPEND:
            self.last_message_id = max(self.last_message_id, number_and_key(messages[-1])[0])
        if topic is None:
            return None
        log = self.topics.log_of(topic)
        if log.last_event_id >= record.event_id:
            return None
        window = log.append(record.event_id, messages, record.write_ms)
        self.topics.dirty[topic.create_event_id] = topic
        return topic, window

    def delete_topic(self, topic: Topic, changes: Changes) -> None:
        """Forget a topic and what belongs to it."""
        self.topics.delete(topic, changes)
        self.positions.drop_topic(topic, changes)


def pack_number(value: int) -> bytes:
    """A number as the store keeps it."""
    return _I64.pack(value)


def epoch_payload(epoch: int, leader: str) -> bytes:
    """What an EPOCH record says."""
    return _EPOCH.pack(epoch) + leader.encode()
