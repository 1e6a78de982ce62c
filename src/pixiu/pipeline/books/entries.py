"""Who should have got what, and what became of it: entries of inboxes with their places, by arrays.

An *entry* is a message in an inbox, with the place that the carrier gave it (``useq``). Entries are made from messages,
inboxes and memberships as of each message's event id, and counted on from the last place that is known; the ledger says
which of them left, and how.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pixiu.model.inbox import FIRST
from pixiu.pipeline.books.people import Inboxes, part_of, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pixiu.pipeline.books.people import People

__all__ = ["HOWS", "Entries", "Ledger", "Meant", "departures", "evictions", "latest_at", "ledger_of"]

MESSAGE = ["message_id", "event_id", "accepted_at", "sender_id", "recipient_id", "group_id", "notice"]
_SPOKEN = pa.array(["recalled", "contact", "block", "group_info", "member"])
HOWS = ("", "acked", "expired", "dead")


class Entries(NamedTuple):
    """Arrays of the same length, by inbox and place; within an inbox events rise with places."""

    inbox: Any
    useq: Any
    event: Any
    message: Any
    accepted: Any
    """Microseconds."""
    is_new: Any


def ints(column: Any) -> Any:
    """A column of numbers or times as an array; nulls are 0."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)


class Meant:
    """Collects, from batches of new messages, what the inboxes of one part of the users were meant to get."""

    def __init__(self, people: People, inboxes: Inboxes, part: int, parts: int) -> None:
        self._inboxes, self._part, self._parts = inboxes, part, parts
        self._stays, self._large, self._quits = people.stays(), people.large(), people.quits()
        self._pushed = sorted(people.pushed, key=lambda row: (row[0], row[1]))
        self._push_events = np.array([row[0] for row in self._pushed], np.int64)
        self._found: list[tuple[Any, Any, Any, Any]] = []

    def take(self, batch: Any) -> None:
        """A batch with the columns ``MESSAGE``."""
        notice = batch.column("notice")
        is_spoken = pc.or_(pc.is_null(notice), pc.is_in(notice, _SPOKEN)).to_numpy(zero_copy_only=False)
        message, event, accepted, sender, to, group = (ints(batch.column(name)) for name in MESSAGE[:-1])
        is_private = is_spoken & (to > 0)
        here = part_of(to, self._parts) == self._part
        there = part_of(sender, self._parts) == self._part
        rows = np.concatenate(
            [
                np.flatnonzero(is_private & here),
                np.flatnonzero(is_private & there & (sender != 0) & (sender != to)),
            ]
        )
        count = int(np.count_nonzero(is_private & here))
        users = np.concatenate([to[rows[:count]], sender[rows[count:]]])
        heard_rows, heard_users = self._heard(np.flatnonzero(is_spoken & (to == 0) & (group > 0)), event, group, notice)
        self._enter(np.concatenate([rows, heard_rows]), np.concatenate([users, heard_users]), message, event, accepted)
        if len(self._push_events):
            is_push = pc.fill_null(pc.equal(notice, "push"), fill_value=False).to_numpy(zero_copy_only=False)
            self._push(np.flatnonzero(is_push), message, event, accepted)

    def _enter(self, rows: Any, users: Any, message: Any, event: Any, accepted: Any) -> None:
        which, inbox = self._inboxes.of_users(users)
        rows = rows[which]
        is_open = self._inboxes.opened[inbox] <= event[rows]
        rows, inbox = rows[is_open], inbox[is_open]
        self._found.append((inbox, event[rows], message[rows], accepted[rows]))

    def _heard(self, rows: Any, event: Any, group: Any, notice: Any) -> tuple[Any, Any]:
        """Rows and users, of messages in groups: who was a member then, and who left by the event itself."""
        if not len(rows):
            return rows, rows
        groups, since = self._large
        if len(groups):
            place = np.minimum(np.searchsorted(groups, group[rows]), len(groups) - 1)
            rows = rows[(groups[place] != group[rows]) | (since[place] > event[rows])]
        of_group, users, joined, left = self._stays
        which, stay = spans(np.searchsorted(of_group, group[rows]), np.searchsorted(of_group, group[rows], "right"))
        is_in = (joined[stay] <= event[rows[which]]) & (event[rows[which]] < left[stay])
        quit_events, quitters = self._quits
        changed = rows[pc.fill_null(pc.equal(notice, "member"), fill_value=False).to_numpy(zero_copy_only=False)[rows]]
        at, leaver = spans(
            np.searchsorted(quit_events, event[changed]), np.searchsorted(quit_events, event[changed], "right")
        )
        return (
            np.concatenate([rows[which][is_in], changed[at]]),
            np.concatenate([users[stay][is_in], quitters[leaver]]),
        )

    def _push(self, rows: Any, message: Any, event: Any, accepted: Any) -> None:
        """Pushes name their users one by one, and platforms as they were called then."""
        inboxes = self._inboxes
        low, high = (np.searchsorted(self._push_events, event[rows], side) for side in ("left", "right"))
        found: list[tuple[int, int]] = []
        for at, push in zip(*spans(low, high), strict=True):
            row = rows[at]
            _, user, only, without = self._pushed[push]
            _, theirs = inboxes.of_users(np.array([user]))
            for inbox in theirs:
                if inboxes.opened[inbox] <= event[row]:
                    name = FIRST if event[row] < inboxes.named[inbox] else inboxes.platform[inbox]
                    if name in only if only else name not in without:
                        found.append((int(inbox), int(row)))
        picked = np.array([row for _, row in found], np.int64)
        self._found.append(
            (np.array([inbox for inbox, _ in found], np.int64), event[picked], message[picked], accepted[picked])
        )

    def entries(self, latest: Any, waited: Entries) -> Entries:
        """What waited, and what came, with places behind the ``latest`` of each inbox."""
        none = np.zeros(0, np.int64)
        columns = [np.concatenate([none, *(each[place] for each in self._found)]) for place in range(4)]
        self._found.clear()
        order = np.lexsort((columns[1], columns[0]))
        inbox, event, message, accepted = (column[order] for column in columns)
        first = np.searchsorted(inbox, inbox)
        useq = latest[inbox] + 1 + np.arange(len(inbox)) - first
        came = Entries(inbox, useq, event, message, accepted, np.ones(len(inbox), bool))
        both = [np.concatenate(pair) for pair in zip(waited, came, strict=True)]
        order = np.lexsort((both[1], both[0]))
        return Entries(*(column[order] for column in both))


