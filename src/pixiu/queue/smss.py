"""Records of an smss server, taken into this queue's journal with their event ids.

Pixiu's blocks have the form of smss's, so a record is copied as it is and framed. Three things differ:

- Event ids of a journal have no gaps, those of smss may (a failed write burns its ids). An EPOCH record, which changes
  nothing, stands for the missing ones.
- smss does not look into messages. One whose header count is wrong would break every consumer; its ids are kept and its
  bytes are not.
- A create of a topic that exists, which followers of smss have in their binlog, changes nothing there. It becomes an
  EPOCH record, too.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pixiu.machines.queue_wire.commands import RESERVED_PREFIX
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import Conflict, CorruptData, NotAllowed, RequestError, TooLarge, Unavailable
from pixiu.queue.delays import HEAD
from pixiu.queue.replication.copies import Copy
from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.record import (
    HEADER_BYTES,
    SMSS_KINDS,
    Frame,
    Kind,
    Record,
    decode_block,
    encode_block,
    encode_frame,
)
from pixiu.queue.storage.state import epoch_payload
from pixiu.queue.storage.topics import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.queue.engine import Engine

__all__ = [
    "BaseTopic",
    "SmssIntake",
    "add_base_topics",
    "check_record",
    "is_other_log",
    "last_smss_event",
    "refusal_advice",
]

log = logging.getLogger(__name__)

BATCH_BYTES = 4 * 2**20
GAP_MAX = 2**20
"""Missing event ids in a row that are filled: each takes 64 bytes of index."""
FILLER_IDS_MAX = 2**16
"""Ids of one EPOCH record."""

_GAP = epoch_payload(0, "smss-gap")
"""Stands for ids that smss has no record of."""
_LEFT_OUT = epoch_payload(0, "smss-record")
"""Stands for a record of smss that is not applied here."""

_NUMBER_MAX = 2**62
_CONTENT = Struct("<I")
_EXPIRY_BYTES = 8


class BaseTopic(NamedTuple):
    """A topic that was created before the first record."""

    name: bytes
    create_event_id: int
    create_ms: int
    expires_at: int


def check_record(block: bytes, *, payload_bytes_max: int) -> Record:
    """A record of smss. Raises ``CorruptData`` for other bytes, ``RequestError`` for what Pixiu cannot take."""
    try:
        record = decode_block(block)
    except ValueError as error:
        raise CorruptData(f"not a record of smss: {error}") from None
    where = f"event {record.event_id} of topic {record.topic.decode(errors='replace')!r}"
    if record.kind not in SMSS_KINDS:
        raise CorruptData(f"{where} has the command {record.kind}, which smss does not write")
    if not (0 < record.event_id < _NUMBER_MAX and 0 <= record.write_ms < _NUMBER_MAX):
        raise CorruptData(f"{where}, written at {record.write_ms}: no numbers of smss")
    if record.kind == Kind.CREATE and len(record.payload) != _EXPIRY_BYTES:
        raise CorruptData(f"{where}: a create has {_EXPIRY_BYTES} bytes, not {len(record.payload)}")
    if record.kind in (Kind.DELAY, Kind.FIRE) and len(record.payload) <= HEAD.size:
        raise CorruptData(f"{where}: a delayed message has more than {HEAD.size} bytes, not {len(record.payload)}")
    if record.topic.startswith(RESERVED_PREFIX):
        raise NotAllowed(
            f"{where}: names that begin with {RESERVED_PREFIX.decode()} are Pixiu's own; "
            "publish its messages under another name in smss and delete it there, then begin again"
        )
    if len(record.payload) > payload_bytes_max:
        raise TooLarge(
            f"{where} has {len(record.payload)} bytes; the limit is {payload_bytes_max}: "
            f"add --set queue.payload_bytes_max={len(record.payload)}"
        )
    return record


class SmssIntake:
    """Appends records to the journal of an engine that does not lead, and shows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._payload_bytes_max = engine.settings.payload_bytes_max
        self._frames: list[bytes] = []
        self._copies: list[Copy] = []
        self._bytes = 0
        self._last = engine.journal.last_event_id
        self.records = self.messages = self.skipped = 0

    @property
    def last_event_id(self) -> int:
        """The newest event id that was added."""
        return self._last

    def add(self, block: bytes) -> None:
        """Take one record. Raises ``Conflict`` if it does not follow the last one, and as ``check_record`` does."""
        record = check_record(block, payload_bytes_max=self._payload_bytes_max)
        if record.event_id <= self._last:
            raise Conflict(
                f"smss sent event {record.event_id} after event {self._last}: this directory holds another log; "
                "begin again with an empty data directory"
            )
        if self._last or not self._engine.journal.is_empty:
            self._fill(self._last + 1, record)
        self.records += 1
        if record.kind == Kind.CREATE:
            self._add_create(block, record)
        elif record.kind in (Kind.PUBLISH, Kind.FIRE):
            self._add_messages(block, record)
        else:
            self._add(block, record, 1)
        if self._bytes >= BATCH_BYTES:
            self.commit()

    def commit(self) -> None:
        """Write what was added, and show it. Raises ``OSError``, or ``Unavailable`` if the disk has failed before."""
        if not self._copies:
            return
        copies, frames = self._copies, b"".join(self._frames)
        self._copies, self._frames, self._bytes = [], [], 0
        self._engine.append_frames(frames, copies)
        if self._engine.writer.poisoned is not None:
            raise Unavailable(self._engine.writer.poisoned)
        self._engine.apply_through(copies[-1].last_event_id)

    def _add_create(self, block: bytes, record: Record) -> None:
        self.commit()  # so that the engine has every topic before this one
        try:
            check_name(record.topic)
        except RequestError as error:
            self._skip(record, 1, str(error))
            return
        if self._engine.topics.get(record.topic) is not None:
            self._add_filler(record.event_id, 1, record)
        else:
            self._add(block, record, 1)

    def _add_messages(self, block: bytes, record: Record) -> None:
        head = HEAD.size if record.kind == Kind.FIRE else 0
        payload = record.payload[head:]
        messages = split_messages(payload)
        if messages is not None:
            self.messages += len(messages)
            self._add(block, record, len(messages), messages)
            return
        count = _count_of(payload)
        if not count:
            raise CorruptData(f"event {record.event_id}: its payload is not a list of messages")
        if record.kind == Kind.FIRE:  # the delay is over all the same
            cancel = encode_block(
                Kind.CANCEL, record.event_id, record.topic, record.payload[:head],
                write_ms=record.write_ms, receive_ms=record.receive_ms,
            )  # fmt: skip
            self._note_skipped(record, count, "headers do not fit the message")
            self._add(cancel, decode_block(cancel), count)
        else:
            self._skip(record, count, "headers do not fit the message")

    def _skip(self, record: Record, count: int, reason: str) -> None:
        self._note_skipped(record, count, reason)
        self._add_filler(record.event_id, count, record)

    def _note_skipped(self, record: Record, count: int, reason: str) -> None:
        self.skipped += count
        topic = record.topic.decode(errors="replace")
        extra = {"event_id": record.event_id, "count": count, "topic": topic, "reason": reason}
        log.warning("smss_record_skipped", extra=extra)

    def _fill(self, first: int, record: Record) -> None:
        missing = record.event_id - first
        if missing > GAP_MAX:
            raise CorruptData(
                f"smss's log has no events {first} to {record.event_id - 1}, and at most {GAP_MAX} ids in a row may be "
                "missing: begin again with an empty data directory"
            )
        while missing:
            count = min(missing, FILLER_IDS_MAX)
            self._add_filler(first, count, record, _GAP)
            first, missing = first + count, missing - count

    def _add_filler(self, event_id: int, count: int, beside: Record, payload: bytes = _LEFT_OUT) -> None:
        block = encode_block(Kind.EPOCH, event_id, b"", payload, write_ms=beside.write_ms, receive_ms=beside.receive_ms)
        self._add(block, decode_block(block), count)

    def _add(self, block: bytes, record: Record, count: int, messages: list[bytes] | None = None) -> None:
        flushed = self._engine.journal.flushed_through
        self._frames.append(encode_frame(block, epoch=0, count=count, flushed_through=flushed))
        self._copies.append(Copy(self._bytes, Frame(0, count, flushed, block), record, messages or []))
        self._bytes += HEADER_BYTES + len(block)
        self._last = record.event_id + count - 1


