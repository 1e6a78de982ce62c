"""W19 to W21: delayed messages."""

from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import DELAY, DELAY_APPLY, alive, delay, i64, message, now_ms, pub, replica, sub
from tests.wire.fixtures import SMSS_FOLLOWERS, Connect, StartServer, unique_name
from tests.wire.raw import Raw

ROLE_TEXT = "just master can pub message"
TIME_TEXT = "delay time must be more than 1 second"


@pytest.fixture(scope="module")
def delaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A server for delayed messages, away from the tests that count event ids."""
    with QueueProcess(tmp_path_factory.mktemp("delays") / "data", env=SMSS_FOLLOWERS) as queue:
        yield queue


@pytest.mark.feature("W19", "W07")
def test_w19_size_then_time_then_format_then_topic(raw: Raw, topic: bytes) -> None:
    unknown = unique_name()
    assert raw.refused(delay(unknown, 0, b"12345678")) == "invalid delay request"
    assert raw.refused(delay(unknown, 999, b"123456789")) == TIME_TEXT
    assert raw.refused(delay(unknown, 1000, b"123456789")) == "invalid delay request"
    assert raw.refused(delay(unknown, 1000, message(b"m"))) == "topic not exist"
    assert raw.refused(delay(topic, 999, message(b"m"))) == TIME_TEXT


@pytest.mark.feature("W19", "W07")
def test_w19_on_a_follower_the_role_comes_first(connect: Connect, follower: QueueProcess) -> None:
    raw = connect(follower)
    assert raw.refused(delay(unique_name(), 0, b"12345678")) == ROLE_TEXT
    assert raw.refused(delay(unique_name(), 1000, message(b"m"))) == ROLE_TEXT


@pytest.mark.feature("W19")
@pytest.mark.parametrize("delay_ms", [999, 0, -1, -(2**63)])
def test_w19_less_than_a_second_is_refused(raw: Raw, topic: bytes, delay_ms: int) -> None:
    assert raw.refused(delay(topic, delay_ms, message(b"m"))) == TIME_TEXT


@pytest.mark.feature("W19")
@pytest.mark.parametrize("size", range(9))
def test_w19_small_payloads_are_refused_and_consumed(raw: Raw, topic: bytes, size: int) -> None:
    raw.send(delay(topic, 1000, b"\x11" * size) + alive() + delay(topic, 1000, b"\x11" * size))
    assert raw.error() == "invalid delay request"
    raw.alive()
    assert raw.error() == "invalid delay request"
    raw.send(alive()).alive()


@pytest.mark.feature("W20", "W19", "QB9")
def test_w20_messages_fire_once_in_order_of_due_time_and_not_before(delaying: QueueProcess, connect: Connect) -> None:
    raw, follower = connect(delaying), connect(delaying)
    name = raw.create(unique_name())
    subscriber = connect(delaying).send(sub(name, batch=255))
    follower.send(replica(raw.info(name)["createEventId"]))
    asked_at = now_ms()
    requests = [(1300, b"third"), (1000, b"first"), (1150, b"second")]
    raw.send(b"".join(delay(name, wait, message(body)) for wait, body in requests))
    for _ in requests:
        raw.ok()
    # Twenty with one due time, or nearly: due in the order of their requests in any case.
    raw.send(b"".join(delay(name, 1500, message(b"f%02d" % number)) for number in range(20)))
    for _ in range(20):
        raw.ok()
    assert now_ms() - asked_at < 900, "the machine is too slow for this test"
    subscriber.quiet(0.02)
    items = subscriber.consume(23)
    assert [item.body for item in items] == [b"first", b"second", b"third"] + [b"f%02d" % n for n in range(20)]
    for item, wait in zip(items, [1000, 1150, 1300] + [1500] * 20, strict=True):
        assert asked_at + wait <= item.time <= now_ms()
    delays = [follower.block() for _ in range(23)]
    assert [block.command for block in delays] == [DELAY] * 23
    fired = [follower.block() for _ in range(23)]
    assert [block.command for block in fired] == [DELAY_APPLY] * 23
    assert [block.event_id for block in fired] == [item.event_id for item in items]
    assert all(block.event_id > delays[-1].event_id for block in fired)
    subscriber.quiet(0.2)


@pytest.mark.feature("W20")
def test_w20_a_delayed_message_arrives_on_time(delaying: QueueProcess, connect: Connect) -> None:
    raw = connect(delaying)
    name = raw.create(unique_name())
    subscriber = connect(delaying).send(sub(name))
    asked_at = now_ms()
    raw.send(delay(name, 1000, message(b"one") + message(b"two") + message(b"three"))).ok()
    items = subscriber.consume(3)
    came_at = now_ms()
    assert [item.body for item in items] == [b"one", b"two", b"three"]
    assert [item.event_id - items[0].event_id for item in items] == [0, 1, 2]
    assert came_at >= asked_at + 1000
    assert came_at < asked_at + 2000, "fired late on an idle server"


@pytest.mark.feature("W20", "W35", "QB9", "QE5")
def test_w20_delayed_messages_survive_a_kill_and_fire_once(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    name = raw.create(b"kept")
    asked_at = now_ms()
    for wait, body in ((7000, b"later"), (1000, b"due while down"), (1001, b"due while down too")):
        raw.send(delay(name, wait, message(body))).ok()
    raw.send(delay(name, 3_600_000, message(b"in an hour"))).ok()
    queue.kill()
    wait_for(lambda: now_ms() > asked_at + 1200, what="two of them to fall due")
    queue.start()
    subscriber = connect(queue).send(sub(name, batch=255))
    items = subscriber.consume(2)
    assert items[1].time < asked_at + 7000, "what fell due while the server was down does not wait for what comes later"
    assert [item.body for item in items] == [b"due while down", b"due while down too"]
    queue.kill()
    queue.start()
    subscriber = connect(queue).send(sub(name, batch=255))
    items = subscriber.consume(3)
    assert [item.body for item in items] == [b"due while down", b"due while down too", b"later"]
    assert items[2].time >= asked_at + 7000
    subscriber.quiet(0.2)


@pytest.mark.feature("W21")
def test_w21_a_topic_that_is_gone_drops_the_message_and_one_that_is_back_gets_it(
    delaying: QueueProcess, connect: Connect
) -> None:
    raw, follower = connect(delaying), connect(delaying)
    gone, back, watch = (raw.create(unique_name()) for _ in range(3))
    follower.send(replica(raw.info(watch)["createEventId"]))
    raw.pub(back, b"before")
    for name in (gone, back, watch):
        raw.send(delay(name, 1000, message(b"late for " + name))).ok()
    raw.delete(gone)
    raw.delete(back)
    raw.create(back)
    subscriber = connect(delaying).send(sub(back, batch=9))
    assert [item.body for item in subscriber.push()] == [b"late for " + back]
    assert connect(delaying).send(sub(watch)).push()[0].body == b"late for " + watch
    blocks = [follower.block() for _ in range(9)]
    assert [(block.command, block.topic) for block in blocks][-2:] == [(101, back), (101, watch)]
    raw.create(gone)
    late = connect(delaying).send(sub(gone))
    late.quiet(0.1)
    raw.send(pub(gone, message(b"not late"))).ok()
    assert late.push()[0].body == b"not late"


@pytest.mark.feature("W20")
def test_w20_the_stored_record_carries_the_trigger_time(delaying: QueueProcess, connect: Connect) -> None:
    raw, follower = connect(delaying), connect(delaying)
    name = raw.create(unique_name())
    follower.send(replica(raw.info(name)["createEventId"]))
    before = now_ms()
    raw.send(delay(name, 3_600_000, message(b"in an hour"))).ok()
    after = now_ms()
    block = follower.block()
    trigger = int.from_bytes(block.payload[:8], "little")
    # One millisecond of slack: the due time is kept on a clock that does not step.
    assert before - 1 <= trigger - 3_600_000 <= after + 1
    assert block.payload[8:] == i64(block.event_id) + message(b"in an hour")
