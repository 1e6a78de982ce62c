"""Read everything a queue has on disk, and say what is wrong with it.

The journal is checked frame by frame (checksum, text, no hole between event ids), its index entry by entry, every
topic log chunk by chunk, and the two against each other: each message that the journal has for a topic must be in that
topic's log. Nothing is changed; ``repair`` makes derived files again from the journal, ``cut_at`` gives up what follows
damage in the journal itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from pixiu.model.counted import counted
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.journal import segments_of
from pixiu.queue.storage.record import MESSAGE_KINDS, Damage, Kind, decode_block
from pixiu.queue.storage.recovery import whole_frame_after
from pixiu.queue.storage.segment import entries_of
from pixiu.queue.storage.topic_items import CHUNK, CHUNK_BYTES, items_of
from pixiu.queue.storage.topics import FOLDER as TOPICS_FOLDER
from pixiu.queue.storage.topics import topic_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.files import Files
    from pixiu.queue.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where."""

    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} byte {self.position}: {self.reason}"


@dataclass(slots=True)
class Tally:
    """How many messages, and the sum of their event ids: equal tallies, equal sets for all practical purposes."""

    count: int = 0
    total: int = 0
    first: int = 0

    def add(self, event_id: int) -> None:
        """Count one message."""
        if self.count == 0:
            self.first = event_id
        self.count += 1
        self.total += event_id


