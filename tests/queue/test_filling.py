"""Zeros ahead of the journal's end: laid, found, cut, and never taken for anything else."""

import random

import pytest

from pixiu.model.errors import CorruptData
from pixiu.queue.storage.filling import Filler
from pixiu.queue.storage.journal import FOLDER, Journal
from pixiu.queue.storage.record import Damage, Frame
from pixiu.queue.storage.recovery import find_end
from pixiu.queue.storage.segment import BLOCK_BYTES, Segment, segment_name
from pixiu.queue.storage.verify import Verifier
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.queue.logs import add, new_disk

pytestmark = pytest.mark.feature("QB1", "QB2")

AHEAD = 4 * BLOCK_BYTES
PATH = f"{FOLDER}/{segment_name(1)}.log"


class Filled:
    """A journal whose end is kept ahead of, on a loop that stands still until told."""

    def __init__(self, *, segment_bytes: int = 2**30) -> None:
        self.disk = new_disk()
        self.journal = Journal(self.disk, segment_bytes=segment_bytes)
        self.scheduler = SimulatedScheduler(SimulatedClock(), random.Random(1), slow_us=10, pause_chance=0)
        self.failures: list[BaseException] = []
        self.journal.appended_hook = Filler(
            self.journal,
            self.disk,
            self.scheduler,
            ahead=AHEAD,
            segment_bytes=segment_bytes,
            free_bytes_min=0,
            failed=self.failures.append,
        ).look

    def write(self, count: int, *, lets_fill: bool = True) -> None:
        for number in range(count):
            add(self.journal, f"message {number}")
            if lets_fill:
                self.scheduler.run_for(10)

    def killed(self) -> Journal:
        """What is found where the process just ended."""
        self.scheduler.close()
        return Journal(self.disk, segment_bytes=2**30)


@pytest.fixture
def filled() -> Filled:
    made = Filled()
    made.write(8)
    assert AHEAD - BLOCK_BYTES < made.journal.tail.filled_bytes <= AHEAD
    return made


def test_zeros_lie_ahead_and_count_nowhere(filled: Filled) -> None:
    tail = filled.journal.tail
    content = filled.disk.content(PATH)
    assert not any(content[tail.size :])
    assert filled.journal.size == tail.size == len(content.rstrip(b"\0"))
    assert [frame.event_id for _, frame in tail.scan() if isinstance(frame, Frame)] == list(range(1, 9))
    report = Verifier(filled.disk, lambda count: None).run()
    assert report.is_sound
    assert (report.records, report.bytes, report.unfinished_bytes) == (8, tail.size, 0)
    filled.scheduler.close()


def test_a_start_takes_them_for_the_end_and_cuts_them(filled: Filled) -> None:
    size = filled.journal.tail.size
    journal = filled.killed()
    found = find_end(journal, 0)
    assert (found.last_event_id, found.cut_bytes) == (8, 0)
    assert len(filled.disk.content(PATH)) == size
    assert add(journal, "next") == 9


