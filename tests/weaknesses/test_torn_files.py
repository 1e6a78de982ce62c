"""QB1 to QB4: files that end in the middle, lag behind or rot.

Every test stops the server, does to its files what a crash or a bad disk does, and starts it again.
Checkpoints are kept away where a crash between two of them is meant.
"""

import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import ACK_GO_ON, Item, message, pub, replica, sub
from tests.wire.fixtures import Connect, StartServer, segments
from tests.wire.raw import Closed, Raw

WEEK_MS = 7 * 86_400_000


def start_without_checkpoints(start_server: StartServer, **settings: object) -> QueueProcess:
    """A server that leaves everything to recovery."""
    never = {"journal__checkpoint_interval_ms": WEEK_MS, "journal__checkpoint_bytes": 2**40}
    return start_server("--flush", "none", **never, **settings)


def everything(raw: Raw, name: bytes) -> list[Item]:
    """All messages that a new subscriber gets before a marker that is published here."""
    raw.pub(name, b"-- marker --")
    with Raw(*raw.socket.getpeername()) as subscriber:
        subscriber.send(sub(name, 0, b"everything", batch=255))
        items: list[Item] = []
        while not items or items[-1].body != b"-- marker --":
            items += subscriber.push()
            subscriber.send(ACK_GO_ON)
    return items[:-1]


def cut(path: Path, count: int) -> None:
    """Take the last bytes away."""
    with path.open("r+b") as file:
        file.truncate(max(path.stat().st_size - count, 0))


def add(path: Path, garbage: bytes) -> None:
    """Add bytes at the end."""
    with path.open("ab") as file:
        file.write(garbage)


