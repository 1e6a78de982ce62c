"""Saying something, and taking it back: send, gsend, recall, and what only the system may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import PLAIN, content, plain_text, send_id, send_key
from pixiu.im.costs import fan_out_cost
from pixiu.im.draft import Accepted, Actor, Answer, Draft, Params, UnknownMessage, drafted
from pixiu.model.errors import Conflict, NotAllowed
from pixiu.model.group import Role
from pixiu.model.ids import snowflake_time_ms
from pixiu.model.inbox import NEED_ACK, NEED_ALL, NEED_OFFLINE
from pixiu.model.pixiu_pb2 import DELETE, GROUP, NORMAL, P2P, SYSTEM, MsgChat, Recalled, Record
from pixiu.model.plain_record import plain_record
from pixiu.model.timeline import State

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.group import Member

__all__ = ["broadcast", "check_may_say", "check_may_send", "gsend", "member_of", "recall", "send", "system"]

QUIET = NEED_ACK | NEED_OFFLINE
"""Options of what should arrive, and ring nobody's phone."""


def send(context: Context, actor: Actor, params: Params) -> Draft:
    """Say something to one user."""
    to = context.directory.user(params.get("to"), "to")
    check_may_send(context, actor.user, to)
    return _said(context, actor, params, to, 0)


def gsend(context: Context, actor: Actor, params: Params) -> Draft:
    """Say something in a group."""
    group = context.directory.group(params.get("group"))
    check_may_say(context, actor.user, group)
    draft = _said(context, actor, params, 0, group)
    draft.fan_out_cost = fan_out_cost(context.stores.groups, group)
    return draft


def _said(context: Context, actor: Actor, params: Params, to: int, group: int) -> Draft:
    user, _, device, session, _ = actor
    token = send_id(params)
    key = send_key(user, token)
    bytes_max = context.settings.message_bytes_max
    text = params.get("text")
    at = context.clock.now_ms()
    if type(text) is str and params.keys() <= PLAIN:  # the frequent case
        data = plain_text(text, bytes_max)
        payload = plain_record(data, key[8:], at, user, to, group, device, NEED_ALL, session)
        return Draft(payload, at, sent, key, False, None)
    chat = content(params, bytes_max=bytes_max)
    chat.fromId, chat.toId, chat.tm, chat.sendId, chat.devId = user, to or group, at, token, device
    chat.chatType = P2P if to else GROUP
    record = Record(
        at=at, actor=user, chat=chat.SerializeToString(), to=to, group=group, options=NEED_ALL, session=session
    )
    return drafted(record, sent, key=key, is_applied=False)


def sent(accepted: Accepted) -> Answer:
    """The answer to everything that is said."""
    return {"message_id": str(accepted.message_id), "at": accepted.at}


def check_may_send(context: Context, user: int, to: int) -> None:
    """Raise if ``to`` does not want to hear ``user``."""
    if to != user and context.stores.contacts.is_blocked(to, user):
        raise NotAllowed(f"{context.directory.user_name(to)!r} does not take messages from you")


def check_may_say(context: Context, user: int, group: int) -> None:
    """Raise unless ``user`` is a member of the group who may speak."""
    if member_of(context, group, user).is_muted:
        raise NotAllowed(f"you are muted in group {context.directory.group_name(group)!r}")


def member_of(context: Context, group: int, user: int) -> Member:
    """A user's place in a group; raises if there is none."""
    member = context.stores.groups.member(group, user)
    if member is None:
        raise NotAllowed(f"you are not a member of group {context.directory.group_name(group)!r}")
    return member


def system(context: Context, actor: Actor, params: Params) -> Draft:
    """A message of the system to one user."""
    to = context.directory.user(params.get("to"), "to")
    return _announced(context, actor, params, to=to)


def broadcast(context: Context, actor: Actor, params: Params) -> Draft:
    """A message of the system to all members of a group."""
    group = context.directory.group(params.get("group"))
    return _announced(context, actor, params, group=group)


