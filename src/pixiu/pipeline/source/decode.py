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
from zlib import crc32

import numpy as np
import pyarrow as pa

from pixiu.machines.queue_wire.commands import HEADER_KEY, HEADER_MESSAGE_ID, MESSAGE_HEADER_BYTES
from pixiu.model.errors import CorruptData
from pixiu.pipeline.records.schema import SCHEMAS
from pixiu.pipeline.records.unfold import unfold
from pixiu.pipeline.source.schema import ENTRY, FULL, HEADER
from pixiu.ports.log import MAIN
from pixiu.queue.record import HEADER as FRAME_HEADER
from pixiu.queue.record import HEADER_BYTES, MESSAGE_KINDS, Kind
from pixiu.queue.redact import INTENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.source.journal import Slice

__all__ = ["BATCH_ROWS", "Wanted", "decode", "decode_lines"]

BATCH_ROWS = 8192
BATCH_BYTES_MAX = 64 * 2**20
"""A batch ends when it has this many rows, or when large messages make it this long."""

REDACTION_LOOKS, REDACTION_LOOK_SECONDS = 200, 0.05
"""How long a frame that a redaction is overwriting is waited for."""

_FOUR = np.arange(4)
_KEY_LENGTH_AT = MESSAGE_HEADER_BYTES + 4 + len(HEADER_MESSAGE_ID) + 4 + 8 + 4 + len(HEADER_KEY)
_KEY_AT = _KEY_LENGTH_AT + 4
_MESSAGE_KINDS = np.array(sorted(MESSAGE_KINDS), dtype=np.uint8)


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
    count = part.through - part.after
    lines: Any = np.memmap(
        part.index, ENTRY, mode="r", offset=(part.after + 1 - part.first) * ENTRY.itemsize, shape=(count,)
    )
    with Path(part.log).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield from decode_lines(lines, mapped, wanted, part.log, batch_rows=batch_rows)


def decode_lines(
    lines: Any, frames: mmap.mmap | bytes, wanted: Wanted, name: str, *, batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """The messages of these index lines, out of the frames that they point into; ``name`` is for errors."""
    reader = _Reader(name, frames, wanted)
    for start in range(0, len(lines), batch_rows):
        chosen = reader.choose(np.asarray(lines[start : start + batch_rows]))
        for piece in _pieces(chosen):
            batch = reader.batch(piece)
            yield batch if wanted.table is None else unfold(batch, wanted.table)


def _pieces(lines: Any) -> Iterator[Any]:
    """Cut where a batch would span too many bytes."""
    start = 0
    while start < len(lines):
        reach = lines["position"] + lines["length"] - lines["position"][start]
        end = start + max(1, int(np.searchsorted(reach[start:], BATCH_BYTES_MAX, side="right")))
        yield lines[start:end]
        start = end


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
        self._buffer = pa.py_buffer(mapped)
        self._wanted = wanted
        self._names: dict[int, str] = {}
        self._checked = -1
        """The newest frame whose checksum was right."""

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
        keep = np.isin(lines["kind"], _MESSAGE_KINDS)
        if self._wanted.written_from_ms:
            keep &= lines["time"] >= self._wanted.written_from_ms
        numbers, first_lines = np.unique(lines["topic"], return_index=True)
        for number, line in zip(numbers.tolist(), first_lines.tolist(), strict=True):
            if number not in self._names:
                self._names[number] = self._topic_at(int(lines["frame"][line]))
        if self._wanted.topics is not None:
            keep &= np.isin(
                lines["topic"], [number for number, name in self._names.items() if name in self._wanted.topics]
            )
        if self._wanted.table == "deliveries":
            keep &= lines["message_id"] == 0  # ledgers have no number, and everything else that says something has one
        chosen = lines[keep]
        if self._wanted.is_full and not self._wanted.checks_all:
            self._check_frames(chosen)
        return chosen

    def batch(self, lines: Any) -> Any:
        """These lines as one Arrow batch."""
        numbers, codes = np.unique(lines["topic"], return_inverse=True)
        columns = [
            pa.array(np.ascontiguousarray(lines["event_id"])),
            pa.array(np.ascontiguousarray(lines["message_id"])),
            pa.array([self._names[number] for number in numbers.tolist()], pa.string()).take(pa.array(codes)),
            pa.array(lines["kind"].astype(np.int32)),
            pa.array(lines["time"] * 1000).cast(HEADER.field("written_at").type),
            pa.array(np.ascontiguousarray(lines["key"]).view(np.int64)),
            pa.array(lines["length"].astype(np.int32)),
        ]
        if self._wanted.is_full:
            columns += self._contents(lines)
        return pa.RecordBatch.from_arrays(columns, schema=FULL if self._wanted.is_full else HEADER)

    def _contents(self, lines: Any) -> list[Any]:
        """Keys and bodies, by offsets into the file."""
        position = lines["position"].astype(np.int64)
        end = position + lines["length"]
        headers = self._u32(position + 4)
        wrong = np.flatnonzero(self._u32(position) + np.int64(MESSAGE_HEADER_BYTES) != lines["length"])
        if len(wrong):
            raise CorruptData(f"{self._name} byte {position[wrong[0]]}: the index names a message, and none is here")
        body = position + MESSAGE_HEADER_BYTES
        key_start, key_end = body.copy(), body.copy()
        numbered = np.flatnonzero(lines["kind"] == Kind.APPEND)
        if len(numbered):
            key_start[numbered] = position[numbered] + _KEY_AT
            key_end[numbered] = key_start[numbered] + self._u32(position[numbered] + _KEY_LENGTH_AT)
            body[numbered] = key_end[numbered]
        plain_headers = np.where(lines["kind"] == Kind.APPEND, 2, 0)
        for row in np.flatnonzero(headers != plain_headers).tolist():
            body[row] = self._body_at(int(position[row]), int(headers[row]))
        if ((key_end > body) | (body > end)).any():
            raise CorruptData(f"{self._name}: a message between bytes {position[0]} and {end[-1]} has wrong lengths")
        base = int(key_start[0])
        offsets = np.empty(4 * len(lines) + 1, dtype=np.int32)
        for place, values in enumerate((key_start, key_end, body, end)):
            offsets[place:-1:4] = values - base
        offsets[-1] = offsets[-2]
        region = self._buffer.slice(base, int(end[-1]) - base)
        array = pa.Array.from_buffers(pa.binary(), 4 * len(lines), [None, pa.py_buffer(offsets), region])
        rows = np.arange(len(lines), dtype=np.int64) * 4
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

    def _u32(self, at: Any) -> Any:
        """The unsigned 32-bit numbers at these bytes."""
        return self._bytes[at[:, None] + _FOUR].view("<u4")[:, 0].astype(np.int64)

    def _body_at(self, position: int, headers: int) -> int:
        """Where the body begins behind headers of a publisher's own."""
        at = position + MESSAGE_HEADER_BYTES
        for _ in range(2 * headers):
            at += 4 + int.from_bytes(self._mapped[at : at + 4], "little")
        return at
