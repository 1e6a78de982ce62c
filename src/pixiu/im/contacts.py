"""A user's list of people and groups: contact, unlink, contacts; and whom not to hear: block, unblock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.content import notice
from pixiu.im.draft import Actor, Answer, Draft, Params, drafted
from pixiu.im.messages import QUIET
from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.pixiu_pb2 import BlockChanged, ContactChanged, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.group import Group, Member

__all__ = ["block", "contact", "contacts", "contacts_of", "unblock", "unlink", "unread_in_group", "unread_of"]


def contact(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Add a user to one's contacts, and tell that user."""
    peer = _peer(context, actor, params)
    linked = context.stores.contacts.of(actor.user)
    if any(each == peer for each, _ in linked):
        return contacts_of(context, actor.user)
    most = context.settings.contacts_max
    if len(linked) >= most:
        raise TooLarge(f"a user may have {most} contacts; take one off the list first")
    return _link(context, actor, peer, is_linked=True)


def unlink(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Take a user off one's contacts, and tell that user."""
    peer = _peer(context, actor, params)
    if all(each != peer for each, _ in context.stores.contacts.of(actor.user)):
        return contacts_of(context, actor.user)
    return _link(context, actor, peer, is_linked=False)


def _link(context: Context, actor: Actor, peer: int, *, is_linked: bool) -> Draft:
    at = context.clock.now_ms()
    record = Record(
        at=at, actor=actor.user, session=actor.session_id,
        contact=ContactChanged(user=actor.user, peer=peer, is_linked=is_linked),
    )  # fmt: skip
    # Who blocks the actor keeps a place on the actor's list, and hears nothing of it.
    if not context.stores.contacts.is_blocked(peer, actor.user):
        action = "contact" if is_linked else "unlink"
        record.chat = notice(actor, action, at, to=peer, user=actor.user)
        record.to = peer
        record.options = QUIET
    return drafted(record, lambda accepted: contacts_of(context, actor.user))


def block(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Hear nothing of a user any more."""
    return _block(context, actor, params, is_blocked=True)


def unblock(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Hear that user again."""
    return _block(context, actor, params, is_blocked=False)


def _block(context: Context, actor: Actor, params: Params, *, is_blocked: bool) -> Draft | Answer:
    peer = _peer(context, actor, params)
    if context.stores.contacts.is_blocked(actor.user, peer) == is_blocked:
        return contacts_of(context, actor.user)
    most = context.settings.contacts_max
    if is_blocked and len(context.stores.contacts.blocked_by(actor.user)) >= most:
        raise TooLarge(f"a user may block {most} others; unblock one first")
    changed = BlockChanged(user=actor.user, peer=peer, is_blocked=is_blocked)
    record = Record(at=context.clock.now_ms(), actor=actor.user, session=actor.session_id, block=changed)
    return drafted(record, lambda accepted: contacts_of(context, actor.user))


def _peer(context: Context, actor: Actor, params: Params) -> int:
    peer = context.directory.user(params.get("user"))
    if peer == actor.user:
        raise RequestError("user must be someone else, not yourself")
    return peer


def contacts(context: Context, actor: Actor, params: Params) -> Answer:
    """One's contacts and groups, in the order of their adding, with what is unread."""
    return contacts_of(context, actor.user)


def contacts_of(context: Context, user: int) -> Answer:
    """``contacts``: people and groups by the time they were added. ``others``: unread ones who are on no list."""
    stores = context.stores
    unread = stores.unread.of(user)
    rows: list[tuple[int, int, Answer]] = []
    for peer, at in stores.contacts.of(user):
        profile = stores.users.get(peer)
        if profile is not None and profile.is_erased:
            unread.pop(Direct(peer), None)
            continue
        shown: Answer = {
            "user": profile.public_id if profile else str(peer),
            "name": profile.name if profile else "",
            "avatar": profile.avatar if profile else "",
            "at": at,
            "unread": unread.pop(Direct(peer), 0),
        }
        rows.append((at, peer, shown))
    for number in stores.groups.groups_of(user):
        group, member = stores.groups.get(number), stores.groups.member(number, user)
        count = unread.pop(InGroup(number), 0)
        if group is not None and member is not None:
            rows.append((member.joined_at, number, _group_row(group, member, count)))
    rows.sort(key=lambda row: row[:2])
    others: list[Answer] = [
        {"user": context.directory.user_name(each.peer), "unread": count}
        for each, count in sorted(unread.items(), key=str)
        if isinstance(each, Direct) and count
    ]
    return {"contacts": [row[2] for row in rows], "others": others}


def _group_row(group: Group, member: Member, counted: int) -> Answer:
    return {
        "group": group.public_id,
        "name": group.name,
        "avatar": group.avatar,
        "at": member.joined_at,
        "unread": unread_in_group(group, member, counted),
    }


def unread_in_group(group: Group, member: Member, counted: int) -> int:
    """A large group is not counted member by member: unread is what was said since the member read it."""
    return max(group.message_count - member.count_at_read, 0) if group.is_large else counted


def unread_of(context: Context, user: int, conversation: Conversation) -> int:
    """How many messages of a conversation a user has not read."""
    counted = context.stores.unread.get(user, conversation)
    if isinstance(conversation, InGroup):
        group = context.stores.groups.get(conversation.group)
        member = context.stores.groups.member(conversation.group, user)
        return unread_in_group(group, member, counted) if group and member else 0
    return counted
