"""Who is where, and how many partitions there are: small facts that all nodes agree on.

A tree of nodes with data and a version each, as ZooKeeper has it. What makes it a registry: a node that was registered
lives as long as its session, and gets a number that rises; a change may name the version that it replaces.

A watch is only a hint to read again. It may come late, twice, merged with others, or not at all, so whoever watches
also polls, and both end in the same code. A reading of a folder is not one moment: each node is consistent, together
they may not be.

Callbacks are told exactly once, on the loop, with the result or a ``PixiuError``: ``Unavailable`` when it is not known
whether the change was made, ``Conflict`` when another version is there, ``NotFound`` when nothing is.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from pixiu.model.errors import PixiuError

__all__ = ["Data", "Entry", "Folder", "Registry", "SessionState", "Write", "sequence_of"]

Data = Mapping[str, object]
"""What a node holds: a small JSON object."""


class Entry(NamedTuple):
    """One node."""

    data: Data
    version: int
    """0 when created, and one more with each change."""


Folder = Mapping[str, Entry]
"""Everything below a path, by the path from there on; folders without data are left out."""


class Write(NamedTuple):
    """One change of a ``swap``."""

    path: str
    data: Data
    version: int | None = None
    """Replaces this version; None: whatever is there; -1: nothing is there yet."""


class SessionState(Enum):
    """What the registry thinks of us, as far as we know."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No contact: our nodes may be gone soon, and what we see may be old."""
    LOST = "lost"
    """Our nodes are gone. Register again, under a new number."""


class Registry(Protocol):
    """One session with a registry. Implementations pass ``tests/contracts/registry.py``."""

    def register(self, folder: str, data: Data, done: Callable[[str | PixiuError], object]) -> None:
        """Make a node that lives as long as the session; its path ends in a number above all before it.

        A registration whose answer was lost is found again, never made twice (ghosts).
        """
        ...

    def write(self, write: Write, done: Callable[[int | PixiuError], object]) -> None:
        """Change or create a node; ``done`` gets its new version."""
        ...

    def swap(self, writes: list[Write], done: Callable[[PixiuError | None], object]) -> None:
        """Several changes, all or none."""
        ...

    def remove(self, path: str, done: Callable[[PixiuError | None], object], *, version: int | None = None) -> None:
        """Remove a node. One that is gone already is fine, unless a version is asked for."""
        ...

    def read(self, path: str, done: Callable[[Folder | PixiuError], object]) -> None:
        """Everything below a path, and the node itself under the empty name. Nothing there: an empty folder."""
        ...

    def watch(self, path: str, changed: Callable[[], object]) -> None:
        """Be told, sooner or later, that something below a path has changed."""
        ...

    def when_session(self, call: Callable[[SessionState], object]) -> None:
        """Be told of every change of the session's state."""
        ...

    def close(self) -> None:
        """End the session: its nodes go at once."""
        ...


def sequence_of(path: str) -> int:
    """The number at the end of a registered node's path: its replica id."""
    return int(path.rpartition("/")[2])
