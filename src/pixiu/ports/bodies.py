"""xiu: content by message id, once, for as long as something refers to it."""

from collections.abc import Iterable
from typing import Protocol

__all__ = ["Bodies"]


class Bodies(Protocol):
    """Every body, with its count of references. Implementations pass ``tests/contracts/bodies.py``."""

    def put(self, message_id: int, body: bytes, references: int) -> bool:
        """Store a body with that many references. One that is there already stays as it is: False."""
        ...

    def get(self, message_ids: Iterable[int]) -> dict[int, bytes]:
        """The bodies that are there; others are missing from the answer."""
        ...

    def references(self, message_id: int) -> int:
        """How many refer to it; 0 if it is gone."""
        ...

    def release(self, message_id: int, count: int = 1) -> int:
        """Take references away; the body goes with the last one. Returns what is left."""
        ...

    def replace(self, message_id: int, body: bytes) -> bool:
        """Put another body in its place (a recall), with its references. False if it is gone."""
        ...
