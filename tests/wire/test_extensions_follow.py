"""Follow and Snapshot: what Pixiu's own followers get.

docs/protocol-queue.md §4.1 and §4.2. Frames are the journal's bytes, so they are compared with its files.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import (
    FLUSH,
    FOLLOW,
    HELLO,
    SNAPSHOT,
    STATUS,
    alive,
    extension,
    i64,
    message,
    pub,
    replica,
    string,
    u8,
    u32,
)
from tests.wire.fixtures import SMSS_FOLLOWERS, Connect, StartServer, segments
from tests.wire.raw import Raw

FRAMES, TRUNCATE, TOO_FAR, STATE = 1, 2, 3, 4
OPEN, PIECE, CLOSE, END = 1, 2, 3, 4


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A leader with a little of everything in its journal."""
    with QueueProcess(tmp_path_factory.mktemp("followed") / "data", env=SMSS_FOLLOWERS) as queue:
        with Raw(queue.host, queue.port) as raw:
            raw.create(b"a")
            raw.pub(b"a", b"one", b"two", b"three")
            raw.append(b"a", b"key", message(b"appended"))
            raw.create(b"b")
            raw.delete(b"b")
            raw.pub(b"a", b"last")
        yield queue


def follow(name: bytes, last_event_id: int = 0, epoch: int = 0, highest_epoch: int = 0) -> bytes:
    """Follow (135)."""
    part = string(name) + i64(last_event_id) + u32(epoch) + u32(highest_epoch) + u8(0)
    return extension(FOLLOW, part=part)


def stream_message(raw: Raw) -> tuple[int, bytes]:
    """One message of a Follow or Snapshot stream: its kind and body."""
    code, rest = raw.answer()
    assert code == 200, raw.read_exact(int.from_bytes(rest[:2], "little"))
    assert rest[1] == 0
    assert rest[6:] == bytes(2)
    return rest[0], raw.read_exact(int.from_bytes(rest[2:6], "little"))


@dataclass
class Followed:
    """What a follower has heard so far."""

    frames: bytes = b""
    commit_event_id: int = -1
    states: int = 0


def listen(raw: Raw, heard: Followed, *, length: int, commit: int) -> None:
    """Read the stream until so many bytes of frames have come and so much is committed."""
    while len(heard.frames) < length or heard.commit_event_id < commit or not heard.states:
        kind, body = stream_message(raw)
        if kind == FRAMES:
            heard.commit_event_id = max(heard.commit_event_id, struct.unpack_from("<q", body)[0])
            heard.frames += body[8:]
        else:
            assert kind == STATE
            epoch, heard_commit, in_sync, size = struct.unpack_from("<IqBH", body)
            assert epoch >= 1
            assert in_sync in (0, 1)
            assert len(body) == 15 + size
            heard.commit_event_id = max(heard.commit_event_id, heard_commit)
            heard.states += 1
    assert len(heard.frames) == length


@pytest.mark.feature("X-Follow")
def test_frames_are_the_journals_bytes_around_the_blocks_of_the_replica_stream(
    followed: QueueProcess, connect: Connect
) -> None:
    raw = connect(followed)
    last = raw.extension(HELLO).json()["last_event_id"]
    journal = segments(followed, "journal")[0].read_bytes().rstrip(b"\0")
    heard = Followed()
    follower = connect(followed).show_key(followed).send(follow(b"reader"))
    listen(follower, heard, length=len(journal), commit=last)
    assert heard.frames == journal
    for block in connect(followed).send(replica(0)).blocks_until(last):
        if not any(b"pixiu.id" in packed for packed in block.messages):
            assert block.raw in journal
    raw.pub(b"a", b"while following")
    journal = segments(followed, "journal")[0].read_bytes().rstrip(b"\0")
    listen(follower, heard, length=len(journal), commit=last + 1)
    assert heard.frames == journal


