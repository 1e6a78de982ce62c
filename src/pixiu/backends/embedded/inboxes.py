"""``Inboxes`` on the overlay.

All inboxes of a user are one row and one object, ``Desk``. Entries are rows; the newest ones are objects too, and an
entry that is acked before the commit never becomes a row. What is in memory of one inbox::

       floor                      gap_after        gap_through          latest
         |  entries (the front)       |  rows only      |   entries        |
         |  e e e   e e               |  . . . . . .    |   e e e e        |
                                                                 ^ saved: rows exist through here

Most inboxes have no gap: all that waits is in memory. Behind an inbox that has a gap, the front is read in pages.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from struct import Struct
from sys import intern

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import ENTRY, INBOXES, key1, range_of
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.model.errors import LocalProtocolError
from pixiu.model.inbox import FIRST, Entry, InboxState, Page

__all__ = ["EmbeddedInboxes"]

_IDLE_MAX = 8
"""An inbox that has grown through this many commits, and was not read in all that time, keeps no entries in memory."""

_READ_MAX = 1024
"""Rows read at once when a long inbox is emptied."""

_entry_key = Struct(">cQHQ").pack
_entry = Struct(">QQqIQ")
_inbox = Struct(">QQQQqB")  # floor, latest, waiting, event_id, oldest_at, length of the platform's name behind it
_new = tuple.__new__


class _Inbox:
    """One inbox: the counts of its row, and the entries that are in memory."""

    __slots__ = (
        "entries",
        "event_id",
        "floor",
        "gap_after",
        "gap_through",
        "idle",
        "latest",
        "name",
        "number",
        "oldest_at",
        "saved",
        "waiting",
    )

    def __init__(
        self, number: int, name: bytes, floor: int, latest: int, waiting: int, event_id: int, oldest_at: int
    ) -> None:
        self.number = number
        self.name = name
        self.floor = floor
        self.latest = latest
        self.waiting = waiting
        self.event_id = event_id
        self.oldest_at = oldest_at
        self.entries: list[Entry] = []
        self.gap_after = floor
        self.gap_through = latest if waiting else floor
        self.saved = latest
        self.idle = 0

    def is_whole(self) -> bool:
        """Is all that waits in memory?"""
        return self.waiting == len(self.entries)

    def settle(self) -> None:
        """The front is gone: the inbox begins with the first entry that is in memory."""
        entries = self.entries
        if entries:
            self.floor = entries[0][0] - 1
            self.oldest_at = entries[0][3]
        else:
            self.floor = self.latest
            self.oldest_at = 0

    def front_count(self) -> int:
        """How many entries in memory lie before the gap."""
        return bisect_left(self.entries, (self.gap_after + 1,))


class _Desk:
    """All inboxes of one user, in the order of their opening."""

    __slots__ = ("held", "inboxes", "is_changed", "platforms", "user")

    def __init__(self, user: int) -> None:
        self.user = user
        self.held = 0
        """Entries in memory after the last commit."""
        self.inboxes: dict[str, _Inbox] = {}
        self.platforms: tuple[str, ...] = ()
        self.is_changed = False

    def state_of(self, platform: str) -> InboxState:
        inbox = self.inboxes[platform]
        return InboxState(self.user, platform, inbox.floor, inbox.latest, inbox.waiting, inbox.oldest_at)


def _weight(desk: _Desk) -> int:
    return 1 + desk.held // 8


class EmbeddedInboxes:
    """Every inbox.

    ``cached_max`` users have theirs in memory, fewer if much waits in them; ``kept_max`` entries of an inbox stay in
    memory once they are written.
    """

    def __init__(self, overlay: Overlay, *, cached_max: int = 40_000, kept_max: int = 64) -> None:
        self._overlay = overlay
        self._kept_max = kept_max
        self._desks: Cache[int, _Desk] = Cache(cached_max, _weight)
        self._changed: dict[int, _Desk] = {}
        self._saved: dict[int, _Desk] = {}
        """Those with entries that the store below does not have yet: they stay in memory."""
        self._added = 0
        self._deleted = 0
        overlay.attach(self)

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
            inboxes[platform] = _Inbox(len(inboxes), platform.encode(), 0, 0, 0, 0, 0)
        desk.platforms = tuple(inboxes)
        self._note(desk)
        return True

    def platforms(self, user: int) -> tuple[str, ...]:
        """The open inboxes of a user, in the order of their opening."""
        return (self._desks.young.get(user) or self._desk(user)).platforms

    def add(
        self, user: int, platform: str, *, message_id: int, event_id: int, at: int, options: int, session: int
    ) -> int:
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
            self._delete(user, inbox, gone)
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

    def states(self, *, after: tuple[int, str] | None = None, limit: int = 1000) -> list[InboxState]:
        """Inboxes in the order of (user, platform), behind ``after``. A sweep does not fill the cache."""
        user_after, platform_after = after if after is not None else (-1, "")
        start, end = range_of(INBOXES)
        if user_after >= 0:
            start = key1(INBOXES, user_after)
        found: list[InboxState] = []
        for desk in self._desks_between(start, end):
            for platform in sorted(desk.platforms):
                if len(found) >= limit:
                    return found
                if (desk.user, platform) > (user_after, platform_after):
                    found.append(desk.state_of(platform))
        return found

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write, at most."""
        return len(self._changed) * 60 + self._added * 52 + self._deleted * 19

    def save(self, rows: Rows) -> None:
        """Turn changed inboxes and new entries into rows, in the order of their keys."""
        entry_rows: Rows = []
        changed, saved = self._changed, self._saved
        for user in sorted(changed):
            desk = changed[user]
            desk.is_changed = False
            rows.append((key1(INBOXES, user), _encoded(desk)))
            for inbox in desk.inboxes.values():
                if inbox.entries:
                    saved[user] = desk
                    _encode_entries(user, inbox, entry_rows)
                inbox.saved = inbox.latest
        rows.extend(entry_rows)
        self._changed = {}
        self._added = 0
        self._deleted = 0

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

    def _note(self, desk: _Desk) -> None:
        desk.is_changed = True
        self._changed[desk.user] = desk

    def _desk(self, user: int) -> _Desk:
        desk = self._desks.find(user)
        if desk is None:
            desk = self._changed.get(user) or self._saved.get(user)
            if desk is None:
                value = self._overlay.get(key1(INBOXES, user))
                desk = _Desk(user) if value is None else _decoded(user, value)
            self._desks.keep(user, desk)
        return desk

    def _desks_between(self, start: bytes, end: bytes) -> Iterator[_Desk]:
        """Desks in order, as they are now, without bringing any into the cache."""
        for user, desk in self._changed.items():
            self._overlay.put(key1(INBOXES, user), _encoded(desk))
        for key, value in self._overlay.scan(start, end):
            yield _decoded(int.from_bytes(key[1:], "big"), value)

    def _rows(self, user: int, inbox: _Inbox, first: int, through: int) -> Iterator[Entry]:
        start = _entry_key(ENTRY, user, inbox.number, first)
        for key, value in self._overlay.scan_below(start, _entry_key(ENTRY, user, inbox.number, through + 1)):
            yield Entry(int.from_bytes(key[11:], "big"), *_entry.unpack(value))

    def _fill(self, user: int, inbox: _Inbox, limit: int) -> None:
        """Bring the next entries of the gap into memory."""
        rows = list(islice(self._rows(user, inbox, inbox.gap_after + 1, inbox.gap_through), limit))
        at = inbox.front_count()
        inbox.entries[at:at] = rows
        inbox.gap_after = rows[-1][0] if len(rows) == limit else inbox.gap_through
        self._desks.weigh(len(rows) // 8)

    def _read(self, user: int, inbox: _Inbox, after: int, limit: int) -> list[Entry]:
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

    def _take(self, desk: _Desk, inbox: _Inbox, first: int, through: int) -> list[Entry]:
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
            del entries[begin:end]
            inbox.waiting -= len(gone)
            if gone[0][0] <= inbox.saved:
                self._delete(desk.user, inbox, gone)
            if is_front:
                inbox.settle()
            self._note(desk)
        return gone

    def _fill_beyond(self, user: int, inbox: _Inbox, through: int) -> None:
        """Have all entries through here in memory, and the next one too."""
        while not inbox.is_whole() and inbox.gap_after < inbox.gap_through:
            front = inbox.front_count()
            if front and inbox.entries[front - 1][0] > through:
                return
            self._fill(user, inbox, max(self._kept_max, min(through - inbox.gap_after + 1, _READ_MAX)))

    def _delete(self, user: int, inbox: _Inbox, gone: list[Entry]) -> None:
        saved, number = inbox.saved, inbox.number
        self._overlay.drop([_entry_key(ENTRY, user, number, entry[0]) for entry in gone if entry[0] <= saved])
        self._deleted += len(gone)


def _encode_entries(user: int, inbox: _Inbox, rows: Rows) -> None:
    """Rows for the entries that have none yet."""
    pack, entries, number, saved = _entry.pack, inbox.entries, inbox.number, inbox.saved
    first = 0 if entries[0][0] > saved else bisect_left(entries, (saved + 1,))
    for entry in entries[first:]:
        rows.append((_entry_key(ENTRY, user, number, entry[0]), pack(*entry[1:])))


def _encoded(desk: _Desk) -> bytes:
    value = b""
    for inbox in desk.inboxes.values():
        name = inbox.name
        value += (
            _inbox.pack(inbox.floor, inbox.latest, inbox.waiting, inbox.event_id, inbox.oldest_at, len(name)) + name
        )
    return value


def _decoded(user: int, value: bytes) -> _Desk:
    desk = _Desk(user)
    position = 0
    while position < len(value):
        floor, latest, waiting, event_id, oldest_at, length = _inbox.unpack_from(value, position)
        position += _inbox.size + length
        name = value[position - length : position]
        inbox = _Inbox(len(desk.inboxes), name, floor, latest, waiting, event_id, oldest_at)
        desk.inboxes[intern(name.decode())] = inbox
    desk.platforms = tuple(desk.inboxes)
    return desk
