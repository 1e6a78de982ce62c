"""Finding messages by what they say. An index answers with numbers only; what is shown comes from the stores."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from pixiu.model.errors import PixiuError

__all__ = ["Asked", "Found", "Hit", "Searches"]


class Asked(NamedTuple):
    """A question to the index. Rights are part of it: what the user may not read is not looked at."""

    phrases: tuple[tuple[tuple[int, str], ...], ...]
    """All of them must be there; each is terms with their distances."""
    user: int
    """Whose private messages; 0 is nobody's."""
    groups: Mapping[int, int]
    """The groups that are looked at, with the smallest message id of each (0: all)."""
    peers: tuple[int, ...] | None = None
    """Private messages with these alone (0 is the system); None is with anyone, an empty one is with nobody."""
    senders: tuple[int, ...] = ()
    """Said by these; empty is by anyone."""
    at_least: int = 0
    """No message id below this."""
    before: int = 0
    """Only message ids below this; 0 is all."""
    is_by_relevance: bool = False
    """Best first, and not newest first."""
    skip: int = 0
    """Leave out so many of the first; by relevance only."""
    limit: int = 100


class Hit(NamedTuple):
    """One message that was found."""

    message_id: int
    group: int
    """0 is a private one."""


class Found(NamedTuple):
    """What the index holds, in the order that was asked for: at most ``limit``."""

    hits: list[Hit]


class Searches(Protocol):
    """Answers questions, beside the loop."""

    def find(self, asked: Asked, done: Callable[[Found | PixiuError], object]) -> None:
        """Tell ``done`` once, later, on the loop. ``Overloaded`` where too many wait, ``Unavailable`` without index."""
        ...
