"""Two copies of one log, compared by conversation and topic: ``pixiu verify``.

A copy is a data directory, whose journal is only read, whether a server runs on it or not; or a leader at
``HOST:PORT``, which is read as a follower would. Both are read to the same event, the last that both have committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import ConfigError, CorruptData, NotFound
from pixiu.ports.log import MAIN
from pixiu.queue.client import BlockingClient
from pixiu.queue.client.frames import followed_frames
from pixiu.queue.storage.record import MESSAGE_KINDS, Frame, decode_block, read_frame, read_frames
from pixiu.queue.tail import records_of
from pixiu.roles.carrier.checksums import TOPIC, Checksums, differences
from pixiu.runtime.datadir import find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.roles.carrier.checksums import Difference

__all__ = ["Verified", "verify"]

READ_BYTES = 2**22
ADVANCE_EVERY = 10_000


class Verified(NamedTuple):
    """What a comparison found."""

    through: int
    """Both were read to this event."""
    records: int
    conversations: int
    topics: int
    """Other than Pixiu's main topic, whose records are compared by conversation."""
    differences: list[Difference]


class Copy:
    """One of the two. ``place`` is a directory or ``HOST:PORT``."""

    def __init__(self, place: str, key: str = "") -> None:
        self.place = place
        self._key = key
        self._journal: Path | None = None
        self._server: str | None = None
        path = Path(place)
        if (path / "queue" / "journal").is_dir():
            self._journal = path / "queue" / "journal"
            holder = find_server(path)
            self._server = None if holder is None else holder.address
        elif place.rpartition(":")[2].isdecimal() and place.rpartition(":")[0]:
            self._server = place
        elif path.exists() or "/" in place:
            raise NotFound(f"there is no log in {place}")
        else:
            raise ConfigError(f"{place!r} is neither a data directory nor HOST:PORT of a queue")
        self._epoch = 0

    def end(self) -> int:
        """The last event that it has committed; of a directory that nobody serves, the last that is whole."""
        if self._server is not None:
            with BlockingClient(self._server, pool=1, patience_s=0.0) as client:
                hello = client.hello()
            self._epoch = hello.epoch
            return hello.commit_event_id
        assert self._journal is not None
        for file in sorted(self._journal.glob("*.log"), reverse=True):
            last = max((frame.last_event_id for frame in _frames_of(file, is_newest=True)), default=0)
            if last:
                return last
        return 0

    def take_into(self, checksums: Checksums, through: int) -> Iterator[int]:
        """Add every record through here; yields the event id reached after each."""
        last = 0
        for frame in self._frames(through):
            if last and frame.event_id != last + 1:
                raise CorruptData(f"{self.place} has event {frame.event_id} behind event {last}")
            last = frame.last_event_id
            record = decode_block(frame.block)
            if record.kind in MESSAGE_KINDS and record.topic == MAIN.encode():
                for row in records_of(record, MAIN):
                    if row.event_id <= through:
                        checksums.take(row)
            elif last <= through:
                topic = record.topic.decode(errors="replace")
                checksums.take_of_topic(topic, record.event_id, record.kind, record.payload)
            yield last
            if last >= through:
                return
        if last < through:
            raise CorruptData(f"{self.place} ends with event {last}, before event {through}")

    def first(self) -> int:
        """The oldest event that it has."""
        return next((frame.event_id for frame in self._frames(2**62)), 1)

    def _frames(self, through: int) -> Iterator[Frame]:
        if self._journal is None:
            assert self._server is not None
            for piece in followed_frames(self._server, 0, self._epoch, through, key=self._key):
                yield from (frame for _, frame in read_frames(piece))
            return
        files = sorted(self._journal.glob("*.log"))
        for file in files:
            yield from _frames_of(file, is_newest=file is files[-1])


def _frames_of(file: Path, *, is_newest: bool) -> Iterator[Frame]:
    """The frames of one segment. The newest may end in the middle of one, since it may be written right now."""
    buffer, place = b"", 0
    with file.open("rb") as stream:
        while True:
            frame = read_frame(buffer, place)
            if isinstance(frame, Frame):
                yield frame
                place += frame.size
                continue
            needed = frame if isinstance(frame, int) else 0
            more = stream.read(max(READ_BYTES, needed)) if needed else b""
            if not more:
                if place < len(buffer) and not is_newest:
                    raise CorruptData(f"{file} has no frame at byte {stream.tell() - len(buffer) + place}")
                return
            buffer, place = buffer[place:] + more, 0


def verify(here: str, there: str, progress: Callable[[int, int], object] | None = None, *, key: str = "") -> Verified:
    """Compare two copies. ``key`` is shown to a queue that is asked for its log."""
    copies = Copy(here, key), Copy(there, key)
    through = min(copy.end() for copy in copies)
    if not through:
        return Verified(0, 0, 0, 0, [])
    firsts = [copy.first() for copy in copies]
    if firsts[0] != firsts[1]:
        later = copies[firsts[1] > firsts[0]].place
        raise ConfigError(
            f"the logs begin with different events ({firsts[0]} and {firsts[1]}): retention has removed the beginning "
            f"of {later}, and checksums go over the whole"
        )
    sums = Checksums(), Checksums()
    records = done = 0
    for copy, checksums in zip(copies, sums, strict=True):
        for reached in copy.take_into(checksums, through):
            records += 1
            if progress is not None and records % ADVANCE_EVERY == 0:
                progress(done + reached, 2 * through)
        done += through
    names = sums[0].found.keys() | sums[1].found.keys()
    topics = sum(name.startswith(TOPIC) for name in names)
    return Verified(through, records, len(names) - topics, topics, differences(sums[0].found, sums[1].found))
