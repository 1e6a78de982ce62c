"""The committed journal, for a replica that repairs a damaged record: frames as they are on disk.

A stream keeps only its place. It sends what its socket takes. A slow reader is waited for, and disconnected when it
takes nothing for too long. Records that are not committed are not sent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import LEADER_DECIDES, LOG_BEGINS_BEHIND, LOG_ENDS_BEFORE
from pixiu.machines.queue_wire.follow import encode_frames
from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import Gone, NotFound, PixiuError
from pixiu.queue.replication.replica_stream import SEND_BYTES

if TYPE_CHECKING:
    from pixiu.ports.scheduler import Timer
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.replica_stream import JournalReader
    from pixiu.queue.server.connection import Connection

__all__ = ["FeedStream", "whole_records_before"]

log = logging.getLogger(__name__)

BEAT_MS = 500
"""How often an idle stream says that it is there, and how far the log is committed."""


class FeedStream:
    """The connection of one reader."""

    def __init__(self, engine: Engine, connection: Connection, reader: JournalReader) -> None:
        self._engine = engine
        self._connection = connection
        self._reader = reader
        self._timer: Timer | None = None
        self._is_closed = False

    def start(self) -> None:
        """Send what is there, then what comes."""
        self._engine.counters.followers += 1
        self._engine.committed_hooks.append(self.send)
        self._connection.wake_stream = self.send
        self._beat()
        self._engine.scheduler.soon(self.send)

    def receive(self, data: bytes) -> None:
        """A reader sends nothing."""

    def send(self) -> None:
        """One piece per turn of the loop: whoever is served here takes no more than its share."""
        connection, engine = self._connection, self._engine
        if self._is_closed or not connection.can_write:
            return
        if not engine.is_leader:
            self._end(LEADER_DECIDES)
            return
        try:
            data = self._reader.read(SEND_BYTES, engine.commit_event_id)
        except (PixiuError, OSError) as error:
            log.error("journal_not_read", extra={"reason": str(error)})
            self._end(str(error))
            return
        if data:
            connection.write(encode_frames(engine.commit_event_id, data))
            engine.scheduler.soon(self.send)

    def _beat(self) -> None:
        """Say that we are alive, and notice that we lead no more, or that nobody reads."""
        connection, engine = self._connection, self._engine
        if not connection.can_write:
            waited_us = engine.clock.monotonic_us() - connection.blocked_since_us
            if waited_us > engine.settings.replica_write_timeout_ms * 1000:
                log.warning("feed_disconnected")
                connection.abort()
                return
        elif not engine.is_leader:
            self._end(LEADER_DECIDES)
            return
        else:
            connection.write(encode_frames(engine.commit_event_id, b""))
        self._timer = engine.scheduler.after(BEAT_MS, self._beat)

    def _end(self, reason: str) -> None:
        self.close()
        self._connection.stream_ended(encode_refused(reason), b"")

    def close(self) -> None:
        """The reader is gone."""
        if not self._is_closed:
            self._is_closed = True
            self._engine.counters.followers -= 1
            self._engine.committed_hooks.remove(self.send)
            if self._timer is not None:
                self._timer.cancel()


def whole_records_before(engine: Engine, after: int) -> int:
    """Where to begin for a reader that may stand in the middle of a record of many: that whole record comes again."""
    journal = engine.journal
    if after > journal.last_event_id:
        raise NotFound(f"{LOG_ENDS_BEFORE}: {journal.last_event_id} is before {after}")
    if after < journal.first_event_id - 1:
        raise Gone(f"{LOG_BEGINS_BEHIND}: events up to {journal.first_event_id - 1} are gone")
    return after if after == journal.last_event_id else journal.frame_of(after + 1).event_id - 1
