"""Small facts that records leave behind for the appliers themselves: the limits that hold now."""

from typing import Protocol

__all__ = ["Notes"]


class Notes(Protocol):
    """Values by name. Implementations pass ``tests/contracts/notes.py``."""

    def get(self, name: str) -> bytes | None:
        """What was noted under a name."""
        ...

    def put(self, name: str, value: bytes) -> None:
        """Note it, in place of what was there."""
        ...
