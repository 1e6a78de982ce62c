"""Slices of the journal as Arrow batches, without a loop over messages.

The index says where each message lies; numpy gathers the few lengths that differ from message to message; Arrow takes
keys and bodies out of the mapped file by offsets. Only a message with headers of its own is looked at one by one.

With all columns, and for the table of messages, every frame is checked against its CRC, wanted or not, and each message
against its place in the index: what does not fit raises ``CorruptData`` with file and byte. Other tables check the
frames that they take rows from. With ``HEADER`` columns the payload is not read, so
neither is its checksum.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from pixiu.machines.queue_wire.commands import HEADER_KEY, HEADER_MESSAGE_ID, MESSAGE_HEADER_BYTES
from pixiu.model.errors import CorruptData
from pixiu.pipeline.records.schema import SCHEMAS
from pixiu.pipeline.records.unfold import Records, unfold
from pixiu.pipeline.records.walk import PADDING
from pixiu.pipeline.source.schema import ENTRY, FULL, HEADER
from pixiu.ports.log import MAIN
from pixiu.queue.storage.record import HEADER as FRAME_HEADER
from pixiu.queue.storage.record import HEADER_BYTES, MESSAGE_KINDS, Kind
from pixiu.queue.storage.redact import INTENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.source.journal import Slice

__all__ = ["BATCH_ROWS", "Wanted", "decode", "decode_lines", "records_of", "records_of_lines"]

BATCH_ROWS = 8192
BATCH_BYTES_MAX = 64 * 2**20
"""A batch ends when it has this many rows, or when large messages make it this long."""

REDACTION_LOOKS, REDACTION_LOOK_SECONDS = 200, 0.05
"""How long a frame that a redaction is overwriting is waited for."""

_EIGHT = np.arange(8)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_KEY_LENGTH_AT = MESSAGE_HEADER_BYTES + 4 + len(HEADER_MESSAGE_ID) + 4 + 8 + 4 + len(HEADER_KEY)
_KEY_AT = _KEY_LENGTH_AT + 4
_IS_MESSAGE = np.isin(np.arange(256), sorted(MESSAGE_KINDS))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows and columns."""

    is_full: bool = True
    topics: frozenset[str] | None = None
    """None is all of them."""
    written_from_ms: int = 0
    table: str | None = None
    """Not the records themselves, but the rows of this table that they become (pixiu.pipeline.records)."""

    @classmethod
    def rows_of(cls, table: str, written_from_ms: int = 0) -> Wanted:
        """The rows of a table: what the topic of messages says."""
        return cls(True, frozenset({MAIN}), written_from_ms, table)

    @property
    def schema(self) -> Any:
        """Of the batches."""
        if self.table is not None:
            return SCHEMAS[self.table]
        return FULL if self.is_full else HEADER

    @property
    def checks_all(self) -> bool:
        """Is every frame checked, or only those with rows that are wanted?"""
        return self.is_full and self.table in (None, "messages")


