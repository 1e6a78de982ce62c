"""A damaged record of the journal, written again with another replica's copy of it.

Followers append what they are sent unchanged, so the same event is the same bytes everywhere. But a replica may have
blanked what an erased user wrote where another has not yet. So a copy is taken only if the record's own checksum, which
is still here, proves it to be what was here; or, where it is the checksum that rotted, if all the rest is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.record import HEADER, Damage, Frame, read_frame

if TYPE_CHECKING:
    from pixiu.queue.storage.index import Entry
    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.segment import Segment

__all__ = ["Wound", "find_wound", "mend"]

_COVERED_FROM = 8
"""The checksum covers what lies behind itself."""


@dataclass(frozen=True, slots=True)
class Wound:
    """One damaged record: where it begins, and its first event."""

    path: str
    position: int
    event_id: int


def find_wound(segment: Segment, position: int) -> Wound | None:
    """The first damaged record at or behind a place where one begins; None if the index does not say which it is."""
    for at, frame in segment.scan(position):
        if isinstance(frame, Damage):
            entry = _first_entry_at(segment, at)
            return None if entry is None else Wound(segment.path, at, entry.event_id)
    return None


def _first_entry_at(segment: Segment, position: int) -> Entry | None:
    """The index entry of the record that begins here, by halves: places rise with events."""
    low, high = 0, segment.index.size() // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if _entry(segment, middle).frame < position:
            low = middle + 1
        else:
            high = middle
    found = segment.entries(segment.first_event_id + low - 1, 1)
    fits = bool(found) and found[0].frame == position and found[0].event_id == segment.first_event_id + low
    return found[0] if fits else None


def _entry(segment: Segment, number: int) -> Entry:
    return segment.entries(segment.first_event_id + number - 1, 1)[0]


def mend(journal: Journal, wound: Wound, copy: bytes) -> str:
    """Write a copy where the damage is, and flush it. Returns why not; empty if the record is whole now.

    ``copy`` begins with the record; what follows does not matter. A crash meanwhile leaves a damaged record.
    """
    segment = next((each for each in journal.segments if each.path == wound.path), None)
    if segment is None:
        return ""  # retention has removed it, or a new leader cut it off
    frame = read_frame(copy, 0)
    if not isinstance(frame, Frame) or frame.event_id != wound.event_id:
        return "the copy is not of this record"
    copy = copy[: frame.size]
    here = segment.log.read(wound.position, frame.size)
    if not _ends_there(segment, wound, frame) or len(here) != frame.size:
        return "the copy does not fit between its neighbours"
    is_proved = HEADER.unpack_from(here)[1] == HEADER.unpack_from(copy)[1]
    if not is_proved and here[_COVERED_FROM:] != copy[_COVERED_FROM:]:
        return "the checksum here is another one: the record was blanked at one end, or its head is damaged"
    segment.log.write(copy, wound.position)
    segment.log.flush()
    return "" if segment.log.read(wound.position, frame.size) == copy else "the disk does not keep what is written"


def _ends_there(segment: Segment, wound: Wound, frame: Frame) -> bool:
    """Does the next record begin where this one would end?"""
    end = wound.position + frame.size
    following = segment.entries(frame.last_event_id, 1)
    return following[0].frame == end if following else end == segment.size
