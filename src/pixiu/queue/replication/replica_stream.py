"""The journal as smss's followers read it: text blocks, one after the other, without acks.

Each stream keeps only its place. It sends what its socket takes, and is cut when it takes nothing for too long; the
writer never waits for it.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import EVENT_ID_BEYOND, EVENT_ID_FILE_GONE, RESERVED_PREFIX
from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import Gone, NotFound, PixiuError
from pixiu.queue.server.answers import ALIVE, OK
from pixiu.queue.storage.record import (
    SMSS_KINDS,
    Frame,
    Kind,
    decode_block,
    encode_block,
    read_frames,
)

if TYPE_CHECKING:
    from pixiu.ports.scheduler import Timer
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.segment import Segment

log = logging.getLogger(__name__)

SEND_BYTES = 256 * 1024

_LENGTH = Struct("<I")


class JournalReader:
    """A place in the journal that moves forward record by record."""

    def __init__(self, engine: Engine, after: int) -> None:
        self._engine = engine
        self._segment: Segment | None = None
        self._position = 0
        self.event_id = self._end_of_record(after)
        """The last event id that was read: always the last of a record."""

    def _end_of_record(self, after: int) -> int:
        """An id inside a record of several stands for the whole record. Raises if it is not here."""
        journal = self._engine.journal
        if after > journal.last_event_id:
            raise NotFound(EVENT_ID_BEYOND)
        if after == 0 or after == journal.first_event_id - 1:
            return journal.first_event_id - 1
        if after < journal.first_event_id:
            raise Gone(EVENT_ID_FILE_GONE)
        return journal.frame_of(after).last_event_id

    def pass_by(self, after: int) -> bool:
        """Go to the end, past what was just written behind ``after``; False if the place is another."""
        if self.event_id != after:
            return False
        journal = self._engine.journal
        self._segment, self._position = journal.tail, journal.tail.size
        self.event_id = journal.last_event_id
        return True

    def read(self, size_max: int, through: int) -> bytes:
        """Whole frames behind the place, none of them behind ``through``; empty at the end."""
        journal = self._engine.journal
        if self.event_id >= through:
            return b""
        segment = self._segment
        if segment is None or self._position >= segment.size or segment not in journal.segments:
            found = journal.record_after(self.event_id)
            if found is None:
                return b""
            segment, self._position = found
            self._segment = segment
        data = segment.read_bytes(self._position, size_max)
        end = 0
        for at, frame in read_frames(data):
            last = self.event_id + frame.count
            if last > through:
                break
            self.event_id = last
            end = at + frame.size
        self._position += end
        return data[:end]


class ReplicaStream:
    """One old follower."""

    def __init__(self, engine: Engine, connection: Connection, after: int) -> None:
        self._engine = engine
        self._connection = connection
        self._reader = JournalReader(engine, after)
        self._timer: Timer | None = None
        self._is_closed = False
        self._last_sent_us = engine.clock.monotonic_us()

    def start(self) -> None:
        """Send what is there, then what comes."""
        self._engine.counters.followers += 1
        self._engine.committed_hooks.append(self._send)
        self._connection.wake_stream = self._send
        self._arm(self._engine.settings.keep_alive_ms)
        self._engine.scheduler.soon(self._send)

    def receive(self, data: bytes) -> None:
        """Whatever an old follower sends means nothing."""

    def _send(self) -> None:
        """One piece per turn of the loop: whoever is served here takes no more than its share."""
        connection = self._connection
        if self._is_closed or not connection.can_write:
            return
        try:
            data = self._reader.read(SEND_BYTES, self._engine.commit_event_id)
        except (PixiuError, OSError) as error:
            log.error("cannot read the journal for a follower", extra={"reason": str(error)})
            self.close()
            connection.stream_ended(encode_refused(str(error)), b"")
            return
        if not data:
            return
        blocks = [block for _, frame in read_frames(data) if (block := self._block(frame)) is not None]
        self._last_sent_us = self._engine.clock.monotonic_us()
        connection.write(b"".join(OK + _LENGTH.pack(len(block)) + block for block in blocks))
        self._engine.scheduler.soon(self._send)

    def _block(self, frame: Frame) -> bytes | None:
        """What this follower may see of a record: Pixiu's own topics are for those who showed the node's key."""
        return smss_block(frame, with_reserved=self._connection.is_node)

    def _arm(self, wait_ms: float) -> None:
        """Look again after this time, and early enough to notice a socket that is full for too long."""
        patience_ms = self._engine.settings.replica_write_timeout_ms / 4
        self._timer = self._engine.scheduler.after(min(wait_ms, patience_ms), self._on_time)

    def _on_time(self) -> None:
        """Say that we are alive; cut a follower whose socket has been full for too long."""
        settings = self._engine.settings
        now_us = self._engine.clock.monotonic_us()
        if not self._connection.can_write:
            if now_us - self._connection.blocked_since_us > settings.replica_write_timeout_ms * 1000:
                log.warning("follower is stalled, cut off")
                self._connection.abort()
                return
            self._arm(settings.keep_alive_ms)
            return
        idle_ms = (now_us - self._last_sent_us) / 1000
        if idle_ms >= settings.keep_alive_ms:
            self._last_sent_us = now_us
            self._connection.write(ALIVE)
            idle_ms = 0
        self._arm(settings.keep_alive_ms - idle_ms)

    def close(self) -> None:
        """The follower is gone."""
        if not self._is_closed:
            self._is_closed = True
            self._engine.counters.followers -= 1
            self._engine.committed_hooks.remove(self._send)
            if self._timer is not None:
                self._timer.cancel()


def smss_block(frame: Frame, *, with_reserved: bool) -> bytes | None:
    """The block as smss knows it; None for what it has no word for, and for what is not its business."""
    record = decode_block(frame.block)
    if record.topic.startswith(RESERVED_PREFIX) and not with_reserved:
        return None
    if record.kind in SMSS_KINDS:
        return frame.block
    if record.kind == Kind.APPEND:
        return encode_block(
            Kind.PUBLISH,
            record.event_id,
            record.topic,
            record.payload,
            write_ms=record.write_ms,
            receive_ms=record.receive_ms,
        )
    return None
