"""The parts of the log on Kafka that need no Kafka: addresses, memory, entries as records, a broker's release."""

import importlib
import sys
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from pixiu.backends.kafka.address import KafkaAddress, client_options, parse_address
from pixiu.backends.kafka.memory import ANCHORS_MAX, Anchors, Recent, RecentTopic
from pixiu.backends.kafka.records import Entry, found_in, kafka_records
from pixiu.backends.kafka.versions import supported_metadata_version
from pixiu.model.errors import ConfigError
from pixiu.model.pixiu_pb2 import MsgChat, Push, Record
from pixiu.ports.log import MAIN, NOTIFY, LogRecord


def test_an_address_names_brokers_and_a_prefix() -> None:
    assert parse_address("kafka://a:1,b") == KafkaAddress("a:1,b:9092", "pixiu")
    assert parse_address("kafka://[::1]:9?prefix=my.log").topic("main") == "my.log.main"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka://", "names no Kafka"),
        ("kafka:///x", "names no Kafka"),
        ("kafka://a:1/topic", "names no Kafka"),
        ("redis://a:1", "names no Kafka"),
        ("kafka://a:x", "no HOST:PORT"),
        ("kafka://a:1,:2", "no HOST:PORT"),
        ("kafka://a:70000", "no HOST:PORT"),
        ("kafka://a:1?prefix=", "prefix"),
        ("kafka://a:1?prefix=a/b", "prefix"),
        ("kafka://a:1?acks=1", "only prefix"),
        ("kafka://a:1?tls=on", "tls of engines.log must be yes or no"),
        ("kafka://a:1?ca=/ca.pem", "tls=yes alone"),
        ("kafka://a:1?tls=yes&verify=maybe", "yes, chain, no"),
        ("kafka://a:1?tls=yes&ca=", "ca of engines.log is empty"),
        ("kafka://a:1?tls=yes&certificate=/c.pem", "certificate and key"),
        ("kafka://a:1?user=me", "user and password_file"),
        ("kafka://a:1?password_file=/p", "user and password_file"),
        ("kafka://a:1?mechanism=PLAIN", "user and password_file"),
        ("kafka://a:1?user=me&password_file=/p&mechanism=GSSAPI", "SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
    ],
)
def test_a_wrong_address_is_told_by_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_address(text)


