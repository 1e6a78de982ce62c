"""Topics: their names, lifetimes and logs.

What a topic *is* lives in the key-value store (derived from the journal); what it *says* lives in its log. A topic's
folder is named by its create event id, never by its name: no name can reach outside the store, and a re-created topic
can never serve what its namesake left behind. Two levels of 256 folders keep every folder small.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pixiu.machines.queue_wire.commands import (
    BAD_EXPIRY,
    BAD_TOPIC_NAME,
    LIFETIME_MS_MIN,
    RESERVED_PREFIX,
    TOPIC_EXIST,
    TOPIC_NAME_BYTES_MAX,
    TOPIC_NOT_EXIST,
)
from pixiu.model.errors import Conflict, NotFound, RequestError
from pixiu.queue.storage.topic_log import End, TopicLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pixiu.ports.files import Files
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.queue.server.subscriptions import Subscription
    from pixiu.queue.storage.changes import Changes

log = logging.getLogger(__name__)

FOLDER = "queue/topics"
LOADED_MAX = 20_000
LISTED_AT_ONCE = 500
"""Stored topics in one page of a list: a few milliseconds."""

_TOPIC_PREFIX = b"t"
_LIFETIME_PREFIX = b"x"
_END_PREFIX = b"l"
_DEAD_PREFIX = b"g"
_META = Struct("<qqqqqB")
_BIG = Struct(">q")


class Topic:
    """One topic, from its creation to its end. A name that is created again is another topic."""

    __slots__ = (
        "__weakref__", "create_event_id", "create_ms", "expires_at", "folder", "is_committed", "is_deleted", "log",
        "name", "subscriptions", "waiting",
    )  # fmt: skip

    def __init__(self, name: bytes, create_event_id: int, create_ms: int, expires_at: int) -> None:
        self.name = name
        self.create_event_id = create_event_id
        self.create_ms = create_ms
        self.expires_at = expires_at
        self.is_deleted = False
        self.is_committed = True
        self.log: TopicLog | None = None
        self.subscriptions: dict[bytes, Subscription] = {}
        """By name: whoever reads, or waits for the name to become free."""
        self.waiting: dict[Subscription, None] = {}
        """Those at the end of the log, to be told of the next message."""
        self.folder = folder_of(create_event_id)

    def is_gone(self, now_ms: int) -> bool:
        """Deleted, or past its lifetime and waiting to be collected."""
        return self.is_deleted or 0 < self.expires_at <= now_ms

    @property
    def is_reserved(self) -> bool:
        """Does it belong to Pixiu itself?"""
        return self.name.startswith(RESERVED_PREFIX)

    def meta(self) -> bytes:
        """The stored form: smss's five numbers and a state."""
        at, event_id = self.create_ms, self.create_event_id
        return _META.pack(at, self.expires_at, event_id, at, event_id, 0)


def folder_of(create_event_id: int) -> str:
    """Where a topic's log is."""
    low, high = create_event_id & 0xFF, create_event_id >> 8 & 0xFF
    return f"{FOLDER}/{low:02x}/{high:02x}/{create_event_id}"


def topic_folders(files: Files) -> list[str]:
    """The folder of every topic on disk."""
    found = []
    for low in files.names(FOLDER):
        for high in files.names(f"{FOLDER}/{low}"):
            folder = f"{FOLDER}/{low}/{high}"
            found += [f"{folder}/{name}" for name in files.names(folder)]
    return found


def dead_key(create_event_id: int) -> bytes:
    """The row of the store that says: the files of this topic are to be removed."""
    return _DEAD_PREFIX + _BIG.pack(create_event_id)


def topic_from(name: bytes, meta: bytes) -> Topic:
    """Read back what ``meta`` stored."""
    create_ms, expires_at, create_event_id, _, _, _ = _META.unpack(meta)
    return Topic(name, create_event_id, create_ms, expires_at)


