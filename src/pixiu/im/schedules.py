"""Saying something later: schedule, unschedule, scheduled. Rights are checked again when the time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import send_key
from pixiu.im.directory import Banned, Erased
from pixiu.im.draft import Actor, Answer, Draft, Params, Scheduling, Unscheduling, drafted
from pixiu.im.messages import check_may_say, check_may_send, gsend, send, sent
from pixiu.im.paging import row_limit, size_of
from pixiu.model.errors import NotFound, RequestError, TooLarge
from pixiu.model.message import message_view
from pixiu.model.pixiu_pb2 import MsgChat, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.ports.log import Scheduled

__all__ = ["fired", "schedule", "scheduled", "scheduling", "unschedule"]

SCHEDULED_BYTES_MAX = 4 * 2**20
"""Bytes of one user's scheduled sends together: they are held in memory until they are due."""


def schedule(context: Context, actor: Actor, params: Params) -> Scheduling | Answer:
    """Say something at a time. A repeat of a send_id that still waits gives the first schedule_id."""
    read.required(params, "at")
    due = read.number(params, "at", at_least=1) or 0
    now, most_ms = context.clock.now_ms(), context.settings.schedule_ms_max
    if due <= now:
        raise RequestError(f"at must be later than now ({now}), not {due}")
    if due - now > most_ms:
        raise TooLarge(f"at may be {most_ms} ms ahead, not {due - now}")
    if (params.get("to") is None) == (params.get("group") is None):
        raise RequestError("give to or group, one of them")
    said = {name: value for name, value in params.items() if name != "at"}
    draft = send(context, actor, said) if params.get("to") is not None else gsend(context, actor, said)
    record = draft.record
    if actor.is_admin:
        record.scheduled.is_exempt = True
    again = context.scheduled_with(actor.user, MsgChat.FromString(record.chat).sendId)
    if again is not None:
        return {"schedule_id": str(again.schedule_id), "at": again.due}
    waiting = context.own_scheduled(actor.user)
    if len(waiting) >= context.settings.scheduled_max:
        raise TooLarge(f"{len(waiting)} of your sends wait already; at most {context.settings.scheduled_max} may")
    size = len(draft.payload) + sum(len(each.payload) for each in waiting)
    if waiting and size > SCHEDULED_BYTES_MAX:
        raise TooLarge(
            f"your sends that wait have {size} bytes with this one; they may have {SCHEDULED_BYTES_MAX} together"
        )
    return scheduling(record, due)


def scheduling(record: Record, due: int) -> Scheduling:
    """A checked send that is appended at this time."""
    return Scheduling(record, due, lambda schedule_id: {"schedule_id": str(schedule_id), "at": due})


def unschedule(context: Context, actor: Actor, params: Params) -> Unscheduling:
    """Drop one's own scheduled send."""
    read.required(params, "schedule_id")
    schedule_id = read.number(params, "schedule_id", at_least=1) or 0
    if all(each.schedule_id != schedule_id for each in context.own_scheduled(actor.user)):
        raise NotFound(f"no scheduled send {schedule_id} of yours waits")
    return Unscheduling(schedule_id)


def scheduled(context: Context, actor: Actor, params: Params) -> Answer:
    """A page of one's own sends that wait, by the time they are due."""
    after = _position(params.get("cursor"))
    limit, bytes_left = row_limit(params), context.settings.page_bytes_max
    shown: list[Answer] = []
    last: Scheduled | None = None
    for each in context.own_scheduled(actor.user):
        if after is not None and (each.due, each.schedule_id) <= after:
            continue
        view = message_view(Record.FromString(each.payload).chat, context.directory)
        view.pop("message_id")
        view |= {"schedule_id": str(each.schedule_id), "at": each.due}
        bytes_left -= size_of(view)
        if limit <= 0 or (bytes_left < 0 and shown):
            break
        limit -= 1
        shown.append(view)
        last = each
    else:
        last = None
    cursor = None if last is None else f"{last.due}.{last.schedule_id}"
    context.charge_rows(actor, len(shown))
    return {"scheduled": shown, "has_more": cursor is not None, "cursor": cursor}


def _position(cursor: object) -> tuple[int, int] | None:
    """When the last row of a page is due, and its schedule_id."""
    if cursor is None:
        return None
    parts = cursor.split(".") if type(cursor) is str else []
    if len(parts) != 2:
        raise RequestError(f"cursor must be one of an earlier page of scheduled, not {read.short(cursor)}")
    return read.whole(parts[0], "cursor"), read.whole(parts[1], "cursor")


def fired(context: Context, record: Record, event_id: int) -> Draft:
    """A scheduled send whose time has come, by this event: said now, if its author still may.

    One that was delayed keeps the key of the event at which it was due first.
    """
    for user in (record.actor, record.to):
        if context.directory.is_erased(user):
            raise Erased(context.directory.user_name(user))
    if context.directory.is_banned(record.actor):
        raise Banned(context.directory.user_name(record.actor))
    if record.to:
        check_may_send(context, record.actor, record.to)
    else:
        check_may_say(context, record.actor, record.group)
    now = context.clock.now_ms()
    chat = MsgChat.FromString(record.chat)
    chat.tm = now
    said = Record()
    said.CopyFrom(record)
    said.at, said.chat = now, chat.SerializeToString()
    said.ClearField("scheduled")
    # A send_id is said once, also where its schedule was asked for twice at the same moment. No send_id is not UTF-8.
    first = record.scheduled.fired or event_id
    key = send_key(record.actor, chat.sendId) or record.actor.to_bytes(8, "big") + b"\xffschedule:%d" % first
    return drafted(said, sent, key=key, is_applied=False)
