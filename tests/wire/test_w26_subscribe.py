"""W26, W28, W29, W31, W33 and W34: the subscribe stream."""

import socket
import struct
from collections.abc import Callable

import pytest

from tests.servers import wait_for
from tests.wire.bytes_by_hand import (
    ACK_END,
    ACK_GO_ON,
    Item,
    alive,
    create,
    i64,
    message,
    pub,
    request,
    sub,
    topic_info,
    u8,
    u32,
)
from tests.wire.fixtures import Connect, StartServer, unique_name
from tests.wire.raw import Raw


def bodies(number: int) -> list[bytes]:
    """Distinct bodies of different lengths."""
    return [b"m%03d" % each + b"." * (each % 17) for each in range(number)]


@pytest.mark.feature("W26")
def test_w26_zero_starts_with_the_oldest_and_an_id_with_the_one_after_it(
    raw: Raw, connect: Connect, topic: bytes
) -> None:
    other = raw.create(unique_name())
    for body in bodies(10):
        raw.pub(topic, body)
        raw.pub(other, b"between")
    items = connect().send(sub(topic, 0, batch=255)).consume(10)
    assert [item.body for item in items] == bodies(10)
    for position, item in enumerate(items[:-1]):
        following = connect().send(sub(topic, item.event_id, b"from%d" % position)).push()[0]
        assert following == items[position + 1]
    last = connect().send(sub(topic, items[-1].event_id, b"from-last"))
    last.quiet(0.05)
    raw.pub(topic, b"new")
    assert last.push()[0].body == b"new"


@pytest.mark.feature("W26")
@pytest.mark.parametrize("event_id", [0, 1, 99999999, 2**62, -1])
def test_w26_a_topic_without_messages_takes_any_value(raw: Raw, connect: Connect, topic: bytes, event_id: int) -> None:
    subscriber = connect().send(sub(topic, event_id))
    subscriber.quiet(0.05)
    raw.pub(topic, b"first")
    assert subscriber.push()[0].body == b"first"


@pytest.mark.feature("W27", "QC1")
def test_w27_positions_that_are_not_there(raw: Raw, connect: Connect, topic: bytes) -> None:
    other = raw.create(unique_name())
    raw.pub(topic, b"one")
    raw.pub(other, b"elsewhere")
    raw.create(unique_name())
    raw.pub(topic, b"two")
    first, last = (item.event_id for item in connect().send(sub(topic, 0, b"other", batch=9)).push())
    assert last == first + 3
    for below in (-1, -(2**63), first - 1, first - 2, 1):
        assert raw.refused(sub(topic, below)) == "can't find event id", below
    for absent in (first + 1, first + 2, last + 1, 2**62):
        assert raw.refused(sub(topic, absent)) == "EOF", absent
    raw.send(sub(topic, first))
    assert raw.push()[0].event_id == last


@pytest.mark.feature("W28")
@pytest.mark.parametrize(("batch", "at_most"), [(0, 1), (1, 1), (5, 5), (255, 255)])
def test_w28_a_push_holds_what_is_there_up_to_the_batch_size(
    raw: Raw, connect: Connect, topic: bytes, batch: int, at_most: int
) -> None:
    expected = bodies(600)
    raw.pub(topic, *expected[:300])
    for body in expected[300:310]:
        raw.pub(topic, body)
    raw.pub(topic, *expected[310:])
    subscriber = connect().send(sub(topic, batch=batch))
    pushes: list[list[Item]] = []
    while sum(len(push) for push in pushes) < 600:
        pushes.append(subscriber.push())
        subscriber.send(ACK_GO_ON)
    assert max(map(len, pushes)) == at_most
    items = [item for push in pushes for item in push]
    assert [item.body for item in items] == expected
    ids = [item.event_id for item in items]
    assert ids == sorted(set(ids))
    positions = [(item.next_file, item.next_position) for item in items]
    assert positions == sorted(set(positions))
    assert len(pushes) <= 600 // at_most + 3, "the backlog fills batches"


