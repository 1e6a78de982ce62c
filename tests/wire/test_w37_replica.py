"""W37 and W38: the replica stream."""

import socket

import pytest

from tests.servers import wait_for
from tests.wire.bytes_by_hand import (
    CREATE,
    DELAY,
    DELAY_APPLY,
    DELETE,
    PUB,
    Block,
    alive,
    create,
    delay,
    from_i64,
    i64,
    message,
    now_ms,
    pub,
    replica,
    sub,
    u32,
)
from tests.wire.fixtures import Connect, StartServer, bytes_read, memory_kib, open_sockets, segments
from tests.wire.raw import Raw


def built(block: Block, payload: bytes | None) -> bytes:
    """The block as the specification writes it, with the times that it has."""
    size = 0 if payload is None else len(payload) + 1
    fields = (block.write_time, block.command, block.event_id, block.receive_time)
    line = b"\t".join([*(b"%d" % field for field in fields), block.topic, b"%d" % size]) + b"\n"
    return u32(len(line)) + line + (b"" if payload is None else payload + b"\n")


@pytest.mark.feature("W37")
def test_w37_blocks_are_those_of_the_specification_for_every_kind(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    started = now_ms()
    name, expire_at = "名-a".encode(), started + 3_600_000
    two = message(b"hello\nworld\t", [(b"k", b"v")]) + message(b"\n")
    raw.create(name, expire_at)
    raw.send(pub(name, two)).ok()
    raw.send(delay(name, 1000, two)).ok()
    raw.send(create(b"plain")).ok()
    live = connect(queue).send(replica(0))
    seen = live.blocks_until(5)
    trigger = from_i64(seen[2].payload[:8])
    assert started - 1 <= trigger - 1000 <= now_ms() + 1
    raw.delete(b"plain")
    connect(queue).send(sub(name, seen[1].event_id + 1, batch=9)).consume(2)
    raw.delete(name)
    seen += live.blocks_until(9)
    expected = [
        (CREATE, 1, name, i64(expire_at)),
        (PUB, 2, name, two),
        (DELAY, 4, name, i64(trigger) + i64(4) + two),
        (CREATE, 5, b"plain", i64(0)),
        (DELETE, 6, b"plain", None),
        (DELAY_APPLY, 7, name, i64(trigger) + i64(4) + two),
        (DELETE, 9, name, None),
    ]
    for block, (command, event_id, topic, payload) in zip(seen, expected, strict=True):
        assert (block.command, block.event_id, block.topic) == (command, event_id, topic)
        assert block.raw == built(block, payload)
        assert started <= block.receive_time <= block.write_time <= now_ms()
    # The same from the start, and after each record.
    again = connect(queue).send(replica(0)).blocks_until(9)
    assert [block.raw for block in again] == [block.raw for block in seen]
    for position, block in enumerate(seen[:-1]):
        rest = connect(queue).send(replica(block.event_id)).blocks_until(9)
        assert [each.raw for each in rest] == [each.raw for each in seen[position + 1 :]]


@pytest.mark.feature("W37", "W07")
def test_w37_a_negative_position_is_refused(raw: Raw) -> None:
    assert raw.refused(replica(-1)) == "invalid replica eventId"
    assert raw.refused(replica(-(2**63))) == "invalid replica eventId"


@pytest.mark.feature("W37")
def test_w37_what_a_follower_sends_is_ignored(raw: Raw, connect: Connect, topic: bytes) -> None:
    follower = connect().send(replica(raw.info(topic)["createEventId"]))
    for sent in (b"\x00\x00", b"\x01\x00", b"\x07", alive(), b"\xff" * 1000):
        follower.send(sent)
        raw.pub(topic, b"message")
        assert follower.block().payload == message(b"message")
    follower.quiet(0.02)


@pytest.mark.feature("W37")
def test_w37_any_number_of_followers_get_the_same(raw: Raw, connect: Connect, topic: bytes) -> None:
    start = raw.info(topic)["createEventId"]
    followers = [connect().send(replica(start)) for _ in range(10)]
    for number in range(20):
        raw.pub(topic, b"m%d" % number, b"n%d" % number)
    streams = [[follower.block().raw for _ in range(20)] for follower in followers]
    assert all(stream == streams[0] for stream in streams)


@pytest.mark.feature("W37")
def test_w37_a_stalled_follower_is_cut_and_writers_are_not_held_up(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", queue__replica_write_timeout_ms=500)
    raw = connect(queue)
    raw.create(b"a")
    before = open_sockets(queue)
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((queue.host, queue.port))
        stalled.sendall(replica(0))
        wait_for(lambda: open_sockets(queue) == before + 1, what="the follower to be connected")
        payload = pub(b"a", message(b"x" * 1_000_000))
        for _ in range(25):
            raw.send(payload).ok(1.0)
        wait_for(lambda: open_sockets(queue) == before, timeout_s=5.0, what="the follower to be cut")
    raw.send(alive()).alive()


@pytest.mark.feature("W37")
def test_w37_a_follower_that_reads_nothing_or_leaves_costs_little(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none")
    raw = connect(queue)
    raw.create(b"a")
    payload = pub(b"a", b"".join(message(b"x" * 1000) for _ in range(1000)))
    for _ in range(40):
        raw.send(payload).ok()
    before = memory_kib(queue, "VmRSS")
    stalled = [connect(queue).send(replica(0)) for _ in range(3)]
    for _ in range(5):
        raw.quiet(0.05)
        raw.send(alive()).alive(1.0)
    assert memory_kib(queue, "VmRSS") - before < 20_000, "40 MB lie on the disk and stay there"
    assert stalled[0].block().event_id == 1
    # One that leaves while it is being served is not served any more: nothing more is read for it.
    for _ in range(5):
        read = bytes_read(queue)
        leaving = connect(queue).send(replica(0))
        leaving.block()
        leaving.close()
        raw.send(alive()).alive(1.0)
        raw.quiet(0.05)
        assert bytes_read(queue) - read < 20 * 10**6


@pytest.mark.feature("W38", "QE1")
def test_w38_every_id_of_a_record_resumes_with_the_next_record(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"a", b"b", b"c", b"d")
    raw.pub(topic, b"next")
    first = raw.info(topic)["createEventId"] + 1
    for event_id in range(first, first + 4):
        block = connect().send(replica(event_id)).block()
        assert (block.event_id, block.payload) == (first + 4, message(b"next"))


@pytest.mark.feature("W38", "QE1")
def test_w38_the_last_record_may_be_one_of_several_messages(raw: Raw, connect: Connect, topic: bytes) -> None:
    raw.pub(topic, b"a", b"b", b"c")
    first = raw.info(topic)["createEventId"] + 1
    followers = [connect().send(replica(event_id)) for event_id in range(first, first + 3)]
    for follower in followers:
        follower.quiet(0.02)
    raw.pub(topic, b"next")
    for follower in followers:
        assert follower.block().event_id == first + 3


@pytest.mark.feature("W38", "QE1")
def test_w38_the_ids_of_a_fired_message_resume_as_well(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    raw.send(delay(b"a", 1000, message(b"3") + message(b"4"))).ok()
    connect(queue).send(sub(b"a", batch=9)).consume(2)
    followers = [connect(queue).send(replica(event_id)) for event_id in (2, 3, 4)]
    raw.pub(b"a", b"5")
    assert [follower.block().event_id for follower in followers] == [3, 5, 5]


@pytest.mark.feature("W38", "QE4")
def test_w38_a_new_and_empty_newest_file_makes_no_difference(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    raw.pub(b"a", b"one", b"two")
    for end in (queue.stop, queue.kill):
        end()
        queue.start()
        raw = connect(queue)
        assert raw.refused(pub(b"missing", message(b"m"))) == "topic not exist"
        followers = [connect(queue).send(replica(event_id)) for event_id in (2, 3)]
        for follower in followers:
            follower.quiet(0.05)
        assert [block.event_id for block in connect(queue).send(replica(0)).blocks_until(2)] == [1, 2]
    raw.pub(b"a", b"three")
    assert [follower.block().event_id for follower in followers] == [4, 4]


@pytest.mark.feature("W38")
def test_w38_an_id_that_is_not_there_is_refused(raw: Raw, connect: Connect, topic: bytes) -> None:
    last = raw.info(topic)["createEventId"]
    for absent in (last + 1, last + 2, last + 1000, 2**62, 2**63 - 1):
        assert raw.refused(replica(absent)) == "EOF", absent
    follower = connect().send(replica(last))
    raw.pub(topic, b"next")
    assert follower.block().event_id == last + 1


@pytest.mark.feature("W38")
def test_w38_ids_removed_by_retention_are_refused_and_0_is_the_oldest_left(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server(
        "--flush",
        "none",
        journal__segment_bytes=4096,
        journal__retention_bytes=12_000,
        journal__checkpoint_bytes=4096,
        journal__checkpoint_interval_ms=50,
        topics__retention_interval_ms=50,
    )
    raw = connect(queue)
    raw.create(b"a")
    for number in range(60):
        raw.pub(b"a", b"%03d" % number + b"x" * 350)

    def shrunk() -> bool:
        raw.pub(b"a", b"tick")
        return sum(path.stat().st_size for path in segments(queue, "journal")) < 20_000

    wait_for(shrunk, what="the oldest journal segments to go")
    follower = connect(queue).send(replica(0))
    oldest = follower.block()
    assert oldest.event_id > 5
    assert raw.refused(replica(1)) == "can't find event id,because file not exist"
    assert raw.refused(replica(oldest.event_id - 2)) == "can't find event id,because file not exist"
    following = connect(queue).send(replica(oldest.event_id)).block()
    assert following.event_id == oldest.event_id + 1
    assert connect(queue).send(sub(b"a")).push()[0].body.startswith(b"000"), "topics keep what they have"


@pytest.mark.feature("W37")
def test_w37_a_follower_that_joins_during_writes_misses_nothing(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", journal__segment_bytes=4096)
    raw = connect(queue)
    raw.create(b"a")
    followers = []
    for number in range(200):
        raw.send(pub(b"a", message(b"m%03d" % number + b"." * 60)))
        if number % 20 == 7:
            followers.append(connect(queue).send(replica(0)))
    for _ in range(200):
        raw.ok()
    for follower in followers:
        blocks = follower.blocks_until(201)
        assert [block.event_id for block in blocks[1:]] == [block.last_event_id + 1 for block in blocks[:-1]]
        bodies = [packed[8:] for block in blocks for packed in block.messages]
        assert bodies == [b"m%03d" % number + b"." * 60 for number in range(200)]
