"""``SendKeys`` on a dict."""

from pixiu.ports.sendkeys import Sent

__all__ = ["MemorySendKeys"]


class MemorySendKeys:
    """The first send under each key."""

    def __init__(self) -> None:
        self._sent: dict[bytes, Sent] = {}

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        return self._sent.get(key)

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        self._sent.setdefault(key, sent)
