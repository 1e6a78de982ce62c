"""Blank what an erased user wrote in the records of the log, in place: every length stays, so does every number.

Text, fields, device, profile and push tokens become zeros of the same length. A zero byte is valid in a protobuf text
and in UTF-8, so a redacted record is a whole record still: it is applied, counted and audited like any other, and
whoever shows it knows it by its zeros (``is_blank``). Everything else stays: who wrote to whom, when, and under which
number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import DELETE, SYSTEM, MsgChat, Record, Task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["erased_user", "is_blank", "redacted"]

_VARINT, _I64, _BYTES, _I32 = 0, 1, 2, 5

_CHAT, _USER, _PUSH_TOKEN = 3, 10, 31
"""Fields of ``Record``."""
_CHAT_DEVICE, _CHAT_DATA, _CHAT_PARAMS = 6, 9, 30
_USER_NAME, _USER_AVATAR, _USER_FIELDS = 3, 4, 5
_TOKEN_DEVICE, _TOKEN_TOKEN, _TOKEN_TOPIC = 3, 5, 6
_NOTIFY, _NOTIFY_TEXT, _NOTIFY_DEVICES = 10, 7, 8
_UNDECODABLE, _UNDECODABLE_PAYLOAD = 13, 2
_REFUSED, _REFUSED_RECORD = 14, 1
_TASK_TOPICS = frozenset({"pixiu.notify", "pixiu.tasks", "pixiu.dlq"})
_RECORD_TOPICS = frozenset({"pixiu.main", "pixiu.schedule"})


def is_blank(data: bytes | str) -> bool:
    """Is this what is left of something that was redacted?"""
    return bool(data) and not (data.strip(b"\0") if isinstance(data, bytes) else data.strip("\0"))


def erased_user(payload: bytes) -> int:
    """Whom a record of ``pixiu.main`` erases; 0 if it erases nobody."""
    if b"\xf2\x01" not in payload[:64]:  # the tag of ``erased``
        return 0
    try:
        return Record.FromString(payload).erased.user
    except DecodeError:
        return 0


def redacted(topic: str, payload: bytes, message_id: int, users: Collection[int]) -> bytes | None:
    """The payload without what these users wrote, of the same length; None if there is nothing to blank."""
    try:
        if topic in _RECORD_TOPICS:
            spans = list(_in_record(payload, 0, len(payload), message_id, users))
        elif topic in _TASK_TOPICS:
            spans = list(_in_task(payload, users))
        else:
            return None
    except (DecodeError, ValueError):
        return None
    blank = bytearray(payload)
    for start, end in spans:
        blank[start:end] = bytes(end - start)
    return bytes(blank) if blank != payload else None


def _in_record(data: bytes, start: int, end: int, message_id: int, users: Collection[int]) -> Iterator[tuple[int, int]]:
    record = Record.FromString(data[start:end])
    what = record.WhichOneof("what")
    if record.actor in users and record.chat and what is None:
        chat = MsgChat.FromString(record.chat)
        if chat.chatType != SYSTEM and chat.msgType != DELETE:
            for chat_start, chat_end in _spans(data, start, end, _CHAT):
                for field in (_CHAT_DEVICE, _CHAT_DATA):
                    yield from _spans(data, chat_start, chat_end, field)
                yield from _pairs(data, chat_start, chat_end, _CHAT_PARAMS)
    if what == "user" and (record.user.user or message_id) in users:
        for user_start, user_end in _spans(data, start, end, _USER):
            for field in (_USER_NAME, _USER_AVATAR):
                yield from _spans(data, user_start, user_end, field)
            yield from _pairs(data, user_start, user_end, _USER_FIELDS)
    if what == "push_token" and record.push_token.user in users:
        for token_start, token_end in _spans(data, start, end, _PUSH_TOKEN):
            for field in (_TOKEN_DEVICE, _TOKEN_TOKEN, _TOKEN_TOPIC):
                yield from _spans(data, token_start, token_end, field)


def _in_task(data: bytes, users: Collection[int]) -> Iterator[tuple[int, int]]:
    """Notifications quote what was written, and name devices; dead letters hold whole records."""
    task = Task.FromString(data)
    what = task.WhichOneof("what")
    if what == "notify":
        for start, end in _spans(data, 0, len(data), _NOTIFY):
            if getattr(task.notify, "from") in users:
                yield from _spans(data, start, end, _NOTIFY_TEXT)
            if task.notify.user in users:
                yield from _spans(data, start, end, _NOTIFY_DEVICES)
    elif what == "refused":
        for start, end in _spans(data, 0, len(data), _REFUSED):
            for record_start, record_end in _spans(data, start, end, _REFUSED_RECORD):
                yield from _in_record(data, record_start, record_end, 0, users)
    elif what == "undecodable":
        for start, end in _spans(data, 0, len(data), _UNDECODABLE):
            for record_start, record_end in _spans(data, start, end, _UNDECODABLE_PAYLOAD):
                yield from _in_unreadable(data, record_start, record_end, users)


def _in_unreadable(data: bytes, start: int, end: int, users: Collection[int]) -> Iterator[tuple[int, int]]:
    """A record that made no sense: what can be read of it is treated as usual."""
    try:
        yield from list(_in_record(data, start, end, 0, users))
    except (DecodeError, ValueError):
        return


def _pairs(data: bytes, start: int, end: int, field: int) -> Iterator[tuple[int, int]]:
    """Keys and values of a map."""
    for pair_start, pair_end in _spans(data, start, end, field):
        yield from _spans(data, pair_start, pair_end, 1)
        yield from _spans(data, pair_start, pair_end, 2)


def _spans(data: bytes, start: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the values of a field of bytes begin and end. Raises ``ValueError`` for what is no protobuf."""
    at = start
    while at < end:
        tag, at = _varint(data, at, end)
        wire = tag & 7
        if wire == _VARINT:
            _, at = _varint(data, at, end)
        elif wire == _I64:
            at += 8
        elif wire == _I32:
            at += 4
        elif wire == _BYTES:
            size, at = _varint(data, at, end)
            if at + size > end:
                raise ValueError("a field is longer than its message")
            if tag >> 3 == wanted:
                yield at, at + size
            at += size
        else:
            raise ValueError(f"wire type {wire} is not known")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")
