"""The one who writes: owns the log by its transactional id, and writes one batch per transaction.

All of it blocks and runs in one thread. Whoever claims the log last has it: Kafka refuses everything that an earlier
owner still sends, and that one finds in ``state`` who took it. Kafka also takes the id away from an owner who was
silent for too long in the middle of a transaction; then ``state`` still names this one, which claims it again.

A batch is in the log as a whole or not at all. While nobody knows which, nothing else is written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.backends.kafka.driver import client_of, common_options, driver, error_of, is_fence, unavailable
from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.records import CLAIM, LOG, PLACE, SET, STATE, WANT, WANTER, Entry, kafka_records, position_in
from pixiu.backends.kafka.topics import MESSAGE_BYTES_MAX, Topics
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.ports.log import LogRecord, Scheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError, Message

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.topics import Identity

__all__ = ["Claim", "Fenced", "Owner"]

log = logging.getLogger(__name__)

TRANSACTION_MS = 30_000
"""Kafka gives a transaction up after this, and takes the id away from whoever had it."""
STEP_SECONDS = 0.5
"""One wait for Kafka; between two of them a stop is noticed."""
ANSWER_MS = 10_000
QUEUED_MAX = 200_000
"""Records that the driver holds; a larger batch waits for room."""
KEYS_BACK = 50_000
"""Events whose keys a new owner reads back, so that it knows a repeat of what was just appended."""


class Fenced(Unavailable):
    """Another node has this log now."""


class Claim(NamedTuple):
    """The log as a new owner finds it."""

    identity: Identity
    event_id: int
    """Of the claim itself: the newest."""
    number: int
    """The newest message_id that was given."""
    waiting: list[Scheduled]
    recent: list[LogRecord]
    """Its newest records with a key, as many as a writer needs to know repeats."""
    recent_after: int
    """``recent`` is complete behind this event."""
    positions: dict[tuple[str, bytes], int]
    """By topic and name."""


class _State(NamedTuple):
    """The newest of ``state``."""

    owner: bytes
    wanter: bytes
    """Who has announced to claim it since; empty if nobody has."""
    waiting: list[Scheduled]
    positions: dict[tuple[str, bytes], int]


class _NotWritten(Exception):
    """The transaction was ended without effect."""


class Owner:
    """Claims a log, and writes to it."""

    def __init__(
        self, address: KafkaAddress, options: dict[str, str], *, name: str, token: str, copies: int, min_insync: int
    ) -> None:
        """``name`` is what others are told; ``token`` is of this process alone."""
        self._address = address
        self._options = options
        self._name = name
        self._token = token
        self._copies = copies
        self._min_insync = min_insync
        self._producer: Any = None
        self._probe: PartitionReader | None = None
        self._state_end = -1
        self._is_stopped = False
        self.trouble = ""
        """What the driver said last, while it is not well."""

    # Claiming.

    def claim(self, now_ms: int) -> Claim:
        """Take the log, and read what its owner has to know. Raises ``Unavailable``, and may then be asked again."""
        topics = Topics(self._address, self._options, is_stopped=lambda: self._is_stopped)
        topics.make(copies=self._copies, min_insync=self._min_insync)
        identity = topics.made_identity()
        self._check_stopped()  # who is no longer wanted takes it from nobody
        self._announce(now_ms)
        self._check_stopped()
        self._init()
        reader = self._reader(LOG)
        try:
            newest = reader.last(ANSWER_MS)
            last, number = (newest[1].record.event_id, newest[1].number) if newest is not None else (0, 0)
            after = max(last - KEYS_BACK, 0)
            recent = self._recent(reader, after, last) if newest is not None else []
        finally:
            reader.close()
        state = self._state()
        claim = Entry(last + 1, number, False, "", self._said(), b"", now_ms, CLAIM)
        self.write([claim], lambda: True)
        return Claim(identity, last + 1, number, state.waiting, recent, after, state.positions)

    def _announce(self, now_ms: int) -> None:
        """Say who comes, before the present owner is fenced: else it would take that for a silence of its own.

        Said twice is said once, so the driver need not ask for a producer's id first, which takes it half a second.
        """
        producer = client_of(driver.Producer, {
            **common_options(self._address, self._options),
            "acks": "all", "linger.ms": 0, "message.timeout.ms": ANSWER_MS,
        })  # fmt: skip
        failures: list[KafkaError] = []
        headers = [("event", b"0"), ("topic", b""), ("last", b"0"), ("what", WANT.encode())]
        producer.produce(
            self._address.topic(STATE), self._said(), WANTER, 0, timestamp=now_ms, headers=headers,
            on_delivery=lambda error, _message: failures.append(error) if error is not None else None,
        )  # fmt: skip
        tries = int(ANSWER_MS / 1000 / STEP_SECONDS)
        while left := _served(producer.flush):
            self._check_stopped()
            tries -= 1
            if tries <= 0:
                break
        if left:
            raise unavailable(self._address, f"{self._address.topic(STATE)} was not written in time")
        if failures:
            raise unavailable(self._address, failures[0])

    def _said(self) -> bytes:
        return f"{self._token} {self._name}".encode()

    def _init(self) -> None:
        """Become the only one who may write."""
        self._producer = producer = client_of(driver.Producer, {
            **common_options(self._address, self._options),
            "transactional.id": self._address.topic("writer"),
            "transaction.timeout.ms": TRANSACTION_MS,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 100,
            "message.max.bytes": MESSAGE_BYTES_MAX - 2**20,
            "queue.buffering.max.messages": QUEUED_MAX,
            "error_cb": self._told,
        })  # fmt: skip
        waited = 0.0
        while True:
            try:
                producer.init_transactions(STEP_SECONDS * 4)
            except driver.KafkaException as error:
                waited += STEP_SECONDS * 4
                if not error_of(error).retriable() or self._is_stopped or waited * 1000 >= ANSWER_MS:
                    raise unavailable(self._address, error_of(error)) from error
            else:
                return

    def _told(self, error: KafkaError) -> None:
        self.trouble = str(error.str())

    def _recent(self, reader: PartitionReader, after: int, last: int) -> list[LogRecord]:
        reader.seek(reader.search(lambda found: found.record.event_id <= after, ANSWER_MS) if after else
                    reader.ends(ANSWER_MS)[0])  # fmt: skip
        recent: list[LogRecord] = []
        reached = after
        while reached < last:
            chunk = reader.read(10_000, ANSWER_MS)
            for _, found in chunk.found:
                reached = found.record.event_id
                if found.record.key and found.is_visible and reached > after:
                    recent.append(found.record._replace(payload=b""))
            if chunk.is_end:
                break
        return recent

    def _state(self, begin: int = 0) -> _State:
        """What ``state`` says, or what it says from an offset on."""
        reader = self._reader(STATE)
        owner, wanter, waiting, positions = b"", b"", {}, {}
        try:
            low, high = reader.ends(ANSWER_MS)
            low = max(low, begin)
            self._state_end = low
            if low < high:
                reader.seek(low)
                is_end = False
                while not is_end:
                    chunk = reader.read(10_000, ANSWER_MS)
                    is_end, self._state_end = chunk.is_end, chunk.next_offset
                    for _, found in chunk.found:
                        record = found.record
                        if found.what == CLAIM:
                            owner, wanter = record.payload, b""
                        elif found.what == WANT:
                            wanter = record.payload
                        elif found.what == SET:
                            waiting[found.schedule_id] = Scheduled(
                                found.schedule_id, found.due, record.topic, record.payload
                            )
                        elif found.what == PLACE:
                            positions[record.topic, record.key] = position_in(record.payload)
                        else:
                            waiting.pop(found.schedule_id, None)
        finally:
            reader.close()
        known = {place: event_id for place, event_id in positions.items() if event_id >= 0}
        return _State(owner, wanter, list(waiting.values()), known)

    # Writing.

    def write(self, entries: Sequence[Entry], is_given_up: Callable[[], bool]) -> int:
        """Write a batch; returns the offset of its first record in the log, or -1 if that is not known.

        Tries until it is there, or known not to be and ``is_given_up``. Raises ``Fenced``, or ``Unavailable`` when it
        is not there.
        """
        while True:
            try:
                offset = self._transaction(entries)
            except _NotWritten as error:
                if is_given_up() or self._is_stopped:
                    raise unavailable(self._address, str(error)) from error
            else:
                self.trouble = ""
                return offset

    def _transaction(self, entries: Sequence[Entry]) -> int:
        producer = self._producer
        assert producer is not None
        offsets: list[int] = []
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            elif not offsets:
                offsets.append(message.offset() or 0)

        try:
            producer.begin_transaction()
            self._produce(producer, entries, delivered)
            while _served(producer.flush):
                self._check_stopped()
            if failures:
                raise driver.KafkaException(failures[0])
        except driver.KafkaException as error:
            return self._after_failure(error_of(error), entries, is_committing=False)
        while True:
            try:
                producer.commit_transaction(STEP_SECONDS * 4)
            except driver.KafkaException as error:
                self._check_stopped()
                found = error_of(error)
                if not found.retriable() or found.fatal():
                    return self._after_failure(found, entries, is_committing=True)
                self.trouble = str(found.str())
            else:
                return offsets[0] if offsets else -1

    def _produce(
        self,
        producer: Any,
        entries: Sequence[Entry],
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:
        names: dict[str, str] = {}
        name_of = self._address.topic
        for entry in entries:
            for record in kafka_records(entry):
                topic = record.topic
                name = names.get(topic) or names.setdefault(topic, name_of(topic))
                while True:
                    try:
                        producer.produce(
                            name, record.value, record.key, 0, timestamp=record.at, headers=record.headers,
                            on_delivery=delivered if topic == LOG else None,
                        )  # fmt: skip
                    except BufferError:
                        _served(producer.poll)
                        self._check_stopped()
                    else:
                        break

    def _reader(self, topic: str) -> PartitionReader:
        return PartitionReader(self._address, self._options, topic, is_stopped=lambda: self._is_stopped)

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise Unavailable("the node is stopping")

    def _after_failure(self, error: KafkaError, entries: Sequence[Entry], *, is_committing: bool) -> int:
        """End the transaction, by whatever way is left. Raises ``_NotWritten`` if that worked."""
        self.trouble = str(error.str())
        producer = self._producer
        assert producer is not None
        log.warning("a batch was not written at once", extra={"reason": error.str(), "committing": is_committing})
        while not (error.fatal() or is_fence(error)):
            try:
                producer.abort_transaction(STEP_SECONDS * 4)
            except driver.KafkaException as caught:
                self._check_stopped()
                found = error_of(caught)
                if not found.retriable() or found.fatal():
                    error = found
                    break
            else:
                raise _NotWritten(error.str())
        self._claim_again(error)
        if self._is_there(entries[-1].event_id):
            return -1
        raise _NotWritten(error.str())

    def _claim_again(self, reason: KafkaError) -> None:
        """Kafka has taken the id away: from us alone, or for another who has claimed it."""
        while True:
            self._check_stopped()
            try:
                self._check_owner(is_fenced=True)
                self._init()
                self._check_owner(is_fenced=True)  # from here on nobody else writes: this is what holds
            except Fenced:
                raise
            except PixiuError as error:
                self.trouble = str(error)
            else:
                log.warning("claimed the log again", extra={"reason": reason.str()})
                return

    def _check_owner(self, *, is_fenced: bool = False, begin: int = 0) -> None:
        """Raise ``Fenced`` if another has the log; or is about to, when Kafka has refused us already."""
        state = self._state(begin)
        owner = state.wanter if is_fenced and state.wanter else state.owner
        if owner and owner != self._said():
            name = owner.partition(b" ")[2].decode(errors="replace")
            raise Fenced(f"node {name} has taken the log {self._address} over; this one writes no more: stop it")

    def _is_there(self, event_id: int) -> bool:
        """Is this event in the log? A batch is there as a whole or not at all."""
        while True:
            self._check_stopped()
            reader = self._reader(LOG)
            try:
                newest = reader.last(ANSWER_MS)
                return newest is not None and newest[1].record.event_id >= event_id
            except Unavailable as error:
                self.trouble = str(error)
            finally:
                reader.close()

    # Between batches.

    def look(self) -> None:
        """Does Kafka answer, and is the log still ours? Raises ``Unavailable`` or ``Fenced``."""
        if self._probe is None:
            self._probe = self._reader(STATE)
        _, end = self._probe.ends(ANSWER_MS / 2)
        if end != self._state_end:
            self._check_owner(begin=self._state_end)  # the rest was looked at: it is long, and writes wait meanwhile
        self.trouble = ""

    def stop(self) -> None:
        """Wait for nothing any more. May be called from any thread."""
        self._is_stopped = True

    def close(self) -> None:
        """Let go; in the thread."""
        if self._probe is not None:
            self._probe.close()
        self._producer = self._probe = None


def _served(wait: Callable[[float], int]) -> int:
    """Wait a step for the driver, whose fatal errors come out of it as the cause of another."""
    try:
        return wait(STEP_SECONDS)
    except SystemError as error:
        if isinstance(error.__cause__, driver.KafkaException):
            raise error.__cause__ from error
        raise
