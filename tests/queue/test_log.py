"""The log as roles in this process see it: one writer, numbers that rise, repeats found, nothing missed."""

import gc
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.model.errors import Conflict, PixiuError, Unavailable
from pixiu.ports.log import MAIN, NOTIFY, SCHEDULE, Appended
from pixiu.queue.background import end_topic
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog, _Call
from pixiu.queue.operations import Change
from pixiu.queue.storage.record import Kind, decode_block
from pixiu.queue.tail import Tail
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.oracle import Model, journal_frames
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Machine:
    """A log on a simulated machine that can be switched off."""

    keys_max: int = 1000
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    clock: SimulatedClock = field(default_factory=SimulatedClock)

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(self.rng, now_ms=self.clock.now_ms)
        self.content = StoreContent()
        self.boot()

    def boot(self) -> None:
        self.scheduler = SimulatedScheduler(self.clock, self.rng, slow_us=100, pause_chance=0)
        settings = Settings(
            queue=QueueSettings(open_topics_max=8, keys_max=self.keys_max),
            journal=JournalSettings(free_bytes_min=0, segment_bytes=4096),
            log=LogSettings(sample=0),
        )
        store = SimulatedKeyValue(self.content)
        self.engine = Engine(settings, self.disk, store, self.clock, self.scheduler)
        self.engine.recover()
        self.engine.start()
        self.log = EngineLog(self.engine)
        self.log.open(lambda error: None)
        self.run()

    def run(self, milliseconds: float = 5) -> None:
        self.scheduler.run_for(milliseconds)

    def append(self, *payloads: bytes, **options: Any) -> list[Appended | PixiuError]:
        answers: list[Appended | PixiuError] = []
        for payload in payloads:
            self.log.append(MAIN, payload, answers.append, **options)
        self.run()
        return answers


def test_appends_of_one_turn_are_one_record_with_rising_numbers() -> None:
    machine = Machine()
    answers = machine.append(b"a", b"b", b"c")
    first, second, third = (answer for answer in answers if isinstance(answer, Appended))
    assert [second.event_id - first.event_id, third.event_id - second.event_id] == [1, 1]
    assert first.message_id < second.message_id < third.message_id
    frames = [frame for frame in journal_frames(machine.disk) if decode_block(frame.block).kind == Kind.APPEND]
    assert [frame.count for frame in frames] == [3]
    assert [record.payload for record in machine.log.read(0, 10)] == [b"a", b"b", b"c"]
    Model(journal_frames(machine.disk))


class _Told:
    """Someone who waits for an answer."""

    count = 0

    def __call__(self, _answer: object) -> None:
        self.count += 1


WRITES: dict[str, Callable[[EngineLog, _Told], object]] = {
    "append": lambda log, told: log.append(MAIN, b"x", told, key=b"k"),
    "publish": lambda log, told: log.publish(MAIN, b"x", told),
    "publish nowhere": lambda log, told: log.publish("nowhere", b"x", told),
    "schedule": lambda log, told: log.schedule(MAIN, b"x", 2**50, told),
    "unschedule": lambda log, told: log.unschedule(1, told),
}


@pytest.mark.parametrize("name", WRITES)
def test_who_was_answered_is_let_go_without_the_collector(name: str) -> None:
    """And so is what the answer was made from."""
    machine = Machine()
    told = _Told()
    held = weakref.ref(told)
    gc.collect()
    gc.disable()
    try:
        WRITES[name](machine.log, told)
        machine.run()
        assert told.count == 1
        del told
        assert held() is None
        assert not [each for each in gc.get_objects() if type(each) is _Call]
    finally:
        gc.enable()


@pytest.mark.parametrize(("name", "bound"), [("RUN_COUNT_MAX", 4), ("RUN_BYTES_MAX", 300)])
def test_appends_of_one_turn_that_are_too_many_or_too_long_for_one_record_are_several(
    name: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"pixiu.queue.batch.{name}", bound)
    machine = Machine()
    payloads = [b"%d" % number * 20 for number in range(11)]
    answers = [answer for answer in machine.append(*payloads) if isinstance(answer, Appended)]
    records = machine.log.read(0, 20)
    assert [record.payload for record in records] == payloads
    assert [(record.event_id, record.message_id) for record in records] == [answer[:2] for answer in answers]
    frames = [frame for frame in journal_frames(machine.disk) if decode_block(frame.block).kind == Kind.APPEND]
    assert sum(frame.count for frame in frames) == 11
    assert 1 < max(frame.count for frame in frames) <= 4
    Model(journal_frames(machine.disk))


def test_the_same_key_is_appended_once_and_answered_alike() -> None:
    machine = Machine()
    first, second = machine.append(b"a", b"a", key=b"k")
    assert isinstance(first, Appended) and isinstance(second, Appended)
    assert (first.is_repeat, second.is_repeat) == (False, True)
    assert (first.event_id, first.message_id) == (second.event_id, second.message_id)
    (third,) = machine.append(b"a", key=b"k", unless_after=first.event_id)
    assert isinstance(third, Appended) and not third.is_repeat