def add_base_topics(engine: Engine, topics: Iterable[BaseTopic]) -> None:
    """Make these the topics of a queue whose journal is still empty; durable when it returns."""
    assert engine.journal.is_empty
    changes = Changes()
    for stored in engine.topics.stored_topics():  # of an attempt that ended before its first record
        engine.state.delete_topic(stored, changes)
    for topic in topics:
        engine.topics.create(topic.name, topic.create_event_id, topic.create_ms, topic.expires_at, changes)
    engine.state.store.write(changes.puts, changes.deletes)
    changes.committed()
    engine.state.store.flush()


def last_smss_event(engine: Engine) -> int:
    """The event id under which smss has the newest record that is here; 0 if none is."""
    journal = engine.journal
    event_id = journal.last_event_id
    while event_id >= journal.first_event_id:
        record = decode_block(journal.frame_of(event_id).block)
        if record.kind != Kind.EPOCH or record.payload != _GAP:
            return record.event_id
        event_id = record.event_id - 1
    return 0


def is_other_log(engine: Engine) -> bool:
    """Whether this log was led by Pixiu, or copied from Pixiu: then it is not smss's alone."""
    return engine.state.epoch > 0


def refusal_advice(text: str) -> str:
    """What an operator does about the answer of an smss master to Replica."""
    if text.startswith("don't support"):
        return "it is an smss slave: follow its master"
    if "file not exist" in text or "expired" in text:
        return "it no longer has the events after the last one here: begin again with an empty data directory"
    if text == "EOF":
        return (
            "smss answers so after a restart until something is published; if that does not help, it has another log: "
            "begin again with an empty data directory"
        )
    return "see smss's log"


def _count_of(payload: bytes) -> int:
    """How many messages smss counted: by their lengths alone. 0 if they do not fit."""
    count = start = 0
    while len(payload) - start > 8:
        (content,) = _CONTENT.unpack_from(payload, start)
        start += 8 + content
        count += 1
    return count if start == len(payload) else 0
