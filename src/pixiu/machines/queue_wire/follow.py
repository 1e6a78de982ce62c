"""The two streams between a leader and a follower: journal frames as they come, and a snapshot of the files.

Both are ``200 header, u8 kind at 2, u32 length at 4 | body``. A follower trusts neither order nor sizes: a
snapshot whose pieces do not add up, whose checksum differs or whose path would leave the directory is
refused here.

::

    frames    1 := i64 commit event id | journal frames
    truncate  2 := i64 event id | u32 epoch
    too far   3 := i64 oldest event id
    state     4 := u32 epoch | i64 commit event id | u8 in sync | string leader name
    stamped  17 := i64 stamp | the body of kind 1
             20 := i64 stamp | the body of kind 4

A stamp is the leader's clock in ms when it sent the frame. Only followers that asked for stamps get these two kinds.

::

    open      1 := i64 size | string path
    piece     2 := bytes
    close     3 := u32 CRC-32 of the whole file
    end       4 := JSON manifest
"""

import struct
import zlib
from dataclasses import dataclass

from pixiu.machines.queue_wire.commands import (
    CODE_DONE,
    FOLLOW_FRAMES,
    FOLLOW_STAMPED,
    FOLLOW_STATE,
    FOLLOW_TOO_FAR,
    FOLLOW_TRUNCATE,
    SNAPSHOT_CLOSE,
    SNAPSHOT_END,
    SNAPSHOT_OPEN,
    SNAPSHOT_PIECE,
)
from pixiu.machines.queue_wire.requests import encode_string
from pixiu.machines.queue_wire.streams import StreamReader
from pixiu.model.errors import CorruptData, RemoteProtocolError

__all__ = [
    "FileClosed",
    "FileOpened",
    "FollowReader",
    "FramesSent",
    "PieceSent",
    "SnapshotEnded",
    "SnapshotReader",
    "StateTold",
    "TooFarBehind",
    "TruncateTold",
    "encode_close",
    "encode_end",
    "encode_frames",
    "encode_open",
    "encode_piece",
    "encode_state",
    "encode_too_far",
    "encode_truncate",
]

_head = struct.Struct("<HBxI2x")
_i64 = struct.Struct("<q")
_u32 = struct.Struct("<I")
_truncate = struct.Struct("<qI")
_state = struct.Struct("<IqB")
_string_length = struct.Struct("<H")
_stamped_frames = struct.Struct("<qq")
_STAMPED = (FOLLOW_STAMPED + FOLLOW_FRAMES, FOLLOW_STAMPED + FOLLOW_STATE)


@dataclass(frozen=True, slots=True)
class FramesSent:
    """Append these frames; everything through the commit event id is safe to show."""

    commit_event_id: int
    frames: bytes
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class TruncateTold:
    """The follower's log differs after this event id: cut it there."""

    event_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TooFarBehind:
    """The records that the follower needs are gone: fetch a snapshot."""

    oldest_event_id: int


@dataclass(frozen=True, slots=True)
class StateTold:
    """The leader's heartbeat."""

    epoch: int
    commit_event_id: int
    in_sync: bool
    leader: str
    stamp_ms: int = -1


FollowEvent = FramesSent | TruncateTold | TooFarBehind | StateTold


class FollowReader(StreamReader[FollowEvent]):
    """Reads the answer to Follow."""

    def _event(self, buffer: bytes, start: int, body: int, stop: int) -> FollowEvent:
        kind, stamp_ms = buffer[start + 2], -1
        size = stop - body
        if kind in _STAMPED and size >= _i64.size:
            (stamp_ms,) = _i64.unpack_from(buffer, body)
            kind, body, size = kind - FOLLOW_STAMPED, body + _i64.size, size - _i64.size
        if kind == FOLLOW_FRAMES and size >= _i64.size:
            return FramesSent(_i64.unpack_from(buffer, body)[0], buffer[body + _i64.size : stop], stamp_ms)
        if kind == FOLLOW_TRUNCATE and size == _truncate.size:
            return TruncateTold(*_truncate.unpack_from(buffer, body))
        if kind == FOLLOW_TOO_FAR and size == _i64.size:
            return TooFarBehind(_i64.unpack_from(buffer, body)[0])
        if kind == FOLLOW_STATE and size >= _state.size:
            epoch, commit_event_id, in_sync = _state.unpack_from(buffer, body)
            leader = _read_string(buffer, body + _state.size, stop)
            return StateTold(epoch, commit_event_id, bool(in_sync), leader, stamp_ms)
        raise RemoteProtocolError(f"a follow frame of kind {kind} with {size} bytes")


@dataclass(frozen=True, slots=True)
class FileOpened:
    """A file begins: this many bytes, at this path within the data directory."""

    size: int
    path: str


