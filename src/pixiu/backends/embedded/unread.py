"""``Unread`` on the overlay. Counters that were touched are objects until the commit, the busy ones for longer."""

from collections.abc import Sequence
from itertools import islice
from struct import Struct

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import UNREAD
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.model.conversation import Conversation, Direct, InGroup

__all__ = ["EmbeddedUnread"]

_key = Struct(">cQBQ").pack
_row = Struct(">qQ")
_DIRECT = 1
_IN_GROUP = 2


class _Counter:
    """One counter. ``count`` is None when there is none: that is remembered too."""

    __slots__ = ("count", "event_id", "is_changed")

    def __init__(self, count: int | None, event_id: int) -> None:
        self.count = count
        self.event_id = event_id
        self.is_changed = False


_Counters = dict[Conversation, _Counter]


class EmbeddedUnread:
    """A row per user and conversation. ``cached_max`` counters are held."""

    def __init__(self, overlay: Overlay, *, cached_max: int = 100_000) -> None:
        self._overlay = overlay
        self._users: Cache[int, _Counters] = Cache(cached_max)
        self._changed: dict[int, _Counters] = {}
        overlay.attach(self)

    def add(self, user: int, conversation: Conversation, event_id: int) -> int:
        """One more. An event that was counted already changes nothing."""
        counters = self._users.young.get(user)
        counter = counters.get(conversation) if counters is not None else None
        if counter is None:
            counter = self._find(user, conversation)
        count = counter.count or 0
        if event_id > counter.event_id:
            counter.event_id = event_id
            counter.count = count = count + 1
            if not counter.is_changed:
                self._note(user, conversation, counter)
        return count

    def set(self, user: int, conversation: Conversation, count: int, event_id: int) -> None:
        """Set a counter, unless a later event has touched it already."""
        counter = self._find(user, conversation)
        if event_id >= counter.event_id:
            counter.event_id = event_id
            counter.count = count
            self._note(user, conversation, counter)

    def get(self, user: int, conversation: Conversation) -> int:
        """One counter, 0 if there is none."""
        return self._find(user, conversation).count or 0

    def drop(self, user: int, conversation: Conversation) -> None:
        """Forget a counter."""
        counter = self._find(user, conversation)
        counter.count = None
        counter.event_id = 0
        self._note(user, conversation, counter)

    def of(self, user: int) -> dict[Conversation, int]:
        """Every counter of a user that has ever been raised or set, zeros included."""
        self._put_changed(user)
        counters: dict[Conversation, int] = {}
        for key, value in self._overlay.scan(_key(UNREAD, user, 0, 0), _key(UNREAD, user, 255, 0)):
            owner = int.from_bytes(key[10:], "big")
            conversation = InGroup(owner) if key[9] == _IN_GROUP else Direct(owner)
            counters[conversation] = _row.unpack(value)[0]
        return counters

    def many(self, user: int, conversations: Sequence[Conversation]) -> list[int]:
        """Several counters of a user, each in its place. What is not held is read, and not held because of it."""
        held = self._users.find(user) or {}
        changed = self._changed.get(user) or {}
        found = [held.get(each) or changed.get(each) for each in conversations]
        missing = [_key_of(user, each) for each, counter in zip(conversations, found, strict=True) if counter is None]
        values = iter(self._overlay.get_many(missing)) if missing else iter(())
        counts: list[int] = []
        for counter in found:
            if counter is not None:
                counts.append(counter.count or 0)
            else:
                value = next(values)
                counts.append(0 if value is None else _row.unpack(value)[0])
        return counts

    def direct(self, user: int, limit: int, *, after: int = -1) -> list[tuple[int, int]]:
        """(peer, count) of private conversations, by peers above ``after``; the first ``limit``."""
        self._put_changed(user)
        rows = self._overlay.scan(_key(UNREAD, user, _DIRECT, after + 1), _key(UNREAD, user, _DIRECT + 1, 0))
        return [(int.from_bytes(key[10:], "big"), _row.unpack(value)[0]) for key, value in islice(rows, limit)]

    def _put_changed(self, user: int) -> None:
        """Turn a user's changed counters into rows of the overlay, so that a scan sees them."""
        changed = self._changed.pop(user, None)
        if changed is not None:
            rows: Rows = []
            self._encode(user, changed, rows)
            for key, value in rows:
                self._overlay.put(key, value)

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._changed) * 50

    def save(self, rows: Rows) -> None:
        """Turn changed counters into rows."""
        changed = self._changed
        for user in sorted(changed):
            self._encode(user, changed[user], rows)
        self._changed = {}

    def written(self) -> None:
        """The cache bounds itself."""

    def _note(self, user: int, conversation: Conversation, counter: _Counter) -> None:
        counter.is_changed = True
        changed = self._changed.get(user)
        if changed is None:
            self._changed[user] = {conversation: counter}
        else:
            changed[conversation] = counter

    def _encode(self, user: int, counters: _Counters, rows: Rows) -> None:
        for conversation, counter in counters.items():
            counter.is_changed = False
            key = _key(UNREAD, user, _IN_GROUP if conversation[1] == "g" else _DIRECT, conversation[0])
            if counter.count is None:
                self._overlay.delete(key)
            else:
                rows.append((key, _row.pack(counter.count, counter.event_id)))

    def _find(self, user: int, conversation: Conversation) -> _Counter:
        counters = self._users.find(user)
        if counters is None:
            counters = {}
            self._users.keep(user, counters)
        counter = counters.get(conversation)
        if counter is None:
            changed = self._changed.get(user)
            counter = changed.get(conversation) if changed else None
            if counter is None:
                value = self._overlay.get(_key_of(user, conversation))
                counter = _Counter(None, 0) if value is None else _Counter(*_row.unpack(value))
            counters[conversation] = counter
            self._users.weigh(1)
        return counter


def _key_of(user: int, conversation: Conversation) -> bytes:
    return _key(UNREAD, user, _IN_GROUP if conversation[1] == "g" else _DIRECT, conversation[0])
