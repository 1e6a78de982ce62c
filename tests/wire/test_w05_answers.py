"""W05 to W08: pipelining, unknown commands, error texts and Alive.

Texts that need a follower, a lifetime or retention are provoked where those are set up, under W07 as well.
"""

import socket

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    ALIVE_ANSWER,
    NAME_TEXT,
    REPLICA,
    alive,
    create,
    delay,
    delete,
    i64,
    list_topics,
    message,
    now_ms,
    pub,
    replica,
    request,
    sub,
    topic_info,
    valid_list,
)
from tests.wire.fixtures import Connect, unique_name
from tests.wire.raw import Raw


@pytest.mark.feature("W05")
def test_w05_fifty_pubs_in_one_write_get_fifty_answers_in_order(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.send(b"".join(pub(topic, message(b"m%d" % number)) for number in range(50)))
    for _ in range(50):
        raw.ok()
    raw.quiet(0.02)
    items = connect().send(sub(topic, batch=255)).consume(50)
    assert [item.body for item in items] == [b"m%d" % number for number in range(50)]
    first = items[0].event_id
    assert [item.event_id for item in items] == list(range(first, first + 50))


@pytest.mark.feature("W05")
def test_w05_a_mix_with_refused_requests_answers_each_in_its_place(raw: Raw, topic: bytes) -> None:
    other = unique_name()
    raw.send(
        pub(topic, message(b"one"))
        + pub(topic, message(b"refused")[:-1])
        + alive()
        + topic_info(topic)
        + create(topic)
        + create(other)
        + pub(other, message(b"to the topic created one request ago"))
        + list_topics()
        + sub(b"unknown")
        + delay(topic, 10, message(b"too soon"))
        + valid_list()
        + pub(topic, b"123")
        + delete(other)
        + pub(other, message(b"to the topic deleted one request ago"))
        + request(99 - 49)
        + pub(topic, message(b"two"))
    )
    raw.ok()
    assert raw.error() == "invalid pub payload"
    raw.alive()
    assert raw.json()["name"] == topic.decode()
    assert raw.error() == "topic exist"
    raw.ok()
    raw.ok()
    assert {topic.decode(), other.decode()} <= {entry["name"] for entry in raw.json()}
    assert raw.error() == "topic not exist"
    assert raw.error() == "delay time must be more than 1 second"
    assert topic.decode() in [entry["name"] for entry in raw.json()]
    assert raw.error() == "invalid request, payload size must be more than 8"
    raw.ok()
    assert raw.error() == "topic not exist"
    assert raw.error() == "don't support action"
    raw.ok()
    raw.quiet(0.02)


@pytest.mark.feature("W05")
def test_w05_a_thousand_mixed_requests_are_answered_in_order(raw: Raw, topic: bytes) -> None:
    """Far more than one read buffer, with answers that can be told apart."""
    asked = []
    for number in range(1000):
        asked.append(pub(topic, message(b"x" * (number % 300 + 1))))
        asked.append(sub(b"missing", 0, b"w") if number % 2 else topic_info(b""))
    raw.send(b"".join(asked))
    for number in range(1000):
        raw.ok()
        assert raw.error() == ("topic not exist" if number % 2 else "topic name is required")


@pytest.mark.feature("W05")
def test_w05_connections_do_not_see_each_others_answers(connect: Connect, topic: bytes) -> None:
    ones = [connect() for _ in range(20)]
    for number, one in enumerate(ones):
        one.send(pub(topic, message(b"m")) if number % 2 else pub(b"missing", message(b"m")))
    for number, one in enumerate(ones):
        if number % 2:
            one.ok()
        else:
            assert one.error() == "topic not exist"
        one.quiet(0.001)


@pytest.mark.feature("W05")
def test_w05_a_client_that_sends_no_more_still_gets_its_answers(connect: Connect, topic: bytes) -> None:
    raw = connect().send(pub(topic, message(b"last words")) * 50 + list_topics())
    raw.socket.shutdown(socket.SHUT_WR)
    for _ in range(50):
        raw.ok()
    assert topic.decode() in [entry["name"] for entry in raw.json()]
    raw.closed(2.0)


@pytest.mark.feature("W05", "W13")
def test_w05_the_same_request_again_goes_to_the_topic_of_now(raw: Raw, connect: Connect, topic: bytes) -> None:
    """A shortcut for requests that begin like the one before must not reach a topic that is no more."""
    asked = pub(topic, message(b"same"))
    raw.send(asked * 3)
    for _ in range(3):
        raw.ok()
    other = connect()
    other.delete(topic)
    assert raw.refused(asked) == "topic not exist"
    other.create(topic)
    raw.send(asked * 2)
    raw.ok()
    raw.ok()
    other.delete(topic)
    other.create(topic)
    raw.send(asked + pub(topic, message(b"samf")) + pub(topic, message(b"longer")) + asked).ok()
    for _ in range(3):
        raw.ok()
    items = connect().send(sub(topic, batch=9)).consume(4)
    assert [item.body for item in items] == [b"same", b"samf", b"longer", b"same"]


@pytest.mark.feature("W06")
@pytest.mark.parametrize("command", [50, 101, 255, 4, 15, 18, 63, 66, 98, 102, 127, 160, 200])
def test_w06_unknown_commands_are_refused_and_the_connection_stays_open(raw: Raw, command: int) -> None:
    assert raw.refused(request(command)) == "don't support action"
    assert raw.refused(request(command, b"some-name", trace=b"trace")) == "don't support action"


@pytest.mark.feature("W06", "W07")
def test_w06_replica_on_a_follower_is_refused_and_its_eight_bytes_are_consumed(
    connect: Connect, follower: QueueProcess
) -> None:
    raw = connect(follower)
    assert raw.refused(request(REPLICA, b"name", trace=b"trace", part=i64(0))) == "don't support action"
    assert raw.refused(replica(17)) == "don't support action"
    assert raw.refused(replica(-1)) == "don't support action"


@pytest.mark.feature("W07")
@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (request(50), "don't support action"),
        (create(b"with space"), NAME_TEXT),
        (create(b"tmp", 5), "expire MUST more than 10s"),
        (create(b"{topic}"), "topic exist"),
        (pub(b"unknown", message(b"m")), "topic not exist"),
        (delay(b"unknown", 1000, message(b"m")), "topic not exist"),
        (delete(b"unknown"), "topic not exist"),
        (sub(b"unknown"), "topic not exist"),
        (topic_info(b"unknown"), "topic not exist"),
        (topic_info(b""), "topic name is required"),
        (pub(b"{topic}", b"12345678"), "invalid request, payload size must be more than 8"),
        (pub(b"{topic}", b"123456789"), "invalid pub payload"),
        (delay(b"{topic}", 1000, b"12345678"), "invalid delay request"),
        (delay(b"{topic}", 1000, b"123456789"), "invalid delay request"),
        (delay(b"{topic}", 999, message(b"m")), "delay time must be more than 1 second"),
        (sub(b"{topic}", 0, b"taken"), "taken regiester exist"),
        (sub(b"{topic}", -1), "can't find event id"),
        (sub(b"{topic}", 2**62), "EOF"),
        (replica(-1), "invalid replica eventId"),
        (replica(2**62), "EOF"),
    ],
)
def test_w07_each_text_that_a_client_can_provoke(connect: Connect, asked: bytes, text: str) -> None:
    raw, subscriber = connect(), connect()
    name = raw.create(unique_name().ljust(13, b"-"))
    raw.pub(name, b"message")
    subscriber.send(sub(name, 0, b"taken")).push()
    if b"{topic}" in asked:
        asked = bytes([asked[0], len(name)]) + asked[2:].replace(b"{topic}", name)
    raw.send(asked)
    head = raw.read_exact(10)
    assert head == bytes([0x90, 0x01]) + len(text).to_bytes(2, "little") + bytes(6)
    assert raw.read_exact(len(text)) == text.encode()
    raw.send(alive()).alive()
    raw.quiet(0.005)


