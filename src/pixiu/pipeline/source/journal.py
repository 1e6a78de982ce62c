"""The journal of a data directory, read beside the server that may be writing it.

Segments only grow, so a reader needs no lock; it needs to know where to stop. A server that runs is asked how far it
has committed. A node without a port says it with the ``flushed_through`` mark of its newest frame. Where nobody runs,
everything through the last whole frame counts, as it would for a start; an unfinished write behind it is reported, and
damage that had been on disk is an error (docs/log-format.md).

The index beside a segment is derived, and may be stale after a power cut. It is checked before it is used. One that
does not answer is made again in the pipeline's own folder: the server's files are never written.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from pixiu.model.errors import CorruptData, Gone, NotFound, PixiuError, Unavailable
from pixiu.pipeline.source.schema import ENTRY
from pixiu.queue.storage.index import ENTRY_BYTES
from pixiu.queue.storage.record import Damage, Frame, Kind, decode_block
from pixiu.queue.storage.recovery import whole_frame_after
from pixiu.queue.storage.redact import INTENT
from pixiu.queue.storage.segment import Segment, entries_of, segment_name
from pixiu.runtime.datadir import find_server

if TYPE_CHECKING:
    from pixiu.ports.files import Files

__all__ = ["End", "JournalFolder", "Slice"]

log = logging.getLogger(__name__)

JOURNAL = Path("queue") / "journal"
SLICE_ROWS = 250_000
"""Rows of one slice, at most, if nobody says otherwise: a task of the archive holds that many in memory."""


class End(NamedTuple):
    """Where reading stops."""

    event_id: int
    cut_bytes: int
    """Bytes of an unfinished write behind it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some event ids of one segment: what one partition reads. Travels to whoever decodes it."""

    log: str
    index: str
    first: int
    """The segment's first event id: event N is line ``N - first`` of the index."""
    after: int
    through: int


