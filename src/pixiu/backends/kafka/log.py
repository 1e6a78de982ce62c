"""``ports.log.Log`` on Kafka: this node owns the log, numbers, and finds repeats; Kafka keeps it.

Whatever is asked for in one turn of the loop, and while a batch is on its way, is the next batch: one transaction, as a
group commit is one flush. Numbers are given when an append comes; its answer comes when Kafka has committed the batch.

A Kafka that does not answer makes ``Unavailable`` after a while (``sending.py``); a repeat with the same key is safe.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pixiu.backends.kafka.memory import RECENT_BYTES_MAX
from pixiu.backends.kafka.metrics import KafkaCounters
from pixiu.backends.kafka.owner import Fenced, Owner
from pixiu.backends.kafka.reading import PATIENT_MS, SCAN_MS, LogReading
from pixiu.backends.kafka.records import DROP, PLACE, SET, Entry
from pixiu.backends.kafka.schedules import Waiting
from pixiu.backends.kafka.sending import Sending
from pixiu.backends.kafka.standby import Standby
from pixiu.backends.kafka.topics import MESSAGE_BYTES_MAX, Identity, Topics
from pixiu.machines.queue_wire.commands import BEHIND
from pixiu.model.cursor import epoch_of
from pixiu.model.errors import Conflict, CorruptData, Gone, NotFound, PixiuError, TooLarge, Unavailable
from pixiu.model.ids import Snowflakes
from pixiu.ports.log import SCHEDULE, TASKS, TASKS_READER, TOPICS, Appended, LogRecord, Scheduled
from pixiu.queue.positions import pack_rows
from pixiu.queue.storage.keys import Numbers, RecentKeys
from pixiu.queue.storage.messages import key_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.batch import Batch
    from pixiu.backends.kafka.owner import Claim
    from pixiu.backends.kafka.reading import Beginning
    from pixiu.config.kafka import KafkaSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["KafkaLog"]

log = logging.getLogger(__name__)

LOOK_MS = 2_000
"""How often a log that nobody writes to is looked after."""
PAYLOAD_BYTES_MAX = MESSAGE_BYTES_MAX - 2 * 2**20
STANDBY_BYTES_MAX = RECENT_BYTES_MAX // 2
"""A node that stands by reads no further while so much waits to be applied."""


class _Opening(NamedTuple):
    """What was read while the log was opened."""

    claim: Claim
    beginning: Beginning
    more: list[tuple[int, list[LogRecord]]] | None


class KafkaLog:
    """The log of this node, in Kafka. One follower."""

    def __init__(
        self,
        address: KafkaAddress,
        options: dict[str, str],
        settings: KafkaSettings,
        clock: Clock,
        scheduler: Scheduler,
        thread: Scheduler,
        *,
        name: str,
        token: str,
        node_id: int,
        keys_max: int,
        known: Identity | None = None,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        """``thread`` runs what blocks, in order, for this log alone. ``token`` is new with every process.

        ``known``: which log the stores were made from; another one is refused with ``CorruptData``.
        ``closed`` is called at the end.
        """
        self.address = address
        self.counters = KafkaCounters()
        self.identity: Identity | None = None
        self._options = options
        self._known = known
        self._closed = closed
        self._clock = clock
        self._scheduler = scheduler
        self._thread = thread
        self._node_id = node_id
        self._owner = Owner(
            address, options, name=name, token=token, copies=settings.copies, min_insync=settings.min_insync
        )
        self._reading = LogReading(address, options, self.counters)
        self._waiting = Waiting(clock, scheduler, self._fire)
        self._keys = RecentKeys(limit=keys_max, read_back=_read_back, now_us=clock.monotonic_us)
        self._snowflakes = Snowflakes(node_id)
        self._number = self._event_id = 0
        """The newest that were given."""
        self.sending = Sending(
            address, self._owner, clock, scheduler, thread, settings, self.counters,
            committed=self._committed, fenced=self._fence,
        )  # fmt: skip
        self._standby: Standby | None = None
        self._is_open = self._is_closed = self._is_looking = False
        self._failure: PixiuError | None = None
        self._silence = ""
        self._receive: Callable[[], object] = lambda: None
        self._read_through = 0
        self.positions: dict[tuple[str, bytes], int] = {}
        """Committed ones, by topic and name."""

    # Life.

    def open(self, done: Callable[[PixiuError | None], object], *, applied: int = 0, finished: int = 0) -> None:
        """Claim the log. Stores have applied it through ``applied``, tasks are finished through ``finished``."""
        if self._failure is not None or self._is_open:
            failure = self._failure
            self._scheduler.soon(lambda: done(failure))
            return
        standby = self._standby
        if standby is not None:
            standby.pause()
        found: list[_Opening] = []

        def work() -> None:
            self.check_identity()
            claim = self._owner.claim(self._clock.now_ms())
            more = None if standby is None else standby.read_through(claim.event_id)
            done_through = max(finished, claim.positions.get((TASKS, TASKS_READER), 0))
            known = claim.event_id if more is not None else min(applied, claim.event_id)
            beginning = self._reading.prepare(claim.event_id, applied=known, finished=done_through)
            found.append(_Opening(claim, beginning, more))

        def worked(error: BaseException | None) -> None:
            if error is not None:
                if isinstance(error, Fenced):
                    self._failure = error
                done(error if isinstance(error, PixiuError) else Unavailable(f"Kafka: {error}"))
                return
            if self._is_closed:  # too late: nobody wants it any more
                done(Unavailable("the log was closed before it was open"))
                return
            self._opened(found[0])
            done(None)

        self._thread.offload(work, worked)

    def _opened(self, opening: _Opening) -> None:
        claim = opening.claim
        self._reading.begin(opening.beginning, opening.more)
        if self._standby is not None:
            self._thread.offload(self._standby.close, lambda _error: None)
            self._standby = None
        self.identity = claim.identity
        self._event_id, self._number = claim.event_id, claim.number
        self._snowflakes = Snowflakes(self._node_id, claim.number)
        self._keys.start(claim.recent_after)
        for record in claim.recent:
            self._keys.add(key_digest(record.key), record.event_id, record.message_id)
        self._is_open = True
        self._waiting.start(claim.waiting)
        self.positions = claim.positions
        self._scheduler.after(LOOK_MS, self._look)
        log.info("kafka_log_opened", extra={"log": str(self.address), "event_id": claim.event_id})
        self._receive()

    def stand_by(self, applied: int) -> None:
        """Follow the log behind event ``applied`` while another node owns it, until this node opens it.

        The log must be known, so that its events are the ones that the stores have applied.
        """
        assert self._known is not None, "a standby node has a log to follow"
        self.identity = self._known
        self._reading.stand_by(applied)
        self._standby = Standby(
            self.address, self._options, self._clock, self._scheduler, self._thread, self.check_identity, applied,
            read=self._followed_owner, has_room=lambda: not self.lag or self._reading.recent.size < STANDBY_BYTES_MAX,
        )  # fmt: skip
        self._standby.start()

    def _followed_owner(self, through: int, records: Sequence[LogRecord]) -> None:
        self._reading.add(through, records)
        self._receive()

    def connect(self) -> None:
        """Read alone, for a command on a node that does not run; owns nothing, and blocks."""
        self.identity = self.check_identity()
        if self.identity is None:
            raise NotFound(f"there is no log at {self.address}")
        self._reading.committed = self._reading.last_event_id()
        self._reading.recent.begin(self._reading.committed)

    def check_identity(self, is_stopped: Callable[[], bool] = lambda: False) -> Identity | None:
        """Which log is there; None: there is none yet. Refuses another than the stores were made from; blocks.

        Not for long once it is closed or ``is_stopped``.
        """
        known = self._known
        topics = Topics(self.address, self._options, is_stopped=lambda: self._is_closed or is_stopped())
        try:
            found = topics.identity()
        except NotFound as error:
            if known is None:
                return None
            text = f"{error}: the stores were made from it. Bring it back, or begin anew on another data directory"
            raise Unavailable(text, retry_after_ms=1_000) from error
        if known is not None and known != found:
            what = "cluster" if known.cluster_id != found.cluster_id else "topic, made anew"
            raise CorruptData(
                f"{self.address} is another {what} than the stores were made from (topic id {found.topic_id} in "
                f"cluster {found.cluster_id}, not {known.topic_id} in {known.cluster_id}): its events have other "
                "numbers. To take it as it is, make the stores again from it: pixiu rebuild"
            )
        return found

    def close(self) -> None:
        """Let go. Whoever still waits is told so; what is on its way may be written."""
        if self._is_closed:
            return
        self._is_closed = True
        self._is_open = False
        self._waiting.stop()
        self.sending.close(Unavailable("the node is stopping; what was asked may have been done"))
        self._owner.stop()
        if self._standby is not None:
            self._standby.stop()
            self._thread.offload(self._standby.close, lambda _error: None)
        self._thread.offload(self._owner.close, lambda _error: None)
        self._reading.close()
        self._closed()

    def problems(self) -> list[str]:
        """Why nothing should be sent here; none if all is well."""
        if self._failure is not None:
            return [str(self._failure)]
        if self._standby is not None and self._standby.problem:
            return [self._standby.problem]
        slow = self.sending.slow()
        return [slow] if slow else [self._silence] if self._silence else []

    def _look(self) -> None:
        """Now and then: does Kafka answer, and does nobody else own the log?"""
        if not self._is_open or self._is_looking:
            return
        if self.sending.is_busy:
            self._scheduler.after(LOOK_MS, self._look)
            return
        self._is_looking = True

        def looked(error: BaseException | None) -> None:
            self._is_looking = False
            if isinstance(error, Fenced):
                self._fence(error)
            elif self._is_open:
                self._silence = "" if error is None else str(error)
                self._scheduler.after(LOOK_MS, self._look)

        self._thread.offload(self._owner.look, looked)

    def _fence(self, error: Fenced) -> None:
        """Another node owns the log: this one has to be stopped."""
        if self._failure is None:
            log.error("fenced", extra={"reason": str(error)})
        self._failure = error
        self._waiting.stop()
        self.sending.give_up(error)

    @property
    def epoch(self) -> int:
        """Of the numbers in inboxes that are made from it: a topic that was made anew has another one."""
        assert self.identity is not None, "the log is open"
        return epoch_of(f"{self.identity.cluster_id} {self.identity.topic_id}")

    def kept_for(self) -> dict[str, str]:
        """How long its topics keep a record, in words; blocks."""
        return Topics(self.address, self._options).kept_for()

    # What is asked about it.

    @property
    def committed(self) -> int:
        """The newest committed event id."""
        return self._reading.committed

    @property
    def is_busy(self) -> bool:
        """Does anything wait to be written?"""
        return self.sending.is_busy

    @property
    def is_owner(self) -> bool:
        """Does this node write?"""
        return self._is_open and self._failure is None

    @property
    def is_fenced(self) -> bool:
        """Whether another node took the log over after this node opened it. This node must not write then."""
        return self._failure is not None

    @property
    def lag(self) -> int:
        """Events that the follower has not read."""
        return max(self.committed - self._read_through, 0)

    @property
    def unread(self) -> int:
        """About how many events Kafka has that this node has not read, while another one owns the log."""
        return 0 if self._standby is None else self._standby.unread

    @property
    def waiting(self) -> int:
        """Records that wait for their time."""
        return len(self._waiting)

    def when_flushed(self, call: Callable[[], object]) -> None:
        """Call when everything that was asked for until now is committed or refused."""
        self.sending.when_flushed(call)

    # Writing.

    def append(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[Appended | PixiuError], object],
        *,
        key: bytes = b"",
        unless_after: int = 0,
    ) -> None:
        """Append a numbered record, unless ``key`` was appended behind event ``unless_after``."""
        if self._refused(topic, payload, done):
            return
        digest = key_digest(key) if key else b""
        if key and self._is_repeat(digest, unless_after, done):
            return
        batch = self.sending.batch()
        number = self._number = self._snowflakes.next(self._clock.now_ms())
        event_id = self._add(batch, topic, payload, key=key, is_numbered=True)
        if key:
            before = self._keys.add(digest, event_id, number)
            batch.on_drop.append(partial(self._keys.forget, digest, before))
        batch.answers.append((done, Appended(event_id, number, False)))

    def publish(self, topic: str, payload: bytes, done: Callable[[int | PixiuError], object] | None = None) -> None:
        """Append a record without a number; ``done`` is told its event id."""
        self.publish_all(topic, [payload], done)

    def publish_all(
        self, topic: str, payloads: Sequence[bytes], done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """The same of several, all or none: one batch, however large. ``done`` is told the first event id."""
        if self._refused(topic, max(payloads, key=len), done):
            return
        batch = self.sending.batch()
        first = self._event_id + 1
        for payload in payloads:
            self._add(batch, topic, payload)
        if done is not None:
            batch.answers.append((done, first))

    def schedule(
        self, topic: str, payload: bytes, due: int, done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """Publish at ``due``; ``done`` is told the schedule_id, which is the event id of this."""
        if self._refused(topic, payload, done):
            return
        batch = self.sending.batch()
        schedule_id = self._add(batch, topic, payload, what=SET, due=due)
        scheduled = Scheduled(schedule_id, due, topic, payload)
        batch.on_commit.append(partial(self._waiting.add, scheduled))
        if done is not None:
            batch.answers.append((done, schedule_id))

    def unschedule(self, schedule_id: int, done: Callable[[bool | PixiuError], object]) -> None:
        """Drop a record that waits; ``done`` is told whether it did."""
        if self._refused(SCHEDULE, b"", done):
            return
        scheduled = self._waiting.take(schedule_id)
        if scheduled is None:
            self._scheduler.soon(lambda: done(False))
            return
        batch = self.sending.batch()
        self._add(batch, scheduled.topic, b"", what=DROP, schedule_id=schedule_id)
        batch.on_drop.append(partial(self._waiting.add, scheduled))
        batch.answers.append((done, True))

    def position(self, topic: str, name: bytes) -> int:
        """How far a name has come in a topic; 0 if that is not known."""
        return self.positions.get((topic, name), 0)

    def set_position(self, topic: str, name: bytes, event_id: int) -> None:
        """Keep how far a name has come in a topic. A position that Kafka does not take is dropped."""
        if self._refused(topic, b"", None):
            return
        batch = self.sending.batch()
        self._add(batch, topic, pack_rows([(name, event_id)]), key=name, what=PLACE)
        batch.on_commit.append(lambda: self.positions.update({(topic, name): event_id}))

    def _fire(self, scheduled: Scheduled) -> None:
        """Its time has come. It fires once: the record and its end as a schedule are one transaction."""
        if self.refusal(b"") is not None:
            self._scheduler.after(LOOK_MS, partial(self._wait_again, scheduled))
            return
        batch = self.sending.batch()
        self._add(batch, scheduled.topic, scheduled.payload, schedule_id=scheduled.schedule_id)
        batch.on_drop.append(partial(self._scheduler.after, LOOK_MS, partial(self._wait_again, scheduled)))

    def _wait_again(self, scheduled: Scheduled) -> None:
        if self.is_owner:
            self._waiting.add(scheduled)

    def _refused(self, topic: str, payload: bytes, done: Callable[..., object] | None) -> bool:
        refusal = self.refusal(payload) if topic in TOPICS else NotFound(f"there is no topic {topic}")
        if refusal is not None and done is not None:
            self._scheduler.soon(lambda: done(refusal))
        return refusal is not None

    def refusal(self, payload: bytes) -> PixiuError | None:
        """Why nothing is taken now; None if it is."""
        if self._failure is not None:
            return self._failure
        if not self._is_open:
            return Unavailable("the log is not open", retry_after_ms=1_000)
        if len(payload) > PAYLOAD_BYTES_MAX:
            return TooLarge(f"a record of {len(payload)} bytes is larger than {PAYLOAD_BYTES_MAX}")
        return self.sending.refusal()

    def _is_repeat(self, digest: bytes, unless_after: int, done: Callable[[Appended | PixiuError], object]) -> bool:
        """Answer what was appended before, when that is committed."""
        try:
            first = self._keys.find(digest, unless_after)
        except LookupError as error:
            conflict = Conflict(f"{BEHIND}: {error}")
            self._scheduler.soon(lambda: done(conflict))
            return True
        if first is None:
            return False
        answer = Appended(first.event_id, first.message_id, True)
        batch = self.sending.batch_of(first.event_id)
        if batch is not None:
            batch.answers.append((done, answer))
            return True
        self._scheduler.soon(lambda: done(answer))
        return True

    def _add(
        self,
        batch: Batch,
        topic: str,
        payload: bytes,
        *,
        key: bytes = b"",
        is_numbered: bool = False,
        what: str = "",
        schedule_id: int = 0,
        due: int = 0,
    ) -> int:
        event_id = self._event_id = self._event_id + 1
        at, number = self._clock.now_ms(), self._number
        of = event_id if what == SET else schedule_id
        entry = Entry(event_id, number, is_numbered, topic, payload, key, at, what, of, due)
        shown = None if what else LogRecord(event_id, number if is_numbered else 0, topic, payload, key, at)
        self.sending.add(batch, entry, shown)
        return event_id

    def _committed(self, batch: Batch, offset: int) -> None:
        """A batch is in Kafka."""
        if offset >= 0:
            self._reading.anchors.add(batch.entries[0].event_id, offset)
        self._reading.add(batch.entries[-1].event_id, batch.records)
        self._silence = ""
        batch.committed()
        self._receive()

    # Reading.

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits for a topic, by due time."""
        return self._waiting.of(topic)

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Call ``receive`` whenever something has been committed."""
        self._receive = receive

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Committed records behind ``after``; none only when there is none."""
        records = self._reading.read(after, limit)
        self._read_through = max(self._read_through, records[-1].event_id if records else self.committed)
        return records

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first."""
        return self._reading.topic(topic, after, limit)

    @property
    def first_event_id(self) -> int:
        """The oldest event that Kafka still has."""
        return self._reading.first_event_id()

    def scan(self, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """Every record through here, from the oldest on, in batches: for audits and rebuilds."""
        first = self.first_event_id
        if first > 1 and through:
            raise Gone(f"events up to {first - 1} are no longer in Kafka: the log cannot be audited from its beginning")
        return self.scan_after(0, through, batch)

    def scan_after(self, after: int, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """As ``scan``, from behind an event."""
        return self._reading.scan_after(after, through, batch, SCAN_MS if self._is_open else PATIENT_MS)

    def find(self, message_id: int) -> LogRecord | None:
        """The record with this number; None if there is none."""
        return self._reading.find(message_id, SCAN_MS if self._is_open else PATIENT_MS)


def _read_back(after: int, through: int) -> Iterator[tuple[bytes, Numbers]]:
    """Kafka is not asked for single keys: whoever looks that far back catches up first."""
    raise LookupError(f"the keys of events {after + 1} to {through} are not in memory")
