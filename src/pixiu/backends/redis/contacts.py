"""``Contacts``: the sorted set of seed 003, and a set of those who are blocked. A user's whole list is held at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.ordered import Ordered
from pixiu.backends.redis.layout import Keys, user_member

if TYPE_CHECKING:
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisContacts"]


class _People:
    """One user's contacts and blocks."""

    __slots__ = ("blocked", "linked")

    def __init__(self, linked: dict[int, int], blocked: set[int]) -> None:
        self.linked = Ordered(linked)
        self.blocked = blocked


def _weight(people: _People) -> int:
    return 1 + (len(people.linked.times) + len(people.blocked)) // 16


class RedisContacts:
    """Contacts by user. ``cached_max`` users have theirs in memory, fewer where lists are long."""

    def __init__(self, overlay: Overlay, keys: Keys, *, cached_max: int = 40_000) -> None:
        self._overlay = overlay
        self._keys = keys
        self._people: Cache[int, _People] = Cache(cached_max, _weight)
        overlay.attach(self)

    def link(self, user: int, peer: int, at: int) -> bool:
        """Add ``peer`` to ``user``'s list; the time of the first adding stays."""
        people = self._of(user)
        if peer in people.linked.times:
            return False
        self._overlay.check_room()
        people.linked.put(peer, at)
        self._overlay.put_score(self._keys.contacts % user, user_member(peer), at)
        return True

    def unlink(self, user: int, peer: int) -> bool:
        """Take ``peer`` off the list."""
        people = self._of(user)
        if peer not in people.linked.times:
            return False
        self._overlay.check_room()
        people.linked.put(peer, None)
        self._overlay.put_score(self._keys.contacts % user, user_member(peer), None)
        return True

    def of(self, user: int) -> list[tuple[int, int]]:
        """(peer, time of adding), oldest first; equal times by number."""
        return self._of(user).linked.page(None)

    def page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """The first ``limit`` rows of ``of`` behind ``after``, a time of adding and a peer."""
        return self._of(user).linked.page(limit, after)

    def linked_at(self, user: int, peer: int) -> int | None:
        """When ``user`` added ``peer``; None if ``peer`` is not on the list."""
        return self._of(user).linked.times.get(peer)

    def count(self, user: int) -> int:
        """How many contacts ``user`` has."""
        return len(self._of(user).linked.times)

    def blocked_count(self, user: int) -> int:
        """How many others ``user`` blocks."""
        return len(self._of(user).blocked)

    def block(self, user: int, peer: int, *, is_blocked: bool) -> None:
        """Let ``user`` hear nothing of ``peer``, or again."""
        blocked = self._of(user).blocked
        if (peer in blocked) != is_blocked:
            self._overlay.check_room()
            (blocked.add if is_blocked else blocked.discard)(peer)
            self._overlay.put_member(self._keys.blocks % user, str(peer), is_in=is_blocked)

    def blocked_by(self, user: int) -> list[int]:
        """Whom ``user`` blocks, by number."""
        return sorted(self._of(user).blocked)

    def is_blocked(self, user: int, peer: int) -> bool:
        """Does ``user`` block ``peer``?"""
        return peer in (self._people.young.get(user) or self._of(user)).blocked

    def save(self) -> None:
        """All is in the overlay."""

    def written(self) -> None:
        """The cache bounds itself."""

    def forget(self) -> None:
        """Begin anew."""
        self._people.clear()

    def _of(self, user: int) -> _People:
        people = self._people.find(user)
        if people is None:
            members = self._overlay.scores([self._keys.contacts % user])[0]
            linked = {int(member[2:]): at for member, at in members.items() if member.startswith("u:")}
            blocked = {int(member) for member in self._overlay.members(self._keys.blocks % user)}
            people = _People(linked, blocked)
            self._people.keep(user, people)
        return people
