"""The journal: the queue's one global log. Order, recovery and replication all come from it.

Segments in order, the last one open for appending. The writer builds frames and entries for the position that
``begin`` gives it, then ``append`` writes them with one call each, and ``flush`` makes them durable. A segment is
cut to what was written to it and flushed before the next one is created, so only the last segment can have an
unfinished tail, or zeros behind its end.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator

from pixiu.model.errors import Gone
from pixiu.ports.files import Files
from pixiu.queue.storage.index import Entry
from pixiu.queue.storage.record import Damage, Frame
from pixiu.queue.storage.segment import Segment

log = logging.getLogger(__name__)

FOLDER = "queue/journal"


def segments_of(files: Files) -> list[Segment]:
    """Every segment on disk, oldest first."""
    firsts = sorted(int(name[:-4]) for name in files.names(FOLDER) if name.endswith(".log"))
    return [Segment(files, FOLDER, first, is_last=first == firsts[-1]) for first in firsts]


class Journal:
    """All segments of one queue."""

    def __init__(self, files: Files, *, segment_bytes: int) -> None:
        self._files = files
        self._segment_bytes = segment_bytes
        files.make_folder(FOLDER)
        for folder in ("", "queue", FOLDER):  # a file is only as durable as the names that lead to it
            files.flush_folder(folder)
        self.segments = segments_of(files)
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            segment.last_event_id = following.first_event_id - 1
        self.flushed_through = 0
        self.is_dirty = False
        self.is_torn = False
        """Did a failed write leave something behind that could not be cut away?"""
        self.appended_hook: Callable[[], object] | None = None
        """Whoever lays zeros ahead of the end: told that it has moved."""

    @property
    def is_empty(self) -> bool:
        """Has nothing ever been written here?"""
        return not self.segments

    @property
    def tail(self) -> Segment:
        """The segment that appends go to."""
        return self.segments[-1]

    @property
    def last_event_id(self) -> int:
        """The newest event id, 0 when there is none."""
        return self.segments[-1].last_event_id if self.segments else 0

    @property
    def first_event_id(self) -> int:
        """The oldest event id that is still here, or the one that will come first."""
        return self.segments[0].first_event_id if self.segments else 1

    @property
    def size(self) -> int:
        """Bytes of frames in all segments."""
        return sum(segment.size for segment in self.segments)

    def begin(self, next_event_id: int) -> int:
        """Make ready to append ``next_event_id``; returns the position it will have. Rolls when the segment is full."""
        if not self.segments or self.is_full:
            if self.segments:
                self.tail.cut_zeros()
                self.tail.flush()
                self.tail.index.flush()
                self.flushed_through = self.tail.last_event_id
            segment = Segment(self._files, FOLDER, next_event_id, create=True)
            try:
                self._files.flush_folder(FOLDER)
            except OSError:
                segment.remove()
                raise
            self.segments.append(segment)
        return self.tail.size

    def probe(self, next_event_id: int) -> None:
        """Raise ``OSError`` unless the journal can be written now. Changes nothing that a reader sees."""
        self.begin(next_event_id)
        self.tail.probe()

    @property
    def is_full(self) -> bool:
        """Will the next append begin a new segment?"""
        return bool(self.segments) and self.tail.size >= self._segment_bytes

    def append(self, frames: bytes, entries: bytes, last_event_id: int) -> None:
        """Write whole frames at the position that ``begin`` gave; cut back and raise if that fails."""
        tail = self.tail
        size, last = tail.size, tail.last_event_id
        try:
            tail.append(frames, entries, last_event_id)
        except OSError:
            self.is_torn = True
            tail.truncate(size, last)
            tail.flush()  # or a power cut could bring back what was refused
            self.is_torn = False
            raise
        self.is_dirty = True
        if self.appended_hook is not None:
            self.appended_hook()

    def flush(self) -> None:
        """Return when everything appended is on disk."""
        through = self.last_event_id
        if self.segments:
            self.tail.flush()
        self.flushed_through = through
        self.is_dirty = False

    def flush_ended(self, through: int) -> None:
        """A flush of the tail that ran beside the loop has ended; it covered everything through here."""
        self.flushed_through = max(self.flushed_through, through)
        self.is_dirty = self.last_event_id > through

    def give_back(self) -> None:
        """The disk is almost full, and zeros lie ahead of the end: whoever else writes needs the room more."""
        try:
            if self.segments and self.tail.filled_bytes:
                self.tail.cut_zeros()
        except OSError as error:
            log.warning("cannot give room back", extra={"reason": str(error)})

    def segment_of(self, event_id: int) -> Segment:
        """The segment that holds ``event_id``. Raises ``Gone`` when it is not here (any more)."""
        at = bisect_right(self.segments, event_id, key=lambda segment: segment.first_event_id) - 1
        if at < 0 or event_id > self.segments[at].last_event_id:
            raise Gone(f"event {event_id} is not in the journal ({self.first_event_id} to {self.last_event_id})")
        return self.segments[at]

    def entry(self, event_id: int) -> Entry:
        """Where ``event_id`` is."""
        return self.segment_of(event_id).entry(event_id)

    def record_after(self, event_id: int) -> tuple[Segment, int] | None:
        """Where the first record behind the record of ``event_id`` begins; None at the end. 0 means from the start.

        An id inside a record of several counts as that whole record: a follower never holds half of one.
        """
        if event_id == 0 or event_id == self.first_event_id - 1:
            segment, position = (self.segments[0], 0) if self.segments else (None, 0)
        else:
            segment = self.segment_of(event_id)
            position = segment.entry(event_id).frame
            position += segment.frame_at(position).size
        if segment is None:
            return None
        if position >= segment.size:
            following = self.segments.index(segment) + 1
            if following == len(self.segments) or self.segments[following].size == 0:
                return None
            return self.segments[following], 0
        return segment, position

    def frame_of(self, event_id: int) -> Frame:
        """The whole record that ``event_id`` belongs to."""
        segment = self.segment_of(event_id)
        return segment.frame_at(segment.entry(event_id).frame)

    def scan_after(self, event_id: int) -> Iterator[tuple[Segment, int, Frame]]:
        """Every frame behind ``event_id``, oldest first. Raises ``CorruptData`` at damage."""
        start = self.record_after(event_id)
        if start is None:
            return
        segment, position = start
        for each in self.segments[self.segments.index(segment) :]:
            for at, frame in each.scan(position):
                if isinstance(frame, Damage):
                    raise each.damaged(frame.position, frame.reason)
                yield each, at, frame
            position = 0

    def truncate_after(self, event_id: int) -> None:
        """Forget every record behind the one of ``event_id``; newest segment first, so a crash leaves a prefix."""
        while self.segments and self.segments[-1].first_event_id > max(event_id, self.first_event_id - 1):
            if len(self.segments) == 1:
                self.tail.truncate(0, self.tail.first_event_id - 1)
                break
            self.segments.pop().remove()
        if self.segments and self.tail.last_event_id > event_id:
            start = self.record_after(event_id)
            if start is not None:
                self.tail.truncate(start[1], event_id)
        self.flushed_through = min(self.flushed_through, event_id)
        if self.segments:
            self.tail.flush()
        self._files.flush_folder(FOLDER)

    def drop_through(self, event_id: int) -> int:
        """Remove segments that hold nothing behind ``event_id``, never the last one. Returns how many."""
        dropped = 0
        while len(self.segments) > 1 and self.segments[0].last_event_id <= event_id:
            self.segments.pop(0).remove()
            dropped += 1
        return dropped

    def close(self) -> None:
        """Flush and let go."""
        if self.segments:
            self.tail.cut_zeros()
            self.flush()
            self.tail.index.flush()
        for segment in self.segments:
            segment.close()
