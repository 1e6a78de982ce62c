"""W15 to W18: publishing, and what is refused."""

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import alive, delay, message, pub, sub, topic_info, u32
from tests.wire.fixtures import Connect, StartServer, next_event_id, unique_name
from tests.wire.raw import Raw

SIZE_TEXT = "invalid request, payload size must be more than 8"

MESSAGES = [
    message(b"plain body"),
    message(b"", [(b"only", b"headers")]),
    message(b"body", [(b"z", b"1"), (b"a", b"2"), (b"m", b"3"), (b"a2", b"")]),
    message(b"\x00\n\t\xff" * 7, [(b"bin\x00ary", b"\n\x00\xff")]),
    message("消息 🐉".encode(), [("键".encode(), "值".encode())]),
    message(b"x"),
    message(b"", [(b"", b"")]),
    message(b"y" * 100_000, [(b"k" * 1000, b"v" * 5000)]),
]


@pytest.mark.feature("W15")
@pytest.mark.parametrize("packed", MESSAGES, ids=range(len(MESSAGES)))
def test_w15_one_message_is_delivered_as_it_was_published(
    raw: Raw, connect: Connect, topic: bytes, packed: bytes
) -> None:
    assert raw.send(pub(topic, packed)).read_exact(10) == bytes([200]) + bytes(9)
    raw.quiet(0.005)
    items = connect().send(sub(topic)).push()
    assert [item.message for item in items] == [packed]


@pytest.mark.feature("W15")
def test_w15_many_messages_in_one_pub_get_consecutive_ids(raw: Raw, connect: Connect, topic: bytes) -> None:
    first = next_event_id(raw) + 1
    raw.send(pub(topic, b"".join(MESSAGES))).ok()
    raw.quiet(0.005)
    items = connect().send(sub(topic, batch=255)).consume(len(MESSAGES))
    assert [item.message for item in items] == MESSAGES
    assert [item.event_id for item in items] == list(range(first, first + len(MESSAGES)))
    assert next_event_id(raw) == first + len(MESSAGES)


@pytest.mark.feature("W15")
def test_w15_a_thousand_messages_in_one_pub(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, *(b"m%d" % number for number in range(1000)))
    items = connect().send(sub(topic, batch=255)).consume(1000)
    assert [item.body for item in items] == [b"m%d" % number for number in range(1000)]
    first = items[0].event_id
    assert [item.event_id for item in items] == list(range(first, first + 1000))


@pytest.mark.feature("W15")
def test_w15_header_order_is_kept(raw: Raw, connect: Connect, topic: bytes) -> None:
    headers = [(b"h%d" % (number * 7 % 50), b"v%d" % number) for number in range(50)]
    raw.send(pub(topic, message(b"body", headers))).ok()
    item = connect().send(sub(topic)).push()[0]
    assert item.headers == headers
    assert item.body == b"body"


GOOD = message(b"good")


def framed(content: bytes, headers: int, length: int | None = None) -> bytes:
    """A message whose numbers may lie."""
    return u32(len(content) if length is None else length) + u32(headers) + content


REFUSED = {
    "content length 0": framed(b"", 0) + b"x",
    "content length 0 after a good message": GOOD + framed(b"", 0) + b"x",
    "content length 0 between good messages": GOOD + framed(b"", 0) + GOOD,
    "content length past the end": framed(b"abc", 0, 4),
    "content length far past the end": framed(b"abc", 0, 0xFFFFFFFF),
    "content length past the end in the second": GOOD + framed(b"abc", 0, 10),
    **{f"{left} bytes left over": GOOD + b"\x01" * left for left in range(1, 9)},
    "a header that is not there": framed(b"abc", 1),
    "four billion headers": framed(b"abcdefgh" * 4, 0xFFFFFFFF),
    "a key longer than the content": framed(u32(100) + b"key", 1),
    "a key of four gigabytes": framed(u32(0xFFFFFFFF) + b"key", 1),
    "a key without a value": framed(u32(3) + b"key", 1),
    "a value longer than the content": framed(u32(3) + b"key" + u32(100) + b"v", 1),
    "half a value length": framed(u32(3) + b"key" + b"\x01\x00", 1),
    "one header, two announced": framed(u32(1) + b"k" + u32(1) + b"v", 2),
    "a header that reaches into the next message": framed(u32(1) + b"k" + u32(9) + b"v", 1) + GOOD,
}