@pytest.mark.feature("W28")
def test_w28_a_push_is_never_held_back_to_fill_a_batch(raw: Raw, connect: Connect, topic: bytes) -> None:
    subscriber = connect().send(sub(topic, batch=255))
    subscriber.quiet(0.02)
    for number in range(5):
        raw.pub(topic, b"m%d" % number)
        assert [item.body for item in subscriber.push(1.0)] == [b"m%d" % number]
        subscriber.send(ACK_GO_ON)


@pytest.mark.feature("W28")
def test_w28_what_others_have_read_in_small_pieces_is_sent_in_large_ones(
    raw: Raw, connect: Connect, topic: bytes
) -> None:
    close_behind = connect().send(sub(topic, 0, b"close-behind", batch=1))
    for body in bodies(30):
        raw.pub(topic, body)
        assert close_behind.push()[0].body == body
        close_behind.send(ACK_GO_ON)
    late = connect().send(sub(topic, 0, b"late", batch=255))
    assert [item.body for item in late.push()] == bodies(30)


@pytest.mark.feature("W28")
def test_w28_positions_rise_over_storage_files(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", topics__segment_bytes=4096)
    raw = connect(queue)
    raw.create(b"rolling")
    expected = [b"%03d" % number + b"x" * 300 for number in range(100)]
    for body in expected:
        raw.pub(b"rolling", body)
    items = connect(queue).send(sub(b"rolling", batch=7)).consume(100)
    assert [item.body for item in items] == expected
    positions = [(item.next_file, item.next_position) for item in items]
    assert positions == sorted(set(positions))
    assert items[-1].next_file > 4
    for at in range(0, 99, 9):
        following = connect(queue).send(sub(b"rolling", items[at].event_id, b"w%d" % at)).push()[0]
        assert following.event_id == items[at + 1].event_id


@pytest.mark.feature("W29")
def test_w29_one_push_is_in_flight_at_a_time(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one", b"two")
    subscriber = connect().send(sub(topic))
    assert subscriber.push()[0].body == b"one"
    subscriber.quiet(0.1)
    subscriber.send(b"\x00").quiet(0.05)
    assert subscriber.send(b"\x00").push()[0].body == b"two"


@pytest.mark.feature("W29")
@pytest.mark.parametrize("ack", [b"\x02\x00", b"\xff\xff", b"\x00\x01", b"\x01\x01"])
def test_w29_any_other_value_closes_without_a_frame(raw: Raw, connect: Connect, topic: bytes, ack: bytes) -> None:
    raw.pub(topic, b"one", b"two")
    subscriber = connect().send(sub(topic, 0, b"bad"))
    subscriber.push()
    subscriber.send(ack).closed(2.0)
    assert connect().send(sub(topic, 0, b"bad")).push()[0].body == b"one"


@pytest.mark.feature("W29")
def test_w29_an_ack_sent_early_counts_for_the_next_push(raw: Raw, connect: Connect, topic: bytes) -> None:
    subscriber = connect().send(sub(topic))
    subscriber.send(ACK_GO_ON)
    subscriber.quiet(0.05)
    raw.pub(topic, b"one", b"two", b"three")
    assert subscriber.push()[0].body == b"one"
    assert subscriber.push()[0].body == b"two", "the early ack was for the first push"
    subscriber.quiet(0.05)
    assert subscriber.send(ACK_GO_ON).push()[0].body == b"three"


@pytest.mark.feature("W29", "W31", "QC4")
def test_w31_after_ack_and_end_the_connection_takes_the_next_command(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one", b"two")
    subscriber = connect()
    for _ in range(3):
        subscriber.send(sub(topic))
        assert subscriber.push()[0].body == b"one"
        subscriber.send(ACK_END + topic_info(topic) + alive() + sub(topic, 0, b"other"))
        assert subscriber.json()["name"] == topic.decode()
        subscriber.alive()
        assert subscriber.push()[0].body == b"one"
        subscriber.send(ACK_END)
    subscriber.quiet(0.05)


@pytest.mark.feature("W31", "QC4")
def test_w31_after_a_255_the_connection_takes_the_next_command(connect: Connect) -> None:
    raw, subscriber = connect(), connect()
    for _ in range(3):
        name = raw.create(unique_name())
        raw.pub(name, b"one")
        subscriber.send(sub(name)).push()
        subscriber.send(ACK_GO_ON)
        raw.delete(name)
        subscriber.sub_end()
        subscriber.send(pub(name, message(b"m")) + alive() + create(name) + pub(name, message(b"m")))
        assert subscriber.error() == "topic not exist"
        subscriber.alive()
        subscriber.ok()
        subscriber.ok()


@pytest.mark.feature("W31", "QC4")
def test_w31_after_a_refused_subscription_the_connection_takes_the_next_command(
    raw: Raw, connect: Connect, topic: bytes
) -> None:
    raw.pub(topic, b"one")
    raw.send(sub(topic, 2**60) + sub(b"missing") + alive() + sub(topic))
    assert raw.error() == "EOF"
    assert raw.error() == "topic not exist"
    raw.alive()
    assert raw.push()[0].body == b"one"


@pytest.mark.feature("W33", "W07")
def test_w33_a_name_is_taken_once_per_topic(raw: Raw, connect: Connect, topic: bytes) -> None:
    other = raw.create(unique_name())
    raw.pub(topic, b"one")
    raw.pub(other, b"one")
    for who in (b"g1", b"", "消费者".encode(), b"with space\nand\ttab"):
        holder = connect().send(sub(topic, 0, who))
        holder.push()
        assert raw.refused(sub(topic, 0, who)) == who.decode() + " regiester exist"
        connect().send(sub(other, 0, who)).push()
        connect().send(sub(topic, 0, who + b"-")).push()


def end_by_close(holder: Raw) -> None:
    holder.close()


def end_by_reset(holder: Raw) -> None:
    holder.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    holder.close()


def end_by_bad_ack(holder: Raw) -> None:
    holder.send(b"\x07\x00").closed()


def end_by_last_ack(holder: Raw) -> None:
    holder.send(ACK_END + alive()).alive()


def end_by_ack_timeout(holder: Raw) -> None:
    holder.closed(2.0)


@pytest.mark.feature("W33", "W30")
@pytest.mark.parametrize("end", [end_by_close, end_by_reset, end_by_bad_ack, end_by_last_ack, end_by_ack_timeout])
def test_w33_a_name_is_free_again_at_once(raw: Raw, connect: Connect, topic: bytes, end: Callable[[Raw], None]) -> None:
    raw.pub(topic, b"one")
    timeout = 200_000_000 if end is end_by_ack_timeout else 60_000_000_000
    holder = connect().send(sub(topic, 0, b"g1", ack_timeout_ns=timeout))
    holder.push()
    assert raw.refused(sub(topic, 0, b"g1")) == "g1 regiester exist"
    end(holder)

    def is_free() -> bool:
        with connect() as again:
            code, _ = again.send(sub(topic, 0, b"g1")).answer()
            return code == 200

    wait_for(is_free, timeout_s=1.0, what="the name to be free")


@pytest.mark.feature("W34")
def test_w34_the_server_keeps_no_position(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, *bodies(20))
    first = connect().send(sub(topic, 0, b"g1", batch=5))
    items = first.consume(10)
    first.push()
    first.send(ACK_END + alive()).alive()
    first.close()
    again = connect().send(sub(topic, 0, b"g1", batch=255))
    assert [item.body for item in again.push()] == bodies(20)
    again.send(ACK_END + alive()).alive()
    resumed = connect().send(sub(topic, items[-1].event_id, b"g1", batch=255))
    assert [item.body for item in resumed.push()] == bodies(20)[10:]


@pytest.mark.feature("W28", "W33")
def test_w33_different_names_are_independent(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, *bodies(30))
    subscribers = [connect().send(sub(topic, 0, b"g%d" % number, batch=number + 1)) for number in range(10)]
    for subscriber in reversed(subscribers):
        assert [item.body for item in subscriber.consume(30)] == bodies(30)


@pytest.mark.feature("W26", "W02")
def test_w26_the_subscriber_name_may_arrive_in_pieces(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one")
    head = request(0, topic, u8(1) + u8(1), b"trace", i64(0) + i64(10**9) + u32(6))
    subscriber = connect().send(head)
    subscriber.quiet(0.02)
    subscriber.send(b"abc").quiet(0.02)
    assert subscriber.send(b"def").push()[0].body == b"one"
    assert raw.refused(sub(topic, 0, b"abcdef")) == "abcdef regiester exist"
