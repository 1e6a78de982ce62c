"""The newest messages of a group, with their bodies: what makes a thousand reconnects cost one read."""

from typing import Protocol

__all__ = ["RECENT_MAX", "Recent"]

RECENT_MAX = 1000
"""Messages kept per group."""


class Recent(Protocol):
    """A cache by group; it may forget a whole group at any time, never a part. ``tests/contracts/recent.py``.

    A message is (message_id, body), the body a MsgChat. A group is cold until ``warm`` has been called.
    """

    def is_warm(self, group: int) -> bool:
        """Does the cache know this group's newest messages?"""
        ...

    def warm(self, group: int, messages: list[tuple[int, bytes]], *, is_all: bool) -> None:
        """Fill a group's cache, newest first. ``is_all``: the group has no older ones."""
        ...

    def push(self, group: int, message_id: int, body: bytes) -> None:
        """A new message; nothing happens while the group is cold. The oldest beyond the bound goes."""
        ...

    def latest(self, group: int, count: int) -> list[tuple[int, bytes]]:
        """The newest ``count``, newest first."""
        ...

    def page(self, group: int, offset: int, count: int) -> list[tuple[int, bytes]]:
        """``count`` messages behind the newest ``offset``, newest first."""
        ...

    def count(self, group: int) -> int:
        """How many are held."""
        ...

    def has_all(self, group: int) -> bool:
        """Is the oldest one held the group's first message?"""
        ...

    def replace(self, group: int, message_id: int, body: bytes) -> None:
        """A recall: other content for a message, if it is held."""
        ...

    def drop(self, group: int) -> None:
        """Retention: the group's oldest messages have gone, so it is cold."""
        ...
