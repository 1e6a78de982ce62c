"""W26 and W27 where messages have gone: retention by size and by age."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import Item, sub
from tests.wire.fixtures import Connect, StartServer, environment, segments
from tests.wire.raw import Raw

DAY_S = 86_400
MESSAGES = 60


@dataclass
class Shrunk:
    """A topic whose oldest segments have been removed, with all messages that it ever had."""

    queue: QueueProcess
    items: list[Item]
    oldest: int
    """The first event id that is still there."""


def fill(raw: Raw, name: bytes, count: int = MESSAGES) -> None:
    """Publish messages of which about ten make a segment of 4096 bytes."""
    for number in range(count):
        raw.pub(name, b"%03d" % number + b"x" * 350)


def size_of(path: Path) -> int:
    """Retention may take it away while one looks."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.fixture(scope="module")
def shrunk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shrunk]:
    """Fill a topic, restart with a limit, and wait until the limit has been enforced."""
    data = tmp_path_factory.mktemp("retention") / "data"
    with (
        QueueProcess(data, args=["--flush", "none"], env=environment(topics__segment_bytes=4096)) as queue,
        Raw(queue.host, queue.port) as raw,
    ):
        raw.create(b"shrinks")
        fill(raw, b"shrinks")
        with Raw(queue.host, queue.port) as subscriber:
            items = subscriber.send(sub(b"shrinks", batch=255)).consume(MESSAGES)
        queue.stop()
        queue.env |= environment(topics__retention_bytes=12_000, topics__retention_interval_ms=50)
        queue.start()
        wait_for(
            lambda: sum(size_of(path) for path in segments(queue)) <= 12_000 + 4096,
            what="the oldest segments to go",
        )
        with Raw(queue.host, queue.port) as subscriber:
            oldest = subscriber.send(sub(b"shrinks")).push()[0].event_id
        yield Shrunk(queue, items, oldest)


@pytest.mark.feature("W26")
def test_w26_zero_starts_with_the_oldest_retained(shrunk: Shrunk, connect: Connect) -> None:
    kept = [item for item in shrunk.items if item.event_id >= shrunk.oldest]
    assert 5 < len(kept) < MESSAGES - 5
    items = connect(shrunk.queue).send(sub(b"shrinks", batch=255)).consume(len(kept))
    assert [(item.event_id, item.message) for item in items] == [(item.event_id, item.message) for item in kept]


@pytest.mark.feature("W27", "W07")
def test_w27_an_id_removed_by_retention_is_refused_with_its_text(shrunk: Shrunk, connect: Connect) -> None:
    raw = connect(shrunk.queue)
    for item in shrunk.items:
        if item.event_id < shrunk.oldest - 1:
            assert raw.refused(sub(b"shrinks", item.event_id, b"gone")) == "can't find event id,because file not exist"
    kept = [item for item in shrunk.items if item.event_id >= shrunk.oldest]
    assert raw.send(sub(b"shrinks", kept[0].event_id, b"kept")).push()[0].event_id == kept[1].event_id


@pytest.mark.feature("W27", "W26", "W07")
def test_w27_what_is_past_retention_but_still_there_is_refused_with_its_text(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server("--flush", "none", topics__segment_bytes=4096, topics__retention_days=2)
    raw = connect(queue)
    raw.create(b"ages")
    fill(raw, b"ages", 40)
    items = connect(queue).send(sub(b"ages", 0, b"first", batch=255)).consume(40)
    files = segments(queue)
    assert len(files) >= 3
    last_of_oldest = max(item.event_id for item in items if item.next_file == 0)
    for path in files[:1]:
        then = path.stat().st_mtime - 3 * DAY_S
        os.utime(path, (then, then))
    assert raw.refused(sub(b"ages", items[0].event_id)) == "found event id,but expired"
    assert raw.refused(sub(b"ages", items[3].event_id)) == "found event id,but expired"
    fresh = connect(queue).send(sub(b"ages", 0, b"from-0")).push()[0]
    assert fresh.event_id > last_of_oldest, "0 skips files past retention"
    following = connect(queue).send(sub(b"ages", fresh.event_id, b"after")).push()[0]
    assert following.event_id == fresh.event_id + 1


@pytest.mark.feature("W27")
def test_w27_segments_past_their_age_are_removed_but_never_the_newest(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server(
        "--flush",
        "none",
        topics__segment_bytes=4096,
        topics__retention_days=2,
        topics__retention_interval_ms=50,
    )
    raw = connect(queue)
    raw.create(b"ages")
    fill(raw, b"ages", 40)
    files = segments(queue)
    for path in files:
        then = path.stat().st_mtime - 3 * DAY_S
        os.utime(path, (then, then))
    wait_for(lambda: segments(queue) == files[-1:], what="the old segments to go")
    raw.pub(b"ages", b"still works")
    assert connect(queue).send(sub(b"ages", batch=255)).push()[-1].body == b"still works"


@pytest.mark.feature("QC3", "W27")
def test_qc3_a_slow_subscriber_whose_next_file_is_removed_is_not_left_waiting(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server(
        "--flush",
        "none",
        topics__segment_bytes=4096,
        topics__retention_bytes=12_000,
        topics__retention_interval_ms=50,
    )
    raw = connect(queue)
    raw.create(b"shrinks")
    raw.pub(b"shrinks", b"first")
    slow = connect(queue).send(sub(b"shrinks", 0, b"slow"))
    assert slow.push()[0].body == b"first"
    fill(raw, b"shrinks")
    wait_for(lambda: len(segments(queue)) <= 5, what="the oldest segments to go")
    slow.send(b"\x00\x00")
    code, rest = slow.answer(2.0)
    if code == 400:
        text = slow.read_exact(int.from_bytes(rest[:2], "little")).decode()
        assert text == "can't find event id,because file not exist"
    else:
        assert code == 200, "it goes on with the oldest that is left"
