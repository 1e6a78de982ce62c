"""A user's list of people and groups: contact, unlink, contacts; and whom not to hear: block, unblock."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pixiu.im import params as read
from pixiu.im.content import notice
from pixiu.im.draft import Actor, Answer, Draft, Params, drafted
from pixiu.im.messages import QUIET
from pixiu.im.paging import row_limit, size_of
from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.pixiu_pb2 import BlockChanged, ContactChanged, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.im.context import Context
    from pixiu.model.group import Group, Member

__all__ = ["block", "contact", "contacts", "unblock", "unlink", "unread_in_group", "unread_of"]

CHUNK = 100
"""Rows that are read together for a page."""

SKIPPED_MIN = 200
"""Places without a row that a page passes over, or as many as it may have rows; then the next page goes on."""


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


_LISTED, _OTHERS, _INVITATIONS = range(3)


class _Position(NamedTuple):
    """A row's place in the list, and so in a cursor.

    Contacts and groups come by time, then others by number, then invitations by time.
    """

    section: int
    at: int
    number: int
    is_group: int


_Rows: TypeAlias = "Iterator[tuple[_Position, Answer | None]]"


def _position(cursor: object) -> _Position | None:
    if cursor is None:
        return None
    parts = cursor.split(".") if type(cursor) is str else []
    if len(parts) != len(_Position._fields):
        raise RequestError(f"cursor must be one of an earlier page of contacts, not {read.short(cursor)}")
    return _Position(*(read.whole(part, "cursor") for part in parts))


def contacts(context: Context, actor: Actor, params: Params) -> Answer:
    """A page of ``contacts``, people and groups by the time they were added; then of ``others``, unread and on no list.

    The last pages hold ``invitations`` to groups, oldest first; ``INVITATIONS_MAX`` bounds them. ``cursor`` asks for
    the rows after this page; it is None if ``has_more`` is false. A page costs what is looked at for it, and that is
    bounded: it may hold fewer rows than requested, or none, although more rows follow.
    """
    after, limit = _position(params.get("cursor")), row_limit(params)
    bytes_left, skipped_max = context.settings.page_bytes_max, max(limit, SKIPPED_MIN)
    shown: tuple[list[Answer], list[Answer], list[Answer]] = [], [], []
    count = skipped = 0
    last: _Position | None = None
    for position, row in _rows(context, actor.user, after, limit):
        if row is None:
            skipped += 1
            if skipped > skipped_max:
                break
        else:
            bytes_left -= size_of(row)
            if count == limit or (bytes_left < 0 and count):
                break
            count += 1
            shown[position.section].append(row)
        last = position
    else:
        last = None
    size = context.stores.contacts.count(actor.user) + context.stores.groups.count_of(actor.user)
    context.charge_rows(actor, count + skipped + context.recent_lists.rows_to_read(actor.user, size))
    cursor = None if last is None else ".".join(map(str, last))
    listed, others, invitations = shown
    answer: Answer = {"contacts": listed, "others": others, "has_more": cursor is not None, "cursor": cursor}
    if invitations:
        answer["invitations"] = invitations
    return answer


def _rows(context: Context, user: int, after: _Position | None, limit: int) -> _Rows:
    """Places in the list, and what is shown there; None of an erased user, a missing group and a count that is 0."""
    section = _LISTED if after is None else after.section
    if section == _LISTED:
        yield from _listed(context, user, after, min(limit + 1, CHUNK))
    if section <= _OTHERS:
        yield from _others(context, user, after.number if after is not None and section == _OTHERS else -1)
    for number, at in sorted(context.stores.groups.invitations(user), key=itemgetter(1, 0)):
        position = _Position(_INVITATIONS, at, number, 1)
        if after is None or position > after:
            group = context.stores.groups.get(number)
            yield position, None if group is None else _invitation_row(group, at)


def _listed(context: Context, user: int, after: _Position | None, chunk: int) -> _Rows:
    """Contacts and groups, merged by time. Both are read in small parts, so that a short page stays cheap."""
    stores = context.stores
    while True:
        behind_person = behind_group = None
        if after is not None:
            behind_person = after.at, after.number
            behind_group = after.at, after.number - (not after.is_group)  # a group comes behind a person at one place
        people = stores.contacts.page(user, chunk, after=behind_person)
        groups = stores.groups.joined_page(user, chunk, after=behind_group)
        places = [_Position(_LISTED, at, number, 0) for number, at in people]
        places += [_Position(_LISTED, at, number, 1) for number, at in groups]
        places.sort()
        del places[chunk:]
        counts = stores.unread.many(
            user, [InGroup(each.number) if each.is_group else Direct(each.number) for each in places]
        )
        for place, count in zip(places, counts, strict=True):
            if place.is_group:
                yield place, _group_row(context, place.number, user, count)
            else:
                yield place, _contact_row(context, place.number, place.at, count)
        if len(places) < chunk:
            return
        after = places[-1]


def _others(context: Context, user: int, after: int) -> _Rows:
    """Users with unread messages who are on no list."""
    stores = context.stores
    while True:
        counts = stores.unread.direct(user, CHUNK, after=after)
        for peer, count in counts:
            is_other = count and stores.contacts.linked_at(user, peer) is None
            row: Answer | None = {"user": context.directory.user_name(peer), "unread": count} if is_other else None
            yield _Position(_OTHERS, 0, peer, 0), row
        if len(counts) < CHUNK:
            return
        after = counts[-1][0]


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


def _group_row(context: Context, number: int, user: int, counted: int) -> Answer | None:
    group, member = context.stores.groups.get(number), context.stores.groups.member(number, user)
    if group is None or member is None:
        return None
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
