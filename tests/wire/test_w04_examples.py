"""W04: the worked examples, captured from the original server, as bytes.

Times, file ids, positions and storage paths differ from server to server; they are ``..`` in the patterns.
"""

import re
from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    ALIVE_ANSWER,
    create,
    delay,
    delete,
    hexed,
    list_topics,
    matches,
    message,
    now_ms,
    pub,
    replica,
    sub,
    topic_info,
    valid_list,
)
from tests.wire.fixtures import SMSS_FOLLOWERS, environment
from tests.wire.raw import Raw

pytestmark = pytest.mark.feature("W04")

CREATE_ORDER = hexed("02 | 05 00 | 00x16 | 02 | 6f 72 64 65 72 | 74 31 | 00x8")
CREATE_AGAIN = hexed("02 | 05 00 | 00x16 | 00 | 6f 72 64 65 72 | 00x8")
TMP_TAIL = hexed("74 6d 70 | 00 7c 29 1f 94 01 00 00")
DELETE_ORDER = hexed("03 05 00 | 00x16 | 00 | 6f 72 64 65 72")
TWO_MESSAGES = hexed("0f 00 00 00  01 00 00 00  01 00 00 00  6b  01 00 00 00  76  68 65 6c 6c 6f") + hexed(
    "06 00 00 00  00 00 00 00  77 6f 72 6c 64 21"
)
PUB_TWO = hexed("01  05 00  25 00 00 00  00x12  00  6f 72 64 65 72") + TWO_MESSAGES
SUB_G1 = hexed("00  05 00  05  01  00x14  00 | 6f 72 64 65 72 | 00x8 | 00 5e d0 b2 00 00 00 00 | 02 00 00 00  67 31")
SUB_G1_WITHOUT_TIMEOUT = hexed("00 05 00 01 00 00x14 00 | 6f 72 64 65 72 | 00x8 | 02 00 00 00 67 31")
DELAY_LATE = hexed(
    "10  05 00  0c 00 00 00  00x12  00  6f 72 64 65 72 dc 05 00 00 00 00 00 00  04 00 00 00 00 00 00 00 6c 61 74 65"
)
LIST_T1 = hexed("64 00 00 | 00x16 | 02 | 74 31")
INFO_ORDER = hexed("41 05 00 | 00x16 | 00 | 6f 72 64 65 72")
VALID_LIST_ALL = hexed("63 00 00 | 00x16 | 00 | 00x8")
REPLICA_FROM_0 = hexed("40 00 00 | 00x16 | 00 | 00x8")

ORDER_OBJECT = re.compile(
    rb'\{"name":"order","createTimeStamp":\d{13},"expireAt":0,"createEventId":1,'
    rb'"stateChangeTime":\d{13},"stateChangeEventId":1,"state":0,"topicRoot":"[^"]*"\}'
)


def test_w04_the_builders_of_these_tests_make_the_bytes_of_the_examples() -> None:
    assert create(b"order", trace=b"t1") == CREATE_ORDER
    assert len(CREATE_ORDER) == 35
    assert create(b"tmp", 1735689600000).endswith(TMP_TAIL)
    assert delete(b"order") == DELETE_ORDER
    assert pub(b"order", message(b"hello", [(b"k", b"v")]) + message(b"world!")) == PUB_TWO
    assert len(PUB_TWO) == 62
    assert sub(b"order", 0, b"g1", batch=5, ack_timeout_ns=3_000_000_000) == SUB_G1
    assert len(SUB_G1) == 47
    assert sub(b"order", 0, b"g1", batch=1, ack_timeout_ns=None) == SUB_G1_WITHOUT_TIMEOUT
    assert delay(b"order", 1500, message(b"late")) == DELAY_LATE
    assert len(DELAY_LATE) == 45
    assert list_topics(trace=b"t1") == LIST_T1
    assert topic_info(b"order") == INFO_ORDER
    assert valid_list(0) == VALID_LIST_ALL
    assert replica(0) == REPLICA_FROM_0


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Story"]:
    """A fresh server on which the examples happen in their order, so that ids are those of the examples."""
    data = tmp_path_factory.mktemp("examples") / "data"
    with QueueProcess(data, env=SMSS_FOLLOWERS | environment(queue__keep_alive_ms=600)) as queue:
        told = Story(queue)
        yield told
        for raw in told.connections:
            raw.close()