@pytest.mark.feature("W07", "W12")
def test_w07_error_texts_stay_below_32768_bytes_whatever_the_client_names(raw: Raw, connect: Connect) -> None:
    """The Java client reads the length as a signed short."""
    longest = b"n" * 65535
    assert raw.refused(create(longest)) == NAME_TEXT
    assert raw.refused(pub(longest, message(b"m"))) == "topic not exist"
    assert raw.refused(delete(longest)) == "topic not exist"
    assert raw.refused(topic_info(longest)) == "topic not exist"
    assert raw.refused(sub(longest, 0, b"w" * 1000)) == "topic not exist"
    name = raw.create(unique_name())
    raw.pub(name, b"message")
    connect().send(sub(name, 0, b"w" * 1000)).push()
    assert raw.refused(sub(name, 0, b"w" * 1000)) == "w" * 1000 + " regiester exist"


@pytest.mark.feature("W08")
def test_w08_alive_is_answered_with_201_and_eight_zeros(raw: Raw) -> None:
    assert raw.send(bytes([17]) + bytes(19)).read_exact(10) == bytes.fromhex("c9 00 00 00 00 00 00 00 00 00")
    started = now_ms()
    raw.send(alive() * 1000)
    assert raw.read_exact(10_000) == ALIVE_ANSWER * 1000
    assert now_ms() - started < 5000


@pytest.mark.feature("W08")
def test_w08_alive_is_answered_by_a_follower_too(connect: Connect, follower: QueueProcess) -> None:
    assert connect(follower).send(alive()).read_exact(10) == bytes.fromhex("c9 00 00 00 00 00 00 00 00 00")


@pytest.mark.feature("W06")
@pytest.mark.parametrize("asked", [b"GET / HTTP/1.0\r\n\r\n", b"POST /v1/actions/send HTTP/1.1\r\nHost: x\r\n\r\n{}"])
def test_http_at_the_queues_port_is_told_so_at_once(connect: Connect, topic: bytes, asked: bytes) -> None:
    raw = connect().send(pub(topic, message(b"m")) + asked)
    raw.ok()
    assert raw.read_exact(28) == b"HTTP/1.1 400 Bad Request\r\nCo"
    said = b""
    while piece := raw.socket.recv(4096):
        said += piece
    assert said.endswith(b"This is the port of Pixiu's queue, which does not speak HTTP.\n")


@pytest.mark.feature("W06")
def test_a_name_that_begins_like_http_is_a_name(raw: Raw) -> None:
    for name in (b"GET", b"POST", b"HEAD/HTTP/1.1"):
        raw.create(name)
        assert raw.info(name)["name"] == name.decode()
    for command in b"GPHDOCT":
        assert raw.refused(bytes([command]) + bytes(19)) == "don't support action"
