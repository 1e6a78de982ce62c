"""What a follower copies and shows: taken apart once, and the same as what its leader has."""

import random
from collections.abc import Iterator

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message
from pixiu.model.errors import CorruptData
from pixiu.queue.engine import Engine
from pixiu.queue.replication import copies as module
from pixiu.queue.replication.copies import Copies, read_copies
from pixiu.queue.replication.replica_stream import JournalReader
from pixiu.queue.storage.record import Kind, decode_block, encode_block, encode_frame
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Request
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.queue.test_writer import Queue


class Follower:
    """An engine that is given a leader's frames."""

    def __init__(self) -> None:
        clock, rng = SimulatedClock(), random.Random(2)
        self.scheduler = SimulatedScheduler(clock, rng, slow_us=100, pause_chance=0)
        self.disk = SimulatedDisk(rng, now_ms=clock.now_ms)
        settings = Settings(
            queue=QueueSettings(open_topics_max=8),
            journal=JournalSettings(free_bytes_min=0),
            log=LogSettings(sample=0),
        )
        store = SimulatedKeyValue(StoreContent())
        self.engine = Engine(settings, self.disk, store, clock, self.scheduler)
        self.engine.recover(is_follower=True)
        self.engine.start()

    def copy(self, frames: bytes) -> None:
        self.engine.append_frames(frames, read_copies(frames))

    def files(self) -> dict[str, bytes]:
        return files_of(self.engine, self.disk)


def files_of(engine: Engine, disk: SimulatedDisk) -> dict[str, bytes]:
    """Journal, its index and topic logs."""
    engine.journal.give_back()
    found = {}
    for segment in engine.journal.segments:
        found[segment.path] = segment.log.read(0, segment.size)
        found[segment.index_path] = segment.index.read(0, segment.index.size())
    for topic in engine.topics.stored_topics():
        log = engine.topics.log_of(topic)
        for number in log.numbers:
            for ending in ("log", "idx"):
                file = disk.open(log.path(number, ending))
                found[log.path(number, ending)] = file.read(0, log.size_of(number, ending))
                file.close()
    return found


@pytest.fixture
def leader() -> Iterator[Queue]:
    queue = Queue()
    client = queue.client()
    queue.ask(client, Request("create", b"u"), wire.encode_create_topic(b"u"))
    for number in range(12):
        queue.publish(client, b"m%d" % number, b"tu"[number % 2 : number % 2 + 1])
    message = Message(b"later|").encode()
    queue.ask(client, Request("delay", b"t", (b"later",)), wire.encode_delay(b"t", message, delay_ms=2000))
    queue.scheduler.run_for(12_000)
    queue.ask(client, Request("create", b"gone"), wire.encode_create_topic(b"gone"))
    queue.ask(client, Request("delete", b"gone"), wire.encode_delete_topic(b"gone"))
    kinds = {decode_block(frame.block).kind for _, _, frame in queue.engine.journal.scan_after(0)}
    assert {Kind.PUBLISH, Kind.CREATE, Kind.DELETE, Kind.DELAY, Kind.FIRE} <= kinds
    yield queue
    queue.scheduler.close()


@pytest.fixture
def follower() -> Iterator[Follower]:
    made = Follower()
    yield made
    made.scheduler.close()


def pieces(queue: Queue, rng: random.Random) -> Iterator[tuple[bytes, int]]:
    """The leader's frames in pieces of some records, each with its last event id."""
    frames = [
        (encode_frame(frame.block, epoch=frame.epoch, count=frame.count, flushed_through=frame.flushed_through), frame)
        for _, _, frame in queue.engine.journal.scan_after(0)
    ]
    at = 0
    while at < len(frames):
        some = frames[at : at + rng.randint(1, 4)]
        yield b"".join(data for data, _ in some), some[-1][1].last_event_id
        at += len(some)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bytes_max", [16 * 2**20, 300, 0])
def test_a_follower_shows_what_its_leader_shows_however_late_and_however_much_is_kept(
    leader: Queue, follower: Follower, seed: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_BYTES_MAX", bytes_max)
    rng = random.Random(seed)
    ends = []
    for frames, last in pieces(leader, rng):
        follower.copy(frames)
        ends.append(last)
        if rng.random() < 0.5:
            follower.engine.apply_through(rng.choice(ends))
            assert follower.engine.commit_event_id <= last
    follower.engine.apply_through(ends[-1])
    assert follower.engine.commit_event_id == leader.engine.commit_event_id
    assert {topic.name for topic in follower.engine.topics.stored_topics()} == {b"t", b"u"}
    assert follower.files() == files_of(leader.engine, leader.disk)


def test_what_was_cut_off_is_not_shown(leader: Queue, follower: Follower) -> None:
    first, *_ = arrived = list(pieces(leader, random.Random(3)))
    for frames, _ in arrived:
        follower.copy(frames)
    follower.engine.apply_through(first[1])
    follower.engine.truncate_after(first[1])
    follower.engine.apply_through(arrived[-1][1])
    assert follower.engine.commit_event_id == first[1]
    other = encode_frame(
        encode_block(Kind.EPOCH, first[1] + 1, b"", b"\2\0\0\0other", write_ms=1, receive_ms=1),
        epoch=2, count=1, flushed_through=0,
    )  # fmt: skip
    follower.copy(other)
    follower.engine.apply_through(first[1] + 1)
    assert follower.engine.commit_event_id == first[1] + 1
    assert follower.engine.state.epoch == 2


def test_copies_begin_behind_what_is_shown_or_are_read_back(leader: Queue) -> None:
    arrived = [read_copies(frames) for frames, _ in pieces(leader, random.Random(4))]
    copies = Copies()
    copies.add(arrived[1])
    assert copies.take(0, 10**6) is None, "the first records are not here"
    last = arrived[1][-1].last_event_id
    assert copies.take(arrived[0][-1].last_event_id, last) == arrived[1]
    copies.add(arrived[2])
    assert copies.take(last, last) == [], "nothing of it is committed"
    assert copies.take(arrived[2][-1].last_event_id, 10**6) is None, "all of it was shown already"


def test_a_record_without_the_messages_that_it_counts_is_not_copied() -> None:
    block = encode_block(Kind.PUBLISH, 1, b"t", Message(b"one").encode(), write_ms=1, receive_ms=1)
    with pytest.raises(CorruptData, match="not 2 messages"):
        read_copies(encode_frame(block, epoch=1, count=2, flushed_through=0))


def test_a_reader_passes_by_only_what_follows_its_place(leader: Queue) -> None:
    engine = leader.engine
    seen: list[tuple[int, bytes]] = []
    reader, behind = JournalReader(engine, engine.journal.last_event_id), JournalReader(engine, 0)
    start = engine.journal.last_event_id

    def written(after: int, frames: bytes) -> None:
        seen.append((after, frames))
        assert reader.pass_by(after)
        assert not behind.pass_by(after)

    engine.writer.written_hook = written
    leader.publish(leader.client(), b"one")
    leader.publish(leader.client(), b"two")
    assert [after for after, _ in seen] == [start, start + 1]
    assert reader.read(2**20, engine.journal.last_event_id) == b"", "all of it was passed by"
    whole = behind.read(2**20, engine.journal.last_event_id)
    assert whole.endswith(b"".join(frames for _, frames in seen))
    engine.writer.written_hook = lambda after, frames: None
    leader.publish(leader.client(), b"three")
    assert reader.read(2**20, engine.journal.last_event_id).endswith(b"three|\n")
