"""``SendKeys``: a hash per user, of keys that begin with the user's number.

Most questions are about keys that were never used, and none of them may cost a round trip: of a user who sends, all
keys that were ever used are known by name, up to a bound. Whoever has used more is asked about, one key at a time.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.ports.sendkeys import Sent, SentPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["NAMES_MAX", "RedisSendKeys"]

NAMES_MAX = 5_000
"""Keys of one user that are held by name."""

_row = Struct(">QQq")


def _weight(names: set[bytes]) -> int:
    return 1 + len(names)


class RedisSendKeys:
    """``cached_max`` names are held, of all users, and as many of the newest sends."""

    def __init__(self, overlay: Overlay, keys: Keys, *, cached_max: int = 160_000, names_max: int = NAMES_MAX) -> None:
        self._overlay = overlay
        self._pattern = keys.send_keys
        self._fresh: dict[bytes, Sent] = {}
        self._unwritten: dict[bytes, Sent] = {}
        """What waits for a commit that was refused."""
        self._dropped: set[bytes] = set()
        """Keys that Redis has until the next commit."""
        self._known: Cache[bytes, Sent] = Cache(cached_max // 4)
        self._names: Cache[int, set[bytes]] = Cache(cached_max, _weight)
        self._names_max = names_max
        overlay.attach(self)

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        sent = self._fresh.get(key) or self._unwritten.get(key) or self._known.find(key)
        if sent is None and key not in self._dropped and self._may_be(key):
            value = self._overlay.client.ask([("HGET", self._pattern % _user(key), key)])[0]
            if value is not None:
                sent = Sent(*_row.unpack(value))
                self._known.keep(key, sent)
        return sent

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Sent]:
        """Those of these keys that were used, with their first sends."""
        return {key: sent for key in keys if (sent := self.get(key)) is not None}

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        if self.get(key) is not None:
            return
        self._fresh[key] = sent

    def page(self, user: int, after: bytes, limit: int) -> SentPage:
        """About ``limit`` of a user's sends, as Redis goes through them."""
        cursor, fields = self._overlay.client.ask([("HSCAN", self._pattern % user, after or b"0", "COUNT", limit)])[0]
        rows = zip(fields[::2], fields[1::2], strict=True)
        sent = [(key, Sent(*_row.unpack(value))) for key, value in rows if key not in self._dropped]
        return SentPage(sent, None if cursor == b"0" else cursor)

    def drop(self, key: bytes, through: int) -> None:
        """Forget the send under a key, if it was given a message id up to here."""
        sent = self.get(key)
        if sent is not None and sent.message_id <= through:
            self._fresh.pop(key, None)
            self._unwritten.pop(key, None)
            self._known.drop(key)
            self._dropped.add(key)
            self._overlay.step("HDEL", self._pattern % _user(key), key)

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._fresh) * 80

    def save(self) -> None:
        """New keys are fields."""
        users: dict[int, list[bytes]] = {}
        for key, sent in self._fresh.items():
            users.setdefault(_user(key), []).extend((key, _row.pack(*sent)))
        for user, fields in users.items():
            for at in range(0, len(fields), 1000):
                self._overlay.step("HSET", self._pattern % user, *fields[at : at + 1000])
        self._unwritten |= self._fresh
        self._fresh = {}

    def written(self) -> None:
        """Redis has them; the newest are held, since a repeat mostly comes soon."""
        self._known.keep_all(self._unwritten, len(self._unwritten))
        for key in self._dropped.difference(self._unwritten):
            names = self._names.find(_user(key))
            if names is not None:
                names.discard(key)
        self._dropped = set()
        for key in self._unwritten:
            names = self._names.find(_user(key))
            if names is not None:
                names.add(key)
                self._names.weigh(1)
        self._unwritten = {}

    def forget(self) -> None:
        """Begin anew."""
        self._fresh = {}
        self._unwritten = {}
        self._dropped = set()
        self._known.clear()
        self._names.clear()

    def _may_be(self, key: bytes) -> bool:
        """Is it among the names that Redis has, or are these too many to know?"""
        user = _user(key)
        names = self._names.find(user)
        if names is None:
            client, name = self._overlay.client, self._pattern % user
            if client.ask([("HLEN", name)])[0] > self._names_max:
                return True
            names = set(client.ask([("HKEYS", name)])[0])
            self._names.keep(user, names)
        elif len(names) > self._names_max:
            self._names.drop(user)
            return True
        return key in names


def _user(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
