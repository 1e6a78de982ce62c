"""Running a group: manage, with one operation for each thing that admins and owners do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import notice
from pixiu.im.costs import fan_out_cost
from pixiu.im.draft import drafted
from pixiu.im.groups import (
    as_changed,
    check_addable,
    check_room,
    group_named,
    invitation,
    joined,
    member_changed,
    must_consent,
)
from pixiu.im.messages import QUIET, check_may_send, member_of
from pixiu.im.readable import HISTORIES
from pixiu.model.errors import NotAllowed, NotFound, RequestError
from pixiu.model.group import Role
from pixiu.model.pixiu_pb2 import GroupChanged, MemberChanged, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.context import Context
    from pixiu.im.draft import Actor, Answer, Draft, Params
    from pixiu.model.group import Group, Member

__all__ = ["manage"]


def manage(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Do ``op`` to a user in a group, or to the group. What is so already is answered without a change."""
    found = group_named(context, params.get("group"))
    if params.get("op") == "history":
        return _history(context, actor, found, params)
    if params.get("history") is not None:
        raise RequestError("history goes with op 'history'")
    user = context.directory.user(params.get("user"))
    operation = read.choice(params, "op", _OPERATIONS)
    own = member_of(context, found.number, actor.user)
    draft = operation(context, actor, found, own, user)
    if draft is None:
        return {}
    draft.answer = lambda accepted: {}
    return draft


def _history(context: Context, actor: Actor, found: Group, params: Params) -> Draft | Answer:
    """What members read of the group: all, or what was said since they joined. It holds for those who are there."""
    if params.get("user") is not None:
        raise RequestError("op 'history' is about the group; it takes no user")
    read.required(params, "history")
    is_since_join = read.choice(params, "history", HISTORIES)
    _need(member_of(context, found.number, actor.user), Role.OWNER, "say what members read")
    if found.is_since_join == is_since_join:
        return {}
    at, changed = context.clock.now_ms(), as_changed(found)
    changed.history = GroupChanged.SINCE_JOIN if is_since_join else GroupChanged.ALL
    record = Record(
        at=at, actor=actor.user, chat=notice(actor, "history", at, group=found.number), group=found.number,
        options=QUIET, group_info=changed,
    )  # fmt: skip
    draft = drafted(record, lambda accepted: {})
    draft.fan_out_cost = fan_out_cost(context.stores.groups, found.number)
    return draft


def _approve(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _need(own, Role.ADMIN, "approve")
    if context.stores.groups.member(found.number, user) is not None:
        return None
    _check_requested(context, found, user)
    return joined(context, actor, found, user, "join", has_asked=True)


def _refuse(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _need(own, Role.ADMIN, "refuse")
    _check_requested(context, found, user)
    return member_changed(context, actor, found, user, MemberChanged.REFUSE)


def _check_requested(context: Context, found: Group, user: int) -> None:
    if not context.stores.groups.request_of(found.number, user):
        raise NotFound(f"{context.directory.user_name(user)!r} has not asked to join {found.public_id!r}")


def _invite(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    if found.needs_approval:
        _need(own, Role.ADMIN, "invite to a group that needs approval")
    if context.stores.groups.member(found.number, user) is not None:
        return None
    check_may_send(context, actor.user, user)
    if not must_consent(context, actor, user):
        return joined(context, actor, found, user, "invite")
    if context.stores.groups.request_of(found.number, user):
        return joined(context, actor, found, user, "join", has_asked=True) if own.role >= Role.ADMIN else None
    if context.stores.groups.invited_at(found.number, user):
        return None
    check_room(context, found)
    check_addable(context, actor, user)
    first, *then = invitation(context, actor, found.number, user)
    return drafted(first, lambda accepted: {}, then=then)


def _remove(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _below(context, found, own, user, "remove")
    return member_changed(context, actor, found, user, MemberChanged.QUIT, "remove")


def _mute(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    if _below(context, found, own, user, "mute").is_muted:
        return None
    return member_changed(context, actor, found, user, MemberChanged.MUTE, "mute")


def _unmute(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    if not _below(context, found, own, user, "unmute").is_muted:
        return None
    return member_changed(context, actor, found, user, MemberChanged.UNMUTE, "unmute")


def _admin(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _need(own, Role.OWNER, "make admins")
    if _other(context, found, own, user).role == Role.ADMIN:
        return None
    return member_changed(context, actor, found, user, MemberChanged.ADMIN, "admin")


def _member(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _need(own, Role.OWNER, "take back admin rights")
    if _other(context, found, own, user).role == Role.MEMBER:
        return None
    return member_changed(context, actor, found, user, MemberChanged.MEMBER, "member")


def _transfer(context: Context, actor: Actor, found: Group, own: Member, user: int) -> Draft | None:
    _need(own, Role.OWNER, "transfer the group")
    _other(context, found, own, user)
    if context.stores.contacts.is_blocked(user, actor.user):
        raise NotAllowed(f"{context.directory.user_name(user)!r} blocks you: the group cannot be transferred to them")
    return member_changed(context, actor, found, user, MemberChanged.TRANSFER, "transfer")


_OPERATIONS: dict[str, Callable[[Context, Actor, Group, Member, int], Draft | None]] = {
    "approve": _approve,
    "refuse": _refuse,
    "invite": _invite,
    "remove": _remove,
    "mute": _mute,
    "unmute": _unmute,
    "admin": _admin,
    "member": _member,
    "transfer": _transfer,
}


def _need(own: Member, role: Role, what: str) -> None:
    if own.role < role:
        raise NotAllowed(f"only {'the owner' if role == Role.OWNER else 'admins'} may {what}")


def _other(context: Context, found: Group, own: Member, user: int) -> Member:
    """Another member of the group."""
    if user == own.user:
        raise RequestError("user must be another member, not yourself")
    member = context.stores.groups.member(found.number, user)
    if member is None:
        name = context.directory.user_name(user)
        raise NotFound(f"{name!r} is not a member of group {found.public_id!r}")
    return member


def _below(context: Context, found: Group, own: Member, user: int, what: str) -> Member:
    """Another member, whom one has power over."""
    _need(own, Role.ADMIN, what)
    member = _other(context, found, own, user)
    if member.role >= own.role:
        name = context.directory.user_name(user)
        raise NotAllowed(f"{name!r} is not below you in group {found.public_id!r}: you may not {what} them")
    return member
