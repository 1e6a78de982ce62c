"""``Bodies`` on the overlay.

A body that is new is held as an object until the commit: references that go before then cost no row, and a body that
loses its last one was never there. What is in the store keeps its first count beside the body, and its count once that
has changed elsewhere, so that a release never writes a body again: the counts of all messages of one millisecond are
one row, since what was said together is mostly acked together.

Whether a body is there already is asked for every message, and nearly always it is not: message ids rise, so one above
the highest that was ever written is new without a look at the store.
"""

from collections.abc import Iterable
from itertools import repeat, starmap
from operator import add
from struct import Struct

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import BODY, META, REFERENCES, key1, number
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS

__all__ = ["EmbeddedBodies"]

_HIGH = META + b"high:bodies"
_OVERHEAD = 100
_count = Struct(">QI")
_MILLISECOND_BITS = NODE_BITS + SEQUENCE_BITS
"""Behind these a message id is a time."""


def _weight(body: bytes) -> int:
    return _OVERHEAD + len(body)


class EmbeddedBodies:
    """Bodies by message id, counted."""

    def __init__(self, overlay: Overlay, *, cached_bytes: int = 32 * 2**20, counts_max: int = 200_000) -> None:
        self._overlay = overlay
        self._fresh: dict[int, bytes] = {}
        """Bodies that no commit has seen."""
        self._fresh_counts: dict[int, int] = {}
        self._fresh_bytes = 0
        self._changed: dict[int, dict[int, int]] = {}
        """Whole rows of counts, by millisecond, that have changed since the last commit; 0 is gone."""
        self._gone: set[int] = set()
        """Those that are 0."""
        self._counts: Cache[int, int] = Cache(counts_max)
        self._bodies: Cache[int, bytes] = Cache(cached_bytes, _weight)
        self._high = int.from_bytes(overlay.get(_HIGH) or b"", "big")
        overlay.attach(self)

    def put(self, message_id: int, body: bytes, references: int) -> bool:
        """Store a body with that many references. One that is there already stays as it is: False."""
        if message_id in self._fresh or (message_id <= self._high and self._count(message_id)):
            return False
        if references > 0:
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
            elif message_id <= self._high and message_id not in self._gone:
                missing.append(message_id)
        if missing:
            values = self._overlay.get_many([key1(BODY, message_id) for message_id in missing])
            for message_id, value in zip(missing, values, strict=True):
                if value is not None:
                    found[message_id] = value[8:]
                    self._bodies.keep(message_id, value[8:])
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
            counts = self._changed.get(message_id >> _MILLISECOND_BITS)
            if counts is None:
                counts = self._changed[message_id >> _MILLISECOND_BITS] = self._stored(message_id)
            counts[message_id] = left
            self._counts.keep(message_id, left)
            if not left:
                self._gone.add(message_id)
                self._bodies.drop(message_id)
        return left

    def replace(self, message_id: int, body: bytes) -> bool:
        """Put another body in its place (a recall), with its references. False if it is gone."""
        fresh = self._fresh.get(message_id)
        if fresh is not None:
            self._fresh_bytes += len(body) - len(fresh)
            self._fresh[message_id] = body
            return True
        count = self._count(message_id)
        if not count:
            return False
        self._overlay.put(key1(BODY, message_id), number.pack(count) + body)
        self._bodies.keep(message_id, body)
        return True

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return self._fresh_bytes + len(self._fresh) * 17 + len(self._changed) * 200

    def save(self, rows: Rows) -> None:
        """Turn new bodies and changed counts into rows."""
        pack = number.pack
        if self._fresh:
            bodies, counts = self._fresh, self._fresh_counts
            values = map(add, map(pack, counts.values()), bodies.values())
            rows.extend(zip(map(key1, repeat(BODY), bodies), values, strict=True))
            self._bodies.keep_all(bodies, self._fresh_bytes + _OVERHEAD * len(bodies))
            self._counts.keep_all(counts, len(counts))
            self._high = max(self._high, max(bodies))
            rows.append((_HIGH, pack(self._high)))
        for message_id in self._gone:
            self._overlay.drop((key1(BODY, message_id),))
            del self._changed[message_id >> _MILLISECOND_BITS][message_id]
        for millisecond, changed in self._changed.items():
            if changed:
                rows.append((key1(REFERENCES, millisecond), b"".join(starmap(_count.pack, changed.items()))))
            else:
                self._overlay.drop((key1(REFERENCES, millisecond),))
        self._fresh = {}
        self._fresh_counts = {}
        self._fresh_bytes = 0
        self._changed = {}
        self._gone = set()

    def written(self) -> None:
        """The caches bound themselves."""

    def _count(self, message_id: int) -> int:
        """References of a body that is not fresh."""
        count = self._counts.find(message_id)
        if count is None:
            changed = self._changed.get(message_id >> _MILLISECOND_BITS)
            count = (self._stored(message_id) if changed is None else changed).get(message_id)
            if count is None:
                value = self._overlay.get(key1(BODY, message_id))
                count = int.from_bytes(value[:8], "big") if value is not None else 0
            self._counts.keep(message_id, count)
        return count

    def _stored(self, message_id: int) -> dict[int, int]:
        """The row of counts that a message's is in."""
        value = self._overlay.get(key1(REFERENCES, message_id >> _MILLISECOND_BITS))
        return dict(_count.iter_unpack(value)) if value is not None else {}