def _announced(context: Context, actor: Actor, params: Params, *, to: int = 0, group: int = 0) -> Draft:
    chat = content(params, bytes_max=context.settings.message_bytes_max)
    at = context.clock.now_ms()
    token = send_id(params)
    chat.toId, chat.tm, chat.sendId = to or group, at, token
    chat.chatType = SYSTEM if to else GROUP
    if group:
        chat.params["action"] = "broadcast"
    record = Record(at=at, chat=chat.SerializeToString(), to=to, group=group, options=NEED_ALL)
    return drafted(record, sent, key=send_key(actor.user, token), is_applied=False)


def recall(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Make a message unreadable for all, for good. Recalling it again changes nothing."""
    read.required(params, "message_id")
    message_id = read.number(params, "message_id", at_least=1) or 0
    row = context.stores.timelines.private_row(actor.user, message_id)
    if row is not None:
        if row.state == State.RECALLED:
            return {}
        if row.is_incoming and row.peer != actor.user:
            raise NotAllowed(f"message {message_id} is not yours to recall")
        if context.stores.timelines.private_row(row.peer, message_id) is None:
            raise UnknownMessage(f"message {message_id} has no row at its receiver any more")
        _check_recallable(context, message_id)
        return _recalled(context, actor, message_id, said_by=actor.user, to=row.peer)
    return _recall_in_group(context, actor, message_id)


def _recall_in_group(context: Context, actor: Actor, message_id: int) -> Draft | Answer:
    chat = _body(context, message_id)
    group = chat.toId if chat is not None and chat.chatType == GROUP else 0
    row = context.stores.timelines.group_row(group, message_id) if group else None
    if chat is None or row is None:
        raise UnknownMessage(f"there is no message {message_id} of yours")
    member = member_of(context, group, actor.user)
    if row.state == State.RECALLED:
        return {}
    if row.from_user != actor.user and member.role < Role.ADMIN:
        raise NotAllowed(f"message {message_id} is not yours to recall; only its author and admins may")
    _check_recallable(context, message_id)
    draft = _recalled(context, actor, message_id, said_by=row.from_user, group=group)
    draft.fan_out_cost = fan_out_cost(context.stores.groups, group)
    return draft


def _check_recallable(context: Context, message_id: int) -> None:
    chat = _body(context, message_id)
    if chat is not None and (chat.chatType == SYSTEM or chat.msgType == DELETE or not chat.fromId):
        raise Conflict(f"message {message_id} is the system's, and stays")
    said_at = chat.tm if chat is not None else snowflake_time_ms(message_id)
    age_ms, limit_ms = context.clock.now_ms() - said_at, context.settings.recall_ms
    if limit_ms and age_ms > limit_ms:
        raise NotAllowed(f"message {message_id} is {age_ms} ms old; it can be recalled for {limit_ms} ms")


def _body(context: Context, message_id: int) -> MsgChat | None:
    body = context.stores.bodies.get([message_id]).get(message_id)
    return MsgChat.FromString(body) if body is not None else None


def _recalled(context: Context, actor: Actor, message_id: int, *, said_by: int, to: int = 0, group: int = 0) -> Draft:
    at = context.clock.now_ms()
    chat = MsgChat(
        fromId=actor.user, toId=to or group, tm=at, devId=actor.device, msgType=DELETE,
        refMessageId=message_id, chatType=P2P if to else GROUP, priority=NORMAL,
    )  # fmt: skip
    record = Record(
        at=at, actor=actor.user, session=actor.session_id, recalled=Recalled(message_id=message_id, to=to, group=group)
    )
    # A receiver who blocks the author loses the text as well, but gets no notice of it.
    if not (to and to != actor.user and context.stores.contacts.is_blocked(to, actor.user)):
        record.chat, record.to, record.group, record.options = chat.SerializeToString(), to, group, QUIET
    # "from" is a word of Python's.
    setattr(record.recalled, "from", said_by)
    return drafted(record, lambda accepted: {})
