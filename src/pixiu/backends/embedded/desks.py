"""``Inboxes`` as objects, whatever keeps their rows.

All inboxes of a user are one object, ``Desk``. The newest entries are objects too, and an entry that is acked before
the commit is never written. Behind an inbox that is too long for memory, entries are read in pages. Where rows are, how
they are read and what becomes of those that have gone is left to whoever inherits from this.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.desk import Desk, Inbox
from pixiu.model.errors import LocalProtocolError
from pixiu.model.inbox import FIRST, Entry, InboxState, Page

__all__ = ["DeskInboxes"]

_IDLE_MAX = 8
"""An inbox that has grown through this many commits, and was not read in all that time, keeps no entries in memory."""

_READ_MAX = 1024
"""Rows read at once when a long inbox is emptied."""

_new = tuple.__new__


def _weight(desk: Desk) -> int:
    return 1 + desk.held // 8


class DeskInboxes(ABC):
    """Every inbox.

    ``cached_max`` users have theirs in memory, fewer if much waits in them; ``kept_max`` entries of an inbox stay in
    memory once they are written.
    """

    def __init__(self, *, cached_max: int = 40_000, kept_max: int = 64) -> None:
        self._kept_max = kept_max
        self._desks: Cache[int, Desk] = Cache(cached_max, _weight)
        self._changed: dict[int, Desk] = {}
        self._saved: dict[int, Desk] = {}
        """Those with entries that the store below does not have yet: they stay in memory."""
        self._added = 0

    @abstractmethod
    def _load(self, user: int) -> Desk:
        """A user's inboxes from their row; nothing but their counts in memory."""

    @abstractmethod
    def _rows(self, user: int, inbox: Inbox, first: int, through: int) -> Iterator[Entry]:
        """The entries of a range that were written and have not gone, rising."""

    @abstractmethod
    def _rows_gone(self, user: int, inbox: Inbox, gone: list[Entry]) -> None:
        """Entries at the front have gone, some of which had rows. The floor is behind them already."""

    @abstractmethod
    def _rows_taken(self, user: int, inbox: Inbox, first: int, through: int, gone: list[Entry]) -> None:
        """Entries of a range in the middle are about to go, some of which had rows."""

    def open(self, user: int, platform: str) -> bool:
        """Make sure that the inbox exists. True if it is new to this name."""
        desk = self._desk(user)
        inboxes = desk.inboxes
        if platform in inboxes or (platform == FIRST and inboxes):
            return False
        if desk.platforms == (FIRST,):
            inboxes[platform] = inboxes.pop(FIRST)
            inboxes[platform].name = platform.encode()
        else:
            inboxes[platform] = Inbox(len(inboxes), platform.encode(), 0, 0, 0, 0, 0)
        desk.platforms = tuple(inboxes)
        self._note(desk)
        return True

    def platforms(self, user: int) -> tuple[str, ...]:
        """The open inboxes of a user, in the order of their opening."""
        return (self._desks.young.get(user) or self._desk(user)).platforms

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Add an id to an open inbox, and return its useq; 0 if the event was added before."""
        desk = self._desks.young.get(user) or self._desk(user)
        inbox = desk.inboxes.get(platform)
        if inbox is None:
            raise LocalProtocolError(f"user {user} has no open inbox {platform!r}")
        if event_id <= inbox.event_id:
            return 0
        inbox.event_id = event_id
        inbox.latest = useq = inbox.latest + 1
        if not inbox.waiting:
            inbox.oldest_at = at
        inbox.waiting += 1
        inbox.entries.append(_new(Entry, (useq, message_id, event_id, at, options, session)))
        if not desk.is_changed:
            self._note(desk)
        self._added += 1
        return useq

    def after(self, user: int, platform: str, after: int, limit: int) -> Page:
        """The first ``limit`` entries behind ``after``, in order."""
        inbox = (self._desks.young.get(user) or self._desk(user)).inboxes.get(platform)
        if inbox is None:
            return Page([], 0, 0)
        inbox.idle = 0
        if inbox.waiting == len(inbox.entries):
            entries = inbox.entries
            first = bisect_left(entries, (after + 1,)) if after > inbox.floor else 0
            return Page(entries[first : first + max(limit, 0)], inbox.floor, inbox.latest)
        return Page(self._read(user, inbox, after, max(limit, 0)), inbox.floor, inbox.latest)

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Everything through here has arrived: returns the entries that leave."""
        desk = self._desks.young.get(user) or self._desk(user)
        inbox = desk.inboxes.get(platform)
        if inbox is None or through <= inbox.floor or not inbox.waiting:
            return []
        inbox.idle = 0
        entries = inbox.entries
        if inbox.waiting != len(entries):
            return self._take(desk, inbox, inbox.floor + 1, through)
        if through >= inbox.latest:
            gone = entries
            inbox.entries = []
            inbox.waiting = inbox.oldest_at = 0
            inbox.floor = inbox.latest
        else:
            count = bisect_left(entries, (through + 1,))
            gone = entries[:count]
            del entries[:count]
            inbox.waiting -= count
            inbox.settle()
        if gone[0][0] <= inbox.saved:
            self._rows_gone(user, inbox, gone)
        if not desk.is_changed:
            self._note(desk)
        return gone

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Take out the entries of a range, and return them. The floor moves over what is gone at the front."""
        desk = self._desk(user)
        inbox = desk.inboxes.get(platform)
        if inbox is None or not inbox.waiting or through <= inbox.floor or first > inbox.latest or first > through:
            return []
        return self._take(desk, inbox, max(first, inbox.floor + 1), through)

    def state(self, user: int, platform: str) -> InboxState | None:
        """An inbox without its entries."""
        desk = self._desk(user)
        return desk.state_of(platform) if platform in desk.inboxes else None

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write, at most."""
        return len(self._changed) * 60 + self._added * 50

    def written(self) -> None:
        """The rows are there: long inboxes keep only their front in memory."""
        for desk in self._saved.values():
            held = 0
            for inbox in desk.inboxes.values():
                entries = inbox.entries
                if not entries:
                    continue
                inbox.idle += 1
                kept = 0
                if inbox.idle < _IDLE_MAX:
                    kept = min(len(entries) if inbox.is_whole() else inbox.front_count(), self._kept_max)
                if kept < len(entries):
                    inbox.gap_after = entries[kept - 1][0] if kept else inbox.floor
                    inbox.gap_through = inbox.latest
                    del entries[kept:]
                held += kept
            if held > desk.held:
                desk.held = held
                self._desks.keep(desk.user, desk)
            desk.held = held
        self._saved.clear()

    # What follows is for inboxes that are cold, or long.

    def _note(self, desk: Desk) -> None:
        desk.is_changed = True
        self._changed[desk.user] = desk

    def _desk(self, user: int) -> Desk:
        desk = self._desks.find(user)
        if desk is None:
            desk = self._changed.get(user) or self._saved.get(user)
            if desk is None:
                desk = self._load(user)
            self._desks.keep(user, desk)
        return desk

    def _fill(self, user: int, inbox: Inbox, limit: int) -> None:
        """Bring the next entries of the gap into memory."""
        rows = list(islice(self._rows(user, inbox, inbox.gap_after + 1, inbox.gap_through), limit))
        at = inbox.front_count()
        inbox.entries[at:at] = rows
        inbox.gap_after = rows[-1][0] if len(rows) == limit else inbox.gap_through
        self._desks.weigh(len(rows) // 8)

    def _read(self, user: int, inbox: Inbox, after: int, limit: int) -> list[Entry]:
        """A page of an inbox with a gap."""
        front = inbox.front_count()
        room = self._kept_max * 4 - front
        if after <= inbox.gap_after and room > 0:
            have = front - bisect_left(inbox.entries, (after + 1,), 0, front)
            if have < limit:
                self._fill(user, inbox, min(max(limit - have, self._kept_max), room))
                front = inbox.front_count()
        entries = inbox.entries
        page = entries[bisect_left(entries, (after + 1,), 0, front) : front][:limit]
        if len(page) < limit and inbox.gap_after < inbox.gap_through:
            first = max(after, inbox.gap_after) + 1
            page.extend(islice(self._rows(user, inbox, first, inbox.gap_through), limit - len(page)))
        if len(page) < limit:
            behind = bisect_left(entries, (after + 1,), front)
            page.extend(entries[behind : behind + limit - len(page)])
        return page

    def _take(self, desk: Desk, inbox: Inbox, first: int, through: int) -> list[Entry]:
        """Take out a range, wherever its entries are. All reading comes before the first change."""
        through = min(through, inbox.latest)
        is_front = first == inbox.floor + 1
        if is_front:
            self._fill_beyond(desk.user, inbox, through)
        entries = inbox.entries
        begin, end = bisect_left(entries, (first,)), bisect_left(entries, (through + 1,))
        gone = entries[begin:end]
        if not inbox.is_whole() and first <= inbox.gap_through and through > inbox.gap_after:
            front = inbox.front_count()
            rows = self._rows(desk.user, inbox, max(first, inbox.gap_after + 1), min(through, inbox.gap_through))
            gone = [*entries[begin:front], *rows, *entries[front:end]]
        if gone:
            has_rows = gone[0][0] <= inbox.saved
            if has_rows and not is_front:
                self._rows_taken(desk.user, inbox, first, through, gone)
            del entries[begin:end]
            inbox.waiting -= len(gone)
            if is_front:
                inbox.settle()
                if has_rows:
                    self._rows_gone(desk.user, inbox, gone)
            self._note(desk)
        return gone

    def _fill_beyond(self, user: int, inbox: Inbox, through: int) -> None:
        """Have all entries through here in memory, and the next one too."""
        while not inbox.is_whole() and inbox.gap_after < inbox.gap_through:
            front = inbox.front_count()
            if front and inbox.entries[front - 1][0] > through:
                return
            self._fill(user, inbox, max(self._kept_max, min(through - inbox.gap_after + 1, _READ_MAX)))
