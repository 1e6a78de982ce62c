"""Blank in place what erased users wrote: journal, topic logs, and what waits for its time.

Lengths, positions, numbers and keys stay; a frame gets a new checksum, a chunk of a topic's log too. Overwriting a file
is not atomic, so every batch of new bytes is first written to a file of its own, the *intent*, and flushed; then the
files are overwritten and flushed, and the intent goes. Whoever opens the queue and finds an intent writes it again:
writing the same bytes twice is writing them once. An intent holds blanked bytes only.

Whom to blank is in the log (``UserErased``), so a follower does the same by its own copy, without being told.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData
from pixiu.model.redaction import erased_user, redacted
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.messages import body_of, is_numbered, number_and_key
from pixiu.queue.storage.record import MESSAGE_KINDS, Damage, Frame, Kind, Record, decode_block, encode_frame
from pixiu.queue.storage.topic_items import CHUNK, CHUNK_BYTES, ITEM_HEADER_BYTES, items_of
from pixiu.queue.storage.topics import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pixiu.ports.files import File, Files
    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.segment import Segment
    from pixiu.queue.storage.state import State
    from pixiu.queue.storage.topic_log import End
    from pixiu.queue.storage.topics import Topics

__all__ = ["INTENT", "Redactable", "RedactionReport", "erased_users", "finish_redaction", "redact"]

log = logging.getLogger(__name__)

INTENT = "queue/redact.intent"
BATCH_BYTES = 4 * 2**20
"""New bytes of one intent; one frame more may come on top."""

_MAGIC = b"pixiu redaction 1\n"
_ROW = Struct("<HqI")
_CRC = Struct("<I")
_RESERVED = b"pixiu."
_MAIN = b"pixiu.main"

Patch = tuple[str, int, bytes]
"""A file, a position in it, and the bytes that belong there."""


class Redactable(Protocol):
    """A queue, running or not: an ``Engine`` is one."""

    files: Files
    journal: Journal
    topics: Topics
    state: State


@dataclass(slots=True)
class RedactionReport:
    """Where was looked, and what was blanked there."""

    users: list[int] = field(default_factory=list)
    segments: int = 0
    records: int = 0
    messages: int = 0
    """Of the journal."""
    topic_files: int = 0
    topic_messages: int = 0
    delays: int = 0
    bytes: int = 0
    """Overwritten, in all files."""
    finished_before: bool = False
    """Was there an intent of a run that did not end?"""
    log: str = ""
    """The log, where that is in Kafka, which blanks nothing; empty where it is the journal."""
    kept: int = 0
    """Records there that hold what erased users wrote."""
    kept_for: dict[str, str] = field(default_factory=dict)
    """How long its topics keep records."""


def erased_users(queue: Redactable) -> Iterator[list[int]]:
    """Everyone whom the log has erased, in order: those found so far, again and again, and all in the end."""
    users: dict[int, None] = {}
    for count, (_, _, frame) in enumerate(_frames(queue.journal)):
        if count % 1000 == 999:
            yield list(users)
        if _MAIN in frame.block[:200] and b"\xf2\x01" in frame.block:
            record = decode_block(frame.block)
            if record.topic == _MAIN and record.kind in MESSAGE_KINDS:
                for message in split_messages(record.payload) or []:
                    if user := erased_user(body_of(message)):
                        users[user] = None
    yield list(users)


def finish_redaction(files: Files) -> bool:
    """Do what an intent says that was left behind. True if there was one."""
    try:
        file = files.open(INTENT)
    except FileNotFoundError:
        return False
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    _overwrite(files, _unpack(data))
    log.warning("finished a redaction that was interrupted")
    return True


def redact(
    queue: Redactable,
    users: Collection[int],
    *,
    is_stopped: bool,
    reached: Callable[[str], object] = lambda point: None,
) -> Iterator[RedactionReport]:
    """Blank what these users wrote. Yields its report after every piece of work; the last one is whole.

    An intent that was left behind is finished before this, by the caller. Nothing else may write to the same bytes:
    appending meanwhile is fine. Of a queue that ``is_stopped``, what a crash left behind the last checkpoint of a
    topic's log is passed over: a start cuts it, and takes it from the journal. ``reached`` is told of the points at
    which tests end the process.
    """
    report = RedactionReport(users=sorted(users))
    yield report
    if not users:
        return
    wanted = frozenset(users)
    writing = _Writing(queue.files, report, reached)
    found = _in_journal(queue.journal, wanted, report), _in_topics(queue, wanted, report, is_stopped=is_stopped)
    for patches in found:
        for patch in patches:
            if patch is None or writing.add(patch):
                yield report
        if writing.write():
            yield report
    _in_delays(queue.state, wanted, report)
    yield report


class _Writing:
    """Gathers patches until they are worth an intent."""

    def __init__(self, files: Files, report: RedactionReport, reached: Callable[[str], object]) -> None:
        self._files = files
        self._report = report
        self._reached = reached
        self._patches: list[Patch] = []
        self._size = 0

    def add(self, patches: list[Patch]) -> bool:
        """Patches that belong together. True if that was enough for an intent, which is done now."""
        self._patches += patches
        self._size += sum(len(data) for _, _, data in patches)
        return self._size >= BATCH_BYTES and self.write()

    def write(self) -> bool:
        if not self._patches:
            return False
        patches, self._patches, self._size = self._patches, [], 0
        self._files.replace(INTENT, _pack(patches))
        self._reached("intent-written")
        _overwrite(self._files, patches, self._reached)
        self._report.bytes += sum(len(data) for _, _, data in patches)
        return True


def _overwrite(files: Files, patches: list[Patch], reached: Callable[[str], object] = lambda point: None) -> None:
    opened: dict[str, File] = {}
    try:
        for path, position, data in patches:
            if path not in opened:
                try:
                    opened[path] = files.open(path)
                except FileNotFoundError:
                    continue  # retention has removed it meanwhile
            opened[path].write(data, position)
        reached("written")
        for file in opened.values():
            file.flush()
    finally:
        for file in opened.values():
            file.close()
    reached("flushed")
    files.remove(INTENT)
    files.flush_folder("queue")


def _pack(patches: list[Patch]) -> bytes:
    parts = [_MAGIC]
    for path, position, data in patches:
        name = path.encode()
        parts += [_ROW.pack(len(name), position, len(data)), name, data]
    content = b"".join(parts)
    return content + _CRC.pack(crc32(content))


def _unpack(data: bytes) -> list[Patch]:
    content = data[: -_CRC.size]
    if not content.startswith(_MAGIC) or crc32(content) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptData(f"{INTENT} is damaged: run pixiu queue verify; if all is sound, remove it and redact again")
    patches: list[Patch] = []
    at = len(_MAGIC)
    while at < len(content):
        name_bytes, position, size = _ROW.unpack_from(content, at)
        at += _ROW.size
        path = content[at : at + name_bytes].decode()
        at += name_bytes
        patches.append((path, position, content[at : at + size]))
        at += size
    return patches


# The journal.


def _frames(journal: Journal) -> Iterator[tuple[Segment, int, Frame]]:
    """Every whole frame. Behind an unfinished write at the very end there is nothing; other damage is an error."""
    for segment in journal.segments:
        for position, frame in segment.scan():
            if isinstance(frame, Damage):
                if segment is journal.tail and frame.reason == "cut off":
                    return
                raise segment.damaged(frame.position, frame.reason)
            yield segment, position, frame


def _in_journal(journal: Journal, users: frozenset[int], report: RedactionReport) -> Iterator[list[Patch] | None]:
    seen: set[str] = set()
    for count, (segment, position, frame) in enumerate(_frames(journal)):
        if segment.path not in seen:
            seen.add(segment.path)
            report.segments += 1
        if count % 1000 == 999:
            yield None
        if _RESERVED not in frame.block[:200]:
            continue
        record = decode_block(frame.block)
        if not record.topic.startswith(_RESERVED) or record.kind not in (*MESSAGE_KINDS, Kind.DELAY):
            continue
        payload, changed = _payload(record, users)
        if changed:
            report.records += 1
            report.messages += changed
            yield [(segment.path, position, _frame(frame, record, payload))]


def _payload(record: Record, users: frozenset[int]) -> tuple[bytes, int]:
    """The record's payload, and how many of its messages had something to blank."""
    head = HEAD.size if record.kind in (Kind.FIRE, Kind.DELAY) else 0
    blank, changed = _messages(record.topic, record.payload[head:], users)
    return record.payload[:head] + blank, changed


