"""``Groups`` on dicts."""

from dataclasses import replace

from pixiu.model.group import Group, Member, Role

__all__ = ["MemoryGroups", "stays_kept", "with_stay"]


def with_stay(stays: tuple[Member, ...], member: Member) -> tuple[Member, ...]:
    """A user's stays in one group, oldest first, with this one added or changed.

    A stay is told by its ``joined``. One that was never ended ends where the next begins: nobody is a member twice.
    """
    others = [stay for stay in stays if stay.joined != member.joined]
    ordered = sorted([*others, member], key=lambda stay: stay.joined)
    ends = [*(stay.joined for stay in ordered[1:]), 0]
    return tuple(
        replace(stay, left=end) if end and (stay.left == 0 or stay.left > end) else stay
        for stay, end in zip(ordered, ends, strict=True)
    )


def stays_kept(stays: tuple[Member, ...], through: int) -> tuple[Member, ...]:
    """What is left when nobody asks about events through there any more.

    Who is there, who left later, and of one who left muted the newest stay: silence does not end by leaving.
    """
    newest = stays[-1:]
    return tuple(
        stay for stay in stays if stay.left == 0 or stay.left > through or (stay.is_muted and stay is newest[0])
    )


class MemoryGroups:
    """Groups by number; members as the list of their stays, so that the past can be asked about."""

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._numbers: dict[str, int] = {}
        self._stays: dict[int, dict[int, tuple[Member, ...]]] = {}
        self._requests: dict[int, dict[int, int]] = {}
        self._invitations: dict[int, dict[int, int]] = {}
        self._past: dict[int, set[int]] = {}

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        return self._numbers.get(public_id)

    def get(self, group: int) -> Group | None:
        """A group without its members."""
        return self._groups.get(group)

    def put(self, group: Group) -> None:
        """Create or change a group."""
        self._groups[group.number] = group
        self._numbers[group.public_id] = group.number

    def member(self, group: int, user: int) -> Member | None:
        """A member, present ones only."""
        stays = self._stays.get(group, {}).get(user)
        return stays[-1] if stays and stays[-1].left == 0 else None

    def last_stay(self, group: int, user: int) -> Member | None:
        """The newest stay of a user, also one that is over."""
        stays = self._stays.get(group, {}).get(user)
        return stays[-1] if stays else None

    def put_member(self, group: int, member: Member) -> None:
        """Add or change one."""
        by_user = self._stays.setdefault(group, {})
        by_user[member.user] = stays = with_stay(by_user.get(member.user, ()), member)
        if any(stay.left for stay in stays):
            self._past.setdefault(member.user, set()).add(group)

    def members(self, group: int, *, at: int | None = None) -> list[Member]:
        """Who is a member (``at``: was one at that event id), by user number."""
        return [
            stay
            for _, stays in sorted(self._stays.get(group, {}).items())
            for stay in stays
            if (stay.left == 0 if at is None else stay.is_member_at(at))
        ]

    def count(self, group: int) -> int:
        """How many members there are."""
        return sum(1 for stays in self._stays.get(group, {}).values() if stays and stays[-1].left == 0)

    def admins(self, group: int) -> list[int]:
        """The owner and the admins, by user number."""
        return [member.user for member in self.members(group) if member.role >= Role.ADMIN]

    def page(self, group: int, offset: int, limit: int, *, after: int = 0) -> list[Member]:
        """Members with numbers above ``after``, by number, without the first ``offset`` of them."""
        return [member for member in self.members(group) if member.user > after][offset : offset + limit]

    def groups_of(self, user: int) -> list[int]:
        """The groups that a user is in now, by number."""
        return sorted(group for group in self._stays if self.member(group, user))

    def joined_page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """(group, time of joining) of the groups that a user is in now, oldest first, behind ``after``."""
        members = ((group, self.member(group, user)) for group in self._stays)
        joined = sorted((member.joined_at, group) for group, member in members if member is not None)
        return [(group, at) for at, group in joined if after is None or (at, group) > after][:limit]

    def count_of(self, user: int) -> int:
        """How many groups a user is in now."""
        return len(self.groups_of(user))

    def past_groups_of(self, user: int) -> list[int]:
        """The groups that a user has ever left, by number."""
        return sorted(self._past.get(user, ()))

    def request(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` asks to join; ``at`` 0 drops the request."""
        requests = self._requests.setdefault(group, {})
        if at:
            requests[user] = at
        else:
            requests.pop(user, None)

    def request_of(self, group: int, user: int) -> int:
        """When ``user`` asked to join; 0 if there is no request."""
        return self._requests.get(group, {}).get(user, 0)

    def requests(self, group: int, *, limit: int | None = None, after: int = 0) -> list[tuple[int, int]]:
        """(user, time) of those who ask, by user number above ``after``; the first ``limit`` of them."""
        return sorted(each for each in self._requests.get(group, {}).items() if each[0] > after)[:limit]

    def invite(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` is invited to join; ``at`` 0 drops the invitation."""
        invitations = self._invitations.setdefault(user, {})
        if at:
            invitations[group] = at
        else:
            invitations.pop(group, None)

    def invited_at(self, group: int, user: int) -> int:
        """When ``user`` was invited; 0 if there is no invitation."""
        return self._invitations.get(user, {}).get(group, 0)

    def invitations(self, user: int, *, limit: int | None = None) -> list[tuple[int, int]]:
        """(group, time) of a user's invitations, by group number; the first ``limit`` of them."""
        return sorted(self._invitations.get(user, {}).items())[:limit]

    def forget_left(self, through: int) -> None:
        """Drop the stays that ended by then."""
        for by_user in self._stays.values():
            for user, stays in list(by_user.items()):
                kept = stays_kept(stays, through)
                if kept:
                    by_user[user] = kept
                else:
                    del by_user[user]
