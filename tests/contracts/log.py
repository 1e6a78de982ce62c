"""What every ``Log`` must do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.ports.log import DEAD, MAIN, NOTIFY, SCHEDULE, TASKS, Appended, Log, LogRecord

Answer = Any


class LogContract(ABC):
    """One writer numbers, drops repeats and wakes for what is due; what was answered is there for good.

    Whoever follows from afar may see it a little later: what is answered is waited for before it is read.
    """

    @abstractmethod
    def start(self) -> Log:
        """An open log that holds nothing yet."""

    @abstractmethod
    def restart(self) -> Log:
        """The same log, opened by a new process after the old one was killed."""

    @abstractmethod
    def stop(self) -> None:
        """The test is over."""

    @abstractmethod
    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until this is so; fail if it never is."""

    @abstractmethod
    def pass_ms(self, milliseconds: float) -> None:
        """Let this much time pass."""

    @abstractmethod
    def now_ms(self) -> int:
        """The clock that the log goes by."""

    @pytest.fixture
    def log(self) -> Iterator[Log]:
        yield self.start()
        self.stop()

    # Asking and waiting for the answer.

    def ask(self, call: Callable[[Callable[[Any], object]], object]) -> Answer:
        answers: list[Any] = []
        call(answers.append)
        assert not answers, "an answer comes later, never within the call"
        self.until(lambda: bool(answers))
        assert len(answers) == 1
        assert not isinstance(answers[0], PixiuError), answers[0]
        return answers[0]

    def append(self, log: Log, payload: bytes, key: bytes = b"", unless_after: int = 0, topic: str = MAIN) -> Appended:
        answer = self.ask(lambda done: log.append(topic, payload, done, key=key, unless_after=unless_after))
        assert isinstance(answer, Appended)
        self.until(lambda: log.committed >= answer.event_id)
        return answer

    def publish(self, log: Log, payload: bytes, topic: str = MAIN) -> int:
        event_id = self.ask(lambda done: log.publish(topic, payload, done))
        assert isinstance(event_id, int)
        self.until(lambda: log.committed >= event_id)
        return event_id

    def schedule(self, log: Log, payload: bytes, in_ms: int, topic: str = SCHEDULE) -> int:
        schedule_id = self.ask(lambda done: log.schedule(topic, payload, self.now_ms() + in_ms, done))
        assert isinstance(schedule_id, int)
        return schedule_id

    def all_of(self, log: Log, after: int = 0, limit: int = 7) -> list[LogRecord]:
        """Everything that a follower gets from here to the end."""
        found: list[LogRecord] = []
        while after < log.committed:
            records = log.read(after, limit)
            found += records
            after = records[-1].event_id if records else log.committed
        return found

    def topic(self, log: Log, topic: str, after: int = 0, limit: int = 10) -> list[LogRecord]:
        """Read one topic; a page of it may be on its way."""
        found: list[list[LogRecord]] = []

        def is_here() -> bool:
            try:
                found.append(log.topic(topic, after, limit))
            except Unavailable:
                return False
            return True

        self.until(is_here)
        return found[0]

    # Numbers and order.

    def test_appends_are_numbered_in_order_and_read_as_they_were_given(self, log: Log) -> None:
        answers: list[Any] = []
        for payload, key in ((b"one", b"k1"), (b"two", b""), (b"three", b"k3")):
            log.append(MAIN, payload, answers.append, key=key)
        self.until(lambda: len(answers) == 3)
        assert [answer.is_repeat for answer in answers] == [False] * 3
        events, numbers = [each.event_id for each in answers], [each.message_id for each in answers]
        assert events == sorted(set(events)) and numbers == sorted(set(numbers)) and numbers[0] > 0
        self.until(lambda: log.committed >= events[-1])
        records = self.all_of(log)
        assert [(each.event_id, each.message_id, each.topic, each.payload, each.key) for each in records] == [
            (events[0], numbers[0], MAIN, b"one", b"k1"),
            (events[1], numbers[1], MAIN, b"two", b""),
            (events[2], numbers[2], MAIN, b"three", b"k3"),
        ]
        assert all(abs(each.at - self.now_ms()) < 60_000 for each in records)

    def test_what_is_published_has_an_event_id_and_no_number(self, log: Log) -> None:
        first = self.append(log, b"a")
        event_id = self.publish(log, b"row")
        last = self.append(log, b"b")
        assert first.event_id < event_id < last.event_id and first.message_id < last.message_id
        assert [(each.payload, each.message_id > 0) for each in self.all_of(log)] == [
            (b"a", True), (b"row", False), (b"b", True),
        ]  # fmt: skip
        log.publish(MAIN, b"nobody asks")
        self.until(lambda: len(self.all_of(log)) == 4)

    def test_the_topics_share_one_order(self, log: Log) -> None:
        events = [self.append(log, topic.encode(), topic=topic).event_id for topic in (MAIN, NOTIFY, TASKS, DEAD, MAIN)]
        assert events == sorted(set(events))
        assert [each.topic for each in self.all_of(log, limit=2)] == [MAIN, NOTIFY, TASKS, DEAD, MAIN]

    # Repeats.

    def test_a_repeat_gets_the_first_answer(self, log: Log) -> None:
        first = self.append(log, b"a", b"k")
        again = self.append(log, b"other content", b"k")
        assert again == first._replace(is_repeat=True)
        assert self.append(log, b"a", b"k2").is_repeat is False
        assert [each.payload for each in self.all_of(log)] == [b"a", b"a"]

    def test_a_repeat_in_the_same_turn_is_found_too(self, log: Log) -> None:
        answers: list[Any] = []
        for _ in range(3):
            log.append(MAIN, b"a", answers.append, key=b"k")
        self.until(lambda: len(answers) == 3)
        assert {(each.event_id, each.message_id) for each in answers} == {answers[0][:2]}
        assert sorted(each.is_repeat for each in answers) == [False, True, True]
        self.until(lambda: log.committed >= answers[0].event_id)
        assert len(self.all_of(log)) == 1

    def test_only_what_came_behind_the_named_event_is_a_repeat(self, log: Log) -> None:
        first = self.append(log, b"a", b"k")
        assert self.append(log, b"a", b"k", unless_after=first.event_id - 1).is_repeat
        second = self.append(log, b"b", b"k", unless_after=first.event_id)
        assert not second.is_repeat and second.message_id > first.message_id
        assert self.append(log, b"c", b"k", unless_after=first.event_id) == second._replace(is_repeat=True)

    def test_records_without_a_key_are_never_repeats(self, log: Log) -> None:
        assert not self.append(log, b"a").is_repeat
        assert not self.append(log, b"a").is_repeat

    # Reading.

    def test_who_follows_is_woken_and_reads_on_where_it_was(self, log: Log) -> None:
        woken: list[int] = []
        log.follow(log.committed, lambda: woken.append(log.committed))
        position = log.committed
        for round_number in range(3):
            appended = self.append(log, b"%d" % round_number)
            self.until(lambda wanted=appended.event_id: bool(woken) and woken[-1] >= wanted)  # type: ignore[misc]
            records = log.read(position, 100)
            assert [each.payload for each in records] == [b"%d" % round_number]
            position = records[-1].event_id
        assert log.read(log.committed, 10) == []

    def test_one_topic_is_read_by_itself(self, log: Log) -> None:
        wanted = []
        for number in range(9):
            topic = (NOTIFY, DEAD, MAIN)[number % 3]
            appended = self.append(log, b"%d" % number, topic=topic)
            if topic == NOTIFY:
                wanted.append((appended.event_id, b"%d" % number))
        assert [(each.event_id, each.payload) for each in self.topic(log, NOTIFY, limit=100)] == wanted
        assert [(each.event_id, each.payload) for each in self.topic(log, NOTIFY, wanted[0][0], 1)] == [wanted[1]]
        assert self.topic(log, NOTIFY, wanted[-1][0]) == []
        assert self.topic(log, TASKS) == []

    def test_readers_go_on_wherever_they_are_and_get_no_more_than_they_can_take(self, log: Log) -> None:
        answers = [self.append(log, b"%d" % number) for number in range(20)]
        middle, last = answers[9].event_id, answers[-1].event_id
        assert [each.payload for each in self.all_of(log, middle)] == [b"%d" % number for number in range(10, 20)]
        assert [each.payload for each in log.read(answers[0].event_id - 1, 3)[:3]] == [b"0", b"1", b"2"]
        assert log.read(last, 10) == []
        assert [each.payload for each in self.all_of(log, middle)] == [b"%d" % number for number in range(10, 20)]

    def test_a_topic_that_is_not_there_is_refused(self, log: Log) -> None:
        answers: list[Any] = []
        log.append("pixiu.nothing", b"x", answers.append)
        self.until(lambda: bool(answers))
        assert isinstance(answers[0], PixiuError)

    # Times.

    def test_a_scheduled_record_waits_and_comes_once(self, log: Log) -> None:
        begin = log.committed
        schedule_id = self.schedule(log, b"later", 300)
        (waiting,) = log.scheduled(SCHEDULE)
        assert (waiting.schedule_id, waiting.topic, waiting.payload) == (schedule_id, SCHEDULE, b"later")
        assert log.scheduled(NOTIFY) == [] and self.all_of(log, begin) == []
        self.until(lambda: self.topic(log, SCHEDULE) != [])
        (record,) = self.topic(log, SCHEDULE)
        assert record.payload == b"later" and record.event_id > schedule_id and record.message_id == 0
        assert record.at >= waiting.due
        self.pass_ms(200)
        assert [each.payload for each in self.all_of(log, begin)] == [b"later"]
        assert log.scheduled(SCHEDULE) == []

    def test_what_waits_is_listed_by_due_time_and_can_be_dropped(self, log: Log) -> None:
        ids = {text: self.schedule(log, text, ms) for text, ms in ((b"b", 60_000), (b"a", 30_000), (b"c", 90_000))}
        assert [each.payload for each in log.scheduled(SCHEDULE)] == [b"a", b"b", b"c"]
        assert self.ask(lambda done: log.unschedule(ids[b"b"], done)) is True
        assert self.ask(lambda done: log.unschedule(ids[b"b"], done)) is False
        assert self.ask(lambda done: log.unschedule(10**15, done)) is False
        assert [each.payload for each in log.scheduled(SCHEDULE)] == [b"a", b"c"]

    # What a restart keeps.

    def test_a_restart_keeps_records_numbers_and_repeats(self, log: Log) -> None:
        before = [self.append(log, b"%d" % number, b"k%d" % number) for number in range(20)]
        self.publish(log, b"row")
        records = self.all_of(log)
        log = self.restart()
        self.until(lambda: log.committed >= records[-1].event_id)
        assert self.all_of(log) == records
        again = [self.append(log, b"x", b"k%d" % number) for number in range(20)]
        assert again == [each._replace(is_repeat=True) for each in before]
        later = self.append(log, b"later")
        assert later.message_id > before[-1].message_id and later.event_id > records[-1].event_id
        assert self.all_of(log, records[-1].event_id)[-1].payload == b"later"

    def test_a_restart_keeps_what_waits_and_what_was_dropped(self, log: Log) -> None:
        dropped = self.schedule(log, b"dropped", 60_000)
        kept = self.schedule(log, b"kept", 60_000)
        soon = self.schedule(log, b"soon", 400, NOTIFY)
        self.ask(lambda done: log.unschedule(dropped, done))
        log = self.restart()
        assert [(each.schedule_id, each.payload) for each in log.scheduled(SCHEDULE)] == [(kept, b"kept")]
        self.until(lambda: self.topic(log, NOTIFY) != [])
        assert [each.payload for each in self.topic(log, NOTIFY)] == [b"soon"]
        log = self.restart()
        self.pass_ms(100)
        assert log.scheduled(NOTIFY) == []
        assert [each.payload for each in self.topic(log, NOTIFY)] == [b"soon"]
        assert self.append(log, b"x").event_id > soon

    def test_a_reader_that_was_behind_reads_on_after_a_restart(self, log: Log) -> None:
        for number in range(50):
            self.append(log, b"%d" % number) if number % 5 == 0 else log.publish(MAIN, b"%d" % number)
        self.until(lambda: len(self.all_of(log)) == 50)
        some = self.all_of(log)[:23]
        last = self.all_of(log)[-1].event_id
        log = self.restart()
        self.until(lambda: log.committed >= last)
        rest = self.all_of(log, some[-1].event_id, limit=4)
        assert [each.payload for each in [*some, *rest]] == [b"%d" % number for number in range(50)]
