"""A damaged record is written again with a copy that its checksum proves, and with nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pixiu.queue.batch import Batch
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.journal import Journal
from pixiu.queue.storage.journal_check import AGAIN_MS, START_MS
from pixiu.queue.storage.mending import Wound, find_wound, mend
from pixiu.queue.storage.record import HEADER_BYTES, Frame, Kind, decode_block, encode_frame
from pixiu.queue.storage.segment import messages_of
from tests.queue.logs import add, new_disk
from tests.queue.test_journal_check import Checked

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDS = 20
SPOILT = 7
"""The record, of those, that is damaged."""


class Spoilt:
    """A journal with a damaged record, and the copy of it that another one has."""

    def __init__(self, *bytes_of_frame: int) -> None:
        self.disk = new_disk()
        self.journal = Journal(self.disk, segment_bytes=10**9)
        self.events = [add(self.journal, *(f"{number}-{each}" for each in range(3))) for number in range(RECORDS)]
        self.segment = self.journal.tail
        frames = [(position, frame) for position, frame in self.segment.scan() if isinstance(frame, Frame)]
        self.position, self.frame = frames[SPOILT]
        self.copy = self.segment.log.read(self.position, self.frame.size)
        self.following = self.segment.log.read(self.position + self.frame.size, 100)
        for byte in bytes_of_frame:
            self.disk.flip(self.segment.path, (self.position + byte) * 8)

    @property
    def wound(self) -> Wound:
        found = find_wound(self.segment, 0)
        assert found is not None
        return found

    def is_sound(self) -> bool:
        return all(isinstance(frame, Frame) for _, frame in self.segment.scan())


def nothing(*_: object) -> list[bytes]:
    """A topic whose log has nothing of the record."""
    return []


PLACES = {
    "length": 0,
    "checksum": 4,
    "epoch": 8,
    "count": 12,
    "flushed through": 16,
    "block": HEADER_BYTES + 9,
    "end": -1,
}


@pytest.mark.parametrize("name", PLACES)
def test_wherever_a_byte_has_rotted_the_record_is_found_and_mended(name: str) -> None:
    spoilt = Spoilt()
    byte = PLACES[name] % spoilt.frame.size
    spoilt.disk.flip(spoilt.segment.path, (spoilt.position + byte) * 8)
    assert not spoilt.is_sound()
    assert spoilt.wound == Wound(spoilt.segment.path, spoilt.position, spoilt.events[SPOILT])
    assert mend(spoilt.journal, spoilt.wound, spoilt.copy + spoilt.following, nothing) == (1, "")
    assert spoilt.is_sound()
    assert spoilt.segment.log.read(spoilt.position, spoilt.frame.size) == spoilt.copy
    spoilt.disk.crash()
    assert Journal(spoilt.disk, segment_bytes=10**9).tail.log.read(spoilt.position, len(spoilt.copy)) == spoilt.copy


def test_a_copy_that_was_not_blanked_does_not_bring_back_what_was() -> None:
    """Here the record was redacted before it rotted: its checksum is of the blanked one."""
    spoilt = Spoilt()
    frame = spoilt.frame
    blanked = encode_frame(
        frame.block.replace(b"7-1", b"   "), epoch=frame.epoch, count=frame.count, flushed_through=frame.flushed_through
    )
    spoilt.segment.log.write(blanked, spoilt.position)
    spoilt.disk.flip(spoilt.segment.path, (spoilt.position + HEADER_BYTES + 9) * 8)
    before = spoilt.segment.log.read(0, spoilt.segment.size)
    assert "blanked" in mend(spoilt.journal, spoilt.wound, spoilt.copy, nothing).reason
    assert spoilt.segment.log.read(0, spoilt.segment.size) == before
    assert mend(spoilt.journal, spoilt.wound, blanked, nothing) == (1, "")


@pytest.mark.parametrize("case", ["another", "shorter", "cut off", "nothing"])
def test_what_is_no_copy_of_this_record_changes_nothing(case: str) -> None:
    spoilt = Spoilt(HEADER_BYTES + 9)
    frame = spoilt.frame
    shorter = encode_frame(frame.block[:-4] + b"\n", epoch=1, count=frame.count, flushed_through=0)
    copies = {"another": spoilt.following, "shorter": shorter, "cut off": spoilt.copy[:-1], "nothing": b""}
    before = spoilt.segment.log.read(0, spoilt.segment.size)
    assert mend(spoilt.journal, spoilt.wound, copies[case], nothing).reason
    assert spoilt.segment.log.read(0, spoilt.segment.size) == before


def test_without_an_index_it_is_not_guessed_which_record_it_was() -> None:
    spoilt = Spoilt(HEADER_BYTES + 9)
    spoilt.segment.index.truncate(0)
    assert find_wound(spoilt.segment, 0) is None


def test_the_look_through_the_journal_names_the_record_and_goes_on_when_it_is_mended() -> None:
    """Two are damaged, in different segments."""
    checked = Checked()
    sound = {each.path: each.log.read(0, each.size) for each in checked.journal.segments}
    found: list[Wound] = []

    def mended() -> None:
        wound = checked.check.wound
        assert wound is not None and checked.counters.journal_damaged == 1
        found.append(wound)
        assert mend(checked.journal, wound, sound[wound.path][wound.position :], nothing) == (1, "")
        checked.check.mended()

    checked.check.when_found = mended
    checked.rot(0, 25_000)
    checked.rot(2, 99_000)
    checked.check.start()
    checked.scheduler.run_for(START_MS + 2 * AGAIN_MS + 60_000)
    assert [wound.event_id for wound in found] == [3, checked.journal.segments[2].first_event_id + 9]
    assert (checked.counters.journal_damaged, checked.counters.journal_mended) == (0, 2)
    assert checked.check.problem == ""
    assert {each.path: each.log.read(0, each.size) for each in checked.journal.segments} == sound
    assert checked.counters.journal_checked_bytes >= checked.journal.size
    checked.scheduler.close()


class Range(Spoilt):
    """A block that rotted as a whole: the end of one record, two more with their heads, and the head of a fourth."""

    def __init__(self, *, kinds: Sequence[Kind] = ()) -> None:
        super().__init__()
        for kind in kinds:
            self._change(kind)
        self.frames = [(at, frame) for at, frame in self.segment.scan() if isinstance(frame, Frame)]
        self.sound = self.segment.log.read(0, self.segment.size)
        self.first = len(self.frames) - 5 if kinds else SPOILT
        begin, end = self.frames[self.first][0] + HEADER_BYTES + 9, self.frames[self.first + 3][0] + HEADER_BYTES + 2
        self.segment.log.write(bytes(end - begin), begin)

    def _change(self, kind: Kind) -> None:
        batch = Batch(
            next_event_id=self.journal.last_event_id + 1, position=self.segment.size, epoch=1,
            flushed_through=self.journal.flushed_through, now_ms=1000,
        )  # fmt: skip
        batch.change(kind, b"t", b"of a change")
        self.journal.append(batch.frames(), batch.entries(), batch.last_event_id)

    @property
    def copies(self) -> bytes:
        return self.sound[self.frames[self.first][0] :]

    def known(self, topic: bytes, first: int, count: int) -> list[bytes]:
        """As the log of the topic has it."""
        frame = next(frame for _, frame in self.frames if frame.event_id == first)
        record = decode_block(frame.block)
        assert (record.topic, frame.count) == (topic, count)
        return messages_of(record, count)


def test_records_whose_heads_have_rotted_are_proved_by_the_index_and_their_topic() -> None:
    rotted = Range()
    assert mend(rotted.journal, rotted.wound, rotted.copies, rotted.known) == (4, "")
    assert rotted.segment.log.read(0, rotted.segment.size) == rotted.sound


def test_as_many_are_mended_as_came_and_the_next_look_finds_the_rest() -> None:
    rotted = Range()
    two = rotted.copies[: rotted.frames[SPOILT + 2][0] - rotted.frames[SPOILT][0] + 10]
    assert mend(rotted.journal, rotted.wound, two, rotted.known) == (2, "")
    assert rotted.wound.event_id == rotted.events[SPOILT + 2]
    rest = rotted.sound[rotted.wound.position :]
    assert mend(rotted.journal, rotted.wound, rest, rotted.known) == (2, "")
    assert rotted.is_sound()


def test_what_was_blanked_is_not_brought_back_where_the_head_has_rotted() -> None:
    """The topic's log was blanked with the journal: its messages are others than the copy's."""
    rotted = Range()

    def blanked(topic: bytes, first: int, count: int) -> list[bytes]:
        return [each.replace(b"9-1", b"   ") for each in rotted.known(topic, first, count)]

    mended = mend(rotted.journal, rotted.wound, rotted.copies, blanked)
    assert mended.records == 2 and "blanked" in mended.reason
    assert rotted.wound.event_id == rotted.events[SPOILT + 2]


@pytest.mark.parametrize("spoil", ["index", "topic"])
def test_without_the_index_or_the_topic_only_checksums_prove_a_copy(spoil: str) -> None:
    rotted = Range()
    if spoil == "index":
        event_id = rotted.events[SPOILT + 1]
        rotted.disk.flip(rotted.segment.index_path, ((event_id - 1) * ENTRY_BYTES + 21) * 8)
    mended = mend(rotted.journal, rotted.wound, rotted.copies, rotted.known if spoil == "index" else nothing)
    assert mended.records == 1 and mended.reason


@pytest.mark.parametrize(
    ("kind", "count"), [(Kind.POSITION, 4), (Kind.EPOCH, 4), (Kind.CANCEL, 4), (Kind.CREATE, 4), (Kind.DELAY, 1)]
)
def test_what_carries_nothing_of_users_needs_the_index_alone(kind: Kind, count: int) -> None:
    """What waits for its time does: nobody has another copy of it here."""
    rotted = Range(kinds=[kind] * 5)
    mended = mend(rotted.journal, rotted.wound, rotted.copies, nothing)
    assert (mended.records, mended.reason == "") == (count, count == 4)
