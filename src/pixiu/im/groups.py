"""Groups: create_group, group, join, quit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import notice
from pixiu.im.costs import fan_out_cost
from pixiu.im.draft import Accepted, Actor, Answer, Arriving, Draft, Params, drafted
from pixiu.im.messages import QUIET, check_may_send, member_of
from pixiu.im.paging import fitting, row_count, row_limit, size_of
from pixiu.im.readable import HISTORIES
from pixiu.im.users import AVATAR_BYTES_MAX, NAME_BYTES_MAX
from pixiu.model.errors import Conflict, NotAllowed, NotFound, RequestError, TooLarge
from pixiu.model.group import Role
from pixiu.model.inbox import NEED_ALL
from pixiu.model.names import new_public_id, own_number
from pixiu.model.pixiu_pb2 import GroupChanged, MemberChanged, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.group import Group, Member

__all__ = [
    "as_changed",
    "check_addable",
    "create_group",
    "group",
    "group_named",
    "group_view",
    "invitation",
    "join",
    "joined",
    "member_changed",
    "must_consent",
    "quit",
]

MEMBERS_SHOWN = 100
"""Members in the answer to a change, such as a join; the action ``group`` pages through all of them."""

ADMINS_TOLD_MAX = 20
"""Admins who are notified of a request to join."""

REQUESTS_MAX = 1000
"""Requests to join that one group may have waiting."""

REQUESTS_SHARE = 4
"""Requests have one part in so many of the bytes of a page."""

INVITATIONS_MAX = 100
"""Invitations that one user may have waiting."""

ROLE_NAMES = {Role.MEMBER: "member", Role.ADMIN: "admin", Role.OWNER: "owner"}


def create_group(context: Context, actor: Actor, params: Params) -> Draft:
    """Create a group with oneself as owner, and others as members from the start."""
    given = params.get("group")
    asked = context.new_public_id("g") if given is None else read.public_id_text(given, "group")
    public_id = new_public_id(asked, what="group")
    name = read.line(params, "name", bytes_max=NAME_BYTES_MAX, default=public_id) or ""
    avatar = read.line(params, "avatar", bytes_max=AVATAR_BYTES_MAX, default="") or ""
    needs_approval = read.flag(params, "needs_approval")
    is_since_join = read.choice(params, "history", HISTORIES, "all")
    fields = read.fields(params.get("fields"))
    named = _members(context, actor, params)
    invited = [user for user in named if must_consent(context, actor, user)]
    waiting = set(invited)
    members = [user for user in named if user not in waiting]
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

    draft = drafted(record, answer, key=b"\xffgroup:" + public_id.encode())
    draft.arriving = Arriving(0, [actor.user, *members])
    if invited:
        draft.after = lambda accepted: [
            record for user in invited for record in invitation(context, actor, number or accepted.message_id, user)
        ]
    return draft


def _members(context: Context, actor: Actor, params: Params) -> list[int]:
    settings = context.settings
    given = read.objects(params, "members", count_max=settings.group_members_max - 1)
    if len(given) > settings.group_create_max:
        raise TooLarge(
            f"create_group may name {settings.group_create_max} members, not {len(given)}; "
            "others join or are invited afterwards"
        )
    members = [each for each in context.directory.users(given, "members") if each != actor.user]
    check_group_count(context, actor, actor.user)
    for each in members:
        check_may_send(context, actor.user, each)
        check_addable(context, actor, each)
    return members


def must_consent(context: Context, actor: Actor, user: int) -> bool:
    """Does an add of this user by the actor become an invitation? See ``messaging.group_invites``."""
    rule = context.settings.group_invites
    if rule == "anyone" or actor.is_admin or user == actor.user:
        return False
    return rule == "consent" or context.stores.contacts.linked_at(user, actor.user) is None


def check_addable(context: Context, actor: Actor, user: int) -> None:
    """Raise ``TooLarge`` if the user can be neither added nor invited."""
    if not must_consent(context, actor, user):
        check_group_count(context, actor, user)
    elif len(context.stores.groups.invitations(user, limit=INVITATIONS_MAX)) >= INVITATIONS_MAX:
        name = context.directory.user_name(user)
        raise TooLarge(f"{INVITATIONS_MAX} invitations of {name!r} wait already; {name!r} has to answer some first")


def invitation(context: Context, actor: Actor, group: int, user: int) -> list[Record]:
    """The records that invite a user: the invitation, and a notice to the user unless one was sent within a day."""
    at = context.clock.now_ms()
    invited = Record(
        at=at, actor=actor.user, group=group, session=actor.session_id,
        member=MemberChanged(group=group, user=user, op=MemberChanged.INVITE),
    )  # fmt: skip
    if not context.invitation_notices.is_due(group, user, at):
        return [invited]
    chat = notice(Actor(0), "invitation", at, to=user, about=group, user=actor.user)
    return [invited, Record(at=at, to=user, options=NEED_ALL, chat=chat)]


def check_group_count(context: Context, actor: Actor, user: int) -> None:
    """Raise ``TooLarge`` if a user is in as many groups as allowed.

    Other users may fill half of them only: they cannot keep the user from joining groups of the user's own choice.
    """
    most = context.settings.groups_max
    is_own = user == actor.user
    if not is_own and not actor.is_admin:
        most = (most + 1) // 2
    count = context.stores.groups.count_of(user) + context.joining.group_count(user)
    if count < most:
        return
    if is_own:
        raise TooLarge(f"you are in {count} groups; a user may be in {most}: leave one first")
    name = context.directory.user_name(user)
    raise TooLarge(f"{name!r} is in {count} groups; others may add a user to {most}: {name!r} can still join")


def group_named(context: Context, public_id: object) -> Group:
    """A group that must exist."""
    number = context.directory.group(public_id)
    found = context.stores.groups.get(number)
    if found is None:
        raise NotFound(f"there is no group {public_id!r}")
    return found


def group(context: Context, actor: Actor, params: Params) -> Answer:
    """A group's profile, and for its members a page of the members, from ``cursor`` or ``offset`` on.

    With ``requests_cursor`` it is a page of the requests to join in place of one of the members.
    """
    found = group_named(context, params.get("group"))
    limit = row_limit(params)
    offset = read.number(params, "offset", default=0) or 0
    after = read.number(params, "cursor", default=0) or 0
    after_request = read.number(params, "requests_cursor")
    if after_request is None:
        view = group_view(context, actor, found, offset=offset, after=after, limit=limit)
        context.charge_rows(actor, row_count(view))
        return view
    if offset or after:
        raise RequestError("requests_cursor asks for requests, cursor and offset for members: give one of them")
    own = context.stores.groups.member(found.number, actor.user)
    if own is None or own.role < Role.ADMIN:
        raise NotAllowed(f"requests to join {found.public_id!r} are shown to its admins only")
    view = _profile(context, found) | _requests(context, actor, found.number, after=after_request, limit=limit)
    context.charge_rows(actor, row_count(view))
    return view


def group_view(
    context: Context, actor: Actor, shown: Group, *, offset: int = 0, after: int = 0, limit: int = MEMBERS_SHOWN
) -> Answer:
    """The answer to every action about a group. The first page of members comes with the first page of requests."""
    groups = context.stores.groups
    view = _profile(context, shown)
    own = groups.member(shown.number, actor.user)
    if own is not None or actor.is_admin:
        page = groups.page(shown.number, offset, limit + 1, after=after)
        members = fitting((_member_view(context, each) for each in page[:limit]), context.settings.page_bytes_max)
        view["members"] = members
        view["has_more"] = len(members) < len(page)
        view["cursor"] = str(page[len(members) - 1].user) if len(members) < len(page) else None
    if own is not None and own.role >= Role.ADMIN and not offset and not after:
        view |= _requests(context, actor, shown.number, limit=limit)
    return view


def _profile(context: Context, shown: Group) -> Answer:
    return {
        "group": shown.public_id,
        "name": shown.name,
        "avatar": shown.avatar,
        "owner": context.directory.user_name(shown.owner),
        "at": shown.created_at,
        "needs_approval": shown.needs_approval,
        "is_large": shown.is_large,
        "history": "since_join" if shown.is_since_join else "all",
        "fields": dict(shown.fields),
        "member_count": context.stores.groups.count(shown.number),
    }


def _requests(context: Context, actor: Actor, group: int, *, after: int = 0, limit: int) -> Answer:
    """A page of the users who ask to join, without those whom this admin blocks."""
    blocks, directory = context.stores.contacts.is_blocked, context.directory
    bytes_left = context.settings.page_bytes_max // REQUESTS_SHARE
    asking = context.stores.groups.requests(group, limit=limit + 1, after=after)
    rows: list[Answer] = []
    last: int | None = None
    for user, at in asking[:limit]:
        if not directory.is_erased(user) and not blocks(actor.user, user):
            row: Answer = {"user": directory.user_name(user), "at": at}
            bytes_left -= size_of(row)
            if bytes_left < 0 and rows:
                break
            rows.append(row)
        last = user
    else:
        last = last if len(asking) > limit else None
    return {"requests": rows, "requests_cursor": None if last is None else str(last)}


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
    """Become a member, or ask to, where the group needs approval. A repeated request changes nothing."""
    found = group_named(context, params.get("group"))
    number, groups = found.number, context.stores.groups
    if groups.member(number, actor.user) is not None:
        return group_view(context, actor, found)
    check_room(context, found)
    if not found.needs_approval or groups.invited_at(number, actor.user):
        return joined(context, actor, found, actor.user, "join")
    if groups.request_of(number, actor.user) or context.joining.is_asking(number, actor.user):
        return _requested(context, actor, found.public_id)
    check_group_count(context, actor, actor.user)
    if len(groups.requests(number, limit=REQUESTS_MAX)) >= REQUESTS_MAX:
        raise TooLarge(f"{REQUESTS_MAX} requests to join {found.public_id!r} wait already; ask again later")
    draft = member_changed(context, actor, found, actor.user, MemberChanged.REQUEST)
    draft.arriving = Arriving(number, (actor.user,), is_request=True)
    draft.answer = lambda accepted: _requested(context, actor, found.public_id)
    if context.join_notices.is_due(number, actor.user, context.clock.now_ms()):
        draft.then = _tell_admins(context, actor, found)
    return draft


def _requested(context: Context, actor: Actor, public_id: str) -> Answer:
    return {**group_view(context, actor, group_named(context, public_id)), "is_requested": True}


def _tell_admins(context: Context, actor: Actor, asked: Group) -> list[Record]:
    """The system notifies the admins, who can approve it; not those who block the user."""
    at = context.clock.now_ms()
    is_blocked = context.stores.contacts.is_blocked
    admins = [each for each in context.stores.groups.admins(asked.number) if not is_blocked(each, actor.user)]
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


def joined(context: Context, actor: Actor, found: Group, user: int, action: str, *, has_asked: bool = False) -> Draft:
    """A user becomes a member, with ``has_asked`` at the user's own request.

    A group that grows beyond ``messaging.group_inbox_limit`` becomes large by a second record.
    """
    count = check_room(context, found)
    check_group_count(context, Actor(user) if has_asked else actor, user)
    draft = member_changed(context, actor, found, user, MemberChanged.JOIN, action)
    draft.arriving = Arriving(found.number, (user,))
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
    """A change of one member, with a notice to all where there is an ``action`` to name.

    The record names no session: a session that a record names does not get it, since it has sent the content itself. A
    notice is composed here, so the session that asked for the change gets it like every other one.
    """
    at = context.clock.now_ms()
    record = Record(
        at=at, actor=actor.user, group=found.number, member=MemberChanged(group=found.number, user=user, op=op)
    )  # fmt: skip
    if action:
        record.chat = notice(actor, action, at, group=found.number, user=user)
        record.options = QUIET
    draft = drafted(record, lambda accepted: group_view(context, actor, group_named(context, found.public_id)))
    if action:
        draft.fan_out_cost = fan_out_cost(context.stores.groups, found.number)
    return draft


def quit(context: Context, actor: Actor, params: Params) -> Draft | Answer:  # noqa: A001 - the seed's name
    """Leave a group, withdraw a request to join it, or decline an invitation. An owner transfers the group first."""
    found = group_named(context, params.get("group"))
    groups = context.stores.groups
    if groups.request_of(found.number, actor.user) or groups.invited_at(found.number, actor.user):
        return member_changed(context, actor, found, actor.user, MemberChanged.REFUSE)
    member = member_of(context, found.number, actor.user)
    if member.role == Role.OWNER and groups.count(found.number) > 1:
        raise NotAllowed(f"you own group {found.public_id!r}; transfer it to another member first")
    return member_changed(context, actor, found, actor.user, MemberChanged.QUIT, "quit")
