"""A user's list of people, and whom the user does not want to hear."""

from typing import Protocol

__all__ = ["Contacts"]


class Contacts(Protocol):
    """Contacts and blocks, by owner. Implementations pass ``tests/contracts/contacts.py``."""

    def link(self, user: int, peer: int, at: int) -> bool:
        """Add ``peer`` to ``user``'s list; the time of the first adding stays. True if it is new."""
        ...

    def unlink(self, user: int, peer: int) -> bool:
        """Take ``peer`` off the list. True if it was there."""
        ...

    def of(self, user: int) -> list[tuple[int, int]]:
        """(peer, time of adding), oldest first; equal times by number."""
        ...

    def page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """The first ``limit`` rows of ``of`` behind ``after``, a time of adding and a peer.

        The cost grows with ``limit``, not with the list, once a page of it was read.
        """
        ...

    def linked_at(self, user: int, peer: int) -> int | None:
        """When ``user`` added ``peer``; None if ``peer`` is not on the list. The cost does not depend on the list."""
        ...

    def count(self, user: int) -> int:
        """How many contacts ``user`` has."""
        ...

    def blocked_count(self, user: int) -> int:
        """How many others ``user`` blocks."""
        ...

    def block(self, user: int, peer: int, *, is_blocked: bool) -> None:
        """Let ``user`` hear nothing of ``peer``, or again."""
        ...

    def blocked_by(self, user: int) -> list[int]:
        """Whom ``user`` blocks, by number."""
        ...

    def is_blocked(self, user: int, peer: int) -> bool:
        """Does ``user`` block ``peer``?"""
        ...
