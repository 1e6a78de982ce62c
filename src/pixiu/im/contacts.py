"""A user's list of people and groups: contact, unlink, contacts; and whom not to hear: block, unblock."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pixiu.im import params as read
from pixiu.im.content import notice
from pixiu.im.draft import Actor, Answer, Draft, Params, drafted
from pixiu.im.messages import QUIET
from pixiu.im.paging import ROWS_MAX, row_limit, size_of
from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.pixiu_pb2 import BlockChanged, ContactChanged, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.im.context import Context
    from pixiu.model.group import Group, Member

__all__ = ["block", "contact", "contacts", "contacts_of", "unblock", "unlink", "unread_in_group", "unread_of"]


def contact(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Add a user to one's contacts, and notify that user. Returns that contact alone."""
    peer = _peer(context, actor, params)
    linked = context.stores.contacts
    if linked.linked_at(actor.user, peer) is not None:
        return _one(context, actor.user, peer)
    most = context.settings.contacts_max
    if linked.count(actor.user) >= most:
        raise TooLarge(f"a user may have {most} contacts; take one off the list first")
    return _link(context, actor, peer, is_linked=True)


def unlink(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Remove a user from one's contacts, and notify that user. Returns no row."""
    peer = _peer(context, actor, params)
    if context.stores.contacts.linked_at(actor.user, peer) is None:
        return _one(context, actor.user, peer)
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
    return drafted(record, lambda accepted: _one(context, actor.user, peer))


def block(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Refuse messages of a user from now on. Returns the user's row if the user is a contact."""
    return _block(context, actor, params, is_blocked=True)


def unblock(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Accept messages of that user again. Returns the user's row if the user is a contact."""
    return _block(context, actor, params, is_blocked=False)


def _block(context: Context, actor: Actor, params: Params, *, is_blocked: bool) -> Draft | Answer:
    peer = _peer(context, actor, params)
    if context.stores.contacts.is_blocked(actor.user, peer) == is_blocked:
        return _one(context, actor.user, peer)
    most = context.settings.contacts_max
    if is_blocked and context.stores.contacts.blocked_count(actor.user) >= most:
        raise TooLarge(f"a user may block {most} others; unblock one first")
    changed = BlockChanged(user=actor.user, peer=peer, is_blocked=is_blocked)
    record = Record(at=context.clock.now_ms(), actor=actor.user, session=actor.session_id, block=changed)
    return drafted(record, lambda accepted: _one(context, actor.user, peer))


def _one(context: Context, user: int, peer: int) -> Answer:
    """What a change of one contact answers: that contact's row; no row if the peer is not on the list."""
    at = context.stores.contacts.linked_at(user, peer)
    row = None if at is None else _contact_row(context, peer, at, context.stores.unread.get(user, Direct(peer)))
    return {"contacts": [] if row is None else [row]}


def _peer(context: Context, actor: Actor, params: Params) -> int:
    peer = context.directory.user(params.get("user"))
    if peer == actor.user:
        raise RequestError("user must be someone else, not yourself")
    return peer


def contacts(context: Context, actor: Actor, params: Params) -> Answer:
    """A page of one's contacts and groups, in the order of their adding, with unread counts."""
    after = _position(params.get("cursor"))
    return contacts_of(context, actor.user, after=after, limit=row_limit(params))


_LISTED, _OTHERS, _INVITATIONS = range(3)


class _Position(NamedTuple):
    """A row's place in the list, and so in a cursor.

    Contacts and groups come by time, then others by number, then invitations by time.
    """

    section: int
    at: int
    number: int
    is_group: int


def _position(cursor: object) -> _Position | None:
    if cursor is None:
        return None
    parts = cursor.split(".") if type(cursor) is str else []
    if len(parts) != len(_Position._fields):
        raise RequestError(f"cursor must be one of an earlier page of contacts, not {read.short(cursor)}")
    return _Position(*(read.whole(part, "cursor") for part in parts))


def contacts_of(context: Context, user: int, *, after: _Position | None = None, limit: int = ROWS_MAX) -> Answer:
    """A page of ``contacts``, people and groups by the time they were added; then of ``others``, unread and on no list.

    The last pages hold ``invitations`` to groups, oldest first; ``INVITATIONS_MAX`` bounds them. ``cursor`` asks for
    the rows after this page; it is None if ``has_more`` is false.
    """
    stores, bytes_left = context.stores, context.settings.page_bytes_max
    unread = stores.unread.of(user)
    people = dict(stores.contacts.of(user))
    listed: list[tuple[_Position, Member | None]] = [
        (_Position(_LISTED, at, peer, 0), None) for peer, at in people.items()
    ]
    for number in stores.groups.groups_of(user):
        member = stores.groups.member(number, user)
        if member is not None:
            listed.append((_Position(_LISTED, member.joined_at, number, 1), member))
    listed += [
        (_Position(_OTHERS, 0, place.peer, 0), None)
        for place, count in unread.items()
        if count and isinstance(place, Direct) and place.peer not in people
    ]
    listed += [(_Position(_INVITATIONS, at, group, 1), None) for group, at in stores.groups.invitations(user)]
    listed.sort(key=itemgetter(0))
    begin = 0 if after is None else bisect_right(listed, after, key=itemgetter(0))
    shown: tuple[list[Answer], list[Answer], list[Answer]] = [], [], []
    last: _Position | None = None
    for position, member in islice(listed, begin, None):
        row = _row(context, position, member, unread)
        if row is None:
            continue
        bytes_left -= size_of(row)
        if limit <= 0 or (bytes_left < 0 and last is not None):
            break
        limit -= 1
        shown[position.section].append(row)
        last = position
    else:
        last = None
    cursor = None if last is None else ".".join(map(str, last))
    contacts, others, invitations = shown
    answer: Answer = {"contacts": contacts, "others": others, "has_more": cursor is not None, "cursor": cursor}
    if invitations:
        answer["invitations"] = invitations
    return answer


def _row(
    context: Context, position: _Position, member: Member | None, unread: Mapping[Conversation, int]
) -> Answer | None:
    """What is shown of a row; None of an erased user and of a group that is not there."""
    stores, number = context.stores, position.number
    if position.section == _INVITATIONS:
        group = stores.groups.get(number)
        return None if group is None else _invitation_row(group, position.at)
    if position.section == _OTHERS:
        return {"user": context.directory.user_name(number), "unread": unread[Direct(number)]}
    if member is not None:
        group = stores.groups.get(number)
        return None if group is None else _group_row(group, member, unread.get(InGroup(number), 0))
    return _contact_row(context, number, position.at, unread.get(Direct(number), 0))


def _invitation_row(group: Group, at: int) -> Answer:
    return {"group": group.public_id, "name": group.name, "avatar": group.avatar, "at": at}


def _contact_row(context: Context, peer: int, at: int, unread: int) -> Answer | None:
    profile = context.stores.users.get(peer)
    if profile is not None and profile.is_erased:
        return None
    return {
        "user": profile.public_id if profile else str(peer),
        "name": profile.name if profile else "",
        "avatar": profile.avatar if profile else "",
        "at": at,
        "unread": unread,
    }


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
