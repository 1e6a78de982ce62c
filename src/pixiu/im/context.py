"""What verbs need of the world: stores, the time, limits, and who is who."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.im.directory import Banned, Directory
from pixiu.im.draft import UnknownUsers
from pixiu.model.cursor import Cursors
from pixiu.model.errors import Unauthenticated
from pixiu.model.ids import Snowflakes
from pixiu.model.names import own_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pixiu.config.gateway import Presence
    from pixiu.config.messaging import MessagingSettings
    from pixiu.im.draft import Actor, Arriving
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Scheduled
    from pixiu.ports.stores import Stores

__all__ = ["Context", "Counts", "JoinNotices", "Joining", "RecentLists"]

NOTICE_AGAIN_MS = 86_400_000
"""Admins are notified once in this time of a user who withdraws a request to join and asks again. A user who declines
an invitation and is invited again is notified once in this time, too."""


@dataclass(slots=True)
class Counts:
    """How often stores were asked for what caches should answer."""

    group_reads: int = 0
    """Pages of a group that came from the timelines, not from the recent cache."""


class Joining:
    """Users whose joins and requests are accepted for the log and not applied yet.

    Checks see what is applied. Without this, joins at the same moment would not see each other, and pass the bounds of
    a group or of a user together. All joins of a group go through one proxy, so this is complete.
    """

    def __init__(self) -> None:
        self._members: dict[int, dict[int, int]] = {}
        self._requests: dict[int, dict[int, int]] = {}
        self._groups: dict[int, int] = {}

    def begin(self, arriving: Arriving) -> None:
        """A join or a request is on its way."""
        users = self._table(arriving).setdefault(arriving.group, {})
        for user in arriving.users:
            users[user] = users.get(user, 0) + 1
            if not arriving.is_request:
                self._groups[user] = self._groups.get(user, 0) + 1

    def end(self, arriving: Arriving) -> None:
        """It is applied, or has failed."""
        table = self._table(arriving)
        users = table[arriving.group]
        for user in arriving.users:
            _count_down(users, user)
            if not arriving.is_request:
                _count_down(self._groups, user)
        if not users:
            del table[arriving.group]

    def of(self, group: int) -> Collection[int]:
        """Users on their way into a group; some of them may have arrived a moment ago."""
        return self._members.get(group, {}).keys()

    def group_count(self, user: int) -> int:
        """How many groups a user is on the way into."""
        return self._groups.get(user, 0)

    def is_asking(self, group: int, user: int) -> bool:
        """Is a request of this user to join on its way?"""
        return user in self._requests.get(group, {})

    def _table(self, arriving: Arriving) -> dict[int, dict[int, int]]:
        return self._requests if arriving.is_request else self._members


def _count_down(counts: dict[int, int], user: int) -> None:
    counts[user] -= 1
    if not counts[user]:
        del counts[user]


class JoinNotices:
    """When a notice about a group and a user was last sent. In memory, bounded; a restart forgets it."""

    def __init__(self, *, kept_max: int = 100_000) -> None:
        self._at: dict[tuple[int, int], int] = {}
        self._kept_max = kept_max

    def is_due(self, group: int, user: int, now: int) -> bool:
        """Was no notice sent within ``NOTICE_AGAIN_MS``? Then one is sent now."""
        last = self._at.pop((group, user), None)
        is_due = last is None or now - last >= NOTICE_AGAIN_MS
        self._at[group, user] = now if is_due or last is None else last
        if len(self._at) > self._kept_max:
            del self._at[next(iter(self._at))]
        return is_due


class RecentLists:
    """Users whose list of contacts and groups was read a moment ago, so that the stores have it in memory.

    Bounded well below the caches of the stores: a list that is named here is still there.
    """

    def __init__(self, *, rows_max: int = 20_000) -> None:
        self._sizes: dict[int, int] = {}
        self._rows = 0
        self._rows_max = rows_max

    def rows_to_read(self, user: int, size: int) -> int:
        """How many rows the stores read for the next page of a list of this size: all of it, or none."""
        before = self._sizes.pop(user, None)
        self._sizes[user] = size
        self._rows += size - (before or 0)
        while self._rows > self._rows_max and len(self._sizes) > 1:
            self._rows -= self._sizes.pop(next(iter(self._sizes)))
        return size if before is None else 0


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
    scheduled_with: Callable[[int, str], Scheduled | None] = lambda _user, _send_id: None
    """What a user has scheduled with a send_id that is not due yet."""
    holds: Callable[[int, int], int] = lambda _session_id, useq: useq
    """How far a session holds everything that says it holds this entry: what it has sent itself counts, too."""
    cursors: Cursors = field(default_factory=Cursors)
    """What cursors of inboxes look like."""
    tell: Callable[[int, Mapping[str, object]], int] = lambda _user, _event: 0
    """Hands a live event to all sessions of a user. Returns how many there are."""
    platforms: tuple[str, ...] = ()
    """The declared platforms (``gateway.platforms``): a push for all platforms opens these inboxes."""
    presence: Presence = "mutual"
    """Whose presence a user sees (``gateway.presence``)."""
    recent_lists: RecentLists = field(default_factory=RecentLists)
    charge_rows: Callable[[Actor, int], object] = lambda _actor, _rows: None
    """Charges the rows of a list answer to the caller's rate limit, after the query returned them."""
    counts: Counts = field(default_factory=Counts)
    joining: Joining = field(default_factory=Joining)
    join_notices: JoinNotices = field(default_factory=JoinNotices)
    """To admins, of requests to join."""
    invitation_notices: JoinNotices = field(default_factory=JoinNotices)
    """To users who are invited."""
    directory: Directory = field(init=False)
    _ids: Snowflakes = field(init=False)

    def __post_init__(self) -> None:
        self.directory = Directory(self.stores)
        self._ids = Snowflakes(self.node_id)

    def check_actor(self, actor: Actor) -> None:
        """Raise unless the actor exists, or is a publisher."""
        number = actor.user
        if self.directory.knows_user(number):
            if self.directory.is_banned(number):
                raise Banned(self.directory.user_name(number))
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