@pytest.mark.feature("W16", "QD3")
@pytest.mark.parametrize("payload", REFUSED.values(), ids=REFUSED.keys())
def test_w16_a_payload_that_does_not_add_up_is_refused(
    raw: Raw, connect: Connect, topic: bytes, payload: bytes
) -> None:
    expected = next_event_id(raw) + 1
    assert raw.refused(pub(topic, payload)) == "invalid pub payload"
    assert raw.refused(delay(topic, 1000, payload)) == "invalid delay request"
    assert next_event_id(raw) == expected
    raw.pub(topic, b"after")
    assert [item.body for item in connect().send(sub(topic, batch=255)).push()] == [b"after"]


@pytest.mark.feature("W17", "QD1", "W07")
@pytest.mark.parametrize("size", range(9))
def test_w17_small_payloads_are_refused_and_consumed(raw: Raw, connect: Connect, topic: bytes, size: int) -> None:
    for payload in (bytes(size), b"\x11" * size, message(b"")[:size]):
        raw.send(pub(topic, payload))
        assert raw.error() == SIZE_TEXT
        assert raw.send(topic_info(topic)).json()["name"] == topic.decode()
    raw.send(pub(topic, b"\x11" * size) + pub(topic, message(b"behind")))
    assert raw.error() == SIZE_TEXT
    raw.ok()
    raw.quiet(0.005)
    assert connect().send(sub(topic, batch=9)).push()[0].body == b"behind"


@pytest.mark.feature("W17", "QD1")
def test_w17_the_announced_bytes_are_awaited_before_the_answer(raw: Raw, topic: bytes) -> None:
    """An answer that came early would be right only by luck for a client that sends in two writes."""
    raw.send(pub(topic, b"", size=8)).quiet(0.05)
    raw.send(b"12345678")
    assert raw.error() == SIZE_TEXT
    raw.send(alive()).alive()


@pytest.mark.feature("W18")
def test_w18_size_comes_first_then_format_then_topic(raw: Raw) -> None:
    unknown = unique_name()
    assert raw.refused(pub(unknown, b"12345678")) == SIZE_TEXT
    assert raw.refused(pub(unknown, b"123456789")) == "invalid pub payload"
    assert raw.refused(pub(unknown, GOOD)) == "topic not exist"


@pytest.mark.feature("W18")
def test_w18_on_a_follower_size_and_format_come_before_the_role(connect: Connect, follower: QueueProcess) -> None:
    raw, unknown = connect(follower), unique_name()
    assert raw.refused(pub(unknown, b"12345678")) == SIZE_TEXT
    assert raw.refused(pub(unknown, b"123456789")) == "invalid pub payload"
    assert raw.refused(pub(unknown, GOOD)) == "just master can pub message"


@pytest.mark.feature("W18")
def test_w18_what_was_answered_200_survives_a_kill(start_server: StartServer, connect: Connect) -> None:
    """A process that dies takes nothing with it that it had handed to the system, at any level."""
    queue = start_server("--flush", "none")
    connect(queue).create(b"kept")
    expected: list[bytes] = []
    for following in ("interval", "always", "none"):
        raw = connect(queue)
        for _ in range(20):
            expected.append(b"m%d" % len(expected))
            raw.pub(b"kept", expected[-1])
        queue.kill()
        queue.args = ["--flush", following]
        queue.start()
        items = connect(queue).send(sub(b"kept", batch=255)).consume(len(expected))
        assert [item.body for item in items] == expected
