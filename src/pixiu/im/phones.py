"""Where a user's phones are told of what waits: register_push, unregister_push.

A token is the device's that registers it, and the device is named by the caller's own token: nobody registers for
somebody else. A phone that is handed on registers for its new owner, and rings for the old one no more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.draft import Actor, Answer, Draft, Params, drafted
from pixiu.model.errors import NotAllowed, RequestError
from pixiu.model.pixiu_pb2 import InboxOpened, PushTokenChanged, Record
from pixiu.model.push_token import PROVIDERS

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.push_token import PushToken

__all__ = ["REGISTERING", "TOKEN_BYTES_MAX", "TOPIC_BYTES_MAX", "register_push", "retired", "unregister_push"]

REGISTERING = frozenset({"provider", "token", "topic"})
_HEXADECIMAL = re.compile("[0-9a-fA-F]+")
_APP = re.compile("[A-Za-z0-9._-]*")  # it becomes a header field
TOKEN_BYTES_MAX = 4096
TOPIC_BYTES_MAX = 256
FRESH_MS = 86_400_000
"""An app registers whenever it starts: the same again within this time is answered, and not written."""


def register_push(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Tell this device through a provider when it is away; in place of what it had registered before."""
    _check_device(actor, "register_push")
    provider = read.choice(params, "provider", {name: name for name in PROVIDERS})
    token = read.line(params, "token", bytes_max=TOKEN_BYTES_MAX)
    if not token:
        raise RequestError("token is missing" if token is None else "token must not be empty")
    if provider == "apns" and not _HEXADECIMAL.fullmatch(token):
        raise RequestError("token must be hexadecimal, as APNs gives it")
    topic = read.line(params, "topic", bytes_max=TOPIC_BYTES_MAX, default="") or ""
    if not _APP.fullmatch(topic):
        raise RequestError("topic must be the id of an app, as com.example.chat")
    found = _own(context, actor)
    at = context.clock.now_ms()
    if found is not None and found[3:6] == (provider, token, topic) and at - found.at < FRESH_MS:
        return _answer(context, actor)
    changed = PushTokenChanged(
        user=actor.user, platform=actor.platform, device=actor.device, provider=provider, token=token, topic=topic,
        is_registered=True,
    )  # fmt: skip
    records = [Record(at=at, actor=actor.user, session=actor.session_id, push_token=changed)]
    holder = context.stores.push_tokens.holder(provider, token)
    if holder is not None and holder.user != actor.user:
        # By a record of its own: what is left of the log when one of them is erased says so still.
        records.insert(0, retired(holder, at))
    if actor.platform not in context.stores.inboxes.platforms(actor.user):
        records.append(Record(at=at, actor=actor.user, inbox=InboxOpened(user=actor.user, platform=actor.platform)))
    return drafted(records[0], lambda accepted: _answer(context, actor), then=records[1:])


def unregister_push(context: Context, actor: Actor, params: Params) -> Draft | Answer:
    """Tell this device no more, as when its user logs out."""
    _check_device(actor, "unregister_push")
    found = _own(context, actor)
    if found is None:
        return _answer(context, actor)
    record = retired(found, context.clock.now_ms(), actor=actor.user)
    return drafted(record, lambda accepted: _answer(context, actor))


def retired(push_token: PushToken, at: int, *, actor: int = 0) -> Record:
    """The record after which a token is told no more, if its device has no newer one."""
    user, platform, device, provider, token, *_ = push_token
    changed = PushTokenChanged(user=user, platform=platform, device=device, provider=provider, token=token)
    return Record(at=at, actor=actor, push_token=changed)


def _check_device(actor: Actor, verb: str) -> None:
    if not actor.platform:
        raise NotAllowed(f"{verb} is done by a device: the caller's token names no platform")


def _own(context: Context, actor: Actor) -> PushToken | None:
    place = (actor.platform, actor.device)
    return next((each for each in context.stores.push_tokens.of(actor.user) if each[1:3] == place), None)


def _answer(context: Context, actor: Actor) -> Answer:
    """What is registered for the device now. The token itself is the caller's own, and not repeated."""
    found = _own(context, actor)
    answer: Answer = {"platform": actor.platform, "device": actor.device, "provider": None}
    return answer if found is None else {**answer, "provider": found.provider, "topic": found.topic, "at": found.at}
