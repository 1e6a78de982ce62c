"""One entry of the journal, as bytes.

A journal file is frames back to back. A frame is a fixed header around a block; the block is the text form of smss,
byte for byte what its replica stream carries, so that a follower gets a slice and ``less`` still shows the log::

     0        4        8        12       16                24
    | length | crc    | epoch  | count  | flushed_through | block (length bytes)
      u32      u32      u32      u32      i64

    block := u32 line length | line | payload LF
    line  := write time TAB kind TAB event_id TAB receive time TAB topic TAB payload size with its LF, or 0 LF

``crc`` covers everything behind it. ``count`` is how many event ids the record uses (a publish of N messages uses N,
the record carries the first). ``flushed_through`` is the event id up to which the journal was on disk when this frame
was made: a damaged frame at or below the ``flushed_through`` of a later, whole frame cannot be a torn write, so
recovery knows rot from an unfinished write and never cuts acknowledged data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from zlib import crc32

HEADER = Struct("<IIIIq")
HEADER_BYTES = HEADER.size
FRAME_BYTES_MAX = 2**31

_LENGTH_AND_CRC = Struct("<II")
_COVERED = Struct("<IIq")
_LINE_LENGTH = Struct("<I")


class Kind(IntEnum):
    """What a record does. The first five are smss's command numbers; the rest are Pixiu's own."""

    PUBLISH = 1
    CREATE = 2
    DELETE = 3
    DELAY = 16
    FIRE = 101
    """A delayed publish whose time has come (smss: DelayApply)."""
    APPEND = 129
    """A numbered publish with a key; its first two headers are the message id and the key."""
    POSITION = 132
    """Where a named subscriber is."""
    CANCEL = 134
    """A delayed publish that will not come."""
    EPOCH = 136
    """A new leader begins here."""


SMSS_KINDS = frozenset({Kind.PUBLISH, Kind.CREATE, Kind.DELETE, Kind.DELAY, Kind.FIRE})
MESSAGE_KINDS = frozenset({Kind.PUBLISH, Kind.FIRE, Kind.APPEND})


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole, checked entry of a journal file."""

    epoch: int
    count: int
    flushed_through: int
    block: bytes

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return HEADER_BYTES + len(self.block)

    @property
    def event_id(self) -> int:
        """The first event id of the record."""
        return first_event_id(self.block)

    @property
    def last_event_id(self) -> int:
        """The last event id of the record."""
        return first_event_id(self.block) + self.count - 1


@dataclass(frozen=True, slots=True)
class Record:
    """What a block says."""

    write_ms: int
    kind: int
    event_id: int
    receive_ms: int
    topic: bytes
    payload: bytes
    """Without the line feed that ends it on disk."""
    payload_offset: int
    """Where the payload begins within the block."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a frame."""

    position: int
    reason: str


def encode_block(kind: int, event_id: int, topic: bytes, payload: bytes, *, write_ms: int, receive_ms: int) -> bytes:
    """The text block of one record."""
    size = len(payload) + 1 if payload else 0
    line = b"%d\t%d\t%d\t%d\t%b\t%d\n" % (write_ms, kind, event_id, receive_ms, topic, size)
    if not payload:
        return _LINE_LENGTH.pack(len(line)) + line
    return b"".join((_LINE_LENGTH.pack(len(line)), line, payload, b"\n"))


def encode_frame(block: bytes, *, epoch: int, count: int, flushed_through: int) -> bytes:
    """A block with its header."""
    covered = _COVERED.pack(epoch, count, flushed_through)
    return b"".join((_LENGTH_AND_CRC.pack(len(block), crc32(block, crc32(covered))), covered, block))


def decode_block(block: bytes) -> Record:
    """Read a block that is whole. Raises ``ValueError`` for anything else."""
    if len(block) < _LINE_LENGTH.size:
        raise ValueError("block is too short")
    (line_bytes,) = _LINE_LENGTH.unpack_from(block)
    end = _LINE_LENGTH.size + line_bytes
    if not _LINE_LENGTH.size < end <= len(block) or block[end - 1] != 0x0A:
        raise ValueError("block has no line")
    fields = block[_LINE_LENGTH.size : end - 1].split(b"\t")
    if len(fields) != 6:
        raise ValueError(f"line has {len(fields)} fields, not 6")
    write_ms, kind, event_id, receive_ms, topic, size = fields
    payload_bytes = int(size)
    if end + payload_bytes != len(block):
        raise ValueError(f"payload is {len(block) - end} bytes, not {payload_bytes}")
    payload = block[end:-1] if payload_bytes else b""
    return Record(int(write_ms), int(kind), int(event_id), int(receive_ms), topic, payload, end)


def first_event_id(block: bytes) -> int:
    """The event id of a whole block, without decoding the rest."""
    return int(block[_LINE_LENGTH.size : _LINE_LENGTH.size + 64].split(b"\t", 3)[2])


def read_frame(buffer: bytes | memoryview, position: int) -> Frame | Damage | int:
    """The frame at ``position``; or how many bytes it needs beyond the buffer's end; or what is wrong."""
    have = len(buffer) - position
    if have < HEADER_BYTES:
        return HEADER_BYTES - have
    length, crc, epoch, count, flushed_through = HEADER.unpack_from(buffer, position)
    if not 0 < length <= FRAME_BYTES_MAX or not 0 < count <= FRAME_BYTES_MAX:
        return Damage(position, "impossible length")
    missing = HEADER_BYTES + length - have
    if missing > 0:
        return int(missing)
    block = bytes(buffer[position + HEADER_BYTES : position + HEADER_BYTES + length])
    if crc32(block, crc32(buffer[position + 8 : position + HEADER_BYTES])) != crc:
        return Damage(position, "checksum does not match")
    return Frame(epoch, count, flushed_through, block)


def read_frames(buffer: bytes) -> Iterator[tuple[int, Frame]]:
    """Every frame of a buffer that must hold whole frames only. Raises ``ValueError`` otherwise."""
    position = 0
    while position < len(buffer):
        frame = read_frame(buffer, position)
        if not isinstance(frame, Frame):
            reason = frame.reason if isinstance(frame, Damage) else "cut off"
            raise ValueError(f"byte {position}: {reason}")
        yield position, frame
        position += frame.size
