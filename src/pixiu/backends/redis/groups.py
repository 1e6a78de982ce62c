"""``Groups``: the hash and the set of seed 003, and beside them every stay of every member.

The members of a busy group are held decoded. Whoever asks for them is about to ask for their inboxes and counts one by
one: ``when_members`` lets these be fetched in one round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.members import GroupMembers, decoded_stays, encoded_stays, weight_of
from pixiu.backends.embedded.ordered import Ordered, list_weight
from pixiu.backends.memory.groups import stays_kept, with_stay
from pixiu.backends.redis.layout import Keys, group_member
from pixiu.backends.redis.users import OWN, put_words, words_of
from pixiu.model.group import Group, Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisGroups"]

_NAMED = frozenset({"name", "avatar", "master"})


class RedisGroups:
    """Groups, members, requests. ``cached_members_max`` members are held, of all groups together."""

    def __init__(
        self, overlay: Overlay, keys: Keys, *, cached_max: int = 40_000, cached_members_max: int = 400_000
    ) -> None:
        self._overlay = overlay
        self._keys = keys
        self._groups: Cache[int, Group] = Cache(cached_max)
        self._numbers: Cache[str, int] = Cache(cached_max)
        self._changed: dict[int, Group] = {}
        self._before: dict[int, Group] = {}
        """What the overlay or Redis has of those that have changed."""
        self._members: Cache[int, GroupMembers] = Cache(cached_members_max, weight_of)
        self._group_counts: Cache[int, int] = Cache(cached_max)
        self._joined: Cache[int, Ordered] = Cache(2 * cached_max, list_weight)
        """Groups of users who have read a page of them."""
        self.when_members: Callable[[list[int]], object] = lambda _users: None
        """Told who the members are of a group that is about to be talked to."""
        overlay.attach(self)

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        found = self._numbers.find(public_id)
        if found is None:
            value = self._overlay.get(self._keys.group_id % public_id)
            if value is not None:
                found = int(value)
                self._numbers.keep(public_id, found)
        return found

    def get(self, group: int) -> Group | None:
        """A group without its members."""
        found = self._changed.get(group) or self._groups.find(group)
        if found is None:
            fields = self._overlay.fields([self._keys.group % group])[0]
            if OWN + "id" in fields:
                found = _decoded(group, fields)
                self._groups.keep(group, found)
        return found

    def put(self, group: Group) -> None:
        """Create or change a group."""
        before = self.get(group.number)
        if before is None or before.public_id != group.public_id:
            self._overlay.put(self._keys.group_id % group.public_id, group.number)
            self._numbers.keep(group.public_id, group.number)
        if before is not None and group.number not in self._changed:
            self._before[group.number] = before
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
        members = self._of(group)
        before = members.stays.get(user, ())
        stays = with_stay(before, member)
        if stays == before:
            return
        overlay, keys = self._overlay, self._keys
        overlay.check_room()
        overlay.put_field(keys.stays % group, str(user), encoded_stays(stays))
        was_member, is_member = bool(before) and before[-1].left == 0, stays[-1].left == 0
        joined_at = stays[-1].joined_at if is_member else None
        if joined_at != (before[-1].joined_at if was_member else None):
            overlay.put_score(keys.contacts % user, group_member(group), joined_at)
            joined = self._joined.find(user)
            if joined is not None:
                joined.put(group, joined_at)
                self._joined.weigh(1)
        if is_member != was_member:
            overlay.put_member(keys.members % group, str(user), is_in=is_member)
            count = self._group_counts.find(user)
            if count is not None:
                self._group_counts.keep(user, count + is_member - was_member)
        ends = {stay.left for stay in before}
        for stay in stays:
            if stay.left and stay.left not in ends:
                overlay.put_score(keys.left, f"{stay.left}:{group}:{user}", stay.left)
                overlay.put_member(keys.was_in % user, str(group), is_in=True)
        members.change(user, stays)
        if not before:
            self._members.weigh(1)

    def members(self, group: int, *, at: int | None = None) -> list[Member]:
        """Who is a member (``at``: was one at that event id), by user number."""
        members = self._of(group)
        found = members.now() if at is None else members.then(at)
        if len(found) > 1:
            self.when_members([member.user for member in found])
        return list(found)

    def count(self, group: int) -> int:
        """How many members there are."""
        return self._of(group).count

    def admins(self, group: int) -> list[int]:
        """The owner and the admins, by user number."""
        return sorted(self._of(group).admins)

    def page(self, group: int, offset: int, limit: int, *, after: int = 0) -> list[Member]:
        """Members with numbers above ``after``, by number, without the first ``offset`` of them."""
        return self._of(group).page(offset, limit, after)

    def groups_of(self, user: int) -> list[int]:
        """The groups that a user is in now, by number."""
        return sorted(self._joined_of(user).times)

    def joined_page(self, user: int, limit: int, *, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """(group, time of joining) of the groups that a user is in now, oldest first, behind ``after``."""
        return self._joined_of(user).page(limit, after)

    def _joined_of(self, user: int) -> Ordered:
        joined = self._joined.find(user)
        if joined is None:
            members = self._overlay.scores([self._keys.contacts % user])[0]
            joined = Ordered({int(member[2:]): at for member, at in members.items() if member.startswith("g:")})
            self._joined.keep(user, joined)
        return joined

    def count_of(self, user: int) -> int:
        """How many groups a user is in now."""
        count = self._group_counts.find(user)
        if count is None:
            count = len(self.groups_of(user))
            self._group_counts.keep(user, count)
        return count

    def past_groups_of(self, user: int) -> list[int]:
        """The groups that a user has ever left, by number."""
        return sorted(int(group) for group in self._overlay.members(self._keys.was_in % user))

    def request(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` asks to join; ``at`` 0 drops the request."""
        self._overlay.put_field(self._keys.requests % group, str(user), at or None)

    def request_of(self, group: int, user: int) -> int:
        """When ``user`` asked to join; 0 if there is no request."""
        value = self._overlay.field(self._keys.requests % group, str(user))
        return 0 if value is None else int(value)

    def requests(self, group: int, *, limit: int | None = None, after: int = 0) -> list[tuple[int, int]]:
        """(user, time) of those who ask, by user number above ``after``; the first ``limit`` of them."""
        fields = self._overlay.fields([self._keys.requests % group])[0]
        return sorted((int(user), int(at)) for user, at in fields.items() if int(user) > after)[:limit]

    def invite(self, group: int, user: int, at: int) -> None:
        """Note that ``user`` is invited to join; ``at`` 0 drops the invitation."""
        self._overlay.put_field(self._keys.invitations % user, str(group), at or None)

    def invited_at(self, group: int, user: int) -> int:
        """When ``user`` was invited; 0 if there is no invitation."""
        value = self._overlay.field(self._keys.invitations % user, str(group))
        return 0 if value is None else int(value)

    def invitations(self, user: int, *, limit: int | None = None) -> list[tuple[int, int]]:
        """(group, time) of a user's invitations, by group number; the first ``limit`` of them."""
        fields = self._overlay.fields([self._keys.invitations % user])[0]
        return sorted((int(group), int(at)) for group, at in fields.items())[:limit]

    def forget_left(self, through: int) -> None:
        """Drop the stays that ended by then."""
        overlay, keys = self._overlay, self._keys
        for name, left in overlay.scores_through(keys.left, through).items():
            group, user = map(int, name.split(":")[1:])
            members = self._of(group)
            before = members.stays.get(user, ())
            kept = stays_kept(before, through)
            if kept != before:
                overlay.put_field(keys.stays % group, str(user), encoded_stays(kept) if kept else None)
                members.change(user, kept)
            if all(stay.left != left for stay in kept):
                overlay.put_score(keys.left, name, None)

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would write."""
        return len(self._changed) * 200

    def save(self) -> None:
        """Changed groups are fields."""
        for number, group in self._changed.items():
            before = self._before.get(number)
            fields_before = before.fields if before is not None else {}
            put_words(self._overlay, self._keys.group % number, _named(group), group.fields, fields_before)
            self._groups.keep(number, group)
        self._changed = {}
        self._before = {}

    def written(self) -> None:
        """The caches bound themselves."""

    def forget(self) -> None:
        """Begin anew."""
        for cache in (self._groups, self._numbers, self._members, self._group_counts, self._joined):
            cache.clear()
        self._changed = {}
        self._before = {}

    def _stays(self, group: int, user: int) -> tuple[Member, ...]:
        members = self._members.young.get(group) or self._members.find(group)
        if members is not None:
            return members.stays.get(user, ())
        value = self._overlay.field(self._keys.stays % group, str(user))
        return () if value is None else decoded_stays(user, value)

    def _of(self, group: int) -> GroupMembers:
        members = self._members.young.get(group) or self._members.find(group)
        if members is None:
            fields = self._overlay.fields([self._keys.stays % group])[0]
            members = GroupMembers({int(user): decoded_stays(int(user), value) for user, value in fields.items()})
            self._members.keep(group, members)
        return members


def _named(group: Group) -> dict[str, str | int]:
    return {
        "name": group.name,
        "avatar": group.avatar,
        "master": group.owner,
        OWN + "id": group.public_id,
        OWN + "at": group.created_at,
        OWN + "approval": int(group.needs_approval),
        OWN + "large": int(group.is_large),
        OWN + "large_since": group.large_since,
        OWN + "since_join": int(group.is_since_join),
        OWN + "count": group.message_count,
        OWN + "last": group.last_message_id,
    }


def _decoded(group: int, found: dict[str, bytes]) -> Group:
    return Group(
        group,
        found[OWN + "id"].decode(),
        found["name"].decode(),
        found["avatar"].decode(),
        int(found["master"]),
        needs_approval=found[OWN + "approval"] == b"1",
        is_large=found[OWN + "large"] == b"1",
        fields=words_of(found, _NAMED),
        created_at=int(found[OWN + "at"]),
        message_count=int(found[OWN + "count"]),
        last_message_id=int(found[OWN + "last"]),
        large_since=int(found[OWN + "large_since"]),
        is_since_join=found[OWN + "since_join"] == b"1",
    )