def _messages(topic: bytes, payload: bytes, users: frozenset[int]) -> tuple[bytes, int]:
    messages = split_messages(payload)
    if messages is None:
        return payload, 0
    blank = [_message(topic, message, users) for message in messages]
    changed = sum(new is not None for new in blank)
    if not changed:
        return payload, 0
    return b"".join(old if new is None else new for old, new in zip(messages, blank, strict=True)), changed


def _message(topic: bytes, message: bytes, users: frozenset[int]) -> bytes | None:
    body = body_of(message)
    message_id = number_and_key(message)[0] if is_numbered(message) else 0
    blank = redacted(topic.decode(errors="replace"), body, message_id, users)
    return None if blank is None else message[: len(message) - len(body)] + blank


def _frame(frame: Frame, record: Record, payload: bytes) -> bytes:
    block = frame.block[: record.payload_offset] + payload + b"\n"
    assert len(block) == len(frame.block), "a redacted record keeps its length"
    return encode_frame(block, epoch=frame.epoch, count=frame.count, flushed_through=frame.flushed_through)


# Topic logs: derived, and still full of what was written.


def _in_topics(
    queue: Redactable, users: frozenset[int], report: RedactionReport, *, is_stopped: bool
) -> Iterator[list[Patch] | None]:
    for name in (b"pixiu.main", b"pixiu.notify", b"pixiu.tasks", b"pixiu.dlq", b"pixiu.schedule"):
        topic = queue.topics.get(name)
        if topic is None:
            continue
        folder = folder_of(topic.create_event_id)
        end = queue.topics.flushed_end(topic) if is_stopped else None
        for file_name in queue.files.names(folder):
            number = file_name.removesuffix(".log")
            if number.isdecimal():
                report.topic_files += 1
                chunks = None if end is None or int(number) < end.number else _chunks_through(end, int(number))
                yield from _in_topic_file(queue.files, f"{folder}/{number}", chunks, name, users, report)


