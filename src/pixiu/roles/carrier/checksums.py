"""Checksums over a log, one per conversation and one per topic: logs with equal checksums hold the same records.

Records of the main topic that are no messages (users, groups, receipts, the ledger) have a checksum for each kind,
under its name in brackets: ``[user]``, ``[ledger]``. All other topics are compared as they are: ``topic orders``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.ports.log import LogRecord

__all__ = ["TOPIC", "Checksum", "Checksums", "Difference", "differences"]

DIGEST_BYTES = 8
TOPIC = "topic "
EPOCHS = "[epoch]"


class Checksum(NamedTuple):
    """All that a log has of one conversation or topic."""

    records: int
    newest: int
    """The event id of the last of them."""
    digest: bytes


class Difference(NamedTuple):
    """A conversation or topic in which two logs do not agree."""

    conversation: str
    here: Checksum | None
    there: Checksum | None


class Checksums:
    """Takes records in the order of their event ids. One entry per conversation and topic: about 200 bytes each."""

    def __init__(self) -> None:
        self._found: dict[str, Checksum] = {}

    def take(self, record: LogRecord) -> None:
        """One record more."""
        self._chain(conversation_of(record), record.event_id, b"%d " % record.message_id, record.payload)

    def take_of_topic(self, topic: str, event_id: int, kind: int, payload: bytes) -> None:
        """One journal record of any topic but the main one."""
        self._chain(f"{TOPIC}{topic}" if topic else EPOCHS, event_id, b"%d " % kind, payload)

    def _chain(self, name: str, event_id: int, head: bytes, payload: bytes) -> None:
        count, _, digest = self._found.get(name, _NONE)
        chained = blake2b(digest, digest_size=DIGEST_BYTES)
        chained.update(b"%d " % event_id)
        chained.update(head)
        chained.update(payload)
        self._found[name] = Checksum(count + 1, event_id, chained.digest())

    @property
    def found(self) -> Mapping[str, Checksum]:
        """By name: ``u:<number>-<number>``, ``g:<number>``, a kind of record in brackets, or ``topic <name>``."""
        return self._found


_NONE = Checksum(0, 0, bytes(DIGEST_BYTES))


def conversation_of(record: LogRecord) -> str:
    """Where a record belongs; a private conversation is named by its two users, the smaller number first."""
    try:
        parsed = Record.FromString(record.payload)
    except DecodeError:
        return f"[{record.topic}]"
    what = parsed.WhichOneof("what")
    if what is not None:
        return f"[{what}]"
    if parsed.to:
        low, high = sorted((parsed.actor, parsed.to))
        return f"u:{low}-{high}"
    return f"g:{parsed.group}"


def differences(here: Mapping[str, Checksum], there: Mapping[str, Checksum]) -> list[Difference]:
    """Where two logs do not agree, by name."""
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    return [Difference(name, here.get(name), there.get(name)) for name in names]
