"""What is said: params of a send become a MsgChat, and the key under which a repeat is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.params import INT64_MAX, INT64_MIN
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.message import ENCRYPTIONS, KINDS, PRIORITIES
from pixiu.model.names import encoded
from pixiu.model.pixiu_pb2 import NORMAL, SYSTEM, TEXT, ChatMsgType, MsgChat

if TYPE_CHECKING:
    from pixiu.im.draft import Actor, Params

__all__ = ["CONTENT", "PLAIN", "SEND_ID_BYTES_MAX", "content", "notice", "plain_text", "send_id", "send_key"]

PLAIN = frozenset({"to", "group", "text", "send_id"})
"""All that most sends have."""

CONTENT = frozenset({"text", "body", "kind", "send_id", "ref", "fields", "priority", "enc", "key_print", "subtype"})
"""Params that say what is said."""

SEND_ID_BYTES_MAX = 64
NOTHING_SAID = "text is empty: a message has a text, a body or fields"
NOTICE_FIELDS = ("user", "group", "about")
"""Fields that only the system fills in: they hold numbers, and are shown as public ids."""

_SENDABLE = {name: number for name, number in KINDS.items() if name != "delete"}


def send_id(params: Params) -> str:
    """The client's own token of this send; empty if there is none."""
    value = params.get("send_id")
    if value is None:
        return ""
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return str(value)
    if type(value) is not str:
        raise RequestError(f"send_id must be a text, not {read.kind_of(value)}")
    return value


def send_key(user: int, token: str) -> bytes:
    """Under which a repeat of this send is found; none without a send_id."""
    if not token:
        return b""
    data = encoded(token, what="send_id")
    if len(data) > SEND_ID_BYTES_MAX:
        raise TooLarge(f"send_id may have {SEND_ID_BYTES_MAX} bytes, not {len(data)}")
    return user.to_bytes(8, "big") + data


def content(params: Params, *, bytes_max: int) -> MsgChat:
    """Kind, data and what goes with them; who says it to whom is the caller's to fill in."""
    data, kind = _data(params)
    _check_size(data, bytes_max)
    chat = MsgChat(msgType=kind, data=data)
    chat.priority = read.choice(params, "priority", PRIORITIES, "normal")
    chat.refMessageId = read.number(params, "ref", at_least=1, default=0) or 0
    for name, text in read.fields(params.get("fields"), reserved=NOTICE_FIELDS).items():
        chat.params[name] = text
    if params.get("enc") is not None:
        chat.encType = read.choice(params, "enc", ENCRYPTIONS)
    elif kind == TEXT and "body" in params:
        _check_utf8(data)
    chat.keyPrint = read.number(params, "key_print", at_least=INT64_MIN, default=0) or 0
    chat.subMsgType = read.number(params, "subtype", at_least=-(2**31), at_most=2**31 - 1, default=0) or 0
    if not data and kind == TEXT and not chat.encType and not chat.params:
        raise RequestError(NOTHING_SAID)
    return chat


def plain_text(text: str, bytes_max: int) -> bytes:
    """The data of a message that is nothing but a text."""
    data = encoded(text, what="text")
    if not data:
        raise RequestError(NOTHING_SAID)
    if len(data) > bytes_max:
        _check_size(data, bytes_max)
    return data


def _check_size(data: bytes, bytes_max: int) -> None:
    if len(data) > bytes_max:
        raise TooLarge(f"a message may have {bytes_max} bytes, not {len(data)}")


def _data(params: Params) -> tuple[bytes, ChatMsgType]:
    text, body = params.get("text"), params.get("body")
    if text is not None and body is not None:
        raise RequestError("give text or body, not both")
    if body is not None:
        if params.get("kind") is None:
            raise RequestError(f"kind is missing: what the body is, one of {', '.join(_SENDABLE)}")
        return read.raw_bytes(body, "body"), read.choice(params, "kind", _SENDABLE)
    if text is None:
        raise RequestError("text is missing (or body with kind)")
    if type(text) is not str:
        raise RequestError(f"text must be a text, not {read.kind_of(text)}")
    return encoded(text, what="text"), read.choice(params, "kind", _SENDABLE, "text")


def _check_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise RequestError("body of kind text must be UTF-8, or say with enc how it is encrypted") from None


def notice(
    actor: Actor,
    action: str,
    at: int,
    *,
    to: int = 0,
    group: int | None = None,
    about: int = 0,
    user: int | None = None,
) -> bytes:
    """What the system says about an action: an encoded MsgChat whose fields name who and where, as numbers.

    It is said ``to`` a user (``about`` a group, perhaps) or in a ``group``. A group that is being created has no number
    yet; its notice says 0, and readers take the message's own number.
    """
    chat = MsgChat(
        fromId=actor.user, toId=group if group is not None else to, tm=at, devId=actor.device, priority=NORMAL,
        chatType=SYSTEM,
    )  # fmt: skip
    chat.params["action"] = action
    if group is not None:
        chat.params["group"] = str(group)
    if about:
        chat.params["about"] = str(about)
    if user is not None:
        chat.params["user"] = str(user)
    return chat.SerializeToString()
