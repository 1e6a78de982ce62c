"""A message as clients see it: a stored body, with public ids in place of numbers.

::

    {"message_id": "7461…", "from": "alice", "to": "bob", "at": 1760000000000, "kind": "text", "text": "hi"}

A body is an encoded MsgChat that ends with its msgId. What Pixiu does not have to understand passes through untouched:
encrypted content with its key's fingerprint, plugin subtypes, fields of the client's own.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Protocol

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import (
    DELETED,
    GROUP,
    HIGH,
    NORMAL,
    P2P,
    PLAIN,
    SYSTEM,
    TEXT,
    ChatMsgType,
    EncryptType,
    MsgChat,
    MsgPriority,
)

__all__ = ["ENCRYPTIONS", "KINDS", "PRIORITIES", "PublicNames", "is_urgent", "message_view", "numbers_in"]

KINDS: dict[str, ChatMsgType] = {
    "text": ChatMsgType.TEXT,
    "image": ChatMsgType.IMAGE,
    "voice": ChatMsgType.VOICE,
    "video": ChatMsgType.VIDEO,
    "file": ChatMsgType.FILE,
    "delete": ChatMsgType.DELETE,
    "key": ChatMsgType.KEY,
    "plugin": ChatMsgType.PLUGIN,
}
"""Kinds by name. Beside these, what the system says is shown as ``system``."""

PRIORITIES: dict[str, MsgPriority] = {"low": MsgPriority.LOW, "normal": MsgPriority.NORMAL, "high": MsgPriority.HIGH}

ENCRYPTIONS: dict[str, EncryptType] = {
    "custom": EncryptType.CUSTOM,
    "chacha20": EncryptType.CHACHA20,
    "twofish": EncryptType.TWOFISH,
    "aes": EncryptType.AES,
}

_HIGH_FIELD = b"\x50\x02"
"""The field ``priority`` of an encoded MsgChat whose value is HIGH."""

_KIND_NAMES = {number: name for name, number in KINDS.items()}
_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
_ENCRYPTION_NAMES = {number: name for name, number in ENCRYPTIONS.items()}


class PublicNames(Protocol):
    """Who is behind a number."""

    def user_name(self, number: int) -> str:
        """A user's public id."""
        ...

    def group_name(self, number: int) -> str:
        """A group's public id."""
        ...


def numbers_in(body: bytes) -> tuple[list[int], list[int]]:
    """The users and the groups whose names it takes to show a body. Of one that cannot be decoded, none."""
    try:
        chat = MsgChat.FromString(body)
    except DecodeError:
        return [], []
    users, groups = [chat.fromId], []
    if chat.chatType == P2P:
        users.append(chat.toId)
    elif chat.chatType == GROUP:
        groups.append(chat.toId)
    elif chat.chatType == SYSTEM:
        params = chat.params
        group = params.get("group", "")
        if group.isdecimal():
            groups.append(int(group) or chat.msgId)
        else:
            users.append(chat.toId)
        groups += [int(about) for about in [params.get("about", "")] if about.isdecimal()]
        users += [int(user) for user in [params.get("user", "")] if user.isdecimal()]
    return users, groups


def is_urgent(body: bytes) -> bool:
    """Whether an encoded MsgChat has the priority ``high``. A recall is never urgent, nor is a body that is no MsgChat.

    Almost every body is rejected by a search for two bytes, without decoding it.
    """
    if _HIGH_FIELD not in body:
        return False
    try:
        chat = MsgChat.FromString(body)
    except DecodeError:
        return False
    return chat.priority == HIGH and chat.msgType != ChatMsgType.DELETE


def message_view(body: bytes, names: PublicNames) -> dict[str, object]:
    """What a client is shown. A recalled message has no content any more."""
    chat = MsgChat.FromString(body)
    kind = chat.msgType
    shown: dict[str, object] = {"message_id": str(chat.msgId), "from": names.user_name(chat.fromId)}
    chat_type = chat.chatType
    if chat_type == P2P:
        shown["to"] = names.user_name(chat.toId)
    elif chat_type == GROUP:
        shown["group"] = names.group_name(chat.toId)
    elif chat_type == SYSTEM:
        _show_place(shown, chat, names)
    shown["at"] = chat.tm
    is_system = chat_type == SYSTEM or (chat_type == GROUP and not chat.fromId)
    shown["kind"] = "system" if is_system else _KIND_NAMES.get(kind, str(kind))
    if chat.status == DELETED:
        shown["recalled"] = True
        return shown
    data = chat.data
    if kind == TEXT and chat.encType == PLAIN:
        if data or chat_type != SYSTEM:
            shown["text"] = data.decode(errors="replace")
    elif data:
        shown["body"] = b64encode(data).decode()
    _show_rest(shown, chat, names)
    return shown


def _show_place(shown: dict[str, object], chat: MsgChat, names: PublicNames) -> None:
    """Where the system says it. A group that this very message creates has the message's number."""
    group = chat.params.get("group", "")
    if group.isdecimal():
        shown["group"] = names.group_name(int(group) or chat.msgId)
    else:
        shown["to"] = names.user_name(chat.toId)


def _show_rest(shown: dict[str, object], chat: MsgChat, names: PublicNames) -> None:
    """What most messages do not have."""
    if chat.sendId:
        shown["send_id"] = chat.sendId
    if chat.refMessageId:
        shown["ref"] = str(chat.refMessageId)
    if chat.params:
        fields = dict(chat.params)
        if chat.chatType == SYSTEM:
            if "group" in shown:
                fields["group"] = str(shown["group"])
            about = fields.pop("about", "")
            if about.isdecimal():
                fields["group"] = names.group_name(int(about))
            if fields.get("user", "").isdecimal():
                fields["user"] = names.user_name(int(fields["user"]))
        shown["fields"] = fields
    if chat.priority != NORMAL:
        shown["priority"] = _PRIORITY_NAMES.get(chat.priority, str(chat.priority))
    if chat.encType != PLAIN:
        shown["enc"] = _ENCRYPTION_NAMES.get(chat.encType, str(chat.encType))
    if chat.keyPrint:
        shown["key_print"] = str(chat.keyPrint)
    if chat.subMsgType:
        shown["subtype"] = chat.subMsgType
