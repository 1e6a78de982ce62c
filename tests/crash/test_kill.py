"""A real server, killed again and again under load, on one data directory.

Whatever was answered is there: once, in order, with the event id that was told. At every flush level, since a killed
process takes nothing with it that it had handed to the system.
"""

import itertools
import random
import threading
from pathlib import Path

import pytest

from pixiu.queue.storage.verify import Verifier
from pixiu.runtime.files import SystemFiles
from tests.crash.publishers import Appender, Delayer, Ledger, Many, OneByOne, Pipelined, Publisher, Reader
from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import ACK_GO_ON, Item, replica, sub
from tests.wire.raw import Raw

pytestmark = [pytest.mark.crash, pytest.mark.feature("W18", "W20", "W35", "QB3", "QB5")]

KILLS = 12
KILLS_LONG = 340
SMALL = {
    "PIXIU_JOURNAL__SEGMENT_BYTES": "262144",
    "PIXIU_TOPICS__SEGMENT_BYTES": "65536",
    "PIXIU_JOURNAL__CHECKPOINT_BYTES": "65536",
    "PIXIU_JOURNAL__CHECKPOINT_INTERVAL_MS": "150",
    "PIXIU_JOURNAL__FLUSH_INTERVAL_MS": "50",
    "PIXIU_LOG__SAMPLE": "0",
}
TOPICS = (b"one", b"two", b"later")


_markers = itertools.count()


def read_all(queue: QueueProcess, topic: bytes) -> list[Item]:
    """Everything in a topic, up to a marker that is published here."""
    marker = b"-- marker %d --" % next(_markers)
    with Raw(queue.host, queue.port) as raw:
        raw.pub(topic, marker)
        raw.send(sub(topic, 0, b"read-all", batch=255))
        items: list[Item] = []
        while True:
            for item in raw.push():
                if item.body == marker:
                    return items
                items.append(item)
            raw.send(ACK_GO_ON)


def load(port: int, seed: int) -> list[Publisher]:
    """Publishers of every kind."""
    kinds: list[tuple[type[Publisher], bytes]] = [
        (OneByOne, b"one"),
        (OneByOne, b"two"),
        (OneByOne, b"one"),
        (Pipelined, b"one"),
        (Pipelined, b"two"),
        (Many, b"one"),
        (Appender, b"two"),
        (Delayer, b"later"),
    ]
    return [
        kind(port, Ledger(b"%s%d" % (kind.__name__.lower().encode(), number), topic), seed + number)
        for number, (kind, topic) in enumerate(kinds)
    ]


def check(publisher: Publisher, items: list[Item]) -> int:
    """Compare one publisher's ledger with what its topic holds. Returns how many of its messages are there."""
    ledger = publisher.ledger
    prefix = ledger.name + b"-"
    found = [(int(item.body[len(prefix) :]), item.event_id) for item in items if item.body.startswith(prefix)]
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == len(numbers), f"{ledger.name!r}: a message is there twice"
    missing = (ledger.answered | ledger.delayed) - set(numbers)
    assert not missing, f"{ledger.name!r}: answered and lost: {sorted(missing)[:10]}"
    if not isinstance(publisher, Delayer | Appender):  # which sends again what was lost on the way
        assert numbers == sorted(numbers), f"{ledger.name!r}: out of order"
    event_ids = dict(found)
    for number, event_id in ledger.event_ids.items():
        assert event_ids[number] == event_id, f"{ledger.name!r}: {number} was told to be event {event_id}"
    for group in ledger.groups:
        ids = [event_ids[number] for number in group if number in event_ids]
        assert not ids or ids == list(range(ids[0], ids[0] + len(group))), f"{ledger.name!r}: half of {group} is there"
    return len(numbers)


def kill_often(data: Path, flush: str, kills: int, seed: int) -> None:
    """The whole story."""
    rng = random.Random(seed)
    pause = threading.Event()
    with QueueProcess(data, args=["--flush", flush], env=SMALL) as queue:
        with Raw(queue.host, queue.port) as raw:
            for topic in TOPICS:
                raw.create(topic)
        publishers = load(queue.port, seed)
        readers = [Reader(queue.port, topic, seed + 100 + n) for n, topic in enumerate(TOPICS)]
        for thread in (*publishers, *readers):
            thread.start()
        for _ in range(kills):
            pause.wait(rng.choice([0.0, 0.02, 0.1, 0.4]) + rng.random() * 0.1)
            assert queue.is_running, queue.stderr[-3000:]
            queue.kill()
            queue.start()
        pause.wait(0.3)
        for thread in publishers:
            thread.stop()
        verify(queue, publishers, readers, kills)


def verify(queue: QueueProcess, publishers: list[Publisher], readers: list[Reader], kills: int) -> None:
    """Look at everything once the load is over."""
    delayer = publishers[-1].ledger

    def has_come() -> bool:
        prefix = delayer.name + b"-"
        bodies = [item.body for item in read_all(queue, b"later") if item.body.startswith(prefix)]
        return delayer.delayed <= {int(body[len(prefix) :]) for body in bodies}

    wait_for(has_come, timeout_s=20.0, what="delayed messages")
    items = {topic: read_all(queue, topic) for topic in TOPICS}
    counts = {p.ledger.name: check(p, items[p.ledger.topic]) for p in publishers}
    assert all(count > kills for count in counts.values()), f"hardly any load: {counts}"
    for topic, all_items in items.items():
        ids = [item.event_id for item in all_items]
        assert ids == sorted(set(ids)), f"{topic!r}: event ids do not rise"
    for reader in readers:
        known = items[reader.ledger.topic]
        wait_for(lambda: len(reader.items) >= len(known), timeout_s=20.0, what="the reader")  # noqa: B023
        reader.stop()
        seen = [(item.event_id, item.time, item.message) for item in reader.items]
        stored = [(item.event_id, item.time, item.message) for item in known]
        assert seen[: len(stored)] == stored, f"{reader.ledger.topic!r}: the reader missed or repeated something"
    with Raw(queue.host, queue.port) as raw:
        last = raw.send(b"").extension(128).json()["last_event_id"]
        blocks = raw.show_key(queue).send(replica(0)).blocks_until(last)
    ids = [block.event_id for block in blocks]
    assert ids == sorted(set(ids)), "the journal's event ids do not rise"
    queue.stop()
    report = Verifier(SystemFiles(queue.data), lambda count: None).run()
    assert report.is_sound, report.faults[:5]


@pytest.mark.parametrize("flush", ["always", "interval", "none"])
def test_a_killed_server_loses_nothing_doubles_nothing_and_keeps_the_order(tmp_path: Path, flush: str) -> None:
    kill_often(tmp_path / "data", flush, KILLS, seed=len(flush))


@pytest.mark.long
@pytest.mark.parametrize("flush", ["always", "interval", "none"])
def test_a_thousand_kills(tmp_path: Path, flush: str) -> None:
    kill_often(tmp_path / "data", flush, KILLS_LONG, seed=1000 + len(flush))
