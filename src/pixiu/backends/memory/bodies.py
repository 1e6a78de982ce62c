"""``Bodies`` on dicts."""

from collections.abc import Iterable

__all__ = ["MemoryBodies"]


class MemoryBodies:
    """Bodies and their counts of references."""

    def __init__(self) -> None:
        self._bodies: dict[int, bytes] = {}
        self._references: dict[int, int] = {}

    def put(self, message_id: int, body: bytes, references: int) -> bool:
        """Store a body with that many references. One that is there already stays as it is: False."""
        if message_id in self._bodies:
            return False
        if references > 0:
            self._bodies[message_id] = body
            self._references[message_id] = references
        return True

    def get(self, message_ids: Iterable[int]) -> dict[int, bytes]:
        """The bodies that are there; others are missing from the answer."""
        return {number: self._bodies[number] for number in message_ids if number in self._bodies}

    def references(self, message_id: int) -> int:
        """How many refer to it; 0 if it is gone."""
        return self._references.get(message_id, 0)

    def release(self, message_id: int, count: int = 1) -> int:
        """Take references away; the body goes with the last one. Returns what is left."""
        left = max(self._references.get(message_id, 0) - count, 0)
        if left:
            self._references[message_id] = left
        else:
            self._references.pop(message_id, None)
            self._bodies.pop(message_id, None)
        return left

    def replace(self, message_id: int, body: bytes) -> bool:
        """Put another body in its place (a recall), with its references. False if it is gone."""
        if message_id not in self._bodies:
            return False
        self._bodies[message_id] = body
        return True
