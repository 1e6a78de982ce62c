"""Groups: create_group, group, join, quit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import notice
from pixiu.im.draft import Accepted, Actor, Answer, Draft, Params, drafted
from pixiu.im.messages import QUIET, check_may_send, member_of
from pixiu.im.readable import HISTORIES
from pixiu.im.users import AVATAR_BYTES_MAX, NAME_BYTES_MAX
from pixiu.model.errors import Conflict, NotAllowed, NotFound, TooLarge
from pixiu.model.group import Role
from pixiu.model.inbox import NEED_ALL
from pixiu.model.names import check_public_id, own_number
from pixiu.model.pixiu_pb2 import GroupChanged, MemberChanged, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.group import Group, Member

__all__ = [
    "as_changed",
    "create_group",
    "group",
    "group_named",
    "group_view",
    "join",
    "joined",
    "member_changed",
    "quit",
]

MEMBERS_SHOWN_MAX = 1000
"""Members in one answer; ``offset`` asks for later ones."""

ADMINS_TOLD_MAX = 20
"""Admins who are told of a request to join."""

ROLE_NAMES = {Role.MEMBER: "member", Role.ADMIN: "admin", Role.OWNER: "owner"}


def create_group(context: Context, actor: Actor, params: Params) -> Draft:
    """Create a group with oneself as owner, and others as members from the start."""
    given = params.get("group")
    public_id = context.new_public_id("g") if given is None else read.public_id_text(given, "group")
    check_public_id(public_id, what="group")
    name = read.line(params, "name", bytes_max=NAME_BYTES_MAX, default=public_id) or ""
    avatar = read.line(params, "avatar", bytes_max=AVATAR_BYTES_MAX, default="") or ""
    needs_approval = read.flag(params, "needs_approval")
    is_since_join = read.choice(params, "history", HISTORIES, "all")
    fields = read.fields(params.get("fields"))
    members = _members(context, actor, params)
    if context.directory.find_group(public_id) is not None:
        raise Conflict(f"there is a group {public_id!r} already")
    at, number = context.clock.now_ms(), own_number(public_id) or 0
    changed = GroupChanged(
        group=number, public_id=public_id, name=name, avatar=avatar, owner=actor.user, needs_approval=needs_approval,
        is_large=len(members) + 1 > context.settings.group_inbox_limit, members=members, fields=fields,
        history=GroupChanged.SINCE_JOIN if is_since_join else GroupChanged.ALL,
    )  # fmt: skip
    record = Record(
        at=at, actor=actor.user, chat=notice(actor, "create", at, group=number, user=actor.user), group=number,
        options=QUIET, session=actor.session_id, group_info=changed,
    )  # fmt: skip

    def answer(accepted: Accepted) -> Answer:
        if accepted.is_repeat:
            raise Conflict(f"there is a group {public_id!r} already")
        return group_view(context, actor, group_named(context, public_id))

    return drafted(record, answer, key=b"\xffgroup:" + public_id.encode())


def _members(context: Context, actor: Actor, params: Params) -> list[int]:
    most = context.settings.group_members_max
    given = read.objects(params, "members", count_max=most - 1)
    members = [each for each in context.directory.users(given, "members") if each != actor.user]
    for each in members:
        check_may_send(context, actor.user, each)
    return members


def group_named(context: Context, public_id: object) -> Group:
    """A group that must exist."""
    number = context.directory.group(public_id)
    found = context.stores.groups.get(number)
    if found is None:
        raise NotFound(f"there is no group {public_id!r}")
    return found


def group(context: Context, actor: Actor, params: Params) -> Answer:
    """A group's profile; its members are shown to members."""
    offset = read.number(params, "offset", default=0) or 0
    return group_view(context, actor, group_named(context, params.get("group")), offset=offset)


def group_view(context: Context, actor: Actor, shown: Group, *, offset: int = 0) -> Answer:
    """The answer to whatever is about a group."""
    groups = context.stores.groups
    count = groups.count(shown.number)
    view: Answer = {
        "group": shown.public_id,
        "name": shown.name,
        "avatar": shown.avatar,
        "owner": context.directory.user_name(shown.owner),
        "at": shown.created_at,
        "needs_approval": shown.needs_approval,
        "is_large": shown.is_large,
        "history": "since_join" if shown.is_since_join else "all",
        "fields": dict(shown.fields),
        "member_count": count,
    }
    own = groups.member(shown.number, actor.user)
    if own is not None or actor.is_admin:
        page = groups.page(shown.number, offset, MEMBERS_SHOWN_MAX)
        view["members"] = [_member_view(context, each) for each in page]
        view["has_more"] = offset + len(page) < count
    if own is not None and own.role >= Role.ADMIN:
        requests = groups.requests(shown.number)[:MEMBERS_SHOWN_MAX]
        view["requests"] = [
            {"user": context.directory.user_name(user), "at": at}
            for user, at in requests
            if not context.directory.is_erased(user)
        ]
    return view


