"""W39: stalls, sizes and idleness."""

import pytest

from tests.wire.bytes_by_hand import (
    SUB,
    alive,
    delay,
    i64,
    message,
    pub,
    request,
    sub,
    u8,
    u32,
)
from tests.wire.fixtures import Connect, StartServer, memory_kib
from tests.wire.raw import Closed, Raw
from tests.wire.ripening import Stalled

GIB = 2**30


@pytest.mark.feature("W39", "QD1")
def test_w39_a_request_that_is_half_sent_ends_after_five_seconds(stalled: Stalled) -> None:
    stalled.wait()
    for raw, _ in stalled.halves.values():
        assert raw.error(2.0).startswith("request is incomplete: ")
        with pytest.raises(Closed):
            raw.read_exact(1)


@pytest.mark.feature("W39", "QD1")
def test_w39_a_pause_shorter_than_the_timeout_changes_nothing(paused: Stalled) -> None:
    for raw, rest in paused.halves.values():
        raw.quiet(0.002)
        raw.send(rest)
    answers = {place: raw for place, (raw, _) in paused.halves.items()}
    answers["header, first byte"].alive()
    assert paused.topic.decode() in [entry["name"] for entry in answers["header, name length"].json()]
    for place in ("header", "header, last byte", "name", "trace id", "payload"):
        answers[place].ok()
    assert answers["own part"].error() == "topic exist"
    assert answers["delay"].error() == "delay time must be more than 1 second"
    for raw in answers.values():
        raw.send(alive()).alive()


def refused_or_closed(raw: Raw) -> None:
    """A request past a limit: a 400 or the end, and in step if it goes on."""
    try:
        raw.error(5.0)
    except Closed:
        return


@pytest.mark.feature("W39", "QA5")
def test_w39_three_announced_gigabytes_allocate_nothing_ahead(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    connect(queue).create(b"a")
    before, resident = memory_kib(queue, "VmSize"), memory_kib(queue, "VmRSS")
    claims = [
        pub(b"a", b"", size=3 * GIB),
        pub(b"a", b"x" * 1000, size=0xFFFFFFFF),
        delay(b"a", 1000, b"", size=3 * GIB),
        request(SUB, b"a", u8(1) + u8(1), part=i64(0) + i64(0) + u32(3 * GIB)),
        request(SUB, b"a", u8(1), part=i64(0) + u32(0xFFFFFFFF) + b"who"),
        request(129, b"a", u32(3 * GIB)),
        request(150, b"a", u32(0xFFFFFFFF)),
        request(128, b"n" * 65535, u32(0xFFFFFFFF), b"t" * 255),
    ]
    waiting = [connect(queue).send(claim) for claim in claims]
    for raw in waiting:
        refused_or_closed(raw)
    assert memory_kib(queue, "VmSize") - before < 100_000
    assert memory_kib(queue, "VmRSS") - resident < 30_000
    connect(queue).send(alive()).alive()


def in_step_or_closed(raw: Raw) -> None:
    """After a refusal the next request is answered as itself, or there is no connection any more."""
    try:
        raw.send(alive())
        raw.alive(5.0)
    except (Closed, ConnectionError):
        return


@pytest.mark.feature("W39", "QA5")
def test_w39_a_payload_at_the_cap_is_accepted_and_one_byte_more_is_not(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server("--flush", "none", queue__payload_bytes_max=65536, queue__idle_timeout_ms=400)
    raw = connect(queue)
    raw.create(b"a")
    largest = message(b"x" * (65536 - 8))
    raw.send(pub(b"a", largest)).ok()
    assert connect(queue).send(sub(b"a")).push()[0].message == largest
    larger = message(b"x" * (65536 - 7))
    for asked in (pub(b"a", larger), delay(b"a", 1000, larger)):
        raw = connect(queue)
        try:
            raw.send(asked)
            raw.error(5.0)
        except (Closed, ConnectionError):
            continue
        in_step_or_closed(raw)
    # The same server closes what is idle, but neither what talks nor what subscribes.
    idle, talking, subscriber = connect(queue), connect(queue), connect(queue).send(sub(b"a", 0, b"idle"))
    subscriber.push()
    half = connect(queue).send(alive()[:7])
    subscriber.send(b"\x00\x00")
    for _ in range(4):
        talking.quiet(0.2)
        talking.send(alive()).alive()
    idle.closed(2.0)
    half.closed(2.0)
    connect(queue).pub(b"a", b"for the subscriber")
    assert subscriber.push()[0].body == b"for the subscriber"


@pytest.mark.feature("W39", "QA5")
@pytest.mark.parametrize("length", [1024, 1025, 5000])
def test_w39_a_subscriber_name_has_a_limit(raw: Raw, connect: Connect, topic: bytes, length: int) -> None:
    raw.pub(topic, b"one")
    subscriber = connect().send(sub(topic, 0, b"w" * length))
    if length <= 1024:
        assert subscriber.push()[0].body == b"one"
        return
    try:
        subscriber.error(5.0)
    except Closed:
        return
    in_step_or_closed(subscriber)


@pytest.mark.feature("W39")
def test_w39_a_request_cut_off_by_the_end_of_the_connection_does_nothing(
    raw: Raw, connect: Connect, topic: bytes
) -> None:
    asked = pub(topic, message(b"never finished"))
    for cut in (1, 10, 20, 25, len(asked) - 1):
        connect().send(asked[:cut]).close()
    raw.pub(topic, b"whole")
    assert [item.body for item in connect().send(sub(topic, batch=9)).push()] == [b"whole"]
