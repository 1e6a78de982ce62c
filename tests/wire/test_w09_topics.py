"""W09 to W14: creating and deleting topics."""

from pathlib import Path

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    NAME_TEXT,
    SECOND_NS,
    create,
    delete,
    message,
    now_ms,
    pub,
    sub,
    topic_info,
)
from tests.wire.fixtures import Connect, StartServer, next_event_id, unique_name
from tests.wire.raw import Raw

EXPIRE_TEXT = "expire MUST more than 10s"


@pytest.mark.feature("W09")
def test_w09_zero_means_permanent(raw: Raw) -> None:
    name = raw.create(unique_name())
    assert raw.info(name)["expireAt"] == 0
    assert raw.info(name)["state"] == 0


@pytest.mark.feature("W09")
@pytest.mark.parametrize("from_now_ms", [11_000, 3_600_000, 10**12])
def test_w09_a_lifetime_of_eleven_seconds_or_more_is_accepted_and_shown(raw: Raw, from_now_ms: int) -> None:
    name, expire_at = unique_name(), now_ms() + from_now_ms
    raw.create(name, expire_at)
    assert raw.info(name)["expireAt"] == expire_at
    raw.delete(name)


@pytest.mark.feature("W09")
@pytest.mark.parametrize("expire_at", [-1, -(2**63), 1, 1735689600000])
def test_w09_a_negative_or_past_expiry_is_refused(raw: Raw, expire_at: int) -> None:
    name = unique_name()
    assert raw.refused(create(name, expire_at)) == EXPIRE_TEXT
    assert raw.refused(topic_info(name)) == "topic not exist"


@pytest.mark.feature("W09")
def test_w09_less_than_ten_seconds_is_refused(raw: Raw) -> None:
    for from_now_ms in (0, 5_000, 9_900):
        assert raw.refused(create(unique_name(), now_ms() + from_now_ms)) == EXPIRE_TEXT


@pytest.mark.feature("W09")
def test_w09_times_and_ids_of_the_creation_are_shown(raw: Raw) -> None:
    before = now_ms()
    name = raw.create(unique_name())
    info = raw.info(name)
    assert before <= info["createTimeStamp"] <= now_ms()
    assert info["stateChangeTime"] == info["createTimeStamp"]
    assert info["stateChangeEventId"] == info["createEventId"]
    assert next_event_id(raw) == info["createEventId"] + 1


@pytest.mark.feature("W10")
@pytest.mark.parametrize("name", [b"n" * 128, "é".encode() * 64, "界".encode() * 42 + b"ab", b"~", b"-\x7f-"])
def test_w10_up_to_128_bytes_are_accepted(raw: Raw, name: bytes) -> None:
    raw.create(name)
    assert raw.info(name)["name"] == name.decode()
    raw.pub(name, b"works")
    raw.delete(name)


@pytest.mark.feature("W10", "W07")
@pytest.mark.parametrize(
    "name",
    [
        b"n" * 129,
        "é".encode() * 64 + b"x",
        "界".encode() * 43,
        b" lead",
        b"tail ",
        b"in side",
        b"line\nfeed",
        b"\n",
        b"tab\tbed",
        b"tab\t",
        b" ",
    ],
)
def test_w10_longer_names_and_white_space_are_refused(raw: Raw, name: bytes) -> None:
    assert raw.refused(create(name)) == NAME_TEXT
    assert raw.refused(topic_info(name)) == "topic not exist"


@pytest.mark.feature("W11", "W07")
def test_w11_name_comes_before_expiry_and_expiry_before_existence(raw: Raw, topic: bytes) -> None:
    assert raw.refused(create(b"bad name", 5)) == NAME_TEXT
    assert raw.refused(create(topic, 5)) == EXPIRE_TEXT
    assert raw.refused(create(topic)) == "topic exist"
    assert raw.refused(create(topic, now_ms() + 20_000)) == "topic exist"
    assert raw.info(topic)["expireAt"] == 0


@pytest.mark.feature("W11")
def test_w11_on_a_follower_the_name_comes_first_and_the_role_second(connect: Connect, follower: QueueProcess) -> None:
    raw = connect(follower)
    assert raw.refused(create(b"bad name", 5)) == NAME_TEXT
    assert raw.refused(create(unique_name(), 5)) == "just master can manage topic"


