"""A node that follows a log in Kafka while another node owns it, and then takes it over."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka import standby as module
from pixiu.backends.kafka.reader import PartitionReader
from pixiu.model.errors import CorruptData, PixiuError, Unavailable
from pixiu.ports.log import MAIN, NOTIFY, TASKS, TASKS_READER, Appended
from tests.kafka import Driven, new_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.backends.kafka.log import KafkaLog
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.feature("X73", "X75")]


class Follower:
    """Reads a log as the applier does: on every notification of new records."""

    def __init__(self, log: KafkaLog) -> None:
        self.log = log
        self.payloads: list[bytes] = []
        self.reached = 0
        log.follow(0, self.read)

    def read(self) -> None:
        while self.reached < self.log.committed:
            committed = self.log.committed
            try:
                records = self.log.read(self.reached, 100)
            except Unavailable:
                return
            self.payloads += [each.payload for each in records if each.topic == MAIN]
            self.reached = records[-1].event_id if records else committed


class Pair:
    """An owner, and a node that stands by."""

    def __init__(self, hosts: str) -> None:
        self.owner = Driven(hosts, (prefix := new_prefix()), name="one")
        self.owner.open()
        self.standby = Driven(hosts, prefix, name="two")
        self.written: list[bytes] = []

    def write(self, driven: Driven, count: int, *, wait: bool = True) -> None:
        answers: list[Appended | PixiuError] = []
        for _ in range(count):
            payload = b"%d" % len(self.written)
            self.written.append(payload)
            driven.log.append(MAIN, payload, answers.append, key=payload)
        if wait:
            driven.until(lambda: len(answers) == count)
            assert all(isinstance(each, Appended) for each in answers)

    def follow(self) -> Follower:
        log = self.standby.stand_by(self.owner.log.identity)
        return Follower(log)

    def close(self) -> None:
        self.owner.close()
        self.standby.close()


@pytest.fixture
def pair(kafka: KafkaServer) -> Iterator[Pair]:
    made = Pair(kafka.hosts)
    yield made
    made.close()


def test_standby_reads_what_the_owner_writes_and_continues_as_owner(pair: Pair) -> None:
    pair.write(pair.owner, 50)
    found = pair.follow()
    pair.standby.until(lambda: found.payloads == pair.written)
    pair.write(pair.owner, 50)
    pair.standby.until(lambda: found.payloads == pair.written)
    assert not pair.standby.log.problems() and not pair.standby.log.is_owner
    pair.write(pair.owner, 30)  # the last ones are not read when the standby opens the log
    pair.standby.open(applied=0)
    read_back = pair.standby.log.counters.read_back
    pair.write(pair.standby, 20)
    pair.standby.until(lambda: found.payloads == pair.written)
    assert pair.standby.log.counters.read_back == read_back == 0, "the new owner reads from memory"
    pair.owner.log.append(MAIN, b"late", lambda _result: None)
    pair.owner.until(lambda: pair.owner.log.is_fenced)
    pair.write(pair.standby, 1)
    pair.standby.until(lambda: found.payloads == pair.written)


def test_new_owner_recognizes_keys_and_knows_how_far_tasks_are_finished(pair: Pair) -> None:
    pair.write(pair.owner, 3)
    found = pair.follow()
    kicks: list[Any] = []
    for _ in range(4):
        pair.owner.log.publish(NOTIFY, b"task", kicks.append)
    pair.owner.until(lambda: len(kicks) == 4)
    pair.owner.log.set_position(TASKS, TASKS_READER, kicks[1])
    pair.owner.until(lambda: pair.owner.log.position(TASKS, TASKS_READER) == kicks[1])
    log = pair.standby.open()
    assert log.position(TASKS, TASKS_READER) == kicks[1]
    assert [each.event_id for each in log.topic(NOTIFY, kicks[1], 10)] == kicks[2:]
    assert not log.counters.read_back, "unfinished tasks are read when the log is opened, off the loop"
    again: list[Any] = []
    log.append(MAIN, b"1", again.append, key=b"1")
    pair.standby.until(lambda: bool(again))
    assert again[0].is_repeat
    pair.standby.until(lambda: found.payloads == pair.written)


def test_errors_of_a_standby_leave_no_hole(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails may have taken records from the driver: they are read again."""
    rng, real = random.Random(3), PartitionReader.read_new
    failures = 0

    def read_new(self: PartitionReader, limit: int, wait_ms: float) -> Any:
        nonlocal failures
        chunk = real(self, min(limit, 7), wait_ms)
        if chunk is not None and rng.random() < 0.3:
            failures += 1
            raise Unavailable("the connection was lost")
        return chunk

    monkeypatch.setattr(PartitionReader, "read_new", read_new)
    monkeypatch.setattr(module, "AGAIN_MS", 1)
    pair.write(pair.owner, 100)
    found = pair.follow()
    for _ in range(5):
        pair.write(pair.owner, 10)
        pair.standby.pass_ms(50)
    pair.standby.until(lambda: found.payloads == pair.written)
    assert failures > 3
    pair.write(pair.owner, 40)
    pair.standby.open(applied=found.reached)

    def has_all() -> bool:
        found.read()
        return found.payloads == pair.written

    pair.standby.until(has_all)


def test_standby_takes_over_after_its_first_attempt_has_failed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.write(pair.owner, 20)
    found = pair.follow()
    pair.standby.until(lambda: found.payloads == pair.written)
    pair.write(pair.owner, 20)
    reading = pair.standby.log._reading
    prepare = reading.prepare

    def fail(*_arguments: Any, **_more: Any) -> Any:
        raise Unavailable("not now")

    monkeypatch.setattr(reading, "prepare", fail)
    with pytest.raises(Unavailable, match="not now"):
        pair.standby.open()
    monkeypatch.setattr(reading, "prepare", prepare)
    pair.standby.open()
    pair.write(pair.standby, 5)
    pair.standby.until(lambda: found.payloads == pair.written)


def test_standby_waits_for_an_applier_that_is_slow(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.backends.kafka.log.STANDBY_BYTES_MAX", 20_000)
    monkeypatch.setattr(module, "STEP_RECORDS", 20)
    pair.write(pair.owner, 500)
    log = pair.standby.stand_by(pair.owner.log.identity)
    pair.standby.until(lambda: log.committed > 0)
    pair.standby.pass_ms(500)
    assert log.committed < 400 and log.unread + log.committed >= 500
    found = Follower(log)
    found.read()
    pair.standby.until(lambda: found.payloads == pair.written)
    assert not log.counters.read_back


def test_standby_of_another_log_reads_nothing_and_says_why(pair: Pair, kafka: KafkaServer) -> None:
    other = Driven(kafka.hosts, new_prefix())
    try:
        identity = other.open().identity
        log = pair.standby.stand_by(identity)
        pair.standby.until(lambda: "is another topic" in " ".join(log.problems()))
        with pytest.raises(CorruptData):
            pair.standby.open()
    finally:
        other.close()


def test_standby_names_a_kafka_that_does_not_answer(pair: Pair, kafka: KafkaServer) -> None:
    found = pair.follow()
    pair.write(pair.owner, 5)
    pair.standby.until(lambda: found.payloads == pair.written)
    kafka.freeze()
    try:
        pair.standby.until(lambda: bool(pair.standby.log.problems()), seconds=20)
    finally:
        kafka.thaw()
    pair.standby.until(lambda: not pair.standby.log.problems())
    pair.write(pair.owner, 5)
    pair.standby.until(lambda: found.payloads == pair.written)
