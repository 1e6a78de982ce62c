"""Erasing a user: erase_user, for admins.

An erasure is a handful of records: groups are left one by one, as everyone leaves them; what waits in the inboxes is
given up by a row of a ledger; and the last one says that the user is erased. So whoever reads the log knows membership
and inboxes without knowing what an erasure is. Doing it again is harmless, and takes along what came in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.draft import Actor, Answer, Erasing, Params, UnknownUsers
from pixiu.im.groups import member_changed
from pixiu.model.body import is_written
from pixiu.model.errors import NotFound, RequestError
from pixiu.model.group import Role
from pixiu.model.names import OPERATOR, normalized
from pixiu.model.pixiu_pb2 import Ledger, MemberChanged, Record, Rows, UserErased
from pixiu.model.timeline import State

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.im.draft import Accepted
    from pixiu.model.group import Group

__all__ = ["erase_user", "survey"]

_PAGE = 500
_ENTRIES_MAX = 2**52
"""Above every place that an inbox has when this is applied."""


def erase_user(context: Context, actor: Actor, params: Params) -> Erasing:
    """Remove what a user wrote and all that is kept about the user. The number and the public id stay, barred."""
    public_id = read.public_id_text(read.required(params, "user"), "user")
    if normalized(public_id) == OPERATOR:
        raise RequestError(f"user must not be {OPERATOR!r}: the commands on the node's own machine act by that name")
    try:
        number = context.directory.any_user(public_id)
    except UnknownUsers as error:
        raise NotFound(str(error)) from None  # and do not create one, whatever the settings
    if number == actor.user:
        raise RequestError("user must be someone else, not yourself")
    at = context.clock.now_ms()
    records = _quits(context, number)
    erased = Record(at=at, actor=actor.user, erased=UserErased(user=number))
    found = survey(context, number)

    def answer(accepted: Accepted) -> Answer:
        return {
            "user": public_id,
            "number": str(number),
            "event_id": str(accepted.event_id),
            "at": at,
            "found": found,
            "remains": survey(context, number),
        }

    schedules = [each.schedule_id for each in context.own_scheduled(number)]
    return Erasing(number, [*records, erased], _given_up(context, number, at), schedules, answer)


def _quits(context: Context, user: int) -> list[Record]:
    """Leave every group; one that the user owns gets another owner first, if there is anyone."""
    records: list[Record] = []
    leaver, groups = Actor(user), context.stores.groups
    for number in groups.groups_of(user):
        found = groups.get(number)
        if found is None:
            continue
        heir = _heir(context, found, user) if found.owner == user else 0
        if heir:
            records.append(member_changed(context, leaver, found, heir, MemberChanged.TRANSFER, "transfer").record)
        records.append(member_changed(context, leaver, found, user, MemberChanged.QUIT, "quit").record)
    return records


def _heir(context: Context, found: Group, owner: int) -> int:
    """The admin, or else the member, who has been there longest."""
    others = [member for member in context.stores.groups.members(found.number) if member.user != owner]
    if not others:
        return 0
    return min(others, key=lambda member: (member.role < Role.ADMIN, member.joined, member.user)).user


def _given_up(context: Context, user: int, at: int) -> Record | None:
    """What waits for the user is dead, on every platform."""
    inboxes = context.stores.inboxes
    states = [state for platform in inboxes.platforms(user) if (state := inboxes.state(user, platform)) is not None]
    if not states:
        return None
    count = len(states)
    dead = Rows(
        user=[user] * count,
        platform=range(count),
        first=[state.floor + 1 for state in states],
        through=[_ENTRIES_MAX] * count,
    )
    return Record(at=at, ledger=Ledger(platforms=[state.platform for state in states], dead=dead))


def survey(context: Context, user: int) -> dict[str, object]:
    """What the stores hold of a user, counted."""
    stores = context.stores
    profile = stores.users.get(user)
    waiting = [stores.inboxes.state(user, platform) for platform in stores.inboxes.platforms(user)]
    rows, written = _private(context, user)
    in_groups = sum(_in_group(context, user, group) for group in _all_groups(context, user))
    return {
        "profile": int(profile is not None and not profile.is_erased),
        "contacts": len(stores.contacts.of(user)),
        "blocks": len(stores.contacts.blocked_by(user)),
        "push_tokens": len(stores.push_tokens.of(user)),
        "groups": len(stores.groups.groups_of(user)),
        "timeline_rows": rows,
        "private_messages": written,
        "group_messages": in_groups,
        "inbox_entries": sum(state.waiting for state in waiting if state is not None),
        "unread_counts": len(stores.unread.of(user)),
        "scheduled": len(context.own_scheduled(user)),
    }


def _all_groups(context: Context, user: int) -> list[int]:
    groups = context.stores.groups
    return sorted({*groups.groups_of(user), *groups.past_groups_of(user)})


def _private(context: Context, user: int) -> tuple[int, int]:
    """Rows of the user's timeline, and how many of them the user wrote and has not recalled."""
    rows = written = after = 0
    while page := context.stores.timelines.private_forward(user, after=after, limit=_PAGE):
        rows += len(page)
        written += sum(1 for row in page if not row.is_incoming and row.state != State.RECALLED)
        after = page[-1].message_id
    return rows, written


def _in_group(context: Context, user: int, group: int) -> int:
    """Rows of a group's timeline that say something of the user's: notices do not."""
    count = after = 0
    while page := context.stores.timelines.group_forward(group, after=after, limit=_PAGE):
        own = [row.message_id for row in page if row.from_user == user and row.state != State.RECALLED]
        count += sum(map(is_written, context.stores.bodies.get(own).values()))
        after = page[-1].message_id
    return count
