"""``Bodies`` on the overlay.

A body that is new is held as an object until the commit: references that go before then cost no row, and a body that
loses its last one was never there. What is in the store keeps its first count beside the body, and its count once that
has changed elsewhere, so that a release never writes a body again: the counts of all messages of one millisecond are
one row, since what was said together is mostly acked together.

Whether a body is there already is asked for every message, and nearly always it is not: message ids rise, so one above
the highest that was ever written is new without a look at the store.
"""

from collections.abc import Iterable
from itertools import starmap
from struct import Struct

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import BODY, META, REFERENCES, key1, number
from pixiu.backends.embedded.overlay import Overlay, Rows

__all__ = ["EmbeddedBodies"]

_HIGH = META + b"high:bodies"
_OVERHEAD = 100
_count = Struct(">QI")
_MILLISECOND_BITS = 22
"""Behind these a message id is a time."""


class _Fresh:
    """A body that no commit has seen."""

    __slots__ = ("body", "references")

    def __init__(self, body: bytes, references: int) -> None:
        self.body = body
        self.references = references


def _weight(body: bytes) -> int:
    return _OVERHEAD + len(body)


class EmbeddedBodies:
    """Bodies by message id, counted."""

    def __init__(self, overlay: Overlay, *, cached_bytes: int = 32 * 2**20, counts_max: int = 200_000) -> None:
        self._overlay = overlay
        self._fresh: dict[int, _Fresh] = {}
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
            self._fresh[message_id] = _Fresh(body, references)
            self._fresh_bytes += len(body)
        return True

    def get(self, message_ids: Iterable[int]) -> dict[int, bytes]:
        """The bodies that are there; others are missing from the answer."""
        found: dict[int, bytes] = {}
        missing: list[int] = []
        for message_id in message_ids:
            fresh = self._fresh.get(message_id)
            body = fresh.body if fresh is not None else self._bodies.find(message_id)
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
        fresh = self._fresh.get(message_id)
        return fresh.references if fresh is not None else self._count(message_id)

    def release(self, message_id: int, count: int = 1) -> int:
        """Take references away; the body goes with the last one. Returns what is left."""
        fresh = self._fresh.get(message_id)
        if fresh is not None:
            left = fresh.references - count
            fresh.references = left
            if left <= 0:
                del self._fresh[message_id]
                self._fresh_bytes -= len(fresh.body)
                return 0
            return left
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
            self._fresh_bytes += len(body) - len(fresh.body)
            fresh.body = body
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
            keep_body, keep_count = self._bodies.keep, self._counts.keep
            for message_id, fresh in self._fresh.items():
                body, references = fresh.body, fresh.references
                rows.append((key1(BODY, message_id), pack(references) + body))
                keep_body(message_id, body)
                keep_count(message_id, references)
            self._high = max(self._high, max(self._fresh))
            rows.append((_HIGH, pack(self._high)))
        for message_id in self._gone:
            self._overlay.drop((key1(BODY, message_id),))
            del self._changed[message_id >> _MILLISECOND_BITS][message_id]
        for millisecond, counts in self._changed.items():
            if counts:
                rows.append((key1(REFERENCES, millisecond), b"".join(starmap(_count.pack, counts.items()))))
            else:
                self._overlay.drop((key1(REFERENCES, millisecond),))
        self._fresh = {}
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
