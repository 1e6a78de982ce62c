"""The one writer: it alone numbers and appends.

Requests that arrive in one turn of the loop are committed together: numbered, encoded, written with one call, flushed
with one fdatasync, answered at once. While a slow disk flushes, the next batch fills. Nothing is shown to subscribers
or answered before the journal holds it as durably as the flush level asks::

    parse -> submit -> [ number -> write -> flush, and in-sync followers ] -> topic logs, store, answers, wake-ups

Bounds: what waits is at most ``pending_bytes_max`` bytes; beyond that connections are not read from until it drains.
At most two batches wait for followers; what comes meanwhile makes the next one larger (``gathering``).
After a failed write the batch is cut away and refused, and the next is tried; after a failed *flush* nothing more is
accepted until a restart, since nobody can know what the disk holds.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import TOPIC_NOT_EXIST
from pixiu.machines.queue_wire.responses import encode_done, encode_refused
from pixiu.model.errors import PixiuError
from pixiu.queue.batch import RUN_COUNT_MAX, Batch
from pixiu.queue.gathering import Gathering
from pixiu.queue.operations import NOBODYS, Answer, Change, Plain, Publish, answer_each, refusals_of
from pixiu.queue.server.answers import OK
from pixiu.queue.storage.record import Kind
from pixiu.queue.writer_log import WriterLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.metrics import QueueCounters
    from pixiu.queue.operations import Operation, PlainPublish
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.topics import Topic

log = logging.getLogger(__name__)

INLINE_FLUSH_MS_MAX = 2.0
"""A flush that takes longer than this on average runs beside the loop."""

PROBE_MS = 1000
"""How often to try whether the journal can be written again."""

STALL_MS = 1000
"""How soon to try again what the store refused."""

_MISSING = encode_refused(TOPIC_NOT_EXIST)
_REFUSED = _MISSING[:2]


class Writer:
    """Drains what waits, once per turn of the loop."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        scheduler: Scheduler,
        counters: QueueCounters,
        *,
        flush: str,
        flush_interval_ms: int,
        pending_bytes_max: int,
        sample_every: int,
        commit: Callable[[Batch], None],
        flushed: Callable[[int], int],
        refusal: Callable[[], str | None],
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._scheduler = scheduler
        self._counters = counters
        self._is_always = flush == "always"
        self._is_interval = flush == "interval"
        self._flush_interval_ms = flush_interval_ms
        self._pending_bytes_max = pending_bytes_max
        self._log = WriterLog(clock, counters, sample_every=sample_every)
        self._commit_batch = commit
        self._flushed_hook = flushed
        self._refusal = refusal
        self.epoch = 0
        self.committed_through = 0
        self._operations: list[Operation] = []
        self.plain = NOBODYS
        """The last operation, if it is plain: who sends the like may add to it."""
        self.last: Operation | None = None
        """What waits behind everything else; None when nothing waits."""
        self._pending_bytes = 0
        self._is_scheduled = False
        self._is_flushing = False
        self._flush_timer_set = False
        self._flush_ms = 0.0
        self._uncommitted: deque[Batch] = deque()
        self._uncommitted_bytes = 0
        self._gathering = Gathering()
        self._paused: list[Connection] = []
        self.followers: Sized = ()
        """Those that each batch is sent to."""
        self.written_hook: Callable[[int, bytes], object] = lambda after, frames: None
        """Followers: given what the journal has more, behind which event id, before it is flushed here."""
        self.poisoned: str | None = None
        """Why nothing is accepted any more."""
        self.failing: str | None = None
        """Why the last write to the journal was refused by the disk; None once one succeeds."""
        self.stalled: str | None = None
        """Why everything waits: what is durable cannot be shown."""

    @property
    def next_event_id(self) -> int:
        """The id that the next record gets."""
        return max(self._journal.last_event_id, self._uncommitted[-1].last_event_id if self._uncommitted else 0) + 1

    @property
    def is_busy(self) -> bool:
        """Does anything wait to be written?"""
        return bool(self._operations)

    @property
    def pending_bytes(self) -> int:
        """What waits for its turn."""
        return self._pending_bytes + self.plain.room_at_first - self.plain.room

    def submit(self, operation: PlainPublish | Publish | Change | Answer, size: int) -> None:
        """Take an operation into the next batch."""
        self._close_plain()
        self._operations.append(operation)
        self.last = operation
        self._pending_bytes += size
        if self._pending_bytes + self._uncommitted_bytes > self._pending_bytes_max:
            connection = operation[0] if isinstance(operation, tuple) else operation.connection
            if connection is not None:
                self.pause(connection)
        self.run_soon()

    def submit_plain(self, connection: Connection, topic: Topic, message: bytes, size: int) -> None:
        """Take a request with one small message, and let others add theirs to the same operation."""
        plain = self.plain
        if plain.topic is not topic:
            self._close_plain()
            room = self._pending_bytes_max - self._pending_bytes - self._uncommitted_bytes
            plain = self.plain = Plain(topic, room)
            self._operations.append(plain)
            self.last = plain
        plain.messages.append(message)
        plain.connections.append(connection)
        plain.room -= size
        if plain.room < 0:
            self.pause(connection)
        self.run_soon()

    def grow(self, size: int) -> None:
        """The last operation has grown by so much. Its owner bounds what it has under way itself."""
        self._pending_bytes += size

    def _close_plain(self) -> None:
        """Nothing more is added to the last operation; its bytes count as those of any other."""
        plain, self.plain = self.plain, NOBODYS
        self._pending_bytes += plain.room_at_first - plain.room

    def pause(self, connection: Connection) -> None:
        """More waits than may: do not read from this one until there is room."""
        if connection.pause():
            self._paused.append(connection)

    def run_soon(self) -> None:
        """Look at what waits, in the next turn of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if self._is_flushing or self.stalled or not self._operations:
            return
        if self.followers and self._gathering.grows(self.pending_bytes):
            self.run_soon()
            return
        if self._awaits_followers:
            return
        self._close_plain()
        self._gathering.left(self._pending_bytes)
        operations, self._operations = self._operations, []
        self.last = None
        self._pending_bytes = 0
        self._resume_paused()
        reason = self.poisoned or self._refusal()
        if reason is not None:
            self._refuse(operations, reason)
            return
        next_event_id = self.next_event_id
        try:
            if self._journal.is_full:
                self._journal.flush()
        except OSError as error:
            self._operations = operations
            self.flush_failed(error)
            return
        try:
            position = self._journal.begin(next_event_id)
        except OSError as error:
            self.write_failed(error)
            self._refuse(operations, f"cannot write: {error.strerror or error}")
            return
        batch = Batch(
            next_event_id=next_event_id,
            position=position,
            epoch=self.epoch,
            flushed_through=self._journal.flushed_through,
            now_ms=self._clock.now_ms(),
        )
        self._number(operations, batch)
        if batch.is_empty:
            self._uncommitted.append(batch)
            self._release(self.committed_through)
            return
        self._write(operations, batch)

    @property
    def _awaits_followers(self) -> bool:
        """Is as much under way as may be? What would be refused has nothing to wait for."""
        if self._gathering.may_leave(self.pending_bytes, len(self._uncommitted)):
            return False
        return not (self.poisoned or self._refusal())

    def _resume_paused(self) -> None:
        """Read again from those who had to wait, once there is room for what they send."""
        if self._paused and self._pending_bytes + self._uncommitted_bytes <= self._pending_bytes_max:
            paused, self._paused = self._paused, []
            for connection in paused:
                connection.resume()

    def _number(self, operations: list[Operation], batch: Batch) -> None:
        """Give every operation its event ids and its answer, in order."""
        now_ms = batch.now_ms
        replies = batch.replies
        topic: Topic | None = None
        messages: list[bytes] = []
        for operation in operations:
            if type(operation) is Plain:
                topic = None
                self._number_plain(operation, batch)
            elif type(operation) is tuple:
                if operation[2] is not topic or len(messages) >= RUN_COUNT_MAX:
                    topic = operation[2]
                    if topic.is_gone(now_ms):
                        replies.append((operation[0], _MISSING * (len(operation[1]) // len(OK))))
                        topic = None
                        continue
                    messages = batch.run_of(topic)
                messages += operation[3]
                replies.append(operation)
            else:
                topic = None
                self._number_one(operation, batch)
        batch.close_run()

    def _number_plain(self, plain: Plain, batch: Batch) -> None:
        """Any number of small messages for one topic, without a look at each."""
        topic = plain.topic
        if topic is None or topic.is_gone(batch.now_ms):
            batch.replies.extend(zip(plain.connections, repeat(_MISSING)))
            return
        at, messages = 0, plain.messages
        while at < len(messages):
            run = batch.run_of(topic)
            end = at + RUN_COUNT_MAX - len(run)
            run += messages[at:end]
            at = end
        batch.replies.extend(zip(plain.connections, repeat(OK)))

    def _number_one(self, operation: Operation, batch: Batch) -> None:
        """Any operation but the plainest."""
        replies = batch.replies
        if type(operation) is Publish:
            if operation.topic.is_gone(batch.now_ms):
                replies.append((operation.connection, _MISSING))
                return
            event_id = batch.publish(operation.topic, operation.messages)
            replies.append((operation.connection, encode_done(event_id) if operation.ask else OK))
        elif type(operation) is Answer:
            replies.append((operation.connection, operation.data))
        elif isinstance(operation, Change):
            batch.request_count += 1
            try:
                reply = operation.sequence(batch)
            except (PixiuError, OSError) as error:
                self._counters.refused += 1
                reply = encode_refused(str(error))
            if operation.connection is not None:
                replies.append((operation.connection, reply))

    def _write(self, operations: list[Operation], batch: Batch) -> None:
        after, frames = self._journal.last_event_id, batch.frames()
        try:
            self._journal.append(frames, batch.entries(), batch.last_event_id)
        except OSError as error:
            batch.changes.undone()
            self.write_failed(error, len(frames))
            if self._journal.is_torn:
                self._operations = operations
                self.flush_failed(error)
            else:
                self._refuse(operations, f"cannot write: {error.strerror or error}")
            return
        self.failing = None
        counters = self._counters
        counters.batches += 1
        counters.bytes_written += len(frames)
        self._log.written(batch)
        batch.written()
        self._uncommitted_bytes += batch.size
        self._uncommitted.append(batch)
        self.written_hook(after, frames)
        if not self._is_always and batch.changes.is_empty:
            # What changes the store is flushed first at every level: after a power cut the store may hold less than the
            # journal, never more.
            self._release_flushed(batch.last_event_id)
            if self._is_interval:
                self._flush_later()
        elif self._flush_ms <= INLINE_FLUSH_MS_MAX:
            self._flush_inline(batch.last_event_id)
        else:
            self._flush_beside(batch.last_event_id)

    def write_failed(self, error: OSError, size: int = 0) -> None:
        """The disk has refused a write: the node is not ready until one succeeds, this writer's or a probe."""
        self._log.failed(error, size)
        if self.failing is None:
            self._scheduler.after(PROBE_MS, self._probe)
        self.failing = f"the journal cannot be written: {error.strerror or error}"

    def _probe(self) -> None:
        """Clients of a node that is not ready may send nothing: find out without them whether the disk works again."""
        if self.failing is None or self.poisoned:
            return
        try:
            self._journal.probe(self.next_event_id)
        except OSError as error:
            self.failing = f"the journal cannot be written: {error.strerror or error}"
            self._scheduler.after(PROBE_MS, self._probe)
        else:
            self.failing = None

    def _flush_inline(self, through: int) -> None:
        started = self._clock.monotonic_us()
        try:
            self._journal.flush()
        except OSError as error:
            self.flush_failed(error)
            return
        self._measure_flush(started)
        self._release_flushed(through)

    def _flush_beside(self, through: int) -> None:
        self._is_flushing = True
        started = self._clock.monotonic_us()
        segment = self._journal.tail

        def done(error: BaseException | None) -> None:
            self._is_flushing = False
            if error is not None:
                self.flush_failed(error)
                return
            self._journal.flush_ended(through)
            self._measure_flush(started)
            self._release_flushed(through)
            if self._operations and not self._is_scheduled:
                self._run()

        self._scheduler.offload(segment.flush, done)

    def _flush_on_time(self) -> None:
        """Flush level "interval": everything written is on disk at most one interval later."""
        if self._is_flushing or self.poisoned:
            self._flush_timer_set = False
            return
        through = self._journal.last_event_id
        started = self._clock.monotonic_us()
        segment = self._journal.tail

        def done(error: BaseException | None) -> None:
            self._flush_timer_set = False
            if error is not None:
                self.flush_failed(error)
                return
            self._journal.flush_ended(through)
            self._measure_flush(started)
            if self._journal.last_event_id > through:
                self._flush_later()

        self._scheduler.offload(segment.flush, done)

    def _measure_flush(self, started_us: int) -> None:
        took_ms = (self._clock.monotonic_us() - started_us) / 1000
        self._flush_ms += (took_ms - self._flush_ms) / 16
        self._counters.flush_seconds.observe(took_ms / 1000)

    def flush_failed(self, error: BaseException) -> None:
        """Nobody knows what the disk holds now: accept nothing, answer everyone, wait for a person."""
        self.poisoned = f"the disk failed while flushing ({error}); restart the queue once the disk is well"
        log.error("journal flush failed", extra={"reason": str(error)})
        self._answer_all(self._uncommitted, self.poisoned)
        self._uncommitted.clear()
        self._uncommitted_bytes = 0
        self._close_plain()
        operations, self._operations = self._operations, []
        self.last = None
        self._refuse(operations, self.poisoned)

    def _answer_all(self, batches: Iterable[Batch], reason: str) -> None:
        """Answer every request of these batches with one error; one that was refused already stays refused."""
        frame = encode_refused(reason)
        replies: list[tuple[Connection, bytes]] = []
        for batch in batches:
            for reply in batch.replies:
                answer = frame * (len(reply[1]) // len(OK)) if len(reply) == 4 else frame
                replies.append((reply[0], reply[1] if reply[1].startswith(_REFUSED) else answer))
        answer_each(replies, self._scheduler.soon)

    def _refuse(self, operations: list[Operation], reason: str) -> None:
        """Answer every operation with one error, behind the answers that its connection waits for."""
        waiting = {id(reply[0]) for batch in self._uncommitted for reply in batch.replies}
        for connection, data in refusals_of(operations, encode_refused(reason)):
            if id(connection) in waiting:
                self._uncommitted[-1].replies.append((connection, data))
            else:
                answer_each([(connection, data)], self._scheduler.soon)

    def _release_flushed(self, through: int) -> None:
        """The journal holds everything through here as asked; is it committed, or do followers come first?"""
        self._release(self._flushed_hook(through))

    def _release(self, through: int) -> None:
        """Show and answer every batch that is committed."""
        if through > self.committed_through:
            self.committed_through = through
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].last_event_id <= through:
            batch = uncommitted[0]
            try:
                self._commit_batch(batch)
            except PixiuError as error:
                self._stall(error)
                return
            uncommitted.popleft()
            self._uncommitted_bytes -= batch.size
            answer_each(batch.replies, self._scheduler.soon)
        self._resume_paused()
        if self._operations:
            self.run_soon()

    def _stall(self, error: PixiuError) -> None:
        """The store takes nothing, most likely for want of space: let everyone wait, and try again."""
        log.error("cannot commit, will try again", extra={"reason": str(error)})
        self.stalled = f"cannot write: {error}"
        self._journal.give_back()

        def again() -> None:
            self.stalled = None
            self._release(self.committed_through)
            if self._operations and not self._is_scheduled:
                self._run()

        self._scheduler.after(STALL_MS, again)

    def committed(self, through: int) -> None:
        """Followers have it too (or it is settled that they need not)."""
        self._release(through)

    def fail_uncommitted(self, reason: str) -> None:
        """This node leads no more: what waited for followers may or may not have happened."""
        failed, self._uncommitted = self._uncommitted, deque()
        self._uncommitted_bytes = 0
        for batch in reversed(failed):
            batch.changes.undone()
        self._answer_all(failed, reason)
        self.run_soon()

    def open_epoch(self, epoch: int, event_ids: int, payload: bytes) -> None:
        """Append and flush the record that opens an epoch. It takes up ``event_ids`` ids."""
        next_event_id = self.next_event_id
        batch = Batch(
            next_event_id=next_event_id,
            position=self._journal.begin(next_event_id),
            epoch=epoch,
            flushed_through=self._journal.flushed_through,
            now_ms=self._clock.now_ms(),
        )
        batch.change(Kind.EPOCH, b"", payload, count=event_ids)
        self._journal.append(batch.frames(), batch.entries(), batch.last_event_id)
        self._journal.flush()
        self._uncommitted.append(batch)

    def copied(self) -> None:
        """Frames of a leader were appended: flush them as the level asks."""
        if self._is_always:
            try:
                self._journal.flush()
            except OSError as error:
                self.flush_failed(error)
        elif self._is_interval:
            self._flush_later()

    def _flush_later(self) -> None:
        if not self._flush_timer_set:
            self._flush_timer_set = True
            self._scheduler.after(self._flush_interval_ms, self._flush_on_time)

    def when_flushed(self, call: Callable[[], object]) -> None:
        """Run ``call`` when everything accepted so far is on disk, whatever the flush level."""
        if self._operations or self._is_flushing or self._uncommitted:
            self._scheduler.after(1, lambda: self.when_flushed(call))
            return
        if self._journal.is_dirty:
            try:
                self._journal.flush()
            except OSError as error:
                self.flush_failed(error)
        call()
