"""The log on a real Kafka: the contract, one owner, how it lies there."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin

from pixiu.backends.kafka.address import KafkaAddress
from pixiu.backends.kafka.memory import Recent, RecentTopic
from pixiu.backends.kafka.topics import Topics
from pixiu.cli.kafka_checks import kafka_checks
from pixiu.config import EngineSettings, KafkaSettings, Settings
from pixiu.model.errors import Conflict, Overloaded, PixiuError, TooLarge, Unavailable
from pixiu.model.pixiu_pb2 import KickSession, MsgChat, Notify, Push, Record, Task
from pixiu.ports.log import DEAD, MAIN, NOTIFY, SCHEDULE, TASKS, Appended, Log
from pixiu.runtime.clock import SystemClock
from tests.contracts.log import LogContract
from tests.kafka import Driven, new_prefix
from tools.kafka_server import KafkaServer

pytestmark = pytest.mark.engines


class TestKafkaLog(LogContract):
    @pytest.fixture(autouse=True)
    def server(self, kafka: KafkaServer) -> None:
        self.hosts, self.prefix = kafka.hosts, new_prefix()

    def start(self) -> Log:
        self.driven = Driven(self.hosts, self.prefix)
        return self.driven.open()

    def restart(self) -> Log:
        self.driven.close()
        return self.start()

    def stop(self) -> None:
        self.driven.close()

    def until(self, condition: Callable[[], bool]) -> None:
        self.driven.until(condition)

    def pass_ms(self, milliseconds: float) -> None:
        self.driven.pass_ms(milliseconds)

    def now_ms(self) -> int:
        return self.driven.clock.now_ms()


@pytest.fixture
def open_log(kafka: KafkaServer) -> Iterator[Callable[..., Driven]]:
    """Open logs that are closed when the test is over; the same prefix again is the same log."""
    opened: list[Driven] = []

    def open_one(prefix: str, **options: Any) -> Driven:
        driven = Driven(kafka.hosts, prefix, **options)
        opened.append(driven)
        driven.open()
        return driven

    yield open_one
    for driven in opened:
        driven.close()


def ask(driven: Driven, call: Callable[[Callable[[Any], object]], object]) -> Any:
    answers: list[Any] = []
    call(answers.append)
    driven.until(lambda: bool(answers))
    return answers[0]


def append(driven: Driven, payload: bytes, *, topic: str = MAIN, **options: Any) -> Any:
    return ask(driven, lambda done: driven.log.append(topic, payload, done, **options))


def everything(driven: Driven) -> list[bytes]:
    """What a follower gets from the beginning on."""
    got: list[bytes] = []
    position = 0
    while position < driven.log.committed:
        position = read_some(driven, position, got)
    return got


# One owner.


def test_a_second_owner_fences_the_first_which_says_so_and_writes_no_more(open_log: Any) -> None:
    prefix = new_prefix()
    first = open_log(prefix, name="first")
    accepted = append(first, b"of the first", key=b"k")
    second = open_log(prefix, name="second")
    refused = append(first, b"too late", key=b"late")
    assert isinstance(refused, Unavailable) and "second" in str(refused)
    assert first.log.problems() == [str(refused)] and not first.log.is_owner
    assert append(first, b"still", key=b"still") is refused
    later = append(second, b"of the second")
    assert later.message_id > accepted.message_id
    assert everything(second) == [b"of the first", b"of the second"]
    assert append(second, b"x", key=b"k") == accepted._replace(is_repeat=True)


def test_an_owner_that_writes_all_the_time_is_fenced_as_well(open_log: Any, kafka: KafkaServer) -> None:
    prefix = new_prefix()
    first = open_log(prefix, name="first")
    second = Driven(kafka.hosts, prefix, name="second")
    opened: list[Any] = []
    accepted: list[bytes] = []
    refused: list[Any] = []

    def write(number: int) -> None:
        def answered(answer: Any) -> None:
            (accepted if isinstance(answer, Appended) else refused).append(b"%d" % number)
            if not refused:
                write(number + 1)

        first.log.append(MAIN, b"%d" % number, answered)

    try:
        write(0)
        first.until(lambda: len(accepted) > 20)
        second.log.open(opened.append)
        while not opened or not refused:
            second.pass_ms(5)
            first.pass_ms(5)
        assert opened == [None] and "second" in first.log.problems()[0]
        append(second, b"of the second")
        assert everything(second) == [*accepted, b"of the second"]
    finally:
        second.close()


def test_an_owner_that_writes_nothing_notices_too_that_it_was_fenced(
    open_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.backends.kafka.log.LOOK_MS", 100)
    prefix = new_prefix()
    first = open_log(prefix, name="first")
    open_log(prefix, name="second")
    first.until(lambda: bool(first.log.problems()))
    assert "second" in first.log.problems()[0]


def test_what_an_owner_had_on_its_way_when_it_was_fenced_is_not_there(open_log: Any) -> None:
    prefix = new_prefix()
    first = open_log(prefix, name="first")
    answers: list[Any] = []
    first.log.append(MAIN, b"never sent", answers.append)  # its loop does not run from here on
    second = open_log(prefix, name="second")
    append(second, b"there")
    first.until(lambda: bool(answers))
    assert isinstance(answers[0], Unavailable)
    assert everything(second) == [b"there"]


class SetBack(SystemClock):
    """A machine whose clock was set back by a day."""

    def now_ms(self) -> int:
        return super().now_ms() - 86_400_000


def test_numbers_rise_over_a_restart_with_a_clock_that_was_set_back(open_log: Any) -> None:
    prefix = new_prefix()
    first = open_log(prefix)
    before = append(first, b"a")
    ask(first, lambda done: first.log.publish(MAIN, b"row", done))
    first.close()
    second = open_log(prefix, clock=SetBack())
    assert append(second, b"b").message_id > before.message_id


# Reading.


def test_who_is_behind_memory_reads_from_kafka_without_a_hole(open_log: Any) -> None:
    driven = open_log(new_prefix())
    driven.log._reading.recent = Recent(bytes_max=4_000)
    driven.log._reading.recent.begin(driven.log.committed)
    wanted: list[bytes] = []
    got: list[bytes] = []
    position = 0
    for number in range(60):
        some = [b"%d.%d" % (number, each) for each in range(number % 7)]
        answers: list[Any] = []
        for payload in some:
            driven.log.append(MAIN, payload, answers.append)
        driven.until(lambda some=some, answers=answers: len(answers) == len(some))
        wanted += some
        if number % 9 == 0:
            position = read_some(driven, position, got)
    while position < driven.log.committed:
        position = read_some(driven, position, got)
    assert got == wanted
    assert driven.log.counters.read_back > 0
    assert [each.payload for batch in driven.log.scan(driven.log.committed, 13) for each in batch] == wanted


def read_some(driven: Driven, position: int, got: list[bytes]) -> int:
    """What a carrier does: a log that cannot be read just now is read later."""
    try:
        records = driven.log.read(position, 10)
    except Unavailable:
        driven.pass_ms(20)
        return position
    got += [each.payload for each in records]
    return records[-1].event_id if records else driven.log.committed


def test_tasks_beyond_memory_are_read_from_their_own_topic(open_log: Any) -> None:
    prefix = new_prefix()
    driven = open_log(prefix)
    driven.log._reading._topics[NOTIFY] = RecentTopic(driven.log.committed, count_max=5)
    events = [append(driven, b"%d" % number, topic=NOTIFY).event_id for number in range(25)]
    assert driven.log._reading._topics[NOTIFY].forgotten > 0

    def all_read() -> bool:
        try:
            return [each.event_id for each in driven.log.topic(NOTIFY, events[2], 100)] == events[3:]
        except Unavailable:  # what was committed a moment ago is not readable yet
            return False

    driven.until(all_read)
    page, after = [], 0
    while some := driven.log.topic(NOTIFY, after, 4):
        page += some
        after = some[-1].event_id
    assert [each.event_id for each in page] == events


def test_a_record_is_found_by_its_number(open_log: Any) -> None:
    driven = open_log(new_prefix())
    answers: list[Any] = []
    for number in range(200):
        if number % 3:
            driven.log.publish(MAIN, b"row")
        driven.log.append(MAIN, b"%d" % number, answers.append)
    driven.until(lambda: len(answers) == 200)
    driven.until(lambda: found_all(driven, answers[::17]))
    assert driven.log.find(answers[0].message_id - 1) is None
    assert driven.log.find(answers[-1].message_id + 1) is None


def found_all(driven: Driven, answers: list[Any]) -> bool:
    found = [driven.log.find(each.message_id) for each in answers]
    return [each and each.event_id for each in found] == [each.event_id for each in answers]


def test_what_others_write_into_the_topic_is_passed_over(kafka: KafkaServer, open_log: Any) -> None:
    prefix = new_prefix()
    driven = open_log(prefix)
    append(driven, b"ours")
    foreign = Producer({"bootstrap.servers": kafka.hosts})
    for headers in ({}, {"event": b"x"}, {"event": b"7"}):
        foreign.produce(f"{prefix}.main", b"theirs", headers=dict(headers))
    assert foreign.flush(20) == 0
    append(driven, b"ours again")
    driven.close()
    again = open_log(prefix)
    assert everything(again) == [b"ours", b"ours again"]
    append(again, b"and on")


# Bounds.


def test_more_than_may_wait_is_refused_as_busy_and_what_was_taken_is_written(open_log: Any) -> None:
    driven = open_log(new_prefix(), settings=KafkaSettings(pending_max=10))
    answers: list[Any] = []
    for number in range(25):
        driven.log.append(MAIN, b"%d" % number, answers.append)
    driven.until(lambda: len(answers) == 25)
    refused = [each for each in answers if isinstance(each, PixiuError)]
    assert len(refused) == 15 and {type(each) for each in refused} == {Overloaded}
    assert len(driven.log.read(0, 100)) == 10
    assert driven.log.sending.pending_count == driven.log.sending.pending_bytes == 0


def test_a_record_larger_than_kafka_takes_is_refused_by_itself(open_log: Any) -> None:
    driven = open_log(new_prefix())
    assert isinstance(append(driven, bytes(30 * 2**20)), TooLarge)
    assert isinstance(append(driven, bytes(16 * 2**20)), Appended)


def test_who_asks_further_back_than_the_writer_remembers_is_told_so(open_log: Any) -> None:
    driven = open_log(new_prefix(), keys_max=3)
    first = append(driven, b"1", key=b"1")
    for number in range(10):
        append(driven, b"x", key=b"k%d" % number)
    assert isinstance(append(driven, b"1", key=b"1", unless_after=first.event_id - 1), Conflict)


@pytest.mark.parametrize(("log", "said"), [("kafka://127.0.0.1:9", "127.0.0.1:9"), ("kafka://a:b", "HOST:PORT")])
def test_doctor_says_so_when_there_is_no_kafka(log: str, said: str) -> None:
    (check,) = kafka_checks(Settings(engines=EngineSettings(log=log)))
    assert check.state == "fail" and said in check.text and check.advice


# How it lies in Kafka, seen by Kafka's own client.


def records_of(hosts: str, topic: str) -> list[Any]:
    consumer = Consumer({
        "bootstrap.servers": hosts, "group.id": "look", "isolation.level": "read_committed",
        "enable.partition.eof": True, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


def headers_of(message: Any) -> dict[str, bytes]:
    return dict(message.headers())


@pytest.mark.feature("P07")
def test_the_topics_are_kept_and_keyed_as_documented(kafka: KafkaServer, open_log: Any) -> None:
    prefix = new_prefix()
    driven = open_log(prefix)
    chat = MsgChat(fromId=9, data=b"hello").SerializeToString()
    private = append(driven, Record(actor=9, to=4, chat=chat).SerializeToString(), key=b"9:1")
    append(driven, Record(actor=9, group=7, chat=chat).SerializeToString())
    push = append(driven, Record(actor=1, chat=chat, push=Push(users=[5, 6, 8])).SerializeToString())
    append(driven, Task(notify=Notify(user=5)).SerializeToString(), topic=NOTIFY)
    append(driven, Task(kick=KickSession(user=6)).SerializeToString(), topic=TASKS)
    append(driven, b"dead", topic=DEAD)
    ask(driven, lambda done: driven.log.publish(MAIN, b"rows", done))
    ask(driven, lambda done: driven.log.schedule(NOTIFY, Task(attempt=1).SerializeToString(), 1, done))
    kept = ask(driven, lambda done: driven.log.schedule(SCHEDULE, b"later", driven.clock.now_ms() + 10**7, done))
    driven.until(lambda: len(driven.log.topic(NOTIFY, 0, 10)) == 2)
    driven.pass_ms(200)

    main = records_of(kafka.hosts, f"{prefix}.main")
    events = [int(headers_of(each)["event"]) for each in main]
    assert events == list(range(1, len(main) + 1))
    keys = [each.key() for each in main if headers_of(each)["topic"] == MAIN.encode() and "id" in headers_of(each)]
    assert keys == [b"u:4:9", b"g:7", b"u:1"]
    first = next(each for each in main if headers_of(each).get("id") == b"%d" % private.message_id)
    assert headers_of(first)["send"] == b"9:1" and Record.FromString(first.value()).to == 4

    tasks = records_of(kafka.hosts, f"{prefix}.tasks")
    pushed = [json.loads(each.value()) for each in tasks if "push" in headers_of(each)]
    assert [(each["user"], each["message_id"]) for each in pushed] == [
        (user, str(push.message_id)) for user in ("5", "6", "8")
    ]
    assert [each.key() for each in tasks] == [b"5", b"6", b"8", b"6"]
    assert [each.key() for each in records_of(kafka.hosts, f"{prefix}.notify")] == [b"5", b""]
    assert len(records_of(kafka.hosts, f"{prefix}.retry")) == 1
    assert [each.value() for each in records_of(kafka.hosts, f"{prefix}.dlq")] == [b"dead"]
    assert [each.value() for each in records_of(kafka.hosts, f"{prefix}.ledger")] == [b"rows"]
    state = {each.key(): each.value() for each in records_of(kafka.hosts, f"{prefix}.state")}
    assert state[b"owner"].endswith(b" one") and state[b"%d" % kept] == b"later"
    assert sum(value is not None for value in state.values()) == 3  # owner, wants, what waits


def test_doctor_tells_what_loses_data_and_how_to_mend_it(kafka: KafkaServer, open_log: Any) -> None:
    address = KafkaAddress(kafka.hosts, new_prefix())
    topics = Topics(address, {})
    before = topics.look()
    assert [each.state for each in before] == ["ok", "ok"] and "release 4.1" in before[0].text
    open_log(address.prefix)
    found = {each.name: each for each in topics.look()}
    name = address.topic("main")
    assert {each.name for each in found.values() if each.state != "ok"} == {f"kafka {name} copies"}
    assert found[f"kafka {name} copies"].advice
    api: Any = kafka_admin  # its types leave much out
    admin = api.AdminClient({"bootstrap.servers": kafka.hosts})
    bad = {"retention.ms": "1000", "unclean.leader.election.enable": "true", "cleanup.policy": "compact,delete"}
    change = api.AlterConfigOpType.SET
    entries = [api.ConfigEntry(key, value, incremental_operation=change) for key, value in bad.items()]
    resource = api.ConfigResource(api.ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(20)
    found = {each.name: each for each in topics.look()}
    told = {each.name: each for each in kafka_checks(Settings(engines=EngineSettings(log=str(address))))}
    assert {name: each.state for name, each in told.items()} == {name: each.state for name, each in found.items()}
    for title in ("retention.ms", "unclean.leader.election", "cleanup"):
        assert found[f"kafka {name} {title}"].state == "fail" and found[f"kafka {name} {title}"].advice
    state = address.topic("state")
    assert found[f"kafka {state} cleanup"].state == "ok"
    entry = api.ConfigEntry("cleanup.policy", "delete", incremental_operation=change)
    resource = api.ConfigResource(api.ConfigResource.Type.TOPIC, state, incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(20)
    lost = next(each for each in topics.look() if each.name == f"kafka {state} cleanup")
    assert lost.state == "fail" and "cleanup.policy=compact" in lost.advice
