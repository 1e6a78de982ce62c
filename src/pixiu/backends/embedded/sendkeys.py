"""``SendKeys`` on the overlay. Most questions are about keys that were never used: bloom filters make them cheap."""

from collections.abc import Sequence
from itertools import islice
from struct import Struct

from pixiu.backends.embedded.layout import SEND_KEY
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.ports.sendkeys import Sent, SentPage

__all__ = ["EmbeddedSendKeys"]

UNUSED_MAX = 20_000
"""Unused keys remembered."""

_row = Struct(">QQq")


class EmbeddedSendKeys:
    """A row per key."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._fresh: dict[bytes, Sent] = {}
        self._unused: set[bytes] = set()
        """Keys that were asked for and not there: they are put next, without a second look."""
        overlay.attach(self)

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        sent = self._fresh.get(key)
        if sent is None:
            value = self._overlay.get(SEND_KEY + key)
            if value is not None:
                return Sent(*_row.unpack(value))
            if len(self._unused) < UNUSED_MAX:
                self._unused.add(key)
        return sent

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Sent]:
        """Those of these keys that were used, with their first sends."""
        fresh = self._fresh
        found = {} if fresh.keys().isdisjoint(keys) else {key: fresh[key] for key in keys if key in fresh}
        values = self._overlay.get_many([SEND_KEY + key for key in keys])
        if values.count(None) < len(values):
            stored = ((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
            found.update((key, Sent(*_row.unpack(value))) for key, value in stored)
        if len(self._unused) < UNUSED_MAX:
            self._unused.update(keys)
            self._unused.difference_update(found)
        return found

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        if key in self._unused:
            self._unused.remove(key)
        elif key in self._fresh or self._overlay.get(SEND_KEY + key) is not None:
            return
        self._fresh[key] = sent

    def page(self, user: int, after: bytes, limit: int) -> SentPage:
        """Some of a user's sends, in the order of their keys."""
        prefix = SEND_KEY + user.to_bytes(8, "big")
        start = SEND_KEY + after + b"\x00" if after else prefix
        rows = list(islice(self._overlay.scan(start, SEND_KEY + (user + 1).to_bytes(8, "big")), limit + 1))
        sent = [(key[1:], Sent(*_row.unpack(value))) for key, value in rows[:limit]]
        return SentPage(sent, sent[-1][0] if len(rows) > limit else None)

    def drop(self, key: bytes, through: int) -> None:
        """Forget the send under a key, if it was given a message id up to here."""
        fresh = self._fresh.get(key)
        if fresh is not None:
            if fresh.message_id <= through:
                del self._fresh[key]
            return
        value = self._overlay.get(SEND_KEY + key)
        if value is not None and _row.unpack(value)[0] <= through:
            self._overlay.delete(SEND_KEY + key)

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._fresh) * 80

    def save(self, rows: Rows) -> None:
        """Turn new keys into rows."""
        pack = _row.pack
        rows.extend([(SEND_KEY + key, pack(*sent)) for key, sent in sorted(self._fresh.items())])
        self._fresh = {}

    def written(self) -> None:
        """A key that was asked for and never put, as of a send that was refused, is forgotten in the end."""
        if len(self._unused) >= UNUSED_MAX:
            self._unused.clear()
