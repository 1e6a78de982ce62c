"""The keys of the messaging stores.

One byte for the table, then numbers of fixed width, big-endian, so that the order of bytes is the order of numbers.

::

    table        key behind its byte                         value
    META         "lane:" lane                                event id that the lane has reached
    META         "high:" table                               highest message id that was ever written to it
    META         "note:" name                                 what a record left behind for the appliers
    META         "layout"                                    ``LAYOUT`` of the program that has made these stores
    META         "life"                                      how often this node has been started
    USER         user                                        created_at, JSON [public_id, name, avatar, fields, erased]
    USER_NAME    public id (UTF-8)                           user
    CONTACT      user, peer                                  flags (1 linked, 2 blocked), time of adding
    GROUP        group                                       numbers and flags, JSON [public_id, name, avatar, fields]
    GROUP_NAME   public id (UTF-8)                           group
    MEMBER       group, user                                 stays, oldest first: role, muted, joined, left, …
    GROUP_OF     user, group                                 nothing: the user is a member now
    WAS_IN       user, group                                 nothing: the user has left it, once at least
    LEFT         event id of the leaving, group, user        nothing: there is a stay to forget
    REQUEST      group, user                                 time of asking
    INVITED      user, group                                 time of the invitation
    INBOXES      user                                        all inboxes in the order of opening: counts, platform
    ENTRY        user, inbox (2 bytes), block                useq, message_id, event_id, at, options, session
    BODY         message_id                                  references when it was written, body
    REFERENCES   millisecond of the message_id               message_id, references: of those that have changed
    UNREAD       user, kind (1 byte), peer or group          count, event id
    SEND_KEY     key as it is                                message_id, event_id, at
    PRIVATE      user, block                                 message_id, peer, is it incoming
    TALK         user, peer, block                           message_id, is it incoming: a conversation is one range
    TIMELINE     group, message_id                           from_user, previous, state
    MARK         user, message_id                            state, delivered_at, read_at: once there is any
    PUSH_TOKENS  user                                        JSON, a list for each device, oldest first
    PUSH_HOLDER  SHA-256 of provider and token               user

A block is several entries in one row, under the number of the first (``blocks``).
"""

from struct import Struct

__all__ = [
    "BODY",
    "CONTACT",
    "ENTRY",
    "GROUP",
    "GROUP_NAME",
    "GROUP_OF",
    "INBOXES",
    "INVITED",
    "LAYOUT",
    "LEFT",
    "MARK",
    "MEMBER",
    "META",
    "NUMBER_MAX",
    "PRIVATE",
    "PUSH_HOLDER",
    "PUSH_TOKENS",
    "REFERENCES",
    "REQUEST",
    "SEND_KEY",
    "TALK",
    "TIMELINE",
    "UNREAD",
    "USER",
    "USER_NAME",
    "WAS_IN",
    "key1",
    "key2",
    "key3",
    "number",
    "numbers2",
    "range1",
    "range2",
    "range_of",
]

LAYOUT = 3
"""Rises with every change of what is written here: stores of another layout are made again from the log."""

META = b"\x01"
USER = b"\x02"
USER_NAME = b"\x03"
CONTACT = b"\x04"
GROUP = b"\x05"
GROUP_NAME = b"\x06"
MEMBER = b"\x07"
GROUP_OF = b"\x08"
LEFT = b"\x09"
REQUEST = b"\x0a"
INBOXES = b"\x0b"
ENTRY = b"\x0c"
BODY = b"\x0d"
REFERENCES = b"\x0e"
UNREAD = b"\x0f"
SEND_KEY = b"\x10"
PRIVATE = b"\x11"
TALK = b"\x12"
TIMELINE = b"\x13"
MARK = b"\x14"
WAS_IN = b"\x15"
PUSH_TOKENS = b"\x16"
PUSH_HOLDER = b"\x17"
INVITED = b"\x18"

NUMBER_MAX = 2**64 - 1
"""Above every number in a key."""

key1 = Struct(">cQ").pack
key2 = Struct(">cQQ").pack
key3 = Struct(">cQQQ").pack
number = Struct(">Q")
numbers2 = Struct(">QQ")


def range_of(table: bytes) -> tuple[bytes, bytes]:
    """All keys of a table."""
    return table, bytes([table[0] + 1])


def range1(table: bytes, owner: int, after: int, through: int) -> tuple[bytes, bytes]:
    """Keys of (owner, number) with ``after < number <= through``; numbers beyond all keys are allowed."""
    start = key2(table, owner, min(after, NUMBER_MAX - 1) + 1 if after >= 0 else 0)
    return start, key2(table, owner, min(through, NUMBER_MAX - 1) + 1 if through >= 0 else 0)


def range2(table: bytes, owner: int, other: int, after: int, through: int) -> tuple[bytes, bytes]:
    """Keys of (owner, other, number) with ``after < number <= through``."""
    start = key3(table, owner, other, min(after, NUMBER_MAX - 1) + 1 if after >= 0 else 0)
    return start, key3(table, owner, other, min(through, NUMBER_MAX - 1) + 1 if through >= 0 else 0)
