"""W01 to W03: requests may arrive in any pieces, answers leave in one write, lengths sit where they must."""

from pathlib import Path

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    ALIVE,
    ALIVE_ANSWER,
    LIST,
    OK,
    REPLICA,
    SUB_END,
    alive,
    create,
    delay,
    delete,
    i64,
    list_topics,
    message,
    pub,
    replica,
    request,
    sub,
    topic_info,
    u16,
    u32,
    valid_list,
)
from tests.wire.fixtures import Connect, unique_name
from tests.wire.raw import Raw

TRACE = b"trace-7f3a"


def repeatable_requests(topic: bytes) -> list[bytes]:
    """One request per command whose answer is the same each time it is sent."""
    return [
        alive(b"any", TRACE),
        create(topic, trace=TRACE),
        delete(b"nobody-made-this", trace=TRACE),
        pub(topic, message(b"hello", [(b"k", b"v")]), trace=TRACE),
        delay(topic, 999, message(b"late"), trace=TRACE),
        topic_info(topic, trace=TRACE),
        list_topics(trace=TRACE),
        valid_list(0, trace=TRACE),
        sub(b"nobody-made-this", 0, b"who", trace=TRACE),
        request(50, b"name", trace=TRACE),
    ]


def whole_answer(raw: Raw, asked: bytes) -> bytes:
    """Everything the server says before it answers an Alive sent behind the request."""
    raw.send(asked + alive())
    said = b""
    while not said.endswith(ALIVE_ANSWER * 2 if asked[0] == ALIVE else ALIVE_ANSWER):
        said += raw.read_exact(1)
    return said[: -len(ALIVE_ANSWER)]


@pytest.mark.feature("W01")
def test_w01_a_request_sent_byte_by_byte_gets_the_same_answer(raw: Raw, topic: bytes) -> None:
    for asked in repeatable_requests(topic):
        expected = whole_answer(raw, asked)
        for position in range(len(asked)):
            raw.send(asked[position : position + 1])
        assert raw.read_exact(len(expected)) == expected
    raw.send(alive()).alive()


@pytest.mark.feature("W01")
def test_w01_a_request_split_anywhere_gets_the_same_answer_once_complete(raw: Raw, topic: bytes) -> None:
    for asked in repeatable_requests(topic):
        expected = whole_answer(raw, asked)
        for cut in range(1, len(asked)):
            raw.send(asked[:cut]).quiet(0.0005)
            raw.send(asked[cut:])
            assert raw.read_exact(len(expected)) == expected, (asked, cut)
    raw.send(alive()).alive()


@pytest.mark.feature("W01")
def test_w01_every_integer_is_little_endian(raw: Raw) -> None:
    name = unique_name().ljust(100, b"x")
    raw.send(bytes([2, len(name), 0]) + bytes(17) + name + bytes([0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01, 0x00])).ok()
    assert raw.info(name)["expireAt"] == 0x0123456789ABCD
    raw.delete(name)
    body = b"z" * 0x0203
    asked = bytes([1, len(name), 0, 0x0B, 0x02, 0, 0]) + bytes(13) + name
    raw.create(name)
    raw.send(asked + bytes([0x03, 0x02, 0, 0, 0, 0, 0, 0]) + body).ok()
    assert raw.send(sub(name)).push()[0].body == body


@pytest.mark.feature("W02")
@pytest.mark.parametrize("command", [ALIVE, LIST])
def test_w02_name_and_trace_id_change_nothing_where_they_mean_nothing(raw: Raw, command: int, topic: bytes) -> None:
    plain = whole_answer(raw, request(command))
    assert whole_answer(raw, request(command, b"some-name", trace=b"t" * 255)) == plain
    assert whole_answer(raw, request(command, b"n" * 65535, trace=b"t")) == plain


@pytest.mark.feature("W02")
def test_w02_every_command_takes_a_trace_id_of_255_bytes(connect: Connect) -> None:
    raw, name, trace = connect(), unique_name(), b"t" * 255
    raw.send(create(name, trace=trace)).ok()
    raw.send(pub(name, message(b"body"), trace=trace)).ok()
    raw.send(delay(name, 1, message(b"late"), trace=trace))
    assert raw.error() == "delay time must be more than 1 second"
    assert raw.send(topic_info(name, trace=trace)).json()["name"] == name.decode()
    assert name.decode() in [entry["name"] for entry in raw.send(valid_list(0, name=b"x", trace=trace)).json()]
    subscriber = connect()
    assert subscriber.send(sub(name, trace=trace)).push()[0].body == b"body"
    follower = connect()
    before = raw.info(name)["createEventId"] - 1
    follower.send(request(REPLICA, b"named", trace=trace, part=i64(before)))
    assert follower.block().topic == name
    raw.send(delete(name, trace=trace)).ok()


