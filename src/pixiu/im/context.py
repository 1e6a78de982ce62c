"""What verbs need of the world: stores, the time, limits, and who is who."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.im.directory import Directory
from pixiu.im.draft import UnknownUsers
from pixiu.model.cursor import Cursors
from pixiu.model.errors import Unauthenticated
from pixiu.model.ids import Snowflakes
from pixiu.model.names import own_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pixiu.config.messaging import MessagingSettings
    from pixiu.im.draft import Actor
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Scheduled
    from pixiu.ports.stores import Stores

__all__ = ["Context", "Counts", "Joining"]


@dataclass(slots=True)
class Counts:
    """How often stores were asked for what caches should answer."""

    group_reads: int = 0
    """Pages of a group that came from the timelines, not from the recent cache."""


class Joining:
    """Who becomes a member at this moment: accepted for the log, and not applied yet.

    Checks see what is applied. Without this, joins at the same moment would not see each other, and pass a group's
    bounds together. All joins of a group go through one proxy, so that what it knows is all there is.
    """

    def __init__(self) -> None:
        self._users: dict[int, dict[int, int]] = {}

    def begin(self, group: int, user: int) -> None:
        """A join is on its way."""
        users = self._users.setdefault(group, {})
        users[user] = users.get(user, 0) + 1

    def end(self, group: int, user: int) -> None:
        """It is applied, or has failed."""
        users = self._users[group]
        users[user] -= 1
        if not users[user]:
            del users[user]
        if not users:
            del self._users[group]

    def of(self, group: int) -> Collection[int]:
        """Users on their way into a group; those of them who have arrived a moment ago may be among them still."""
        return self._users.get(group, {}).keys()


@dataclass(slots=True)
class Context:
    """Given to every verb. Verbs read it; only caches, counts and who is joining change in it."""

    stores: Stores
    clock: Clock
    settings: MessagingSettings
    creates_users: bool = False
    """Users who are named and do not exist are created on first use (``--dev``)."""
    node_id: int = 0
    own_scheduled: Callable[[int], list[Scheduled]] = lambda _user: []
    """What a user has scheduled that is not due yet, by due time."""
    holds: Callable[[int, int], int] = lambda _session_id, useq: useq
    """How far a session holds everything that says it holds this entry: what it has sent itself counts, too."""
    cursors: Cursors = field(default_factory=Cursors)
    """What cursors of inboxes look like."""
    has_rows_of: Callable[[int], bool] = lambda _user: True
    """Are this user's inboxes and private timeline here? In a cluster they are with the carrier of the user."""
    counts: Counts = field(default_factory=Counts)
    joining: Joining = field(default_factory=Joining)
    directory: Directory = field(init=False)
    _ids: Snowflakes = field(init=False)

    def __post_init__(self) -> None:
        self.directory = Directory(self.stores)
        self._ids = Snowflakes(self.node_id)

    def check_actor(self, actor: Actor) -> None:
        """Raise unless the actor exists, or is a publisher."""
        number = actor.user
        if self.directory.knows_user(number):
            return
        if number == 0 and actor.is_admin:
            return
        if self.directory.is_erased(number):
            raise Unauthenticated(f"the user with the number {number} was erased")
        if self.creates_users and own_number(str(number)) == number:
            raise UnknownUsers([str(number)])
        raise Unauthenticated(f"there is no user with the number {number}")

    def new_public_id(self, prefix: str) -> str:
        """For those who did not choose one. The prefix keeps it apart from numbers."""
        return f"{prefix}{self._ids.next(self.clock.now_ms())}"