class Topics:
    """All topics of one queue."""

    def __init__(self, files: Files, store: KeyValue, *, segment_bytes: int, open_max: int) -> None:
        self._files = files
        self._store = store
        self._segment_bytes = segment_bytes
        self._open_max = open_max
        self._loaded: dict[bytes, Topic] = {}
        self._held: WeakValueDictionary[bytes, Topic] = WeakValueDictionary()
        """Whatever anyone still holds, loaded or not: a topic is never two objects, each with a log of its own."""
        self._open: OrderedDict[int, Topic] = OrderedDict()
        """Topics whose log holds descriptors, least recently used first."""
        self.dirty: dict[int, Topic] = {}
        """Topics written since the last checkpoint."""
        self.on_ended: Callable[[Topic], object] = lambda topic: None
        """Told of every topic whose end is committed."""
        self._ending: dict[bytes, Topic] = {}
        """Deleted, but not yet in the store: it still has them."""
        self._checked: set[int] = set()
        self.dead = {int(_BIG.unpack(key[1:])[0]) for key, _ in store.scan(_DEAD_PREFIX, bytes([_DEAD_PREFIX[0] + 1]))}
        """Ended topics whose files are still there: they go when the store has flushed that end, not before."""

    def get(self, name: bytes) -> Topic | None:
        """The topic of that name, expired or not."""
        topic = self._loaded.get(name)
        if topic is None:
            if name in self._ending:
                return None
            held = self._held.get(name)
            if held is not None and not held.is_deleted:
                self._loaded[name] = held
                return held
            meta = self._store.get(_TOPIC_PREFIX + name)
            if meta is None:
                return None
            if len(self._loaded) >= LOADED_MAX:
                self._unload()
            topic = self._loaded[name] = self._held[name] = topic_from(name, meta)
        return topic

    def live(self, name: bytes, now_ms: int) -> Topic:
        """The topic of that name, if it can be used. Raises ``NotFound``."""
        topic = self.get(name)
        if topic is None or topic.is_gone(now_ms):
            raise NotFound(TOPIC_NOT_EXIST)
        return topic

    def _unload(self) -> None:
        """Forget topics nobody uses; they are read back from the store when needed."""
        for name, topic in list(self._loaded.items()):
            idle = topic.is_committed and not topic.subscriptions and topic.create_event_id not in self._open
            if idle and topic.create_event_id not in self.dirty:
                del self._loaded[name]

    def check_new(self, name: bytes, expires_at: int, now_ms: int) -> None:
        """May this be created? Raises with smss's text, in smss's order of checks."""
        if expires_at < 0 or 0 < expires_at < now_ms + LIFETIME_MS_MIN:
            raise RequestError(BAD_EXPIRY)
        if self.get(name) is not None:
            raise Conflict(TOPIC_EXIST)

    def create(self, name: bytes, event_id: int, now_ms: int, expires_at: int, changes: Changes) -> Topic:
        """A new topic, visible to the writer at once and to others when ``changes`` is committed."""
        topic = Topic(name, event_id, now_ms, expires_at)
        topic.is_committed = False
        before = self._loaded.get(name)
        self._loaded[name] = self._held[name] = topic
        changes.put(_TOPIC_PREFIX + name, topic.meta())
        if expires_at:
            changes.put(_LIFETIME_PREFIX + _BIG.pack(expires_at) + name, b"")
        changes.on_undo(lambda: self._restore(name, before))
        changes.on_undo(lambda: setattr(topic, "is_deleted", True))  # publishes to it may be on their way
        changes.on_commit(lambda: setattr(topic, "is_committed", True))
        return topic

    def delete(self, topic: Topic, changes: Changes) -> None:
        """The end of a topic: gone for the writer at once, told to its subscribers when committed."""
        topic.is_deleted = True
        name, before = topic.name, self._ending.get(topic.name)
        self._ending[name] = topic
        changes.on_undo(lambda: self._end_settled(name, topic, before))
        changes.on_commit(lambda: self._end_settled(name, topic, None))
        if self._loaded.get(topic.name) is topic:
            del self._loaded[topic.name]
            changes.on_undo(lambda: self._restore(topic.name, topic))
        changes.delete(_TOPIC_PREFIX + topic.name)
        changes.delete(_END_PREFIX + _BIG.pack(topic.create_event_id))
        changes.put(dead_key(topic.create_event_id), b"")
        if topic.expires_at:
            changes.delete(_LIFETIME_PREFIX + _BIG.pack(topic.expires_at) + topic.name)
        changes.on_commit(lambda: self._discard(topic))

    def _end_settled(self, name: bytes, topic: Topic, before: Topic | None) -> None:
        if self._ending.get(name) is topic:
            del self._ending[name]
            if before is not None:
                self._ending[name] = before

    def _restore(self, name: bytes, topic: Topic | None) -> None:
        if topic is None:
            self._loaded.pop(name, None)
        else:
            topic.is_deleted = False
            self._loaded[name] = self._held[name] = topic

    def _discard(self, topic: Topic) -> None:
        self.dead.add(topic.create_event_id)
        self.on_ended(topic)
        for subscription in list(topic.subscriptions.values()):
            subscription.topic_ended()
        self._open.pop(topic.create_event_id, None)
        self.dirty.pop(topic.create_event_id, None)
        if topic.log is not None:
            topic.log.close()
            topic.log = None

    def log_of(self, topic: Topic) -> TopicLog:
        """The topic's log, opened if need be; closes the least recently used beyond the bound."""
        number = topic.create_event_id
        log = topic.log
        if log is None:
            log = topic.log = self._open_log(topic)
        if number in self._open:
            self._open.move_to_end(number)
        else:
            self._open[number] = topic
            while len(self._open) > self._open_max:
                _, oldest = self._open.popitem(last=False)
                if oldest.log is not None:
                    oldest.log.close()
        return log

    def flushed_end(self, topic: Topic) -> End:
        """How far a checkpoint has flushed a topic's log."""
        row = self._store.get(_END_PREFIX + _BIG.pack(topic.create_event_id))
        return End() if row is None else End.unpack(row)

    def _open_log(self, topic: Topic) -> TopicLog:
        """Open a log; the first time since the start, cut what a crash left: torn, or unknown to the journal."""
        number = topic.create_event_id
        flushed = self.flushed_end(topic)
        is_first = number not in self._checked
        log = TopicLog(
            self._files, topic.folder, segment_bytes=self._segment_bytes, durable=flushed if is_first else None
        )
        if is_first:
            self._checked.add(number)
        log.flushed = flushed
        return log

    def unflushed(self) -> tuple[list[str], dict[Topic, End]]:
        """For a checkpoint: the paths to flush, and how far every log that was written to then is."""
        logs = {topic: topic.log for topic in self.dirty.values() if topic.log is not None}
        paths = dict.fromkeys(path for log in logs.values() for path in log.flushable())
        return list(paths), {topic: log.reach for topic, log in logs.items()}

    def rows_of(self, ends: dict[Topic, End]) -> list[tuple[bytes, bytes]]:
        """What the store is to know of logs that were flushed."""
        return [
            (_END_PREFIX + _BIG.pack(topic.create_event_id), end.pack())
            for topic, end in ends.items()
            if topic.log is not None  # it has ended; an end that is not committed yet does not count
        ]

    def flushed(self, ends: dict[Topic, End]) -> None:
        """The store knows: what has not grown since is clean."""
        for topic, end in ends.items():
            if topic.log is not None:
                topic.log.flushed = end
                if topic.log.reach == end:
                    self.dirty.pop(topic.create_event_id, None)

    def remove_dead(self, numbers: Iterable[int]) -> Iterator[int]:
        """Delete the folders of topics whose end is durable; yields those that are gone."""
        for number in numbers:
            try:
                self._files.remove_folder(folder_of(number))
            except OSError as error:
                log.warning("cannot remove topic files", extra={"folder": folder_of(number), "reason": str(error)})
            else:
                yield number

    def listed(self) -> Iterator[Topic]:
        """Committed topics by name, without reserved ones."""
        after: bytes | None = b""
        while after is not None:
            topics, after = self.listed_page(after, LISTED_AT_ONCE)
            yield from topics

    def listed_page(
        self, after: bytes, count: int, now_ms: int | None = None, through_event_id: int = 0
    ) -> tuple[list[Topic], bytes | None]:
        """The listed ones among the first ``count`` stored topics after a name, and the name to continue after.

        Reserved topics are not listed, nor topics created after ``through_event_id``; with ``now_ms`` only topics that
        can be used are. The name is None at the end.
        """
        found = []
        start = _TOPIC_PREFIX + after + b"\0" if after else _TOPIC_PREFIX
        rows = list(islice(self._store.scan(start, bytes([_TOPIC_PREFIX[0] + 1])), count))
        for key, meta in rows:
            topic = topic_from(key[1:], meta)
            if topic.is_reserved or (now_ms is not None and topic.is_gone(now_ms)):
                continue
            if through_event_id > 0 and topic.create_event_id > through_event_id:
                continue
            found.append(topic)
        return found, rows[-1][0][1:] if len(rows) == count else None

    def stored_topics(self) -> list[Topic]:
        """Every topic, reserved and expired ones included."""
        rows = self._store.scan(_TOPIC_PREFIX, bytes([_TOPIC_PREFIX[0] + 1]))
        return [topic for key, _ in list(rows) if (topic := self.get(key[1:])) is not None]

    def busiest(self, limit: int) -> list[Topic]:
        """Those whose logs are open, most recently used first."""
        return [topic for topic in list(reversed(self._open.values()))[:limit] if not topic.is_deleted]

    def stored_after(self, name: bytes, limit: int) -> list[Topic]:
        """Topics behind a name, in the order of names, reserved and expired ones included."""
        rows = self._store.scan(_TOPIC_PREFIX + name + b"\0", bytes([_TOPIC_PREFIX[0] + 1]))
        return [topic for key, _ in islice(rows, limit) if (topic := self.get(key[1:])) is not None]

    def stored(self, name: bytes) -> Topic | None:
        """A topic as committed, without loading it."""
        meta = self._store.get(_TOPIC_PREFIX + name)
        return None if meta is None else topic_from(name, meta)

    def expired(self, now_ms: int) -> Iterator[bytes]:
        """Names whose lifetime is over, earliest first."""
        for key, _ in self._store.scan(_LIFETIME_PREFIX, _LIFETIME_PREFIX + _BIG.pack(now_ms + 1)):
            yield key[9:]

    def next_expiry(self) -> int | None:
        """When the next lifetime ends."""
        for key, _ in self._store.scan(_LIFETIME_PREFIX, bytes([_LIFETIME_PREFIX[0] + 1])):
            return int(_BIG.unpack_from(key, 1)[0])
        return None

    def close(self) -> None:
        """Let go of every log."""
        for topic in self._open.values():
            if topic.log is not None:
                topic.log.close()


def check_name(name: bytes) -> None:
    """The names that smss allows, less those that cannot be told apart from nothing."""
    if not name or len(name) > TOPIC_NAME_BYTES_MAX or any(mark in name for mark in (b" ", b"\n", b"\t", b"\0")):
        raise RequestError(BAD_TOPIC_NAME)


def topic_json(topic: Topic) -> str:
    """TopicInfo's object, keys and escapes as smss's encoder writes them."""
    return (
        f'{{"name":{go_string(topic.name)},"createTimeStamp":{topic.create_ms},"expireAt":{topic.expires_at},'
        f'"createEventId":{topic.create_event_id},"stateChangeTime":{topic.create_ms},'
        f'"stateChangeEventId":{topic.create_event_id},"state":0,'
        f'"topicRoot":{go_string(topic.folder.removeprefix(FOLDER).encode())}}}'
    )


_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026",
    "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip


def go_string(text: bytes) -> str:
    """A JSON string with the escapes of Go's encoder."""
    decoded = text.decode("utf-8", errors="replace")
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in decoded) + '"'
