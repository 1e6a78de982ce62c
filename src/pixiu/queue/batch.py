"""One group commit: the records of all requests that waited, as one write.

Consecutive publishes to one topic become one record with one event id per message, whoever sent them: one line, one
checksum and one frame for a whole run is what lets a single writer in Python keep up with thousands of connections.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from pixiu.queue.changes import Changes
from pixiu.queue.index import pack_entries
from pixiu.queue.messages import hoisted
from pixiu.queue.record import HEADER_BYTES, Kind, encode_block, encode_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.queue.connection import Connection
    from pixiu.queue.topics import Topic
    from pixiu.queue.writer import PlainPublish

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


class Batch:
    """Records being numbered and encoded, and what must happen once they are durable."""

    __slots__ = (
        "_entries", "_flushed_through", "_frames", "_open_run", "changes", "epoch", "last_event_id", "next_event_id",
        "now_ms", "position", "replies", "request_count", "runs", "size",
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
        self.replies: list[tuple[Connection, bytes] | PlainPublish] = []
        """Whom to answer what, first two fields of each."""
        self.request_count = 0
        self.last_event_id = next_event_id - 1
        self.size = 0
        """Bytes of its frames, once they are written."""

    def run_of(self, topic: Topic) -> list[bytes]:
        """The messages of the open run of ``topic``, to be added to; a new run if it is another's, or full."""
        run = self._open_run
        if run is None or run.topic is not topic or len(run.messages) >= RUN_COUNT_MAX:
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
            self._add_messages(Kind.PUBLISH, run.topic, run.messages, run.first_event_id)
            self.runs.append(run)

    def fire(self, topic: Topic, head: bytes, messages: Sequence[bytes]) -> int:
        """A delayed publish that is due; ``head`` repeats its due time and event id."""
        return self._single_run(Kind.FIRE, topic, messages, head)

    def append(self, topic: Topic, message: bytes) -> int:
        """A numbered message."""
        return self._single_run(Kind.APPEND, topic, [message], b"")

    def _single_run(self, kind: Kind, topic: Topic, messages: Sequence[bytes], head: bytes) -> int:
        self.close_run()
        run = Run(topic, self.next_event_id)
        run.messages = list(messages)
        self.next_event_id += len(messages)
        self._add_messages(kind, topic, run.messages, run.first_event_id, head)
        self.runs.append(run)
        return run.first_event_id

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
        numbers = hoisted(messages[0]) if kind == Kind.APPEND else (0, 0)
        self._add(block, len(messages), event_id, starts, lengths, topic.create_event_id, kind, numbers)

    def _add(
        self,
        block: bytes,
        count: int,
        event_id: int,
        starts: list[int],
        lengths: list[int],
        topic_id: int,
        kind: Kind,
        numbers: tuple[int, int] = (0, 0),
    ) -> None:
        frame = encode_frame(block, epoch=self.epoch, count=count, flushed_through=self._flushed_through)
        self._entries.append(
            pack_entries(
                event_id,
                starts,
                lengths,
                time_ms=self.now_ms,
                frame=self.position,
                topic=topic_id,
                kind=kind,
                message_id=numbers[0],
                key=numbers[1],
            )
        )
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