class Story:
    """Runs the examples once and keeps every answer for the tests to look at."""

    def __init__(self, queue: QueueProcess) -> None:
        self.connections: list[Raw] = []
        raw, subscriber, second, follower = (self._connect(queue) for _ in range(4))
        self.list_of_nothing = self._ask(raw, LIST_T1, 10)
        self.valid_list_of_nothing = self._ask(raw, VALID_LIST_ALL, 10)
        self.alive = self._ask(raw, hexed("11 | 00 00 | 00x16 | 00"), 10)
        self.created = self._ask(raw, CREATE_ORDER, 10)
        self.created_again = self._ask(raw, CREATE_AGAIN, 21)
        self.tmp = self._ask(raw, create(b"tmp", 1735689600000), 10 + 25)
        self.published = self._ask(raw, PUB_TWO, 10)
        self.pushed = self._ask(subscriber, SUB_G1, 10 + 101)
        self.second_g1 = self._ask(second, SUB_G1, 10 + 18)
        self.second_g1_without_timeout = self._ask(second, SUB_G1_WITHOUT_TIMEOUT, 10 + 18)
        self.idle = subscriber.send(ACK_GO_ON).read_exact(10)
        self.delay_asked_at = now_ms()
        self.delayed = self._ask(raw, DELAY_LATE, 10)
        self.late = subscriber.read_exact(10)
        while self.late == ALIVE_ANSWER:
            self.late = subscriber.read_exact(10)
        self.late += subscriber.read_exact(44)
        self.late_came_at = now_ms()
        subscriber.send(ACK_GO_ON)
        self.listed = self._json(raw, LIST_T1)
        self.valid = self._json(raw, VALID_LIST_ALL)
        self.info = self._json(raw, INFO_ORDER)
        self.deleted = self._ask(raw, DELETE_ORDER, 10)
        self.end = subscriber.read_exact(10)
        while self.end == ALIVE_ANSWER:
            self.end = subscriber.read_exact(10)
        follower.send(REPLICA_FROM_0)
        self.blocks = [follower.read_exact(14 + length) for length in (0x35, 0x53, 0x4B, 0x4C, 0x2C)]

    def _connect(self, queue: QueueProcess) -> Raw:
        raw = Raw(queue.host, queue.port)
        self.connections.append(raw)
        return raw

    def _ask(self, raw: Raw, asked: bytes, length: int) -> bytes:
        return raw.send(asked).read_exact(length)

    def _json(self, raw: Raw, asked: bytes) -> bytes:
        head = raw.send(asked).read_exact(10)
        length = int.from_bytes(head[2:6], "little")
        assert head == hexed("c8 00") + length.to_bytes(4, "little") + bytes(4)
        return raw.read_exact(length)


def test_w04_alive(story: Story) -> None:
    assert matches(story.alive, "c9 00 00 00 00 00 00 00 00 00")


def test_w04_create_topic(story: Story) -> None:
    assert matches(story.created, "c8 00 00 00 00 00 00 00 00 00")
    assert matches(story.created_again, "90 01 0b 00 00 00 00 00 00 00  74 6f 70 69 63 20 65 78 69 73 74")
    assert story.tmp == hexed("90 01 19 00 00x6") + b"expire MUST more than 10s"


def test_w04_delete_topic(story: Story) -> None:
    assert matches(story.deleted, "c8 00 00x8")


def test_w04_pub(story: Story) -> None:
    assert matches(story.published, "c8 00 00 00 00 00 00 00 00 00")


def test_w04_sub(story: Story) -> None:
    assert matches(
        story.pushed,
        """
        c8 00  02  00  65 00 00 00  00 00
        ..x8  02 00 00 00 00 00 00 00  ..x8  ..x8
        0f 00 00 00 01 00 00 00 01 00 00 00 6b 01 00 00 00 76 68 65 6c 6c 6f
        ..x8  03 00 00 00 00 00 00 00  ..x8  ..x8
        06 00 00 00 00 00 00 00 77 6f 72 6c 64 21
        """,
    )
    assert matches(story.idle, "c9 00 00 00 00 00 00 00 00 00")
    assert matches(story.end, "ff 00 00 00 00 00 00 00 00 00")


def test_w04_second_subscriber_of_the_same_name(story: Story) -> None:
    expected = hexed("90 01 12 00 00x6") + b"g1 regiester exist"
    assert story.second_g1 == expected
    assert story.second_g1_without_timeout == expected


def test_w04_delay(story: Story) -> None:
    assert matches(story.delayed, "c8 00 00 00 00 00 00 00 00 00")
    assert matches(
        story.late,
        """
        c8 00 01 00 2c 00 00 00 00 00
        ..x8  05 00 00 00 00 00 00 00  ..x8  ..x8
        04 00 00 00 00 00 00 00 6c 61 74 65
        """,
    )
    assert story.late_came_at - story.delay_asked_at >= 1500


def test_w04_list_and_topic_info(story: Story) -> None:
    assert re.fullmatch(rb"\[" + ORDER_OBJECT.pattern + rb"\]", story.listed)
    assert story.valid == story.listed
    assert story.info == story.listed[1:-1]


def test_w04_no_topics(story: Story) -> None:
    assert matches(story.list_of_nothing, "c8 00 00x8")
    assert matches(story.valid_list_of_nothing, "c8 00 00x8")


def line(length: int, command: int, event_id: int, size: int) -> "re.Pattern[bytes]":
    """A block's line with its length in front, times left open."""
    text = rb"\d{13}\t%d\t%d\t\d{13}\torder\t%d\n" % (command, event_id, size)
    return re.compile(re.escape(length.to_bytes(4, "little")) + text)


def test_w04_replica(story: Story) -> None:
    for block, length in zip(story.blocks, (0x35, 0x53, 0x4B, 0x4C, 0x2C), strict=True):
        assert block.startswith(hexed("c8 00 00x8") + bytes([length, 0, 0, 0]))
    create_block, pub_block, delay_block, fired_block, delete_block = (block[14:] for block in story.blocks)
    assert line(0x28, 2, 1, 9).fullmatch(create_block[:44])
    assert create_block[44:] == hexed("00x8 0a")
    assert line(0x29, 1, 2, 38).fullmatch(pub_block[:45])
    assert pub_block[45:] == TWO_MESSAGES + b"\n"
    assert line(0x2A, 16, 4, 29).fullmatch(delay_block[:46])
    assert matches(delay_block[46:], "..x8  04 00x7  04 00 00 00 00 00 00 00 6c 61 74 65 0a")
    assert line(0x2B, 101, 5, 29).fullmatch(fired_block[:47])
    assert fired_block[47:] == delay_block[46:], "the fired record carries the 16 bytes of the Delay record"
    assert line(0x28, 3, 6, 0).fullmatch(delete_block)
