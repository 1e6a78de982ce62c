"""``Registry`` in one process: the reference, and what an embedded node uses.

The tree is shared; every role opens a session of its own, so that the end of one takes its nodes and nobody else's.
Answers and hints come in a later turn, as they would over a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pixiu.model.errors import Conflict, NotFound, PixiuError, Unavailable
from pixiu.ports.registry import Data, Entry, SessionState, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.registry import Folder
    from pixiu.ports.scheduler import Scheduler

__all__ = ["MemoryRegistry", "MemorySession"]

T = TypeVar("T")

SEQUENCE_DIGITS = 10
"""As ZooKeeper writes its numbers, so that paths look alike."""


class MemoryRegistry:
    """The tree, and who watches it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._nodes: dict[str, Entry] = {}
        self._owners: dict[str, MemorySession] = {}
        self._numbers: dict[str, int] = {}
        self._watches: list[tuple[str, str, MemorySession, Callable[[], object]]] = []
        self._folders: dict[str, Folder] = {}
        """What was read since the last change."""

    def open(self) -> MemorySession:
        """A new session."""
        return MemorySession(self, self._scheduler)

    def register(self, session: MemorySession, folder: str, data: Data) -> str:
        """A node that lives as long as the session."""
        number = self._numbers.get(folder, 0)
        self._numbers[folder] = number + 1
        path = f"{folder}/{number:0{SEQUENCE_DIGITS}d}"
        self._owners[path] = session
        self._put(path, Entry(dict(data), 0))
        return path

    def write(self, writes: list[Write]) -> list[int]:
        """All or none. Returns the new versions."""
        for path, _, version in writes:
            found = self._nodes.get(path)
            if version == -1:
                if found is not None:
                    raise Conflict(f"{path} is there already, version {found.version}")
            elif version is not None and found is None:
                raise NotFound(f"{path} is not there")
            elif version is not None and found is not None and found.version != version:
                raise Conflict(f"{path} has version {found.version}, not {version}")
        versions = []
        for path, data, _ in writes:
            found = self._nodes.get(path)
            versions.append(0 if found is None else found.version + 1)
            self._put(path, Entry(dict(data), versions[-1]))
        return versions

    def remove(self, path: str, version: int | None) -> None:
        """Remove a node."""
        found = self._nodes.get(path)
        if version is not None:
            if found is None:
                raise NotFound(f"{path} is not there")
            if found.version != version:
                raise Conflict(f"{path} has version {found.version}, not {version}")
        if found is not None:
            del self._nodes[path]
            self._owners.pop(path, None)
            self._hint(path)

    def read(self, path: str) -> Folder:
        """Everything below a path."""
        known = self._folders.get(path)
        if known is None:
            below = f"{path}/"
            found = {name[len(below) :]: entry for name, entry in self._nodes.items() if name.startswith(below)}
            if path in self._nodes:
                found[""] = self._nodes[path]
            known = self._folders[path] = dict(sorted(found.items()))
        return dict(known)

    def watch(self, session: MemorySession, path: str, changed: Callable[[], object]) -> None:
        """Hints for a session, as long as it lasts."""
        self._watches.append((path, f"{path}/", session, changed))

    def ended(self, session: MemorySession, *, keeps_watches: bool = False) -> None:
        """A session is over, and its nodes with it."""
        if not keeps_watches:
            self._watches = [watch for watch in self._watches if watch[2] is not session]
        for path in [path for path, owner in self._owners.items() if owner is session]:
            self.remove(path, None)

    def _put(self, path: str, entry: Entry) -> None:
        self._nodes[path] = entry
        self._hint(path)

    def _hint(self, path: str) -> None:
        self._folders.clear()
        for watched, below, session, changed in self._watches:
            if path == watched or path.startswith(below):
                session.hint(changed)


class MemorySession:
    """``Registry`` over a shared tree."""

    def __init__(self, tree: MemoryRegistry, scheduler: Scheduler) -> None:
        self._tree = tree
        self._scheduler = scheduler
        self._calls: list[Callable[[SessionState], object]] = []
        self._is_closed = False
        self._is_suspended = False

    def register(self, folder: str, data: Data, done: Callable[[str | PixiuError], object]) -> None:
        """Make a node that lives as long as the session."""
        self._answer(lambda: self._tree.register(self, folder, data), done)

    def write(self, write: Write, done: Callable[[int | PixiuError], object]) -> None:
        """Change or create a node."""
        self._answer(lambda: self._tree.write([write])[0], done)

    def swap(self, writes: list[Write], done: Callable[[PixiuError | None], object]) -> None:
        """Several changes, all or none."""
        self._answer(lambda: _nothing(self._tree.write(writes)), done)

    def remove(self, path: str, done: Callable[[PixiuError | None], object], *, version: int | None = None) -> None:
        """Remove a node."""
        self._answer(lambda: self._tree.remove(path, version), done)

    def read(self, path: str, done: Callable[[Folder | PixiuError], object]) -> None:
        """Everything below a path."""
        self._answer(lambda: self._tree.read(path), done)

    def watch(self, path: str, changed: Callable[[], object]) -> None:
        """Be told that something below a path has changed."""
        self._tree.watch(self, path, changed)

    def when_session(self, call: Callable[[SessionState], object]) -> None:
        """Be told of every change of the session's state."""
        self._calls.append(call)

    def close(self) -> None:
        """End the session: its nodes go at once."""
        if not self._is_closed:
            self._is_closed = True
            self._tree.ended(self)

    def hint(self, changed: Callable[[], object]) -> None:
        """The tree has changed where this session looks."""
        if not self._is_suspended:
            self._scheduler.soon(changed)

    # What tests do to a session.

    def suspend(self) -> None:
        """Contact is gone for a while: nothing is answered and nothing is told."""
        self._is_suspended = True
        self._tell(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Contact is back in time."""
        self._is_suspended = False
        self._tell(SessionState.CONNECTED)

    def expire(self) -> None:
        """The registry gives the session up: its nodes are gone. Contact comes back with a new one."""
        self._tree.ended(self, keeps_watches=True)
        self._is_suspended = False
        self._tell(SessionState.LOST)
        self._tell(SessionState.CONNECTED)

    def _tell(self, state: SessionState) -> None:
        for call in self._calls:
            self._scheduler.soon(lambda call=call: call(state))  # type: ignore[misc]

    def _answer(self, work: Callable[[], T], done: Callable[[T | PixiuError], object]) -> None:
        if self._is_closed or self._is_suspended:
            result: T | PixiuError = Unavailable("no contact with the registry")
        else:
            try:
                result = work()
            except PixiuError as error:
                result = error
        self._scheduler.soon(lambda: done(result))


def _nothing(done: object) -> None:
    """A result that is of no interest."""
