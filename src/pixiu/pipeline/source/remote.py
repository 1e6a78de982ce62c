"""The log of a server that runs elsewhere, read by the queue's protocol.

Only what the leader has committed is decoded, and every frame is checked against its CRC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pixiu.model.errors import ConfigError, CorruptData, Gone
from pixiu.pipeline.source.decode import Wanted, decode_lines, records_of_lines
from pixiu.pipeline.source.journal import SLICE_ROWS, End
from pixiu.pipeline.source.schema import ENTRY
from pixiu.queue.storage.record import decode_block, read_frames
from pixiu.queue.storage.segment import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.records.unfold import Records

__all__ = ["RemoteLog", "RemoteSlice", "decode_remote", "records_of_remote"]

RECORD_EVENTS = 4096
"""A record has this many event ids, or fewer, as a rule. Reading from inside one begins this much earlier."""


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    """Some event ids of a server's log: what one partition reads."""

    server: str
    after: int
    through: int
    epoch: int
    key: str = ""
    """Shown to a leader that wants one."""


class RemoteLog:
    """The log of the leader at ``HOST:PORT``."""

    def __init__(self, server: str, key: str = "") -> None:
        self._key = key
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"option server is HOST:PORT of a queue, not {server!r}")
        self._server = server

    def end(self) -> End:
        """How far the leader has committed."""
        return End(self._hello()[0], 0)

    def _hello(self) -> tuple[int, int]:
        from pixiu.queue.client import BlockingClient  # not before a server is asked: most logs are files

        with BlockingClient(self._server, pool=1, patience_s=0.0) as client:
            hello = client.hello()
        return hello.commit_event_id, hello.epoch

    def first_event_id(self) -> int:
        """The oldest event id that the leader still has."""
        commit, epoch = self._hello()
        if not commit:
            return 1
        from pixiu.queue.client.frames import followed_frames

        try:
            for _, frame in read_frames(next(followed_frames(self._server, 0, epoch, commit, key=self._key))):
                return frame.event_id
        except Gone as error:
            return int(str(error).rsplit(" ", 1)[1])
        return 1

    def event_before(self, unix_ms: int) -> int:
        """Not by this way: the protocol finds places by event id."""
        raise ConfigError("startingTime needs a data directory; over a server, begin with startingEventId")

    def plan(self, after: int, through: int, *, rows_max: int = SLICE_ROWS) -> list[RemoteSlice]:
        """The slices that hold every event behind ``after``, through ``through``."""
        if through <= after:
            return []
        epoch = self._hello()[1]
        return [
            RemoteSlice(self._server, start, min(start + rows_max, through), epoch, self._key)
            for start in range(after, through, rows_max)
        ]


def decode_remote(part: RemoteSlice, wanted: Wanted) -> Iterator[Any]:
    """The messages of a slice in the order of their event ids."""
    for lines, frames in _pieces(part):
        yield from decode_lines(lines, frames, wanted, part.server)


def records_of_remote(part: RemoteSlice) -> Iterator[Records]:
    """The records of a slice that tables are made of."""
    for lines, frames in _pieces(part):
        yield from records_of_lines(lines, frames, part.server)


def _pieces(part: RemoteSlice) -> Iterator[tuple[Any, bytes]]:
    """The frames of a slice as they come, with an index of what is wanted of them."""
    from pixiu.queue.client.frames import followed_frames

    begin, step = part.after, RECORD_EVENTS
    while True:
        expected: int | None = None
        for frames in followed_frames(part.server, begin, part.epoch, part.through, key=part.key):
            lines = _lines(frames)
            first = int(lines["event_id"][0])
            if expected is None and first > part.after + 1:
                break  # ``begin`` lies inside a record, whose rest is wanted: begin before it
            if expected is not None and first != expected:
                raise CorruptData(f"{part.server} sent event {first} where {expected} should be")
            expected = int(lines["event_id"][-1]) + 1
            inside = (lines["event_id"] > part.after) & (lines["event_id"] <= part.through)
            if inside.any():
                yield lines[inside], frames
        else:
            return
        if begin == 0:
            raise Gone(f"events {part.after + 1} to {first - 1} are no longer in the log of {part.server}")
        begin, step = max(0, begin - step), step * 4


def _lines(frames: bytes) -> Any:
    """The index of frames, which the protocol does not carry."""
    topics: dict[bytes, int] = {}
    entries = []
    for position, frame in read_frames(frames):
        record = decode_block(frame.block)
        number = topics.setdefault(record.topic, len(topics) + 1)
        entries.append(entries_of(record, frame, position, number))
    return np.frombuffer(b"".join(entries), ENTRY)
