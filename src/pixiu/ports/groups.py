"""Groups, their members, and who asks to become one.

Membership has a history: a lane that applies an old record asks who was a member *then*, also when another lane has
gone on. Rows of those who left stay until ``forget_left``.
"""

from typing import Protocol

from pixiu.model.group import Group, Member

__all__ = ["Groups"]


class Groups(Protocol):
    """Every group. Implementations pass ``tests/contracts/groups.py``."""

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        ...

    def get(self, group: int) -> Group | None:
        """A group without its members."""
        ...

    def put(self, group: Group) -> None:
        """Create or change a group."""
        ...

    def member(self, group: int, user: int) -> Member | None:
        """A member, present ones only."""
        ...

    def last_stay(self, group: int, user: int) -> Member | None:
        """The newest stay of a user, also one that is over; None once that is forgotten."""
        ...

    def put_member(self, group: int, member: Member) -> None:
        """Add or change one. With ``left`` set, the user is no member any more; a rejoin replaces the row."""
        ...

    def members(self, group: int, *, at: int | None = None) -> list[Member]:
        """Who is a member (``at``: was one at that event id), by user number."""
        ...

    def count(self, group: int) -> int:
        """How many members there are; asked at every join."""
        ...

    def admins(self, group: int) -> list[int]:
        """The owner and the admins, by user number; asked at every request to join."""
        ...

    def page(self, group: int, offset: int, limit: int, *, after: int = 0) -> list[Member]:
        """Members with numbers above ``after``, by number, without the first ``offset`` of them.

        The cost grows with ``offset``, not with ``after``.
        """
        ...

    def groups_of(self, user: int) -> list[int]:
        """The groups that a user is in now, by number."""
        ...

    def joined_page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """(group, time of joining) of the groups that a user is in now, oldest first; equal times by number.

        ``after`` is a time of joining and a group: the first ``limit`` rows behind it. The cost grows with ``limit``,
        not with the number of groups, once a page of them was read.
        """
        ...

    def count_of(self, user: int) -> int:
        """How many groups a user is in now; asked for everyone who becomes a member."""
        ...

    def past_groups_of(self, user: int) -> list[int]:
        """The groups that a user has ever left, by number, also where that stay is forgotten: for an erasure."""
        ...

    def request(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` asks to join; ``at`` 0 drops the request."""
        ...

    def request_of(self, group: int, user: int) -> int:
        """When ``user`` asked to join; 0 if there is no request."""
        ...

    def requests(self, group: int, *, limit: int | None = None, after: int = 0) -> list[tuple[int, int]]:
        """(user, time) of those who ask, by user number above ``after``; the first ``limit`` of them."""
        ...

    def invite(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` is invited to join; ``at`` 0 drops the invitation."""
        ...

    def invited_at(self, group: int, user: int) -> int:
        """When ``user`` was invited; 0 if there is no invitation."""
        ...

    def invitations(self, user: int, *, limit: int | None = None) -> list[tuple[int, int]]:
        """(group, time) of a user's invitations, by group number; the first ``limit`` of them."""
        ...

    def forget_left(self, through: int) -> None:
        """Nobody will ask about events through here any more: drop the rows of those who left by then.

        Who left muted is remembered: they are muted when they come back.
        """
        ...
