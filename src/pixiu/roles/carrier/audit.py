"""Is every accepted message where it should be? Recomputed from the log, compared with the stores.

The log is replayed into a second, empty set of stores (the reference): that gives what each inbox was *intended* to
get, and what the ledger says became of it. What is *waiting* is counted in the stores themselves, never by
subtraction. The books balance when::

    intended = acked + waiting + expired + dead

and when, entry by entry, what the reference says is waiting is there, with its body; and row by row, what it says was
said is in the history of whom it was said to (``Histories``). Anything else is named.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import LANES, Appliers, parse
from pixiu.roles.carrier.histories import Histories, KeptTimelines, Reference
from pixiu.roles.carrier.ledgers import check_ledger, ledger_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.model.inbox import Entry, InboxState, Page
    from pixiu.model.pixiu_pb2 import Ledger, Record, Rows
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.cut import Cut

__all__ = ["AUDIT_BATCH", "AUDIT_TURN", "Audit", "AuditReport"]

NAMED_MAX = 1000
"""Messages that a report names; beyond that it only counts."""

AUDIT_BATCH = 2000
"""Records that are read from the log at once."""
AUDIT_TURN = 200
"""Records that are replayed, or inboxes that are compared, before others get their turn: some 10 ms."""

_ENTRIES_PER_INBOX = 10
"""So many are compared in the time that an inbox takes."""

_PAGE = 1000


@dataclass(slots=True)
class AuditReport:
    """The books. ``lost`` and ``duplicates`` name messages, and inboxes or histories."""

    cut: int = 0
    accepted: int = 0
    stored: int = 0
    """Messages of large groups: stored once, counted in no inbox."""
    intended: int = 0
    acked: int = 0
    waiting: int = 0
    expired: int = 0
    dead: int = 0
    resent: int = 0
    undecodable: int = 0
    histories: int = 0
    """Rows of timelines that were compared: a private message has one at each side, a group's message one."""
    lost: list[dict[str, object]] = field(default_factory=list)
    duplicates: list[dict[str, object]] = field(default_factory=list)
    lost_count: int = 0
    duplicate_count: int = 0

    @property
    def balanced(self) -> bool:
        """Does everything add up, with nothing lost and nothing twice?"""
        adds_up = self.intended == self.acked + self.waiting + self.expired + self.dead
        return adds_up and not self.lost_count and not self.duplicate_count

    def lose(self, **row: object) -> None:
        """Count a message that is not in its place, and name it."""
        self.lost_count += 1
        _name(self.lost, row)

    def double(self, **row: object) -> None:
        """Count a message that is where it should not be, and name it."""
        self.duplicate_count += 1
        _name(self.duplicates, row)

    def as_json(self) -> dict[str, object]:
        """The report as the command prints it."""
        return {**asdict(self), "balanced": self.balanced}


def _name(rows: list[dict[str, object]], row: dict[str, object]) -> None:
    if len(rows) < NAMED_MAX:
        rows.append({key: str(value) if key == "message_id" else value for key, value in row.items()})


