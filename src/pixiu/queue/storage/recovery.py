"""What to believe after a crash.

The journal is the truth; topic logs and the store are derived. Recovery finds where the journal really ends, then
replays what the last checkpoint does not cover. It never throws away what may have been acknowledged:

- zeros at the very end are no records, and are cut: they were laid ahead of the end, for writes that never came;
- an unfinished write at the very end is cut: nothing in it was ever answered;
- damage with a later frame that says "everything through here was on disk" is rot, not an unfinished write: the queue
  refuses to start and names file and byte, because starting would lose acknowledged messages in silence.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.model.errors import CorruptData
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.record import HEADER, HEADER_BYTES, Damage, Frame, read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.segment import Segment

log = logging.getLogger(__name__)

SEARCH_BYTES = 4 * 2**20
OVERLAP_BYTES = 256
LINE_OFFSET = HEADER_BYTES + 4
_LINE = re.compile(rb"\d{1,19}\t\d{1,3}\t\d{1,19}\t\d{1,19}\t[^\t\n]{0,128}\t\d{1,10}\n")
"""How every block's text begins: cheap to look for, and then checked by its checksum."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery found."""

    last_event_id: int
    replayed_from: int
    cut_bytes: int


def find_end(journal: Journal, applied: int, flushed: int = 0, *, is_copy: bool = False) -> Recovered:
    """Settle where the journal ends.

    ``applied`` is the event id that the last checkpoint covers, ``flushed`` the last that the store knows to have been
    on disk: if the journal ends before it, rot has taken the end. Frames of a copy carry their leader's marks, which
    say nothing of this disk: a damaged end is cut, and copied again.
    """
    flushed = max(applied, flushed)
    if journal.is_empty:
        if flushed:
            raise CorruptData(f"the store knows event {flushed}, but the journal is empty; restore it from a backup")
        return Recovered(0, 0, 0)
    if applied and applied < journal.first_event_id - 1:
        raise CorruptData(
            f"the checkpoint is at event {applied}, but the journal begins with {journal.first_event_id}; "
            "restore from a backup, or copy from a follower"
        )
    tail = journal.tail
    position, expected = 0, tail.first_event_id
    if applied >= tail.first_event_id:
        position, expected = _resume_at(tail, applied)
    damage: Damage | None = None
    end = position
    for at, frame in tail.scan(position):
        if isinstance(frame, Damage):
            damage = frame
            break
        found = frame.event_id
        if found != expected:
            damage = Damage(at, f"holds event {found} where {expected} should be")
            break
        expected += frame.count
        end = at + frame.size
    cut = tail.size - end
    if damage is not None:
        if not is_copy:
            _refuse_rot(tail, damage, expected)
        log.warning("unfinished write cut off", extra={"file": tail.path, "position": end, "bytes": cut})
    if flushed > expected - 1:
        raise CorruptData(
            f"{tail.path} byte {end}: events {expected} to {flushed} were on disk and are gone; "
            "restore from a backup, or copy from a follower"
        )
    tail.last_event_id = expected - 1
    if tail.log.size() > end:
        if not cut:
            log.info("zeros ahead of the end cut off", extra={"file": tail.path, "position": end})
        tail.log.truncate(end)
        tail.size = end
    if expected - 1 > applied or cut:
        _make_durable(tail, position)
    _trim_index(tail, max(applied, tail.first_event_id - 1))
    journal.flushed_through = expected - 1
    return Recovered(expected - 1, applied, cut)


def _make_durable(tail: Segment, position: int) -> None:
    """What a process left in the page cache counts as on disk from here on, so put it there.

    It is written again first: after a failed flush the system may hold bytes that it takes for flushed and never
    writes.
    """
    for at in range(position, tail.size, SEARCH_BYTES):
        tail.log.write(tail.log.read(at, min(SEARCH_BYTES, tail.size - at)), at)
    tail.flush()


def _resume_at(tail: Segment, applied: int) -> tuple[int, int]:
    """Begin with the record of ``applied``: its position, and the event id that it begins with."""
    tail.last_event_id = applied
    try:
        entry = tail.entry(applied)
        frame = tail.frame_at(entry.frame)
        if frame.event_id <= applied <= frame.last_event_id:
            return entry.frame, frame.event_id
    except CorruptData:
        pass
    log.warning("index is stale, reading the whole segment", extra={"file": tail.path})
    tail.rebuild_index()
    return 0, tail.first_event_id


def _refuse_rot(tail: Segment, damage: Damage, expected: int) -> None:
    """Raise if a whole frame behind the damage proves that the damaged bytes had been flushed."""
    witness = whole_frame_after(tail, damage.position + 1, expected)
    if witness is not None and witness.flushed_through >= expected:
        raise CorruptData(
            f"{tail.path} byte {damage.position}: {damage.reason}; event {expected} was on disk and is damaged. "
            "Restore from a backup, copy from a follower, or see what can be mended and what would be given up: "
            "pixiu queue verify --data DIR"
        )


def whole_frame_after(tail: Segment, position: int, expected: int) -> Frame | None:
    """The last whole frame that can be found behind ``position``: the best witness of what had been flushed."""
    witness: Frame | None = None
    for _, frame in whole_frames_after(tail, position):
        witness = frame if frame.event_id > expected else witness
    return witness


def whole_frames_after(tail: Segment, position: int) -> Iterator[tuple[int, Frame]]:
    """Every whole frame that can be found behind ``position``, with its place, whatever lies between them."""
    behind = 0
    while position < tail.size:
        buffer = tail.log.read(position, SEARCH_BYTES + OVERLAP_BYTES)
        for match in _LINE.finditer(buffer):
            at = position + match.start() - LINE_OFFSET
            if at < behind:
                continue  # within a frame that is whole: a message may hold anything, also a frame
            head = tail.log.read(at, HEADER_BYTES)
            if len(head) == HEADER_BYTES and 0 < HEADER.unpack(head)[0] <= tail.size - at:
                frame = read_frame(tail.log.read(at, HEADER_BYTES + HEADER.unpack(head)[0]), 0)
                if isinstance(frame, Frame):
                    behind = at + frame.size
                    yield at, frame
        position += SEARCH_BYTES


def _trim_index(tail: Segment, known: int) -> None:
    """Keep entries that the checkpoint covers; replay writes the rest again."""
    size = (known + 1 - tail.first_event_id) * ENTRY_BYTES
    if tail.index.size() < size:
        tail.rebuild_index()
    tail.index.truncate(size)
