"""``Inboxes``: the sorted set of seed 000 per inbox, and beside it what else Pixiu knows of each entry."""

from __future__ import annotations

from heapq import nsmallest
from struct import Struct
from sys import intern
from typing import TYPE_CHECKING

from pixiu.backends.embedded.desk import Desk, Inbox
from pixiu.backends.embedded.desks import DeskInboxes
from pixiu.backends.redis.layout import Keys, hex_of
from pixiu.model.inbox import Entry, InboxState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisInboxes"]

_entry = Struct(">QQqIQ")
_PAGE = 256
_FETCH_MAX = 1000
"""Users whose inboxes are fetched in one round trip."""
_ARGUMENTS_MAX = 500


class RedisInboxes(DeskInboxes):
    """Every inbox. ``fetch_counts`` is told which messages have left, before their references are released.

    ``when_acked`` is told the newest message that a user has acked.
    """

    def __init__(
        self,
        overlay: Overlay,
        keys: Keys,
        *,
        fetch_counts: Callable[[list[int]], object],
        when_acked: Callable[[int, int], object] | None = None,
        cached_max: int = 40_000,
        kept_max: int = 64,
    ) -> None:
        super().__init__(cached_max=cached_max, kept_max=kept_max)
        self._overlay = overlay
        self._keys = keys
        self._fetch_counts = fetch_counts
        self._when_acked = when_acked
        self._holes: dict[tuple[int, int], set[int]] = {}
        """Entries in the middle of an inbox that have gone, and that Redis still has until the commit."""
        overlay.attach(self)

    def open(self, user: int, platform: str) -> bool:
        """Make sure that the inbox exists. True if it is new to this name."""
        before = self.platforms(user)
        is_new = super().open(user, platform)
        if is_new:
            desk = self._desk(user)
            if not before:
                self._overlay.put_score(self._keys.all_inboxes, hex_of(user), 0)
            elif before != desk.platforms[: len(before)]:  # the first inbox has got another name
                self._overlay.put_field(self._keys.inboxes % user, before[0], None)
                old, new = (self._keys.waiting % (user, name) for name in (before[0], platform))
                self._overlay.step("MOVE", old, new)
        return is_new

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Everything through here has arrived: returns the entries that leave."""
        gone = super().ack(user, platform, through)
        if gone and self._when_acked is not None:
            self._when_acked(user, gone[-1].message_id)
        if len(gone) > 1:
            self._fetch_counts([entry.message_id for entry in gone])
        return gone

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Take out the entries of a range, and return them."""
        gone = super().remove(user, platform, first, through)
        if len(gone) > 1:
            self._fetch_counts([entry.message_id for entry in gone])
        return gone

    def states(self, *, after: tuple[int, str] | None = None, limit: int = 1000) -> list[InboxState]:
        """Inboxes in the order of (user, platform), behind ``after``. A sweep does not fill the cache."""
        user_after, platform_after = after if after is not None else (0, "")
        changed = self._changed
        for user in nsmallest(limit + 1, (user for user in changed if user >= user_after)):  # the page has no others
            self._put_desk(changed[user])
        found: list[InboxState] = []
        name = hex_of(user_after - 1) if user_after > 0 else ""
        while len(found) < limit:
            names = self._overlay.names_after(self._keys.all_inboxes, name, min(limit, _FETCH_MAX))
            if not names:
                break
            users = [int(each, 16) for each in names]
            rows = self._overlay.fields([self._keys.inboxes % user for user in users])
            for user, row in zip(users, rows, strict=True):
                for platform in sorted(row):
                    if (user, platform) > (user_after, platform_after):
                        _, floor, latest, waiting, _, oldest_at = map(int, row[platform].split())
                        found.append(InboxState(user, platform, floor, latest, waiting, oldest_at))
            name = names[-1]
        return found[: max(limit, 0)]

    def fetch(self, users: Iterable[int]) -> None:
        """These are about to get something: have their inboxes, in few round trips."""
        missing = [
            user
            for user in users
            if user not in self._changed and user not in self._saved and self._desks.find(user) is None
        ]
        for at in range(0, len(missing), _FETCH_MAX):
            part = missing[at : at + _FETCH_MAX]
            rows = self._overlay.fields([self._keys.inboxes % user for user in part])
            for user, row in zip(part, rows, strict=True):
                self._desks.keep(user, _desk(user, row))

    def save(self) -> None:
        """Changed inboxes are fields, new entries are members."""
        overlay, keys, pack = self._overlay, self._keys, _entry.pack
        for user, desk in self._changed.items():
            desk.is_changed = False
            self._put_desk(desk)
            for platform, inbox in desk.inboxes.items():
                if inbox.entries:
                    self._saved[user] = desk
                new = inbox.unsaved()
                for at in range(0, len(new), _ARGUMENTS_MAX // 2):
                    waiting: list[object] = []
                    entries: list[object] = []
                    for useq, message_id, event_id, sent_at, options, session in new[at : at + _ARGUMENTS_MAX // 2]:
                        waiting += (sent_at // 1000, message_id)
                        entries += (useq, pack(message_id, event_id, sent_at, options, session))
                    overlay.step("ZADD", keys.waiting % (user, platform), *waiting)
                    overlay.step("ZADD", keys.entries % (user, inbox.number), *entries)
        self._changed = {}
        self._added = 0

    def written(self) -> None:
        """It is in Redis: long inboxes keep only their front in memory."""
        self._holes.clear()
        super().written()

    def forget(self) -> None:
        """Begin anew."""
        self._desks.clear()
        self._changed = {}
        self._saved = {}
        self._holes.clear()
        self._added = 0

    def _put_desk(self, desk: Desk) -> None:
        key = self._keys.inboxes % desk.user
        for platform, inbox in desk.inboxes.items():
            counts = inbox.number, inbox.floor, inbox.latest, inbox.waiting, inbox.event_id, inbox.oldest_at
            self._overlay.put_field(key, platform, " ".join(map(str, counts)))

    def _load(self, user: int) -> Desk:
        return _desk(user, self._overlay.fields([self._keys.inboxes % user])[0])

    def _rows(self, user: int, inbox: Inbox, first: int, through: int) -> Iterator[Entry]:
        key = self._keys.entries % (user, inbox.number)
        holes = self._holes.get((user, inbox.number), ())
        while first <= through:
            command = ("ZRANGEBYSCORE", key, first, through, "WITHSCORES", "LIMIT", 0, _PAGE)
            found = self._overlay.client.ask([command])[0]
            for packed, score in zip(found[::2], found[1::2], strict=True):
                first = int(score) + 1
                if first - 1 not in holes:
                    yield Entry(first - 1, *_entry.unpack(packed))
            if len(found) < 2 * _PAGE:
                return

    def _rows_gone(self, user: int, inbox: Inbox, gone: list[Entry]) -> None:
        """They leave Redis with the next commit."""
        saved = [entry for entry in gone if entry.useq <= inbox.saved]
        waiting = self._keys.waiting % (user, inbox.name.decode())
        for at in range(0, len(saved), _ARGUMENTS_MAX):
            part = saved[at : at + _ARGUMENTS_MAX]
            self._overlay.step("ZREM", waiting, *(entry.message_id for entry in part))
        first, last = saved[0].useq, saved[-1].useq
        self._overlay.step("ZREMRANGEBYSCORE", self._keys.entries % (user, inbox.number), first, last)

    def _rows_taken(self, user: int, inbox: Inbox, first: int, through: int, gone: list[Entry]) -> None:
        holes = self._holes.setdefault((user, inbox.number), set())
        holes.update(entry.useq for entry in gone)
        self._rows_gone(user, inbox, gone)


def _desk(user: int, row: dict[str, bytes]) -> Desk:
    """A user's inboxes, with nothing but their counts in memory."""
    desk = Desk(user)
    counts = sorted(([int(part) for part in value.split()], platform) for platform, value in row.items())
    for (number, floor, latest, waiting, event_id, oldest_at), platform in counts:
        inbox = Inbox(number, platform.encode(), floor, latest, waiting, event_id, oldest_at)
        desk.inboxes[intern(platform)] = inbox
    desk.platforms = tuple(desk.inboxes)
    return desk
