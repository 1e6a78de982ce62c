"""Finding what was said: search.

The right to find a message is the right to read it (``readable``): it goes into the question, so that nothing else is
looked at or counted. What the index answers with are numbers. They are read from timelines and bodies, as ``history``
reads them; what was recalled or removed since it was indexed is not shown, and the next hits take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.im import params as read
from pixiu.im.draft import Answer, Searching
from pixiu.im.pages import group_messages, private_messages
from pixiu.im.paging import fitting
from pixiu.im.readable import readable_groups
from pixiu.im.reading import conversation_of, page_limit
from pixiu.machines.search import SearchText, highlights, parse_query
from pixiu.model.conversation import Conversation, InGroup
from pixiu.model.errors import NotFound, RequestError, TooLarge
from pixiu.model.names import SYSTEM, encoded
from pixiu.ports.search import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.im.context import Context
    from pixiu.im.draft import Actor, Params
    from pixiu.ports.search import Found, Hit

__all__ = ["search"]

ORDERS = {"newest": False, "relevance": True}

DEPTH_MAX = 1000
"""How many hits by relevance can be paged through; by time there is no end."""

ROUNDS_MAX = 8
"""How often the index is asked again for one page whose hits are not there any more."""

HIGHLIGHTED_CHARS_MAX = 16_384
"""Characters of the texts of one page in which highlights are looked for, first message first. Cutting a text into
terms takes about a microsecond for each character, in the event loop."""


class _Page(NamedTuple):
    """A page that is being filled."""

    asked: Asked
    limit: int
    phrases: tuple[tuple[tuple[int, str], ...], ...]
    messages: list[Answer]
    cursors: list[int]
    """Behind each message."""
    rounds: int


def search(context: Context, actor: Actor, params: Params) -> Searching:
    """Messages that one may read and that contain words; the newest first, or the best."""
    q = read.required(params, "q")
    if type(q) is not str:
        raise RequestError(f"q must be a text, not {read.kind_of(q)}")
    encoded(q, what="q")
    wanted = parse_query(q)
    is_by_relevance = read.choice(params, "order", ORDERS, "newest")
    cursor = read.number(params, "cursor", default=0) or 0
    limit = page_limit(context, params)
    if is_by_relevance:
        limit = min(limit, DEPTH_MAX - cursor)
        if limit <= 0:
            raise TooLarge(f"by relevance, {DEPTH_MAX} messages are found at most; add words, or take the newest first")
    groups, peers = _places(context, actor, wanted, conversation_of(context, actor, params))
    asked = Asked(
        wanted.phrases, actor.user, groups, peers, _senders(context, actor, wanted),
        at_least=wanted.first_id, before=wanted.end_id(0 if is_by_relevance else cursor),
        is_by_relevance=is_by_relevance, skip=cursor if is_by_relevance else 0, limit=limit + 1,
    )  # fmt: skip
    return _asking(context, actor, _Page(asked, limit, wanted.phrases, [], [], 1))


def _places(
    context: Context, actor: Actor, wanted: SearchText, place: Conversation | None
) -> tuple[dict[int, int], tuple[int, ...] | None]:
    """Where to look: groups with what is readable of them, and with whom. Names of other places are refused."""
    groups = readable_groups(context, actor.user)
    if place is None and not wanted.places:
        return groups, None
    within: set[int] = set()
    peers: set[int] = set()
    if place is not None:
        (within if isinstance(place, InGroup) else peers).add(place[0])
    for name in wanted.places:
        group = context.directory.find_group(name)
        if group is not None and group in groups:
            within.add(group)
        peer = 0 if name == SYSTEM else context.directory.find_user(name)
        if peer is not None:
            peers.add(peer)
        elif group not in groups:
            raise NotFound(f"there is no user, and no group of yours, named {name[:64]!r}")
    return {group: least for group, least in groups.items() if group in within}, tuple(sorted(peers))


def _senders(context: Context, actor: Actor, wanted: SearchText) -> tuple[int, ...]:
    senders = set()
    for name in wanted.senders:
        found = actor.user if name == "me" else 0 if name == SYSTEM else context.directory.find_user(name)
        if found is None:
            raise NotFound(f"there is no user {name[:64]!r}")
        senders.add(found)
    return tuple(sorted(senders))


# What was found.


def _asking(context: Context, actor: Actor, page: _Page) -> Searching:
    return Searching(page.asked, lambda found: _filled(context, actor, page, found))


def _filled(context: Context, actor: Actor, page: _Page, found: Found) -> Answer | Searching:
    """Add what is readable; ask again while hits were in vain and there are more."""
    shown = _shown(context, actor, page.asked, found.hits)
    for number, hit in enumerate(found.hits):
        message = shown.get(hit.message_id)
        if message is not None:
            page.messages.append(message)
            page.cursors.append(page.asked.skip + number + 1 if page.asked.is_by_relevance else hit.message_id)
    has_more = len(page.messages) > page.limit
    is_end = len(found.hits) < page.asked.limit
    if has_more or is_end or page.rounds >= ROUNDS_MAX:
        return _answer(page, found, context.settings.page_bytes_max, has_more=has_more or not is_end)
    if page.asked.is_by_relevance:
        asked = page.asked._replace(skip=page.asked.skip + len(found.hits))
    else:
        asked = page.asked._replace(before=found.hits[-1].message_id)
    return _asking(context, actor, page._replace(asked=asked, rounds=page.rounds + 1))


def _answer(page: _Page, found: Found, bytes_max: int, *, has_more: bool) -> Answer:
    messages = fitting(_highlighted(page), bytes_max)
    has_more = has_more or len(messages) < len(page.messages)
    cursor = None
    if len(messages) < len(page.messages):
        cursor = page.cursors[len(messages) - 1]
    elif has_more:  # enough was tried for one page: go on behind what was tried
        cursor = page.asked.skip + len(found.hits) if page.asked.is_by_relevance else found.hits[-1].message_id
    if page.asked.is_by_relevance and cursor is not None and cursor >= DEPTH_MAX:
        has_more, cursor = False, None
    return {"messages": messages, "has_more": has_more, "cursor": None if cursor is None else str(cursor)}


def _highlighted(page: _Page) -> Iterator[Answer]:
    """The messages of a page with what the query has met in them, one by one: those that do not fit cost nothing."""
    left = HIGHLIGHTED_CHARS_MAX
    for message in page.messages[: page.limit]:
        text = str(message["text"])
        marked = highlights(text[:left], page.phrases) if left else []
        left -= min(len(text), left)
        yield {**message, "highlights": [list(span) for span in marked]}


def _shown(context: Context, actor: Actor, asked: Asked, hits: list[Hit]) -> dict[int, Answer]:
    """Hits as ``history`` shows them, by message id; only those that still say something."""
    timelines = context.stores.timelines
    readable = readable_groups(context, actor.user) if any(hit.group for hit in hits) else {}
    private = [
        row for hit in hits if not hit.group for row in [timelines.private_row(actor.user, hit.message_id)] if row
    ]
    shown = private_messages(context, actor.user, private)
    by_group: dict[int, list[int]] = {}
    for hit in hits:
        # Asked again: one may have quit while the index was looking.
        if hit.group in asked.groups and hit.group in readable and hit.message_id >= readable[hit.group]:
            by_group.setdefault(hit.group, []).append(hit.message_id)
    for group, message_ids in by_group.items():
        rows = [row for each in message_ids for row in [timelines.group_row(group, each)] if row is not None]
        shown += group_messages(context, group, rows)
    return {int(str(each["message_id"])): each for each in shown if type(each.get("text")) is str}
