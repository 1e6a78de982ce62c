"""Rows of timelines as pages of messages.

A row whose body is not there is still shown, as missing: a page that left it out would pretend that there is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.ids import snowflake_time_ms
from pixiu.model.message import message_view
from pixiu.model.timeline import State
from pixiu.ports.recent import RECENT_MAX

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.im.draft import Answer
    from pixiu.model.timeline import GroupRow, PrivateRow

__all__ = ["GroupPage", "bounds", "group_messages", "newest_in_group", "private_messages"]

WARM_BYTES_MAX = 2 * 2**20
"""Bytes of bodies that warming a cold group reads, newest first: one request waits for it, and so do all others."""

WARM_PAGE = 32
"""Bodies read at a time."""

_WHEN_RECALLED = ("message_id", "from", "to", "group", "at", "kind")
"""All that is shown of a message that was recalled."""


def private_messages(context: Context, user: int, rows: list[PrivateRow]) -> list[Answer]:
    """One user's rows, in their order, with the receipts of what the user said."""
    names = context.directory
    bodies = context.stores.bodies.get([row.message_id for row in rows])
    messages: list[Answer] = []
    for row in rows:
        body = bodies.get(row.message_id)
        if body is None:
            said_by, to = (row.peer, user) if row.is_incoming else (user, row.peer)
            shown = _missing(row.message_id, names.user_name(said_by))
            shown["to"] = names.user_name(to)
        else:
            shown = message_view(body, names)
        if row.state == State.RECALLED:
            shown = without_content(shown)
        elif not row.is_incoming:
            if row.delivered_at:
                shown["delivered_at"] = row.delivered_at
            if row.read_at:
                shown["read_at"] = row.read_at
        messages.append(shown)
    return messages


def group_messages(context: Context, group: int, rows: list[GroupRow]) -> list[Answer]:
    """A group's rows, in their order."""
    names = context.directory
    bodies = context.stores.bodies.get([row.message_id for row in rows])
    messages: list[Answer] = []
    for row in rows:
        body = bodies.get(row.message_id)
        if body is None:
            shown = _missing(row.message_id, names.user_name(row.from_user))
            shown["group"] = names.group_name(group)
        else:
            shown = message_view(body, names)
        messages.append(without_content(shown) if row.state == State.RECALLED else shown)
    return messages


def _missing(message_id: int, said_by: str) -> Answer:
    at = snowflake_time_ms(message_id)
    return {"message_id": str(message_id), "from": said_by, "at": at, "kind": "text", "missing": True}


def without_content(shown: Answer) -> Answer:
    """A recalled message: that it was there, and no more."""
    return {name: shown[name] for name in _WHEN_RECALLED if name in shown} | {"recalled": True}


def bounds(messages: list[Answer]) -> tuple[str | None, str | None]:
    """The smallest and the largest message_id of a page, whatever its direction."""
    ids = [int(str(each["message_id"])) for each in messages]
    return (str(min(ids)), str(max(ids))) if ids else (None, None)


class GroupPage(NamedTuple):
    """The newest messages of a group, newest first."""

    messages: list[Answer]
    has_more: bool
    is_trimmed: bool
    """There were older ones, and they are gone."""


def newest_in_group(context: Context, group: int, *, after: int, limit: int) -> GroupPage:
    """From the recent cache; a cold one is warmed by one read, so a thousand who reconnect cost no more than that."""
    recent = context.stores.recent
    if not recent.is_warm(group):
        _warm(context, group)
    if recent.is_warm(group):
        held = recent.latest(group, limit + 1)
        wanted = [each for each in held if each[0] > after]
        if len(wanted) > limit or len(wanted) < len(held) or recent.has_all(group):
            page = [message_view(body, context.directory) for _, body in wanted[:limit]]
            return GroupPage(page, len(wanted) > limit, is_trimmed=False)
    return _newest_stored(context, group, after, limit)


def _warm(context: Context, group: int) -> None:
    """Fill the cache, with about ``WARM_BYTES_MAX``. If a body is missing, it stays cold: rows show that."""
    context.counts.group_reads += 1
    rows = context.stores.timelines.group_backward(group, limit=RECENT_MAX)
    messages: list[tuple[int, bytes]] = []
    size = 0
    for begin in range(0, len(rows), WARM_PAGE):
        message_ids = [row.message_id for row in rows[begin : begin + WARM_PAGE]]
        bodies = context.stores.bodies.get(message_ids)
        if len(bodies) < len(message_ids):
            return
        messages += [(each, bodies[each]) for each in message_ids]
        size += sum(map(len, bodies.values()))
        if size >= WARM_BYTES_MAX:
            break
    if rows or _is_silent(context, group):
        is_all = not rows or (len(messages) == len(rows) < RECENT_MAX and rows[-1].previous == 0)
        context.stores.recent.warm(group, messages, is_all=is_all)


def _newest_stored(context: Context, group: int, after: int, limit: int) -> GroupPage:
    context.counts.group_reads += 1
    rows = context.stores.timelines.group_backward(group, down_to=after, limit=limit + 1)
    has_more = len(rows) > limit
    if has_more:
        is_trimmed = False
    elif rows:
        is_trimmed = rows[-1].previous > after
    else:
        is_trimmed = not _is_silent(context, group, after)
    return GroupPage(group_messages(context, group, rows[:limit]), has_more, is_trimmed)


def _is_silent(context: Context, group: int, after: int = 0) -> bool:
    """Was nothing said behind ``after``?"""
    found = context.stores.groups.get(group)
    return found is None or found.last_message_id <= after
