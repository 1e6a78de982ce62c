"""Segments, their index, and the journal made of them."""

import errno

import pytest

from pixiu.model.errors import CorruptData, Gone
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.journal import FOLDER, Journal
from pixiu.queue.storage.record import Damage, decode_block
from pixiu.queue.storage.recovery import find_end
from pixiu.testing.disk import SimulatedDisk
from tests.queue.logs import add, message, new_disk


def reopened(disk: SimulatedDisk, segment_bytes: int = 600) -> Journal:
    """What the next process sees."""
    journal = Journal(disk, segment_bytes=segment_bytes)
    find_end(journal, 0)
    return journal


def filled(count: int = 30, segment_bytes: int = 600) -> tuple[SimulatedDisk, Journal]:
    """A journal of several segments; every third record has three messages."""
    disk = new_disk()
    journal = Journal(disk, segment_bytes=segment_bytes)
    for number in range(count):
        add(journal, *(f"m{number}-{part}" for part in range(3 if number % 3 == 0 else 1)))
    return disk, journal


def test_every_event_is_found_through_its_index() -> None:
    _, journal = filled()
    assert len(journal.segments) > 3
    last = journal.last_event_id
    assert last == 50
    event_id = 1
    for number in range(30):
        for part in range(3 if number % 3 == 0 else 1):
            entry = journal.entry(event_id)
            segment = journal.segment_of(event_id)
            assert segment.log.read(entry.position, entry.length) == message(f"m{number}-{part}")
            assert (entry.event_id, entry.kind, entry.topic, entry.time_ms) == (event_id, 1, 1, 1000)
            assert journal.frame_of(event_id).event_id == event_id - part
            event_id += 1
    with pytest.raises(Gone, match="51 is not in the journal"):
        journal.entry(51)


def test_segments_are_named_by_their_first_event_and_follow_each_other() -> None:
    disk, journal = filled()
    firsts = [int(name[:-4]) for name in disk.names(FOLDER) if name.endswith(".log")]
    assert firsts == [segment.first_event_id for segment in journal.segments]
    for segment, following in zip(journal.segments, journal.segments[1:], strict=False):
        assert segment.last_event_id + 1 == following.first_event_id
        assert segment.size >= 600


@pytest.mark.parametrize("after", [0, 1, 2, 3, 7, 31, 49, 50])
def test_a_scan_begins_behind_the_whole_record(after: int) -> None:
    _, journal = filled()
    ids = [frame.event_id for _, _, frame in journal.scan_after(after)]
    frame_ends = [frame.last_event_id for _, _, frame in journal.scan_after(0)]
    if after == 0:
        assert ids[0] == 1
    else:
        end = next(end for end in frame_ends if end >= after)
        assert (ids[0] if ids else 51) == end + 1


@pytest.mark.parametrize("damage", ["gone", "short", "empty", "stale"])
def test_an_index_that_does_not_answer_is_made_again(damage: str) -> None:
    disk, journal = filled()
    segment = journal.segments[1]
    path = segment.index_path
    whole = disk.content(path)
    journal.close()
    if damage == "gone":
        disk.remove(path)
    else:
        file = disk.open(path)
        file.truncate({"short": len(whole) - ENTRY_BYTES - 7, "empty": 0, "stale": len(whole)}[damage])
        if damage == "stale":
            file.write(disk.content(journal.segments[2].index_path)[:ENTRY_BYTES], 0)
    journal = reopened(disk)
    for event_id in range(journal.segments[1].first_event_id, journal.segments[1].last_event_id + 1):
        assert journal.entry(event_id).event_id == event_id
    made = disk.content(path)
    assert [made[at : at + 28] for at in range(0, len(made), 64)] == [
        whole[at : at + 28] for at in range(0, len(whole), 64)
    ]


@pytest.mark.feature("QB1")
def test_damage_far_into_a_segment_is_named_by_its_own_byte() -> None:
    disk, journal = filled(count=0, segment_bytes=2**30)
    for number in range(12):
        add(journal, f"{number}" * 50_000)
    entry = journal.entry(9)
    assert entry.frame > 300_000
    disk.flip(journal.tail.path, entry.position * 8)
    with pytest.raises(CorruptData, match=f"{journal.tail.path} byte {entry.frame}: checksum"):
        list(journal.scan_after(0))
    with pytest.raises(CorruptData, match=f"{journal.tail.path} byte {entry.frame}: checksum"):
        journal.frame_of(9)


