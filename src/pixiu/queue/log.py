"""``ports.log.Log`` on the queue's engine, for roles in the same process.

No socket and no copy: an append is an operation of the writer like any other, committed with everyone else's, and the
roles read what was committed from the writer's own hands.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, cast

from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData, Gone, NotFound, PixiuError, Unavailable
from pixiu.ports.log import TOPICS, Appended, LogRecord, Scheduled
from pixiu.queue.appends import AppendRun, refusal_text
from pixiu.queue.background import position_change
from pixiu.queue.delays import HEAD, Delayed
from pixiu.queue.operations import Change
from pixiu.queue.storage.messages import body_of, is_numbered, number_and_key, plain
from pixiu.queue.storage.record import Kind
from pixiu.queue.storage.topic_items import ITEM_HEADER_BYTES
from pixiu.queue.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.topic_log import TopicLog
    from pixiu.queue.storage.topics import Topic

__all__ = ["EngineLog", "TopicMessage", "topic_messages", "topic_records"]

_LIFETIME = _TIME = Struct("<q")


def _answered(_: Batch) -> bytes:
    """What a call does that is over: nobody runs it."""
    return b""


class _Call(Change):
    """An operation of a role in this process: told its result as an object, not as bytes."""

    __slots__ = ("_done", "_result", "_sequence")

    def __init__(self, sequence: Callable[[Batch], object], done: Callable[..., object] | None) -> None:
        super().__init__(cast("Connection", self), self._run)
        self._sequence = sequence
        self._done = done
        self._result: object = None

    def _run(self, batch: Batch) -> bytes:
        try:
            self._result = self._sequence(batch)
        except PixiuError as error:
            self._result = error
        return b""

    def answered(self, data: bytes) -> None:
        """The writer is through with it: committed (no bytes), or refused with a text.

        It refers to itself, so whatever it holds would stay until the collector comes: it lets go of all, and of
        itself.
        """
        done, result = self._done, Unavailable(refusal_text(data)) if data else self._result
        self.connection, self.sequence, self._sequence = None, _answered, _answered
        self._done = self._result = None
        if done is not None:
            done(result)

    def pause(self) -> bool:
        """Roles bound what they have under way themselves."""
        return False


class EngineLog:
    """The log of this process. One follower."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._tail = engine.tail = Tail(engine)
        self._topics: dict[str, Topic] = {}
        self._run = AppendRun(engine, "", self.topic_of)
        """The last appends, to be added to while nothing else comes behind them."""
        self._is_open = False
        """Were its topics made? A follower gets them from its leader."""
        self._receive: Callable[[], object] | None = None

    @property
    def epoch(self) -> int:
        """Of the numbers in inboxes that are made from it: there is one log in a data directory, for good."""
        return 0

    # Topics.

    def open(self, done: Callable[[PixiuError | None], object], *, applied: int = 0, finished: int = 0) -> None:
        """Create Pixiu's own topics where they are missing. Where readers begin does not matter to it."""
        self._is_open = True
        missing = [name for name in TOPICS if self.engine.topics.get(name.encode()) is None]
        if not missing:
            self.engine.scheduler.soon(lambda: done(None))
            return

        def sequence(batch: Batch) -> None:
            for name in missing:
                if self.engine.topics.get(name.encode()) is None:
                    event_id = batch.change(Kind.CREATE, name.encode(), _LIFETIME.pack(0))
                    self.engine.topics.create(name.encode(), event_id, batch.now_ms, 0, batch.changes)

        self._submit(sequence, done, 64 * len(missing))

    def topic_of(self, name: str, now_ms: int) -> Topic:
        """One of Pixiu's own topics."""
        topic = self._topics.get(name)
        if topic is None or topic.is_deleted:
            topic = self._topics[name] = self.engine.topics.live(name.encode(), now_ms)
        return topic

    def stand_by(self, applied: int) -> None:
        """A follower's engine copies the log from its leader: nothing to do here."""

    def connect(self) -> None:
        """It is there when the engine is."""

    def close(self) -> None:
        """Stop reading. The engine is its owner's."""
        if self.engine.tail is self._tail:
            self.engine.tail = None
        if self._receive is not None:
            self.engine.committed_hooks.remove(self._receive)
            self._receive = None

    def problems(self) -> list[str]:
        """One of Pixiu's own topics that is not there; the engine tells the rest."""
        if not self._is_open:
            return []
        return [f"topic {name} is missing" for name in TOPICS if self.engine.topics.get(name.encode()) is None]

    @property
    def is_fenced(self) -> bool:
        """Always false: replication ends a leader's term before another node takes the log over."""
        return False

    @property
    def unread(self) -> int:
        """Events that were committed elsewhere and are not here; the engine's followers do not count them here."""
        return 0

    @property
    def first_event_id(self) -> int:
        """The oldest event that the journal still has."""
        return self.engine.journal.first_event_id

    def when_flushed(self, call: Callable[[], object]) -> None:
        """Call when everything that was asked for is committed or refused."""
        self.engine.writer.when_flushed(call)

    # Writing.

    @property
    def committed(self) -> int:
        """The newest committed event id."""
        return self.engine.commit_event_id

    @property
    def is_busy(self) -> bool:
        """Does anything wait to be written?"""
        return self.engine.writer.is_busy

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
        self.append_all(topic, (payload,), (key,), lambda results: done(results[0]), unless_after=unless_after)

    def append_all(
        self,
        topic: str,
        payloads: Sequence[bytes],
        keys: Sequence[bytes],
        done: Callable[[Sequence[Appended | PixiuError]], object],
        *,
        unless_after: int = 0,
    ) -> None:
        """As ``append`` of each with its key; ``done`` is told all results at once."""
        writer, run = self.engine.writer, self._run
        if run is not writer.last or run.name != topic:
            run = self._run = AppendRun(self.engine, topic, self.topic_of)
            writer.submit(run, 0)
        run.add(payloads, keys, unless_after, done)
        writer.grow(sum(map(len, payloads)))

    def publish(self, topic: str, payload: bytes, done: Callable[[int | PixiuError], object] | None = None) -> None:
        """Append a record without a number; ``done`` is told its event id."""
        message = plain(payload)
        self._submit(
            lambda batch: batch.publish(self.topic_of(topic, batch.now_ms), [message]),
            done,
            len(payload),
        )

    def schedule(
        self, topic: str, payload: bytes, due: int, done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """Publish at ``due``; ``done`` is told the schedule_id, which is the event id of the delay."""
        engine, name, message = self.engine, topic.encode(), plain(payload)

        def sequence(batch: Batch) -> int:
            live = self.topic_of(topic, batch.now_ms)
            batch.close_run()
            head = HEAD.pack(due, batch.next_event_id)
            event_id = batch.change(Kind.DELAY, name, head + message, topic_id=live.create_event_id)
            engine.state.delays.add(Delayed(due, event_id, name, message), batch.changes)
            batch.changes.on_commit(lambda: engine.background.delay_added(due))
            return event_id

        self._submit(sequence, done, len(payload))

    def unschedule(self, schedule_id: int, done: Callable[[bool | PixiuError], object]) -> None:
        """Drop a record that waits; ``done`` is told whether it did."""
        background = self.engine.background
        self._submit(lambda batch: background.cancel_delay(schedule_id, batch, with_reserved=True), done, 64)

    def position(self, topic: str, name: bytes) -> int:
        """How far a named subscriber has come in a topic; 0 if that is not known."""
        live = self.engine.topics.get(topic.encode())
        place = None if live is None else self.engine.state.positions.get(live, name)
        return place or 0

    def set_position(self, topic: str, name: bytes, event_id: int) -> None:
        """Keep how far a named subscriber has come in a topic."""
        live = self.engine.topics.get(topic.encode())
        if live is not None:
            self.engine.writer.submit(position_change(self.engine, live, [(name, event_id)]), 64)

    def _submit(self, sequence: Callable[[Batch], object], done: Callable[..., object] | None, size: int) -> None:
        self.engine.writer.submit(_Call(sequence, done), size)

    # Reading.

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits for a topic, by due time."""
        name = topic.encode()
        return [
            Scheduled(each.event_id, each.due_ms, topic, b"".join(map(body_of, split_messages(each.payload) or [])))
            for each in self.engine.state.delays.due(2**62)
            if each.topic == name
        ]

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Call ``receive`` whenever something has been committed."""
        self._receive = receive
        self.engine.committed_hooks.append(receive)

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Committed records of Pixiu's topics behind ``after``; none only when there is none up to ``committed``.

        Raises ``CorruptData`` where the journal ends before what is committed: no read goes on without advancing.
        """
        records: list[LogRecord] = []
        while not records and after < self.engine.commit_event_id:
            records, reached = self._tail.read(after, limit)
            if reached <= after:
                raise CorruptData(
                    f"the journal ends with event {after}, before event {self.engine.commit_event_id}, which is "
                    "committed; look at its files with: pixiu queue verify"
                )
            after = reached
        return records

    def scan(self, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """Every record of Pixiu's topics through here, from the oldest on, in batches: for audits and rebuilds.

        Reads the journal's segments on its own, beside whoever follows the log. Raises ``Gone`` where retention has
        removed the beginning: what follows makes no sense without it.
        """
        after = self.engine.journal.first_event_id - 1
        if after > 0:
            raise Gone(f"events up to {after} are no longer in the journal: it cannot be audited from its beginning")
        return self.scan_after(after, through, batch)

    def scan_after(self, after: int, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """As ``scan``, from behind an event that is in the journal."""
        tail = Tail(self.engine)
        while after < through:
            records, reached = tail.read_segments(after, batch)
            if reached == after:
                raise CorruptData(f"the journal ends with event {after}, before event {through}")
            after = reached
            yield [record for record in records if record.event_id <= through]

    def find(self, message_id: int) -> LogRecord | None:
        """The record with this number; None if the journal has none. Numbers rise, so it is a search by halves."""
        journal = self.engine.journal
        low, end = journal.first_event_id, self.engine.commit_event_id + 1
        high = end
        while low < high:  # the first numbered event that is not below it lies in low … high, or there is none
            middle = (low + high) // 2
            place, number = middle, 0
            while place < high and not (number := journal.entry(place).message_id):
                place += 1
            if number and number < message_id:
                low = place + 1
            else:
                high = middle
        while low < end:
            number = journal.entry(low).message_id
            if number:
                break
            low += 1
        if low >= end or number != message_id:
            return None
        records = Tail(self.engine).read_segments(low - 1, 1)[0]
        return records[0] if records and records[0].message_id == message_id else None  # else it is a foreign topic's

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first."""
        engine = self.engine
        live = engine.topics.get(topic.encode())
        if live is None:
            raise NotFound(f"there is no topic {topic}")
        return topic_records(engine.topics.log_of(live), topic, after, limit)


class TopicMessage(NamedTuple):
    """One message as a topic's log has it."""

    event_id: int
    at: int
    message: bytes


def topic_messages(log: TopicLog, after: int, limit: int) -> list[TopicMessage]:
    """Messages of one topic behind an event id, oldest first, from its own log."""
    found: list[TopicMessage] = []
    place = log.find_after(after)
    while len(found) < limit:
        window = log.read(*place)
        if window is None:
            break
        for item in range(window.count):
            data = window.items(item, 1)
            (at,) = _TIME.unpack_from(data)
            found.append(TopicMessage(window.event_id(item), at, data[ITEM_HEADER_BYTES:]))
        place = window.next_file_number, window.next_position
    return found[:limit]


def topic_records(log: TopicLog, topic: str, after: int, limit: int) -> list[LogRecord]:
    """Records of one topic, from its own log."""
    found: list[LogRecord] = []
    for event_id, at, message in topic_messages(log, after, limit):
        message_id, key = number_and_key(message) if is_numbered(message) else (0, b"")
        found.append(LogRecord(event_id, message_id, topic, body_of(message), key, at))
    return found
