"""``Bodies``: two values per message, as seed 000 has them, the body and how many refer to it.

A body that is new is held as an object until the commit: one that loses its last reference before then never reaches
Redis. Whoever reads a body is about to release it, so its count is read along, and a release costs no round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisBodies"]

_HIGH = "high:bodies"
_OVERHEAD = 100


def _weight(body: bytes) -> int:
    return _OVERHEAD + len(body)


class RedisBodies:
    """Bodies by message id, counted."""

    def __init__(
        self, overlay: Overlay, keys: Keys, *, cached_bytes: int = 32 * 2**20, counts_max: int = 200_000
    ) -> None:
        self._overlay = overlay
        self._keys = keys
        self._fresh: dict[int, bytes] = {}
        """Bodies that no commit has seen."""
        self._fresh_counts: dict[int, int] = {}
        self._fresh_bytes = 0
        self._changed: dict[int, int] = {}
        """Counts that have changed since the last commit; 0 is gone."""
        self._counts: Cache[int, int] = Cache(counts_max)
        self._bodies: Cache[int, bytes] = Cache(cached_bytes, _weight)
        self._high = self._read_high()
        """Message ids rise: one above the highest that was ever written is new without a look."""
        overlay.attach(self)

    def put(self, message_id: int, body: bytes, references: int) -> bool:
        """Store a body with that many references. One that is there already stays as it is: False."""
        if message_id in self._fresh or (message_id <= self._high and self._count(message_id)):
            return False
        if references > 0:
            self._overlay.check_room()
            self._changed.pop(message_id, None)
            self._fresh[message_id] = body
            self._fresh_counts[message_id] = references
            self._fresh_bytes += len(body)
        return True

    def get(self, message_ids: Iterable[int]) -> dict[int, bytes]:
        """The bodies that are there; others are missing from the answer."""
        found: dict[int, bytes] = {}
        missing: list[int] = []
        for message_id in message_ids:
            body = self._fresh.get(message_id)
            if body is None:
                body = self._bodies.find(message_id)
            if body is not None:
                found[message_id] = body
            elif message_id <= self._high and self._changed.get(message_id) != 0:
                missing.append(message_id)
        if missing:
            self._fetch(missing, found)
        return found

    def references(self, message_id: int) -> int:
        """How many refer to it; 0 if it is gone."""
        return self._fresh_counts.get(message_id) or self._count(message_id)

    def release(self, message_id: int, count: int = 1) -> int:
        """Take references away; the body goes with the last one. Returns what is left."""
        fresh = self._fresh_counts.get(message_id)
        if fresh is not None:
            left = fresh - count
            if left > 0:
                self._fresh_counts[message_id] = left
                return left
            del self._fresh_counts[message_id]
            self._fresh_bytes -= len(self._fresh.pop(message_id))
            return 0
        before = self._count(message_id)
        left = before - count if before > count else 0
        if left != before:
            self._changed[message_id] = left
            if not left:
                self._bodies.drop(message_id)
        return left

    def replace(self, message_id: int, body: bytes) -> bool:
        """Put another body in its place (a recall), with its references. False if it is gone."""
        fresh = self._fresh.get(message_id)
        if fresh is not None:
            self._fresh_bytes += len(body) - len(fresh)
            self._fresh[message_id] = body
            return True
        if not self._count(message_id):
            return False
        self._overlay.put(self._keys.body % message_id, body)
        self._bodies.keep(message_id, body)
        return True

    def fetch_counts(self, message_ids: Iterable[int]) -> None:
        """These are about to be released: have their counts, in one round trip if Redis is there."""
        missing = [
            message_id
            for message_id in message_ids
            if message_id not in self._fresh
            and message_id not in self._changed
            and message_id <= self._high
            and self._counts.find(message_id) is None
        ]
        if len(missing) > 1:
            try:
                values = self._overlay.get_many([self._keys.references % message_id for message_id in missing])
            except Unavailable:
                return
            for message_id, value in zip(missing, values, strict=True):
                self._counts.keep(message_id, int(value or 0))

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return self._fresh_bytes + len(self._fresh) * 60 + len(self._changed) * 40

    def save(self) -> None:
        """New bodies and changed counts are values."""
        put, keys = self._overlay.put, self._keys
        if self._fresh:
            for message_id, body in self._fresh.items():
                put(keys.body % message_id, body)
                put(keys.references % message_id, self._fresh_counts[message_id])
            self._bodies.keep_all(self._fresh, self._fresh_bytes + _OVERHEAD * len(self._fresh))
            self._counts.keep_all(self._fresh_counts, len(self._fresh_counts))
            self._high = max(self._high, max(self._fresh))
            self._overlay.put_field(keys.meta, _HIGH, self._high)
        for message_id, count in self._changed.items():
            put(keys.references % message_id, count or None)
            if not count:
                put(keys.body % message_id, None)
        self._counts.keep_all(self._changed, len(self._changed))
        self._fresh = {}
        self._fresh_counts = {}
        self._fresh_bytes = 0
        self._changed = {}

    def written(self) -> None:
        """The caches bound themselves."""

    def forget(self) -> None:
        """Begin anew."""
        self._fresh = {}
        self._fresh_counts = {}
        self._fresh_bytes = 0
        self._changed = {}
        self._counts.clear()
        self._bodies.clear()
        self._high = self._read_high()

    def _read_high(self) -> int:
        return int(self._overlay.field(self._keys.meta, _HIGH) or 0)

    def _fetch(self, message_ids: list[int], found: dict[int, bytes]) -> None:
        keys = self._keys
        names = [keys.body % message_id for message_id in message_ids]
        names += [keys.references % message_id for message_id in message_ids]
        values = self._overlay.get_many(names)
        count = len(message_ids)
        for message_id, body, references in zip(message_ids, values[:count], values[count:], strict=True):
            if message_id not in self._changed:
                self._counts.keep(message_id, int(references or 0))
            if body is not None:
                found[message_id] = body
                self._bodies.keep(message_id, body)

    def _count(self, message_id: int) -> int:
        """References of a body that is not fresh."""
        count = self._changed.get(message_id)
        if count is None:
            count = self._counts.find(message_id)
        if count is None:
            count = int(self._overlay.get(self._keys.references % message_id) or 0)
            self._counts.keep(message_id, count)
        return count