def test_an_unfinished_write_among_them_is_cut_off(filled: Filled) -> None:
    size = filled.journal.tail.size
    frames = filled.disk.content(PATH)[: size // 8]
    for part in range(1, len(frames)):
        filled.disk.open(PATH).write(frames[:part], size)
        segment = Segment(filled.disk, FOLDER, 1, is_last=True)
        if segment.size > size:
            *_, (at, damage) = segment.scan()
            assert (at, damage) == (size, Damage(size, "cut off"))
    journal = filled.killed()
    assert find_end(journal, 0).last_event_id == 8


def test_a_lost_write_with_frames_behind_it_is_damage_and_not_the_end(filled: Filled) -> None:
    journal = filled.killed()
    third, fourth = journal.tail.entry(3).frame, journal.tail.entry(4).frame
    filled.disk.open(PATH).write(bytes(fourth - third), third)
    with pytest.raises(CorruptData, match=f"byte {third}: .* event 3 was on disk"):
        find_end(Journal(filled.disk, segment_bytes=2**30), 0)
    (fault,) = Verifier(filled.disk, lambda count: None).run().faults[:1]
    assert (fault.file, fault.position) == (PATH, third)


def test_a_lost_end_is_refused_if_the_store_knows_better(filled: Filled) -> None:
    journal = filled.killed()
    last = journal.tail.entry(8).frame
    filled.disk.open(PATH).write(bytes(200), last)
    with pytest.raises(CorruptData, match=f"byte {last}: events 8 to 8 were on disk and are gone"):
        find_end(Journal(filled.disk, segment_bytes=2**30), 0, 8)


def test_zeros_at_the_end_of_any_other_segment_are_damage() -> None:
    disk = new_disk()
    journal = Journal(disk, segment_bytes=300)
    for number in range(12):
        add(journal, f"message {number}")
    journal.close()
    first = f"{FOLDER}/{disk.names(FOLDER)[1]}"
    assert len(disk.names(FOLDER)) > 2
    disk.open(first).write(bytes(100), disk.open(first).size() - 100)
    with pytest.raises(CorruptData, match=f"{first} byte"):
        list(Journal(disk, segment_bytes=300).scan_after(0))


def test_a_rolled_and_a_closed_segment_have_none() -> None:
    filled = Filled(segment_bytes=2 * BLOCK_BYTES)
    filled.write(150)
    logs = [f"{FOLDER}/{name}" for name in filled.disk.names(FOLDER) if name.endswith(".log")]
    assert len(logs) > 1
    assert all(filled.disk.content(path).endswith(b"\n") for path in logs[:-1])
    assert filled.disk.content(logs[-1]).endswith(b"\0")
    filled.scheduler.finish_work()
    filled.journal.close()
    assert filled.disk.content(logs[-1]).endswith(b"\n")
    filled.scheduler.close()


def test_a_writer_that_runs_ahead_of_the_zeros_is_not_overwritten() -> None:
    filled = Filled()
    filled.write(1, lets_fill=False)
    filled.write(300, lets_fill=False)  # far beyond where the first step was to begin
    filled.scheduler.run_for(1000)
    filled.write(3)
    assert filled.journal.tail.filled_bytes
    assert find_end(filled.killed(), 0).last_event_id == 304


def test_a_reader_that_stopped_at_the_end_goes_on_where_the_zeros_were(filled: Filled) -> None:
    reader = filled.journal.scan_after(0)
    assert [next(reader)[2].event_id for _ in range(8)] == list(range(1, 9))
    filled.write(3)
    assert [frame.event_id for _, _, frame in reader] == [9, 10, 11]
    filled.scheduler.close()


def test_on_a_full_disk_none_are_laid_and_later_they_are() -> None:
    filled = Filled()
    filled.disk.capacity = filled.disk.used() + AHEAD
    filled.write(5)
    assert filled.journal.tail.filled_bytes == 0
    filled.disk.capacity = None
    filled.scheduler.run_for(2000)
    filled.write(1)
    assert filled.journal.tail.filled_bytes
    filled.journal.give_back()
    assert len(filled.disk.content(PATH)) == filled.journal.tail.size
    assert not filled.failures
    filled.scheduler.close()


def test_a_write_of_zeros_that_fails_means_nothing_and_a_flush_that_fails_everything() -> None:
    filled = Filled()
    hook, filled.journal.appended_hook = filled.journal.appended_hook, None
    filled.write(1)
    assert hook is not None
    filled.disk.fail_write = lambda path: True
    hook()
    filled.disk.fail_write = lambda path: False
    assert not filled.failures
    assert filled.journal.tail.filled_bytes == 0
    filled.scheduler.run_for(2000)
    hook()
    filled.disk.fail_flush = lambda path: True
    filled.scheduler.run_for(10)
    assert [type(failure) for failure in filled.failures] == [OSError]
    with pytest.raises(OSError, match="Input/output error"):
        filled.journal.flush()
    filled.scheduler.close()


def test_the_power_goes_while_zeros_are_laid() -> None:
    for seed in range(30):
        filled = Filled()
        filled.disk._rng.seed(seed)
        filled.write(6)
        size = filled.journal.tail.size
        filled.journal.tail.fill(bytes(AHEAD), 2**20)  # not flushed
        filled.scheduler.close()
        filled.disk.crash()
        journal = Journal(filled.disk, segment_bytes=2**30)
        assert find_end(journal, 0).last_event_id == 6
        assert journal.tail.size == size
