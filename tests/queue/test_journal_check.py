"""A look through the journal after a start: bounded, harmless, and it finds what rotted."""

from __future__ import annotations

import random

from pixiu.queue.metrics import QueueCounters
from pixiu.queue.storage.journal import FOLDER, Journal
from pixiu.queue.storage.journal_check import AGAIN_MS, START_MS, TURN_BYTES, JournalCheck
from pixiu.queue.storage.segment import segment_name
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.queue.logs import add, new_disk

SIZE = 10_000
RATE = 10 * TURN_BYTES


class Checked:
    """A journal of several segments, and a check on a loop that stands still until told."""

    def __init__(self, records: int = 60, *, rate: int = RATE, segment_bytes: int = 200_000) -> None:
        self.disk = new_disk()
        self.journal = Journal(self.disk, segment_bytes=segment_bytes)
        for number in range(records):
            add(self.journal, f"{number}".ljust(SIZE, "."))
        self.scheduler = SimulatedScheduler(SimulatedClock(), random.Random(1), slow_us=10, pause_chance=0)
        self.counters = QueueCounters()
        self.check = JournalCheck(self.journal, self.scheduler, self.counters, bytes_per_second=rate)

    def rot(self, segment: int, byte: int) -> None:
        first = self.journal.segments[segment].first_event_id
        self.disk.flip(f"{FOLDER}/{segment_name(first)}.log", byte * 8)


def test_a_sound_journal_is_read_once_at_the_rate_it_is_given() -> None:
    checked = Checked()
    size = checked.journal.size
    assert len(checked.journal.segments) >= 3
    checked.check.start()
    checked.scheduler.run_for(START_MS - 1)
    assert checked.counters.journal_checked_bytes == 0, "a start has other things to do"
    checked.scheduler.run_for(300)
    assert 0 < checked.counters.journal_checked_bytes <= 4 * (TURN_BYTES + SIZE + 100)
    add(checked.journal, "later")
    checked.scheduler.run_for(60_000)
    assert checked.counters.journal_checked_bytes == size, "what was there at the start, and no byte twice"
    assert checked.check.problem == "" and checked.counters.journal_damaged == 0
    checked.scheduler.close()


def test_rot_is_told_with_its_place_and_the_next_step() -> None:
    checked = Checked()
    checked.rot(1, 50_000)
    checked.check.start()
    checked.scheduler.run_for(START_MS + AGAIN_MS + 60_000)
    assert "checksum does not match" in checked.check.problem and "pixiu queue verify" in checked.check.problem
    assert segment_name(checked.journal.segments[1].first_event_id) in checked.check.problem
    assert checked.counters.journal_damaged == 1
    checked.scheduler.close()


def test_what_is_sound_at_the_second_look_was_being_rewritten() -> None:
    checked = Checked()
    checked.rot(0, 5_000)
    checked.check.start()
    checked.scheduler.run_for(START_MS + 10)
    checked.rot(0, 5_000)  # back
    checked.scheduler.run_for(AGAIN_MS + 60_000)
    assert checked.check.problem == "" and checked.counters.journal_checked_bytes >= checked.journal.size
    checked.scheduler.close()


def test_an_end_that_was_cut_and_written_anew_is_no_damage() -> None:
    checked = Checked(18, segment_bytes=10**9)
    checked.check.start()
    checked.scheduler.run_for(START_MS + 150)
    assert checked.counters.journal_checked_bytes > 4 * SIZE
    checked.journal.truncate_after(2)
    for number in range(30):
        add(checked.journal, f"{number}".ljust(SIZE - 777, "."))
    checked.scheduler.run_for(AGAIN_MS + 60_000)
    assert checked.check.problem == ""
    checked.scheduler.close()


def test_segments_that_go_and_ends_that_are_cut_meanwhile_are_no_damage() -> None:
    checked = Checked()
    checked.check.start()
    checked.scheduler.run_for(START_MS + 150)
    checked.journal.drop_through(checked.journal.segments[1].last_event_id)
    checked.journal.truncate_after(checked.journal.last_event_id - 3)
    checked.scheduler.run_for(60_000)
    assert checked.check.problem == ""
    before = checked.counters.journal_checked_bytes
    checked.scheduler.run_for(60_000)
    assert checked.counters.journal_checked_bytes == before, "it has ended"
    checked.scheduler.close()


def test_without_a_rate_and_after_a_stop_nothing_is_read() -> None:
    never = Checked(3, rate=0)
    never.check.start()
    stopped = Checked(3)
    stopped.check.start()
    stopped.check.stop()
    for each in (never, stopped):
        each.scheduler.run_for(START_MS + 10_000)
        assert each.counters.journal_checked_bytes == 0
        each.scheduler.close()