class Ledger(NamedTuple):
    """Rows of the ledger, by inbox, event and part; a row for each inbox that it speaks of."""

    inbox: Any
    event: Any
    part: Any
    what: Any
    """Texts."""
    noted: Any
    first: Any
    through: Any

    def of(self, *whats: str) -> Ledger:
        """Some kinds alone."""
        return self.where(np.isin(self.what, whats))

    def where(self, chosen: Any) -> Ledger:
        """Some rows alone."""
        return Ledger(*(column[chosen] for column in self))


def ledger_of(tables: Iterable[Any], inboxes: Inboxes, part: int, parts: int) -> Ledger:
    """New rows of ``deliveries``, of these inboxes: platforms are called as they were at the event."""
    found: list[tuple[Any, ...]] = []
    codes: dict[str, int] = {FIRST: 0}
    platform = np.array([codes.setdefault(name, len(codes)) for name in inboxes.platform], np.int64)
    for batch in tables:
        user = ints(batch.column("user_id"))
        rows = np.flatnonzero(part_of(user, parts) == part)
        if not len(rows):
            continue
        batch = batch.take(pa.array(rows))
        named = _mapped(batch.column("platform"), lambda name: codes.get(name, -1), np.int64)
        event = ints(batch.column("event_id"))
        which, inbox = inboxes.of_users(ints(batch.column("user_id")))
        called = np.where(event[which] < inboxes.named[inbox], 0, platform[inbox])
        is_met = (called == named[which]) & (inboxes.opened[inbox] < event[which])
        which, inbox = which[is_met], inbox[is_met]
        what = _mapped(batch.column("what"), str, "U8")
        names = ("part", "noted_at", "first_useq", "through_useq")
        row, noted, first, through = (ints(batch.column(name))[which] for name in names)
        found.append((inbox, event[which], row, what[which], noted, np.maximum(first, 1), through))
    none = np.zeros(0, np.int64)
    empty = [none, none, none, np.zeros(0, "U8"), none, none, none]
    columns = [np.concatenate([empty[place], *(each[place] for each in found)]) for place in range(7)]
    order = np.lexsort((columns[2], columns[1], columns[0]))
    return Ledger(*(column[order] for column in columns))


def _mapped(texts: Any, value_of: Callable[[str], Any], kind: Any) -> Any:
    """Texts that repeat, each as something else."""
    encoded = texts.dictionary_encode()
    values = np.array([value_of(text) for text in encoded.dictionary.to_pylist()], kind)
    return values[encoded.indices.to_numpy(zero_copy_only=False)]


def latest_at(ledger: Ledger, entries: Entries, latest: Any) -> Any:
    """The last place that the inbox of each row had given by its event. ``latest``: before all that is new."""
    came = entries.is_new
    events, asked_events = entries.event[came], ledger.event
    step = int(max(events.max(initial=0), asked_events.max(initial=0))) + 1
    if (len(latest) + 1) * step >= 2**63:  # too large for one number: events by their order
        times = np.unique(np.concatenate([events, asked_events]))
        events, asked_events, step = (
            np.searchsorted(times, events),
            np.searchsorted(times, asked_events),
            len(times) + 1,
        )
    keys = entries.inbox[came] * step + events
    asked = ledger.inbox * step + asked_events
    begin = np.searchsorted(keys, ledger.inbox * step)
    return latest[ledger.inbox] + np.searchsorted(keys, asked, "right") - begin


class Left(NamedTuple):
    """For each entry: the event by which it left (0: it waits), how (a place of ``HOWS``), and when."""

    event: Any
    how: Any
    at: Any


