"""A copy of a whole queue at one event id, while it runs: for followers that are too far behind, and for backups.

Journal and topic logs only grow, so their copy is the bytes they had at the cut; the store is dumped from one
consistent view. A snapshot is a folder that a queue can start from::

    queue/journal/… queue/topics/…   as at the cut
    queue/state.dump/…               the store: u32 key length | u32 value length | key | value, to the end
    stores.dump/…                    for a replica of a shard: the messaging stores, in the same form
    manifest                         event id, epoch, and every file with its size and checksum
"""

from __future__ import annotations

import json
import logging
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from pixiu.machines.queue_wire.follow import (
    FileClosed,
    FileOpened,
    PieceSent,
    SnapshotEnded,
    SnapshotReader,
    encode_close,
    encode_end,
    encode_open,
    encode_piece,
)
from pixiu.machines.queue_wire.requests import encode_snapshot
from pixiu.machines.queue_wire.streams import Refused
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.machines.queue_wire.proof import Prover
    from pixiu.ports.files import File, Files
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.transport import Link, Links
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection

log = logging.getLogger(__name__)

PIECE_BYTES = 256 * 1024
UNREAD_BYTES_MAX = 64 * 1024
DUMP_FOLDER = "queue/state.dump"
STORES_DUMP = "stores.dump"
"""Of the messaging stores. What they have applied is committed, so it is in the journal of the snapshot."""
INCOMING = "incoming"
COMPLETE = f"{INCOMING}/COMPLETE"

FETCH_SILENCE_MS = 15_000
"""A leader that has sent nothing for so long is given up."""

_PAIR = Struct("<II")


def cut(engine: Engine) -> tuple[int, list[tuple[str, int]], Iterator[tuple[bytes, bytes]]]:
    """The event id of the cut, the files with their sizes there, and the store's pairs there."""
    event_id = engine.commit_event_id
    found = _journal_through(engine, event_id)
    for topic in engine.topics.stored_topics():
        logs = engine.topics.log_of(topic)
        for number in logs.numbers:
            for ending in ("log", "idx"):
                found.append((logs.path(number, ending), logs.size_of(number, ending)))
    return event_id, found, engine.state.store.dump()


def _journal_through(engine: Engine, event_id: int) -> list[tuple[str, int]]:
    """The journal's files as far as they are committed; indexes are made again by whoever needs them."""
    end = engine.journal.record_after(event_id) if engine.journal.last_event_id > event_id else None
    found = []
    for segment in engine.journal.segments:
        if end is not None and segment is end[0]:
            found.append((segment.path, end[1]))
            break
        found.append((segment.path, segment.size))
    return found


class SnapshotStream:
    """Sends a snapshot as fast as its socket takes it, a piece at a time."""

    def __init__(self, engine: Engine, connection: Connection, *, with_stores: bool = False) -> None:
        self._engine = engine
        self._connection = connection
        self._messages = snapshot_messages(engine, with_stores=with_stores)
        self._is_closed = False
        self._unread = b""

    def start(self) -> None:
        """Begin."""
        self._connection.wake_stream = self._send
        self._engine.scheduler.soon(self._send)

    def receive(self, data: bytes) -> None:
        """The next command, from a receiver that has read the end before we have noticed it."""
        self._unread += data
        if len(self._unread) > UNREAD_BYTES_MAX:
            self._connection.close()

    def close(self) -> None:
        """The receiver is gone."""
        self._is_closed = True

    def _send(self) -> None:
        connection = self._connection
        if self._is_closed or not connection.can_write:
            return
        try:
            message = next(self._messages)
        except StopIteration:
            self._is_closed = True
            connection.stream_ended(b"", self._unread)
            return
        except (OSError, PixiuError) as error:
            log.error("snapshot failed", extra={"reason": str(error)})
            connection.close()
            return
        connection.write(message)
        self._engine.scheduler.soon(self._send)


def snapshot_messages(engine: Engine, *, with_stores: bool = False) -> Iterator[bytes]:
    """A whole snapshot, as the stream's messages."""
    event_id, found, pairs = cut(engine)
    dumps = [(DUMP_FOLDER, pairs)]
    if with_stores and engine.dump_stores is not None:
        dumps.append((STORES_DUMP, engine.dump_stores()))
    count = 0
    for path, size in found:
        yield from _file_messages(engine, path, size)
        count += 1
    for folder, rows in dumps:
        for number, piece in enumerate(dump_pieces(rows)):
            path = f"{folder}/{number:08d}"
            yield b"".join((encode_open(len(piece), path), encode_piece(piece), encode_close(crc32(piece))))
            count += 1
    manifest = {"event_id": event_id, "epoch": engine.state.epoch, "files": count}
    yield encode_end(json.dumps(manifest).encode())


