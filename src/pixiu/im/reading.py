"""Reading what was said: history, receive; and saying that one has: read, receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.contacts import unread_of
from pixiu.im.draft import Actor, Answer, Draft, Params, UnknownMessage, drafted
from pixiu.im.messages import member_of
from pixiu.im.pages import bounds, group_messages, newest_in_group, private_messages
from pixiu.im.paging import fitting
from pixiu.im.params import INT64_MAX
from pixiu.im.readable import first_readable
from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.model.errors import NotAllowed, RequestError
from pixiu.model.names import SYSTEM
from pixiu.model.pixiu_pb2 import ReadThrough, Receipt, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.timeline import GroupRow

__all__ = ["conversation_of", "history", "mark_read", "page_limit", "receipt"]

RECEIPTS_MAX = 1000
_DIRECTIONS = {"forward": True, "backward": False}
_RECEIPTS = {"delivered": (True, False), "read": (False, True), "both": (True, True)}


def conversation_of(context: Context, actor: Actor, params: Params) -> Conversation | None:
    """The conversation that ``with`` or ``group`` names; None if neither is given. Groups are for members."""
    peer, group = params.get("with"), params.get("group")
    if peer is not None and group is not None:
        raise RequestError("give with or group, not both")
    if group is not None:
        number = context.directory.group(group)
        member_of(context, number, actor.user)
        return InGroup(number)
    if peer is None:
        return None
    return Direct(0) if peer in (SYSTEM, 0) else Direct(context.directory.any_user(peer, "with"))


def page_limit(context: Context, params: Params) -> int:
    """How many messages were asked for, up to what a page may hold."""
    most = context.settings.page_max
    return min(read.number(params, "limit", at_least=1, default=most) or most, most)


def history(context: Context, actor: Actor, params: Params) -> Answer:
    """A page of a conversation, or of all private ones. Both bounds are exclusive.

    Backward from the newest (or from ``before``), unless only ``after`` is given; ``direction`` says otherwise. The six
    private and two group queries of seed 004 are these four params in their combinations.
    """
    place = conversation_of(context, actor, params)
    before = read.number(params, "before", at_least=1)
    after = read.number(params, "after", default=0) or 0
    limit = page_limit(context, params)
    default = "forward" if "after" in params and before is None else "backward"
    is_forward = read.choice(params, "direction", _DIRECTIONS, default)
    if isinstance(place, InGroup):
        after = max(after, first_readable(context, place.group, actor.user) - 1)
        messages, has_more, is_trimmed = _group_page(context, place.group, before, after, limit, is_forward=is_forward)
    else:
        messages, has_more, is_trimmed = _private_page(
            context, actor.user, place, before, after, limit, is_forward=is_forward
        )
    found, messages = messages, fitting(messages, context.settings.page_bytes_max)
    if len(messages) < len(found):
        has_more, is_trimmed = True, is_trimmed and is_forward
    smallest, largest = bounds(messages)
    answer: Answer = {"messages": messages, "has_more": has_more, "min": smallest, "max": largest}
    if is_trimmed:
        answer["trimmed"] = True
    return answer


def _private_page(
    context: Context,
    user: int,
    place: Direct | None,
    before: int | None,
    after: int,
    limit: int,
    *,
    is_forward: bool,
) -> tuple[list[Answer], bool, bool]:
    timelines, peer = context.stores.timelines, place.peer if place is not None else None
    if is_forward:
        through = before - 1 if before is not None else None
        rows = timelines.private_forward(user, after=after, through=through, limit=limit + 1, peer=peer)
    else:
        rows = timelines.private_backward(user, before=before, down_to=after, limit=limit + 1, peer=peer)
    return private_messages(context, user, rows[:limit]), len(rows) > limit, False


def _group_page(
    context: Context, group: int, before: int | None, after: int, limit: int, *, is_forward: bool
) -> tuple[list[Answer], bool, bool]:
    if not is_forward and before is None:
        return newest_in_group(context, group, after=after, limit=limit)
    timelines = context.stores.timelines
    context.counts.group_reads += 1
    rows: list[GroupRow]
    if is_forward:
        rows = timelines.group_forward(group, after=after, limit=limit + 1)
        is_trimmed = bool(rows) and rows[0].previous > after
        if before is not None:
            rows = [row for row in rows if row.message_id < before]
    else:
        rows = timelines.group_backward(group, before=before, down_to=after, limit=limit + 1)
        is_trimmed = 0 < len(rows) <= limit and rows[-1].previous > after
    return group_messages(context, group, rows[:limit]), len(rows) > limit, is_trimmed


def mark_read(context: Context, actor: Actor, params: Params) -> Draft:
    """Everything of a conversation through a message is read; all of it, if none is named."""
    place = conversation_of(context, actor, params)
    if place is None:
        raise RequestError("with or group is missing")
    through = read.number(params, "through", default=INT64_MAX)
    changed = ReadThrough(user=actor.user, through=through)
    if isinstance(place, InGroup):
        changed.group = place.group
    else:
        changed.peer = place.peer
    record = Record(at=context.clock.now_ms(), actor=actor.user, session=actor.session_id, read=changed)
    return drafted(record, lambda accepted: {"unread": unread_of(context, actor.user, place)})


def receipt(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Tell the senders of private messages that they were delivered, or read. Telling it again changes nothing."""
    message_ids = read.ids(params, "message_ids", count_max=RECEIPTS_MAX)
    is_delivered, is_read = read.choice(params, "kind", _RECEIPTS)
    by_sender: dict[int, list[int]] = {}
    for message_id in message_ids:
        sender = _sender(context, actor.user, message_id)
        if sender and _tells_something(context, sender, message_id, is_delivered=is_delivered, is_read=is_read):
            by_sender.setdefault(sender, []).append(message_id)
    if not by_sender:
        return {"marked": 0}
    records = []
    for sender, told in by_sender.items():
        changed = Receipt(peer=actor.user, message_ids=told, is_delivered=is_delivered, is_read=is_read)
        setattr(changed, "from", sender)  # a word of Python's
        record = Record(at=context.clock.now_ms(), actor=actor.user, session=actor.session_id, receipt=changed)
        records.append(record)
    marked = sum(map(len, by_sender.values()))
    return drafted(records[0], lambda accepted: {"marked": marked}, then=records[1:])


def _sender(context: Context, user: int, message_id: int) -> int:
    """Who said this to the user."""
    row = context.stores.timelines.private_row(user, message_id)
    if row is None:
        raise UnknownMessage(f"there is no private message {message_id} to you")
    if not row.is_incoming:
        raise NotAllowed(f"message {message_id} is your own; its receiver tells when it was read")
    return row.peer


def _tells_something(context: Context, sender: int, message_id: int, *, is_delivered: bool, is_read: bool) -> bool:
    """Would this receipt change the sender's row? A repeated receipt does not."""
    row = context.stores.timelines.private_row(sender, message_id)
    if row is None:
        return False
    return (is_delivered and not row.delivered_at) or (is_read and not row.read_at)