@pytest.mark.feature("X47")
def test_damage_is_named_by_file_and_byte_wherever_it_is_met() -> None:
    disk, journal = filled()
    segment = journal.segments[1]
    entry = segment.entry(segment.first_event_id + 3)
    disk.flip(segment.path, (entry.position + 2) * 8)
    place = f"{segment.path} byte {entry.frame}: checksum does not match"
    with pytest.raises(CorruptData, match=place):
        list(journal.scan_after(0))
    with pytest.raises(CorruptData, match=place):
        journal.frame_of(entry.event_id)
    with pytest.raises(CorruptData, match=place):
        segment.read_bytes(entry.frame, 10)
    found = list(segment.scan())
    assert found[-1][1] == Damage(entry.frame, "checksum does not match")
    segment.index.truncate(0)
    with pytest.raises(CorruptData, match=place):
        segment.entry(segment.last_event_id)


@pytest.mark.parametrize("where", ["log", "idx"])
def test_a_failed_write_leaves_nothing_behind(where: str) -> None:
    disk, journal = filled(segment_bytes=2**20)
    size, last = journal.tail.size, journal.last_event_id
    index = disk.content(journal.tail.index_path)
    disk.fail_write = lambda path: path.endswith(where)
    with pytest.raises(OSError, match="Input/output") as caught:
        add(journal, "lost")
    assert caught.value.errno == errno.EIO
    assert not journal.is_torn
    disk.fail_write = lambda path: False
    assert disk.content(journal.tail.path)[size:] == b""
    assert disk.content(journal.tail.index_path) == index
    assert add(journal, "kept") == last + 1
    texts = [decode_block(frame.block).payload for _, _, frame in reopened(disk).scan_after(last)]
    assert texts == [message("kept")]


def test_a_write_that_cannot_even_be_cut_away_is_remembered() -> None:
    disk, journal = filled(segment_bytes=2**20)
    disk.fail_write = disk.fail_flush = lambda path: path.endswith("log")
    with pytest.raises(OSError, match="Input/output"):
        add(journal, "lost")
    assert journal.is_torn


def test_a_roll_that_fails_changes_nothing_and_is_not_forgotten() -> None:
    disk, journal = filled(count=0, segment_bytes=200)
    add(journal, "x" * 300)
    assert journal.is_full
    disk.fail_flush = lambda path: path.endswith(".log")
    with pytest.raises(OSError, match="Input/output"):
        journal.begin(2)
    assert len(journal.segments) == 1
    disk.fail_flush = lambda path: False
    with pytest.raises(OSError, match="Input/output"):
        journal.flush()  # the system would say that all is well


def test_truncate_after_leaves_a_first_part() -> None:
    for after in (0, 3, 4, 19, 20, 21, 49, 50):
        disk, journal = filled()
        ends = [frame.last_event_id for _, _, frame in journal.scan_after(0)]
        if after and after not in ends:
            continue
        journal.truncate_after(after)
        assert journal.last_event_id == after
        assert journal.flushed_through <= after
        add(journal, "next")
        again = reopened(disk)
        assert [frame.last_event_id for _, _, frame in again.scan_after(0)] == [e for e in ends if e <= after] + [
            after + 1
        ]


def test_old_segments_go_and_what_they_held_is_gone() -> None:
    disk, journal = filled()
    first_kept = journal.segments[2].first_event_id
    assert journal.drop_through(first_kept) == 2
    assert journal.first_event_id == first_kept
    with pytest.raises(Gone, match="not in the journal"):
        journal.entry(first_kept - 1)
    assert [name for name in disk.names(FOLDER) if int(name[:-4]) < first_kept] == []
    assert journal.drop_through(10**6) > 0
    assert len(journal.segments) == 1


def test_reading_bytes_gives_whole_frames() -> None:
    _, journal = filled()
    segment = journal.segments[0]
    position = 0
    while position < segment.size:
        data = segment.read_bytes(position, 150)
        assert data
        position += len(data)
    assert position == segment.size
