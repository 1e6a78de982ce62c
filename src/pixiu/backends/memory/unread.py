"""``Unread`` on dicts."""

from collections.abc import Sequence

from pixiu.model.conversation import Conversation, Direct

__all__ = ["MemoryUnread"]


class MemoryUnread:
    """Per user and conversation: the count, and the last event that touched it."""

    def __init__(self) -> None:
        self._counters: dict[int, dict[Conversation, tuple[int, int]]] = {}

    def add(self, user: int, conversation: Conversation, event_id: int) -> int:
        """One more. An event that was counted already changes nothing."""
        counters = self._counters.setdefault(user, {})
        count, touched = counters.get(conversation, (0, 0))
        if event_id > touched:
            count += 1
            counters[conversation] = count, event_id
        return count

    def set(self, user: int, conversation: Conversation, count: int, event_id: int) -> None:
        """Set a counter, unless a later event has touched it already."""
        counters = self._counters.setdefault(user, {})
        if event_id >= counters.get(conversation, (0, 0))[1]:
            counters[conversation] = count, event_id

    def get(self, user: int, conversation: Conversation) -> int:
        """One counter, 0 if there is none."""
        return self._counters.get(user, {}).get(conversation, (0, 0))[0]

    def many(self, user: int, conversations: Sequence[Conversation]) -> list[int]:
        """Several counters of a user, each in its place."""
        return [self.get(user, conversation) for conversation in conversations]

    def direct(self, user: int, limit: int, *, after: int = -1) -> list[tuple[int, int]]:
        """(peer, count) of private conversations, by peers above ``after``; the first ``limit``."""
        counts = self.of(user).items()
        return sorted((each.peer, count) for each, count in counts if isinstance(each, Direct) and each.peer > after)[
            :limit
        ]

    def drop(self, user: int, conversation: Conversation) -> None:
        """Forget a counter."""
        self._counters.get(user, {}).pop(conversation, None)

    def of(self, user: int) -> dict[Conversation, int]:
        """Every counter of a user that has ever been raised or set, zeros included."""
        return {conversation: count for conversation, (count, _) in self._counters.get(user, {}).items()}
