"""One topic's messages, stored as the bytes that its subscribers receive.

A segment file ``<number>.log`` is wire items back to back, nothing else, so reading is slicing::

    item := i64 time | i64 event_id | i64 file of the next | i64 position of the next | message

Items are appended in chunks, one per group commit; the sidecar ``<number>.idx`` has one 32-byte line per chunk::

    i64 first event_id | i64 last event_id | i64 position | u32 length | u32 crc

That is where checksums live and how an event id or a position is found in O(log n). Topic logs are derived: each
checkpoint stores the ``End`` that it flushed, and after a crash everything behind that is cut, whatever it looks like,
and made again from the journal. Segments are numbered from 0, not named by event id, because the wire's items name the
file of the next message before that message exists.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from pixiu.model.errors import CorruptData, Gone, NotFound
from pixiu.ports.files import File, Files
from pixiu.queue.storage.topic_items import CHUNK, CHUNK_BYTES, ITEM_HEADER_BYTES

WINDOW_BYTES = 128 * 1024
OPEN_SEGMENTS_MAX = 4
REMEDY = "stop the node and make it again from the journal: pixiu queue verify --repair --data DIR"

_ITEM = Struct("<qqqq")
_CONTENT = Struct("<I")
_EVENT_ID = Struct("<q")
_END = Struct("<qqqq")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One line of the sidecar."""

    first_event_id: int
    last_event_id: int
    position: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.position + self.length


class End(NamedTuple):
    """How far a log reaches: what a checkpoint has flushed of it."""

    number: int = 0
    size: int = 0
    chunks: int = 0
    last_event_id: int = 0

    def pack(self) -> bytes:
        """The stored form."""
        return _END.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "End":
        """Read ``pack`` back."""
        return cls(*_END.unpack(data))


class Window:
    """A checked stretch of one segment, ready to be sliced into pushes. Shared by all who read there."""

    __slots__ = (
        "__weakref__", "data", "file_number", "frames", "is_full", "next_file_number", "next_position", "starts",
    )  # fmt: skip

    def __init__(
        self,
        file_number: int,
        data: bytes,
        starts: Sequence[int],
        following: tuple[int, int],
        *,
        is_full: bool = False,
    ) -> None:
        self.is_full = is_full
        """As long as one read makes it: reading here again would not give more."""
        self.file_number = file_number
        self.data = data
        self.starts = starts
        """Position in the file of each item, and of the end: one more than there are items."""
        self.next_file_number, self.next_position = following
        self.frames: dict[tuple[int, int], bytes] = {}
        """Pushes made of this window, by (first item, count): made once, written to many."""

    @property
    def count(self) -> int:
        """How many items."""
        return len(self.starts) - 1

    def items(self, first: int, count: int) -> bytes:
        """The bytes of some items."""
        base = self.starts[0]
        return self.data[self.starts[first] - base : self.starts[first + count] - base]

    def event_id(self, item: int) -> int:
        """The event id of one item."""
        return int(_EVENT_ID.unpack_from(self.data, self.starts[item] - self.starts[0] + 8)[0])