def _chunks_through(end: End, number: int) -> int:
    return end.chunks if number == end.number else 0


def _in_topic_file(
    files: Files, path: str, chunks: int | None, topic: bytes, users: frozenset[int], report: RedactionReport
) -> Iterator[list[Patch] | None]:
    items, index = files.open(f"{path}.log"), files.open(f"{path}.idx", create=True)
    try:
        count = index.size() // CHUNK_BYTES if chunks is None else chunks
        lines = index.read(0, count * CHUNK_BYTES)
        for at, (first, last, position, length, crc) in enumerate(CHUNK.iter_unpack(lines)):
            data = items.read(position, length)
            if len(data) != length or crc32(data) != crc:
                raise CorruptData(f"{path}.log byte {position}: checksum does not match; run: pixiu queue verify")
            blank, changed = _chunk(data, topic, users)
            if changed:
                report.topic_messages += changed
                line = CHUNK.pack(first, last, position, length, crc32(blank))
                yield [(f"{path}.log", position, blank), (f"{path}.idx", at * CHUNK_BYTES, line)]
            elif at % 1000 == 999:
                yield None
    finally:
        items.close()
        index.close()


def _chunk(data: bytes, topic: bytes, users: frozenset[int]) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    changed = 0
    for _, start, end in items_of(data):
        message = data[start:end]
        blank = _message(topic, message, users)
        changed += blank is not None
        pieces += [data[start - ITEM_HEADER_BYTES : start], message if blank is None else blank]
    return b"".join(pieces), changed


# What waits for its time.


def _in_delays(state: State, users: frozenset[int], report: RedactionReport) -> None:
    rows: list[tuple[bytes, bytes]] = []
    for key, delayed, head in state.delays.rows():
        if delayed.topic.startswith(_RESERVED):
            payload, changed = _messages(delayed.topic, delayed.payload, users)
            if changed:
                report.delays += 1
                rows.append((key, head + payload))
    if rows:
        state.store.write(rows)
        state.store.flush()
