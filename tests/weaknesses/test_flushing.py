"""QB5 to QB7, QF1 and W18: when data is on the disk, and what happens when it cannot get there."""

import resource
import threading
from pathlib import Path

import pytest

from tests.servers import wait_for
from tests.wire.bytes_by_hand import FLUSH, append, create, delay, delete, extension, message, pub, sub
from tests.wire.fixtures import Connect, StartServer
from tests.wire.observed import ObservedQueue
from tests.wire.raw import Closed, Raw


@pytest.mark.feature("W18", "QB5")
def test_qb5_with_always_no_answer_comes_before_its_flush(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path) as queue:
        raw = connect(queue)
        raw.create(b"a")
        requests = [
            pub(b"a", message(b"m")),
            create(b"b"),
            delay(b"a", 3_600_000, message(b"m")),
            append(b"a", b"k", message(b"m")),
            delete(b"b"),
        ]
        for asked in requests:
            with queue.held():
                raw.send(asked)
                raw.quiet(0.1)
            assert raw.answer()[0] == 200
            if asked[0] == 129:
                raw.read_exact(17)


@pytest.mark.feature("QB5")
def test_qb5_with_interval_a_flush_follows_even_when_traffic_stops(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path, "--flush", "interval", journal__flush_interval_ms=200) as queue:
        raw = connect(queue)
        raw.create(b"a")
        for _ in range(3):
            before = queue.journal_flushes()
            raw.send(pub(b"a", message(b"one")) + pub(b"a", message(b"two")))
            raw.ok()
            raw.ok()
            wait_for(lambda: queue.journal_flushes() > before, timeout_s=1.5, what="a flush")  # noqa: B023


@pytest.mark.feature("QB5")
def test_qb5_with_interval_a_steady_stream_is_flushed_each_interval(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path, "--flush", "interval", journal__flush_interval_ms=100) as queue:
        raw = connect(queue)
        raw.create(b"a")
        before = queue.journal_flushes()
        for _ in range(100):
            raw.pub(b"a", b"m")
            raw.quiet(0.008)
        flushes = queue.journal_flushes() - before
        assert 4 <= flushes <= 30, "about ten in a second, not one per message and not none"


@pytest.mark.feature("QB5", "QF1")
def test_qb5_with_none_nothing_waits_for_the_disk_until_told(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path, "--flush", "none", journal__checkpoint_interval_ms=600_000) as queue:
        raw = connect(queue)
        raw.create(b"a")
        with queue.held():
            for _ in range(50):
                raw.send(pub(b"a", message(b"m"))).ok(1.0)
        before = queue.journal_flushes()
        with queue.held():
            raw.send(extension(FLUSH)).quiet(0.1)
        raw.ok()
        assert queue.journal_flushes() > before


@pytest.mark.feature("QB5", "QB6")
@pytest.mark.parametrize("level", ["none", "interval", "always"])
def test_qb5_a_full_segment_is_flushed_before_the_next_one_and_so_is_the_folder(
    tmp_path: Path, connect: Connect, level: str
) -> None:
    with ObservedQueue(tmp_path, "--flush", level, journal__segment_bytes=4096) as queue:
        raw = connect(queue)
        raw.create(b"a")
        for number in range(40):
            raw.pub(b"a", b"%03d" % number + b"x" * 400)
        names = sorted(path.name for path in (queue.data / "queue" / "journal").glob("*.log"))
        assert len(names) >= 4
        flushed = queue.flushes()
        for name in names[:-1]:
            assert f"queue/journal/{name}" in flushed
        assert flushed.count("queue/journal") >= len(names) - 1, "each new name is flushed with its folder"


@pytest.mark.feature("QB6")
def test_qb6_new_topic_files_and_their_folders_are_flushed_by_a_checkpoint(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path, journal__checkpoint_interval_ms=50) as queue:
        raw = connect(queue)
        raw.create(b"a")
        raw.pub(b"a", b"one")
        topic = next((queue.data / "queue" / "topics").rglob("*.log"))
        relative = topic.relative_to(queue.data)

        def is_flushed() -> bool:
            flushed = queue.flushes()
            files = {str(relative), str(relative.parent)}
            return files <= set(flushed) or "everything" in flushed

        wait_for(is_flushed, what="the topic's file and folder to be flushed")


