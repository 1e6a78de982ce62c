"""The names that a gateway knows of users and groups whose node is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable
from pixiu.model.names import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAMES_MAX", "LinkNames"]

NAMES_MAX = 100_000
"""Names of users, and of groups, that a gateway knows."""


class LinkNames:
    """The public ids that came with pushes. ``PublicNames`` for the gateway's codecs."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def learn(self, users: Mapping[int, str], groups: Mapping[int, str]) -> None:
        """These are so now. Beyond the bound those that were told longest ago are forgotten."""
        for known, told in ((self._users, users), (self._groups, groups)):
            for number, name in told.items():
                known.pop(number, None)
                known[number] = name
            while len(known) > self._names_max:
                del known[next(iter(known))]

    def user_name(self, number: int) -> str:
        """A user's public id. Raises ``Unavailable``: the message is held back until it comes again, with its names."""
        name = self._users.get(number) or (SYSTEM if number == 0 else None)
        if name is None:
            raise Unavailable(f"the name of user {number} is not known here any more")
        return name

    def group_name(self, number: int) -> str:
        """A group's public id; likewise."""
        name = self._groups.get(number)
        if name is None:
            raise Unavailable(f"the name of group {number} is not known here any more")
        return name
