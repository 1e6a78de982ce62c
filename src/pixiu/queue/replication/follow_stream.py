"""The journal as Pixiu's followers read it: frames as they are on disk, with the commit, and acks back."""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.follow import encode_frames, encode_state, encode_too_far, encode_truncate
from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import PixiuError
from pixiu.queue.replication.replica_stream import SEND_BYTES, JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection

log = logging.getLogger(__name__)

TELL_MS = 50
"""What is committed is told after so long, whatever is under way."""

_PROGRESS = Struct("<qI")
_STAMPED_PROGRESS = Struct("<qIq")
NO_STAMP = -1


class FollowStream:
    """One follower's connection, on the leader's side."""

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        name: str,
        heard: Callable[[int, int, int], None],
        gone: Callable[[], None],
        *,
        has_stamps: bool = False,
    ) -> None:
        """``has_stamps``: the follower asked for stamps, and echoes them."""
        self._has_stamps = has_stamps
        self._engine = engine
        self._connection = connection
        self.name = name
        self._heard = heard
        self._gone = gone
        self._reader: JournalReader | None = None
        self._told_commit = -1
        self._unread = b""
        self._is_closed = False
        self._durable = 0
        self._is_in_sync = False

    def status(self, last_event_id: int) -> dict[str, object]:
        """One line of the leader's status."""
        lag = max(last_event_id - self._durable, 0)
        return {"name": self.name, "durable_event_id": self._durable, "lag": lag, "in_sync": self._is_in_sync}

    def begin_after(self, event_id: int) -> None:
        """The journals match up to here: send what follows."""
        self._reader = JournalReader(self._engine, event_id)
        self._connection.wake_stream = self.send
        self._engine.scheduler.soon(self.send)

    def send_written(self, after: int, frames: bytes) -> None:
        """Send what was just written behind ``after``, if this follower has all that came before.

        Errors are left to ``send``.

        Called in the middle of a batch, so nothing here may change what the leader knows of its followers.
        """
        connection, reader, journal = self._connection, self._reader, self._engine.journal
        if reader is None or self._is_closed or not connection.can_write:
            return
        try:
            is_next = len(frames) <= SEND_BYTES and reader.pass_by(after)
            data = frames if is_next else reader.read(SEND_BYTES, journal.last_event_id)
        except (PixiuError, OSError):
            is_next, data = False, b""
        if data:
            self._write_frames(data)
        if not is_next:
            self._engine.scheduler.soon(self.send)  # there may be more, or an error to tell

    def send(self) -> None:
        """Send what the socket takes, one piece per turn of the loop, and how far it is committed."""
        connection, reader = self._connection, self._reader
        if reader is None or self._is_closed or not connection.can_write:
            return
        try:
            data = reader.read(SEND_BYTES, self._engine.journal.last_event_id)
        except (PixiuError, OSError) as error:
            log.error("cannot read the journal for a follower", extra={"reason": str(error)})
            connection.write(encode_refused(str(error)))
            self.cut()
            return
        if data or self._told_commit < self._engine.commit_event_id:
            self._write_frames(data)
        if data:
            self._engine.scheduler.soon(self.send)

    def _write_frames(self, data: bytes) -> None:
        engine = self._engine
        self._told_commit = engine.commit_event_id
        stamp_ms = engine.clock.monotonic_us() // 1000 if self._has_stamps else NO_STAMP
        self._connection.write(encode_frames(self._told_commit, data, stamp_ms))

    def tell_state(self, epoch: int, commit_event_id: int, *, in_sync: bool, leader: str, stamp_ms: int) -> None:
        """A heartbeat."""
        self._is_in_sync = in_sync
        stamp_ms = stamp_ms if self._has_stamps else NO_STAMP
        self._connection.write(encode_state(epoch, commit_event_id, in_sync=in_sync, leader=leader, stamp_ms=stamp_ms))

    def truncate_message(self, event_id: int, epoch: int) -> bytes:
        """Where the follower must cut."""
        return encode_truncate(event_id, epoch)

    def too_far_message(self, oldest_event_id: int) -> bytes:
        """That the follower needs a snapshot."""
        return encode_too_far(oldest_event_id)

    def receive(self, data: bytes) -> None:
        """What the follower has on disk, and the newest stamp that came to it."""
        report = _STAMPED_PROGRESS if self._has_stamps else _PROGRESS
        self._unread += data
        whole = len(self._unread) // report.size * report.size
        if whole:
            event_id, epoch, *stamps = report.unpack_from(self._unread, whole - report.size)
            self._unread = self._unread[whole:]
            self._durable = event_id
            self._heard(event_id, epoch, stamps[0] if stamps else NO_STAMP)

    def end(self, last_words: bytes) -> None:
        """The stream is over; the connection takes commands again."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.stream_ended(last_words, b"")
            self._gone()

    def cut(self) -> None:
        """Close the connection."""
        self._connection.close()

    def close(self) -> None:
        """The connection is gone."""
        if not self._is_closed:
            self._is_closed = True
            self._gone()


class FollowStreams(dict[int, FollowStream]):
    """All followers' connections, by session."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._is_telling = self._is_waiting = False

    def written(self, after: int, frames: bytes) -> None:
        """A batch is in the journal, not flushed yet: followers write and flush it while this disk does."""
        for stream in self.values():
            stream.send_written(after, frames)

    def tell_soon(self) -> None:
        """Something is flushed here, or committed: tell it a turn later, since answers that go out bring requests."""
        if self and not self._is_telling:
            self._is_telling = True
            soon = self._engine.scheduler.soon
            soon(lambda: soon(self._tell))

    def _tell(self) -> None:
        """Tell what is committed, unless more is under way: the next records bring it, or the next commit comes here.

        Nobody waits until a follower shows it, and a message for each commit would wake leader and followers almost
        twice as often under load.
        """
        self._is_telling = False
        engine = self._engine
        if not engine.writer.is_busy and engine.commit_event_id == engine.journal.last_event_id:
            self._tell_all()
        elif not self._is_waiting:
            self._is_waiting = True
            engine.scheduler.after(TELL_MS, self._waited)

    def _waited(self) -> None:
        self._is_waiting = False
        self._tell_all()

    def _tell_all(self) -> None:
        for stream in list(self.values()):
            stream.send()
