"""What a queue must never do, checked against what its clients were told and what its disk holds.

The journal is read here with code of its own, down to the frame; what topics, lists and delays must show is worked out
from its records by a model that fits on a page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.messages import Message, split_messages
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import number_and_key
from pixiu.queue.storage.record import Frame, Kind, Record, decode_block, read_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.testing.disk import SimulatedDisk
    from pixiu.testing.queue.clients import Item, Request, Subscriber

__all__ = ["Model", "Violation", "check_requests", "check_subscriber", "journal_frames"]

FOLDER = "queue/journal"


class Violation(AssertionError):
    """The queue did what it must never do."""


def journal_frames(disk: SimulatedDisk) -> list[Frame]:
    """Every whole frame of the journal, up to the first that is not; only the last file may end in one."""
    frames: list[Frame] = []
    names = [name for name in disk.names(FOLDER) if name.endswith(".log")]
    expected = int(names[0][:-4]) if names else 1
    for name in names:
        if int(name[:-4]) != expected:
            raise Violation(f"{name} should begin with event {expected}")
        data = disk.content(f"{FOLDER}/{name}")
        position = 0
        while position < len(data):
            frame = read_frame(data, position)
            if not isinstance(frame, Frame) or frame.event_id != expected:
                if name != names[-1]:
                    raise Violation(f"{name} byte {position}: damage in a segment that is not the last")
                return frames
            frames.append(frame)
            position += frame.size
            expected += frame.count
    return frames


def body_name(message: bytes) -> bytes:
    """The name that a client gave a message."""
    return Message.decode(message).body.partition(b"|")[0]


@dataclass(slots=True)
class TopicModel:
    """One topic, from creation to end."""

    name: bytes
    create_event_id: int
    expires_at: int
    log: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Event id, write time, message."""


