"""A checksum per conversation over a log: two logs that agree in all of them hold the same messages in the same order.

What is no message (users, groups, receipts, what became of entries) has a checksum for each kind, under its name in
brackets: ``[user]``, ``[ledger]``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.ports.log import LogRecord

__all__ = ["Checksum", "Checksums", "Difference", "differences"]

DIGEST_BYTES = 8


class Checksum(NamedTuple):
    """All that a log has of one conversation."""

    records: int
    newest: int
    """The event id of the last of them."""
    digest: bytes


class Difference(NamedTuple):
    """A conversation in which two logs do not agree."""

    conversation: str
    here: Checksum | None
    there: Checksum | None


class Checksums:
    """Takes records in the order of their event ids. One entry per conversation: about 200 bytes each."""

    def __init__(self) -> None:
        self._found: dict[str, Checksum] = {}

    def take(self, record: LogRecord) -> None:
        """One record more."""
        name = conversation_of(record)
        count, _, digest = self._found.get(name, _NONE)
        chained = blake2b(digest, digest_size=DIGEST_BYTES)
        chained.update(b"%d %d " % (record.event_id, record.message_id))
        chained.update(record.payload)
        self._found[name] = Checksum(count + 1, record.event_id, chained.digest())

    @property
    def found(self) -> Mapping[str, Checksum]:
        """By conversation: ``u:<number>-<number>``, ``g:<number>``, or a kind of record in brackets."""
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
