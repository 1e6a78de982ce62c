"""The tables: seed 004's ``pchat`` and ``gchat``, in one of three layouts, and what Pixiu needs beside them.

=========  ======================  ==========================================================================
layout     key of pchat (gchat)    for
=========  ======================  ==========================================================================
default    ((pk, uid1), id)        a partition per user; every query of the seed runs with its WHERE unchanged
seed       (pk, uid1, id)          the literal statement: 65,536 partitions, each of all users of one ``pk``
bucketed   ((pk, uid1, bucket),id) users and groups that never stop talking: a partition per 30 days
=========  ======================  ==========================================================================

``pk`` is the number of the user or group as 16 signed bits, as the seed's program takes it. ``gchat`` has one column
more than the seed's, ``prev``; where the literal statement leaves no room for it, it is in a table of its own.
``pixiu_topic`` has a user's rows by conversation, without their content.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pixiu.model.ids import snowflake_time_ms
from pixiu.model.pixiu_pb2 import PLAIN, SYSTEM, MsgChat
from pixiu.model.timeline import GroupRow, PrivateRow, State

__all__ = [
    "ID_MAX",
    "Content",
    "Layout",
    "bucket_of",
    "content_of",
    "group_values",
    "pk_of",
    "private_values",
    "usid_of",
]

ID_MAX = 2**63 - 1
BUCKET_MS = 30 * 86_400_000

_MESSAGE = "usid bigint, tm bigint"
_REST = "st tinyint, ct tinyint, mt tinyint, draf blob, pr varint, ref varint"
_WIPED = "st=?, usid=0, tm=?, ct=0, mt=0, draf=0x, pr=0, ref=0"
"""What a recall leaves: who, where and when."""


def pk_of(owner: int) -> int:
    """The low 16 bits of a user's or a group's number, signed."""
    return ((owner & 0xFFFF) ^ 0x8000) - 0x8000


def bucket_of(message_id: int) -> int:
    """Which 30 days a message is of."""
    return (message_id >> 22) // BUCKET_MS


class Content(NamedTuple):
    """The columns of a row that are made from the body."""

    usid: int
    tm: int
    ct: int
    mt: int
    draf: bytes
    pr: int
    ref: int


def content_of(message_id: int, body: bytes | None) -> Content:
    """A row's content; that of a body which is not there says when it was said."""
    chat = MsgChat()
    if body is not None:
        try:
            chat = MsgChat.FromString(body)
        except DecodeError:
            body = None
    if body is None:
        return Content(0, snowflake_time_ms(message_id), 0, 0, b"", 0, 0)
    ct = 1 if chat.chatType == SYSTEM else 2 if chat.encType != PLAIN else 0
    return Content(
        usid_of(chat.sendId),
        chat.tm,
        ct,
        max(-128, min(chat.msgType, 127)),
        chat.data,
        chat.keyPrint,
        chat.refMessageId,
    )


def usid_of(send_id: str) -> int:
    """A send_id as the seed's 64-bit column (C17): its number if it is a decimal, else a hash of it; 0 for none."""
    if not send_id:
        return 0
    digits = send_id.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        number = int(send_id)
        if -ID_MAX - 1 <= number <= ID_MAX:
            return number
    return int.from_bytes(blake2b(send_id.encode(), digest_size=8).digest(), "big", signed=True)


def private_values(row: PrivateRow, content: Content) -> tuple[object, ...]:
    """In the order of ``Layout.put_private``, without its key. What was recalled has no content."""
    if row.state == State.RECALLED:
        content = content_of(row.message_id, None)
    usid, tm, ct, mt, draf, pr, ref = content
    incoming = int(row.is_incoming)
    return (row.peer, usid, tm, row.delivered_at, row.read_at, incoming, row.state, ct, mt, draf, pr, ref)


def group_values(row: GroupRow, content: Content) -> tuple[object, ...]:
    """In the order of ``Layout.put_group``, without its key and ``prev``. In groups ``ct`` is 1 for notices."""
    if row.state == State.RECALLED:
        content = content_of(row.message_id, None)
    usid, tm, ct, mt, draf, pr, ref = content
    return (row.from_user, usid, tm, 0, row.state, int(ct == 1), mt, draf, pr, ref)


