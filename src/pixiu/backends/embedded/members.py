"""The members of one group, decoded: who is one now, who was one then, and how many they are.

Every stay of a user is kept, since a lane may ask about the past. Stays lie side by side in one value.
"""

from bisect import bisect_left, bisect_right
from operator import attrgetter
from struct import Struct

from pixiu.model.group import Member, Role

__all__ = ["GroupMembers", "Stays", "decoded_stays", "encoded_stays", "is_admin", "newest_stay", "weight_of"]

Stays = tuple[Member, ...]
"""Of one user in one group, oldest first."""

_stay = Struct(">BBQqQQQ")
_newest = Struct(">B17xQ").unpack_from
"""Of a stay: the role, and when it ended."""
_BY_USER = attrgetter("user")
_ROLES = tuple(Role)


class GroupMembers:
    """The members of one group, past ones included."""

    __slots__ = ("_changed", "_present", "admins", "count", "stays")

    def __init__(self, stays: dict[int, Stays]) -> None:
        self.stays = stays
        self.count = sum(each[-1].left == 0 for each in stays.values())
        """How many there are now."""
        self.admins = {user for user, each in stays.items() if is_admin(each)}
        """The owner and the admins."""
        self._present: list[Member] | None = None
        """Those of now, by number; None when it must be made."""
        self._changed = 0
        """Nobody joined or left after this event."""

    def change(self, user: int, stays: Stays) -> None:
        """A user's stays are now these; none at all if they are forgotten."""
        before = self.stays.get(user)
        was_there, is_there = _is_there(before), _is_there(stays)
        self.count += is_there - was_there
        (self.admins.add if is_admin(stays) else self.admins.discard)(user)
        if self._present is not None:
            at = bisect_left(self._present, user, key=_BY_USER)
            self._present[at : at + was_there] = stays[-1:] if is_there else ()
            for stay in stays[-1:]:
                self._changed = max(self._changed, stay.joined, stay.left)
        if stays:
            self.stays[user] = stays
        else:
            self.stays.pop(user, None)

    def now(self) -> list[Member]:
        """Who is a member, by number. The caller copies it: the next change of a member changes it."""
        if self._present is None:
            self._present = sorted((stays[-1] for stays in self.stays.values() if stays[-1].left == 0), key=_BY_USER)
            self._changed = max(
                (max(stays[-1].joined, stays[-1].left) for stays in self.stays.values()), default=self._changed
            )
        return self._present

    def page(self, offset: int, limit: int, after: int = 0) -> list[Member]:
        """Members with numbers above ``after``, by number, without the first ``offset`` of them."""
        begin = offset + bisect_right(self.now(), after, key=_BY_USER)
        return self.now()[begin : begin + limit]

    def then(self, at: int) -> list[Member]:
        """Who was a member at that event."""
        now = self.now()
        if at >= self._changed:
            return now
        found = [stay for stays in self.stays.values() for stay in stays if stay.is_member_at(at)]
        found.sort(key=_BY_USER)
        return found


def is_admin(stays: Stays) -> bool:
    """Is this user the owner or an admin now?"""
    return _is_there(stays) and stays[-1].role >= Role.ADMIN


def weight_of(members: GroupMembers) -> int:
    """What they weigh in a cache."""
    return 1 + len(members.stays)


def _is_there(stays: Stays | None) -> bool:
    return stays is not None and len(stays) > 0 and stays[-1].left == 0


def encoded_stays(stays: Stays) -> bytes:
    """The value of a user in a group."""
    pack = _stay.pack
    return b"".join(
        pack(stay.role, stay.is_muted, stay.joined, stay.joined_at, stay.left, stay.count_at_read, stay.joined_message)
        for stay in stays
    )


def newest_stay(value: bytes) -> tuple[int, int]:
    """The role and the end of a user's newest stay, without decoding the others; the end is 0 of a member."""
    role, left = _newest(value, len(value) - _stay.size)
    return role, left


def decoded_stays(user: int, value: bytes) -> Stays:
    """The stays of a user."""
    return tuple(
        Member(user, _ROLES[role], joined, joined_at, left, bool(is_muted), count_at_read, joined_message)
        for role, is_muted, joined, joined_at, left, count_at_read, joined_message in _stay.iter_unpack(value)
    )