class TopicLog:
    """The segments of one topic."""

    def __init__(self, files: Files, folder: str, *, segment_bytes: int, durable: End | None = None) -> None:
        """With ``durable``, what a checkpoint has flushed, anything behind that is cut; without, it is all believed."""
        self._files = files
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._open: dict[int, tuple[File, File]] = {}
        self._full_sizes: dict[int, int] = {}
        self.numbers = sorted(int(name[:-4]) for name in files.names(folder) if name.endswith(".log"))
        self.file_number = 0
        self.size = 0
        self._chunk_count = 0
        self.last_event_id = 0
        self.flushed = durable or End()
        if durable is not None:
            self._cut_to(durable)
        elif self.numbers:
            self._load_tail()
        for number, following in pairwise(self.numbers):  # retention removes the oldest only
            if following != number + 1:
                raise self._damaged(number + 1, "log", 0, "is missing")

    def _load_tail(self) -> None:
        self.file_number = self.numbers[-1]
        log, index = self._segment(self.file_number)
        self._chunk_count = index.size() // CHUNK_BYTES
        self.size = log.size()
        self.last_event_id = 0
        if self._chunk_count:
            last = self._chunk(self.file_number, self._chunk_count - 1)
            self.last_event_id = last.last_event_id
            self.size = last.end
        elif len(self.numbers) > 1:
            before = self.numbers[-2]
            self.last_event_id = self._chunk(before, self._chunks_in(before) - 1).last_event_id
        self._roll_if_full()

    def path(self, number: int, ending: str = "log") -> str:
        """The path of one segment file."""
        return f"{self._folder}/{number:010d}.{ending}"

    def _damaged(self, number: int, ending: str, position: int, reason: str) -> CorruptData:
        """The error for damage here: file, byte, and a remedy."""
        return CorruptData(f"{self.path(number, ending)} byte {position}: {reason}; {REMEDY}")

    def _segment(self, number: int, *, create: bool = False) -> tuple[File, File]:
        pair = self._open.get(number)
        if pair is None:
            if len(self._open) >= OPEN_SEGMENTS_MAX:
                self._close_segment(next(n for n in self._open if n != self.file_number))
            try:
                log = self._files.open(self.path(number), create=create)
            except FileNotFoundError:
                raise Gone("can't find event id,because file not exist") from None
            try:
                pair = log, self._files.open(self.path(number, "idx"), create=True)
            except OSError:
                log.close()
                raise
            self._open[number] = pair
        return pair

    def _close_segment(self, number: int) -> None:
        for file in self._open.pop(number, ()):
            file.close()

    def _chunk(self, number: int, at: int) -> Chunk:
        data = self._segment(number)[1].read(at * CHUNK_BYTES, CHUNK_BYTES)
        if len(data) != CHUNK_BYTES:
            raise self._damaged(number, "idx", at * CHUNK_BYTES, "ends here")
        return self._fitting(number, at, Chunk(*CHUNK.unpack(data)))

    def _fitting(self, number: int, at: int, chunk: Chunk) -> Chunk:
        """The same chunk, if it can be true at all."""
        if not 0 <= chunk.position <= chunk.end <= self.size_of(number):
            raise self._damaged(number, "idx", at * CHUNK_BYTES, "names bytes that are not there")
        return chunk

    def _chunks_in(self, number: int) -> int:
        if number == self.file_number:
            return self._chunk_count
        return self._segment(number)[1].size() // CHUNK_BYTES

    def append(self, first_event_id: int, messages: Sequence[bytes], time_ms: int) -> Window:
        """Store messages with consecutive event ids. On ``OSError`` nothing counts as stored."""
        if not self.numbers:
            self._files.make_folder(self._folder)
        number = self.file_number
        log, index = self._segment(number, create=True)
        if not self.numbers or self.numbers[-1] != number:
            self.numbers.append(number)
        start = self.size
        count = len(messages)
        nexts = list(accumulate(map(ITEM_HEADER_BYTES.__add__, map(len, messages)), initial=start))
        end = nexts[-1]
        is_full = end >= self._segment_bytes
        event_ids = range(first_event_id, first_event_id + count)
        pieces: list[bytes] = [b""] * (2 * count)
        pieces[0::2] = map(_ITEM.pack, repeat(time_ms), event_ids, repeat(number), nexts[1:])
        pieces[1::2] = messages
        data = b"".join(pieces)
        if is_full:
            at = nexts[-2] - start
            head = _ITEM.pack(time_ms, first_event_id + count - 1, number + 1, 0)
            data = b"".join((data[:at], head, data[at + ITEM_HEADER_BYTES :]))
        last_event_id = first_event_id + count - 1
        log.write(data, start)
        if end - start <= WINDOW_BYTES:
            lines = CHUNK.pack(first_event_id, last_event_id, start, end - start, crc32(data))
        else:
            lines = _chunk_lines(first_event_id, nexts, data)
        index.write(lines, self._chunk_count * CHUNK_BYTES)
        self.size = end
        self._chunk_count += len(lines) // CHUNK_BYTES
        self.last_event_id = last_event_id
        self._roll_if_full()
        return Window(number, data, nexts, (self.file_number, self.size))

    def _roll_if_full(self) -> None:
        if self.size >= self._segment_bytes:
            self.file_number += 1
            self.size = 0
            self._chunk_count = 0

    def size_of(self, number: int, ending: str = "log") -> int:
        """Bytes of one segment file that count: what a failed write may have left behind does not."""
        if number == self.file_number:
            return self.size if ending == "log" else self._chunk_count * CHUNK_BYTES
        return self._segment(number)[0 if ending == "log" else 1].size()

    @property
    def total_size(self) -> int:
        """Bytes of all its segments. Those that are full keep their size, so each is asked once."""
        sizes = self._full_sizes
        for number in self.numbers:
            if number < self.file_number and number not in sizes:
                sizes[number] = self.size_of(number)
        return sum(sizes.get(number, 0) for number in self.numbers) + (self.size if self.numbers else 0)

    def before_last(self, count: int) -> int:
        """The event id behind which the last ``count`` messages lie."""
        for number in reversed(self.numbers):
            for at in reversed(range(self._chunks_in(number))):
                chunk = self._chunk(number, at)
                if chunk.last_event_id - chunk.first_event_id + 1 >= count:
                    return chunk.last_event_id - count
                count -= chunk.last_event_id - chunk.first_event_id + 1
        return 0

    def flushable(self) -> list[str]:
        """Paths that may hold what is not flushed: segments since ``flushed``, and the names that lead to them."""
        numbers = [number for number in self.numbers if number >= self.flushed.number]
        folders = list(accumulate(self._folder.split("/"), "{}/{}".format))
        return [self.path(number, ending) for number in numbers for ending in ("log", "idx")] + folders[::-1]

    @property
    def reach(self) -> End:
        """How far it is now."""
        return End(self.file_number, self.size, self._chunk_count, self.last_event_id)

    @property
    def start(self) -> tuple[int, int]:
        """Where the oldest kept message is, or will be."""
        return (self.numbers[0], 0) if self.numbers else (0, 0)

    @property
    def end(self) -> tuple[int, int]:
        """Where the next message will be."""
        return self.file_number, self.size

    def read(self, number: int, position: int) -> Window | None:
        """A window that begins with the item at ``position``; None at the end. Never serves a damaged byte."""
        if (number, position) == self.end:
            return None
        at = self._last_at_most(number, 2, position)
        chunks = self._chunks(number, at)
        if not chunks or (position >= chunks[0].end and at + 1 == self._chunks_in(number)):
            following = self._following(number)
            return None if following is None else self.read(following, 0)
        if not chunks[0].position <= position < chunks[0].end:
            raise self._damaged(number, "idx", at * CHUNK_BYTES, f"does not cover byte {position} of its log")
        begin, end = chunks[0].position, chunks[-1].end
        data = self._segment(number)[0].read(begin, end - begin)
        for chunk in chunks:
            self._check(number, data, chunk, begin)
        starts = _walk(data, position - begin, begin)
        if starts[-1] != end:
            raise self._damaged(number, "log", starts[-1], "items do not fill their chunk")
        after = self._place(number, end)
        is_full = at + len(chunks) < self._chunks_in(number) or number != self.file_number
        return Window(number, data[position - begin :], starts, after, is_full=is_full)

    def _chunks(self, number: int, at: int) -> list[Chunk]:
        """Chunks from the ``at``-th on: as many as fill a window, at least one."""
        room = self._chunks_in(number) - at
        data = self._segment(number)[1].read(at * CHUNK_BYTES, min(room, 512) * CHUNK_BYTES)
        chunks: list[Chunk] = []
        total = 0
        for fields in CHUNK.iter_unpack(data[: len(data) // CHUNK_BYTES * CHUNK_BYTES]):
            chunk = self._fitting(number, at + len(chunks), Chunk(*fields))
            total += chunk.length
            if chunks and total > WINDOW_BYTES:
                break
            chunks.append(chunk)
        return chunks

    def _check(self, number: int, data: bytes, chunk: Chunk, begin: int) -> None:
        part = memoryview(data)[chunk.position - begin : chunk.end - begin]
        if len(part) != chunk.length or crc32(part) != chunk.crc:
            raise self._damaged(number, "log", chunk.position, "checksum does not match")

    def _following(self, number: int) -> int | None:
        """The next segment number that exists or is being written; None if ``number`` is the last."""
        for candidate in self.numbers:
            if candidate > number:
                return candidate
        return self.file_number if self.file_number > number else None

    def _place(self, number: int, position: int) -> tuple[int, int]:
        """Where reading goes on at this position: in the next segment, if this one is finished and ends here."""
        following = self._following(number)
        if following is None or position < self._chunk(number, self._chunks_in(number) - 1).end:
            return number, position
        return following, 0

    def _last_at_most(self, number: int, field: int, value: int) -> int:
        """The last chunk whose field (0 first event_id, 2 position) is at most ``value``; 0 if none is."""
        low, high = 0, self._chunks_in(number)
        index = self._segment(number)[1]
        while low < high:
            middle = (low + high) // 2
            entry = CHUNK.unpack(index.read(middle * CHUNK_BYTES, CHUNK_BYTES))
            if entry[field] <= value:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def find(self, event_id: int) -> tuple[int, int]:
        """Where the message behind ``event_id`` is. The id must be one of this topic: ``NotFound``, ``Gone``."""
        if event_id == 0 or not self.numbers:
            return self.start
        if event_id > self.last_event_id:
            raise NotFound("EOF")
        number = self._segment_of(event_id)
        at = self._last_at_most(number, 0, event_id)
        chunk = self._chunk(number, at)
        data = self._segment(number)[0].read(chunk.position, chunk.length)
        self._check(number, data, chunk, chunk.position)
        starts = _walk(data, 0, chunk.position)
        for start, following in pairwise(starts):
            if _EVENT_ID.unpack_from(data, start - chunk.position + 8)[0] == event_id:
                return self._place(number, following)
        raise NotFound("EOF")

    def find_after(self, event_id: int) -> tuple[int, int]:
        """Where the first message behind ``event_id`` is, whether or not that id is one of this topic."""
        if event_id >= self.last_event_id:
            return self.end
        if not self.numbers or event_id < self._chunk(self.numbers[0], 0).first_event_id:
            return self.start
        number = self._segment_of(event_id)
        at = self._last_at_most(number, 0, event_id)
        chunk = self._chunk(number, at)
        if event_id >= chunk.last_event_id:
            return self._place(number, chunk.end)
        data = self._segment(number)[0].read(chunk.position, chunk.length)
        self._check(number, data, chunk, chunk.position)
        for start in _walk(data, 0, chunk.position)[:-1]:
            if _EVENT_ID.unpack_from(data, start - chunk.position + 8)[0] > event_id:
                return number, start
        raise self._damaged(number, "idx", at * CHUNK_BYTES, "names an event its log does not have")

    def _segment_of(self, event_id: int) -> int:
        found = -1
        for number in self.numbers:
            if self._chunks_in(number) and self._chunk(number, 0).first_event_id <= event_id:
                found = number
            else:
                break
        if found < 0:
            if self.numbers[0] > 0:
                raise Gone("can't find event id,because file not exist")
            raise NotFound("can't find event id")
        return found

    def find_time(self, time_ms: int) -> tuple[int, int]:
        """Where the first message written at or after ``time_ms`` is; times rise as far as the clock did."""
        number = self.start[0]
        for candidate in self.numbers:
            if self._chunks_in(candidate) and self._time_of(candidate, 0) < time_ms:
                number = candidate
        low, high = 0, self._chunks_in(number) if number in self.numbers else 0
        while low < high:
            middle = (low + high) // 2
            if self._time_of(number, middle) < time_ms:
                low = middle + 1
            else:
                high = middle
        place = (number, self._chunk(number, low - 1).position) if low else (number, 0)
        while (window := self.read(*place)) is not None:
            for start in window.starts[:-1]:
                if _EVENT_ID.unpack_from(window.data, start - window.starts[0])[0] >= time_ms:
                    return window.file_number, start
            place = window.next_file_number, window.next_position
        return self.end

    def _time_of(self, number: int, at: int) -> int:
        """When the first message of a chunk was written."""
        data = self._segment(number)[0].read(self._chunk(number, at).position, 8)
        return int(_EVENT_ID.unpack(data)[0])

    def _cut_to(self, end: End) -> None:
        """After a start: forget what no checkpoint has flushed. Raises ``CorruptData`` if there is less than that."""
        while self.numbers and self.numbers[-1] > end.number:
            number = self.numbers.pop()
            self._files.remove(self.path(number))
            self._files.remove(self.path(number, "idx"))
        if self.numbers and self.numbers[-1] == end.number:
            log, index = self._segment(end.number)
            for file, size, ending in ((log, end.size, "log"), (index, end.chunks * CHUNK_BYTES, "idx")):
                if file.size() < size:
                    reason = f"ends here, although {size} bytes of it were flushed"
                    raise self._damaged(end.number, ending, file.size(), reason)
                file.truncate(size)
        elif end.size:
            raise self._damaged(end.number, "log", 0, f"is missing, although {end.size} bytes of it were flushed")
        self.file_number, self.size, self._chunk_count, self.last_event_id = end
        self._roll_if_full()

    def drop_oldest(self) -> bool:
        """Remove the oldest segment unless it is the last. True if one went."""
        if len(self.numbers) < 2:
            return False
        number = self.numbers.pop(0)
        self._close_segment(number)
        self._files.remove(self.path(number))
        self._files.remove(self.path(number, "idx"))
        return True

    def close(self) -> None:
        """Give descriptors back; the next use opens them again."""
        for number in list(self._open):
            self._close_segment(number)


def _chunk_lines(first_event_id: int, nexts: Sequence[int], data: bytes) -> bytes:
    """Sidecar lines for a long append: each covers about a window, so that no reader has to take in all of it."""
    lines = []
    view = memoryview(data)
    first = 0
    while first < len(nexts) - 1:
        end = max(bisect_right(nexts, nexts[first] + WINDOW_BYTES) - 1, first + 1)
        part = view[nexts[first] - nexts[0] : nexts[end] - nexts[0]]
        ids = first_event_id + first, first_event_id + end - 1
        lines.append(CHUNK.pack(*ids, nexts[first], len(part), crc32(part)))
        first = end
    return b"".join(lines)


def _walk(data: bytes, offset: int, base: int) -> list[int]:
    """Positions of the items from ``offset`` on, and of the end; ``base`` is the position of ``data`` in the file."""
    starts = [base + offset]
    end = len(data)
    unpack = _CONTENT.unpack_from
    while offset + ITEM_HEADER_BYTES + 8 <= end:
        offset += ITEM_HEADER_BYTES + 8 + unpack(data, offset + ITEM_HEADER_BYTES)[0]
        starts.append(base + offset)
    return starts
