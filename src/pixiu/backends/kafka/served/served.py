"""A log in Kafka as the queue's port shows it: in the place of ``queue.engine.Engine``, with what a cluster asks for.

Who owns the log changes: ``begin`` is told the log of a new tenure, ``end`` that it is over. Between two of them
everything is refused as it is by a follower of the queue, and clients look for the leader.

Feeds read frames from memory near the end of the log, and further back from Kafka, in a thread (``behind.py``).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pixiu.backends.kafka.served.behind import BehindReading, TopicPage
from pixiu.backends.kafka.served.intake import KafkaIntake
from pixiu.backends.kafka.served.tail import TAIL_BYTES_MAX, FrameTail
from pixiu.machines.queue_wire import commands as wire
from pixiu.model.errors import Gone, NotAllowed, NotFound, NotLeader, PixiuError, Unavailable
from pixiu.ports.log import TOPICS
from pixiu.queue.metrics import QueueCounters
from pixiu.queue.server.key_refusals import KeyRefusals
from pixiu.queue.storage.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.batch import Batch
    from pixiu.backends.kafka.log import KafkaLog
    from pixiu.backends.kafka.served.frames import Piece
    from pixiu.config import QueueSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import LogRecord
    from pixiu.ports.scheduler import Scheduler

__all__ = ["PlaceReader", "ServedLog"]

log = logging.getLogger(__name__)

AGAIN_MS = 50
"""What is committed and not readable yet is asked for again after this."""


class ServedLog:
    """What connections are served from. ``thread`` runs what reads Kafka for those who are behind."""

    def __init__(
        self,
        address: KafkaAddress,
        options: dict[str, str],
        settings: QueueSettings,
        clock: Clock,
        scheduler: Scheduler,
        thread: Scheduler,
        *,
        keys: tuple[str, ...],
        may_serve: Callable[[], bool] = lambda: True,
        tail_bytes_max: int = TAIL_BYTES_MAX,
    ) -> None:
        """``may_serve``: whether the lease is held at this moment."""
        self.settings = settings
        self.clock = clock
        self.scheduler = scheduler
        self.counters = QueueCounters()
        self.node_keys = keys
        self.key_refusals = KeyRefusals(clock)
        self.intake = self.writer = KafkaIntake(self)
        self.committed_hooks: list[Callable[[], object]] = []
        self.log: KafkaLog | None = None
        """Of this tenure; None between two."""
        self.epoch = 0
        self.feeds: set[PlaceReader] = set()
        self._may_serve = may_serve
        self._thread = thread
        self._behind = BehindReading(address, options)
        self._tail = FrameTail(bytes_max=tail_bytes_max)
        self._topics = {name.encode(): Topic(name.encode(), number, 0, 0) for number, name in enumerate(TOPICS, 1)}

    # Tenures.

    def begin(self, owned: KafkaLog, epoch: int) -> None:
        """This process owns the log, which is open."""
        self.log, self.epoch = owned, epoch
        self._tail.begin(owned.committed, self.clock.now_ms())
        owned.when_committed = self._committed
        log.info("serves the log", extra={"log": str(owned.address), "epoch": epoch, "event_id": owned.committed})

    def end(self) -> None:
        """It owns it no more. Feeds notice when they next look; the readers go, which hold what they read ahead."""
        if self.log is not None:
            self.log = None
            self._thread.offload(self._behind.close, lambda _error: None)

    def close(self) -> None:
        """Let go of the readers, in their thread."""
        self._thread.offload(self._behind.close, lambda _error: None)

    def _committed(self, batch: Batch) -> None:
        self._tail.add(batch.entries)
        self.counters.events += len(batch.entries)
        self.scheduler.soon(self._tell)

    def _tell(self) -> None:
        for call in tuple(self.committed_hooks):
            call()

    # What the port asks.

    @property
    def followed(self) -> int:
        """How far the slowest feed has come; the end where there is none."""
        return min((feed.event_id for feed in self.feeds), default=self.commit_event_id)

    @property
    def is_leader(self) -> bool:
        """Does this process own the log, as far as anyone can know?"""
        return self.log is not None and self.log.is_owner and self._may_serve()

    @property
    def commit_event_id(self) -> int:
        """The newest committed event id."""
        return 0 if self.log is None else self.log.committed

    def owned(self) -> KafkaLog:
        """The log. Raises ``NotLeader``."""
        if self.log is None or not self.is_leader:
            raise NotLeader(wire.LEADER_DECIDES)
        return self.log

    @property
    def topics(self) -> list[Topic]:
        """All that there are."""
        return list(self._topics.values())

    def topic(self, name: bytes, is_node: bool) -> Topic:
        """One of Pixiu's topics, for who has shown a key; there are no others."""
        if not is_node and name.startswith(wire.RESERVED_PREFIX):
            raise NotAllowed(wire.TOPIC_RESERVED)
        found = self._topics.get(name)
        if found is None:
            raise NotFound(wire.TOPIC_NOT_EXIST)
        return found

    def topic_to_publish(self, name: bytes, is_node: bool) -> Topic:
        """The topic of a publish: leader first, then the topic."""
        if not self.is_leader:
            raise NotLeader(wire.LEADER_PUBLISHES)
        return self.topic(name, is_node)

    # Reading.

    def rows(
        self, topic: str, after: int, limit: int, done: Callable[[int, list[LogRecord] | PixiuError], object]
    ) -> None:
        """A page of one topic behind an event; ``done`` is told through which event it is all."""
        try:
            owned = self.owned()
            recent = owned.reading.recent_of(topic)
        except PixiuError as error:
            done(0, error)
            return
        if after >= recent.after:
            done(owned.committed, recent.read(after, limit))
            return
        pages: list[TopicPage] = []
        through, needed = recent.after, recent.forgotten

        def work() -> None:
            pages.append(self._behind.topic(topic, after, limit, through, needed))

        def worked(error: BaseException | None) -> None:
            if error is None:
                owned.counters.read_back += len(pages[0].records)
                done(pages[0].through, pages[0].records)
            else:
                done(0, error if isinstance(error, PixiuError) else Unavailable(f"Kafka: {error}"))

        self._thread.offload(work, worked)

    def in_memory(self, after: int) -> Piece | None:
        """The piece behind an event; None at the end. Raises ``LookupError`` for what is not in memory."""
        if not self._tail.has(after):
            raise LookupError(after)
        return self._tail.read(after)

    def read_behind(self, after: int, done: Callable[[list[Piece] | PixiuError], object]) -> None:
        """The next pieces from Kafka; none when they cannot be read yet."""
        owned = self.owned()
        hint = owned.reading.anchors.offset_before(after + 1)
        through = owned.committed
        found: list[Piece] = []

        def work() -> None:
            found.extend(self._behind.frames(after, hint, through))

        def worked(error: BaseException | None) -> None:
            if error is None:
                owned.counters.read_back += sum(piece.last - piece.first + 1 for piece in found)
                done(found)
            else:
                done(error if isinstance(error, PixiuError) else Unavailable(f"Kafka: {error}"))

        self._thread.offload(work, worked)


