"""Subscribe, Positions and SetPosition: subscribers with a memory."""

from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import (
    ACK_END,
    ACK_GO_ON,
    AFTER_ID,
    FROM_NOW,
    POSITIONS,
    REMEMBER,
    SET_POSITION,
    SINCE_TIME,
    STORED,
    TAKE_OVER,
    alive,
    extension,
    i64,
    now_ms,
    string,
    sub,
    subscribe,
)
from tests.wire.fixtures import Connect, StartServer, environment, unique_name
from tests.wire.raw import Raw

pytestmark = pytest.mark.feature("X-Subscribe", "QC2")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A server with a short keep-alive period, away from the tests that count event ids."""
    data = tmp_path_factory.mktemp("positions") / "data"
    with QueueProcess(data, env=environment(queue__keep_alive_ms=300)) as queue:
        yield queue


@pytest.fixture
def raw(extended: QueueProcess, connect: Connect) -> Raw:
    """A connection to it."""
    return connect(extended)


@pytest.fixture
def topic(raw: Raw) -> bytes:
    """A new topic on it."""
    return raw.create(unique_name())


def positions(raw: Raw, topic: bytes) -> dict[str, int]:
    """The stored positions of a topic."""
    shown = raw.extension(POSITIONS, topic).json()
    assert all(set(entry) >= {"subscriber", "event_id", "live"} for entry in shown)
    return {entry["subscriber"]: entry["event_id"] for entry in shown if entry["event_id"] >= 0}


def is_live(raw: Raw, topic: bytes) -> bool:
    """Has the topic a subscriber?"""
    return any(entry["live"] for entry in raw.extension(POSITIONS, topic).json())


def set_position(name: bytes, who: bytes, event_id: int) -> bytes:
    """SetPosition (132)."""
    return extension(SET_POSITION, name, string(who) + i64(event_id))


def five(raw: Raw, name: bytes) -> list[bytes]:
    """Publish five messages."""
    bodies = [b"m%d" % number for number in range(5)]
    for body in bodies:
        raw.pub(name, body)
    return bodies


def test_after_an_event_id_as_the_old_command_does(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    bodies = five(raw, topic)
    items = connect(extended).send(subscribe(topic, b"w", AFTER_ID, 0, batch=255)).push()
    assert [item.body for item in items] == bodies
    after = connect(extended).send(subscribe(topic, b"v", AFTER_ID, items[2].event_id)).push()
    assert after == [items[3]]
    assert raw.refused(subscribe(topic, b"u", AFTER_ID, 2**60)) == "EOF"
    assert raw.refused(subscribe(unique_name(), b"u", AFTER_ID, 0)) == "topic not exist"
    old = connect(extended).send(sub(topic, 0, b"old", batch=255)).push()
    assert old == items


def test_from_now_sees_only_what_comes(raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes) -> None:
    five(raw, topic)
    subscriber = connect(extended).send(subscribe(topic, b"w", FROM_NOW))
    wait_for(lambda: is_live(raw, topic), what="the subscription")
    subscriber.quiet(0.05)
    raw.pub(topic, b"new")
    assert [item.body for item in subscriber.push()] == [b"new"]


def test_from_now_on_a_topic_without_messages(raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes) -> None:
    subscriber = connect(extended).send(subscribe(topic, b"w", FROM_NOW))
    wait_for(lambda: is_live(raw, topic), what="the subscription")
    subscriber.quiet(0.05)
    raw.pub(topic, b"first")
    assert [item.body for item in subscriber.push()] == [b"first"]


def test_since_a_time(raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes) -> None:
    raw.pub(topic, b"early", b"early too")
    start = now_ms()
    wait_for(lambda: now_ms() > start + 5, what="the clock to move on")
    since = now_ms()
    raw.pub(topic, b"late", b"late too")

    def seen(value: int) -> list[bytes]:
        with connect(extended) as subscriber:
            asked = subscribe(topic, b"t%d" % value, SINCE_TIME, value, batch=255)
            return [item.body for item in subscriber.send(asked).push()]

    assert seen(since) == [b"late", b"late too"]
    assert seen(0) == [b"early", b"early too", b"late", b"late too"]
    future = connect(extended).send(subscribe(topic, b"future", SINCE_TIME, now_ms() + 3_600_000))
    future.quiet(0.05)


@pytest.mark.feature("X-Positions")
def test_an_ack_moves_the_remembered_position_and_the_next_one_resumes_there(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    bodies = five(raw, topic)
    subscriber = connect(extended).send(subscribe(topic, b"w", STORED, 0, batch=2, flags=REMEMBER))
    first = subscriber.push()
    assert [item.body for item in first] == bodies[:2]
    subscriber.send(ACK_GO_ON)
    second = subscriber.push()
    subscriber.close()  # Without an ack: the second batch does not count.
    wait_for(lambda: positions(raw, topic) == {"w": first[-1].event_id}, what="the position to be stored")
    again = connect(extended)

    def has_resumed() -> bool:
        code, rest = again.send(subscribe(topic, b"w", STORED, 0, batch=255, flags=REMEMBER)).answer()
        if code == 400:
            again.read_exact(int.from_bytes(rest[:2], "little"))
            return False
        again.read_exact(int.from_bytes(rest[2:6], "little"))
        assert rest[0] == 3
        return True

    wait_for(has_resumed, what="the name to be free")
    again.send(ACK_END + alive()).alive()
    assert second[0].event_id > first[-1].event_id
    last = connect(extended).send(sub(topic, 0, b"x", batch=255)).push()[-1].event_id
    wait_for(lambda: positions(raw, topic)["w"] == last, what="the last ack to be stored")


def test_without_the_flag_nothing_is_remembered(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    five(raw, topic)
    subscriber = connect(extended).send(subscribe(topic, b"w", STORED, 0, batch=5))
    subscriber.push()
    subscriber.send(ACK_END + alive()).alive()
    assert positions(raw, topic) == {}
    assert len(connect(extended).send(subscribe(topic, b"w", STORED, 0, batch=5)).push()) == 5


def test_without_a_stored_position_the_given_id_counts(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    five(raw, topic)
    items = connect(extended).send(sub(topic, batch=9)).push()
    got = connect(extended).send(subscribe(topic, b"w", STORED, items[1].event_id, batch=9)).push()
    assert got == items[2:]


@pytest.mark.feature("X-Positions")
def test_a_position_can_be_set_shown_and_forgotten(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    five(raw, topic)
    other = connect(extended)
    items = other.send(sub(topic, batch=9)).push()
    other.send(ACK_END + alive()).alive()
    assert raw.extension(POSITIONS, topic).json() == []
    raw.send(set_position(topic, b"w", items[3].event_id)).ok()
    assert raw.extension(POSITIONS, topic).json() == [{"subscriber": "w", "event_id": items[3].event_id, "live": False}]
    holder = connect(extended).send(subscribe(topic, b"w", STORED, 0, flags=REMEMBER))
    assert holder.push() == items[4:]
    assert [entry["live"] for entry in raw.extension(POSITIONS, topic).json()] == [True]
    holder.close()
    raw.send(set_position(topic, b"w", -1)).ok()
    assert positions(raw, topic) == {}
    assert raw.refused(set_position(unique_name(), b"w", 5)) == "topic not exist"
    assert raw.refused(extension(POSITIONS, unique_name())) == "topic not exist"


@pytest.mark.feature("X-Positions")
def test_positions_go_with_their_topic(raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes) -> None:
    five(raw, topic)
    last = connect(extended).send(sub(topic, batch=9)).push()[-1].event_id
    raw.send(set_position(topic, b"w", last)).ok()
    raw.delete(topic)
    raw.create(topic)
    assert positions(raw, topic) == {}


def test_a_second_one_is_refused_or_waits_and_takes_over(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    bodies = five(raw, topic)
    holder = connect(extended).send(subscribe(topic, b"w", STORED, 0, flags=REMEMBER))
    assert holder.push()[0].body == bodies[0]
    assert raw.refused(subscribe(topic, b"w", STORED, 0, flags=REMEMBER)) == "w regiester exist"
    assert raw.refused(sub(topic, 0, b"w")) == "w regiester exist"
    standby = connect(extended).send(subscribe(topic, b"w", STORED, 0, flags=REMEMBER | TAKE_OVER))
    standby.alive(2.0)
    second = connect(extended).send(subscribe(topic, b"w", STORED, 0, flags=REMEMBER | TAKE_OVER))
    standby.alive(2.0)
    holder.send(ACK_GO_ON)
    assert holder.push()[0].body == bodies[1]
    holder.close()
    while (answer := standby.read_exact(10))[0] == 201:
        pass
    assert answer[:3] == b"\xc8\x00\x01"
    body = standby.read_exact(int.from_bytes(answer[4:8], "little"))
    assert body.endswith(bodies[1]), "it goes on behind the last ack"
    assert second.read_exact(10)[0] == 201, "the next in line goes on waiting"
    standby.close()
    while (answer := second.read_exact(10))[0] == 201:
        pass
    assert answer[:2] == b"\xc8\x00"


def test_the_ack_timeout_is_in_milliseconds(raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes) -> None:
    five(raw, topic)
    started = now_ms()
    subscriber = connect(extended).send(subscribe(topic, b"w", ack_timeout_ms=250))
    subscriber.push()
    subscriber.closed(2.0)
    assert 240 <= now_ms() - started < 1500


@pytest.mark.feature("X-Positions")
def test_positions_survive_restart_and_kill(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    five(raw, b"a")
    items = connect(queue).send(sub(b"a", batch=9)).push()
    subscriber = connect(queue).send(subscribe(b"a", b"w", STORED, 0, flags=REMEMBER))
    subscriber.push()
    subscriber.send(ACK_GO_ON)
    subscriber.push()
    raw.send(set_position(b"a", b"set", items[2].event_id)).ok()
    queue.stop()
    queue.start()
    raw = connect(queue)
    assert positions(raw, b"a") == {"w": items[0].event_id, "set": items[2].event_id}
    subscriber = connect(queue).send(subscribe(b"a", b"w", STORED, 0, flags=REMEMBER))
    for item in items[1:4]:
        assert subscriber.push() == [item]
        subscriber.send(ACK_GO_ON)
    queue.kill()
    queue.start()
    shown = positions(connect(queue), b"a")
    assert shown["set"] == items[2].event_id
    assert items[0].event_id <= shown["w"] <= items[3].event_id, "a second old at most, never ahead"
