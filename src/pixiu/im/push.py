"""push: a publisher sends bodies to many users' platforms, as gomsg's PushRequest says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import content, send_id, send_key
from pixiu.im.draft import Accepted, Actor, Answer, Draft, Params, drafted
from pixiu.model.errors import RequestError
from pixiu.model.inbox import NEED_ALL
from pixiu.model.names import check_platform
from pixiu.model.pixiu_pb2 import MsgChat, Push, PushTo, Record

if TYPE_CHECKING:
    from pixiu.im.context import Context

__all__ = ["PUSH", "push"]

PUSH = frozenset({
    "uids", "platform_config", "exclusive_platform_config", "msg_bodies", "msg_options", "exclusive_msg_options",
    "reserve", "send_id",
})  # fmt: skip

USERS_MAX = 10_000
BODIES_MAX = 100
PLATFORMS_MAX = 16
NOWHERE = ""
"""No platform is called that: all platforms but this one are all platforms."""
_BODY = frozenset({"text", "body", "kind", "fields", "enc", "key_print", "subtype", "ref", "priority"})


def push(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Put each body into the inboxes of all users named. One record per body: users share it, and so its number."""
    bodies = [_body(context, each) for each in read.objects(params, "msg_bodies", count_max=BODIES_MAX)]
    options = read.number(params, "msg_options", at_most=NEED_ALL, default=0) or 0
    users = context.directory.users(read.objects(params, "uids", count_max=USERS_MAX), "uids")
    what = _whom(context, params, users)
    token = send_id(params)
    key = send_key(actor.user, token)
    if not bodies or not users:
        return {"message_ids": []}
    at = context.clock.now_ms()
    records = []
    for chat in bodies:
        chat.fromId, chat.tm, chat.sendId = actor.user, at, token
        record = Record(
            at=at, actor=actor.user, chat=chat.SerializeToString(), options=options, session=actor.session_id, push=what
        )
        records.append(record)

    def answer(accepted: Accepted) -> Answer:
        return {"message_ids": [str(accepted.message_id), *map(str, accepted.then)], "at": accepted.at}

    return drafted(records[0], answer, key=key, is_applied=False, then=records[1:])


def _body(context: Context, given: object) -> MsgChat:
    """A text, or an object: text or body with kind, or protobuf's Any (``@type``, ``value``)."""
    if type(given) is str:
        given = {"text": given}
    if type(given) is not dict:
        raise RequestError(f"msg_bodies must hold texts or objects, not {read.kind_of(given)}")
    type_url = given.get("@type")
    if type_url is not None:
        read.check_known("a body of msg_bodies", given, frozenset({"@type", "value"}))
        given = {"body": given.get("value", ""), "kind": "plugin", "fields": {"@type": type_url}}
    else:
        read.check_known("a body of msg_bodies", given, _BODY)
    return content(given, bytes_max=context.settings.message_bytes_max)


def _whom(context: Context, params: Params, users: list[int]) -> Push:
    """Users and platforms. A user's own choice is complete: whoever has own options only keeps the common platforms."""
    platforms, without = _platforms(params.get("platform_config"), "platform_config")
    what = Push(users=users, platforms=platforms, without_platforms=without)
    exclusive = read.mapping(params, "exclusive_platform_config", count_max=USERS_MAX)
    own_options = read.mapping(params, "exclusive_msg_options", count_max=USERS_MAX)
    named = [*exclusive, *own_options]
    known = set(users)
    for public_id in dict.fromkeys(named):
        number = context.directory.user(public_id, "uids")
        if number not in known:
            raise RequestError(f"{public_id!r} has a choice of its own, and is not among uids")
        chosen = (platforms, without)
        if public_id in exclusive:
            only, but = _platforms(exclusive[public_id], "exclusive_platform_config")
            # A choice of none is a choice of all; it must not look like no choice.
            chosen = (only, but or ([] if only else [NOWHERE]))
        to = PushTo(platforms=chosen[0], without_platforms=chosen[1])
        if public_id in own_options:
            to.has_options = True
            to.options = read.whole(own_options[public_id], "exclusive_msg_options", at_most=NEED_ALL)
        what.exclusive[number].CopyFrom(to)
    return what


def _platforms(value: object, name: str) -> tuple[list[str], list[str]]:
    """Only these, or all but these; the second is ignored when the first is given."""
    if value is None:
        return [], []
    if type(value) is not dict:
        raise RequestError(f"{name} must be an object, not {read.kind_of(value)}")
    read.check_known(name, value, frozenset({"platforms", "without_platforms"}))
    only = [_platform(each, name) for each in read.objects(value, "platforms", count_max=PLATFORMS_MAX)]
    without = [_platform(each, name) for each in read.objects(value, "without_platforms", count_max=PLATFORMS_MAX)]
    return (only, []) if only else ([], without)


def _platform(value: object, name: str) -> str:
    if type(value) is not str:
        raise RequestError(f"{name} must name platforms as texts, not {read.kind_of(value)}")
    return check_platform(value)