def other_files(root: Path, data: Path) -> dict[Path, bytes]:
    """Every file under root that is not the server's."""
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and data not in path.parents and path.suffix != ".stderr"
    }


@pytest.mark.feature("W12", "QA3")
def test_w12_no_name_reaches_a_file_that_is_not_its_own(
    start_server: StartServer, connect: Connect, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"keep me")
    data = tmp_path / "deep" / "down" / "data"
    queue = start_server(data=data)
    outside = other_files(tmp_path, data)
    raw = connect(queue)
    raw.create(b"neighbour")
    raw.pub(b"neighbour", b"still here")
    names = [b"", b".", b"..", b"../..", b"a/b", b"a", b"nul\x00name", b"/", b"/tmp", b"../../../outside"]
    names += [b"neighbour/..", b"../neighbour", b"a\\b", b"con:", b"%2e%2e", b"-rf", b"~root", b"\xff\xfe"]
    for name in names:
        assert raw.refused(pub(name, message(b"m"))) == "topic not exist"
        assert raw.refused(delete(name)) == "topic not exist"
        expected = next_event_id(raw) + 1
        code, rest = raw.send(create(name)).answer()
        if code == 400:
            raw.read_exact(int.from_bytes(rest[:2], "little"))
            assert next_event_id(raw) == expected, f"refusing {name!r} used up an event id"
            continue
        assert (code, rest) == (200, bytes(8))
        raw.pub(name, b"in " + name)
        with Raw(queue.host, queue.port) as subscriber:
            assert subscriber.send(sub(name)).push()[0].body == b"in " + name
        raw.delete(name)
    assert connect(queue).send(sub(b"neighbour", 0, b"later")).push()[0].body == b"still here"
    raw.pub(b"neighbour", b"and on")
    queue.restart()
    items = connect(queue).send(sub(b"neighbour", batch=9)).consume(2)
    assert [item.body for item in items] == [b"still here", b"and on"]
    assert other_files(tmp_path, data) == outside


@pytest.mark.feature("W13", "W07")
def test_w13_a_deleted_topic_is_gone(raw: Raw, topic: bytes) -> None:
    raw.pub(topic, b"message")
    raw.delete(topic)
    assert topic.decode() not in raw.topics()
    assert raw.refused(delete(topic)) == "topic not exist"
    assert raw.refused(topic_info(topic)) == "topic not exist"
    assert raw.refused(pub(topic, message(b"m"))) == "topic not exist"
    assert raw.refused(sub(topic)) == "topic not exist"


@pytest.mark.feature("W13", "QB8")
def test_w13_a_topic_created_again_is_a_new_one(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"old", b"older")
    first = raw.info(topic)["createEventId"]
    old_id = connect().send(sub(topic)).push()[0].event_id
    raw.delete(topic)
    raw.create(topic)
    assert raw.info(topic)["createEventId"] == first + 4
    subscriber = connect().send(sub(topic, batch=9))
    subscriber.quiet(0.05)
    raw.pub(topic, b"new")
    assert [item.body for item in subscriber.push()] == [b"new"]
    assert raw.refused(sub(topic, old_id, b"resumes")) == "can't find event id"


@pytest.mark.feature("W14", "W31", "QA1", "QA2", "QC6")
def test_w14_a_delete_tells_every_subscriber_and_waits_for_none(connect: Connect) -> None:
    raw, name = connect(), unique_name()
    raw.create(name)
    raw.pub(name, b"message")
    waiting = [connect().send(sub(name, 0, b"w%d" % number)) for number in range(5)]
    for subscriber in waiting:
        subscriber.push()
        subscriber.send(ACK_GO_ON)
    withholding = [connect().send(sub(name, 0, b"h%d" % n, ack_timeout_ns=3600 * SECOND_NS)) for n in range(2)]
    for subscriber in withholding:
        subscriber.push()
    raw.send(delete(name)).ok(1.0)
    for subscriber in waiting:
        subscriber.sub_end(1.0)
    other = unique_name()
    busy = connect()
    busy.send(create(other)).ok(1.0)
    busy.send(pub(other, message(b"m"))).ok(1.0)
    busy.send(delete(other)).ok(1.0)
    raw.create(name)
    for subscriber in withholding:
        subscriber.quiet(0.01)
        subscriber.send(ACK_GO_ON).sub_end(1.0)
