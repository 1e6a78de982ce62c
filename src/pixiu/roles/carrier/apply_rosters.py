"""The lane of users, contacts, groups and push tokens.

Records are checked when they are accepted; between that and here someone else may have come first. A change that has
become pointless (muting someone who has just left) does nothing. A record that never made sense raises ``ValueError``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pixiu.model.errors import Unavailable
from pixiu.model.group import Group, Member, Role
from pixiu.model.pixiu_pb2 import GroupChanged, MemberChanged, Record
from pixiu.model.push_token import PUSH_TOKENS_MAX, PushToken
from pixiu.model.user import Profile
from pixiu.roles.carrier.audience import group_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.timeline import GroupRow
    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.reached import Reached

__all__ = ["GroupRows", "Removed", "RosterApplier"]

_PAGE = 1000
_COUNTED_MAX = 10_000
"""A read that leaves more than this unread in a large group is not counted out."""


class Removed(NamedTuple):
    """Someone who is no member of a group any more: the group's room is told."""

    group: int
    user: int


class GroupRows(Protocol):
    """Timelines of groups, as far as they are counted here."""

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        """Rising, behind ``after``."""
        ...


class RosterApplier:
    """Applies records to users, contacts, groups and push tokens."""

    def __init__(self, stores: Stores, reached: Reached, rows: GroupRows | None = None) -> None:
        """``rows``: where to count what was said in large groups, if not in the timelines of these stores."""
        self._users = stores.users
        self._contacts = stores.contacts
        self._groups = stores.groups
        self._push_tokens = stores.push_tokens
        self._rows: GroupRows = rows or stores.timelines
        self._reached = reached
        self._removed: list[Removed] = []
        self._gone: list[int] = []
        self._changes: dict[str, Callable[[LogRecord, Record], None]] = {
            "user": self._user,
            "contact": self._contact,
            "block": self._block,
            "group_info": self._group_info,
            "member": self._member,
            "recalled": self._recalled,
            "read": self._read,
            "erased": self._erased,
            "push_token": self._push_token,
        }

    def apply(self, record: LogRecord, parsed: Record) -> None:
        """Apply one record, once."""
        event_id = record.event_id
        if event_id <= self._reached.rosters:
            return
        what = parsed.WhichOneof("what")
        if what is not None:
            change = self._changes.get(what)
            if change is not None:
                change(record, parsed)
        elif group := parsed.group:
            self._count(self._known(group), record.message_id)
        elif not parsed.to:
            raise ValueError("the record is for nobody and changes nothing")
        self._reached.rosters = event_id

    def take_removed(self) -> list[Removed]:
        """Who has left a group, or was removed from it, since the last time."""
        removed, self._removed = self._removed, []
        return removed

    def take_gone(self) -> list[int]:
        """Users who were erased or banned since the last time: their sessions end."""
        gone, self._gone = self._gone, []
        return gone

    # Users and contacts.

    def _user(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.user
        number = change.user or record.message_id
        before = self._users.get(number)
        if before is not None and before.is_erased:
            return
        if change.HasField("is_banned"):
            if before is None:
                raise ValueError(f"there is no user {number} to ban")
            self._users.put(replace(before, is_banned=change.is_banned))
            if change.is_banned:
                self._gone.append(number)
            return
        public_id = before.public_id if before is not None else change.public_id
        if not number or not public_id:
            raise ValueError(f"user {number} has no public id")
        created_at = before.created_at if before is not None else parsed.at
        profile = Profile(number, public_id, change.name, change.avatar, dict(change.fields), created_at)
        if before is not None and before.is_banned:
            profile = replace(profile, is_banned=True)
        self._users.put(profile)

    def _erased(self, _: LogRecord, parsed: Record) -> None:
        """Number and public id stay; profile, contacts at both sides, blocks and phones go. Groups were left before."""
        number = parsed.erased.user
        before = self._users.get(number)
        if before is None:
            raise ValueError(f"there is no user {number} to erase")
        for peer, _at in self._contacts.of(number):
            self._contacts.unlink(peer, number)
            self._contacts.unlink(number, peer)
        for peer in self._contacts.blocked_by(number):
            self._contacts.block(number, peer, is_blocked=False)
        for each in self._push_tokens.of(number):
            self._push_tokens.remove(number, each.platform, each.device)
        for group, _at in self._groups.invitations(number):
            self._groups.invite(group, number, 0)
        self._users.put(Profile(number, before.public_id, "", created_at=before.created_at, is_erased=True))
        self._gone.append(number)

    def _contact(self, _: LogRecord, parsed: Record) -> None:
        change = parsed.contact
        if change.is_linked:
            self._contacts.link(change.user, change.peer, parsed.at)
        else:
            self._contacts.unlink(change.user, change.peer)

    def _block(self, _: LogRecord, parsed: Record) -> None:
        change = parsed.block
        self._contacts.block(change.user, change.peer, is_blocked=change.is_blocked)

    def _push_token(self, record: LogRecord, parsed: Record) -> None:
        """A token rings one phone, and so it is one device's: whoever registers it last has it."""
        change, tokens = parsed.push_token, self._push_tokens
        number, platform, device = change.user, change.platform, change.device
        profile = self._users.get(number)
        if profile is None or not platform:
            raise ValueError(f"a push token of user {number}, who does not exist or has no platform")
        if not change.is_registered:
            if any(each[1:3] == (platform, device) and change.token in ("", each.token) for each in tokens.of(number)):
                tokens.remove(number, platform, device)
        elif not profile.is_erased:
            holder = tokens.holder(change.provider, change.token)
            if holder is not None:
                tokens.remove(holder.user, holder.platform, holder.device)
            tokens.put(
                PushToken(
                    number, platform, device, change.provider, change.token, change.topic, parsed.at, record.event_id
                )
            )
            for oldest in tokens.of(number)[:-PUSH_TOKENS_MAX]:
                tokens.remove(number, oldest.platform, oldest.device)

    # Groups.

    def _known(self, number: int) -> Group:
        group = self._groups.get(number)
        if group is None:
            raise ValueError(f"there is no group {number}")
        return group

    def _count(self, group: Group, message_id: int) -> Group:
        """One more message in a group. A number that was counted already is at or below the last one."""
        if message_id <= group.last_message_id:
            return group
        # Spelled out: this is done for every group message, and dataclasses.replace takes several times as long.
        counted = Group(
            group.number,
            group.public_id,
            group.name,
            group.avatar,
            group.owner,
            group.needs_approval,
            group.is_large,
            group.fields,
            group.created_at,
            group.message_count + 1,
            message_id,
            group.large_since,
            group.is_since_join,
        )
        self._groups.put(counted)
        return counted

    def _group_info(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.group_info
        number = change.group or record.message_id
        group = self._groups.get(number)
        is_new = group is None
        if group is None:
            if not number or not change.public_id or not change.owner:
                raise ValueError(f"group {number} has no public id or no owner")
            group = Group(number, change.public_id, "", "", change.owner, created_at=parsed.at)
        is_said = group_of(record, parsed, "group_info") and record.message_id > group.last_message_id
        group = replace(
            group,
            name=change.name,
            avatar=change.avatar,
            needs_approval=change.needs_approval,
            is_large=group.is_large or change.is_large,
            large_since=group.large_since if group.is_large or not change.is_large else record.event_id,
            is_since_join=change.history == GroupChanged.SINCE_JOIN if change.history else group.is_since_join,
            fields=dict(change.fields),
            message_count=group.message_count + 1 if is_said else group.message_count,
            last_message_id=record.message_id if is_said else group.last_message_id,
        )
        if is_new:
            for user in sorted({*change.members, group.owner}):
                role = Role.OWNER if user == group.owner else Role.MEMBER
                self._join(group, user, role, record, parsed.at)
        # The group last: until then this is a new one, also for a second attempt.
        self._groups.put(group)

    def _join(self, group: Group, user: int, role: Role, record: LogRecord, at: int) -> None:
        before = self._groups.last_stay(group.number, user)
        is_muted = before is not None and before.is_muted  # who was muted and left is muted still
        member = Member(
            user, role, record.event_id, at, is_muted=is_muted, count_at_read=group.message_count,
            joined_message=record.message_id,
        )  # fmt: skip
        self._groups.put_member(group.number, member)

    def _member(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.member
        group = self._known(change.group)
        if group_of(record, parsed, "member"):
            group = self._count(group, record.message_id)
        user, op = change.user, change.op
        member = self._groups.member(group.number, user)
        if op == MemberChanged.REFUSE:
            self._groups.request(group.number, user, 0)
            self._groups.invite(group.number, user, 0)
        elif op == MemberChanged.INVITE:
            if member is None:
                self._groups.invite(group.number, user, parsed.at)
        elif op == MemberChanged.REQUEST:
            if member is None:
                self._groups.request(group.number, user, parsed.at)
        elif op == MemberChanged.JOIN:
            if member is None:
                self._join(group, user, Role.MEMBER, record, parsed.at)
            self._groups.request(group.number, user, 0)
            self._groups.invite(group.number, user, 0)
        elif member is not None:
            self._change_member(group, member, op, record.event_id)

    def _change_member(self, group: Group, member: Member, op: int, event_id: int) -> None:
        put = self._groups.put_member
        if op == MemberChanged.QUIT:
            put(group.number, replace(member, left=event_id))
            self._removed.append(Removed(group.number, member.user))
        elif op in (MemberChanged.MUTE, MemberChanged.UNMUTE):
            put(group.number, replace(member, is_muted=op == MemberChanged.MUTE))
        elif op == MemberChanged.TRANSFER:
            owner = self._groups.member(group.number, group.owner)
            if owner is not None and owner.user != member.user:
                put(group.number, replace(owner, role=Role.ADMIN))
            put(group.number, replace(member, role=Role.OWNER))
            self._groups.put(replace(group, owner=member.user))
        elif member.role is not Role.OWNER and op in (MemberChanged.ADMIN, MemberChanged.MEMBER):
            put(group.number, replace(member, role=Role.ADMIN if op == MemberChanged.ADMIN else Role.MEMBER))

    def _recalled(self, record: LogRecord, parsed: Record) -> None:
        number = group_of(record, parsed, "recalled")
        if number:
            self._count(self._known(number), record.message_id)

    # The member's place in the group's count: what is unread in a large group is what came behind it.

    def _read(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.read
        if not change.group:
            return
        group = self._known(change.group)
        member = self._groups.member(group.number, change.user)
        if member is None:
            return
        if group.is_large:
            unread = self._unread_after(group, change.through, record.message_id)
        elif change.through >= group.last_message_id:
            unread = 0  # noted for the day on which it becomes large
        else:
            return
        count = group.message_count - unread
        if count > member.count_at_read:
            self._groups.put_member(group.number, replace(member, count_at_read=count))

    def _unread_after(self, group: Group, through: int, before: int) -> int:
        """How many messages a large group had behind ``through`` when the reading was recorded."""
        if through >= group.last_message_id:
            return 0
        if self._reached.timelines < self._reached.rosters:
            raise Unavailable(f"timelines are at event {self._reached.timelines}, and their rows must be counted")
        count = 0
        while count < _COUNTED_MAX:
            rows = self._rows.group_forward(group.number, after=through, limit=_PAGE)
            count += sum(1 for row in rows if not before or row.message_id < before)
            if len(rows) < _PAGE or (before and rows[-1].message_id >= before):
                return count
            through = rows[-1].message_id
        return group.message_count