def flip(path: Path, position: int, bit: int = 4) -> None:
    """Turn one bit over."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def fill(raw: Raw, *names: bytes, count: int = 20) -> None:
    """Create topics and publish to them in turn."""
    for name in names:
        raw.create(name)
    for number in range(count):
        for name in names:
            raw.pub(name, b"%s-%03d" % (name, number))


def bodies(name: bytes, count: int = 20) -> list[bytes]:
    """What `fill` published to one topic."""
    return [b"%s-%03d" % (name, number) for number in range(count)]


TORN: dict[str, Callable[[Path], None]] = {
    "1 byte short": lambda path: cut(path, 1),
    "7 bytes short": lambda path: cut(path, 7),
    "half a header more": lambda path: add(path, b"\x40\x00\x00"),
    "zeros more": lambda path: add(path, bytes(100)),
    "ones more": lambda path: add(path, b"\xff" * 33),
    "half the last record again": lambda path: add(path, path.read_bytes()[-40:-10]),
}


@pytest.mark.feature("QB1")
@pytest.mark.parametrize("damage", TORN.values(), ids=TORN.keys())
def test_qb1_a_torn_tail_of_the_journal_costs_at_most_the_torn_record(
    start_server: StartServer, connect: Connect, damage: Callable[[Path], None]
) -> None:
    queue = start_without_checkpoints(start_server)
    fill(connect(queue), b"a", b"b")
    queue.kill()
    damage(segments(queue, "journal")[-1])
    queue.start()
    raw = connect(queue)
    found = everything(raw, b"a") + everything(raw, b"b")
    expected = bodies(b"a") + bodies(b"b")
    assert [item.body for item in found] in (expected, expected[:-1])
    ids = [item.event_id for item in found]
    assert len(set(ids)) == len(ids), "an id was given twice"
    last = raw.send(pub(b"a", message(b"new"), wants_id=True)).ok_with_id()
    assert last > max(ids)
    assert re.search(r"cut|unfinished|torn", queue.stderr), "the log tells what was cut"
    assert segments(queue, "journal")[-1].name in queue.stderr
    # What the journal says and what topics say is the same.
    follower = connect(queue).send(replica(0))
    blocks = follower.blocks_until(last)
    published = [block.payload[8:] for block in blocks if block.command == 1 and block.topic == b"b"]
    kept = [item.body for item in found if item.body.startswith(b"b-")]
    assert published == [*kept, b"-- marker --"]


@pytest.mark.feature("QB1")
def test_qb1_a_journal_that_ends_inside_a_record_of_many_loses_all_of_it_or_none(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_without_checkpoints(start_server)
    raw = connect(queue)
    fill(raw, b"a")
    raw.pub(b"a", *(b"many-%d" % number for number in range(10)))
    queue.kill()
    cut(segments(queue, "journal")[-1], 60)
    queue.start()
    raw = connect(queue)
    assert [item.body for item in everything(raw, b"a")] == bodies(b"a")


@pytest.mark.feature("QB2", "QB3", "QB4")
@pytest.mark.parametrize("endings", [("log",), ("idx",), ("log", "idx")])
def test_qb2_topics_that_lost_their_tails_are_made_whole_from_the_journal(
    start_server: StartServer, connect: Connect, endings: tuple[str, ...]
) -> None:
    queue = start_without_checkpoints(start_server)
    raw = connect(queue)
    fill(raw, b"a", b"b")
    raw.pub(b"a", *(b"many-%d" % number for number in range(10)))
    raw.pub(b"b", b"the last record is not a's")
    counts = {b"a": 30, b"b": 21}
    before = {name: connect(queue).send(sub(name, batch=255)).consume(n) for name, n in counts.items()}
    for lost in (1, 13, 100, 10**9):
        queue.kill()
        for path, ending in itertools.product(segments(queue), endings):
            cut(path.with_suffix(f".{ending}"), lost)
        queue.start()
        for name, items in before.items():
            after = connect(queue).send(sub(name, 0, b"all", batch=255)).consume(counts[name])
            assert [(item.event_id, item.time, item.message) for item in after] == [
                (item.event_id, item.time, item.message) for item in items
            ]
            resumed = connect(queue).send(sub(name, items[9].event_id, b"resumed")).push()[0]
            assert resumed.event_id == items[10].event_id


@pytest.mark.feature("QB3")
def test_qb3_what_is_in_a_topic_but_not_in_the_journal_is_not_served(
    start_server: StartServer, connect: Connect
) -> None:
    """Power was lost: the topic's pages had reached the disk, the journal's had not."""
    queue = start_without_checkpoints(start_server)
    fill(connect(queue), b"a")
    kept = segments(queue, "journal")[-1].stat().st_size
    kept_index = segments(queue, "journal")[-1].with_suffix(".idx").stat().st_size
    raw = connect(queue)
    for number in range(10):
        raw.pub(b"a", b"lost-%d" % number)
    queue.kill()
    journal = segments(queue, "journal")[-1]
    cut(journal, journal.stat().st_size - kept)
    index = journal.with_suffix(".idx")
    cut(index, index.stat().st_size - kept_index)
    queue.start()
    raw = connect(queue)
    new = raw.send(pub(b"a", message(b"new"), wants_id=True)).ok_with_id()
    found = everything(raw, b"a")
    assert [item.body for item in found] == [*bodies(b"a"), b"new"]
    assert found[-1].event_id == new
    ids = [item.event_id for item in found]
    assert ids == sorted(set(ids))


@pytest.mark.feature("QB3", "QB2")
def test_qb3_a_journal_index_that_is_gone_or_wrong_is_made_again(start_server: StartServer, connect: Connect) -> None:
    queue = start_without_checkpoints(start_server)
    fill(connect(queue), b"a")
    for damage in (
        lambda path: path.unlink(),
        lambda path: cut(path, 33),
        lambda path: path.write_bytes(b""),
    ):
        queue.kill()
        damage(segments(queue, "journal")[-1].with_suffix(".idx"))
        queue.start()
        raw = connect(queue)
        assert [item.body for item in everything(raw, b"a") if item.body != b"-- marker --"] == bodies(b"a")
        blocks = connect(queue).send(replica(5)).blocks_until(21)
        assert [block.event_id for block in blocks] == list(range(6, 22))


@pytest.mark.feature("QB3")
def test_qb3_replay_covers_creates_deletes_delays_and_appends(start_server: StartServer, connect: Connect) -> None:
    queue = start_without_checkpoints(start_server)
    raw = connect(queue)
    fill(raw, b"a", b"gone")
    raw.delete(b"gone")
    raw.create(b"gone")
    first = raw.append(b"a", b"key", message(b"appended"))
    raw.pub(b"gone", b"fresh")
    for _ in range(3):
        queue.kill()
        queue.start()
        raw = connect(queue)
        assert raw.topics() == ["a", "gone"]
        assert raw.append(b"a", b"key", message(b"again")) == (first[0], first[1], True)
        found = [item.body for item in everything(raw, b"gone") if item.body != b"-- marker --"]
        assert found == [b"fresh"]


def has_started(queue: QueueProcess) -> bool:
    """Start it; False if it refused to."""
    with suppress(AssertionError):
        queue.start()
    return any(line.startswith("queue listening on") for line in queue.lines)


def read_all(queue: QueueProcess, asked: bytes, frame: int) -> tuple[bytes, str]:
    """Read a stream until it refuses, ends or falls silent: what it served, and its last words."""
    served = b""
    with Raw(queue.host, queue.port) as raw:
        raw.send(asked)
        try:
            while True:
                code, rest = raw.answer(0.4)
                if code == 400:
                    return served, raw.read_exact(int.from_bytes(rest[:2], "little")).decode()
                if frame == 14:
                    served += raw.read_exact(int.from_bytes(raw.read_exact(4), "little"))
                else:
                    served += raw.read_exact(int.from_bytes(rest[2:6], "little"))
                    raw.send(ACK_GO_ON)
        except (Closed, TimeoutError):
            return served, ""


@pytest.mark.feature("QB1")
def test_qb1_a_flipped_bit_in_the_journal_is_reported_with_its_place_and_never_served(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server()
    fill(connect(queue), b"a", count=60)
    whole, _ = read_all(queue, replica(0), 14)
    queue.stop()
    path = segments(queue, "journal")[-1]
    original = path.read_bytes()
    for position in (len(original) // 3, len(original) // 2, len(original) - 5):
        path.write_bytes(original)
        flip(path, position)
        if not has_started(queue):
            assert re.search(path.name + r" byte \d+", queue.stderr), "the refusal names file and place"
            continue
        served, words = read_all(queue, replica(0), 14)
        assert whole.startswith(served)
        assert len(served) < len(whole)
        assert path.name in words + queue.stderr
        assert re.search(r"byte \d+", words + queue.stderr)
        queue.kill()


@pytest.mark.feature("QB2")
def test_qb2_a_flipped_bit_in_a_topic_is_repaired_or_reported_and_never_served(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server(queue__read_cache_bytes=0)
    fill(connect(queue), b"a", count=60)
    whole, _ = read_all(queue, sub(b"a", 0, b"w", batch=1), 10)
    queue.stop()
    path = segments(queue)[-1]
    original = path.read_bytes()
    clean = [whole[at : at + 45] for at in range(0, len(whole), 45)]
    for position, bit in itertools.product((20, len(original) // 2, len(original) - 3), (0, 7)):
        path.write_bytes(original)
        flip(path, position, bit)
        queue.start()
        served, words = read_all(queue, sub(b"a", 0, b"w", batch=1), 10)
        if served != whole:
            assert all(served[at : at + 45] in clean for at in range(0, len(served), 45))
            assert whole.startswith(served)
            assert path.name in words + queue.stderr, "the report names the file"
        queue.stop()