@pytest.mark.feature("QF1")
def test_qf1_one_flush_answers_everything_that_waited(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path) as queue:
        raw = connect(queue)
        raw.create(b"a")
        publishers = [connect(queue) for _ in range(50)]
        before = queue.journal_flushes()
        with queue.held():
            for publisher in publishers:
                publisher.send(pub(b"a", message(b"m")) * 20)
            raw.quiet(0.2)
        for publisher in publishers:
            for _ in range(20):
                publisher.ok()
        assert queue.journal_flushes() - before <= 12, "1000 publishes waited together"
        assert len(connect(queue).send(sub(b"a", batch=255)).consume(1000)) == 1000


@pytest.mark.feature("QB7")
def test_qb7_a_failed_flush_is_never_answered_with_200(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path) as queue:
        raw = connect(queue)
        raw.create(b"a")
        raw.pub(b"a", b"before")
        with queue.failing():
            raw.send(pub(b"a", message(b"during")))
            try:
                assert raw.error(5.0)
            except Closed:
                assert not queue.is_running or queue.stderr
        if not queue.is_running:
            queue.start()
        else:
            queue.restart()
        raw = connect(queue)
        raw.pub(b"a", b"after")
        found = [item.body for item in connect(queue).send(sub(b"a", batch=255)).push()]
        assert found in ([b"before", b"after"], [b"before", b"during", b"after"])


@pytest.mark.feature("QB7")
def test_qb7_a_short_write_leaves_no_garbage_and_is_not_acknowledged(
    start_server: StartServer, connect: Connect
) -> None:
    """A limit on file sizes does what a full disk does: part of the bytes are written, then an error."""
    queue = start_server(journal__fill_bytes=0)
    raw = connect(queue)
    raw.create(b"a")
    for number in range(30):
        raw.pub(b"a", b"%03d" % number + b"x" * 100_000)
    largest = max(path.stat().st_size for path in queue.data.rglob("*") if path.is_file())
    hard = resource.prlimit(queue.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(queue.pid, resource.RLIMIT_FSIZE, (largest + 50_000, hard))
    for _ in range(3):
        text = raw.refused(pub(b"a", message(b"!!!" + b"y" * 100_000)))
        assert text
    assert connect(queue).send(sub(b"a", 0, b"reader")).push()[0].body.startswith(b"000")
    raw.pub(b"a", b"small enough")
    resource.prlimit(queue.pid, resource.RLIMIT_FSIZE, (hard, hard))
    raw.pub(b"a", b"after" + b"z" * 100_000)
    for end in (lambda: None, queue.stop, queue.kill):
        end()
        if not queue.is_running:
            queue.start()
        items = connect(queue).send(sub(b"a", batch=255)).consume(32)
        found = [item.body for item in items]
        assert [body[:3] for body in found[:30]] == [b"%03d" % number for number in range(30)]
        assert found[30] == b"small enough"
        assert found[31].startswith(b"after")


@pytest.mark.feature("QB7")
def test_qb7_a_disk_that_is_nearly_full_refuses_publishes_and_says_why(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    raw.pub(b"a", b"before")
    queue.stop()
    queue.env["PIXIU_JOURNAL__FREE_BYTES_MIN"] = str(2**60)
    queue.start()
    raw = connect(queue)
    assert "disk" in raw.refused(pub(b"a", message(b"refused")))
    assert connect(queue).send(sub(b"a")).push()[0].body == b"before"
    queue.stop()
    del queue.env["PIXIU_JOURNAL__FREE_BYTES_MIN"]
    queue.start()
    connect(queue).pub(b"a", b"after")
    found = [item.body for item in connect(queue).send(sub(b"a", batch=9)).push()]
    assert found == [b"before", b"after"]


@pytest.mark.feature("QF1")
def test_qf1_publishers_that_wait_for_each_answer_share_flushes(tmp_path: Path, connect: Connect) -> None:
    with ObservedQueue(tmp_path) as queue:
        connect(queue).create(b"a")
        before = queue.journal_flushes()

        def publish(raw: Raw) -> None:
            for _ in range(20):
                raw.pub(b"a", b"m")

        threads = [threading.Thread(target=publish, args=(connect(queue),)) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert queue.journal_flushes() - before < 400, "600 publishes by 30 at a time"
