"""``SendKeys``: a value per key. Most questions are about keys that were never used."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.ports.sendkeys import Sent

if TYPE_CHECKING:
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisSendKeys"]

UNUSED_MAX = 20_000
"""Unused keys remembered."""

_row = Struct(">QQq")


class RedisSendKeys:
    """A value per key; the newest are held, since a repeat mostly comes soon."""

    def __init__(self, overlay: Overlay, keys: Keys, *, cached_max: int = 40_000) -> None:
        self._overlay = overlay
        self._prefix = keys.send_key
        self._fresh: dict[bytes, Sent] = {}
        self._known: Cache[bytes, Sent] = Cache(cached_max)
        self._unused: set[bytes] = set()
        """Keys that were asked for and not there: they are put next, without a second look."""
        overlay.attach(self)

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        sent = self._fresh.get(key) or self._known.find(key)
        if sent is None and key not in self._unused:
            value = self._overlay.get(self._prefix + key)
            if value is not None:
                sent = Sent(*_row.unpack(value))
                self._known.keep(key, sent)
            elif len(self._unused) < UNUSED_MAX:
                self._unused.add(key)
        return sent

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        if key in self._unused:
            self._unused.remove(key)
        elif self.get(key) is not None:
            return
        self._unused.discard(key)
        self._fresh[key] = sent

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._fresh) * 80

    def save(self) -> None:
        """New keys are values."""
        put, prefix, pack = self._overlay.put, self._prefix, _row.pack
        for key, sent in self._fresh.items():
            put(prefix + key, pack(*sent))
        self._known.keep_all(self._fresh, len(self._fresh))
        self._fresh = {}

    def written(self) -> None:
        """A key that was asked for and never put, as of a send that was refused, is forgotten in the end."""
        if len(self._unused) >= UNUSED_MAX:
            self._unused.clear()

    def forget(self) -> None:
        """Begin anew."""
        self._fresh = {}
        self._known.clear()
        self._unused.clear()
