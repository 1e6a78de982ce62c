"""``Unread``: the sorted set of seed 003, and beside it which event has touched a count last.

All counters of a user are fetched together, the first time one of them is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.model.conversation import Conversation, Direct, InGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisUnread"]

_FETCH_MAX = 1000
"""Users whose counters are fetched in one round trip."""


class _Counter:
    """One counter."""

    __slots__ = ("count", "event_id")

    def __init__(self, count: int, event_id: int) -> None:
        self.count = count
        self.event_id = event_id


class _Counters(dict[Conversation, _Counter]):
    """The counters of one user."""

    __slots__ = ("peers",)

    def __init__(self, counters: Iterable[tuple[Conversation, _Counter]] = ()) -> None:
        super().__init__(counters)
        self.peers: list[int] | None = None
        """Of private conversations, in order; None when it must be made."""


def _weight(counters: _Counters) -> int:
    return 1 + len(counters)


class RedisUnread:
    """Counters by user. ``cached_max`` counters are held."""

    def __init__(self, overlay: Overlay, keys: Keys, *, cached_max: int = 160_000) -> None:
        self._overlay = overlay
        self._keys = keys
        self._users: Cache[int, _Counters] = Cache(cached_max, _weight)
        self._changed: dict[int, tuple[_Counters, set[Conversation]]] = {}
        """The counters of users of whom some have changed, and which."""
        overlay.attach(self)

    def add(self, user: int, conversation: Conversation, event_id: int) -> int:
        """One more. An event that was counted already changes nothing."""
        counters = self._users.young.get(user)
        if counters is None:
            counters = self._of(user)
        if self._overlay.is_full:
            self._overlay.check_room()
        counter = counters.get(conversation)
        if counter is None:
            counter = counters[conversation] = _Counter(0, 0)
            counters.peers = None
            self._users.weigh(1)
        if event_id > counter.event_id:
            counter.event_id = event_id
            counter.count += 1
            self._note(user, counters, conversation)
        return counter.count

    def set(self, user: int, conversation: Conversation, count: int, event_id: int) -> None:
        """Set a counter, unless a later event has touched it already."""
        self._overlay.check_room()
        counters = self._of(user)
        counter = counters.get(conversation)
        if counter is None:
            counter = _Counter(0, 0)
        if event_id < counter.event_id:
            return
        counter.count, counter.event_id = count, event_id
        if conversation not in counters:
            counters[conversation] = counter
            counters.peers = None
            self._users.weigh(1)
        self._note(user, counters, conversation)

    def get(self, user: int, conversation: Conversation) -> int:
        """One counter, 0 if there is none."""
        counter = self._of(user).get(conversation)
        return counter.count if counter is not None else 0

    def drop(self, user: int, conversation: Conversation) -> None:
        """Forget a counter."""
        self._overlay.check_room()
        counters = self._of(user)
        if counters.pop(conversation, None) is not None:
            counters.peers = None
            self._note(user, counters, conversation)

    def of(self, user: int) -> dict[Conversation, int]:
        """Every counter of a user that has ever been raised or set, zeros included."""
        return {conversation: counter.count for conversation, counter in self._of(user).items()}

    def many(self, user: int, conversations: Sequence[Conversation]) -> list[int]:
        """Several counters of a user, each in its place."""
        return [self.get(user, conversation) for conversation in conversations]

    def direct(self, user: int, limit: int, *, after: int = -1) -> list[tuple[int, int]]:
        """(peer, count) of private conversations, by peers above ``after``; the first ``limit``."""
        counters = self._of(user)
        if counters.peers is None:
            counters.peers = sorted(each.peer for each in counters if isinstance(each, Direct))
        begin = bisect_right(counters.peers, after)
        return [(peer, counters[Direct(peer)].count) for peer in counters.peers[begin : begin + limit]]

    def fetch(self, users: Iterable[int]) -> None:
        """These are about to be counted for: have their counters, in few round trips."""
        missing = [user for user in users if user not in self._changed and self._users.find(user) is None]
        for at in range(0, len(missing), _FETCH_MAX):
            self._read(missing[at : at + _FETCH_MAX])

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._changed) * 100

    def save(self) -> None:
        """Changed counters are members with scores."""
        overlay, keys = self._overlay, self._keys
        for user, (counters, changed) in self._changed.items():
            counts, events = keys.unread % user, keys.unread_events % user
            for conversation in changed:
                counter = counters.get(conversation)
                name = str(conversation)
                overlay.put_score(counts, name, counter.count if counter is not None else None)
                overlay.put_field(events, name, counter.event_id if counter is not None else None)
        self._changed = {}

    def written(self) -> None:
        """The cache bounds itself."""

    def forget(self) -> None:
        """Begin anew."""
        self._users.clear()
        self._changed = {}

    def _note(self, user: int, counters: _Counters, conversation: Conversation) -> None:
        changed = self._changed.get(user)
        if changed is None:
            self._changed[user] = (counters, {conversation})
        else:
            changed[1].add(conversation)

    def _of(self, user: int) -> _Counters:
        counters = self._users.find(user)
        if counters is None:
            changed = self._changed.get(user)
            if changed is None:
                counters = self._read([user])[0]
            else:
                counters = changed[0]
                self._users.keep(user, counters)
        return counters

    def _read(self, users: list[int]) -> list[_Counters]:
        overlay, keys = self._overlay, self._keys
        counts = overlay.scores([keys.unread % user for user in users])
        events = overlay.fields([keys.unread_events % user for user in users])
        found: list[_Counters] = []
        for user, scores, touched in zip(users, counts, events, strict=True):
            counters = _Counters(
                (_conversation(name), _Counter(count, int(touched.get(name, 0)))) for name, count in scores.items()
            )
            self._users.keep(user, counters)
            found.append(counters)
        return found


def _conversation(name: str) -> Conversation:
    number = int(name[2:])
    return InGroup(number) if name[0] == "g" else Direct(number)