def _file_messages(engine: Engine, path: str, size: int) -> Iterator[bytes]:
    """One file, as long as it was at the cut; a topic that ended meanwhile is left out."""
    try:
        file = engine.files.open(path)
    except FileNotFoundError:
        return
    try:
        yield encode_open(size, path)
        crc = 0
        for at in range(0, size, PIECE_BYTES):
            piece = file.read(at, min(PIECE_BYTES, size - at))
            crc = crc32(piece, crc)
            yield encode_piece(piece)
        yield encode_close(crc)
    finally:
        file.close()


def dump_pieces(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The store as files of bounded size."""
    rows: list[bytes] = []
    size = 0
    for key, value in pairs:
        rows.append(b"".join((_PAIR.pack(len(key), len(value)), key, value)))
        size += len(rows[-1])
        if size >= PIECE_BYTES:
            yield b"".join(rows)
            rows, size = [], 0
    yield b"".join(rows)


def load_dump(data: bytes, store: KeyValue) -> None:
    """Put one file of a dump into a store."""
    at = 0
    rows: list[tuple[bytes, bytes]] = []
    while at < len(data):
        key_bytes, value_bytes = _PAIR.unpack_from(data, at)
        at += _PAIR.size
        rows.append((data[at : at + key_bytes], data[at + key_bytes : at + key_bytes + value_bytes]))
        at += key_bytes + value_bytes
    store.write(rows)


class SnapshotFetch:
    """Receives a snapshot into ``incoming/``; whole and checked, it is installed at the next start."""

    def __init__(
        self,
        files: Files,
        done: Callable[[str | None], None],
        prover: Prover | None = None,
        *,
        with_stores: bool = False,
    ) -> None:
        """``prover`` shows a key first, where the leader wants one. ``with_stores``: the messaging stores, too."""
        self._request = encode_snapshot(with_stores=with_stores)
        self._prover = prover
        self._files = files
        self._done = done
        self._reader = SnapshotReader()
        self._link: Link | None = None
        self._file: File | None = None
        self._at = 0
        self._is_over = False
        self.bytes_received = 0

    def open(self, links: Links, address: str, timeout_ms: int) -> None:
        """Begin."""
        self._files.remove_folder(INCOMING)
        self._link = links.connect(address, self, timeout_ms=timeout_ms)

    def watch(self, scheduler: Scheduler) -> None:
        """Give up a leader that falls silent."""
        received = self.bytes_received

        def look() -> None:
            if self._is_over:
                return
            if self.bytes_received == received:
                self.lost("the leader fell silent")
            else:
                self.watch(scheduler)

        scheduler.after(FETCH_SILENCE_MS, look)

    def opened(self, link: Link) -> None:
        """Ask for it, once both ends have shown the key."""
        link.write(self._request if self._prover is None else self._prover.start())

    def received(self, data: bytes) -> None:
        """More of it."""
        self.bytes_received += len(data)
        try:
            if self._prover is not None:
                send = self._prover.receive(data)
                if self._prover.is_done:
                    self._prover, send = None, self._request
                if send and self._link is not None:
                    self._link.write(send)
                return
            for event in self._reader.receive(data):
                self._take(event)
        except (PixiuError, OSError) as error:
            self._end(str(error))

    def _take(self, event: object) -> None:
        match event:
            case FileOpened(_, path):
                folder = f"{INCOMING}/{path}".rpartition("/")[0]
                self._files.make_folder(folder)
                self._file = self._files.open(f"{INCOMING}/{path}", create=True)
                self._at = 0
            case PieceSent(data) if self._file is not None:
                self._file.write(data, self._at)
                self._at += len(data)
            case FileClosed() if self._file is not None:
                self._file.flush()
                self._file.close()
                self._file = None
            case SnapshotEnded():
                self._files.replace(COMPLETE, b"")
                self._end(None)
            case Refused(text):
                self._end(text)
            case _:
                pass  # a keep-alive

    def lost(self, reason: str) -> None:
        """The leader is gone."""
        self._end(reason)

    def _end(self, error: str | None) -> None:
        if not self._is_over:
            self.close()
            self._done(error)

    def close(self) -> None:
        """Stop."""
        self._is_over = True
        if self._link is not None:
            self._link.close()
        if self._file is not None:
            self._file.close()
            self._file = None
