"""push: a publisher sends bodies to many users' platforms, as gomsg's PushRequest says it."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import ParseDict, ParseError

from pixiu.im import params as read
from pixiu.im.content import content, send_id, send_key
from pixiu.im.draft import Accepted, Actor, Answer, Draft, Params, drafted
from pixiu.model.errors import RequestError
from pixiu.model.inbox import NEED_ALL
from pixiu.model.names import PLATFORMS_MAX, check_platform
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
NOWHERE = ""
"""No platform is called that: all platforms but this one are all platforms."""
_WELL_KNOWN = frozenset(
    message.full_name
    for module in (wrappers_pb2, struct_pb2, timestamp_pb2, duration_pb2, field_mask_pb2)
    for message in module.DESCRIPTOR.message_types_by_name.values()
)
"""Types whose value protobuf writes as plain JSON in an Any; the value of all other types is base64."""
_BODY = frozenset({"text", "body", "kind", "fields", "enc", "key_print", "subtype", "ref", "priority"})


def push(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Put each body into the inboxes of all users named. One record per body: users share it, and so its number."""
    given = read.objects(params, "msg_bodies", count_max=BODIES_MAX)
    bodies = [_body(context, each, f"msg_bodies[{index}]") for index, each in enumerate(given)]
    options = read.number(params, "msg_options", at_most=NEED_ALL, default=0) or 0
    uids = read.objects(params, "uids", count_max=USERS_MAX)
    users = context.directory.users(uids, "uids")
    what = _whom(context, params, users, {read.public_id_text(each, "uids") for each in uids})
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


def _body(context: Context, given: object, where: str) -> MsgChat:
    """A text, or an object: text or body with kind, or protobuf's Any (``@type``, ``value``)."""
    if type(given) is str:
        given = {"text": given}
    if type(given) is not dict:
        raise RequestError(f"{where} must be a text or an object, not {read.kind_of(given)}")
    type_url = given.get("@type")
    if type_url is None:
        read.check_known(where, given, _BODY)
    else:
        read.check_known(where, given, frozenset({"@type", "value"}))
        value = _any_value(type_url, given.get("value", ""), where)
        given = {"body": value, "kind": "plugin", "fields": {"@type": type_url}}
    return content(given, bytes_max=context.settings.message_bytes_max)


def _any_value(type_url: object, value: object, where: str) -> object:
    """The packed message of an Any, as base64. A gRPC caller gives the bytes themselves."""
    if type(value) is bytes:
        return b64encode(value).decode()
    name = type_url.rpartition("/")[2] if type(type_url) is str else ""
    if name not in _WELL_KNOWN:
        return value
    try:
        packed = ParseDict({"@type": type_url, "value": value}, Any())
    except (ParseError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{where}.value is no {name} in protobuf's JSON: {error}") from None
    return b64encode(packed.value).decode()


def _whom(context: Context, params: Params, users: list[int], names: set[str]) -> Push:
    """Users and platforms. A user with own options only keeps the common platforms.

    Choices for users who are not among ``uids``, here ``names``, are ignored, as gomsg does.
    """
    platforms, without = _platforms(params.get("platform_config"), "platform_config")
    what = Push(users=users, platforms=platforms, without_platforms=without)
    exclusive = read.mapping(params, "exclusive_platform_config", count_max=USERS_MAX)
    own_options = read.mapping(params, "exclusive_msg_options", count_max=USERS_MAX)
    for public_id in dict.fromkeys([*exclusive, *own_options]):
        if public_id not in names:
            continue
        number = context.directory.user(public_id, "uids")
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
    if context.platforms and not (platforms and all(to.platforms for to in what.exclusive.values())):
        what.opened.extend(context.platforms)
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