@dataclass(slots=True)
class Report:
    """What was read, and what is wrong."""

    segments: int = 0
    records: int = 0
    last_event_id: int = 0
    first_event_id: int = 0
    journal_messages: int = 0
    topics: int = 0
    topic_messages: int = 0
    bytes: int = 0
    unfinished_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Nothing wrong?"""
        return not self.faults


class Verifier:
    """One pass over a data directory."""

    def __init__(self, files: Files, advance: Callable[[int], object], *, has_indexes: bool = True) -> None:
        """Of a backup ``has_indexes`` is false: it has none of the journal's, and none is made."""
        self._files = files
        self._has_indexes = has_indexes
        self._advance = advance
        self.report = Report()
        self._published: dict[int, Tally] = {}
        self._topic_ids: dict[bytes, int] = {}

    def total_bytes(self) -> int:
        """How much there is to read, for a progress bar."""
        total = sum(segment.size for segment in self._segments())
        for folder in topic_folders(self._files):
            for name in self._files.names(folder):
                if name.endswith(".log"):
                    total += self._size(f"{folder}/{name}")
        return total

    def run(self) -> Report:
        """Check everything."""
        segments = self._segments()
        expected = 0
        for segment in segments:
            expected = self._check_segment(segment, expected, is_last=segment is segments[-1])
        for folder in topic_folders(self._files):
            self._check_topic(folder)
        for number, tally in self._published.items():
            folder = _folder_of(number)
            are = "is" if tally.count == 1 else "are"
            reason = f"{counted(tally.count, 'message')} of the journal {are} not in the topic's log"
            self._fault(f"{folder}", 0, reason)
        return self.report

    def _segments(self) -> list[Segment]:
        return segments_of(self._files)

    def _size(self, path: str) -> int:
        file = self._files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _fault(self, file: str, position: int, reason: str) -> None:
        self.report.faults.append(Fault(file, position, reason))

    def _check_segment(self, segment: Segment, expected: int, *, is_last: bool) -> int:
        """Every frame of one segment. Returns the event id that must come next."""
        report = self.report
        report.segments += 1
        first = expected or segment.first_event_id
        report.first_event_id = report.first_event_id or segment.first_event_id
        if expected and segment.first_event_id != expected:
            self._fault(segment.path, 0, f"begins with event {segment.first_event_id}, not {expected}")
        expected = segment.first_event_id
        end = 0
        for position, frame in segment.scan():
            if isinstance(frame, Damage):
                self._damage(segment, frame, expected, is_last=is_last)
                break
            try:
                record = decode_block(frame.block)
                if record.event_id != expected:
                    self._fault(segment.path, position, f"holds event {record.event_id} where {expected} should be")
                topic = self._topic_of(record.topic, record.kind, record.event_id)
                self._check_index(segment, entries_of(record, frame, position, topic), record.event_id)
            except ValueError as error:
                self._fault(segment.path, position, str(error))
                continue
            self._count(record.kind, record.topic, record.event_id, frame.count)
            expected = frame.last_event_id + 1
            report.records += 1
            report.last_event_id = expected - 1
            self._advance(frame.size)
            end = position + frame.size
        report.bytes += end
        segment.close()
        return max(expected, first)

    def _damage(self, segment: Segment, damage: Damage, expected: int, *, is_last: bool) -> None:
        """A frame that seems to go on beyond the end is an unfinished write, unless whole ones follow: then it rots."""
        if is_last and damage.reason == "cut off" and whole_frame_after(segment, damage.position + 1, expected) is None:
            self.report.unfinished_bytes = segment.size - damage.position
        else:
            self._fault(segment.path, damage.position, damage.reason)

    def _topic_of(self, name: bytes, kind: int, event_id: int) -> int:
        if kind == Kind.CREATE:
            self._topic_ids[name] = event_id
        return self._topic_ids.get(name, 0)

    def _check_index(self, segment: Segment, entries: bytes, event_id: int) -> None:
        """Compare an index with what it should say; the topic's number is left out where the journal began later."""
        if not self._has_indexes:
            return
        at = (event_id - segment.first_event_id) * ENTRY_BYTES
        found = segment.index.read(at, len(entries))
        if len(found) < len(entries):
            return  # a shorter index is made longer when it is needed
        if found[:36] != entries[:36] or found[44:ENTRY_BYTES] != entries[44:ENTRY_BYTES]:
            self._fault(segment.index_path, at, f"entry of event {event_id} is not what the journal says")

    def _count(self, kind: int, topic: bytes, event_id: int, count: int) -> None:
        number = self._topic_ids.get(topic, 0)
        if kind in MESSAGE_KINDS:
            self.report.journal_messages += count
            if number:
                tally = self._published.setdefault(number, Tally())
                for each in range(event_id, event_id + count):
                    tally.add(each)
        elif kind == Kind.DELETE:
            self._published.pop(number, None)
            self._topic_ids.pop(topic, None)

    def _check_topic(self, folder: str) -> None:
        number = int(folder.rpartition("/")[2])
        names = [name[:-4] for name in self._files.names(folder) if name.endswith(".log")]
        self.report.topics += 1
        tally = Tally()
        is_sound = True
        for name in sorted(names):
            is_sound &= self._check_topic_segment(f"{folder}/{name}", tally)
        self.report.topic_messages += tally.count
        wanted = self._published.pop(number, None)
        has_all = not names or int(min(names)) == 0
        if wanted is None or not is_sound or not has_all:
            return
        if (wanted.count, wanted.total) != (tally.count, tally.total):
            reason = f"has {counted(tally.count, 'message')}, the journal has {wanted.count} for it"
            self._fault(folder, 0, reason)

    def _check_topic_segment(self, path: str, tally: Tally) -> bool:
        log = self._files.open(f"{path}.log")
        index = self._files.open(f"{path}.idx", create=True)
        is_sound = True
        try:
            for at in range(index.size() // CHUNK_BYTES):
                fields = CHUNK.unpack(index.read(at * CHUNK_BYTES, CHUNK_BYTES))
                _, _, position, length, crc = fields
                data = log.read(position, length)
                self._advance(len(data))
                self.report.bytes += len(data)
                if len(data) != length or crc32(data) != crc:
                    self._fault(f"{path}.log", position, "checksum does not match")
                    is_sound = False
                    continue
                for item in items_of(data):
                    tally.add(item.event_id)
        finally:
            log.close()
            index.close()
        return is_sound


def _folder_of(number: int) -> str:
    return f"{TOPICS_FOLDER}/{number & 0xFF:02x}/{number >> 8 & 0xFF:02x}/{number}"
