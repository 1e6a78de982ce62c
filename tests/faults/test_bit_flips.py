"""One bit of a stopped server's files turns over, two hundred times and more, anywhere in a segment.

The server that wrote the files is the real one; what starts on them afterwards is the real engine in this process, so
that a flip costs milliseconds.
"""

import logging
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.config import JournalSettings, Settings
from pixiu.machines.queue_wire.requests import encode_sub
from pixiu.model.errors import CorruptData
from pixiu.queue.engine import Engine
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage.verify import Verifier
from pixiu.runtime.files import SystemFiles
from pixiu.testing.queue.clients import Subscriber, Wire
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import ACK_GO_ON, message, pub, sub
from tests.wire.raw import Raw

pytestmark = pytest.mark.feature("QB1", "QB2")

FLIPS = 240
FLIPS_LONG = 4_000
TOPICS = (b"a", b"b", b"c")
SMALL = {
    "PIXIU_JOURNAL__SEGMENT_BYTES": "16384",
    "PIXIU_TOPICS__SEGMENT_BYTES": "8192",
    "PIXIU_JOURNAL__FREE_BYTES_MIN": "0",
}

Served = dict[bytes, list[tuple[int, bytes]]]


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Served]:
    """A data directory that a real server left behind, and everything that it served."""
    data = tmp_path_factory.mktemp("flips") / "data"
    rng = random.Random(7)
    with QueueProcess(data, env=SMALL) as queue, Raw(queue.host, queue.port) as raw:
        for topic in TOPICS:
            raw.create(topic)
        for number in range(240):
            body = b"%03d-" % number + rng.randbytes(rng.choice([5, 80, 400]))
            payload = b"".join(message(body + b"%d" % n) for n in range(rng.choice([1, 1, 5])))
            raw.send(pub(rng.choice(TOPICS), payload)).ok()
        served = {topic: read_topic(queue, topic) for topic in TOPICS}
        if request.param == "stopped":
            queue.stop()
        else:
            queue.kill()
    return data, served


def read_topic(queue: QueueProcess, topic: bytes) -> list[tuple[int, bytes]]:
    with Raw(queue.host, queue.port) as raw:
        raw.send(sub(topic, 0, b"all", batch=255))
        items = []
        while True:
            try:
                items += raw.push(0.3)
            except TimeoutError:
                return [(item.event_id, item.message) for item in items]
            raw.send(ACK_GO_ON)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def look(data: Path, served: Served) -> list[str]:
    """Start on these files and read everything. Returns what was reported; fails if rot was served or passed over."""
    clock = SimulatedClock()
    scheduler = SimulatedScheduler(clock, random.Random(1), slow_us=0, pause_chance=0)
    store = RocksKeyValue(data / "queue" / "state")
    settings = Settings(journal=JournalSettings(free_bytes_min=0))
    reports: list[str] = []
    try:
        engine = Engine(settings, SystemFiles(data), store, clock, scheduler)
        engine.recover()
        server = QueueServer(engine, HANDLERS, connections_max=10)
        for topic, expected in served.items():
            reader = Subscriber(Wire(server, scheduler), topic, b"reader")
            reader.wire.send(encode_sub(topic, b"reader", after=0, batch=100))
            scheduler.run_ready()
            reader.take_pushes()
            while reader.unacked:
                reader.ack()
                scheduler.run_ready()
                reader.take_pushes()
            got = [(item.event_id, item.message) for item in reader.items]
            assert got == expected[: len(got)], f"{topic!r} serves what was never published"
            assert len(got) == len(expected) or reader.text, f"{topic!r} ends early, in silence"
            reports += [reader.text] if reader.text else []
        for _ in engine.journal.scan_after(0):
            pass
    except CorruptData as error:
        reports.append(str(error))
    finally:
        scheduler.close()
        store.close()
    return reports


def flip_often(written: tuple[Path, Served], folder: str, flips: int, scratch: Path, seed: int) -> None:
    original, served = written
    rng = random.Random(seed)
    paths = sorted(path.relative_to(original) for path in (original / "queue" / folder).rglob("*.log"))
    # Behind the last record of a killed server's journal lie zeros, of which nobody ever asks anything.
    sizes = [len((original / path).read_bytes().rstrip(b"\0")) for path in paths]
    verdicts: Counter[str] = Counter()
    for number in range(flips):
        data = scratch / f"{number}"
        shutil.copytree(original, data)
        ((path, size),) = rng.choices(list(zip(paths, sizes, strict=True)), sizes)
        content = bytearray((data / path).read_bytes())
        position, bit = rng.randrange(size), rng.randrange(8)
        content[position] ^= 1 << bit
        (data / path).write_bytes(content)
        where = f"bit {bit} of {path} byte {position}"
        found = Verifier(SystemFiles(data), lambda count: None).run()
        assert any(fault.file == str(path) and fault.position <= position for fault in found.faults), where
        reports = look(data, served)
        for text in reports:
            place = re.search(re.escape(str(path)) + r" byte (\d+)", text)
            assert place, f"{where} was reported as {text!r}"
            assert int(place[1]) <= position, f"{where} was reported as {text!r}"
        verdicts["reported" if reports else "repaired"] += 1
        shutil.rmtree(data)
    if folder == "journal":
        assert verdicts["repaired"] == 0, "nothing repairs the journal: somebody overlooked something"
    assert verdicts["reported"] + verdicts["repaired"] == flips


@pytest.mark.parametrize("folder", ["journal", "topics"])
def test_a_flipped_bit_is_reported_with_file_and_byte_and_never_served(
    written: tuple[Path, Served], folder: str, tmp_path: Path
) -> None:
    flip_often(written, folder, FLIPS // 4, tmp_path, seed=len(folder))


@pytest.mark.long
@pytest.mark.parametrize("folder", ["journal", "topics"])
def test_thousands_of_flipped_bits(written: tuple[Path, Served], folder: str, tmp_path: Path) -> None:
    flip_often(written, folder, FLIPS_LONG // 4, tmp_path, seed=1000 + len(folder))