def departures(entries: Entries, ledger: Ledger, inboxes: Inboxes, limits: list[tuple[int, dict[str, int]]]) -> Left:
    """What became of each entry. Ranges of ``ledger`` end where their inbox did then."""
    count = len(entries.inbox)
    event, part = np.full(count, 2**62, np.int64), np.zeros(count, np.int64)
    how, at = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def leave(index: Any, rows_event: Any, rows_part: Any, rows_how: Any, rows_at: Any) -> None:
        """The earliest reason counts."""
        order = np.lexsort((-rows_part, -rows_event))  # of several for one entry the last assignment is the earliest
        index = index[order]
        new_event, new_part = rows_event[order], rows_part[order]
        earlier = (new_event < event[index]) | ((new_event == event[index]) & (new_part < part[index]))
        index = index[earlier]
        event[index], part[index] = new_event[earlier], new_part[earlier]
        how[index], at[index] = rows_how[order][earlier], rows_at[order][earlier]

    step = int(max(entries.useq.max(initial=0), ledger.through.max(initial=0))) + 2
    places = entries.inbox * step + entries.useq
    acked = ledger.of("acked")
    acked = acked.where(acked.through > 0)
    if len(acked.inbox):
        # How far an inbox is acked only goes up; the first row that reaches a place has acked it.
        reached = np.maximum.accumulate(acked.inbox * step + acked.through)
        row = np.searchsorted(reached, places)
        index = np.flatnonzero(row < len(reached))
        index = index[acked.inbox[row[index]] == entries.inbox[index]]
        row = row[index]
        leave(index, acked.event[row], acked.part[row], np.full(len(row), 1), acked.noted[row])
    for number in (2, 3):
        removed = ledger.of(HOWS[number])
        low = np.searchsorted(places, removed.inbox * step + removed.first)
        high = np.searchsorted(places, removed.inbox * step + removed.through, "right")
        row, index = spans(low, high)
        leave(index, removed.event[row], removed.part[row], np.full(len(row), number), removed.noted[row])
    evicted = list(_evicted(entries, ledger, inboxes, limits, step))
    if evicted:
        index, by = (np.array(column, np.int64) for column in zip(*evicted, strict=True))
        leave(index, entries.event[by], np.full(len(by), -1), np.full(len(by), 2), entries.accepted[by])
    return Left(np.where(how > 0, event, 0), how, at)


def _evicted(
    entries: Entries, ledger: Ledger, inboxes: Inboxes, limits: list[tuple[int, dict[str, int]]], step: int
) -> Iterator[tuple[int, int]]:
    """Entries that left since their inbox was full, each with the one that pushed it out: it is in no record.

    Only inboxes are replayed in which more may have waited than the smallest limit: what came, less what was acked.
    """
    smallest = min((number for _, each in limits for number in each.values() if number >= 0), default=None)
    if smallest is None or not len(entries.inbox):
        return
    counts = np.bincount(entries.inbox, minlength=len(inboxes.user))
    for inbox in np.flatnonzero(counts > smallest):
        low, high = np.searchsorted(entries.inbox, inbox), np.searchsorted(entries.inbox, inbox, "right")
        row = slice(np.searchsorted(ledger.inbox, inbox), np.searchsorted(ledger.inbox, inbox, "right"))
        own = Ledger(*(column[row] for column in ledger)).of("acked", "expired", "dead")
        acks = own.of("acked")
        through = np.maximum.accumulate(np.concatenate([[entries.useq[low] - 1], acks.through]))
        acked = through[np.searchsorted(acks.event, entries.event[low:high])]
        if not np.any(entries.useq[low:high] - acked > smallest):
            continue
        steps = [(int(entries.event[at]), -1, "added", int(entries.useq[at]), 0, int(at)) for at in range(low, high)]
        steps += [
            (int(event), int(part), str(what), int(first), int(last), -1)
            for _, event, part, what, _, first, last in zip(*own, strict=True)
        ]
        found = evictions(sorted(steps), _limit_of(limits, inboxes.platform[inbox], int(inboxes.named[inbox])))
        index = dict(zip(entries.useq[low:high].tolist(), range(low, high), strict=True))
        yield from ((index[useq], by) for useq, by in found)


def _limit_of(limits: list[tuple[int, dict[str, int]]], platform: str, named: int) -> Callable[[int], int]:
    """How many may wait in an inbox at an event. Before ``named`` it is called ``first``, and has that limit."""
    since = [event for event, _ in limits]

    def limit_at(event: int) -> int:
        _, each = limits[bisect_right(since, event) - 1]
        return each.get(FIRST if event < named else platform, each[""])

    return limit_at


def evictions(
    steps: Iterable[tuple[int, int, str, int, int, int]], limit_at: Callable[[int], int]
) -> Iterator[tuple[int, int]]:
    """Which entries an inbox had no room for, each with the addition that pushed it out.

    Steps are (event, part, what, first, through, number of the addition).
    """
    waiting: deque[int] = deque()
    for event, _, what, first, through, number in steps:
        if what == "added":
            waiting.append(first)
            limit = limit_at(event)
            while 0 <= limit < len(waiting):
                yield waiting.popleft(), number
        elif what == "acked":
            while waiting and waiting[0] <= through:
                waiting.popleft()
        else:
            waiting = deque(useq for useq in waiting if not first <= useq <= through)
