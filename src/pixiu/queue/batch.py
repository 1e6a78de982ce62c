"""One group commit: the records of all requests that waited, as one write.

Consecutive publishes to one topic become one record with one event id per message, whoever sent them: one line, one
checksum and one frame for a whole run is what lets a single writer in Python keep up with thousands of connections.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.index import pack_entries, pack_numbered_entries
from pixiu.queue.storage.messages import all_first_64
from pixiu.queue.storage.record import HEADER_BYTES, Kind, encode_block, encode_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.queue.appends import KeysAdded
    from pixiu.queue.operations import PlainPublish
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.topics import Topic

RUN_COUNT_MAX = 4096
RUN_BYTES_MAX = 4 * 2**20
"""A run ends when it has this many messages, or when large messages make it this long."""


class Run:
    """Messages with consecutive event ids for one topic."""

    __slots__ = ("first_event_id", "messages", "topic")

    def __init__(self, topic: Topic, first_event_id: int) -> None:
        self.topic = topic
        self.first_event_id = first_event_id
        self.messages: list[bytes] = []


class Numbered(NamedTuple):
    """Messages that have their numbers, with what each of them carries: a list for each, of one length."""

    messages: list[bytes]
    message_ids: list[int]
    keys: list[bytes]
    digests: list[bytes]
    bodies: list[bytes]

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return sum(map(len, self.messages))

    def halves(self) -> tuple[Numbered, Numbered]:
        """Itself, in two parts."""
        middle = len(self.messages) // 2
        return self._part(slice(middle)), self._part(slice(middle, None))

    def _part(self, part: slice) -> Numbered:
        return Numbered(
            self.messages[part], self.message_ids[part], self.keys[part], self.digests[part], self.bodies[part]
        )


class Appends(Run):
    """A run of numbered messages, with what each of them carries."""

    __slots__ = ("bodies", "digests", "keys", "message_ids", "size")

    def __init__(self, topic: Topic, first_event_id: int) -> None:
        super().__init__(topic, first_event_id)
        self.message_ids: list[int] = []
        self.keys: list[bytes] = []
        self.digests: list[bytes] = []
        self.bodies: list[bytes] = []
        self.size = 0

    def add(self, added: Numbered, size: int) -> None:
        """More of them, of this size together."""
        self.messages += added.messages
        self.message_ids += added.message_ids
        self.keys += added.keys
        self.digests += added.digests
        self.bodies += added.bodies
        self.size += size


class Batch:
    """Records being numbered and encoded, and what must happen once they are durable."""

    __slots__ = (
        "_entries", "_flushed_through", "_frames", "_open_run", "changes", "epoch", "keys_added", "last_event_id",
        "next_event_id", "now_ms", "position", "replies", "request_count", "runs", "size",
    )  # fmt: skip

    def __init__(self, *, next_event_id: int, position: int, epoch: int, flushed_through: int, now_ms: int) -> None:
        self.next_event_id = next_event_id
        self.position = position
        self.epoch = epoch
        self.now_ms = now_ms
        self._flushed_through = flushed_through
        self._frames: list[bytes] = []
        self._entries: list[bytes] = []
        self._open_run: Run | None = None
        self.runs: list[Run] = []
        self.changes = Changes()
        self.keys_added: KeysAdded | None = None
        self.replies: list[tuple[Connection, bytes] | PlainPublish] = []
        """Whom to answer what, first two fields of each."""
        self.request_count = 0
        self.last_event_id = next_event_id - 1
        self.size = 0
        """Bytes of its frames, once they are written."""

    def run_of(self, topic: Topic) -> list[bytes]:
        """The messages of the open run of ``topic``, to be added to; a new run if it is another's, or full."""
        run = self._open_run
        if run is None or run.topic is not topic or type(run) is not Run or len(run.messages) >= RUN_COUNT_MAX:
            self.close_run()
            run = self._open_run = Run(topic, self.next_event_id)
        return run.messages

    def publish(self, topic: Topic, messages: list[bytes]) -> int:
        """Add the messages of one request. Returns the first one's event id."""
        run = self.run_of(topic)
        if run and sum(map(len, run)) + sum(map(len, messages)) > RUN_BYTES_MAX:
            self.close_run()
            run = self.run_of(topic)
        event_id = self.next_event_id + len(run)
        run += messages
        return event_id

    def close_run(self) -> None:
        """End the open run: its record is complete."""
        run = self._open_run
        if run is not None:
            self._open_run = None
            self.next_event_id += len(run.messages)
            self.request_count += len(run.messages)
            if type(run) is Appends:
                self._add_appends(run)
            else:
                self._add_messages(Kind.PUBLISH, run.topic, run.messages, run.first_event_id)
            self.runs.append(run)

    def fire(self, topic: Topic, head: bytes, messages: Sequence[bytes]) -> int:
        """A delayed publish that is due; ``head`` repeats its due time and event id."""
        self.close_run()
        run = Run(topic, self.next_event_id)
        run.messages = list(messages)
        self.next_event_id += len(messages)
        self._add_messages(Kind.FIRE, topic, run.messages, run.first_event_id, head)
        self.runs.append(run)
        return run.first_event_id

    @property
    def upcoming_event_id(self) -> int:
        """The event id of whatever is added next."""
        run = self._open_run
        return self.next_event_id if run is None else self.next_event_id + len(run.messages)

    def append(self, topic: Topic, added: Numbered) -> None:
        """Numbered messages, of event ids from ``upcoming_event_id`` on; consecutive ones of a topic are one record."""
        count, size = len(added.messages), added.size
        if count > 1 and (count > RUN_COUNT_MAX or size > RUN_BYTES_MAX):
            for half in added.halves():
                self.append(topic, half)
            return
        run = self._open_run
        if (
            type(run) is not Appends
            or run.topic is not topic
            or len(run.messages) + count > RUN_COUNT_MAX
            or run.size + size > RUN_BYTES_MAX
        ):
            self.close_run()
            run = self._open_run = Appends(topic, self.next_event_id)
        run.add(added, size)

    def change(self, kind: Kind, topic: bytes, payload: bytes, *, topic_id: int = 0, count: int = 1) -> int:
        """A record without a message of its own: create, delete, delay, cancel, position, epoch."""
        self.close_run()
        event_id = self.next_event_id
        self.next_event_id += count
        block = encode_block(kind, event_id, topic, payload, write_ms=self.now_ms, receive_ms=self.now_ms)
        payload_at = self.position + HEADER_BYTES + len(block) - (len(payload) + 1 if payload else 0)
        number = event_id if kind == Kind.CREATE else topic_id
        self._add(block, count, event_id, [payload_at] * count, [len(payload)] * count, number, kind)
        return event_id

    def _add_messages(
        self, kind: Kind, topic: Topic, messages: Sequence[bytes], event_id: int, head: bytes = b""
    ) -> None:
        payload = b"".join((head, *messages))
        block = encode_block(kind, event_id, topic.name, payload, write_ms=self.now_ms, receive_ms=self.now_ms)
        payload_at = self.position + HEADER_BYTES + len(block) - len(payload) - 1 + len(head)
        lengths = list(map(len, messages))
        starts = list(accumulate(lengths, initial=payload_at))
        self._add(block, len(messages), event_id, starts, lengths, topic.create_event_id, kind)

    def _add_appends(self, run: Appends) -> None:
        payload = b"".join(run.messages)
        block = encode_block(
            Kind.APPEND, run.first_event_id, run.topic.name, payload, write_ms=self.now_ms, receive_ms=self.now_ms
        )
        lengths = list(map(len, run.messages))
        starts = accumulate(lengths, initial=self.position + HEADER_BYTES + len(block) - len(payload) - 1)
        entries = pack_numbered_entries(
            run.first_event_id, list(starts), lengths, time_ms=self.now_ms, frame=self.position,
            topic=run.topic.create_event_id, kind=Kind.APPEND, message_ids=run.message_ids,
            keys=all_first_64(run.digests),
        )  # fmt: skip
        self._entries.append(entries)
        self._add_frame(block, len(lengths), run.first_event_id)

    def _add(
        self,
        block: bytes,
        count: int,
        event_id: int,
        starts: list[int],
        lengths: list[int],
        topic_id: int,
        kind: Kind,
    ) -> None:
        self._entries.append(
            pack_entries(event_id, starts, lengths, time_ms=self.now_ms, frame=self.position, topic=topic_id, kind=kind)
        )
        self._add_frame(block, count, event_id)

    def _add_frame(self, block: bytes, count: int, event_id: int) -> None:
        frame = encode_frame(block, epoch=self.epoch, count=count, flushed_through=self._flushed_through)
        self._frames.append(frame)
        self.position += len(frame)
        self.last_event_id = event_id + count - 1

    def frames(self) -> bytes:
        """Every record, ready to be written."""
        return self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)

    def entries(self) -> bytes:
        """Every index entry."""
        return self._entries[0] if len(self._entries) == 1 else b"".join(self._entries)

    def written(self) -> None:
        """The journal has the frames: keep their size, not their bytes."""
        self.size = sum(map(len, self._frames))
        self._frames.clear()
        self._entries.clear()

    @property
    def is_empty(self) -> bool:
        """No record at all, only replies?"""
        return not self._frames