def decode(part: Slice, wanted: Wanted, *, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
    """The messages of a slice in the order of their event ids."""
    reader, lines = _opened(part, wanted)
    yield from reader.batches(lines, batch_rows)


def _opened(part: Slice, wanted: Wanted) -> tuple[_Reader, Any]:
    count = part.through - part.after
    lines: Any = np.memmap(
        part.index, ENTRY, mode="r", offset=(part.after + 1 - part.first) * ENTRY.itemsize, shape=(count,)
    )
    with Path(part.log).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _Reader(part.log, mapped, wanted), lines


def decode_lines(
    lines: Any, frames: mmap.mmap | bytes, wanted: Wanted, name: str, *, batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """The messages of these index lines, out of the frames that they point into; ``name`` is for errors."""
    return _Reader(name, frames, wanted).batches(lines, batch_rows)


def records_of(part: Slice) -> Iterator[Records]:
    """The records of a slice that tables are made of, to be unfolded into as many as one likes."""
    reader, lines = _opened(part, Wanted.rows_of("messages"))
    return reader.walked(lines, BATCH_ROWS)


def records_of_lines(lines: Any, frames: bytes, name: str) -> Iterator[Records]:
    """The same from frames in memory."""
    return _Reader(name, frames, Wanted.rows_of("messages")).walked(lines, BATCH_ROWS)


def _pieces(lines: Any) -> Iterator[Any]:
    """Cut where a batch would span too many bytes."""
    start = 0
    while start < len(lines):
        reach = lines["position"] + lines["length"] - lines["position"][start]
        end = start + max(1, int(np.searchsorted(reach[start:], BATCH_BYTES_MAX, side="right")))
        yield lines[start:end]
        start = end


def _distinct(numbers: Any) -> tuple[list[int], Any]:
    """The distinct numbers, and for each place which of them it has. Mostly there is one."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])], np.zeros(len(numbers), dtype=np.int64)
    found, codes = np.unique(numbers, return_inverse=True)
    return found.tolist(), codes


def _moments(lines: Any) -> Any:
    """When they were written."""
    return pa.array(lines["time"] * 1000).view(HEADER.field("written_at").type)


def _is_whole(view: memoryview, at: int) -> bool:
    """Has the frame here the checksum that it says?"""
    size = len(view) - at
    if size < HEADER_BYTES:
        return False
    length, crc = FRAME_HEADER.unpack_from(view, at)[:2]
    end = at + HEADER_BYTES + length
    return end <= len(view) and bool(crc32(view[at + 8 : end]) == crc)


class _Reader:
    """Frames being decoded."""

    def __init__(self, name: str, mapped: mmap.mmap | bytes, wanted: Wanted) -> None:
        self._name = name
        self._mapped = mapped
        self._bytes: Any = np.frombuffer(mapped, dtype=np.uint8)
        self._words: Any = self._bytes[: len(self._bytes) // 8 * 8].view("<u8")
        self._buffer = pa.py_buffer(mapped)
        self._wanted = wanted
        self._names: dict[int, str] = {}
        self._checked = -1
        """The newest frame whose checksum was right."""

    def batches(self, lines: Any, batch_rows: int) -> Iterator[Any]:
        """Arrow batches, of records or of the table that is wanted."""
        table = self._wanted.table
        for piece in self._chosen(lines, batch_rows):
            yield self.batch(piece) if table is None else unfold(self.records(piece), table)

    def walked(self, lines: Any, batch_rows: int) -> Iterator[Records]:
        """The records themselves, walked."""
        for piece in self._chosen(lines, batch_rows):
            yield self.records(piece)

    def _chosen(self, lines: Any, batch_rows: int) -> Iterator[Any]:
        for start in range(0, len(lines), batch_rows):
            yield from _pieces(self.choose(np.asarray(lines[start : start + batch_rows])))

    def choose(self, lines: Any) -> Any:
        """The lines of messages that are wanted."""
        start = int(lines["event_id"][0]) if len(lines) else 0
        if not (lines["event_id"] == np.arange(start, start + len(lines))).all():
            raise CorruptData(f"the index of {self._name} is not of these events")
        end = lines["position"].astype(np.int64) + lines["length"]
        if len(lines) and (int(end.max()) > len(self._bytes) or int(lines["frame"].min()) < 0):
            raise CorruptData(f"the index of {self._name} points beyond its end")
        if self._wanted.checks_all:
            self._check_frames(lines)
        keep = _IS_MESSAGE[lines["kind"]]
        if self._wanted.written_from_ms:
            keep &= lines["time"] >= self._wanted.written_from_ms
        numbers, codes = _distinct(lines["topic"])
        for place, number in enumerate(numbers):
            if number not in self._names:
                self._names[number] = self._topic_at(int(lines["frame"][np.argmax(codes == place)]))
        if self._wanted.topics is not None:
            keep &= np.array([self._names[number] in self._wanted.topics for number in numbers], dtype=bool)[codes]
        if self._wanted.table in ("deliveries", "traces"):
            # Ledgers and traces have no number, and everything else that says something has one.
            keep &= lines["message_id"] == 0
        chosen = lines if keep.all() else lines[keep]
        if self._wanted.is_full and not self._wanted.checks_all:
            self._check_frames(chosen)
        return chosen

    def batch(self, lines: Any) -> Any:
        """These lines as one Arrow batch."""
        numbers, codes = _distinct(lines["topic"])
        columns = [
            pa.array(np.ascontiguousarray(lines["event_id"])),
            pa.array(np.ascontiguousarray(lines["message_id"])),
            pa.array([self._names[number] for number in numbers], pa.string()).take(pa.array(codes)),
            pa.array(lines["kind"].astype(np.int32)),
            _moments(lines),
            pa.array(np.ascontiguousarray(lines["key"]).view(np.int64)),
            pa.array(lines["length"].astype(np.int32)),
        ]
        if self._wanted.is_full:
            columns += self._contents(lines)
        return pa.RecordBatch.from_arrays(columns, schema=FULL if self._wanted.is_full else HEADER)

    def records(self, lines: Any) -> Records:
        """These lines as records, where they lie in the file: nothing is copied."""
        _, _, body, end = self._places(lines)
        # The window begins with a whole word before the first body; it is copied if the file ends behind the last.
        first, last = (int(body[0]) - 1) & ~7, int(end[-1]) + PADDING
        window = self._bytes[first:last]
        if first + len(window) < last:
            window = np.concatenate([window, np.zeros(last - first - len(window), np.uint8)])
        return Records(
            np.ascontiguousarray(lines["event_id"]),
            np.ascontiguousarray(lines["message_id"]),
            _moments(lines),
            pa.array(lines["length"].astype(np.int32)),
            window,
            body - first,
            end - first,
        )

    def _places(self, lines: Any) -> tuple[Any, Any, Any, Any]:
        """Where the key and the body of each message begin and end."""
        position = lines["position"].astype(np.int64)
        end = position + lines["length"]
        size, headers = self._u32(position)
        wrong = np.flatnonzero(size + np.int64(MESSAGE_HEADER_BYTES) != lines["length"])
        if len(wrong):
            raise CorruptData(f"{self._name} byte {position[wrong[0]]}: the index names a message, and none is here")
        body = position + MESSAGE_HEADER_BYTES
        is_numbered = lines["kind"] == Kind.APPEND
        if is_numbered.all():
            key_start = position + _KEY_AT
            body = key_end = key_start + self._u32(position + _KEY_LENGTH_AT)[0]
        else:
            key_start, key_end = body.copy(), body.copy()
            numbered = np.flatnonzero(is_numbered)
            key_start[numbered] = position[numbered] + _KEY_AT
            key_end[numbered] = key_start[numbered] + self._u32(position[numbered] + _KEY_LENGTH_AT)[0]
            body[numbered] = key_end[numbered]
        unusual = np.flatnonzero(headers != np.where(is_numbered, 2, 0)).tolist()
        if unusual:
            body = body.copy()
        for row in unusual:
            body[row] = self._body_at(int(position[row]), int(headers[row]))
        if ((key_end > body) | (body > end)).any():
            raise CorruptData(f"{self._name}: a message between bytes {position[0]} and {end[-1]} has wrong lengths")
        return key_start, key_end, body, end

    def _contents(self, lines: Any) -> list[Any]:
        """Keys and bodies, by offsets into the file."""
        key_start, key_end, body, end = self._places(lines)
        base = int(key_start[0])
        offsets = np.empty(4 * len(lines) + 1, dtype=np.int32)
        for place, values in enumerate((key_start, key_end, body, end)):
            np.subtract(values, base, out=offsets[place:-1:4], casting="unsafe")
        offsets[-1] = offsets[-2]
        region = self._buffer.slice(base, int(end[-1]) - base)
        array = pa.Array.from_buffers(pa.binary(), 4 * len(lines), [None, pa.py_buffer(offsets), region])
        rows = np.arange(0, 4 * len(lines), 4, dtype=np.int32)
        return [array.take(pa.array(rows)), array.take(pa.array(rows + 2))]

    def _check_frames(self, lines: Any) -> None:
        """Every frame that these lines lie in must have the checksum that it says."""
        frames = lines["frame"]
        starts = frames[np.flatnonzero(np.diff(frames, prepend=-1))]
        view = memoryview(self._mapped)
        for at in starts.tolist():
            if at == self._checked:
                continue
            if not (_is_whole(view, at) or self._becomes_whole(view, at)):
                raise CorruptData(
                    f"{self._name} byte {at}: checksum does not match; check it with: pixiu queue verify",
                    path=self._name,
                )
            self._checked = at

    def _becomes_whole(self, view: memoryview, at: int) -> bool:
        """A redaction may be overwriting this very frame: look again, as long as one is under way."""
        intent = Path(self._name).parent.parent / Path(INTENT).name
        for _ in range(REDACTION_LOOKS):
            is_under_way = intent.exists()
            if _is_whole(view, at):
                return True
            if not is_under_way:
                return False
            time.sleep(REDACTION_LOOK_SECONDS)
        return False

    def _topic_at(self, frame: int) -> str:
        """The topic's name, as the line of a frame has it."""
        start = frame + HEADER_BYTES + 4
        line = bytes(self._mapped[start : start + 512]).split(b"\n", 1)[0].split(b"\t")
        if len(line) != 6:
            raise CorruptData(f"{self._name} byte {frame}: no record begins here")
        return line[4].decode(errors="replace")

    def _u32(self, at: Any) -> tuple[Any, Any]:
        """The unsigned 32-bit numbers at these bytes, and those behind them."""
        place, shift = at >> 3, ((at & 7) << 3).astype(np.uint64)
        if len(at) and int(place.max()) + 1 >= len(self._words):
            # At the very end of the file there may be no second word.
            found = self._bytes[np.minimum(at[:, None] + _EIGHT, len(self._bytes) - 1)].view("<u4").astype(np.int64)
            return found[:, 0], found[:, 1]
        # Two aligned words hold the eight bytes; gathering them unaligned would make numpy copy the whole file.
        pair = (self._words[place] >> shift) | (self._words[place + 1] << (np.uint64(63) - shift) << np.uint64(1))
        return (pair & _LOW_HALF).view(np.int64), (pair >> np.uint64(32)).view(np.int64)

    def _body_at(self, position: int, headers: int) -> int:
        """Where the body begins behind headers of a publisher's own."""
        at = position + MESSAGE_HEADER_BYTES
        for _ in range(2 * headers):
            at += 4 + int.from_bytes(self._mapped[at : at + 4], "little")
        return at
