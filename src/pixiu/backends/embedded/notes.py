"""``Notes`` on the overlay."""

from pixiu.backends.embedded.layout import META
from pixiu.backends.embedded.overlay import Overlay

__all__ = ["EmbeddedNotes"]


class EmbeddedNotes:
    """A row per name."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def get(self, name: str) -> bytes | None:
        """What was noted under a name."""
        return self._overlay.get(_key(name))

    def put(self, name: str, value: bytes) -> None:
        """Note it."""
        self._overlay.put(_key(name), value)


def _key(name: str) -> bytes:
    return META + b"note:" + name.encode()