class Audit:
    """One audit: give it every record through the cut, then compare."""

    def __init__(self, reference: Stores, *, at_least: int = 0, before: int | None = None) -> None:
        self.report = AuditReport()
        self._is_within: Callable[[int], bool] = lambda at: at_least <= at and (before is None or at < before)
        self._reference = reference
        self._inboxes = reference.inboxes = CountedInboxes(reference.inboxes, self._is_within)
        self._timelines = reference.timelines = KeptTimelines(reference.timelines)
        self._appliers = Appliers(reference)
        self._keys: set[bytes] = set()

    def taking(self, records: list[LogRecord]) -> Iterator[None]:
        """Replay records, a few before each yield: whoever audits has other work, and perhaps a lease to renew."""
        for first in range(0, len(records), AUDIT_TURN):
            for record in records[first : first + AUDIT_TURN]:
                self.take(record)
            yield

    def take(self, record: LogRecord) -> None:
        """Replay one record."""
        if record.topic != MAIN:
            return
        report = self.report
        try:
            parsed = parse(record)
            is_within = self._is_within(parsed.at)
            self._timelines.is_counted = is_within
            dead = self._count_ledger(parsed)
            self._appliers.apply(record, parsed)
            report.dead += dead
        except (DecodeError, ValueError):
            report.undecodable += 1
            for lane in LANES:
                self._appliers.skip(lane, record.event_id)
            return
        self._appliers.forget_news()
        self._keys.difference_update(parsed.trimmed.keys)
        if record.key:
            if record.key in self._keys:
                report.double(message_id=record.message_id, reason="accepted twice")
            self._keys.add(record.key)
        if is_within and record.message_id:
            self._timelines.said.append(record.message_id)
        if parsed.chat and is_within:
            report.accepted += 1
            if parsed.group and not self._inboxes.added_last:  # it has entered no inbox
                report.stored += 1
        self._inboxes.added_last = 0

    def _count_ledger(self, parsed: Record) -> int:
        """Note resends, and how many entries a ledger declares dead, before they leave.

        An entry leaves once, by the first row that names it, and what has expired goes before what has died: an entry
        that a ledger names as both, or as dead twice, counts as the appliers and the pipeline's books count it.
        """
        if parsed.WhichOneof("what") != "ledger":
            return 0
        ledger = parsed.ledger
        check_ledger(ledger)
        if self._is_within(parsed.at):
            resent = zip(ledger.resent.first, ledger.resent.through, strict=False)
            self.report.resent += sum(through - first + 1 for first, through in resent)
        if not ledger.dead.user:
            return 0
        expired, dead = self._named(ledger, ledger.expired), self._named(ledger, ledger.dead)
        return len(dead - expired)

    def _named(self, ledger: Ledger, rows: Rows) -> set[tuple[int, str, int]]:
        """The entries, of messages within the time, that rows take out."""
        return {
            (user, ledger.platforms[platform], entry.useq)
            for user, platform, first, through in ledger_rows(rows)
            for entry in self._range(user, ledger.platforms[platform], first, through)
            if self._is_within(entry.at)
        }

    def _range(self, user: int, platform: str, first: int, through: int) -> Iterator[Entry]:
        after = first - 1
        while page := self._inboxes.after(user, platform, after, _PAGE).entries:
            for entry in page:
                if entry.useq > through:
                    return
                yield entry
            after = page[-1].useq

    def close(self, cut: Cut) -> AuditReport:
        """Compare with what the stores hold, at one go."""
        for _ in self.closing(cut):
            pass
        return self.report

    def closing(self, cut: Cut) -> Iterator[None]:
        """Compare with what the stores hold, a few inboxes before each yield; then ``report`` has the books."""
        report, counted = self.report, self._inboxes
        report.cut = cut.event_id
        report.intended = counted.added
        report.acked = counted.acked
        report.expired = counted.removed - report.dead
        seen: set[tuple[int, str]] = set()
        work = 0
        for state in _states(counted):
            seen.add((state.user, state.platform))
            work += 1 + self._compare(state, cut) // _ENTRIES_PER_INBOX
            if work >= AUDIT_TURN:
                work = 0
                yield
        for (user, platform), (_, entries, _) in cut.inboxes.items():
            if (user, platform) not in seen:
                for entry in entries:
                    self._ghost(user, platform, entry, "the log knows no such inbox")

    def histories(self, stores: Stores) -> Histories:
        """What is left to compare behind ``closing``: timelines and bodies."""
        reference = Reference(self._reference, self._timelines, self._appliers)
        return Histories(reference, stores, self.report, is_whole=self._is_within(0))

    def _compare(self, state: InboxState, cut: Cut) -> int:
        """Returns how many entries there were."""
        user, platform = state.user, state.platform
        _, entries, missing = cut.inboxes.get((user, platform), (None, [], set()))
        wanted = {entry.useq: entry for entry in _entries(self._inboxes, state)}
        met: set[int] = set()
        for entry in entries:
            self.report.waiting += self._is_within(entry.at)
            if entry.message_id in met:
                self._ghost(user, platform, entry, "twice in one inbox")
            met.add(entry.message_id)
            expected = wanted.pop(entry.useq, None)
            if expected is None:
                self._ghost(user, platform, entry, "waits, though the log says that it has left")
            elif expected.message_id != entry.message_id:
                self._lose(user, platform, expected, "another message has its place")
            elif entry.message_id in missing:
                self._lose(user, platform, expected, "its body is missing")
        for entry in wanted.values():
            self._lose(user, platform, entry, "not in the inbox")
        return len(entries)

    def _lose(self, user: int, platform: str, entry: Entry, reason: str) -> None:
        self.report.lose(user=user, platform=platform, useq=entry.useq, message_id=entry.message_id, reason=reason)

    def _ghost(self, user: int, platform: str, entry: Entry, reason: str) -> None:
        self.report.double(user=user, platform=platform, useq=entry.useq, message_id=entry.message_id, reason=reason)


class CountedInboxes:
    """Inboxes that count what enters and what leaves, of messages within a stretch of time."""

    def __init__(self, inner: Inboxes, is_within: Callable[[int], bool]) -> None:
        self._inner = inner
        self._is_within = is_within
        self.added = self.acked = self.removed = 0
        self.added_last = 0
        """Entries since someone set this to 0."""
        self.open = inner.open
        self.platforms = inner.platforms
        self.after: Callable[..., Page] = inner.after
        self.state = inner.state
        self.states = inner.states

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Add, and count it."""
        useq = self._inner.add(user, platform, message_id, event_id, at, options, session)
        self.added_last += 1
        if useq and self._is_within(at):
            self.added += 1
        return useq

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Ack, and count what leaves."""
        gone = self._inner.ack(user, platform, through)
        self.acked += sum(self._is_within(entry.at) for entry in gone)
        return gone

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Remove, and count what leaves."""
        gone = self._inner.remove(user, platform, first, through)
        self.removed += sum(self._is_within(entry.at) for entry in gone)
        return gone


def _states(inboxes: Inboxes) -> Iterator[InboxState]:
    after: tuple[int, str] | None = None
    while page := inboxes.states(after=after, limit=_PAGE):
        yield from page
        after = page[-1].user, page[-1].platform


def _entries(inboxes: Inboxes, state: InboxState) -> Iterator[Entry]:
    after = 0
    while page := inboxes.after(state.user, state.platform, after, _PAGE).entries:
        yield from page
        after = page[-1].useq
