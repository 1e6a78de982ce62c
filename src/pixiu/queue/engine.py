"""The queue without its network: journal, derived state, writer, background work.

``Engine`` puts the parts together and keeps three promises between them: nothing is shown before the writer has
committed it, derived state is made durable by checkpoints so that a restart replays little, and background work
(delays, lifetimes, retention) changes things only through the writer, as records.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import NotAllowed, NotFound, NotLeader, PixiuError
from pixiu.model.ids import Snowflakes
from pixiu.queue.background import Background
from pixiu.queue.metrics import QueueCounters
from pixiu.queue.replication.copies import Copies, Copy
from pixiu.queue.server.key_refusals import KeyRefusals
from pixiu.queue.server.subscriptions import Subscriptions
from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.filling import Filler
from pixiu.queue.storage.journal import Journal
from pixiu.queue.storage.keys import Numbers, RecentKeys
from pixiu.queue.storage.messages import number_and_key
from pixiu.queue.storage.record import MESSAGE_KINDS, Kind, decode_block
from pixiu.queue.storage.recovery import find_end
from pixiu.queue.storage.redact import finish_redaction
from pixiu.queue.storage.segment import entries_of
from pixiu.queue.storage.state import FLUSHED_KEY, State, epoch_payload, pack_number
from pixiu.queue.storage.topics import Topic, Topics
from pixiu.queue.storage.windows import Windows
from pixiu.queue.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pixiu.config import Settings
    from pixiu.ports.clock import Clock
    from pixiu.ports.files import Files
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.batch import Batch
    from pixiu.queue.replication.driver import Replication
    from pixiu.queue.replication.smss_follower import SmssFollower
    from pixiu.queue.storage.record import Frame, Record
    from pixiu.queue.tail import Tail

log = logging.getLogger(__name__)

SPACE_LOOK_MS = 200
NOTE_EVERY_MS = 50
"""A batch that changes nothing in the store notes how far it is at most this often: the note may lag, never lead."""


if TYPE_CHECKING:
    PublishElsewhere = Callable[[bytes, list[bytes], bool, Callable[[int | PixiuError], object]], object]
    """Called with the topic, the messages, whether the connection has shown a key, and what takes the event id."""


class Engine:
    """One queue."""

    def __init__(
        self,
        settings: Settings,
        files: Files,
        store: KeyValue,
        clock: Clock,
        scheduler: Scheduler,
        *,
        key: str = "",
    ) -> None:
        self.all_settings = settings
        self.settings = settings.queue
        self.files = files
        self.clock = clock
        self.scheduler = scheduler
        self.node_keys: tuple[str, ...] = (key,) if key else ()
        """Whoever shows one of them is a part of Pixiu."""
        self.key_refusals = KeyRefusals(clock)
        self.follower_keys: tuple[str, ...] = ()
        """The cluster's secrets: the first is shown to a leader. With any, only who shows a key gets a copy of all."""
        self.join_asked: Callable[[str, str, Callable[[bytes], object]], object] | None = None
        """A registry, and the file of its secret: told by whoever wants this node's log there."""
        self.counters = QueueCounters()
        self.journal = Journal(files, segment_bytes=settings.journal.segment_bytes)
        self.topics = Topics(
            files, store, segment_bytes=settings.topics.segment_bytes, open_max=settings.queue.open_topics_max
        )
        self.state = State(store, self.topics)
        self.windows = Windows(limit_bytes=settings.queue.read_cache_bytes)
        self.subscriptions = Subscriptions(
            self.topics, self.windows, self.state.positions, clock, scheduler, self.counters,
            keep_alive_ms=settings.queue.keep_alive_ms,
        )  # fmt: skip
        self.keys = RecentKeys(limit=settings.queue.keys_max, read_back=self._keys_between, now_us=clock.monotonic_us)
        self.snowflakes = Snowflakes(settings.queue.node_id)
        self.writer = Writer(
            self.journal, clock, scheduler, self.counters,
            flush=settings.journal.flush, flush_interval_ms=settings.journal.flush_interval_ms,
            pending_bytes_max=settings.queue.pending_bytes_max, sample_every=settings.log.sample,
            commit=self._commit, flushed=self._flushed, refusal=self._refusal,
        )  # fmt: skip
        self.background = Background(self)
        self.replication: Replication | SmssFollower | None = None
        self.is_leader = True
        self.refuse_writes: str | None = None
        """Why a leader takes no writes at the moment."""
        self.commit_event_id = 0
        self.topics.on_ended = self.subscriptions.topic_ended
        self._arriving: dict[bytes, int] = {}
        self._copies = Copies()
        self.flushed_hook: Callable[[int], int] | None = None
        """Replication: told what is flushed, says what is committed."""
        self.tail: Tail | None = None
        """Roles in this process: given every batch as it is committed."""
        self.committed_hooks: list[Callable[[], object]] = []
        """Whoever streams the journal: told that there is more of it."""
        self.retention_holds: list[Callable[[], int]] = []
        """Followers and others: the oldest event id that each still needs."""
        self.publish_elsewhere: PublishElsewhere | None = None
        """Takes publishes in the place of the journal, where the log is not this engine's."""
        self.dump_stores: Callable[[], Iterator[tuple[bytes, bytes]]] | None = None
        """Of a replica with messaging: the pairs of its stores at this moment, for a snapshot."""
        self._behind: dict[int, Topic] = {}
        self._behind_reason = ""
        self._noted_us = 0
        self._low_space: str | None = None
        self._space_looked_us = -SPACE_LOOK_MS * 1000
        self._is_stopping = False

    # Starting and stopping.

    def recover(self, *, is_follower: bool = False, progress: Callable[[int, int], object] | None = None) -> None:
        """Find the end of the journal, and bring topic logs and store up to it.

        A follower does not know how much of its journal is committed: it shows again what it had shown, and the rest
        when its leader says so.
        """
        finish_redaction(self.files)
        state = self.state
        applied = state.applied
        found = find_end(self.journal, applied, state.flushed, is_copy=is_follower)
        state.cut_epochs(found.last_event_id)
        through = max(applied, min(state.shown, found.last_event_id)) if is_follower else found.last_event_id
        replayed = self._replay(applied, through, progress)
        self.commit_event_id = self.writer.committed_through = through
        self.keys.start(found.last_event_id)
        self.snowflakes.observe(state.last_message_id)
        self.writer.epoch = state.epoch
        extra = {"last_event_id": found.last_event_id, "replayed": replayed, "cut_bytes": found.cut_bytes}
        log.info("recovered", extra=extra)

    def _replay(self, applied: int, through: int, progress: Callable[[int, int], object] | None) -> int:
        """Apply every record behind the checkpoint again, and write the tail's index entries again."""
        replayed = 0
        tail = self.journal.tail if not self.journal.is_empty else None
        pending: list[bytes] = []
        index_at = 0 if tail is None else tail.index.size()
        for segment, position, frame in self.journal.scan_after(applied):
            record = decode_block(frame.block)
            number = self._topic_number(record.topic)
            if frame.epoch > self.state.epoch:
                # Also behind ``through``: the store may have lost it with the power. A follower names the epoch of its
                # last record to its leader, which would find nothing in common without it.
                self._begin_epoch(frame.epoch, record.event_id)
            if record.event_id <= through:
                self._apply_again(record, frame)
                replayed += frame.count
            elif record.kind == Kind.CREATE:
                self._arriving[record.topic] = record.event_id
            if segment is tail:
                if number == 0 or record.kind == Kind.CREATE:
                    number = self._topic_number(record.topic)
                if number > record.event_id:
                    number = 0  # the store is ahead: it knows a later topic of this name
                pending.append(entries_of(record, frame, position, number))
                if len(pending) >= 1024:
                    index_at = self._write_index(pending, index_at)
            if progress is not None:
                progress(record.event_id, self.journal.last_event_id)
        if pending:
            self._write_index(pending, index_at)
        return replayed

    def _apply_again(self, record: Record, frame: Frame) -> None:
        """Apply a record of the journal at a start. On a full disk its topic's log is completed later."""
        topic = self.topics.get(record.topic) if record.kind in MESSAGE_KINDS else None
        if topic is None or topic.create_event_id in self._behind:
            self.state.apply(record, frame, to_log=topic is None)
            return
        try:
            self.state.apply(record, frame)
        except OSError as error:
            self._fell_behind(topic, record.event_id, error)
            self.state.apply(record, frame, to_log=False)

    def _write_index(self, pending: list[bytes], at: int) -> int:
        data = b"".join(pending)
        pending.clear()
        try:
            self.journal.tail.index.write(data, at)
        except OSError as error:  # it is derived and is made again when it is needed
            log.warning("index_not_written", extra={"path": self.journal.tail.index_path, "reason": str(error)})
        return at + len(data)

    def start(self) -> None:
        """Begin background work."""
        self.background.start()
        journal = self.all_settings.journal
        if journal.flush == "always" and journal.fill_bytes and not self.settings.no_cache:
            # Zeros that the page cache does not keep would be read back before a part of a page is written.
            self.journal.appended_hook = Filler(
                self.journal, self.files, self.scheduler, ahead=journal.fill_bytes, segment_bytes=journal.segment_bytes,
                free_bytes_min=journal.free_bytes_min, failed=self.writer.flush_failed,
            ).look  # fmt: skip

    def stop(self) -> None:
        """Make everything durable and let go. The writer must be idle."""
        self._is_stopping = True
        self.journal.appended_hook = None
        self.background.stop()
        try:
            self.journal.close()
            paths, ends = self.topics.unflushed()
            self.files.flush_paths(paths)
            self.topics.close()
            if self.writer.poisoned is None and not self._behind:
                self.state.save_checkpoint(self.commit_event_id, ends)
            self.state.store.flush()
        finally:
            self.state.store.close()

    # Committing.

    def _flushed(self, through: int) -> int:
        return through if self.flushed_hook is None else self.flushed_hook(through)

    def _commit(self, batch: Batch) -> None:
        """A batch is committed: store, topic logs, then everyone who waits for it."""
        changes = batch.changes
        now_us = self.clock.monotonic_us()
        if not changes.is_empty or now_us - self._noted_us >= NOTE_EVERY_MS * 1000:
            self._noted_us = now_us
            changes.put(FLUSHED_KEY, pack_number(min(self.journal.flushed_through, batch.last_event_id)))
            self.state.write(changes, batch.last_event_id)
        for run in batch.runs:
            topic = run.topic
            if topic.is_deleted:
                continue
            if topic.create_event_id in self._behind:
                continue
            try:
                topic_log = self.topics.log_of(topic)
                if topic_log.last_event_id >= run.first_event_id:
                    continue  # committed once before, by an attempt that failed later on
                window = topic_log.append(run.first_event_id, run.messages, batch.now_ms)
            except (OSError, PixiuError) as error:
                self._fell_behind(topic, run.first_event_id, error)
                continue
            self.topics.dirty[topic.create_event_id] = topic
            if topic.subscriptions:
                self.subscriptions.published(topic, window)
        changes.committed()
        if self.tail is not None:
            self.tail.committed(batch)
        self.counters.events += batch.last_event_id - self.commit_event_id
        self.commit_event_id = batch.last_event_id
        for call in tuple(self.committed_hooks):
            call()
        self.background.written()

    def _fell_behind(self, topic: Topic, event_id: int, error: Exception) -> None:
        """The message is safe in the journal; its topic log is not writable now. Catch up from there when it is."""
        log.warning("topic log is behind", extra={"topic": topic.name.decode(errors="replace"), "reason": str(error)})
        self._behind[topic.create_event_id] = topic
        self._behind_reason = str(error)
        self.scheduler.after(1000, lambda: self._catch_up(topic, event_id))

    def _catch_up(self, topic: Topic, missing: int) -> None:
        if topic.is_deleted or self._is_stopping:
            self._behind.pop(topic.create_event_id, None)
            return
        try:
            after = max(self.topics.log_of(topic).last_event_id, missing - 1)
            for _, _, frame in self.journal.scan_after(after):
                record = decode_block(frame.block)
                if record.event_id > self.commit_event_id:
                    break
                if record.topic == topic.name and record.kind in (Kind.PUBLISH, Kind.APPEND, Kind.FIRE):
                    self.state.apply(record, frame)
        except (OSError, PixiuError) as error:
            self._behind_reason = str(error)
            log.warning("topic log is still behind", extra={"reason": str(error)})
            self.scheduler.after(1000, lambda: self._catch_up(topic, missing))
            return
        del self._behind[topic.create_event_id]
        for subscription in list(topic.waiting):
            del topic.waiting[subscription]
            subscription.wake()

    @property
    def behind_count(self) -> int:
        """Topic logs that lag behind the journal."""
        return len(self._behind)

    # Leading and following.

    def lead(self, epoch: int) -> None:
        """From now on this node's records carry ``epoch``."""
        self.writer.epoch = epoch
        self.keys.start(self.journal.last_event_id)
        self.snowflakes.observe(self.state.last_message_id)
        self._begin_epoch(epoch, self.journal.last_event_id + 1)
        self.background.leads()

    def open_epoch(self, epoch: int, event_ids: int, name: str) -> None:
        """Write the record that opens an epoch, leaving room for ids that may have been given elsewhere."""
        changes = Changes()
        self.state.begin_epoch(epoch, self.writer.next_event_id, changes)
        self.writer.open_epoch(epoch, event_ids, epoch_payload(epoch, name))
        self.state.store.write(changes.puts, changes.deletes)

    def _begin_epoch(self, epoch: int, event_id: int) -> None:
        changes = Changes()
        self.state.begin_epoch(epoch, event_id, changes)
        self.state.store.write(changes.puts, changes.deletes)

    def stop_leading(self, reason: str) -> None:
        """Take no more writes; those that wait are answered with what is known: nothing."""
        self.is_leader = False
        self.writer.fail_uncommitted(reason)
        self.keys.start(self.journal.last_event_id)

    def append_frames(self, frames: bytes, copies: list[Copy]) -> None:
        """A leader's frames, as they came and taken apart: to the journal, and to disk as the flush level asks."""
        position = self.journal.begin(copies[0].record.event_id)
        entries: list[bytes] = []
        for at, frame, record, messages in copies:
            if record.kind == Kind.CREATE:
                self._arriving[record.topic] = record.event_id
            entries.append(entries_of(record, frame, position + at, self._topic_number(record.topic), messages))
            if frame.epoch > self.state.epoch:
                self._begin_epoch(frame.epoch, record.event_id)
        self.journal.append(frames, b"".join(entries), copies[-1].last_event_id)
        self.writer.failing = None
        self._copies.add(copies)
        self.counters.bytes_written += len(frames)
        self.writer.copied()

    def _topic_number(self, name: bytes) -> int:
        number = self._arriving.get(name)
        if number is None and name:
            topic = self.topics.get(name)
            number = 0 if topic is None else topic.create_event_id
        return number or 0

    def apply_through(self, event_id: int) -> None:
        """Everything through here is committed: show it."""
        tail = self.tail
        for _, frame, record, messages in self._to_show(event_id):
            shown = self.state.apply(record, frame, messages)
            if shown is not None:
                self.subscriptions.published(*shown)
            self.counters.events += frame.count
            if tail is not None:
                tail.copied(record, frame.count)
            self.commit_event_id = record.event_id + frame.count - 1
        now_us = self.clock.monotonic_us()
        if now_us - self._noted_us >= NOTE_EVERY_MS * 1000:
            self._noted_us = now_us
            self.state.write(Changes(), self.commit_event_id)
        self.writer.committed_through = self.commit_event_id
        self.snowflakes.observe(self.state.last_message_id)
        if self.commit_event_id == self.journal.last_event_id:
            self._arriving.clear()
        for call in tuple(self.committed_hooks):
            call()
        self.background.written()
        if self.is_leader:
            self.background.leads()

    def _to_show(self, through: int) -> Iterable[Copy]:
        """What is committed and not shown: as it arrived, or read back from the journal."""
        copies = self._copies.take(self.commit_event_id, through)
        return copies if copies is not None else self._read_back(through)

    def _read_back(self, through: int) -> Iterator[Copy]:
        for _, _, frame in self.journal.scan_after(self.commit_event_id):
            record = decode_block(frame.block)
            if record.event_id + frame.count - 1 > through:
                return
            yield Copy(0, frame, record, [])

    def truncate_after(self, event_id: int) -> None:
        """Forget records that the leader does not have; none of them was ever shown."""
        assert event_id >= self.commit_event_id, (event_id, self.commit_event_id)
        self.journal.truncate_after(event_id)
        self.state.cut_epochs(event_id)
        self._arriving.clear()
        self._copies.clear()

    # What requests need.

    def take_keys(self, keys: tuple[str, ...]) -> None:
        """The cluster's secrets are these from now on; the node's own key stays."""
        self.node_keys = (*(each for each in self.node_keys if each not in self.follower_keys), *keys)
        self.follower_keys = keys

    @property
    def leader_key(self) -> bytes:
        """What this node shows to a leader; empty without a secret."""
        return self.follower_keys[0].encode() if self.follower_keys else b""

    def now_ms(self) -> int:
        """The wall clock."""
        return self.clock.now_ms()

    def topic_to_publish(self, name: bytes, is_node: bool) -> Topic:
        """The topic of a publish, checked as smss does: leader first, then the topic."""
        if not self.is_leader:
            raise NotLeader(wire.LEADER_PUBLISHES)
        return self.topic_to_use(name, is_node)

    def topic_to_use(self, name: bytes, is_node: bool) -> Topic:
        """A live topic that this connection may name."""
        self.check_reserved(name, is_node)
        return self.topics.live(name, self.clock.now_ms())

    def topic_to_read(self, name: bytes, is_node: bool) -> Topic:
        """A live topic whose creation is committed."""
        topic = self.topic_to_use(name, is_node)
        if not topic.is_committed:
            raise NotFound(wire.TOPIC_NOT_EXIST)
        return topic

    def check_reserved(self, name: bytes, is_node: bool) -> None:
        """Names of Pixiu's own are for connections that showed the node's key."""
        if not is_node and name.startswith(wire.RESERVED_PREFIX):
            raise NotAllowed(wire.TOPIC_RESERVED)

    def _refusal(self) -> str | None:
        """Why nothing can be written now; None if it can."""
        if not self.is_leader:
            return wire.LEADER_PUBLISHES
        if self.refuse_writes is not None:
            return self.refuse_writes
        return self._space_problem()

    def _space_problem(self) -> str | None:
        """Is the disk almost full? Looked at now and then; also where nobody writes, or it would never be over."""
        now_us = self.clock.monotonic_us()
        if now_us - self._space_looked_us >= SPACE_LOOK_MS * 1000:
            self._space_looked_us = now_us
            free, floor = self.files.free_bytes(), self.all_settings.journal.free_bytes_min
            full = free < floor
            if free < floor + self.all_settings.journal.fill_bytes // 2:
                self.journal.give_back()
            if full != (self._low_space is not None):
                log.warning("disk is almost full" if full else "disk has space again", extra={"free_bytes": free})
            reserve = f"{floor >> 20} MiB are kept in reserve (journal.free_bytes_min)"
            self._low_space = f"{wire.DISK_FULL}: {free >> 20} MiB free, {reserve}" if full else None
        return self._low_space

    def retained_from(self) -> int:
        """The oldest event id that someone still needs from the journal."""
        needed = [self.background.checkpoint_event_id + 1, *(hold() for hold in self.retention_holds)]
        for delayed in self.state.delays.after(0):
            needed.append(delayed.event_id)
            break
        return min(needed)

    def problems(self) -> list[str]:
        """Why this queue is not ready; none if it is."""
        reasons = []
        if self.writer.poisoned:
            reasons.append(self.writer.poisoned)
        if self.writer.stalled:
            reasons.append(self.writer.stalled)
        if self.writer.failing and not self.writer.poisoned:
            reasons.append(self.writer.failing)
        space = self._space_problem()
        if space:
            reasons.append(space)
        if self._behind:
            reasons.append(f"topic logs behind the journal: {len(self._behind)} ({self._behind_reason})")
        return reasons

    def _keys_between(self, after: int, through: int) -> Iterator[tuple[bytes, Numbers]]:
        """Keys of appends behind ``after``, read back from the journal, whose frames are checked."""
        if after < self.journal.first_event_id - 1:
            raise LookupError(f"events up to {self.journal.first_event_id - 1} are no longer in the journal")
        if through > self.journal.last_event_id:
            # More keys than memory holds came in one batch, which is not in the journal yet.
            raise LookupError(f"events up to {through} are not in the journal yet")
        for _, _, frame in self.journal.scan_after(after):
            record = decode_block(frame.block)
            if record.event_id > through:
                return
            if record.kind == Kind.APPEND:
                for event_id, message in enumerate(split_messages(record.payload) or [], record.event_id):
                    message_id, key = number_and_key(message)
                    yield key, Numbers(event_id, message_id)