class Layout:
    """The statements of one layout."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_bucketed = name == "bucketed"
        self.has_prev_table = name == "seed"
        bucket = ", bucket" if self.is_bucketed else ""
        self._user_key = f"(pk, uid1, id{bucket})"
        self._bucket_column = "bucket int, " if self.is_bucketed else ""
        self._bucket_where = " AND bucket=?" if self.is_bucketed else ""

    def key(self, owner: int, message_id: int) -> tuple[int, ...]:
        """What names the partition of a message."""
        if self.is_bucketed:
            return pk_of(owner), owner, bucket_of(message_id)
        return pk_of(owner), owner

    # Tables.

    def tables(self) -> dict[str, str]:
        """The statements that make them, by name, with ``{keyspace}`` in them."""
        private, group = {
            "default": ("(pk, uid1), id", "(pk, gid), id"),
            "seed": ("pk, uid1, id", "pk, gid, id"),
            "bucketed": ("(pk, uid1, bucket), id", "(pk, gid, bucket), id"),
        }[self.name]
        create = "CREATE TABLE IF NOT EXISTS {keyspace}."
        prev = "" if self.has_prev_table else "prev bigint, "
        found = {
            "pchat": f"pchat (pk smallint, uid1 bigint, uid2 bigint, id bigint, {self._bucket_column}{_MESSAGE}, "
            f"tm1 bigint, tm2 bigint, io tinyint, {_REST}, PRIMARY KEY ({private}))",
            "gchat": f"gchat (pk smallint, gid bigint, uid bigint, id bigint, {self._bucket_column}{_MESSAGE}, "
            f"res tinyint, {_REST}, {prev}PRIMARY KEY ({group}))",
            "pixiu_topic": "pixiu_topic (pk smallint, uid1 bigint, uid2 bigint, id bigint, io tinyint, st tinyint, "
            "tm1 bigint, tm2 bigint, PRIMARY KEY ((pk, uid1, uid2), id))",
            "pixiu_applied": "pixiu_applied (lane text PRIMARY KEY, event_id bigint, highest bigint, layout text)",
        }
        if self.has_prev_table:
            found["pixiu_prev"] = "pixiu_prev (pk smallint, gid bigint, id bigint, prev bigint, "
            found["pixiu_prev"] += "PRIMARY KEY ((pk, gid), id))"
        if self.is_bucketed:
            found["pixiu_bucket"] = "pixiu_bucket (kind tinyint, owner bigint, bucket int, "
            found["pixiu_bucket"] += "PRIMARY KEY ((kind, owner), bucket))"
        return {name: create + rest for name, rest in found.items()}

    def keys(self) -> dict[str, tuple[list[str], list[str]]]:
        """The key columns that ``pchat`` and ``gchat`` must have: those of the partition, and the others."""

        def of(owner: str) -> tuple[list[str], list[str]]:
            return {
                "default": (["pk", owner], ["id"]),
                "seed": (["pk"], [owner, "id"]),
                "bucketed": (["pk", owner, "bucket"], ["id"]),
            }[self.name]

        return {"pchat": of("uid1"), "gchat": of("gid")}

    # Writes. A key is (pk, owner), with the bucket where there is one; then comes the id.

    def _insert(self, table: str, owner: str, columns: str) -> str:
        bucket = ["bucket"] if self.is_bucketed else []
        names = ["pk", owner, *bucket, "id", *columns.split()]
        return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"

    def put_private(self) -> str:
        """A whole row."""
        return self._insert("pchat", "uid1", "uid2 usid tm tm1 tm2 io st ct mt draf pr ref")

    def put_group(self) -> str:
        """A whole row, with ``prev`` where there is room for it."""
        columns = "uid usid tm res st ct mt draf pr ref"
        return self._insert("gchat", "gid", columns if self.has_prev_table else f"{columns} prev")

    def mark_private(self) -> str:
        """State and receipts: st, tm1, tm2, key, id."""
        return f"UPDATE pchat SET st=?, tm1=?, tm2=? WHERE pk=? AND uid1=?{self._bucket_where} AND id=?"

    def recall_private(self) -> str:
        """State and time, receipts, key, id; content goes."""
        return f"UPDATE pchat SET {_WIPED}, tm1=?, tm2=? WHERE pk=? AND uid1=?{self._bucket_where} AND id=?"

    def recall_group(self) -> str:
        """State and time, key, id; content goes."""
        return f"UPDATE gchat SET {_WIPED} WHERE pk=? AND gid=?{self._bucket_where} AND id=?"

    def drop(self, table: str, owner: str) -> str:
        """Everything through an id: key, id."""
        return f"DELETE FROM {table} WHERE pk=? AND {owner}=?{self._bucket_where} AND id<=?"

    # Reads: key, ids above, ids below, limit.

    def page(self, table: str, *, is_back: bool) -> str:
        """A page of ``pchat`` or ``gchat``."""
        owner = "uid1" if table == "pchat" else "gid"
        columns = "id, uid2, io, st, tm1, tm2" if table == "pchat" else "id, uid, st, prev"
        if table == "gchat" and self.has_prev_table:
            columns = "id, uid, st"
        order = f"{owner} DESC, id DESC" if self.name == "seed" else "id DESC"
        where = f"pk=? AND {owner}=?{self._bucket_where} AND id>? AND id<?"
        return f"SELECT {columns} FROM {table} WHERE {where}{f' ORDER BY {order}' if is_back else ''} LIMIT ?"


def plain_page(columns: str, table: str, keys: Sequence[str], *, is_back: bool) -> str:
    """A page of a table that is the same in every layout."""
    where = " AND ".join(f"{key}=?" for key in keys)
    order = " ORDER BY id DESC" if is_back else ""
    return f"SELECT {columns} FROM {table} WHERE {where} AND id>? AND id<?{order} LIMIT ?"
