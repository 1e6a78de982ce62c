"""What xiu keeps of a message: the MsgChat of the log, with its number.

The log's record holds a MsgChat without msgId, since the number is given when the record is written. In protobuf, bytes
back to back are one message: a body is the record's bytes with field 1 appended, and nothing is decoded on the way.
"""

from functools import lru_cache

from pixiu.model.ids import snowflake_time_ms
from pixiu.model.pixiu_pb2 import DELETE, DELETED, GROUP, P2P, PLAIN, SYSTEM, TEXT, MsgChat

__all__ = ["body_of", "is_written", "text_of", "tombstone"]

_TAG = 0x08
"""Field 1, a varint."""
_NINE_GROUPS = 1 << 56
_LOW_GROUPS = [bytes([_TAG, number & 127 | 128, number >> 7 | 128]) for number in range(16384)]


def body_of(chat: bytes, message_id: int) -> bytes:
    """A record's chat as it is stored: with its msgId."""
    return chat + _number_field(message_id)


def _number_field(number: int) -> bytes:
    # Snowflakes need nine groups of seven bits. All but the lowest two are the same for a whole millisecond.
    if number < _NINE_GROUPS:
        return MsgChat(msgId=number).SerializeToString()
    return _LOW_GROUPS[number & 16383] + _high_groups(number >> 14)


@lru_cache(maxsize=256)
def _high_groups(number: int) -> bytes:
    """The third group and those above it."""
    groups = [number >> shift & 127 | 128 for shift in range(0, 42, 7)]
    return bytes([*groups, number >> 42])


def tombstone(message_id: int, *, from_id: int, to_id: int, is_group: bool) -> bytes:
    """The body of a recalled message: who, where and when, and nothing of what was said.

    It is made from the recall alone, so that every store that holds the body can replace it on its own.
    """
    return MsgChat(
        msgId=message_id,
        fromId=from_id,
        toId=to_id,
        tm=snowflake_time_ms(message_id),
        status=DELETED,
        chatType=GROUP if is_group else P2P,
    ).SerializeToString()


def is_written(body: bytes) -> bool:
    """Is this what a user wrote? Notices and recalls hold numbers only."""
    chat = MsgChat.FromString(body)
    return chat.chatType != SYSTEM and chat.msgType != DELETE


def text_of(chat: MsgChat, length_max: int) -> str:
    """The beginning of a message's text; empty if it is encrypted, or no text."""
    if length_max <= 0 or chat.encType != PLAIN or chat.msgType != TEXT:
        return ""
    # At most four bytes a character: what is cut in the middle is beyond the bound.
    return chat.data[: 4 * length_max].decode(errors="replace")[:length_max]
