"""Catching up after a login: from a cursor of the own inbox, or conversation by conversation.

Seed 004's cases. A private conversation that missed little catches up forward, from the last message the client has;
one that missed much, or is new to this device, begins with the newest page. A group always begins with the newest page.
What lies between that page and what the client has is told as a gap, which the client closes with ``history``. Nothing
is ever left out in silence: what was trimmed is said to be trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.pages import bounds, newest_in_group, private_messages
from pixiu.im.paging import size_of
from pixiu.im.readable import first_readable
from pixiu.im.reading import page_limit
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.gap import Gap
from pixiu.model.ids import snowflake_time_ms
from pixiu.model.inbox import FIRST
from pixiu.model.message import message_view
from pixiu.model.names import SYSTEM

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.im.draft import Actor, Answer, Params

__all__ = ["receive", "sync"]

NEWEST = "$"
"""As Redis writes "from now on"."""


def sync(context: Context, actor: Actor, params: Params) -> Answer:
    """What this client missed. With several conversations the page is shared among them."""
    peers, groups = _places(context, params, "with"), _places(context, params, "group")
    count = len(peers) + len(groups)
    if not count:
        return _from_inbox(context, actor, params, "cursor")
    if params.get("cursor") is not None:
        raise RequestError("give cursor, or with and group, not both")
    if count > context.settings.page_max:
        raise TooLarge(f"sync may name {context.settings.page_max} conversations at a time, not {count}")
    found = _Found(max(page_limit(context, params) // count, 1), context.settings.page_bytes_max)
    numbers = [
        (0 if peer == SYSTEM else context.directory.any_user(peer, "with"), last) for peer, last in peers.items()
    ]
    inside = [(context.directory.group(group), last) for group, last in groups.items()]
    after = [max(last, first_readable(context, group, actor.user) - 1) for group, last in inside]
    for peer, last in numbers:
        _sync_private(context, actor.user, peer, last, found)
    for (group, _), behind in zip(inside, after, strict=True):
        _sync_group(context, group, behind, found)
    answer: Answer = {"messages": found.messages, "gaps": found.gaps, "has_more": found.has_more}
    if found.is_trimmed:
        answer["trimmed"] = True
    state = context.stores.inboxes.state(actor.user, actor.platform) if actor.platform else None
    answer["cursor"] = str(context.cursors.of(state.floor)) if state is not None else None
    return answer


class _Found:
    """What goes into the answer, conversation by conversation."""

    def __init__(self, limit: int, bytes_left: int) -> None:
        self.limit = limit
        self._bytes_left = bytes_left
        self.messages: list[Answer] = []
        self.gaps: list[Answer] = []
        self.has_more = False
        self.is_trimmed = False

    def fitting(self, messages: list[Answer]) -> list[Answer]:
        """As many of the first ones as the page has room for; of the first conversation at least one."""
        shown: list[Answer] = []
        for message in messages:
            self._bytes_left -= size_of(message)
            if self._bytes_left < 0 and (self.messages or shown):
                break
            shown.append(message)
        return shown

    def add_gap(self, gap: Gap, place: str, name: str) -> None:
        self.gaps.append(gap.view(place, name))
        self.is_trimmed |= gap.is_trimmed


def _places(context: Context, params: Params, name: str) -> dict[str, int]:
    """Conversations with the last message_id that the client has of each; 0 is none.

    Many as an object, ``{"with": {"bob": "17"}}``, or one as ``{"with": "bob", "last": "17"}``.
    """
    value = params.get(name)
    if value is None:
        return {}
    if type(value) is dict:
        places = read.mapping(params, name, count_max=context.settings.page_max)
        return {each: 0 if last is None else read.whole(last, f"{name}.{each}") for each, last in places.items()}
    return {read.public_id_text(value, name): read.number(params, "last", default=0) or 0}


def _sync_private(context: Context, user: int, peer: int, last: int, found: _Found) -> None:
    timelines, limit, name = context.stores.timelines, found.limit, context.directory.user_name(peer)
    age_ms = context.clock.now_ms() - snowflake_time_ms(last)
    is_trimmed = last > 0 and _is_trimmed(context, user, last)
    is_forward = last > 0 and age_ms < context.settings.forward_gap_ms
    if is_forward:
        rows = timelines.private_forward(user, after=last, limit=limit + 1, peer=peer)
    else:
        rows = timelines.private_backward(user, down_to=last, limit=limit + 1, peer=peer)
    messages = found.fitting(private_messages(context, user, rows[:limit]))
    found.is_trimmed |= is_trimmed
    has_more = len(rows) > len(messages)
    if has_more and not messages:  # the page is full: the client asks for this conversation by its gap
        newest = timelines.private_backward(user, limit=1, peer=peer)[0].message_id
        found.add_gap(Gap(last, newest + 1), "with", name)
    elif is_forward:
        found.has_more |= has_more
        if is_trimmed and rows:
            found.add_gap(Gap(last, rows[0].message_id, is_trimmed=True), "with", name)
    elif has_more or (is_trimmed and rows):
        found.add_gap(Gap(last, rows[len(messages) - 1].message_id, is_trimmed=not has_more), "with", name)
    found.messages += messages


def _is_trimmed(context: Context, user: int, last: int) -> bool:
    """Has retention removed what the client has last? It removes everything through some id, of all conversations."""
    timelines = context.stores.timelines
    if timelines.private_row(user, last) is not None:
        return False
    return not timelines.private_backward(user, before=last + 1, limit=1)


def _sync_group(context: Context, group: int, last: int, found: _Found) -> None:
    page = newest_in_group(context, group, after=last, limit=found.limit)
    messages = found.fitting(page.messages)
    is_cut = len(messages) < len(page.messages)
    if is_cut or (messages and (page.has_more or page.is_trimmed)):
        smallest, largest = bounds(messages or page.messages)
        oldest = int(str(smallest)) if messages else int(str(largest)) + 1
        gap = Gap(last, oldest, is_trimmed=page.is_trimmed and not is_cut)
        found.add_gap(gap, "group", context.directory.group_name(group))
    found.is_trimmed |= page.is_trimmed
    found.messages += messages


def receive(context: Context, actor: Actor, params: Params) -> Answer:
    """What waits in the own inbox after ``start``; from the first that waits, if none is given.

    ``$`` is the newest: no messages, and the cursor from which those to come are read.
    """
    return _from_inbox(context, actor, params, "start")


def _from_inbox(context: Context, actor: Actor, params: Params, name: str) -> Answer:
    """Entries of this platform's inbox. A body that is not there any more is skipped; the cursor goes on."""
    if not actor.platform:
        raise RequestError("this session has no platform, so it has no inbox; name a conversation")
    inboxes, limit = context.stores.inboxes, page_limit(context, params)
    cursors, platform = context.cursors, actor.platform
    state = inboxes.state(actor.user, platform)
    if state is None and (state := inboxes.state(actor.user, FIRST)) is not None:
        platform = FIRST  # it becomes this platform's own with the first login
    floor, latest = (state.floor, state.latest) if state is not None else (0, 0)
    cursor = cursors.of(latest) if name == "start" and params.get(name) == NEWEST else read.number(params, name)
    held = None if cursor is None else cursors.useq(cursor)
    if cursor is not None and (held is None or held > latest):
        raise RequestError(f"{name} {cursor} is not of this inbox: its newest is {cursors.of(latest)}")
    after = floor if held is None else context.holds(actor.session_id, held)
    entries = inboxes.after(actor.user, platform, after, limit + 1).entries
    bodies = context.stores.bodies.get([entry.message_id for entry in entries[:limit]])
    messages: list[Answer] = []
    bytes_left, reached, is_cut = context.settings.page_bytes_max, max(after, floor), False
    for entry in entries[:limit]:
        body = bodies.get(entry.message_id)
        if body is not None:
            message = message_view(body, context.directory)
            bytes_left -= size_of(message)
            if bytes_left < 0 and messages:
                is_cut = True
                break
            messages.append(message)
        reached = entry.useq
    gaps: list[Answer] = []
    if after < floor:
        gap = Gap(cursors.of(after), cursors.of(floor + 1), is_trimmed=True)
        gaps.append(gap.view("inbox", actor.platform))
    answer: Answer = {"messages": messages, "gaps": gaps, "has_more": is_cut or len(entries) > limit}
    answer["cursor"] = str(cursors.of(reached))
    if gaps:
        answer["trimmed"] = True
    return answer
