"""How many messages a user has not read, per conversation."""

from collections.abc import Sequence
from typing import Protocol

from pixiu.model.conversation import Conversation

__all__ = ["Unread"]


class Unread(Protocol):
    """Counters by user and conversation. Implementations pass ``tests/contracts/unread.py``."""

    def add(self, user: int, conversation: Conversation, event_id: int) -> int:
        """One more. An event that was counted already changes nothing. Returns the count."""
        ...

    def set(self, user: int, conversation: Conversation, count: int, event_id: int) -> None:
        """Set a counter, unless a later event has touched it already."""
        ...

    def get(self, user: int, conversation: Conversation) -> int:
        """One counter, 0 if there is none."""
        ...

    def many(self, user: int, conversations: Sequence[Conversation]) -> list[int]:
        """Several counters of a user, each in its place."""
        ...

    def direct(self, user: int, limit: int, *, after: int = -1) -> list[tuple[int, int]]:
        """(peer, count) of private conversations, zeros included, by peers above ``after``; the first ``limit``."""
        ...

    def drop(self, user: int, conversation: Conversation) -> None:
        """Forget a counter."""
        ...

    def of(self, user: int) -> dict[Conversation, int]:
        """Every counter of a user that has ever been raised or set, zeros included."""
        ...
