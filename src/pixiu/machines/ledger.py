"""What became of inbox entries, gathered for one record per tick.

Rows are ranges of one inbox's useqs. A range that adjoins the one before it becomes part of it, so a busy inbox costs
one row per tick, however many messages it had. Losing such a record costs a resend, never a message.

A row of entries that were handed over also names its last message, so that a message's way can be found and timed
without counting entries, and through which gateway it went.

Whoever applies a ledger takes ``expired`` and ``dead`` rows out first, then acks: an ack's range may run over them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from pixiu.model.pixiu_pb2 import Ledger, Record, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ROWS_MAX", "HandedRows", "InboxKey", "LedgerRows", "RowsOfKind", "stamps_of"]

ROWS_MAX = 10_000
"""Rows in one record; more make several records."""

InboxKey = tuple[int, str]
"""User and platform."""

KINDS = ("expired", "dead", "handed", "resent", "acked")
"""Acks last: they are to be applied last, also when one tick makes several records."""


class RowsOfKind:
    """Rows that say the same of different entries, in columns as the log has them."""

    __slots__ = ("_first", "_inboxes", "_newest", "_through")

    def __init__(self) -> None:
        self._inboxes: list[InboxKey] = []
        self._first: list[int] = []
        self._through: list[int] = []
        self._newest: dict[InboxKey, int] = {}  # where the newest row of an inbox is

    def __len__(self) -> int:
        return len(self._inboxes)

    def add(self, inbox: InboxKey, first: int, through: int) -> None:
        """Add a range; both ends belong to it."""
        index = self._newest.get(inbox)
        if index is not None and self._through[index] + 1 == first:
            self._through[index] = through
            return
        self._newest[inbox] = len(self._inboxes)
        self._inboxes.append(inbox)
        self._first.append(first)
        self._through.append(through)

    def encode(self, start: int, end: int, platforms: dict[str, int], gateways: dict[str, int]) -> Rows:
        """Some of the rows. ``platforms`` and ``gateways`` number the names, and are added to."""
        inboxes = self._inboxes[start:end]
        return Rows(
            user=[user for user, _ in inboxes],
            platform=[platforms.setdefault(platform, len(platforms)) for _, platform in inboxes],
            first=self._first[start:end],
            through=self._through[start:end],
        )


class HandedRows(RowsOfKind):
    """Rows of what was handed over, each with its last message, the gateway, and whether it had waited."""

    __slots__ = ("_gateways", "_messages", "_waited")

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[int] = []
        self._gateways: list[str] = []
        self._waited: list[bool] = []

    def add(
        self,
        inbox: InboxKey,
        first: int,
        through: int,
        message_id: int = 0,
        gateway: str = "",
        is_waited: bool = False,
    ) -> None:
        """Add a range that ends with ``message_id``. ``is_waited``: its first message is older than the session."""
        index = self._newest.get(inbox)
        if (
            index is not None
            and self._through[index] + 1 == first
            and self._waited[index] is is_waited
            and self._gateways[index] == gateway
        ):
            self._through[index] = through
            self._messages[index] = message_id
            return
        self._newest[inbox] = len(self._inboxes)
        self._inboxes.append(inbox)
        self._first.append(first)
        self._through.append(through)
        self._messages.append(message_id)
        self._gateways.append(gateway)
        self._waited.append(is_waited)

    def encode(self, start: int, end: int, platforms: dict[str, int], gateways: dict[str, int]) -> Rows:
        """Some of the rows. What is the same for all of them is left out."""
        rows = super().encode(start, end, platforms, gateways)
        messages = self._messages[start:end]
        rows.message.extend([number - before for before, number in zip((0, *messages), messages, strict=False)])
        numbers = [gateways.setdefault(name, len(gateways)) for name in self._gateways[start:end]]
        if any(numbers):
            rows.gateway.extend(numbers)
        waited = self._waited[start:end]
        if True in waited:
            rows.waited.extend(waited)
        return rows


class LedgerRows:
    """The rows of one tick, of every kind."""

    __slots__ = KINDS

    def __init__(self) -> None:
        self.expired = RowsOfKind()
        self.dead = RowsOfKind()
        self.handed = HandedRows()
        self.resent = RowsOfKind()
        self.acked = RowsOfKind()

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.handed) + len(self.acked) + len(self.resent) + len(self.expired) + len(self.dead)

    def take(self, at: int) -> list[bytes]:
        """All rows as records of time ``at``, and start anew. No rows make no record."""
        if not self.count:
            return []
        records = []
        ledger, platforms, gateways, room = Ledger(), dict[str, int](), dict[str, int](), ROWS_MAX
        for kind in KINDS:
            rows: RowsOfKind = getattr(self, kind)
            start = 0
            while start < len(rows):
                if room == 0:
                    records.append(_encode(ledger, platforms, gateways, at))
                    ledger, platforms, gateways, room = Ledger(), {}, {}, ROWS_MAX
                end = min(start + room, len(rows))
                getattr(ledger, kind).CopyFrom(rows.encode(start, end, platforms, gateways))
                room -= end - start
                start = end
            if start:
                setattr(self, kind, type(rows)())
        records.append(_encode(ledger, platforms, gateways, at))
        return records


def stamps_of(rows: Rows, gateways: Sequence[str]) -> tuple[list[int], list[str | None], list[bool | None]]:
    """What hand-overs say beside which entries they were: the last message, the gateway, and whether it had waited.

    0 and None where a row is no hand-over, was written before there were stamps, or does not fit.
    """
    size = len(rows.user)
    fits = len(rows.message) == size and len(rows.gateway) in (0, size) and len(rows.waited) in (0, size)
    if not fits or not gateways or max(rows.gateway, default=0) >= len(gateways):
        return [0] * size, [None] * size, [None] * size
    names: list[str | None] = [gateways[index] for index in rows.gateway] or [gateways[0]] * size
    return list(accumulate(rows.message)), names, list(rows.waited) or [False] * size


def _encode(ledger: Ledger, platforms: dict[str, int], gateways: dict[str, int], at: int) -> bytes:
    ledger.platforms.extend(platforms)
    ledger.gateways.extend(gateways)
    return Record(at=at, ledger=ledger).SerializeToString()
