"""What the queue does by itself: fire delays, end lifetimes, log positions, drop old segments, make checkpoints.

Every change goes through the writer as a record, so it is ordered, replicated and recovered like any request. On a
follower the same objects exist and stay quiet: the leader's records tell it what happened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import RESERVED_PREFIX
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import PixiuError
from pixiu.queue.delays import FIRE_AT_ONCE_MAX, HEAD, Alarm, Delayed, SteadyClock
from pixiu.queue.operations import Change
from pixiu.queue.positions import pack_rows
from pixiu.queue.storage.record import Kind
from pixiu.queue.storage.retention import Retention

if TYPE_CHECKING:
    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.storage.topics import Topic

log = logging.getLogger(__name__)

POSITIONS_EVERY_MS = 1000
RETRY_MS = 1000
"""How soon to try again what the writer refused, for want of space or of a leader."""


class Background:
    """Timers around one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.steady = SteadyClock(engine.clock)
        settings = engine.all_settings
        self._delay_alarm = Alarm(
            engine.scheduler, self._fire_due, self.steady.now_ms, look_again_ms=settings.delays.scan_interval_ms
        )
        self._lifetime_alarm = Alarm(
            engine.scheduler,
            self._collect_expired,
            engine.clock.now_ms,
            look_again_ms=settings.lifetimes.scan_interval_ms,
        )
        self._retention = Retention(engine)
        self._firing: set[int] = set()
        """Delays on their way through the writer: fired or cancelled, not to be touched again."""
        self._retry_at_ms = 0
        self._collecting: set[bytes] = set()
        self._checkpoint_bytes = settings.journal.checkpoint_bytes
        self._bytes_at_checkpoint = 0
        self._is_checkpointing = False
        self._checkpoint_through = 0
        self._durable_through = 0
        self._is_stopped = True

    def start(self) -> None:
        """Begin. A follower starts too, and acts only once it leads."""
        engine = self._engine
        self._is_stopped = False
        settings = engine.all_settings
        self._retry_at_ms = self.steady.now_ms() + settings.delays.first_scan_ms
        self._delay_alarm.set(self._retry_at_ms)
        self._lifetime_alarm.set(engine.clock.now_ms())
        engine.scheduler.after(POSITIONS_EVERY_MS, self._log_positions_on_time)
        engine.scheduler.after(settings.topics.retention_interval_ms, self._retain_on_time)
        engine.scheduler.after(settings.journal.checkpoint_interval_ms, self._checkpoint_on_time)

    def leads(self) -> None:
        """Look for delays and topics that came from other leaders, now that this node leads.

        A leader with nothing to fire has no timer, and a follower sets none for what it copies.
        """
        if not self._is_stopped:
            self._delay_alarm.set(self.steady.now_ms())
            self._lifetime_alarm.set(self._engine.clock.now_ms())

    def stop(self) -> None:
        """No more timers."""
        self._is_stopped = True
        self._delay_alarm.stop()
        self._lifetime_alarm.stop()

    def written(self) -> None:
        """Something was committed: is a checkpoint due?"""
        if self._engine.counters.bytes_written - self._bytes_at_checkpoint >= self._checkpoint_bytes:
            self.checkpoint()

    # Delays.

    def delay_added(self, due_ms: int) -> None:
        """Something new waits."""
        self._delay_alarm.set(due_ms)

    def _fire_due(self) -> int | None:
        engine = self._engine
        now_ms = self.steady.now_ms()
        if self._is_stopped:
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms
        if not engine.is_leader:
            return now_ms + RETRY_MS
        for delayed in engine.state.delays.due(now_ms):
            if delayed.event_id in self._firing:
                continue
            if len(self._firing) >= FIRE_AT_ONCE_MAX:
                return now_ms + 1
            self._firing.add(delayed.event_id)
            self._submit_fire(delayed)
        following = engine.state.delays.next_due()
        return None if following is None else max(following, now_ms + 1)

    def _submit_fire(self, delayed: Delayed) -> None:
        def sequence(batch: Batch) -> bytes:
            self._sequence_fire(delayed, batch)
            return b""

        def failed() -> None:
            self._firing.discard(delayed.event_id)
            self._retry_at_ms = self.steady.now_ms() + RETRY_MS

        self._engine.writer.submit(Change(None, sequence, failed=failed), len(delayed.payload))

    def _sequence_fire(self, delayed: Delayed, batch: Batch) -> None:
        """Publish it, or drop it if its topic has ended or it was cancelled meanwhile."""
        engine = self._engine
        event_id = delayed.event_id
        batch.changes.on_undo(lambda: self._firing.discard(event_id))
        batch.changes.on_commit(lambda: self._fired(delayed))
        topic = engine.topics.get(delayed.topic)
        messages = split_messages(delayed.payload)
        if topic is None or topic.is_gone(batch.now_ms) or messages is None:
            head = HEAD.pack(delayed.due_ms, event_id)
            batch.change(Kind.CANCEL, delayed.topic, head)
        else:
            batch.fire(topic, HEAD.pack(delayed.due_ms, event_id), messages)
            engine.counters.delays_fired += 1
            late_ms = max(self.steady.now_ms() - delayed.due_ms, 0)
            engine.counters.delay_lateness_seconds.observe(late_ms / 1000)
        engine.state.delays.remove(delayed.due_ms, event_id, batch.changes)

    def _fired(self, delayed: Delayed) -> None:
        self._firing.discard(delayed.event_id)
        self._delay_alarm.set(self.steady.now_ms())

    def cancel_delay(self, event_id: int, batch: Batch, *, with_reserved: bool) -> bool:
        """Number the end of a delay before it fires. False if it does not wait, or is on its way already."""
        delays = self._engine.state.delays
        due_ms = delays.due_of(event_id)
        if due_ms is None or event_id in self._firing:
            return False
        delayed = delays.get(due_ms, event_id)
        if delayed is None or (delayed.topic.startswith(RESERVED_PREFIX) and not with_reserved):
            return False
        self._firing.add(event_id)
        batch.change(Kind.CANCEL, b"", HEAD.pack(due_ms, event_id))
        delays.remove(due_ms, event_id, batch.changes)
        batch.changes.on_undo(lambda: self._firing.discard(event_id))
        batch.changes.on_commit(lambda: self._firing.discard(event_id))
        return True

    # Lifetimes.

    def topic_created(self, expires_at: int) -> None:
        """A topic with a lifetime."""
        if expires_at:
            self._lifetime_alarm.set(expires_at)

    def _collect_expired(self) -> int | None:
        engine = self._engine
        now_ms = engine.clock.now_ms()
        if self._is_stopped:
            return None
        if not engine.is_leader:
            return now_ms + RETRY_MS
        for name in list(engine.topics.expired(now_ms)):
            topic = engine.topics.get(name)
            if topic is not None and topic.is_committed and name not in self._collecting:
                self._collecting.add(name)
                self._submit_end(topic)
        following = engine.topics.next_expiry()
        if following is None:
            return None
        return max(following, now_ms + RETRY_MS) if following <= now_ms else following

    def _submit_end(self, topic: Topic) -> None:
        def sequence(batch: Batch) -> bytes:
            self._collecting.discard(topic.name)
            if not topic.is_deleted:
                end_topic(self._engine, topic, batch)
                self._engine.counters.topics_expired += 1
            return b""

        def forget() -> None:
            self._collecting.discard(topic.name)

        self._engine.writer.submit(Change(None, sequence, failed=forget), 64)

    # Positions of named subscribers.

    def _log_positions_on_time(self) -> None:
        if not self._is_stopped:
            self.log_positions()
            self._engine.scheduler.after(POSITIONS_EVERY_MS, self._log_positions_on_time)

    def log_positions(self) -> None:
        """Write down what moved."""
        positions = self._engine.state.positions
        if not positions.moved or not self._engine.is_leader:
            return
        moved, positions.moved = positions.moved, {}
        by_topic: dict[Topic, list[tuple[bytes, int]]] = {}
        for (topic, name), event_id in moved.items():
            by_topic.setdefault(topic, []).append((name, event_id))
        for topic, rows in by_topic.items():
            self._engine.writer.submit(position_change(self._engine, topic, rows), 64 * len(rows))

    # Checkpoints.

    def _checkpoint_on_time(self) -> None:
        if not self._is_stopped:
            self.checkpoint()
            interval_ms = self._engine.all_settings.journal.checkpoint_interval_ms
            self._engine.scheduler.after(interval_ms, self._checkpoint_on_time)

    def checkpoint(self) -> None:
        """Make topic logs and store durable through what is committed now, beside the loop."""
        engine = self._engine
        through, before = engine.commit_event_id, self._checkpoint_through
        dead = list(engine.topics.dead)
        has_news = through != self._checkpoint_through or dead
        if not has_news or self._is_checkpointing or self._is_stopped or engine.behind_count or engine.writer.poisoned:
            return
        self._is_checkpointing = True
        self._bytes_at_checkpoint = engine.counters.bytes_written
        paths, ends = engine.topics.unflushed()
        tail = engine.journal.tail
        paths.append(tail.index_path)
        removed: list[int] = []

        def work() -> None:
            engine.files.flush_paths(paths)
            tail.flush()
            engine.state.store.flush()
            removed.extend(engine.topics.remove_dead(dead))

        def done(error: BaseException | None) -> None:
            self._is_checkpointing = False
            if self._is_stopped or engine.writer.poisoned:
                return
            if isinstance(error, OSError):
                engine.writer.flush_failed(error)
                return
            try:
                if error is not None:
                    raise error
                self._durable_through = before  # the flush was of the store as the last checkpoint has left it
                engine.state.save_checkpoint(through, ends, removed)
            except PixiuError as failure:
                log.warning("checkpoint failed, will try again", extra={"reason": str(failure)})
                return
            self._checkpoint_through = through
            engine.counters.checkpoints += 1
            if removed and engine.topics.dead:
                self.checkpoint()

        engine.scheduler.offload(work, done)

    @property
    def checkpoint_event_id(self) -> int:
        """What a restart would not have to replay, even after a power loss."""
        return self._durable_through

    # Retention.

    def _retain_on_time(self) -> None:
        if not self._is_stopped:
            self._retention.run()
            interval_ms = self._engine.all_settings.topics.retention_interval_ms
            self._engine.scheduler.after(interval_ms, self._retain_on_time)


def end_topic(engine: Engine, topic: Topic, batch: Batch) -> int:
    """Number the end of a topic, by command or by lifetime. Its files go with the checkpoint that follows."""
    event_id = batch.change(Kind.DELETE, topic.name, b"", topic_id=topic.create_event_id)
    engine.state.delete_topic(topic, batch.changes)
    batch.changes.on_commit(lambda: engine.scheduler.soon(engine.background.checkpoint))
    return event_id


def position_change(engine: Engine, topic: Topic, rows: list[tuple[bytes, int]]) -> Change:
    """A change that stores positions of one topic; nobody is answered."""

    def sequence(batch: Batch) -> bytes:
        if not topic.is_deleted:
            payload = pack_rows(rows)
            batch.change(Kind.POSITION, topic.name, payload, topic_id=topic.create_event_id)
            engine.state.positions.apply(topic, payload, batch.changes)
        return b""

    return Change(None, sequence)
