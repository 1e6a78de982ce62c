"""One file of the journal and its index: ``<first event_id>.log`` and ``.idx``.

*event_id* is a record's number, *position* is a byte in the file. Every event id from the segment's first to its last
has one index entry, so the entry of event N is entry ``N - first``. Not safe for threads, except that ``flush`` may
run beside appends.

The file of the last segment may be longer than what was written to it: zeros are laid ahead of the end, so that a flush
writes into blocks that the file has already (decision 0032). A frame ends with a line feed, never with a zero, so the
end of what was written is behind the last byte that is not zero. ``size`` is that end, and nothing here reads beyond.
"""

from collections.abc import Iterator
from itertools import accumulate

from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData
from pixiu.ports.files import File, Files
from pixiu.queue.storage.index import ENTRY_BYTES, Entry, pack_entries, pack_numbered_entries, unpack_entry
from pixiu.queue.storage.messages import hoisted
from pixiu.queue.storage.record import MESSAGE_KINDS, Damage, Frame, Kind, Record, decode_block, read_frame

READ_BYTES = 256 * 1024
WHAT_NEXT = "see what is damaged, and what can be done: pixiu queue verify --data DIR"
BLOCK_BYTES = 4096
"""Filling begins on such a boundary."""


def segment_name(first_event_id: int) -> str:
    """File name without ending; sorts as its number."""
    return f"{first_event_id:020d}"


def written_end(file: File) -> int:
    """Where the zeros begin that a file of frames ends with: its size, if it ends with anything else."""
    end = file.size()
    while end:
        start = max(end - READ_BYTES, 0)
        written = file.read(start, end - start).rstrip(b"\0")
        if written:
            return start + len(written)
        end = start
    return 0


