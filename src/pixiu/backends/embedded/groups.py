"""``Groups`` on the overlay.

A group message raises the group's count and asks for all its members, so both are objects: a group until the commit,
the members of a busy group for as long as the cache has room. Members of very large groups are read when asked for:
their messages enter no inboxes, so nobody asks often.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct

import msgspec

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import (
    GROUP,
    GROUP_NAME,
    GROUP_OF,
    INVITED,
    LEFT,
    MEMBER,
    NUMBER_MAX,
    REQUEST,
    WAS_IN,
    key1,
    key2,
    key3,
    number,
    range1,
)
from pixiu.backends.embedded.members import GroupMembers, decoded_stays, encoded_stays, is_admin, newest_stay, weight_of
from pixiu.backends.embedded.ordered import Ordered, list_weight
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.backends.memory.groups import stays_kept, with_stay
from pixiu.model.group import Group, Member, Role

__all__ = ["EmbeddedGroups"]

CACHED_MEMBERS_MAX = 5_000
"""Members of one group that are held decoded; a larger group is read each time."""

_group = Struct(">QBqQQQ")
_encode = msgspec.json.encode
_decode = msgspec.json.decode
_NEEDS_APPROVAL = 1
_IS_LARGE = 2
_IS_SINCE_JOIN = 4


class _Summary:
    """What is held of a group that is too large for its members to be held."""

    __slots__ = ("admins", "count")

    def __init__(self) -> None:
        self.count = 0
        self.admins: set[int] = set()


class EmbeddedGroups:
    """Groups, members, requests. ``cached_members_max`` members are held, of all groups together."""

    def __init__(self, overlay: Overlay, *, cached_max: int = 10_000, cached_members_max: int = 400_000) -> None:
        self._overlay = overlay
        self._groups: Cache[int, Group] = Cache(cached_max)
        self._numbers: Cache[str, int] = Cache(cached_max)
        self._changed: dict[int, Group] = {}
        self._members: Cache[int, GroupMembers] = Cache(cached_members_max, weight_of)
        self._summaries: Cache[int, _Summary] = Cache(cached_max)
        """Of large groups: making one takes a scan of all members, once after a start."""
        self._group_counts: Cache[int, int] = Cache(cached_max)
        """How many groups a user is in: counting them takes a scan of the user's rows."""
        self._joined: Cache[int, Ordered] = Cache(2 * cached_max, list_weight)
        """Groups of users who have read a page of them: making a list takes a read for each group."""
        overlay.attach(self)

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        found = self._numbers.find(public_id)
        if found is None:
            value = self._overlay.get(GROUP_NAME + public_id.encode())
            if value is not None:
                found = int.from_bytes(value, "big")
                self._numbers.keep(public_id, found)
        return found

    def get(self, group: int) -> Group | None:
        """A group without its members."""
        found = self._changed.get(group) or self._groups.find(group)
        if found is None:
            value = self._overlay.get(key1(GROUP, group))
            if value is not None:
                found = _decoded(group, value)
                self._groups.keep(group, found)
        return found

    def put(self, group: Group) -> None:
        """Create or change a group."""
        before = self.get(group.number)
        if before is None or before.public_id != group.public_id:
            self._overlay.put(GROUP_NAME + group.public_id.encode(), number.pack(group.number))
            self._numbers.keep(group.public_id, group.number)
        self._changed[group.number] = group

    def member(self, group: int, user: int) -> Member | None:
        """A member, present ones only."""
        stays = self._stays(group, user)
        return stays[-1] if stays and stays[-1].left == 0 else None

    def last_stay(self, group: int, user: int) -> Member | None:
        """The newest stay of a user, also one that is over."""
        stays = self._stays(group, user)
        return stays[-1] if stays else None

    def put_member(self, group: int, member: Member) -> None:
        """Add or change one."""
        user = member.user
        before = self._stays(group, user)
        stays = with_stay(before, member)
        if stays == before:
            return
        overlay = self._overlay
        overlay.put(key2(MEMBER, group, user), encoded_stays(stays))
        was_member, is_member = bool(before) and before[-1].left == 0, stays[-1].left == 0
        if is_member and not was_member:
            overlay.put(key2(GROUP_OF, user, group), b"")
        elif was_member and not is_member:
            overlay.delete(key2(GROUP_OF, user, group))
        group_count = self._group_counts.find(user)
        if group_count is not None:
            self._group_counts.keep(user, group_count + is_member - was_member)
        joined = self._joined.find(user)
        if joined is not None:
            joined.put(group, stays[-1].joined_at if is_member else None)
            self._joined.weigh(1)
        summary = self._summaries.find(group)
        if summary is not None:
            summary.count += is_member - was_member
            (summary.admins.add if is_admin(stays) else summary.admins.discard)(user)
        ends = {stay.left for stay in before}
        for stay in stays:
            if stay.left and stay.left not in ends:
                overlay.put(key3(LEFT, stay.left, group, user), b"")
                overlay.put(key2(WAS_IN, user, group), b"")
        members = self._members.find(group)
        if members is not None:
            members.change(user, stays)
            if len(members.stays) > CACHED_MEMBERS_MAX:
                self._members.drop(group)
            elif not before:
                self._members.weigh(1)

    def members(self, group: int, *, at: int | None = None) -> list[Member]:
        """Who is a member (``at``: was one at that event id), by user number."""
        members = self._members.young.get(group) or self._members.find(group)
        if members is None:
            members = GroupMembers(dict(self._all_stays(group)))
            if len(members.stays) <= CACHED_MEMBERS_MAX:
                self._members.keep(group, members)
        return list(members.now() if at is None else members.then(at))

    def count(self, group: int) -> int:
        """How many members there are."""
        members = self._members.find(group)
        if members is not None:
            return members.count
        return self._summary(group).count

    def admins(self, group: int) -> list[int]:
        """The owner and the admins, by user number."""
        members = self._members.find(group)
        return sorted(members.admins if members is not None else self._summary(group).admins)

    def _summary(self, group: int) -> _Summary:
        summary = self._summaries.find(group)
        if summary is None:
            summary = _Summary()
            for key, value in self._overlay.scan(*range1(MEMBER, group, -1, NUMBER_MAX)):
                role, left = newest_stay(value)
                if left == 0:
                    summary.count += 1
                    if role >= Role.ADMIN:
                        summary.admins.add(int.from_bytes(key[9:], "big"))
            self._summaries.keep(group, summary)
        return summary

    def page(self, group: int, offset: int, limit: int, *, after: int = 0) -> list[Member]:
        """Members with numbers above ``after``, by number, without the first ``offset`` of them."""
        members = self._members.find(group)
        if members is not None:
            return members.page(offset, limit, after)
        return list(islice(self._present(group, after), offset, offset + limit))

    def groups_of(self, user: int) -> list[int]:
        """The groups that a user is in now, by number."""
        pairs = self._overlay.scan(*range1(GROUP_OF, user, -1, NUMBER_MAX))
        return [int.from_bytes(key[9:], "big") for key, _ in pairs]

    def joined_page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """(group, time of joining) of the groups that a user is in now, oldest first, behind ``after``."""
        joined = self._joined.find(user)
        if joined is None:
            members = ((group, self.member(group, user)) for group in self.groups_of(user))
            joined = Ordered({group: member.joined_at for group, member in members if member is not None})
            self._joined.keep(user, joined)
        return joined.page(limit, after)

    def count_of(self, user: int) -> int:
        """How many groups a user is in now."""
        joined = self._joined.find(user)
        if joined is not None:
            return len(joined.times)
        count = self._group_counts.find(user)
        if count is None:
            count = sum(1 for _ in self._overlay.scan(*range1(GROUP_OF, user, -1, NUMBER_MAX)))
            self._group_counts.keep(user, count)
        return count

    def past_groups_of(self, user: int) -> list[int]:
        """The groups that a user has ever left, by number."""
        pairs = self._overlay.scan(*range1(WAS_IN, user, -1, NUMBER_MAX))
        return [int.from_bytes(key[9:], "big") for key, _ in pairs]

    def request(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` asks to join; ``at`` 0 drops the request."""
        if at:
            self._overlay.put(key2(REQUEST, group, user), number.pack(at))
        elif self._overlay.get(key2(REQUEST, group, user)) is not None:
            self._overlay.delete(key2(REQUEST, group, user))

    def request_of(self, group: int, user: int) -> int:
        """When ``user`` asked to join; 0 if there is no request."""
        value = self._overlay.get(key2(REQUEST, group, user))
        return 0 if value is None else int.from_bytes(value, "big")

    def requests(self, group: int, *, limit: int | None = None, after: int = 0) -> list[tuple[int, int]]:
        """(user, time) of those who ask, by user number above ``after``; the first ``limit`` of them."""
        pairs = islice(self._overlay.scan(*range1(REQUEST, group, after, NUMBER_MAX)), limit)
        return [(int.from_bytes(key[9:], "big"), int.from_bytes(value, "big")) for key, value in pairs]

    def invite(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` is invited to join; ``at`` 0 drops the invitation."""
        if at:
            self._overlay.put(key2(INVITED, user, group), number.pack(at))
        elif self.invited_at(group, user):
            self._overlay.delete(key2(INVITED, user, group))

    def invited_at(self, group: int, user: int) -> int:
        """When ``user`` was invited; 0 if there is no invitation."""
        value = self._overlay.get(key2(INVITED, user, group))
        return 0 if value is None else int.from_bytes(value, "big")

    def invitations(self, user: int, *, limit: int | None = None) -> list[tuple[int, int]]:
        """(group, time) of a user's invitations, by group number; the first ``limit`` of them."""
        pairs = islice(self._overlay.scan(*range1(INVITED, user, -1, NUMBER_MAX)), limit)
        return [(int.from_bytes(key[9:], "big"), int.from_bytes(value, "big")) for key, value in pairs]

    def forget_left(self, through: int) -> None:
        """Drop the stays that ended by then."""
        keys = [key for key, _ in self._overlay.scan(LEFT, key1(LEFT, through + 1))]
        for key in keys:
            left, group, user = (int.from_bytes(key[at : at + 8], "big") for at in (1, 9, 17))
            kept = self._forget(group, user, through)
            if all(stay.left != left for stay in kept):
                self._overlay.delete(key)

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._changed) * 200

    def save(self, rows: Rows) -> None:
        """Turn changed groups into rows."""
        for group in self._changed.values():
            rows.append((key1(GROUP, group.number), _encoded(group)))
            self._groups.keep(group.number, group)
        self._changed = {}

    def written(self) -> None:
        """The caches bound themselves."""

    def _stays(self, group: int, user: int) -> tuple[Member, ...]:
        members = self._members.young.get(group) or self._members.find(group)
        if members is not None:
            return members.stays.get(user, ())
        value = self._overlay.get(key2(MEMBER, group, user))
        return () if value is None else decoded_stays(user, value)

    def _present(self, group: int, after: int = -1) -> Iterator[Member]:
        return (stays[-1] for _, stays in self._all_stays(group, after) if stays[-1].left == 0)

    def _all_stays(self, group: int, after: int = -1) -> Iterator[tuple[int, tuple[Member, ...]]]:
        for key, value in self._overlay.scan(*range1(MEMBER, group, after, NUMBER_MAX)):
            user = int.from_bytes(key[9:], "big")
            yield user, decoded_stays(user, value)

    def _forget(self, group: int, user: int, through: int) -> tuple[Member, ...]:
        """Returns the stays that are left."""
        before = self._stays(group, user)
        kept = stays_kept(before, through)
        if kept == before:
            return kept
        members = self._members.find(group)
        if members is not None:
            members.change(user, kept)
        if kept:
            self._overlay.put(key2(MEMBER, group, user), encoded_stays(kept))
        else:
            self._overlay.delete(key2(MEMBER, group, user))
        return kept


def _encoded(group: Group) -> bytes:
    flags = (
        (_NEEDS_APPROVAL if group.needs_approval else 0)
        | (_IS_LARGE if group.is_large else 0)
        | (_IS_SINCE_JOIN if group.is_since_join else 0)
    )
    numbers = _group.pack(
        group.owner, flags, group.created_at, group.message_count, group.last_message_id, group.large_since
    )
    return numbers + _encode([group.public_id, group.name, group.avatar, group.fields])


def _decoded(group: int, value: bytes) -> Group:
    owner, flags, created_at, message_count, last_message_id, large_since = _group.unpack_from(value)
    public_id, name, avatar, fields = _decode(value[_group.size :])
    return Group(
        group,
        public_id,
        name,
        avatar,
        owner,
        needs_approval=bool(flags & _NEEDS_APPROVAL),
        is_large=bool(flags & _IS_LARGE),
        fields=fields,
        created_at=created_at,
        message_count=message_count,
        last_message_id=last_message_id,
        large_since=large_since,
        is_since_join=bool(flags & _IS_SINCE_JOIN),
    )
