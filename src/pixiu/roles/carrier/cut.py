"""What waits in the stores at one event id, read in slices while the carrier goes on.

Nothing is held up for it. A user's inboxes are read when their turn comes, or just before the first record behind the
cut changes them, whichever is earlier: so all that is read is of one moment, however long the reading takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.model.inbox import Entry, InboxState, Page
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.stores import Stores

__all__ = ["CUT_TURN", "Cut", "Cutting", "WatchedInboxes", "take_cut"]

CUT_TURN = 500
"""Entries that are read before others get their turn: about a millisecond."""
INBOX_WORK = 10
"""An inbox counts as so many: it is asked for twice, of an engine elsewhere by a round trip each."""


class Cut:
    """What waits in the stores at one event id."""

    def __init__(self, event_id: int) -> None:
        self.event_id = event_id
        self.inboxes: dict[tuple[int, str], tuple[InboxState, list[Entry], set[int]]] = {}
        """State, entries, and the message ids whose body is missing."""


def take_cut(stores: Stores, event_id: int) -> Cut:
    """Everything that waits now, at one go: for stores that nobody else uses."""
    cutting = Cutting(stores, event_id)
    for _ in cutting.slices():
        pass
    return cutting.cut


class Cutting:
    """A cut under way. Whoever changes inboxes must call ``before`` first, until ``slices`` has ended.

    In memory it holds what waits, which is what a cut is, and the numbers of users that were read before their turn.
    """

    def __init__(self, stores: Stores, event_id: int) -> None:
        """The stores must have applied exactly through ``event_id``."""
        self.cut = Cut(event_id)
        self._inboxes, self._bodies = stores.inboxes, stores.bodies
        self._user = -1
        """Whose turn it is; all before have been read."""
        self._reading: Iterator[None] = iter(())
        """One inbox of theirs; it may end in another turn than it began."""
        self._early: set[int] = set()
        self._room = CUT_TURN
        self._failure: PixiuError | None = None

    def slices(self) -> Iterator[None]:
        """Read on, a little before each yield; then ``cut`` is whole. Raises what kept it from being so."""
        for state in self._states():
            if state.user in self._early:
                self._room -= 1
                if self._room <= 0:
                    self._room = CUT_TURN
                    yield
                    self._check()
                continue
            self._user, self._reading = state.user, self._read(state)
            for _ in self._reading:
                yield
                self._check()
        self._check()

    def before(self, user: int) -> None:
        """The inboxes of a user are about to change: read them as they are, unless that was done."""
        if user < self._user or user in self._early or self._failure is not None:
            return
        try:
            if user == self._user:
                for _ in self._reading:
                    pass
            self._read_rest(user)
        except PixiuError as error:
            self.fail(error)  # whoever changes them will see for itself
            return
        self._early.add(user)

    def fail(self, error: PixiuError) -> None:
        """It cannot be made whole any more."""
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _states(self) -> Iterator[InboxState]:
        """Inboxes in order. What a page says of a user holds until that user is early.

        Users who come behind the cut are early, too: there was nothing before.
        """
        after: tuple[int, str] | None = None
        while page := self._inboxes.states(after=after, limit=CUT_TURN):
            yield from page
            after = page[-1].user, page[-1].platform

    def _read_rest(self, user: int) -> None:
        for platform in self._inboxes.platforms(user):
            state = None if (user, platform) in self.cut.inboxes else self._inboxes.state(user, platform)
            if state is not None:
                for _ in self._read(state):
                    pass

    def _read(self, state: InboxState) -> Iterator[None]:
        """One inbox."""
        user, platform = state.user, state.platform
        entries: list[Entry] = []
        missing: set[int] = set()
        self._room -= INBOX_WORK
        while page := self._inboxes.after(user, platform, entries[-1].useq if entries else 0, CUT_TURN).entries:
            bodies = self._bodies.get([entry.message_id for entry in page])
            missing.update(entry.message_id for entry in page if entry.message_id not in bodies)
            entries += page
            self._room -= len(page)
            if self._room <= 0:
                self._room = CUT_TURN
                yield
        self.cut.inboxes[user, platform] = (state, entries, missing)
        if self._room <= 0:
            self._room = CUT_TURN
            yield


class WatchedInboxes:
    """Inboxes that tell of every change just before it is made."""

    def __init__(self, inner: Inboxes, watchers: list[Callable[[int], object]]) -> None:
        self._inner = inner
        self._watchers = watchers
        self.platforms = inner.platforms
        self.after: Callable[..., Page] = inner.after
        self.state = inner.state
        self.states = inner.states

    def _tell(self, user: int) -> None:
        for watcher in self._watchers:
            watcher(user)

    def open(self, user: int, platform: str) -> bool:
        """Tell, and open."""
        self._tell(user)
        return self._inner.open(user, platform)

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Tell, and add."""
        self._tell(user)
        return self._inner.add(user, platform, message_id, event_id, at, options, session)

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Tell, and ack."""
        self._tell(user)
        return self._inner.ack(user, platform, through)

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Tell, and remove."""
        self._tell(user)
        return self._inner.remove(user, platform, first, through)