class _ReadOnlyFile:
    """A file of the journal, which somebody else writes."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class _ReadOnlyFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str, *, create: bool = False) -> _ReadOnlyFile:
        del create
        return _ReadOnlyFile(self._root / path)


class JournalFolder:
    """Every segment below a data directory."""

    def __init__(self, data: Path, *, index_folder: Path | None = None) -> None:
        self._data = data
        self.folder = data / JOURNAL
        self._index_folder = index_folder or data / "pipeline" / "index"
        if not self.folder.is_dir():
            raise NotFound(f"there is no log in {data}; name the data directory of a Pixiu server")

    def identity(self) -> str:
        """Which log it is: there is one in a data directory, and it needs no name."""
        return ""

    def firsts(self) -> list[int]:
        """The first event id of every segment, oldest first."""
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))

    def first_event_id(self) -> int:
        """The oldest event id that is still here, or the one that will come first."""
        firsts = self.firsts()
        return firsts[0] if firsts else 1

    # Where it ends.

    def end(self) -> End:
        """How far the log may be read now."""
        holder = find_server(self._data)
        if holder is not None and holder.address is not None:
            from pixiu.queue.client import BlockingClient  # a task never asks: its process starts in half the time

            try:
                with BlockingClient(holder.address, pool=1, patience_s=0.0) as client:
                    return End(client.hello().commit_event_id, 0)
            except PixiuError as error:
                log.warning("the server does not answer, reading what its frames say is on disk: %s", error)
        if holder is None and (self._data / INTENT).exists():
            raise Unavailable(
                f"a redaction was interrupted in {self._data}: finish it with pixiu queue redact --data {self._data}"
            )
        whole, flushed, cut = self._tail()
        if holder is not None:
            return End(min(whole, flushed), 0)
        if cut:
            log.warning("%d bytes of an unfinished write at the end of %s are not read", cut, self.folder)
        return End(whole, cut)

    def _tail(self) -> tuple[int, int, int]:
        """The last whole frame's event id, how far it says that the disk had got, and the bytes behind it."""
        firsts = self.firsts()
        if not firsts:
            return 0, 0, 0
        segment = self._segment(firsts.pop())
        while firsts and not segment.size:
            segment.close()
            segment = self._segment(firsts.pop())
        try:
            position, expected = self._resume_at(segment)
            flushed, end = 0, position
            for at, frame in segment.scan(position):
                if isinstance(frame, Damage) or frame.event_id != expected:
                    self._refuse_rot(segment, at, expected)
                    break
                expected += frame.count
                flushed = max(flushed, frame.flushed_through)
                end = at + frame.size
            return expected - 1, flushed, segment.size - end
        finally:
            segment.close()

    def _resume_at(self, segment: Segment) -> tuple[int, int]:
        """The position and first event id of a frame near the end, by the index; the beginning if it is no help."""
        path = self._index_beside(segment.first_event_id)
        lines = path.stat().st_size // ENTRY_BYTES if path.exists() else 0
        if lines:
            (line,) = np.fromfile(path, ENTRY, count=1, offset=(lines - 1) * ENTRY_BYTES)
            event_id = segment.first_event_id + lines - 1
            if line["event_id"] == event_id and 0 <= line["frame"] < segment.size:
                for position, frame in segment.scan(int(line["frame"])):
                    if isinstance(frame, Frame) and frame.event_id <= event_id <= frame.last_event_id:
                        return position, frame.event_id
                    break
        return 0, segment.first_event_id

    def _refuse_rot(self, segment: Segment, position: int, expected: int) -> None:
        """Raise if a later whole frame proves that the bytes at ``position`` had been on disk."""
        witness = whole_frame_after(segment, position + 1, expected)
        if witness is not None and witness.flushed_through >= expected:
            raise CorruptData(
                f"{self.folder / f'{segment_name(segment.first_event_id)}.log'} byte {position}: event {expected} "
                "was on disk and is damaged; check it with: pixiu queue verify"
            )

    # What to read.

    def plan(self, after: int, through: int, *, rows_max: int = SLICE_ROWS) -> list[Slice]:
        """The slices that hold every event behind ``after``, through ``through``."""
        if through <= after:
            return []
        firsts = self.firsts()
        if not firsts or firsts[0] > after + 1:
            gone = firsts[0] - 1 if firsts else through
            raise Gone(
                f"events {after + 1} to {gone} are no longer in {self.folder}: retention removed them before they "
                "were read"
            )
        slices: list[Slice] = []
        for first, following in zip(firsts, [*firsts[1:], through + 1], strict=True):
            begin, end = max(after, first - 1), min(through, following - 1)
            if begin >= end:
                continue
            index = self._checked_index(first, begin, end)
            path = str(self.folder / f"{segment_name(first)}.log")
            slices += [
                Slice(path, str(index), first, start, min(start + rows_max, end))
                for start in range(begin, end, rows_max)
            ]
        return slices

    def event_before(self, unix_ms: int) -> int:
        """The event id behind which everything was written at ``unix_ms`` or later, as far as clocks only rise."""
        firsts, end = self.firsts(), self.end().event_id
        for first, following in zip(firsts, [*firsts[1:], end + 1], strict=True):
            if following <= first:
                continue
            index = self._checked_index(first, first - 1, following - 1)
            times = np.memmap(index, ENTRY, mode="r", shape=(following - first,))["time"]
            late = np.flatnonzero(times >= unix_ms)
            if len(late):
                return first + int(late[0]) - 1
        return end

    # The index.

    def _checked_index(self, first: int, after: int, through: int) -> Path:
        """An index that answers for these events: the one beside the segment, or our own."""
        beside, own = self._index_beside(first), self._index_folder / f"{segment_name(first)}.idx"
        for path in (beside, own):
            if _answers(path, first, after, through):
                return path
        log.warning("the index %s does not answer; it is made again in %s", beside, self._index_folder)
        self._make_index(first, own)
        if _answers(own, first, after, through):
            return own
        raise CorruptData(f"{self.folder / f'{segment_name(first)}.log'} ends before event {through}")

    def _make_index(self, first: int, own: Path) -> None:
        """Make our own index of a segment from its frames, up to the first damage, which counts if it is needed."""
        own.parent.mkdir(parents=True, exist_ok=True)
        segment = self._segment(first)
        topics: dict[bytes, int] = {}
        unfinished = own.with_suffix(f".{os.getpid()}.new")
        try:
            with unfinished.open("wb") as file:
                for position, frame in segment.scan():
                    if isinstance(frame, Damage):
                        log.warning("%s byte %d: %s", segment.path, frame.position, frame.reason)
                        break
                    record = decode_block(frame.block)
                    if record.kind == Kind.CREATE:
                        topics[record.topic] = record.event_id
                    # A topic that was created in an earlier segment gets a number of its own, which tells it apart.
                    number = topics.setdefault(record.topic, -len(topics) - 1) if record.topic else 0
                    file.write(entries_of(record, frame, position, number))
            unfinished.replace(own)
        finally:
            unfinished.unlink(missing_ok=True)
            segment.close()

    def _index_beside(self, first: int) -> Path:
        return self.folder / f"{segment_name(first)}.idx"

    def _segment(self, first: int) -> Segment:
        """A segment as it is now. Only of the last one may zeros follow what was written."""
        is_last = first == max(self.firsts(), default=first)
        return Segment(cast("Files", _ReadOnlyFiles(self._data)), JOURNAL.as_posix(), first, is_last=is_last)


def _answers(path: Path, first: int, after: int, through: int) -> bool:
    """Has this index a line for each of these events, in its place?"""
    start, count = after + 1 - first, through - after
    try:
        if path.stat().st_size < (start + count) * ENTRY_BYTES:
            return False
    except FileNotFoundError:
        return False
    lines: Any = np.memmap(path, ENTRY, mode="r", offset=start * ENTRY_BYTES, shape=(count,))
    return bool((lines["event_id"] == np.arange(after + 1, through + 1)).all())
