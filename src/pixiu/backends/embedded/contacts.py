"""``Contacts`` on the overlay: one row per pair, since a send asks about one pair only."""

from struct import Struct

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import CONTACT, NUMBER_MAX, key2, range1
from pixiu.backends.embedded.ordered import Ordered, list_weight
from pixiu.backends.embedded.overlay import Overlay

__all__ = ["EmbeddedContacts"]

_LINKED = 1
_BLOCKED = 2
_row = Struct(">Bq")
_NOTHING = (0, 0)


class EmbeddedContacts:
    """Rows by (user, peer): flags, and the time of adding."""

    def __init__(self, overlay: Overlay, *, cached_max: int = 50_000) -> None:
        self._overlay = overlay
        self._pairs: Cache[tuple[int, int], tuple[int, int]] = Cache(cached_max)
        self._counts: Cache[int, tuple[int, int]] = Cache(cached_max)
        """Contacts and blocks by user: counting them takes a scan of the user's rows."""
        self._lists: Cache[int, Ordered] = Cache(2 * cached_max, list_weight)
        """Contacts of users who have read a page of them: making a list takes a scan of the user's rows."""

    def link(self, user: int, peer: int, at: int) -> bool:
        """Add ``peer`` to ``user``'s list; the time of the first adding stays."""
        flags, _ = self._row(user, peer)
        if flags & _LINKED:
            return False
        self._put(user, peer, flags | _LINKED, at)
        return True

    def unlink(self, user: int, peer: int) -> bool:
        """Take ``peer`` off the list."""
        flags, _ = self._row(user, peer)
        if not flags & _LINKED:
            return False
        self._put(user, peer, flags & ~_LINKED, 0)
        return True

    def of(self, user: int) -> list[tuple[int, int]]:
        """(peer, time of adding), oldest first; equal times by number."""
        return self._list(user).page(None)

    def page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """The first ``limit`` rows of ``of`` behind ``after``, a time of adding and a peer."""
        return self._list(user).page(limit, after)

    def _list(self, user: int) -> Ordered:
        listed = self._lists.find(user)
        if listed is None:
            times: dict[int, int] = {}
            for key, value in self._overlay.scan(*range1(CONTACT, user, -1, NUMBER_MAX)):
                flags, at = _row.unpack(value)
                if flags & _LINKED:
                    times[int.from_bytes(key[9:], "big")] = at
            listed = Ordered(times)
            self._lists.keep(user, listed)
        return listed

    def linked_at(self, user: int, peer: int) -> int | None:
        """When ``user`` added ``peer``; None if ``peer`` is not on the list."""
        listed = self._lists.young.get(user)
        if listed is not None:
            return listed.times.get(peer)
        flags, at = self._row(user, peer)
        return at if flags & _LINKED else None

    def count(self, user: int) -> int:
        """How many contacts ``user`` has."""
        listed = self._lists.find(user)
        return self._counted(user)[0] if listed is None else len(listed.times)

    def blocked_count(self, user: int) -> int:
        """How many others ``user`` blocks."""
        return self._counted(user)[1]

    def _counted(self, user: int) -> tuple[int, int]:
        counts = self._counts.find(user)
        if counts is None:
            linked = blocked = 0
            for _, value in self._overlay.scan(*range1(CONTACT, user, -1, NUMBER_MAX)):
                flags = value[0]
                linked += flags & _LINKED != 0
                blocked += flags & _BLOCKED != 0
            counts = linked, blocked
            self._counts.keep(user, counts)
        return counts

    def block(self, user: int, peer: int, *, is_blocked: bool) -> None:
        """Let ``user`` hear nothing of ``peer``, or again."""
        flags, at = self._row(user, peer)
        wanted = flags | _BLOCKED if is_blocked else flags & ~_BLOCKED
        if wanted != flags:
            self._put(user, peer, wanted, at)

    def blocked_by(self, user: int) -> list[int]:
        """Whom ``user`` blocks, by number."""
        rows = self._overlay.scan(*range1(CONTACT, user, -1, NUMBER_MAX))
        return [int.from_bytes(key[9:], "big") for key, value in rows if _row.unpack(value)[0] & _BLOCKED]

    def is_blocked(self, user: int, peer: int) -> bool:
        """Does ``user`` block ``peer``?"""
        return self._row(user, peer)[0] & _BLOCKED != 0

    def _row(self, user: int, peer: int) -> tuple[int, int]:
        pair = user, peer
        row = self._pairs.young.get(pair) or self._pairs.find(pair)
        if row is None:
            value = self._overlay.get(key2(CONTACT, user, peer))
            flags, at = _NOTHING if value is None else _row.unpack(value)
            row = flags, at
            self._pairs.keep(pair, row)
        return row

    def _put(self, user: int, peer: int, flags: int, at: int) -> None:
        key = key2(CONTACT, user, peer)
        counts = self._counts.find(user)
        if counts is not None:
            before = self._row(user, peer)[0]
            linked = counts[0] + (flags & _LINKED != 0) - (before & _LINKED != 0)
            blocked = counts[1] + (flags & _BLOCKED != 0) - (before & _BLOCKED != 0)
            self._counts.keep(user, (linked, blocked))
        listed = self._lists.find(user)
        if listed is not None:
            listed.put(peer, at if flags & _LINKED else None)
            self._lists.weigh(1)
        if flags:
            self._overlay.put(key, _row.pack(flags, at))
        else:
            self._overlay.delete(key)
        self._pairs.keep((user, peer), (flags, at))
