"""W30 and W32: how long the server waits for an ack, and what it says when there is nothing to say."""

import time
from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import ACK_GO_ON, SECOND_NS, create, delete, message, pub, replica, sub
from tests.wire.fixtures import SMSS_FOLLOWERS, Connect, StartServer, environment, unique_name
from tests.wire.raw import Raw
from tests.wire.ripening import UNTIMED, Unacked

KEEP_ALIVE_MS = 400


@pytest.mark.feature("W30")
@pytest.mark.parametrize("kind", list(UNTIMED))
def test_w30_without_a_timeout_the_server_waits_three_seconds(unacked: Unacked, kind: str) -> None:
    assert 2.9 < unacked.seconds[kind].result() < 4.5


@pytest.mark.feature("W30", "W33")
def test_w30_the_timeout_is_in_nanoseconds_and_frees_the_name(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one")
    started = time.monotonic()
    holders = [
        connect().send(sub(topic, 0, b"w%d" % tenths, ack_timeout_ns=tenths * SECOND_NS // 10)) for tenths in (2, 4)
    ]
    for holder in holders:
        holder.push()
    for holder, tenths in zip(holders, (2, 4), strict=True):
        holder.closed(2.0)
        assert tenths / 10 - 0.01 <= time.monotonic() - started < tenths / 10 + 2.0
        assert connect().send(sub(topic, 0, b"w%d" % tenths)).push()[0].body == b"one"


@pytest.mark.feature("W30")
def test_w30_an_ack_in_time_begins_a_new_period(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"one", b"two", b"three")
    subscriber = connect().send(sub(topic, ack_timeout_ns=SECOND_NS // 2))
    for body in (b"one", b"two", b"three"):
        assert subscriber.push()[0].body == body
        subscriber.quiet(0.3)
        subscriber.send(ACK_GO_ON)
    subscriber.quiet(0.7)
    raw.pub(topic, b"four")
    assert subscriber.push()[0].body == b"four", "no timeout runs while there is nothing to ack"


@pytest.mark.feature("W30", "QA2")
@pytest.mark.parametrize("timeout_ns", [2**63 - 1, 10**18])
def test_w30_a_timeout_of_any_length_holds_up_no_one(connect: Connect, timeout_ns: int) -> None:
    raw = connect()
    name, other = raw.create(unique_name()), unique_name()
    raw.pub(name, b"one")
    patient = connect().send(sub(name, 0, b"patient", ack_timeout_ns=timeout_ns))
    patient.push()
    assert connect().send(sub(name, 0, b"quick")).push(1.0)[0].body == b"one"
    for asked in (pub(name, message(b"two")), create(other), delete(other), delete(name)):
        raw.send(asked).ok(1.0)
    patient.send(ACK_GO_ON).sub_end(1.0)


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A server with a short keep-alive period."""
    data = tmp_path_factory.mktemp("chatty") / "data"
    with QueueProcess(data, env=SMSS_FOLLOWERS | environment(queue__keep_alive_ms=KEEP_ALIVE_MS)) as queue:
        yield queue


def seconds_until_alive(raw: Raw) -> float:
    """How long until the next 201."""
    started = time.monotonic()
    raw.alive(5.0)
    return time.monotonic() - started


@pytest.mark.feature("W32")
def test_w32_idle_streams_get_a_201_each_period_and_a_message_restarts_it(
    chatty: QueueProcess, connect: Connect
) -> None:
    raw = connect(chatty)
    name = raw.create(unique_name())
    subscriber = connect(chatty).send(sub(name))
    follower = connect(chatty).send(replica(raw.info(name)["createEventId"]))
    period = KEEP_ALIVE_MS / 1000
    assert period * 0.8 < seconds_until_alive(subscriber) < period * 2.5
    follower.alive(1.0)
    assert period * 0.5 < seconds_until_alive(subscriber) < period * 2.5
    follower.alive(1.0)
    subscriber.quiet(period / 2)
    raw.pub(name, b"message")
    pushed = time.monotonic()
    assert subscriber.push()[0].body == b"message"
    subscriber.send(ACK_GO_ON)
    assert follower.block().event_id > 0
    subscriber.alive(5.0)
    assert time.monotonic() - pushed > period * 0.8, "the message restarted the period"
    follower.alive(1.0)


@pytest.mark.feature("W32")
def test_w32_a_201_expects_no_ack(chatty: QueueProcess, connect: Connect) -> None:
    raw = connect(chatty)
    name = raw.create(unique_name())
    subscriber = connect(chatty).send(sub(name, ack_timeout_ns=SECOND_NS // 10))
    for _ in range(2):
        subscriber.alive(2.0)
    raw.pub(name, b"one", b"two")
    assert subscriber.push()[0].body == b"one"
    assert subscriber.send(ACK_GO_ON).push()[0].body == b"two"


@pytest.mark.feature("W32")
def test_w32_a_period_that_clients_would_not_wait_for_refuses_to_start(start_server: StartServer) -> None:
    with pytest.raises(AssertionError, match="keep_alive_ms"):
        start_server(queue__keep_alive_ms=35_000)
