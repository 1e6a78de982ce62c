"""Where a journal ends after a crash: an unfinished write is cut, rot is refused."""

import random

import pytest

from pixiu.config import Settings
from pixiu.model.errors import CorruptData
from pixiu.queue.engine import Engine
from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.journal import FOLDER, Journal
from pixiu.queue.storage.record import Frame, read_frame
from pixiu.queue.storage.recovery import find_end
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.queue.logs import add, new_disk

BIG = 2**30


def written(count: int = 12, *, flush: bool = True) -> tuple[SimulatedDisk, list[int]]:
    """A journal of one segment, and where its frames begin."""
    disk = new_disk()
    journal = Journal(disk, segment_bytes=BIG)
    starts = []
    for number in range(count):
        starts.append(journal.tail.size if journal.segments else 0)
        add(journal, f"message {number}", flush=flush)
    journal.close()
    return disk, starts


def path_of(disk: SimulatedDisk) -> str:
    return f"{FOLDER}/{disk.names(FOLDER)[1]}"


def opened(disk: SimulatedDisk) -> Journal:
    return Journal(disk, segment_bytes=BIG)


def test_an_empty_directory_is_a_new_queue() -> None:
    journal = opened(new_disk())
    assert find_end(journal, 0).last_event_id == 0
    with pytest.raises(CorruptData, match="the journal is empty"):
        find_end(journal, 5)


@pytest.mark.parametrize("applied", [0, 1, 6, 12])
def test_a_sound_journal_ends_where_it_ends(applied: int) -> None:
    disk, _ = written()
    journal = opened(disk)
    found = find_end(journal, applied)
    assert (found.last_event_id, found.cut_bytes) == (12, 0)
    assert journal.last_event_id == journal.flushed_through == 12


def test_a_tail_cut_anywhere_costs_only_what_is_cut() -> None:
    disk, starts = written()
    whole = disk.content(path_of(disk))
    ends = [*starts[1:], len(whole)]
    for size in range(len(whole)):
        cut, _ = written()
        cut.open(path_of(cut)).truncate(size)
        journal = opened(cut)
        kept = sum(end <= size for end in ends)
        found = find_end(journal, 0)
        assert found.last_event_id == kept
        # Zeros at the end are none of it: they might have been laid there ahead of it.
        assert found.cut_bytes == len(whole[:size].rstrip(b"\0")) - (ends[kept - 1] if kept else 0)
        assert add(journal, "next") == kept + 1
        assert find_end(opened(cut), 0).last_event_id == kept + 1


@pytest.mark.parametrize("junk", [bytes(100), b"\xff" * 33, b"\x40\0\0", random.Random(1).randbytes(500)])
def test_junk_behind_the_end_is_cut(junk: bytes) -> None:
    disk, _ = written()
    file = disk.open(path_of(disk))
    file.write(junk, file.size())
    assert find_end(opened(disk), 12).last_event_id == 12
    assert disk.content(path_of(disk))[-1:] == b"\n"


def test_damage_that_was_flushed_is_refused_with_its_place() -> None:
    for number in range(10):
        disk, starts = written()
        disk.flip(path_of(disk), (starts[number] + 30) * 8)
        with pytest.raises(
            CorruptData, match=f"{path_of(disk)} byte {starts[number]}: .* event {number + 1} was on disk"
        ):
            find_end(opened(disk), 0)


def test_damage_that_was_never_flushed_is_cut_with_all_behind_it() -> None:
    disk, starts = written(flush=False)
    disk.flip(path_of(disk), (starts[5] + 30) * 8)
    assert find_end(opened(disk), 0).last_event_id == 5


def test_damage_behind_which_nothing_is_flushed_is_refused_if_the_store_knows_better() -> None:
    disk, starts = written()
    disk.flip(path_of(disk), (starts[11] + 30) * 8)
    assert find_end(opened(disk), 0).last_event_id == 11
    disk, starts = written()
    disk.flip(path_of(disk), (starts[11] + 30) * 8)
    with pytest.raises(CorruptData, match=f"byte {starts[11]}: events 12 to 12 were on disk and are gone"):
        find_end(opened(disk), 0, 12)
    with pytest.raises(CorruptData, match="events 12 to 12 were on disk"):
        find_end(opened(disk), 12)


def test_an_index_that_points_elsewhere_hides_nothing() -> None:
    disk, _ = written()
    journal = opened(disk)
    index = disk.open(journal.tail.index_path)
    wrong = bytearray(index.read(5 * 64, 64))
    wrong[28:36] = index.read(9 * 64, 64)[28:36]  # event 6 is said to be in the frame of event 10
    index.write(wrong, 5 * 64)
    journal = opened(disk)
    assert find_end(journal, 6).last_event_id == 12
    assert [frame.event_id for _, _, frame in journal.scan_after(6)] == [7, 8, 9, 10, 11, 12]


def test_what_a_killed_process_left_in_memory_is_flushed_before_it_is_believed() -> None:
    for seed in range(40):
        disk = new_disk(seed)
        journal = Journal(disk, segment_bytes=BIG)
        add(journal, "flushed")
        add(journal, "written", flush=False)
        assert find_end(opened(disk), 0).last_event_id == 2
        disk.crash()
        assert find_end(opened(disk), 0).last_event_id == 2


def test_a_journal_that_begins_behind_the_checkpoint_is_refused() -> None:
    disk = new_disk()
    journal = Journal(disk, segment_bytes=100)
    for number in range(10):
        add(journal, f"message {number}")
    journal.drop_through(5)
    with pytest.raises(CorruptData, match="the checkpoint is at event 2, but the journal begins with"):
        find_end(Journal(disk, segment_bytes=100), 2)


def test_a_message_that_holds_a_whole_frame_is_no_witness() -> None:
    """Somebody sends a journal through the queue: what is inside a sound message proves nothing."""
    disk, _ = written()
    inner = disk.content(path_of(disk))
    other = new_disk()
    journal = Journal(other, segment_bytes=BIG)
    add(journal, "first", flush=False)
    start = journal.tail.size
    add(journal, "second", flush=False)
    add(journal, inner.decode("latin-1"), flush=False)
    journal.close()
    other.flip(path_of(other), (start + 30) * 8)
    frame = read_frame(inner, 0)
    assert isinstance(frame, Frame)
    assert find_end(opened(other), 0).last_event_id == 1


def test_epochs_of_the_journal_are_known_after_the_store_lost_them() -> None:
    """Also those of records that a follower has not shown: it names the epoch of its last record to its leader."""
    disk, _ = written()
    clock, rng = SimulatedClock(), random.Random(1)
    scheduler = SimulatedScheduler(clock, rng, slow_us=0, pause_chance=0.0)
    engine = Engine(Settings(), disk, SimulatedKeyValue(StoreContent()), clock, scheduler)
    engine.state.begin_epoch(7, 40, Changes())  # the store is ahead: the record that opened this epoch is gone
    engine.recover(is_follower=True)
    assert (engine.commit_event_id, engine.journal.last_event_id) == (0, 12)
    assert engine.state.epochs == [(1, 1)]
