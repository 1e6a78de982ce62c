"""A disk without room: a clear error, nothing broken, and work goes on when there is room again.

The small disk is a real one, a tmpfs of a few megabytes; where it cannot be mounted the tests are skipped and say so.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.queue.storage.verify import Verifier
from pixiu.runtime.files import SystemFiles
from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import ACK_GO_ON, alive, create, delay, message, pub, sub
from tests.wire.raw import Raw

pytestmark = [pytest.mark.crash, pytest.mark.feature("QB7")]

DISK_BYTES = 12 * 2**20
NO_RESERVE = {
    "PIXIU_JOURNAL__FREE_BYTES_MIN": "0",
    "PIXIU_JOURNAL__FILL_BYTES": "0",
    "PIXIU_JOURNAL__CHECKPOINT_INTERVAL_MS": "200",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk here: mount says {mounted.stderr.decode().strip()!r}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Take the room away, but for some bytes."""
    path = disk / "filler"
    path.write_bytes(b"")
    files = SystemFiles(disk)
    with path.open("ab", buffering=0) as file:
        while (free := files.free_bytes()) > leave:
            file.write(bytes(min(free - leave, 65536)))
    return path


def publish_until_refused(raw: Raw, topic: bytes, size: int) -> tuple[list[bytes], str]:
    """Bodies that were answered 200, and the first refusal."""
    kept: list[bytes] = []
    while True:
        body = (b"%06d-" % len(kept)).ljust(size, b"x")
        raw.send(pub(topic, message(body)))
        code, rest = raw.answer()
        if code == 400:
            return kept, raw.read_exact(int.from_bytes(rest[:2], "little")).decode()
        kept.append(body)
        assert len(kept) * size < 2 * DISK_BYTES, "never full"


def everything(queue: QueueProcess, topic: bytes, last: bytes) -> list[bytes]:
    """All bodies of a topic up to the one named."""
    with Raw(queue.host, queue.port) as raw:
        raw.send(sub(topic, 0, b"everything", batch=255))
        bodies: list[bytes] = []
        while not bodies or bodies[-1] != last:
            bodies += [item.body for item in raw.push()]
            raw.send(ACK_GO_ON)
    return bodies


def says_no_room(text: str) -> bool:
    """Would a person understand it?"""
    return "No space left" in text or "disk is full" in text


@pytest.mark.parametrize("flush", ["always", "none"])
def test_a_full_disk_is_told_breaks_nothing_and_is_got_over(disk: Path, flush: str) -> None:
    with QueueProcess(disk / "data", args=["--flush", flush], env=NO_RESERVE) as queue:
        with Raw(queue.host, queue.port) as raw:
            raw.create(b"t")
            raw.pub(b"t", b"first")
            filler = fill(disk, leave=400_000)
            kept, text = publish_until_refused(raw, b"t", 3000)
            assert says_no_room(text), text
            assert "cannot write" in text or "disk is full" in text
            # Smaller ones may fit into what is left; whatever is refused is refused in step.
            for _ in range(20):
                raw.send(pub(b"t", message(b"y" * 50_000)))
                raw.error()
            raw.send(alive()).alive()
            assert queue.is_running
            filler.unlink()
            wait_for(lambda: is_accepted(raw, b"after"), timeout_s=15.0, what="room to be noticed")
        bodies = everything(queue, b"t", b"after")
        assert [body for body in bodies if body not in (b"first", b"after")] == kept
        queue.kill()
        queue.start()
        with Raw(queue.host, queue.port) as raw:
            raw.pub(b"t", b"last")
        again = everything(queue, b"t", b"last")
        assert [body for body in again if body not in (b"first", b"after", b"last")] == kept
        queue.stop()
    report = Verifier(SystemFiles(queue.data), lambda count: None).run()
    assert report.is_sound, report.faults[:5]