@pytest.mark.feature("X-Follow")
def test_a_follower_that_reports_is_shown_with_its_lag(followed: QueueProcess, connect: Connect) -> None:
    raw = connect(followed)
    hello = raw.extension(HELLO).json()
    last, epoch = hello["last_event_id"], hello["epoch"]
    follower = connect(followed).show_key(followed).send(follow(b"reports", last, epoch, epoch))

    def shown() -> list[tuple[int, int]]:
        rows = raw.extension(STATUS).json()["followers"]
        return [(row["durable_event_id"], row["lag"]) for row in rows if row["name"] == "reports"]

    follower.send(i64(last) + u32(epoch))
    wait_for(lambda: shown() == [(last, 0)], what="the report to be shown")
    raw.pub(b"a", b"more", b"and more")
    wait_for(lambda: shown() == [(last, 2)], what="the lag to be shown")
    follower.send((i64(last + 2) + u32(epoch))[:5])
    follower.send((i64(last + 2) + u32(epoch))[5:])
    wait_for(lambda: shown() == [(last + 2, 0)], what="a report in two pieces to be taken")
    follower.close()
    wait_for(lambda: shown() == [], what="the follower to be gone")


@pytest.mark.feature("X-Follow")
def test_a_follower_with_another_history_is_told_where_to_cut(followed: QueueProcess, connect: Connect) -> None:
    hello = connect(followed).extension(HELLO).json()
    last, epoch = hello["last_event_id"], hello["epoch"]
    follower = connect(followed).show_key(followed).send(follow(b"ahead", last + 50, epoch, epoch))
    kind, body = stream_message(follower)
    while kind == STATE:
        kind, body = stream_message(follower)
    assert kind == TRUNCATE
    cut_at, cut_epoch = struct.unpack("<qI", body)
    assert cut_at <= last
    assert cut_epoch <= epoch


@pytest.mark.feature("X-Follow", "QE5")
def test_a_follower_that_saw_a_higher_epoch_fences_the_leader(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    raw.pub(b"a", b"while leading")
    follower = connect(queue).show_key(queue).send(follow(b"newer", 0, 0, 77))
    text = follower.error()
    assert text.startswith("fenced, epoch")
    assert raw.refused(pub(b"a", message(b"too late"))) == "just master can pub message"
    assert raw.extension(HELLO).json()["role"] != "leader"


@pytest.mark.feature("X-Follow")
def test_a_follower_too_far_behind_is_sent_to_the_snapshot(start_server: StartServer, connect: Connect) -> None:
    queue = start_server(
        "--flush", "none",
        journal__segment_bytes=4096, journal__retention_bytes=8192, journal__checkpoint_bytes=4096,
        journal__checkpoint_interval_ms=50, topics__retention_interval_ms=50,
    )  # fmt: skip
    raw = connect(queue)
    raw.create(b"a")
    for number in range(60):
        raw.pub(b"a", b"%03d" % number + b"x" * 350)

    def has_shrunk() -> bool:
        raw.pub(b"a", b"tick")
        return int(segments(queue, "journal")[0].stem) > 20

    wait_for(has_shrunk, what="the oldest journal segments to go")
    epoch = raw.extension(HELLO).json()["epoch"]
    oldest = int(segments(queue, "journal")[0].stem)
    follower = connect(queue).show_key(queue).send(follow(b"far", 5, epoch, epoch))
    kind, body = stream_message(follower)
    while kind == STATE:
        kind, body = stream_message(follower)
    assert (kind, body) == (TOO_FAR, i64(oldest))


@pytest.mark.feature("X-Snapshot")
def test_a_snapshot_is_every_file_with_its_checksum(followed: QueueProcess, connect: Connect) -> None:
    raw = connect(followed)
    raw.extension(FLUSH).ok()
    last = raw.extension(HELLO).json()["last_event_id"]
    raw.show_key(followed).extension(SNAPSHOT)
    files: dict[str, bytes] = {}
    while True:
        kind, body = stream_message(raw)
        if kind == END:
            break
        assert kind == OPEN
        size, length = struct.unpack_from("<qH", body)
        path = body[10:].decode()
        assert len(body) == 10 + length
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        content = b""
        while (piece := stream_message(raw))[0] == PIECE:
            content += piece[1]
        assert piece[0] == CLOSE
        assert size in (-1, len(content))
        assert int.from_bytes(piece[1], "little") == zlib.crc32(content)
        files[path] = content
    manifest = json.loads(body)
    assert manifest["event_id"] == last
    assert manifest["epoch"] >= 1
    assert manifest["files"] >= len(files)
    for stored in [*segments(followed, "journal"), *segments(followed)]:
        relative = stored.relative_to(followed.data).as_posix()
        assert files[relative] == stored.read_bytes().rstrip(b"\0")
    raw.send(alive()).alive()
