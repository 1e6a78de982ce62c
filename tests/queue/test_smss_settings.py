"""Each setting of smss that Pixiu has under its own name does what it says there.

The table in docs/operations.md names the test behind each row; some are beside the part that they test.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pixiu.config import DelaySettings, JournalSettings, LifetimeSettings, QueueSettings, Settings
from pixiu.runtime.files import SystemFiles
from tests.servers import QueueProcess, free_port, wait_for
from tests.wire.bytes_by_hand import OK, alive, create, delay, list_topics, message, pub, sub
from tests.wire.raw import Raw
from tools.fuzz_wire import START_MS, Clock, QueueUnderFuzz, Wire

TOPIC = b"order"
QUICK = JournalSettings(flush="none", free_bytes_min=0)


def publish(queue: QueueProcess, count: int) -> None:
    """Make the topic, and publish to it one at a time."""
    with Raw(queue.host, queue.port) as raw:
        raw.send(create(TOPIC)).ok()
        for number in range(count):
            raw.send(pub(TOPIC, message(b"%d" % number))).ok()


def test_port_is_where_the_queue_listens(tmp_path: Path) -> None:
    port = free_port()
    with QueueProcess(tmp_path / "data", port=port) as queue, Raw("127.0.0.1", port) as raw:
        assert queue.lines[1:2] == [f"queue listening on 127.0.0.1:{port}"]
        raw.send(create(TOPIC)).ok()


@pytest.mark.parametrize("sample, lines", [(0, 0), (1, 11), (5, 2)])
@pytest.mark.feature("QA4")
def test_log_sample_logs_none_each_or_one_of_many(tmp_path: Path, sample: int, lines: int) -> None:
    arguments = ["--set", f"log.sample={sample}", "--set", f"log.path={tmp_path / 'logs'}"]
    with QueueProcess(tmp_path / "data", args=arguments) as queue:
        publish(queue, 10)
        with Raw(queue.host, queue.port) as raw:
            raw.send(sub(TOPIC, 0, who=b"reader", batch=20))
            assert len(raw.push()) == 10
        assert queue.stop() == 0
    logged = [json.loads(line) for line in (tmp_path / "logs" / "pixiu.log").read_text().splitlines()]
    assert sum(line["event"] == "written" for line in logged) == lines


def test_store_path_is_the_data_option(tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "some" / "where") as queue:
        publish(queue, 1)
    assert list((tmp_path / "some" / "where" / "queue" / "journal").glob("*.log"))


def test_store_max_log_size_rolls_journal_and_topics(tmp_path: Path) -> None:
    arguments = ["--set", "journal.segment_bytes=4096", "--set", "topics.segment_bytes=4096"]
    with QueueProcess(tmp_path / "data", args=arguments) as queue:
        with Raw(queue.host, queue.port) as raw:
            raw.send(create(TOPIC)).ok()
            for _ in range(20):
                raw.send(pub(TOPIC, message(b"x" * 1000))).ok()
        folder = tmp_path / "data" / "queue"
        journal = sorted(folder.glob("journal/*.log"))
        topics = sorted(folder.glob("topics/*/*/*/*.log"))
    assert len(journal) >= 4
    assert len(topics) >= 4
    assert all(path.stat().st_size < 4096 + 1100 for path in [*journal, *topics])


def test_store_no_cache_asks_the_system_with_each_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    advise = os.posix_fadvise

    def record(descriptor: int, offset: int, length: int, advice: int) -> None:
        asked.append(advice)
        advise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", record)
    for no_cache, expected in ((False, []), (True, [os.POSIX_FADV_DONTNEED])):
        file = SystemFiles(tmp_path, no_cache=no_cache).open("file", create=True)
        file.write(b"x" * 8192, 0)
        file.flush()
        file.close()
        assert asked == expected


def test_buff_size_bounds_what_waits(tmp_path: Path) -> None:
    """Past the mark the connection is not read from; everything that was taken is answered all the same."""
    queue = QueueUnderFuzz(tmp_path, Settings(queue=QueueSettings(pending_bytes_max=65536), journal=QUICK))
    assert queue.feed([create(TOPIC)]) == OK
    wire = Wire()
    connection: Any = queue.server.connection()
    connection.connection_made(wire)
    request = pub(TOPIC, message(b"x" * 1000))
    for _ in range(60):
        connection.data_received(request)
    assert wire.pauses == 0
    for _ in range(10):
        connection.data_received(request)
    assert wire.pauses == 1
    queue.scheduler.run()
    assert bytes(wire.said) == OK * 70


def test_timeout_net_write_cuts_a_client_that_takes_no_answers(tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "data", args=["--set", "queue.write_timeout_ms=300"]) as queue:
        with Raw(queue.host, queue.port) as raw:
            names = [b"%0128d" % number for number in range(2000)]
            raw.send(b"".join(map(create, names)))
            for _ in names:
                raw.ok()
            raw.send(list_topics() * 100)
            established = 1
            wait_for(
                lambda: raw.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != established,
                what="the server to cut the connection",
            )
        with Raw(queue.host, queue.port) as other:
            other.send(alive()).alive()


def due_after(folder: Path, settings: Settings) -> int:
    """How long after a restart a message that fell due meanwhile is fired."""
    before = QueueUnderFuzz(folder, Settings(journal=QUICK))
    assert before.feed([create(TOPIC) + delay(TOPIC, 3_600_000, message(b"late"))]) == OK * 2
    before.engine.stop()
    after = QueueUnderFuzz(folder, settings, Clock(START_MS + 7_200_000))
    for waited in range(0, 20_000, 100):
        after.scheduler.run()
        if after.engine.counters.delays_fired:
            after.engine.stop()
            return waited
        after.scheduler.advance(100)
    raise AssertionError("never fired")


def test_background_first_exec_is_when_due_messages_are_first_looked_for(tmp_path: Path) -> None:
    assert due_after(tmp_path / "a", Settings(journal=QUICK)) <= 100
    patient = Settings(journal=QUICK, delays=DelaySettings(first_scan_ms=5000))
    assert 4900 <= due_after(tmp_path / "b", patient) <= 5100


def test_background_default_scan_finds_what_ended_when_the_clock_was_set(tmp_path: Path) -> None:
    """The timer of a topic's end is an hour off when someone sets the clock past that end."""
    settings = Settings(journal=QUICK, lifetimes=LifetimeSettings(scan_interval_ms=1000))
    queue = QueueUnderFuzz(tmp_path, settings)
    assert queue.feed([create(TOPIC, queue.clock.now_ms() + 3_600_000)]) == OK
    queue.clock.stepped_ms = 3_600_000
    assert queue.engine.counters.topics_expired == 0
    for _ in range(3):
        queue.scheduler.advance(1001)
    assert queue.engine.counters.topics_expired == 1
