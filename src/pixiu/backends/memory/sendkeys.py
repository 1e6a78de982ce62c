"""``SendKeys`` on a dict."""

from collections.abc import Sequence

from pixiu.ports.sendkeys import Sent, SentPage

__all__ = ["MemorySendKeys"]


class MemorySendKeys:
    """The first send under each key."""

    def __init__(self) -> None:
        self._sent: dict[bytes, Sent] = {}

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        return self._sent.get(key)

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Sent]:
        """Those of these keys that were used, with their first sends."""
        return {key: self._sent[key] for key in keys if key in self._sent}

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        self._sent.setdefault(key, sent)

    def page(self, user: int, after: bytes, limit: int) -> SentPage:
        """Some of a user's sends, in the order of their keys."""
        prefix = user.to_bytes(8, "big")
        keys = sorted(key for key in self._sent if key.startswith(prefix) and key > after)
        last = keys[limit - 1] if len(keys) > limit else None
        return SentPage([(key, self._sent[key]) for key in keys[:limit]], last)

    def drop(self, key: bytes, through: int) -> None:
        """Forget the send under a key, if it was given a message id up to here."""
        sent = self._sent.get(key)
        if sent is not None and sent.message_id <= through:
            del self._sent[key]