@pytest.mark.feature("W02")
def test_w02_a_trace_id_is_not_stored_not_replicated_not_delivered(
    server: QueueProcess, raw: Raw, connect: Connect
) -> None:
    trace, name = b"needle-5f21c0", unique_name()
    raw.send(create(name, trace=trace)).ok()
    raw.send(pub(name, message(b"body-5f21c0"), trace=trace)).ok()
    item = connect().send(sub(name, trace=trace)).push()[0]
    assert item.message == message(b"body-5f21c0")
    follower = connect().send(replica(raw.info(name)["createEventId"] - 1, trace=trace))
    assert trace not in follower.block().raw
    assert trace not in follower.block().raw
    raw.send(delete(name, trace=trace)).ok()
    stored = [path.read_bytes() for path in Path(server.data).rglob("*") if path.is_file()]
    assert any(b"body-5f21c0" in content for content in stored), "the search must be able to find something"
    assert not any(trace in content for content in stored)


@pytest.mark.feature("W03")
def test_w03_simple_answers_are_ten_bytes_with_zeros_after_the_code(connect: Connect) -> None:
    raw, name = connect(), unique_name()
    for asked in (create(name), pub(name, message(b"m")), delete(name)):
        assert raw.send(asked).read_exact(10) == OK
        raw.quiet(0.02)
    assert raw.send(alive()).read_exact(10) == ALIVE_ANSWER


@pytest.mark.feature("W03")
def test_w03_json_length_is_a_u32_at_2(raw: Raw, topic: bytes) -> None:
    for asked in (list_topics(), valid_list(), topic_info(topic)):
        head = raw.send(asked).read_exact(10)
        assert head[:2] == u16(200)
        assert head[6:] == bytes(4)
        body = raw.read_exact(int.from_bytes(head[2:6], "little"))
        assert body[:1] + body[-1:] == (b"{}" if asked[0] == 65 else b"[]")
        raw.quiet(0.01)


@pytest.mark.feature("W03")
def test_w03_a_batch_has_its_count_at_2_and_its_length_at_4(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one", b"twotwo")
    subscriber = connect().send(sub(topic, batch=9))
    head = subscriber.read_exact(10)
    assert head == u16(200) + bytes([2, 0]) + u32(40 + 3 + 40 + 6) + bytes(2)
    subscriber.read_exact(40 + 3 + 40 + 6)
    subscriber.send(ACK_GO_ON).quiet(0.02)
    raw.delete(topic)
    assert subscriber.read_exact(10) == SUB_END


@pytest.mark.feature("W03")
def test_w03_a_replica_block_has_zeros_and_then_its_length(raw: Raw, connect: Connect, topic: bytes) -> None:
    follower = connect().send(replica(raw.info(topic)["createEventId"] - 1))
    assert follower.read_exact(10) == OK
    length = int.from_bytes(follower.read_exact(4), "little")
    line_length = int.from_bytes(follower.read_exact(4), "little")
    assert follower.read_exact(line_length).endswith(b"\t9\n")
    assert length == 4 + line_length + 9
    assert follower.read_exact(9) == bytes(8) + b"\n"


@pytest.mark.feature("W03")
def test_w03_an_error_has_its_length_as_a_u16_at_2(raw: Raw) -> None:
    assert raw.send(topic_info(b"unknown")).read_exact(10) == u16(400) + u16(15) + bytes(6)
    assert raw.read_exact(15) == b"topic not exist"


@pytest.mark.feature("W03")
def test_w03_header_and_body_leave_in_one_write(raw: Raw, connect: Connect, topic: bytes) -> None:
    """Two writes would now and then be read as two; one write below a segment's size never is."""
    raw.pub(topic, b"x" * 500)
    before = raw.info(topic)["createEventId"] - 1
    info = whole_answer(raw, topic_info(topic))
    error = whole_answer(raw, topic_info(b"unknown"))
    for _ in range(40):
        raw.send(topic_info(topic))
        assert raw.socket.recv(65536) == info
        raw.send(topic_info(b"unknown"))
        assert raw.socket.recv(65536) == error
    for _ in range(15):
        subscriber = connect().send(sub(topic))
        assert len(subscriber.socket.recv(65536)) == 10 + 40 + 500
        subscriber.close()
        follower = connect().send(replica(before))
        first = follower.socket.recv(65536)
        assert len(first) >= 14 + int.from_bytes(first[10:14], "little")
        follower.close()