def _member_view(context: Context, member: Member) -> Answer:
    view: Answer = {
        "user": context.directory.user_name(member.user),
        "role": ROLE_NAMES[member.role],
        "at": member.joined_at,
    }
    if member.is_muted:
        view["is_muted"] = True
    return view


def join(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Become a member, or ask to, where the group wants to approve it."""
    found = group_named(context, params.get("group"))
    groups = context.stores.groups
    if groups.member(found.number, actor.user) is not None:
        return group_view(context, actor, found)
    check_room(context, found)
    if not found.needs_approval:
        return joined(context, actor, found, actor.user, "join")
    if any(user == actor.user for user, _ in groups.requests(found.number)):
        return _requested(context, actor, found.public_id)
    draft = member_changed(context, actor, found, actor.user, MemberChanged.REQUEST)
    draft.answer = lambda accepted: _requested(context, actor, found.public_id)
    draft.then = _tell_admins(context, actor, found)
    return draft


def _requested(context: Context, actor: Actor, public_id: str) -> Answer:
    return {**group_view(context, actor, group_named(context, public_id)), "is_requested": True}


def _tell_admins(context: Context, actor: Actor, asked: Group) -> list[Record]:
    """The system tells those who can approve it."""
    at = context.clock.now_ms()
    admins = [each.user for each in context.stores.groups.members(asked.number) if each.role >= Role.ADMIN]
    system = Actor(0)
    return [
        Record(
            at=at,
            to=admin,
            chat=notice(system, "request", at, to=admin, about=asked.number, user=actor.user),
            options=NEED_ALL,
        )
        for admin in admins[:ADMINS_TOLD_MAX]
    ]


def check_room(context: Context, found: Group) -> int:
    """How many members there are, with those who join at this moment; raises if there can be no more."""
    groups, most = context.stores.groups, context.settings.group_members_max
    arriving = [user for user in context.joining.of(found.number) if groups.member(found.number, user) is None]
    count = groups.count(found.number) + len(arriving)
    if count >= most:
        raise TooLarge(f"group {found.public_id!r} has {count} members; it may have {most}")
    return count


def joined(context: Context, actor: Actor, found: Group, user: int, action: str) -> Draft:
    """A user becomes a member. A group that outgrows inboxes becomes large, right behind."""
    count = check_room(context, found)
    draft = member_changed(context, actor, found, user, MemberChanged.JOIN, action)
    draft.joins = (found.number, user)
    if count + 1 > context.settings.group_inbox_limit and not found.is_large:
        grown = as_changed(found)
        grown.is_large = True
        draft.then = [Record(at=draft.at, actor=actor.user, group_info=grown)]
    return draft


def as_changed(found: Group) -> GroupChanged:
    """A group as it is, for a record that changes one thing of it."""
    return GroupChanged(
        group=found.number, public_id=found.public_id, name=found.name, avatar=found.avatar, owner=found.owner,
        needs_approval=found.needs_approval, is_large=found.is_large, fields=found.fields,
    )  # fmt: skip


def member_changed(
    context: Context, actor: Actor, found: Group, user: int, op: MemberChanged.Op, action: str = ""
) -> Draft:
    """A change of one member, with a notice to all where there is an ``action`` to name."""
    at = context.clock.now_ms()
    record = Record(
        at=at, actor=actor.user, group=found.number, session=actor.session_id,
        member=MemberChanged(group=found.number, user=user, op=op),
    )  # fmt: skip
    if action:
        record.chat = notice(actor, action, at, group=found.number, user=user)
        record.options = QUIET
    return drafted(record, lambda accepted: group_view(context, actor, group_named(context, found.public_id)))


def quit(context: Context, actor: Actor, params: Params) -> Draft | Answer:  # noqa: A001 - the seed's name
    """Leave a group, or take back a request to join it. An owner hands it over first, unless nobody else is there."""
    found = group_named(context, params.get("group"))
    groups = context.stores.groups
    if any(user == actor.user for user, _ in groups.requests(found.number)):
        return member_changed(context, actor, found, actor.user, MemberChanged.REFUSE)
    member = member_of(context, found.number, actor.user)
    if member.role == Role.OWNER and groups.count(found.number) > 1:
        raise NotAllowed(f"you own group {found.public_id!r}; transfer it to another member first")
    return member_changed(context, actor, found, actor.user, MemberChanged.QUIT, "quit")