@pytest.mark.parametrize("leave", [0, 400_000])
def test_zeros_ahead_of_the_journal_are_given_back_when_the_disk_is_full(disk: Path, leave: int) -> None:
    """The journal has room that nobody else has: nothing waits for ever, and what is taken is kept."""
    env = NO_RESERVE | {"PIXIU_JOURNAL__FILL_BYTES": str(2 * 2**20)}
    with QueueProcess(disk / "data", env=env) as queue:
        with Raw(queue.host, queue.port) as raw:
            raw.create(b"t")
            raw.pub(b"t", b"first")
            (journal,) = (disk / "data" / "queue" / "journal").glob("*.log")
            wait_for(lambda: journal.stat().st_size >= 2**19, what="zeros ahead of the end")
            filler = fill(disk, leave=leave)
            raw.send(create(b"u"))
            code, rest = raw.answer(20.0)
            if code == 400:
                assert says_no_room(raw.read_exact(int.from_bytes(rest[:2], "little")).decode())
            kept, text = publish_until_refused(raw, b"t", 3000)
            assert says_no_room(text), text
            assert not journal.read_bytes().endswith(b"\0"), "given back"
            filler.unlink()
            wait_for(lambda: is_accepted(raw, b"after"), timeout_s=15.0, what="room to be noticed")
        bodies = everything(queue, b"t", b"after")
        assert [body for body in bodies if body not in (b"first", b"after")] == kept
        queue.stop()
    assert journal.read_bytes().endswith(b"\n")
    report = Verifier(SystemFiles(queue.data), lambda count: None).run()
    assert report.is_sound, report.faults[:5]


def is_accepted(raw: Raw, body: bytes) -> bool:
    """Publish once; was it taken?"""
    raw.send(pub(b"t", message(body)))
    code, rest = raw.answer()
    if code == 400:
        assert says_no_room(raw.read_exact(int.from_bytes(rest[:2], "little")).decode())
    return code == 200


def test_a_full_disk_stops_topics_and_delays_too_and_they_come_back(disk: Path) -> None:
    """The store has no room either: what it could not take is there when it can."""
    with QueueProcess(disk / "data", env=NO_RESERVE) as queue, Raw(queue.host, queue.port) as raw:
        raw.create(b"t")
        filler = fill(disk, leave=0)
        made = []
        for number in range(30):
            raw.send(create(b"topic-%d" % number))
            code, rest = raw.answer(20.0)
            if code == 400:
                assert says_no_room(raw.read_exact(int.from_bytes(rest[:2], "little")).decode())
            else:
                made.append(f"topic-{number}")
        raw.send(delay(b"t", 1000, message(b"z" * 5000)))
        assert says_no_room(raw.error(20.0))
        assert set(made) <= set(raw.topics())
        filler.unlink()
        wait_for(lambda: is_accepted(raw, b"after"), timeout_s=15.0, what="room to be noticed")
        raw.create(b"new")
        assert set(raw.topics()) >= {"t", "new", *made}
        queue.kill()
        queue.start()
        with Raw(queue.host, queue.port) as fresh:
            assert set(fresh.topics()) >= {"t", "new", *made}
            fresh.pub(b"new", b"works")


def test_a_disk_that_is_full_at_the_start_is_told(disk: Path) -> None:
    with QueueProcess(disk / "data", env=NO_RESERVE) as queue, Raw(queue.host, queue.port) as raw:
        raw.create(b"t")
        raw.pub(b"t", b"kept")
        filler = fill(disk, leave=0)
        queue.kill()
        try:
            queue.start()
        except AssertionError as error:
            assert "No space left" in str(error)
        queue.kill()
        filler.unlink()
        queue.start()
        assert everything(queue, b"t", b"kept") == [b"kept"]


def test_the_reserve_refuses_publishes_while_reading_goes_on(disk: Path) -> None:
    reserve = {"PIXIU_JOURNAL__FREE_BYTES_MIN": str(4 * 2**20)}
    with QueueProcess(disk / "data", env=reserve) as queue, Raw(queue.host, queue.port) as raw:
        raw.create(b"t")
        raw.pub(b"t", b"kept")
        filler = fill(disk, leave=3 * 2**20)
        wait_for(lambda: not is_accepted(raw, b"squeezed in"), what="the reserve to be noticed")
        assert raw.refused(pub(b"t", message(b"no"))).startswith("disk is full")
        assert raw.refused(create(b"another")).startswith("disk is full")
        assert raw.refused(delay(b"t", 2000, message(b"no"))).startswith("disk is full")
        with Raw(queue.host, queue.port) as reader:
            assert reader.send(sub(b"t")).push()[0].body == b"kept"
        filler.unlink()
        wait_for(lambda: is_accepted(raw, b"after"), what="room to be noticed")
        assert everything(queue, b"t", b"after")[-1] == b"after"
