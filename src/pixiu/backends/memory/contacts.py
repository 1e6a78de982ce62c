"""``Contacts`` on dicts."""

__all__ = ["MemoryContacts"]


class MemoryContacts:
    """Per user: when each contact was added, and who is blocked."""

    def __init__(self) -> None:
        self._linked: dict[int, dict[int, int]] = {}
        self._blocked: set[tuple[int, int]] = set()

    def link(self, user: int, peer: int, at: int) -> bool:
        """Add ``peer`` to ``user``'s list; the time of the first adding stays."""
        linked = self._linked.setdefault(user, {})
        if peer in linked:
            return False
        linked[peer] = at
        return True

    def unlink(self, user: int, peer: int) -> bool:
        """Take ``peer`` off the list."""
        return self._linked.get(user, {}).pop(peer, None) is not None

    def of(self, user: int) -> list[tuple[int, int]]:
        """(peer, time of adding), oldest first; equal times by number."""
        return sorted(self._linked.get(user, {}).items(), key=lambda item: (item[1], item[0]))

    def page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """The first ``limit`` rows of ``of`` behind ``after``, a time of adding and a peer."""
        return [(peer, at) for peer, at in self.of(user) if after is None or (at, peer) > after][:limit]

    def linked_at(self, user: int, peer: int) -> int | None:
        """When ``user`` added ``peer``; None if ``peer`` is not on the list."""
        return self._linked.get(user, {}).get(peer)

    def count(self, user: int) -> int:
        """How many contacts ``user`` has."""
        return len(self._linked.get(user, {}))

    def blocked_count(self, user: int) -> int:
        """How many others ``user`` blocks."""
        return len(self.blocked_by(user))

    def block(self, user: int, peer: int, *, is_blocked: bool) -> None:
        """Let ``user`` hear nothing of ``peer``, or again."""
        if is_blocked:
            self._blocked.add((user, peer))
        else:
            self._blocked.discard((user, peer))

    def blocked_by(self, user: int) -> list[int]:
        """Whom ``user`` blocks, by number."""
        return sorted(peer for owner, peer in self._blocked if owner == user)

    def is_blocked(self, user: int, peer: int) -> bool:
        """Does ``user`` block ``peer``?"""
        return (user, peer) in self._blocked
