"""What verbs need of the world: stores, the time, limits, and who is who."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.im.directory import Directory
from pixiu.im.draft import UnknownUsers
from pixiu.model.errors import Unauthenticated
from pixiu.model.ids import Snowflakes
from pixiu.model.names import own_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.messaging import MessagingSettings
    from pixiu.im.draft import Actor
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Scheduled
    from pixiu.ports.stores import Stores

__all__ = ["Context", "Counts"]


@dataclass(slots=True)
class Counts:
    """How often stores were asked for what caches should answer."""

    group_reads: int = 0
    """Pages of a group that came from the timelines, not from the recent cache."""


@dataclass(slots=True)
class Context:
    """Given to every verb. Verbs read it; only caches and counts in it change."""

    stores: Stores
    clock: Clock
    settings: MessagingSettings
    creates_users: bool = False
    """Users who are named and do not exist are created on first use (``--dev``)."""
    node_id: int = 0
    own_scheduled: Callable[[int], list[Scheduled]] = lambda _user: []
    """What a user has scheduled that is not due yet, by due time."""
    counts: Counts = field(default_factory=Counts)
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
        if self.creates_users and own_number(str(number)) == number:
            raise UnknownUsers([str(number)])
        raise Unauthenticated(f"there is no user with the number {number}")

    def new_public_id(self, prefix: str) -> str:
        """For those who did not choose one. The prefix keeps it apart from numbers."""
        return f"{prefix}{self._ids.next(self.clock.now_ms())}"