class PlaceReader:
    """Where one feed is."""

    def __init__(self, served: ServedLog, after: int) -> None:
        """Raises ``NotFound`` for a place that the log has not come to."""
        committed = served.owned().committed
        if after > committed:
            raise NotFound(f"{wire.LOG_ENDS_BEFORE}: {committed} is before {after}")
        self.event_id = after
        self.wake: Callable[[], object] = lambda: None
        """Called when something that was asked for has come."""
        self._served = served
        self._ahead: deque[Piece] = deque()
        self._failure: PixiuError | None = None
        self._is_asking = False

    def read(self, _size: int, _through: int) -> bytes:
        """The next frames; none while they are on their way. Raises what has become of that."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._ahead:
            piece: Piece | None = self._ahead.popleft()
        else:
            try:
                piece = self._served.in_memory(self.event_id)
            except LookupError:
                self._ask()
                return b""
        if piece is None:
            return b""
        self.event_id = piece.last
        return piece.frames

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._served.read_behind(self.event_id, self._came)

    def _came(self, found: list[Piece] | PixiuError) -> None:
        if isinstance(found, list) and not found:
            self._served.scheduler.after(AGAIN_MS, self._again)
            return
        self._is_asking = False
        if isinstance(found, Gone):
            self._failure = Gone(f"{wire.LOG_BEGINS_BEHIND}: {found}")
        elif isinstance(found, Unavailable):
            self._failure = Unavailable(f"{wire.KAFKA_SILENT}: {found}")
        elif isinstance(found, PixiuError):
            self._failure = found
        else:
            self._ahead.extend(found)
        self.wake()

    def _again(self) -> None:
        self._is_asking = False
        self.wake()
