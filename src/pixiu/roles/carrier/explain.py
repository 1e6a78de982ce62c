"""One message's way through the system, from what the log says of it: what ``pixiu explain`` shows.

The record itself has when it was accepted and when it was written; traces have the flush that committed it, and how
long its stores took; the ledger has the hand-over to each inbox, and its ack. Ids rise within an inbox, so the first
hand-over whose last message is not below this one is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.machines.ledger import stamps_of
from pixiu.machines.traces import flushes_in
from pixiu.model.pixiu_pb2 import ChatMsgType, MsgChat, Record
from pixiu.ports.log import MAIN
from pixiu.roles.carrier.audience import group_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.pixiu_pb2 import Ledger, Rows
    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores

__all__ = ["RECORDS_MAX", "Message", "Waterfall", "message_of", "waterfall_of"]

RECORDS_MAX = 200_000
"""Records behind a message that are looked at; what came later is not shown, and that is said."""


class Message(NamedTuple):
    """What is explained."""

    message_id: int
    event_id: int
    accepted_at: int
    written_at: int
    actor: int
    to: int
    group: int
    kind: str
    size: int


class _Inbox:
    """What became of the message in one inbox."""

    __slots__ = ("acked_at", "ended", "first", "gateway", "handed_at", "is_exact", "is_waited", "resent", "through")

    def __init__(self, at: int, first: int, through: int, gateway: str, *, is_waited: bool, is_exact: bool) -> None:
        self.handed_at = at
        self.first = first
        self.through = through
        self.gateway = gateway
        self.is_waited = is_waited
        self.is_exact = is_exact
        self.acked_at: int | None = None
        self.resent = 0
        self.ended = ""


class Waterfall:
    """Give it what was noted behind the message, in order."""

    def __init__(
        self,
        message: Message,
        audience: set[int],
        *,
        why_none: str = "",
        expected: frozenset[tuple[int, str]] | None = None,
    ) -> None:
        """``audience``: users whose inboxes the message was for; ``why_none`` says why there are none.

        ``expected`` are the inboxes that they have, if that is known.
        """
        self._expected = expected
        self._message = message
        self._audience = audience
        self._why_none = why_none
        self._inboxes: dict[tuple[int, str], _Inbox | None] = {}  # None: it was not in there
        self._committed_at: int | None = None
        self._applied_us = 0
        self.read_through = message.event_id
        self.is_whole = True

    def flushed(self, after: int, through: int, at: int, us: int) -> None:
        """A flush, and how long its stores took."""
        if after < self._message.event_id <= through:
            self._committed_at, self._applied_us = at, us

    def handed(
        self, user: int, platform: str, at: int, first: int, through: int, message_id: int, gateway: str, *,
        is_waited: bool,
    ) -> None:  # fmt: skip
        """Entries of an inbox were handed to a session; ``message_id`` is the last of them."""
        wanted, key = self._message.message_id, (user, platform)
        if user not in self._audience or key in self._inboxes or message_id < wanted:
            return
        if message_id > wanted and first == through:
            self._inboxes[key] = None  # what a session has said itself is not pushed to it
        else:
            is_exact = message_id == wanted
            first = through if is_exact else first
            self._inboxes[key] = _Inbox(at, first, through, gateway, is_waited=is_waited, is_exact=is_exact)

    def noted(self, what: str, user: int, platform: str, at: int, first: int, through: int) -> None:
        """Another row of the ledger: acked, resent, expired or dead."""
        found = self._inboxes.get((user, platform))
        if found is None:
            return
        if what == "acked":
            if found.acked_at is None and through >= found.through:
                found.acked_at = at
        elif first <= found.through and through >= found.first:
            if what == "resent":
                found.resent += 1
            elif found.acked_at is None:
                found.ended = what

    def take(self, record: LogRecord) -> None:
        """A record of the log behind the message."""
        self.read_through = record.event_id
        if record.topic != MAIN or record.message_id:
            return
        try:
            parsed = Record.FromString(record.payload)
        except DecodeError:
            return
        what = parsed.WhichOneof("what")
        if what == "ledger":
            self._take_ledger(parsed.ledger, parsed.at)
        elif what == "traces":
            for flush in flushes_in(parsed.traces.flushes):
                self.flushed(*flush)

    def _take_ledger(self, ledger: Ledger, at: int) -> None:
        platforms = list(ledger.platforms)
        handed = ledger.handed
        if _fits(handed, platforms):
            messages, gateways, waited = stamps_of(handed, ledger.gateways)
            for place, user in enumerate(handed.user):
                if user in self._audience and messages[place]:
                    self.handed(
                        user, platforms[handed.platform[place]], at, handed.first[place], handed.through[place],
                        messages[place], gateways[place] or "", is_waited=bool(waited[place]),
                    )  # fmt: skip
        for what in ("resent", "expired", "dead", "acked"):
            rows: Rows = getattr(ledger, what)
            if _fits(rows, platforms):
                for user, index, first, through in zip(rows.user, rows.platform, rows.first, rows.through, strict=True):
                    if user in self._audience:
                        self.noted(what, user, platforms[index], at, first, through)

    @property
    def is_settled(self) -> bool:
        """Is there nothing more to come?"""
        met = [each for each in self._inboxes.values() if each is not None]
        has_all = self._expected is not None and self._inboxes.keys() >= self._expected
        return has_all and self._committed_at is not None and all(each.acked_at or each.ended for each in met)

    def as_json(
        self, name: Callable[[int], str] = str, group_name: Callable[[int], str] = str, source: str = "log"
    ) -> dict[str, object]:
        """The whole way; times in milliseconds since the epoch, ``after_ms`` from acceptance to a hop's end."""
        message = self._message
        begin = message.accepted_at
        hops: list[dict[str, object]] = []

        def hop(what: str, start: int, end: float) -> None:
            hops.append({"hop": what, "ms": _ms(end - start), "after_ms": _ms(end - begin)})

        hop("write", begin, message.written_at)
        if self._committed_at is not None:
            hop("flush", message.written_at, self._committed_at)
            hop("store", self._committed_at, self._committed_at + self._applied_us / 1000)
        inboxes = [
            self._inbox_json(name(user), platform, found)
            for (user, platform), found in sorted(self._inboxes.items())
            if found is not None
        ]
        answer: dict[str, object] = {
            "message_id": str(message.message_id),
            "event_id": str(message.event_id),
            "from": name(message.actor) if message.actor else "system",
            "kind": message.kind,
            "bytes": message.size,
            "accepted_at": begin,
            "written_at": message.written_at,
            "hops": hops,
            "inboxes": inboxes,
            "not_in_inboxes": self._why_none,
            "source": source,
            "read_through": str(self.read_through),
            "is_whole": self.is_whole,
        }
        if message.group:
            answer["group"] = group_name(message.group)
        elif message.to:
            answer["to"] = name(message.to)
        return answer

    def _inbox_json(self, user: str, platform: str, found: _Inbox) -> dict[str, object]:
        begin = self._message.accepted_at
        before = self._committed_at + self._applied_us / 1000 if self._committed_at is not None else begin
        return {
            "user": user,
            "platform": platform,
            "gateway": found.gateway,
            "outcome": "acked" if found.acked_at is not None else found.ended or "handed",
            "waited": found.is_waited,
            "is_exact": found.is_exact,
            "handed_at": found.handed_at,
            "push_ms": _ms(found.handed_at - before),
            "after_ms": _ms(found.handed_at - begin),
            "acked_at": found.acked_at,
            "ack_ms": None if found.acked_at is None else _ms(found.acked_at - found.handed_at),
            "resent": found.resent,
        }