class Model:
    """What the records of a journal mean."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self.topics: dict[bytes, TopicModel] = {}
        self.delays: dict[int, int] = {}
        """Those that wait: event id of the request, due time."""
        self.places: dict[int, tuple[TopicModel, int]] = {}
        """Of every message: its topic, and which one it is there."""
        self.stored: dict[bytes, tuple[int, Kind, bytes]] = {}
        """Of every message by its name: event id, kind of the record, topic."""
        self.delayed: dict[bytes, int] = {}
        self.records: dict[int, tuple[Kind, bytes]] = {}
        self.keys: dict[bytes, tuple[int, int]] = {}
        self.last_event_id = 0
        self.last_message_id = 0
        for frame in frames:
            self._add(decode_block(frame.block), frame.count)

    def _add(self, record: Record, count: int) -> None:
        if record.event_id != self.last_event_id + 1:
            raise Violation(f"event {record.event_id} follows {self.last_event_id}")
        self.last_event_id += count
        kind = Kind(record.kind)
        self.records[record.event_id] = kind, record.topic
        if kind == Kind.CREATE:
            if record.topic in self.topics:
                raise Violation(f"event {record.event_id} creates {record.topic!r}, which exists")
            expires_at = int.from_bytes(record.payload, "little")
            self.topics[record.topic] = TopicModel(record.topic, record.event_id, expires_at)
        elif kind == Kind.DELETE:
            if self.topics.pop(record.topic, None) is None:
                raise Violation(f"event {record.event_id} deletes {record.topic!r}, which is not there")
        elif kind == Kind.DELAY:
            due_ms, event_id = HEAD.unpack_from(record.payload)
            if event_id != record.event_id:
                raise Violation(f"the delay of event {record.event_id} says that it is {event_id}")
            self.delays[event_id] = due_ms
            for message in split_messages(record.payload[HEAD.size :]) or []:
                self.delayed[body_name(message)] = event_id
        elif kind in (Kind.CANCEL, Kind.FIRE):
            due_ms, event_id = HEAD.unpack_from(record.payload)
            if self.delays.pop(event_id, None) != due_ms:
                raise Violation(f"event {record.event_id} ends the delay {event_id}, which does not wait")
        if kind in (Kind.PUBLISH, Kind.APPEND, Kind.FIRE):
            self._add_messages(record, kind, count)

    def _add_messages(self, record: Record, kind: Kind, count: int) -> None:
        topic = self.topics.get(record.topic)
        if topic is None:
            raise Violation(f"event {record.event_id} publishes to {record.topic!r}, which is not there")
        messages = split_messages(record.payload[HEAD.size if kind == Kind.FIRE else 0 :])
        if messages is None or len(messages) != count:
            raise Violation(f"event {record.event_id} is not {count} messages")
        for event_id, message in enumerate(messages, record.event_id):
            name = body_name(message)
            if name in self.stored:
                raise Violation(f"message {name!r} is stored as event {self.stored[name][0]} and again as {event_id}")
            self.stored[name] = event_id, kind, record.topic
            self.places[event_id] = topic, len(topic.log)
            topic.log.append((event_id, record.write_ms, message))
            if kind == Kind.APPEND:
                self._add_number(event_id, message)

    def _add_number(self, event_id: int, message: bytes) -> None:
        message_id, key = number_and_key(message)
        if message_id <= self.last_message_id:
            raise Violation(f"message id {message_id} of event {event_id} is not above those before it")
        self.last_message_id = message_id
        if key in self.keys:
            raise Violation(f"key {key!r} is stored as {self.keys[key]} and again as event {event_id}")
        if key:
            self.keys[key] = event_id, message_id


def is_stored(request: Request, model: Model) -> bool:
    """Does the journal hold all that the answer to this request promised?"""
    if request.kind == "publish":
        first = model.stored.get(request.bodies[0])
        if first is None:
            return False
        if request.asks and first[0] != request.event_id:
            raise Violation(f"{request} is stored as event {first[0]}")
        for offset, name in enumerate(request.bodies):
            found = model.stored.get(name)
            if found is None or found[0] != first[0] + offset or found[2] != request.topic:
                raise Violation(f"{request} is stored as {[model.stored.get(each) for each in request.bodies]}")
        return True
    if request.kind == "append":
        if request.key:
            return model.keys.get(request.key) == (request.event_id, request.message_id)
        return model.stored.get(request.bodies[0], (0,))[0] == request.event_id
    if request.kind == "delay":
        return all(model.delayed.get(name) == request.event_id for name in request.bodies)
    kinds = {"create": Kind.CREATE, "delete": Kind.DELETE, "cancel": Kind.CANCEL}
    if request.kind == "cancel":
        return request.event_id not in model.delays
    return model.records.get(request.event_id) == (kinds[request.kind], request.topic)


CHANGES = frozenset({"publish", "append", "delay", "create", "delete", "cancel"})


def check_requests(requests: list[Request], model: Model, *, may_lose: bool, safe_before_us: int) -> int:
    """Compare every answer with the journal. Returns how many answered requests a crash took that may."""
    lost = 0
    last_of: dict[int, int] = {}
    for request in requests:
        if request.kind not in CHANGES or request.is_lost:
            continue
        if request.outcome == "ok":
            if not is_stored(request, model):
                if not may_lose:
                    raise Violation(f"{request} was answered and is lost")
                if request.answered_us < safe_before_us:
                    raise Violation(f"{request} was answered long before the crash and is lost")
                request.is_lost = True
                lost += 1
        elif request.outcome == "refused":
            for name in request.bodies:
                if name in model.stored or name in model.delayed:
                    raise Violation(f"{request} was refused and is stored")
        if request.kind in ("publish", "append"):
            for name in request.bodies:
                event_id = model.stored.get(name, (0,))[0]
                if event_id:
                    if event_id <= last_of.get(request.sender, 0):
                        raise Violation(f"{request} was overtaken: event {event_id}")
                    last_of[request.sender] = event_id
    return lost


def check_subscriber(subscriber: Subscriber, model: Model, *, may_lose: bool) -> None:
    """What it was pushed is a stretch of its topic, in order, without a hole."""
    items = subscriber.items
    if may_lose:
        items = [item for item in items if item.event_id <= model.last_event_id]
    if items:
        check_stretch(items, subscriber.topic, model)


def check_stretch(items: list[Item], name: bytes, model: Model) -> None:
    """Are these consecutive messages of one topic?"""
    place = model.places.get(items[0].event_id)
    if place is None:
        raise Violation(f"{name!r}: event {items[0].event_id} was pushed and is not stored")
    topic, start = place
    for offset, item in enumerate(items):
        found = topic.log[start + offset] if start + offset < len(topic.log) else None
        if found is None or topic.name != name or found != (item.event_id, item.time_ms, item.message):
            shown = None if found is None else found[:2]
            raise Violation(f"{name!r}: event {item.event_id} was pushed where the journal has {shown}")
