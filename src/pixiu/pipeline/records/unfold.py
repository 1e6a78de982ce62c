"""Records of ``pixiu.main`` become rows: messages, deliveries (what became of inbox entries), changes.

``messages`` has one row per record that says something, ``deliveries`` one per row of a ledger, ``traces`` one per
thing that a role measured, ``changes`` one per thing that a record changes: a group with three members is a row for the
group and one for each of them. A record that nobody can read is a row of ``changes`` too (``undecodable``), so that it
is counted and not lost from sight.

Messages are taken apart by the batch parser; the rare records that change something by protobuf itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import (
    ChatMsgType,
    LimitsChanged,
    MemberChanged,
    Push,
    Record,
)
from pixiu.pipeline.records.deliveries import delivery_rows, is_sound
from pixiu.pipeline.records.schema import SCHEMAS
from pixiu.pipeline.records.traces import trace_rows
from pixiu.pipeline.records.walk import PADDING, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["TABLES", "Records", "said_in", "unfold"]

_WHATS = {
    10: "user", 11: "contact", 12: "block", 13: "group_info", 14: "member", 15: "recalled", 16: "receipt", 17: "read",
    18: "inbox", 19: "push", 20: "ledger", 21: "limits", 22: "traces", 30: "erased", 31: "push_token", 32: "partitions",
    33: "trimmed",
}  # fmt: skip
"""Fields of ``Record.what``."""

_LEDGER = 20
_TRACES = 22
_SYSTEM_CHAT = 3
_DELETE = 5
_UNREADABLE = -2
_KINDS = {-1: "system", _UNREADABLE: "unreadable"} | {number: name.lower() for name, number in ChatMsgType.items()}

Row = dict[str, Any]


class Records:
    """Records of one batch, walked once, whatever tables are made of them."""

    def __init__(
        self, event_id: Any, message_id: Any, written_at: Any, size: Any, buffer: Any, start: Any, end: Any
    ) -> None:
        """Each lies in ``buffer`` from ``start`` to ``end``, with ``PADDING`` bytes behind the last; none is at 0."""
        self.rows = len(start)
        self.event_id = event_id
        self.message_id = message_id
        self.written_at = written_at
        self.bytes = size
        self.buffer = buffer
        self.start = start
        self.end = end
        self.record = walk(self.buffer, self.start, self.end)
        self.what: Any = np.zeros(self.rows, dtype=np.int64)
        for field in _WHATS:
            if field in self.record.seen:
                self.what[self.record.has(field)] = field
        begin, end = self.record.span(3)
        self.says = (end > begin) & ~self.record.is_bad
        # The same rule as the appliers': who says something has a number.
        self.is_bad = self.record.is_bad | (self.says & (self.message_id == 0))
        self.says &= ~self.is_bad

    @classmethod
    def of_rows(cls, batch: Any) -> Records:
        """From rows of the source with all columns, of the topic ``pixiu.main``."""
        payload = batch.column("payload")
        _, offsets, data = payload.buffers()
        places = np.frombuffer(offsets, dtype=np.int32)[payload.offset : payload.offset + batch.num_rows + 1]
        content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(
            batch.column("event_id").to_numpy(),
            batch.column("message_id").to_numpy(),
            batch.column("written_at"),
            batch.column("bytes"),
            np.concatenate([np.zeros(1, np.uint8), content, np.zeros(PADDING, np.uint8)]),
            places[:-1].astype(np.int64) + 1,
            places[1:].astype(np.int64) + 1,
        )

    def parsed(self, row: int) -> Record | None:
        """A record as protobuf sees it; None if it cannot."""
        try:
            return Record.FromString(self.buffer[self.start[row] : self.end[row]].tobytes())
        except DecodeError:
            return None


def unfold(records: Records, table: str) -> Any:
    """The rows that records give for a table."""
    return TABLES[table](records)


def said_in(batch: Any) -> tuple[Any, Any, Any]:
    """Of a batch of records: which of them say something, the times of all, and the chats of those that do."""
    walked = Records.of_rows(batch)
    rows = np.flatnonzero(walked.says)
    begin, end = (side[rows] for side in walked.record.span(3))
    chats = _taken(walked.buffer, begin, end, np.zeros(len(rows), dtype=bool))
    return rows, walked.record.number(1), chats


# Messages.


def _messages(batch: Records) -> Any:
    rows = np.flatnonzero(batch.says)
    begin, end = (side[rows] for side in batch.record.span(3))
    chat = walk(batch.buffer, begin, end)
    record = batch.record
    recipient, group = record.number(4)[rows].copy(), record.number(5)[rows].copy()
    what = batch.what[rows]
    for place in np.flatnonzero(what).tolist():
        _address(batch, int(rows[place]), place, recipient, group)
    encryption = chat.number(16)
    kinds = chat.number(8)
    is_text = (kinds == 0) & (encryption == 0) & ~chat.is_bad
    body_begin, body_end = (np.where(chat.is_bad, *sides) for sides in zip((begin, end), chat.span(9), strict=True))
    names = np.array([_WHATS.get(number, "") for number in range(max(_WHATS) + 1)], dtype=object)
    schema = SCHEMAS["messages"]
    columns = {
        "message_id": batch.message_id[rows],
        "event_id": batch.event_id[rows],
        "accepted_at": pa.array(record.number(1)[rows] * 1000).cast(schema.field("accepted_at").type),
        "written_at": batch.written_at.take(pa.array(rows)),
        "sender_id": record.number(2)[rows],
        "recipient_id": recipient,
        "group_id": group,
        "kind": _kinds(np.where(chat.is_bad, _UNREADABLE, kinds), chat.number(17)),
        "notice": pa.array(names[what], pa.string(), mask=what == 0)
        if what.any()
        else pa.nulls(len(rows), pa.string()),
        "text": _texts(batch.buffer, body_begin * is_text, body_end, ~is_text),
        "body": _taken(batch.buffer, body_begin * ~is_text, body_end, is_text),
        "send_id": _texts(batch.buffer, *chat.span(7), ~chat.has(7)),
        "device": _texts(batch.buffer, *chat.span(6), ~chat.has(6)),
        "ref": chat.number(11),
        "priority": chat.number(10).astype(np.int32),
        "encryption": encryption.astype(np.int32),
        "options": record.number(6)[rows].astype(np.int32),
        "session": record.number(7)[rows],
        "bytes": batch.bytes.take(pa.array(rows)),
    }
    return pa.RecordBatch.from_arrays([_array(columns[name]) for name in schema.names], schema=schema)


def _array(values: Any) -> Any:
    return pa.array(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values


def _address(batch: Records, row: int, place: int, recipient: Any, group: Any) -> None:
    """Where a notice is said, if the record does not say it in so many words."""
    parsed = batch.parsed(row)
    what = parsed.WhichOneof("what") if parsed is not None else None
    if parsed is None or parsed.to or what is None:
        return
    if what in ("contact", "block"):
        recipient[place] = parsed.contact.peer if what == "contact" else parsed.block.peer
    elif what == "group_info":
        group[place] = parsed.group or parsed.group_info.group or int(batch.message_id[row])
    elif what == "member":
        group[place] = parsed.group or parsed.member.group


def _kinds(kinds: Any, chat_types: Any) -> Any:
    """Kinds by name; a message of the system is one, whatever it is made of, unless it is a recall."""
    is_system = (chat_types == _SYSTEM_CHAT) & (kinds != _DELETE) & (kinds != _UNREADABLE)
    shown = np.where(is_system, -1, kinds)
    if len(shown) and (shown == shown[0]).all():
        return pa.repeat(_KINDS.get(int(shown[0]), str(shown[0])), len(shown))
    numbers, codes = np.unique(shown, return_inverse=True)
    names = [_KINDS.get(number, str(number)) for number in numbers.tolist()]
    return pa.array(names, pa.string()).take(pa.array(codes))


def _taken(buffer: Any, begin: Any, end: Any, is_null: Any) -> Any:
    """Slices of the buffer as binary values. They lie in it in the order of their rows."""
    count = len(begin)
    if is_null.all():
        return pa.nulls(count, pa.binary())
    # What is absent has no place; give it the end of what comes before it, so that offsets only rise.
    end = np.maximum.accumulate(np.where(begin > 0, end, 0)) if count else end
    before = np.concatenate([np.zeros(1, np.int64), end[:-1]]) if count else end
    begin = np.where(begin > 0, begin, before)
    offsets = np.empty(2 * count + 1, dtype=np.int32)
    offsets[0:-1:2], offsets[1:-1:2] = begin, end
    offsets[-1] = end[-1] if count else 0
    array = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    places = np.arange(count, dtype=np.int64) * 2
    return array.take(pa.array(places, mask=is_null))


def _texts(buffer: Any, begin: Any, end: Any, is_null: Any) -> Any:
    """The same as texts; what is no UTF-8 is shown with replacement characters."""
    taken = _taken(buffer, begin, end, is_null)
    try:
        return taken.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in taken.to_pylist()]
        return pa.array(texts, pa.string())


# Deliveries.


def _deliveries(batch: Records) -> Any:
    ledgers = np.flatnonzero((batch.what == _LEDGER) & ~batch.is_bad).tolist()
    parsed = ((int(batch.event_id[row]), batch.parsed(row)) for row in ledgers)
    return delivery_rows((event_id, record) for event_id, record in parsed if record is not None)


def _built(found: dict[str, list[Any]], schema: Any) -> Any:
    arrays = [
        pa.array(found[field.name], pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(found[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Changes.


def _changes(batch: Records) -> Any:
    schema = SCHEMAS["changes"]
    found: dict[str, list[Any]] = {name: [] for name in schema.names}
    changes = (batch.what > 0) & (batch.what != _LEDGER) & (batch.what != _TRACES)
    for row in np.flatnonzero(changes | batch.is_bad | _unsound(batch)).tolist():
        parsed = None if batch.is_bad[row] else batch.parsed(row)
        what = parsed.WhichOneof("what") if parsed is not None else None
        event_id, message_id = int(batch.event_id[row]), int(batch.message_id[row])
        rows: Iterator[Row] = iter([{"what": "undecodable"}])
        if parsed is not None and what not in (None, "ledger", "traces"):
            rows = _ROWS[what](parsed, message_id)
        for number, values in enumerate(rows):
            values = {
                "actor_id": parsed.actor if parsed is not None else 0,
                "accepted_at": (parsed.at if parsed is not None else 0) * 1000,
                "event_id": event_id,
                "message_id": message_id,
                "part": number,
                **values,
            }
            for field in schema:
                found[field.name].append(values.get(field.name, _EMPTY.get(field.type)))
    return _built(found, schema)


def _unsound(batch: Records) -> Any:
    """Ledgers whose columns do not fit together, which the appliers pass over; what protobuf cannot read."""
    found = np.zeros(batch.rows, dtype=bool)
    for row in np.flatnonzero(((batch.what == _LEDGER) | (batch.what == _TRACES)) & ~batch.is_bad).tolist():
        parsed = batch.parsed(row)
        if parsed is None:
            found[row] = True
            continue
        ledger = parsed.ledger
        found[row] = not all(
            is_sound(getattr(ledger, what), len(ledger.platforms)) for what in ("expired", "dead", "acked")
        )
    return found


_EMPTY = {pa.int64(): 0, pa.int32(): 0}


def _user(parsed: Record, message_id: int) -> Iterator[Row]:
    change = parsed.user
    yield {
        "what": "user",
        "user_id": change.user or message_id,
        "public_id": change.public_id,
        "name": change.name,
    }


def _contact(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.contact
    yield {"what": "link" if change.is_linked else "unlink", "user_id": change.user, "peer_id": change.peer}


def _block(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.block
    yield {"what": "block" if change.is_blocked else "unblock", "user_id": change.user, "peer_id": change.peer}


def _group_info(parsed: Record, message_id: int) -> Iterator[Row]:
    change = parsed.group_info
    number = change.group or message_id
    yield {
        "what": "group",
        "group_id": number,
        "user_id": change.owner,
        "public_id": change.public_id,
        "name": change.name,
        "number": int(change.is_large),
    }
    for user in sorted({*change.members, change.owner}):
        yield {"what": "founder", "group_id": number, "user_id": user}


def _member(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.member
    yield {"what": MemberChanged.Op.Name(change.op).lower(), "group_id": change.group, "user_id": change.user}


def _recalled(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.recalled
    yield {
        "what": "recalled",
        "about": change.message_id,
        "user_id": getattr(change, "from"),
        "peer_id": change.to,
        "group_id": change.group,
    }


def _receipt(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.receipt
    sender = getattr(change, "from")
    for what, is_so in (("delivered", change.is_delivered), ("seen", change.is_read)):
        if is_so:
            for message_id in change.message_ids:
                yield {"what": what, "about": message_id, "user_id": sender, "peer_id": change.peer}


def _read(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.read
    yield {
        "what": "read",
        "user_id": change.user,
        "peer_id": change.peer,
        "group_id": change.group,
        "about": change.through,
    }


def _inbox(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.inbox
    makes_sense = change.user and change.platform
    yield {"what": "inbox" if makes_sense else "undecodable", "user_id": change.user, "platform": change.platform}


def _push(parsed: Record, _: int) -> Iterator[Row]:
    """Each user once, with the choice that counts for this one (as InboxApplier has it)."""
    push: Push = parsed.push
    exclusive = dict(push.exclusive)
    for user in dict.fromkeys(push.users):
        platforms, without, options = push.platforms, push.without_platforms, parsed.options
        own = exclusive.get(user)
        if own is not None:
            if own.platforms or own.without_platforms:
                platforms, without = own.platforms, own.without_platforms
            options = own.options if own.has_options else options
        if not platforms:
            for platform in sorted(set(push.opened) - set(without)):
                yield {"what": "inbox", "user_id": user, "platform": platform}
        yield {
            "what": "push",
            "user_id": user,
            "platforms": sorted(set(platforms)),
            "without_platforms": sorted(set(without)),
            "options": options,
        }


def _limits(parsed: Record, _: int) -> Iterator[Row]:
    change: LimitsChanged = parsed.limits
    yield {"what": "limit", "platform": "", "number": change.offline_max}
    for platform, number in sorted(change.offline_max_by_platform.items()):
        yield {"what": "limit", "platform": platform, "number": number}


def _erased(parsed: Record, _: int) -> Iterator[Row]:
    yield {"what": "erased", "user_id": parsed.erased.user}


def _push_token(parsed: Record, _: int) -> Iterator[Row]:
    # The token itself is a way to a person's phone: it stays in the log.
    change = parsed.push_token
    what = "register_push" if change.is_registered else "unregister_push"
    yield {"what": what, "user_id": change.user, "platform": change.platform}


def _partitions(parsed: Record, _: int) -> Iterator[Row]:
    yield {"what": "partitions", "platform": parsed.partitions.role, "number": parsed.partitions.count}


def _trimmed(parsed: Record, _: int) -> Iterator[Row]:
    change = parsed.trimmed
    for user in change.users:
        yield {"what": "trimmed", "user_id": user, "about": change.through}
    for group in change.groups:
        yield {"what": "trimmed", "group_id": group, "about": change.through}
    for key in change.keys:  # who has sent, and under which send id; all of it as digits, since it may be no text
        sender, send_id = int.from_bytes(key[:8], "big", signed=True), key[8:].decode(errors="replace")
        yield {"what": "forgot", "user_id": sender, "name": send_id, "public_id": key.hex(), "about": change.through}


_ROWS: dict[str, Callable[[Record, int], Iterator[Row]]] = {
    "user": _user,
    "contact": _contact,
    "block": _block,
    "group_info": _group_info,
    "member": _member,
    "recalled": _recalled,
    "receipt": _receipt,
    "read": _read,
    "inbox": _inbox,
    "push": _push,
    "limits": _limits,
    "partitions": _partitions,
    "erased": _erased,
    "push_token": _push_token,
    "trimmed": _trimmed,
}

# Traces.


def _traces(batch: Records) -> Any:
    schema = SCHEMAS["traces"]
    found: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in np.flatnonzero((batch.what == _TRACES) & ~batch.is_bad).tolist():
        parsed = batch.parsed(row)
        if parsed is None:
            continue  # a row of changes says so
        event_id, noted_at, node = int(batch.event_id[row]), parsed.at * 1000, parsed.traces.node
        for number, values in enumerate(trace_rows(parsed)):
            values = {"event_id": event_id, "part": number, "noted_at": noted_at, "node": node, **values}
            for name in schema.names:
                found[name].append(values.get(name))
    return _built(found, schema)


TABLES: dict[str, Callable[[Records], Any]] = {
    "messages": _messages,
    "deliveries": _deliveries,
    "changes": _changes,
    "traces": _traces,
}