@dataclass(frozen=True, slots=True)
class PieceSent:
    """The next bytes of the open file."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FileClosed:
    """The open file is whole, and its checksum is right."""

    crc: int


@dataclass(frozen=True, slots=True)
class SnapshotEnded:
    """All files are there."""

    manifest: bytes


SnapshotEvent = FileOpened | PieceSent | FileClosed | SnapshotEnded


class SnapshotReader(StreamReader[SnapshotEvent]):
    """Reads the answer to Snapshot: open, pieces, close, open … end."""

    def __init__(self, *, bytes_max: int = 16 * 2**20) -> None:
        super().__init__(bytes_max=bytes_max)
        self._path: str | None = None
        self._left = 0
        self._crc = 0

    def _event(self, buffer: bytes, start: int, body: int, stop: int) -> SnapshotEvent:
        kind = buffer[start + 2]
        if kind == SNAPSHOT_OPEN and self._path is None and stop - body >= _i64.size:
            return self._open(_i64.unpack_from(buffer, body)[0], _read_string(buffer, body + _i64.size, stop))
        if kind == SNAPSHOT_PIECE and self._path is not None and stop - body <= self._left:
            data = buffer[body:stop]
            self._left -= len(data)
            self._crc = zlib.crc32(data, self._crc)
            return PieceSent(data)
        if kind == SNAPSHOT_CLOSE and self._path is not None and not self._left and stop - body == _u32.size:
            return self._close(_u32.unpack_from(buffer, body)[0])
        if kind == SNAPSHOT_END and self._path is None:
            self.is_finished = True
            return SnapshotEnded(buffer[body:stop])
        raise RemoteProtocolError(f"a snapshot frame of kind {kind} with {stop - body} bytes out of place")

    def _open(self, size: int, path: str) -> FileOpened:
        parts = path.split("/")
        if size < 0 or "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts):
            raise RemoteProtocolError(f"a snapshot file {path!r} of {size} bytes")
        self._path, self._left, self._crc = path, size, 0
        return FileOpened(size, path)

    def _close(self, crc: int) -> FileClosed:
        path, self._path = self._path, None
        if crc != self._crc:
            self.is_broken = True
            raise CorruptData(f"snapshot file {path} arrived damaged: crc {self._crc:08x}, not {crc:08x}", path=path)
        return FileClosed(crc)


def _read_string(buffer: bytes, start: int, stop: int) -> str:
    """A ``u16 length | bytes`` that fills what is left exactly."""
    if stop - start < 2 or _string_length.unpack_from(buffer, start)[0] != stop - start - 2:
        raise RemoteProtocolError("a string that does not fit its frame")
    try:
        return buffer[start + 2 : stop].decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a string that is not UTF-8") from None


# The other direction, for leaders.


def _frame(kind: int, body: bytes) -> bytes:
    return _head.pack(CODE_DONE, kind, len(body)) + body


def encode_frames(commit_event_id: int, frames: bytes, stamp_ms: int = -1) -> bytes:
    """Kind 1 of Follow, or 17 with a stamp."""
    if stamp_ms >= 0:
        head = _head.pack(CODE_DONE, FOLLOW_STAMPED + FOLLOW_FRAMES, 16 + len(frames))
        return b"".join((head, _stamped_frames.pack(stamp_ms, commit_event_id), frames))
    return b"".join((_head.pack(CODE_DONE, FOLLOW_FRAMES, 8 + len(frames)), _i64.pack(commit_event_id), frames))


def encode_truncate(event_id: int, epoch: int) -> bytes:
    """Kind 2 of Follow."""
    return _frame(FOLLOW_TRUNCATE, _truncate.pack(event_id, epoch))


def encode_too_far(oldest_event_id: int) -> bytes:
    """Kind 3 of Follow."""
    return _frame(FOLLOW_TOO_FAR, _i64.pack(oldest_event_id))


def encode_state(epoch: int, commit_event_id: int, *, in_sync: bool, leader: str, stamp_ms: int = -1) -> bytes:
    """Kind 4 of Follow, or 20 with a stamp."""
    body = _state.pack(epoch, commit_event_id, in_sync) + encode_string(leader.encode())
    if stamp_ms >= 0:
        return _frame(FOLLOW_STAMPED + FOLLOW_STATE, _i64.pack(stamp_ms) + body)
    return _frame(FOLLOW_STATE, body)


def encode_open(size: int, path: str) -> bytes:
    """Kind 1 of Snapshot."""
    return _frame(SNAPSHOT_OPEN, _i64.pack(size) + encode_string(path.encode()))


def encode_piece(data: bytes) -> bytes:
    """Kind 2 of Snapshot."""
    return _frame(SNAPSHOT_PIECE, data)


def encode_close(crc: int) -> bytes:
    """Kind 3 of Snapshot."""
    return _frame(SNAPSHOT_CLOSE, _u32.pack(crc))


def encode_end(manifest: bytes) -> bytes:
    """Kind 4 of Snapshot."""
    return _frame(SNAPSHOT_END, manifest)