def message_of(record: LogRecord, parsed: Record) -> Message:
    """What a record of the log says of itself."""
    chat = MsgChat.FromString(parsed.chat)
    kind = ChatMsgType.Name(chat.msgType).lower() if chat.msgType in ChatMsgType.values() else str(chat.msgType)
    group = group_of(record, parsed, parsed.WhichOneof("what"))
    size = len(record.payload)
    return Message(
        record.message_id, record.event_id, parsed.at, record.at, parsed.actor, parsed.to, group, kind, size
    )  # fmt: skip


def waterfall_of(record: LogRecord, parsed: Record, stores: Stores) -> Waterfall:
    """The waterfall of a message that is in the log, with those it was for."""
    message = message_of(record, parsed)
    audience, why_none = {message.actor, message.to} - {0}, ""
    if parsed.HasField("push"):
        audience = set(parsed.push.users)
    elif message.group:
        found = stores.groups.get(message.group)
        audience = set()
        if found is not None and found.is_large_at(record.event_id):
            why_none = "a large group's messages enter no inboxes: those who listen get them live, others by sync"
        else:
            audience = {member.user for member in stores.groups.members(message.group, at=record.event_id)}
    expected = frozenset((user, platform) for user in audience for platform in stores.inboxes.platforms(user))
    return Waterfall(message, audience, why_none=why_none, expected=expected)


def _fits(rows: Rows, platforms: list[str]) -> bool:
    same = len(rows.user) == len(rows.platform) == len(rows.first) == len(rows.through)
    return same and max(rows.platform, default=-1) < len(platforms)


def _ms(value: float) -> float:
    """To the microsecond. Clocks of several nodes may differ: nothing took less than no time."""
    return round(max(value, 0), 3)