def test_many_at_once_are_numbered_one_behind_the_other_and_answered_together() -> None:
    machine = Machine()
    told: list[Sequence[Appended | PixiuError]] = []
    machine.log.append_all(MAIN, [b"a", b"b", b"c"], [b"1", b"2", b"3"], told.append)
    machine.log.append_all(MAIN, [b"d", b"b", b"e"], [b"4", b"2", b""], told.append)
    assert told == []
    machine.run()
    (first, second, third), (fourth, repeat, fifth) = told
    new = [first, second, third, fourth, fifth]
    assert all(isinstance(each, Appended) and not each.is_repeat for each in new)
    assert isinstance(second, Appended) and repeat == second._replace(is_repeat=True)
    records = machine.log.read(0, 10)
    assert [(record.payload, record.key) for record in records] == [
        (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"), (b"e", b""),
    ]  # fmt: skip
    assert [(record.event_id, record.message_id, False) for record in records] == new
    machine.log.append_all(MAIN, [b"c", b"a"], [b"3", b"1"], told.append)
    machine.run()
    assert [each[:2] for each in told[-1] if isinstance(each, Appended) and each.is_repeat] == [new[2][:2], new[0][:2]]  # type: ignore[index]
    Model(journal_frames(machine.disk))


def test_one_who_fails_when_told_fails_alone() -> None:
    """All of one operation are told by one loop, and the writer goes on behind it."""
    machine = Machine()
    told: list[Appended | PixiuError] = []

    def fail(_: Appended | PixiuError) -> None:
        raise RuntimeError("nobody is here")

    machine.log.append(MAIN, b"a", fail)
    machine.log.append(MAIN, b"b", told.append)
    machine.log.publish(MAIN, b"c")
    machine.log.append(MAIN, b"d", told.append)
    with pytest.raises(RuntimeError, match="nobody is here"):
        machine.run()
    machine.run()
    assert [isinstance(each, Appended) for each in told] == [True, True]
    assert [record.payload for record in machine.log.read(0, 10)] == [b"a", b"b", b"c", b"d"]


def test_keys_of_many_that_were_not_written_are_not_known() -> None:
    machine = Machine()
    told: list[Sequence[Appended | PixiuError]] = []
    machine.disk.fail_write = lambda path: "journal" in path
    machine.log.append_all(MAIN, [b"a", b"b"], [b"1", b"2"], told.append)
    machine.run()
    machine.disk.fail_write = lambda path: False
    machine.log.append_all(MAIN, [b"a", b"b"], [b"1", b"2"], told.append)
    machine.run()
    assert [type(each) for each in told[0]] == [Unavailable, Unavailable]
    assert [isinstance(each, Appended) and each.is_repeat for each in told[1]] == [False, False]
    assert [record.payload for record in machine.log.read(0, 10)] == [b"a", b"b"]


def test_a_repeat_is_found_after_a_restart_also_within_a_record_of_many() -> None:
    machine = Machine()
    answers: list[Appended | PixiuError] = []
    for number in range(20):
        machine.log.append(MAIN, b"x", answers.append, key=b"k%d" % number)
    machine.run()
    machine.scheduler.close()
    machine.boot()
    again: list[Appended | PixiuError] = []
    for number in range(20):
        machine.log.append(MAIN, b"x", again.append, key=b"k%d" % number)
    machine.run()
    assert [(each.event_id, each.message_id) for each in again if isinstance(each, Appended)] == [
        (each.event_id, each.message_id) for each in answers if isinstance(each, Appended)
    ]
    assert all(each.is_repeat for each in again if isinstance(each, Appended))


def test_who_asks_further_back_than_the_writer_remembers_is_told_so() -> None:
    machine = Machine(keys_max=3)
    machine.append(b"1", key=b"1")
    for number in range(40):
        machine.append(b"x", key=b"k%d" % number)
    (answer,) = machine.append(b"1", key=b"1")
    assert isinstance(answer, Conflict)


def test_more_keys_in_one_turn_than_the_writer_remembers_are_still_appended_once() -> None:
    """Found by ``pixiu sim``: what was forgotten within a batch cannot be read back before the batch is written."""
    machine = Machine(keys_max=3)
    answers: dict[bytes, list[Appended | PixiuError]] = {}
    for _ in range(2):
        for number in range(6):
            key = b"k%d" % number
            machine.log.append(MAIN, key, answers.setdefault(key, []).append, key=key)
    machine.run()
    for key, given in answers.items():
        assert len({each.message_id for each in given if isinstance(each, Appended)}) <= 1, key
    records = [record.key for record in machine.log.read(0, 100) if record.key]
    assert len(records) == len(set(records)) > 0


def test_a_reader_gets_everything_once_whether_it_keeps_up_or_lags() -> None:
    machine = Machine()
    log, engine = machine.log, machine.engine
    engine.tail = log._tail = Tail(engine, bytes_max=1500)
    wanted, got, position = [], [], 0
    for number in range(200):
        some = [b"%d.%d" % (number, each) for each in range(machine.rng.randint(1, 9))]
        machine.append(*some)
        wanted += some
        if machine.rng.random() < 0.1:
            for _ in range(machine.rng.randint(1, 6)):
                records = log.read(position, machine.rng.randint(1, 30))
                got += [record.payload for record in records]
                position = records[-1].event_id if records else log.committed
    while records := log.read(position, 7):
        got += [record.payload for record in records]
        position = records[-1].event_id
    assert got == wanted


def test_answers_alone_leave_nothing_for_a_reader() -> None:
    """Nobody reads when nothing is new, so nobody would let go of it."""
    machine = Machine()
    machine.append(b"a")
    waiting = len(machine.log._tail._stretches)
    told: list[bool | PixiuError] = []
    for _ in range(20):
        machine.log.unschedule(10**6, told.append)
        machine.run()
    assert told == [False] * 20
    assert len(machine.log._tail._stretches) == waiting
    machine.append(b"b")
    assert [record.payload for record in machine.log.read(0, 10)] == [b"a", b"b"]


def test_what_was_there_before_the_start_is_read_from_segments() -> None:
    machine = Machine()
    answers = machine.append(*(b"%d" % number for number in range(300)), key=b"")
    machine.scheduler.close()
    machine.boot()
    records, position = [], 0
    while page := machine.log.read(position, 50):
        some = page[: machine.rng.randint(1, 50)]  # whoever stops in the middle of a record goes on there
        records += some
        position = some[-1].event_id
    assert [(record.event_id, record.message_id) for record in records] == [
        (each.event_id, each.message_id) for each in answers if isinstance(each, Appended)
    ]
    assert {record.topic for record in records} == {MAIN}


def test_a_publish_and_a_schedule_come_without_a_number() -> None:
    machine = Machine()
    told: list[object] = []
    machine.log.publish(NOTIFY, b"now", told.append)
    due = machine.clock.now_ms() + 5000
    machine.log.schedule(SCHEDULE, b"later", due, told.append)
    machine.log.schedule(SCHEDULE, b"never", due + 1, told.append)
    machine.run()
    assert [(each.due, each.payload) for each in machine.log.scheduled(SCHEDULE)] == [
        (due, b"later"), (due + 1, b"never"),
    ]  # fmt: skip
    gone: list[object] = []
    machine.log.unschedule(int(str(told[2])), gone.append)
    machine.log.unschedule(10**6, gone.append)
    machine.run()
    assert gone == [True, False]
    machine.run(20_000)
    records = machine.log.read(0, 10)
    assert [(record.topic, record.payload, record.message_id) for record in records] == [
        (NOTIFY, b"now", 0), (SCHEDULE, b"later", 0),
    ]  # fmt: skip
    assert machine.log.scheduled(SCHEDULE) == []
    assert [record.payload for record in machine.log.topic(NOTIFY, 0, 10)] == [b"now"]


def test_a_follower_of_the_log_hears_of_each_commit() -> None:
    machine = Machine()
    heard: list[int] = []
    machine.log.follow(0, lambda: heard.append(machine.log.committed))
    (answer,) = machine.append(b"a")
    assert isinstance(answer, Appended)
    assert heard == [answer.event_id]


def test_a_topic_tells_numbers_and_keys_of_what_was_appended() -> None:
    machine = Machine()
    (answer,) = machine.append(b"a", key=b"key")
    (record,) = machine.log.topic(MAIN, 0, 10)
    assert isinstance(answer, Appended)
    assert (record.event_id, record.message_id, record.key) == (answer.event_id, answer.message_id, b"key")


@pytest.mark.parametrize("failing", ["write", "flush"])
def test_a_disk_that_fails_answers_everyone_with_a_typed_error(failing: str) -> None:
    machine = Machine()
    setattr(machine.disk, f"fail_{failing}", lambda path: "journal" in path)
    answers = machine.append(b"a", b"b")
    assert [type(answer) for answer in answers] == [Unavailable, Unavailable]


def test_a_topic_is_read_from_behind_any_event_of_the_log() -> None:
    machine = Machine()
    ids: list[int] = []
    for number in range(120):
        if machine.rng.random() < 0.5:
            machine.append(b"x" * machine.rng.randint(1, 300))
        told: list[Any] = []
        machine.log.publish(NOTIFY, b"%d" % number, told.append)
        machine.run()
        ids.append(told[0])
    for after in range(machine.log.committed + 3):
        limit = machine.rng.randint(1, 40)
        found = machine.log.topic(NOTIFY, after, limit)
        assert [record.event_id for record in found] == [each for each in ids if each > after][:limit]


def test_a_topic_of_its_own_that_is_missing_is_a_problem() -> None:
    machine = Machine()
    assert machine.log.problems() == []
    topic = machine.engine.topics.get(NOTIFY.encode())
    assert topic is not None
    machine.engine.writer.submit(Change(None, lambda batch: b"%d" % end_topic(machine.engine, topic, batch)), 64)
    machine.run()
    assert machine.log.problems() == ["topic pixiu.notify is missing"]