class Segment:
    """Frames in a file, with the index beside it."""

    __slots__ = (
        "_files",
        "_filled",
        "_flush_error",
        "_folder",
        "_index",
        "_log",
        "first_event_id",
        "last_event_id",
        "size",
    )

    def __init__(
        self, files: Files, folder: str, first_event_id: int, *, create: bool = False, is_last: bool = False
    ) -> None:
        """``is_last`` says that zeros may follow what was written; in any other segment they would be damage."""
        self._files = files
        self._folder = folder
        self.first_event_id = first_event_id
        self._log: File | None = None
        self._index: File | None = None
        self._flush_error: OSError | None = None
        self._filled = 0
        """Where the zeros end that this process has laid ahead."""
        self.last_event_id = first_event_id - 1
        if create:
            self._log = files.open(self.path, create=True)
            self._index = files.open(self.index_path, create=True)
            self._log.truncate(0)
            self._index.truncate(0)
            self.size = 0
        else:
            self.size = written_end(self.log) if is_last else self.log.size()

    @property
    def path(self) -> str:
        """The file of frames."""
        return f"{self._folder}/{segment_name(self.first_event_id)}.log"

    @property
    def index_path(self) -> str:
        """The file of index entries."""
        return f"{self._folder}/{segment_name(self.first_event_id)}.idx"

    @property
    def log(self) -> File:
        """The open file of frames."""
        if self._log is None:
            self._log = self._files.open(self.path)
        return self._log

    @property
    def index(self) -> File:
        """The open file of index entries."""
        if self._index is None:
            self._index = self._files.open(self.index_path, create=True)
        return self._index

    def append(self, frames: bytes, entries: bytes, last_event_id: int) -> None:
        """Write whole frames and their index entries at the end. On an error nothing counts as written."""
        self.log.write(frames, self.size)
        self.index.write(entries, (self.last_event_id + 1 - self.first_event_id) * ENTRY_BYTES)
        self.size += len(frames)
        self.last_event_id = last_event_id

    @property
    def filled_bytes(self) -> int:
        """How many zeros lie ahead of the end."""
        return max(self._filled - self.size, 0)

    def fill(self, zeros: bytes, limit: int) -> bool:
        """Lay zeros ahead, behind those that lie there, up to ``limit``. False if there is no place for them.

        On disk with the next ``flush``, whoever asks for it.
        """
        start = max(self._filled, -(-self.size // BLOCK_BYTES) * BLOCK_BYTES)
        if start >= limit:
            return False
        self.log.write(zeros[: limit - start], start)
        self._filled = min(start + len(zeros), limit)
        return True

    def probe(self) -> None:
        """Write one block of zeros behind the end, where zeros may lie, and cut it off. Raises ``OSError``."""
        self.log.write(bytes(BLOCK_BYTES), self.size)
        if self._filled < self.size + BLOCK_BYTES:
            self.cut_zeros()

    def cut_zeros(self) -> None:
        """Cut off the zeros behind the end. Not durable before ``flush``."""
        if self.log.size() > self.size:
            self.log.truncate(self.size)
        self._filled = 0

    def flush(self) -> None:
        """Return when the frames are on disk. The index is derived and not waited for.

        A system tells of a failed flush once, and of the next that all is well. So one failure is told for good here,
        whoever asks next, from whatever thread.
        """
        if self._flush_error is not None:
            raise self._flush_error
        try:
            self.log.flush()
        except FileNotFoundError:
            return  # cut off or dropped meanwhile: nothing is left to flush
        except OSError as error:
            self._flush_error = error
            raise

    def entry(self, event_id: int) -> Entry:
        """Where ``event_id`` is. Rebuilds the index if it does not answer."""
        damage: Damage | None = None
        for attempt in range(2):
            data = self.index.read((event_id - self.first_event_id) * ENTRY_BYTES, ENTRY_BYTES)
            if len(data) == ENTRY_BYTES:
                entry = unpack_entry(data)
                if entry.event_id == event_id:
                    return entry
            if attempt == 0:
                damage = self.rebuild_index()
        if damage is not None:
            raise self.damaged(damage.position, damage.reason)
        raise CorruptData(f"{self.path}: event {event_id} should be here and is not; {WHAT_NEXT}")

    def damaged(self, position: int, reason: str) -> CorruptData:
        """The error for damage here: file, byte, and what to do next."""
        return CorruptData(f"{self.path} byte {position}: {reason}; {WHAT_NEXT}")

    def entries(self, after: int, count: int) -> list[Entry]:
        """Up to ``count`` entries behind ``after``."""
        start = max(after + 1, self.first_event_id) - self.first_event_id
        data = self.index.read(start * ENTRY_BYTES, count * ENTRY_BYTES)
        return [unpack_entry(data, at) for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES)]

    def scan(self, position: int = 0) -> Iterator[tuple[int, Frame | Damage]]:
        """Frames from ``position`` on, each with its position; ends after the first damage."""
        buffer = self._read(position, READ_BYTES)
        at = 0
        while position + at < self.size:
            result = read_frame(buffer, at)
            while isinstance(result, int):
                # The buffer ends inside this frame, maybe inside its header: read on from where it begins.
                need = len(buffer) - at + result
                position, at = position + at, 0
                buffer = self._read(position, max(READ_BYTES, need))
                if len(buffer) < need:
                    yield position, Damage(position, "cut off")
                    return
                result = read_frame(buffer, 0)
            if isinstance(result, Damage):
                yield position + at, Damage(position + at, result.reason)
                return
            yield position + at, result
            at += result.size

    def _read(self, position: int, size_max: int) -> bytes:
        """Bytes of frames: what lies ahead of the end is not read, since it may be frames a moment later."""
        return self.log.read(position, max(min(size_max, self.size - position), 0))

    def read_bytes(self, position: int, size_max: int) -> bytes:
        """Whole, checked frames from ``position``, at least one, at most ``size_max`` bytes beyond the first."""
        buffer = self._read(position, size_max)
        end = 0
        while end < len(buffer):
            result = read_frame(buffer, end)
            while isinstance(result, int) and end == 0:
                need = len(buffer) + result
                buffer = self._read(position, need)
                if len(buffer) < need:
                    raise self.damaged(position, "cut off")
                result = read_frame(buffer, 0)
            if isinstance(result, Damage):
                raise self.damaged(position + end, result.reason)
            if isinstance(result, int):
                break
            end += result.size
        return buffer[:end]

    def frame_at(self, position: int) -> Frame:
        """The one frame that begins at ``position``. Raises ``CorruptData``."""
        for _, frame in self.scan(position):
            if isinstance(frame, Damage):
                raise self.damaged(frame.position, frame.reason)
            return frame
        raise self.damaged(position, "nothing here")

    def truncate(self, size: int, last_event_id: int) -> None:
        """Forget what follows."""
        self.log.truncate(size)
        self.index.truncate((last_event_id + 1 - self.first_event_id) * ENTRY_BYTES)
        self.size = size
        self._filled = 0
        self.last_event_id = last_event_id

    def rebuild_index(self, topic_of: dict[bytes, int] | None = None) -> Damage | None:
        """Make the index anew from the frames, up to the first damage, which is returned."""
        topics = dict(topic_of or {})
        self.index.truncate(0)
        at = 0
        for position, frame in self.scan():
            if isinstance(frame, Damage):
                return frame
            record = decode_block(frame.block)
            if record.kind == Kind.CREATE:
                topics[record.topic] = record.event_id
            entries = entries_of(record, frame, position, topics.get(record.topic, 0))
            self.index.write(entries, at)
            at += len(entries)
        self.index.flush()  # a checkpoint may have counted on the old one
        return None

    def close(self) -> None:
        """Give descriptors back; the next use opens them again."""
        for file in (self._log, self._index):
            if file is not None:
                file.close()
        self._log = self._index = None

    def remove(self) -> None:
        """Delete both files."""
        self.close()
        self._files.remove(self.path)
        self._files.remove(self.index_path)


def messages_of(record: Record, count: int) -> list[bytes]:
    """The ``count`` messages of a record that brings messages. Raises ``CorruptData`` if it has others."""
    messages = split_messages(record.payload[16:] if record.kind == Kind.FIRE else record.payload)
    if messages is None or len(messages) != count:
        raise CorruptData(f"event {record.event_id}: its payload is not {count} messages")
    return messages


def entries_of(record: Record, frame: Frame, position: int, topic: int, messages: list[bytes] | None = None) -> bytes:
    """The index entries of a record of the journal at ``position``; ``messages``, if its own are known already."""
    payload_at = position + frame.size - len(frame.block) + record.payload_offset
    starts, lengths = [payload_at] * frame.count, [len(record.payload)] * frame.count
    if record.kind in MESSAGE_KINDS:
        skip = 16 if record.kind == Kind.FIRE else 0
        messages = messages or messages_of(record, frame.count)
        lengths = list(map(len, messages))
        starts = list(accumulate(lengths, initial=payload_at + skip))
        if record.kind == Kind.APPEND:
            message_ids, keys = zip(*map(hoisted, messages), strict=True)
            return pack_numbered_entries(
                record.event_id, starts, lengths, time_ms=record.write_ms, frame=position, topic=topic,
                kind=record.kind, message_ids=message_ids, keys=keys,
            )  # fmt: skip
    return pack_entries(
        record.event_id,
        starts,
        lengths,
        time_ms=record.write_ms,
        frame=position,
        topic=topic,
        kind=record.kind,
    )