def test_one_line_says_how_kafka_is_spoken_to(tmp_path: Path) -> None:
    assert parse_address("kafka://a:1").options() == {}
    password = tmp_path / "password"
    password.write_text("hidden\n", encoding="utf-8")
    address = parse_address(f"kafka://a:1?tls=yes&ca=/ca&certificate=/c&key=/k&user=me&password_file={password}")
    assert address.options() == {
        "security.protocol": "SASL_SSL", "ssl.ca.location": "/ca", "ssl.certificate.location": "/c",
        "ssl.key.location": "/k", "ssl.endpoint.identification.algorithm": "https",
        "enable.ssl.certificate.verification": "true", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me",
        "sasl.password": "hidden",
    }  # fmt: skip
    assert str(address) == "kafka://a:1?prefix=pixiu", "what is shown to people"
    plain = parse_address(f"kafka://a:1?user=me&password_file={password}&mechanism=PLAIN").options()
    assert (plain["security.protocol"], plain["sasl.mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")
    chain, nothing = (parse_address(f"kafka://a:1?tls=yes&verify={each}").options() for each in ("chain", "no"))
    names = ("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification")
    assert [chain[name] for name in names] == ["none", "true"] and [nothing[name] for name in names] == [
        "none",
        "false",
    ]
    with pytest.raises(ConfigError, match=r"password_file of engines\.log cannot be read"):
        parse_address(f"kafka://a:1?user=me&password_file={tmp_path}/none").options()


def test_options_of_the_driver_may_not_touch_what_keeps_the_log_safe() -> None:
    assert client_options("security.protocol=SSL; ssl.ca.location=/ca.pem ;") == {
        "security.protocol": "SSL", "ssl.ca.location": "/ca.pem",
    }  # fmt: skip
    for text in ("acks=1", "isolation.level=read_uncommitted", "transactional.id=x", "nonsense", "=1"):
        with pytest.raises(ConfigError):
            client_options(text)


def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("confluent_kafka", "pixiu.backends.kafka.driver"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match="make setup"):
        importlib.import_module("pixiu.backends.kafka.driver")


def record(event_id: int, size: int = 10) -> LogRecord:
    return LogRecord(event_id, 0, MAIN, bytes(size), b"", 0)


def test_memory_is_complete_from_its_first_event_on_and_bounded() -> None:
    recent = Recent(bytes_max=3 * 210)
    recent.begin(10)
    recent.add(12, [record(11), record(12)])
    recent.add(13, [])  # an entry that no reader sees
    recent.add(15, [record(15)])
    assert recent.first == 11
    assert [each.event_id for each in recent.read(10, 1)] == [11, 12]
    assert [each.event_id for each in recent.read(11, 10)] == [12, 15]
    recent.add(16, [record(16)])
    assert recent.first == 13
    assert [each.event_id for each in recent.read(15, 10)] == [16] and recent.first == 16


def test_a_topic_in_memory_forgets_the_oldest_and_says_so() -> None:
    topic = RecentTopic(5, [record(7)], count_max=3)
    for event_id in range(10, 17):
        topic.add(record(event_id))
    assert topic.after == topic.forgotten == 12
    assert [each.event_id for each in topic.read(13, 2)] == [14, 15]


def test_anchors_are_bounded_and_never_behind_what_is_looked_for() -> None:
    anchors = Anchors()
    assert anchors.offset_before(5) is None
    for event_id in range(10, 10 * ANCHORS_MAX * 3, 10):
        anchors.add(event_id, event_id * 2)
    anchors.add(7, 1)  # not rising: left out
    assert len(anchors._events) <= ANCHORS_MAX
    assert anchors.offset_before(9) is None
    for event_id in (10, 11, 999, 50_001, 10**9):
        offset = anchors.offset_before(event_id)
        assert offset is not None and offset <= event_id * 2


class Read:
    """A record as the driver gives it back."""

    def __init__(self, headers: Any, value: bytes | None, at: int) -> None:
        self._headers, self._value, self._at = headers, value, at

    def headers(self) -> Any:
        return self._headers

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = Entry(7, 123, True, NOTIFY, b"\x00payload", b"send\xff", 1_800_000_000_000)
    first, *_ = kafka_records(entry)
    found = found_in(Read(first.headers, first.value, first.at))  # type: ignore[arg-type]
    assert found is not None and found.is_visible and found.number == 123
    assert found.record == LogRecord(7, 123, NOTIFY, b"\x00payload", b"send\xff", 1_800_000_000_000)
    unnumbered = Entry(8, 123, False, MAIN, b"", b"", 5)
    first, *_ = kafka_records(unnumbered)
    found = found_in(Read(first.headers, first.value, first.at))  # type: ignore[arg-type]
    assert found is not None and found.record.message_id == 0 and found.number == 123


@pytest.mark.feature("P07")
def test_a_push_to_many_is_one_task_each() -> None:
    chat = MsgChat(data=b"x").SerializeToString()
    push = Record(actor=1, chat=chat, push=Push(users=[4, 5, 6], platforms=["ios", "web"])).SerializeToString()
    topics = [each.topic for each in kafka_records(Entry(1, 2, True, MAIN, push, b"", 0))]
    assert topics == ["main", "tasks", "tasks", "tasks"]
    assert [each.topic for each in kafka_records(Entry(1, 2, True, MAIN, b"\xff\xff", b"", 0))] == ["main"]


@pytest.mark.parametrize(
    "headers", [None, [], [("event", b"x")], [("event", b"1")], [("event", None), ("topic", b"t"), ("last", b"1")]]
)
def test_what_others_wrote_is_no_entry(headers: Any) -> None:
    assert found_in(Read(headers, b"theirs", 0)) is None  # type: ignore[arg-type]


def test_the_release_is_read_from_a_brokers_answer() -> None:
    name = b"metadata.version"
    features = bytes([2, len(name) + 1]) + name + pack(">hhB", 1, 27, 0)
    answer = bytes(4) + bytes(2) + bytes([2]) + pack(">hhhB", 18, 0, 4, 0) + bytes(4)
    tagged = answer + bytes([2, 9, 1, 0xAA, 0, len(features)]) + features
    assert supported_metadata_version(tagged) == 27
    assert supported_metadata_version(answer + bytes([0])) == 0
