"""Damaged records of the journal, written again with another replica's copies of them.

Followers append what they are sent unchanged, so the same event is the same bytes everywhere. But a replica may have
blanked what an erased user wrote where another has not yet. So a copy is taken only if it is proved to be what was
here:

- by the record's own checksum, if that is still here;
- where it is the checksum that rotted, by all the rest;
- where the head of a record and more rotted, by what was made of it: its lines in the index say everything but the
  content, and the topic's log has that, blanked if it was. Records that carry nothing of users need the index alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import CorruptData
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.record import HEADER, MESSAGE_KINDS, Damage, Frame, Kind, decode_block, read_frame
from pixiu.queue.storage.segment import entries_of, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.queue.storage.index import Entry
    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.segment import Segment

    Known = Callable[[bytes, int, int], list[bytes]]
    """The messages that the log of a topic has of so many events from this one on; none if it has not all of them."""

__all__ = ["Mended", "Wound", "find_wound", "mend"]

_COVERED_FROM = 8
"""The checksum covers what lies behind itself."""
_WITHOUT_CONTENT = frozenset({Kind.CREATE, Kind.DELETE, Kind.POSITION, Kind.CANCEL, Kind.EPOCH})
"""Nothing of these is ever blanked."""


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


class Mended(NamedTuple):
    """What became of some damaged records, one behind the other."""

    records: int
    """So many, from the first on, are whole now."""
    reason: str
    """Why no more were; empty if the next one is whole."""


def mend(journal: Journal, wound: Wound, copies: bytes, known: Known) -> Mended:
    """Write copies where the damage is, and flush them.

    ``copies`` begin with the record; what follows mends those behind it, up to the first that is whole. A crash
    meanwhile leaves damaged records.
    """
    segment = next((each for each in journal.segments if each.path == wound.path), None)
    if segment is None:
        return Mended(1, "")  # retention has removed it, or a new leader cut it off
    proved: list[bytes] = []
    position, event_id, reason = wound.position, wound.event_id, ""
    for frame, copy in _frames(copies):
        here = segment.log.read(position, frame.size)
        if proved and (position >= segment.size or isinstance(read_frame(here, 0), Frame)):
            break
        reason = _why_not(segment, position, event_id, frame, here, copy, known)
        if reason:
            break
        proved.append(copy)
        position, event_id = position + frame.size, event_id + frame.count
    if not proved:
        return Mended(0, reason or "the copy is not of this record")
    written = b"".join(proved)
    segment.log.write(written, wound.position)
    segment.log.flush()
    if segment.log.read(wound.position, len(written)) != written:
        return Mended(0, "the disk does not keep what is written")
    return Mended(len(proved), reason)


def _frames(copies: bytes) -> Iterator[tuple[Frame, bytes]]:
    """Each whole one, with its bytes."""
    at = 0
    while isinstance(frame := read_frame(copies, at), Frame):
        yield frame, copies[at : at + frame.size]
        at += frame.size


def _why_not(
    segment: Segment, position: int, event_id: int, frame: Frame, here: bytes, copy: bytes, known: Known
) -> str:
    """Why a copy is not to be written; empty if it is proved to be what was here."""
    if frame.event_id != event_id:
        return "the copy is not of this record"
    if len(here) != frame.size or not _ends_there(segment, position + frame.size, frame.last_event_id):
        return "the copy does not fit between its neighbours"
    is_proved = HEADER.unpack_from(here)[1] == HEADER.unpack_from(copy)[1]
    if is_proved or here[_COVERED_FROM:] == copy[_COVERED_FROM:]:
        return ""
    try:
        is_proved = _was_made_of(segment, position, frame, known)
    except (CorruptData, ValueError):
        is_proved = False
    return (
        ""
        if is_proved
        else "the checksum here is another one: the record was blanked at one end, or rotted at its head"
    )


def _ends_there(segment: Segment, end: int, last_event_id: int) -> bool:
    """Does the next record begin where this one would end?"""
    following = segment.entries(last_event_id, 1)
    return following[0].frame == end if following else end == segment.size


def _was_made_of(segment: Segment, position: int, frame: Frame, known: Known) -> bool:
    """Are the lines of the index, and what the topic's log has, made of this very record?"""
    record = decode_block(frame.block)
    lines = segment.index.read((record.event_id - segment.first_event_id) * ENTRY_BYTES, frame.count * ENTRY_BYTES)
    entries = segment.entries(record.event_id - 1, 1)
    if not entries or lines != entries_of(record, frame, position, entries[0].topic):
        return False
    if record.kind in MESSAGE_KINDS:
        return messages_of(record, frame.count) == known(record.topic, record.event_id, frame.count)
    return record.kind in _WITHOUT_CONTENT
