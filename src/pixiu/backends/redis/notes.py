"""``Notes``: one small hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisNotes"]


class RedisNotes:
    """A field per name."""

    def __init__(self, overlay: Overlay, keys: Keys) -> None:
        self._overlay = overlay
        self._key = keys.notes

    def get(self, name: str) -> bytes | None:
        """What was noted under a name."""
        return self._overlay.field(self._key, name)

    def put(self, name: str, value: bytes) -> None:
        """Note it."""
        self._overlay.put_field(self._key, name, value)
