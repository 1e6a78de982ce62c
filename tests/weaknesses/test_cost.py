"""QB8, QB10, QC1, QC5, QC7 and QF2: what a start, a position, a subscriber and a topic cost."""

from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import ACK_GO_ON, create, message, pub, replica, sub, topic_info
from tests.wire.fixtures import Connect, StartServer, bytes_read, open_files, segments
from tests.wire.raw import Raw

MEGABYTE = 10**6


def publish_many(raw: Raw, name: bytes, count: int, size: int) -> None:
    """Publish `count` messages of `size` bytes, a hundred to a Pub."""
    for start in range(0, count, 100):
        packed = b"".join(message(b"%06d" % (start + each) + b"x" * (size - 6)) for each in range(100))
        raw.send(pub(name, packed)).ok()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> QueueProcess:
    """The data of a stopped server: 20 MB in one journal segment and one topic segment."""
    queue = QueueProcess(tmp_path_factory.mktemp("large") / "data", args=["--flush", "none"])
    with queue:
        with Raw(queue.host, queue.port) as raw:
            raw.create(b"a")
            publish_many(raw, b"a", 20_000, 1000)
        assert queue.stop() == 0
    return queue


@pytest.mark.feature("QB10")
def test_qb10_a_start_does_not_read_the_whole_log(large: QueueProcess, start_server: StartServer) -> None:
    empty = bytes_read(start_server())
    with large:
        assert bytes_read(large) - empty < 3 * MEGABYTE, "20 MB lie there"
        assert len(segments(large, "journal")) == 1
        large.kill()
        large.start()
        assert bytes_read(large) - empty < 3 * MEGABYTE, "after a kill as well: a checkpoint covers them"


@pytest.mark.feature("QC1")
def test_qc1_a_position_is_sought_not_scanned(large: QueueProcess, connect: Connect) -> None:
    with large:
        connect(large).send(sub(b"a", 0, b"warm")).push()
        for number, event_id in enumerate((2, 10_000, 20_000)):
            before = bytes_read(large)
            subscriber = connect(large).send(sub(b"a", event_id, b"w%d" % number))
            assert subscriber.push()[0].event_id == event_id + 1
            assert bytes_read(large) - before < MEGABYTE
        before = bytes_read(large)
        assert connect(large).show_key(large).send(replica(19_900)).block().event_id == 19_902
        assert bytes_read(large) - before < 2 * MEGABYTE


@pytest.mark.feature("QC7")
def test_qc7_many_subscribers_of_one_topic_share_what_is_read(large: QueueProcess, connect: Connect) -> None:
    with large:
        subscribers = [connect(large).send(sub(b"a", 0, b"w%d" % number, batch=255)) for number in range(40)]
        before = bytes_read(large)
        served = 0
        for _ in range(8):
            for subscriber in subscribers:
                served += sum(32 + len(item.message) for item in subscriber.push())
                subscriber.send(ACK_GO_ON)
        assert bytes_read(large) - before < served / 4, "read once, sent to forty"


@pytest.mark.feature("QC5")
def test_qc5_the_system_watches_for_peers_that_died_silently(raw: Raw, connect: Connect, topic: bytes) -> None:
    """A peer that lost its power sends nothing; only a keep-alive timer on the server's side can notice."""
    subscriber = connect().send(sub(topic))
    subscriber.quiet(0.05)
    ours = subscriber.socket.getsockname()[1]
    theirs = subscriber.socket.getpeername()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{theirs:04X}") and fields[2].endswith(f":{ours:04X}"):
            kind, ticks = fields[5].split(":")
            assert kind == "02", "no keep-alive timer runs"
            assert int(ticks, 16) / 100 <= 60.0, "it would notice after two hours"
            return
    raise AssertionError("the server's side of the connection was not found")


@pytest.mark.feature("QB8")
def test_qb8_a_deleted_topic_stays_deleted_over_a_kill(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    for number in range(10):
        raw.create(b"t%d" % number)
        raw.pub(b"t%d" % number, b"old")
        raw.delete(b"t%d" % number)
    raw.create(b"t0")
    queue.kill()
    queue.start()
    raw = connect(queue)
    assert raw.topics() == ["t0"]
    assert raw.refused(topic_info(b"t5")) == "topic not exist"
    raw.create(b"t5")
    for name in (b"t0", b"t5"):
        raw.pub(name, b"new")
        assert [item.body for item in connect(queue).send(sub(name, batch=9)).push()] == [b"new"]
    raw.delete(b"t0")
    raw.delete(b"t5")
    wait_for(lambda: not segments(queue), what="the files of deleted topics to go")


@pytest.mark.feature("QF2")
def test_qf2_open_files_are_bounded_and_a_restart_makes_none(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", queue__open_topics_max=16)
    raw = connect(queue)
    names = [b"t%03d" % number for number in range(300)]
    raw.send(b"".join(create(name) + pub(name, message(b"one")) for name in names))
    for _ in range(2 * len(names)):
        raw.ok()
    topic_files = [path for path in open_files(queue) if "/queue/topics/" in path]
    assert len(topic_files) <= 16 * 4
    folders = {path.parent.parent.parent for path in segments(queue)}
    assert len(folders) > 5, "hundreds of topics do not share one folder"
    before = segments(queue) + segments(queue, "journal")
    for end in (queue.stop, queue.kill):
        end()
        queue.start()
        raw = connect(queue)
        raw.send(b"".join(pub(name, message(b"two")) for name in names))
        for _ in names:
            raw.ok()
    assert segments(queue) + segments(queue, "journal") == before
    assert len(connect(queue).send(sub(names[7], batch=9)).push()) == 3


@pytest.mark.feature("QF2")
def test_qf2_subscribers_of_many_topics_keep_few_files_open(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", queue__open_topics_max=16)
    raw = connect(queue)
    names = [b"t%03d" % number for number in range(100)]
    subscribers = []
    for name in names:
        raw.create(name)
        raw.pub(name, b"one")
        subscribers.append(connect(queue).send(sub(name)))
        assert subscribers[-1].push()[0].body == b"one"
        subscribers[-1].send(ACK_GO_ON)
    assert len([path for path in open_files(queue) if "/queue/topics/" in path]) <= 16 * 4
    for name, subscriber in zip(names, subscribers, strict=True):
        raw.pub(name, b"two")
        assert subscriber.push()[0].body == b"two"
