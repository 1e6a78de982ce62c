"""Messages of a cluster to bytes and back.

A message on the wire is its kind (one byte), its length (two bytes in a datagram, four in a stream's frame) and its
fields. A datagram holds as many as fit; a message that fits none is divided where its meaning allows (rows, ids), and
one that cannot be divided goes over a stream.
"""

from __future__ import annotations

import struct
import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any

from pixiu.machines.links.messages import (
    AskRoutes,
    Beat,
    BeatBack,
    Declined,
    News,
    Reach,
    RoomAck,
    RoomFrame,
    Routes,
    Settled,
    SliceSettled,
    StreamKey,
    Taken,
    Talk,
    Want,
)
from pixiu.machines.room_link import Ack, Frame
from pixiu.machines.rooms import Fan
from pixiu.machines.routes import Digest, RouteRow
from pixiu.machines.scheduling import Priority
from pixiu.machines.seqlog import Missing
from pixiu.machines.view import PeerState
from pixiu.machines.wire.fields import COUNT, NUMBER, Reader, text_bytes
from pixiu.model.errors import RemoteProtocolError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.machines.links.messages import ClusterMessage

__all__ = ["TALK", "TALK_HEAD", "decode", "divide", "encode", "kind_of"]

_TWO = Struct(">QQ")
_KEY = Struct(">BHH")
_BEAT_BACK = Struct(">QBI")
TALK_HEAD = Struct(">IQQQBBB")
"""Of a ``Talk``: its fields in order, before the body. The room is what a proxy has to look at."""
_TALK_BYTES = TALK_HEAD.size
_DECLINED = Struct(">QQIII")
_FRAME = Struct(">QQQQI")
_FAN = Struct(">QQBI")
_ROW = Struct(">QQQQQB")
_REACH = Struct(">QQQIQ")
_WANT = Struct(">QQ")
_ASK = Struct(">I")
_ROUTES = Struct(">QQIII")

_IS_RELIABLE, _IS_END, _HAS_SESSIONS = 1, 2, 4
_STATES = (PeerState.INIT, PeerState.RUNNING, PeerState.DRAINING)
_PRIORITIES = tuple(Priority)
_IS_LITTLE = sys.byteorder == "little"


def encode(message: ClusterMessage) -> bytes:
    """The fields of a message. Raises ``RequestError`` for a number that has no place in it."""
    try:
        return _WRITERS[type(message)][1](message)
    except (struct.error, OverflowError) as error:
        raise RequestError(f"a number cannot be passed on: {error}") from None


def kind_of(message: ClusterMessage) -> int:
    """The number of a message's kind."""
    return _WRITERS[type(message)][0]


def decode(kind: int, body: bytes) -> ClusterMessage:
    """A message. Raises ``RemoteProtocolError``."""
    if kind == TALK:  # most of what a broker reads
        return _talk_of(body)
    read = _READERS.get(kind)
    if read is None:
        raise RemoteProtocolError(f"there is no message of kind {kind}")
    reader = Reader(body, 0)
    message = read(reader)
    reader.end()
    return message


def divide(message: ClusterMessage, parts: int) -> list[ClusterMessage]:
    """The same in about so many messages, cut between rows or ids; the message itself if it cannot be cut."""
    if type(message) is News and len(message.rows) > 1:
        return [message._replace(first=message.first + begin, rows=rows) for begin, rows in _cut(message.rows, parts)]
    if type(message) in (Taken, Settled, SliceSettled) and len(message.message_ids) > 1:  # type: ignore[union-attr]
        return [message._replace(message_ids=ids) for _, ids in _cut(message.message_ids, parts)]  # type: ignore[union-attr, call-arg]
    return [message]


def _cut(items: Sequence[Any], parts: int) -> list[tuple[int, Sequence[Any]]]:
    size = -(-len(items) // max(parts, 2))
    return [(begin, items[begin : begin + size]) for begin in range(0, len(items), size)]


# Each message: how it is written, and how it is read.


def _write_beat(message: Beat) -> bytes:
    return NUMBER.pack(message.number)


def _read_beat(reader: Reader) -> Beat:
    return Beat(reader.number())


def _write_beat_back(message: BeatBack) -> bytes:
    return _BEAT_BACK.pack(message.number, _STATES.index(message.state), message.waiting)


def _read_beat_back(reader: Reader) -> BeatBack:
    number, state, waiting = reader.take(_BEAT_BACK)
    return BeatBack(number, _one_of(_STATES, state), waiting)


def _write_talk(message: Talk) -> bytes:
    return TALK_HEAD.pack(*message[:7]) + message.body


def _talk_of(body: bytes) -> Talk:
    if len(body) < _TALK_BYTES:
        raise RemoteProtocolError(f"talk has at least {_TALK_BYTES} bytes, not {len(body)}")
    version, room, message_id, publisher, copy, priority, is_reliable = TALK_HEAD.unpack_from(body)
    if priority >= len(_PRIORITIES):
        raise RemoteProtocolError(f"{priority} is none of {len(_PRIORITIES)} choices")
    is_sure = is_reliable != 0
    return Talk(version, room, message_id, publisher, copy, _PRIORITIES[priority], is_sure, body[_TALK_BYTES:])


def _read_talk(reader: Reader) -> Talk:
    return _talk_of(reader.rest())


def _ids_bytes(ids: Sequence[int]) -> bytes:
    numbers = array("Q", ids)
    if _IS_LITTLE:
        numbers.byteswap()
    return COUNT.pack(len(ids)) + numbers.tobytes()


def _read_ids(reader: Reader) -> tuple[int, ...]:
    numbers = array("Q", reader.data(NUMBER.size * reader.count(NUMBER.size)))
    if _IS_LITTLE:
        numbers.byteswap()
    return tuple(numbers)


def _write_taken(message: Taken) -> bytes:
    return _ids_bytes(message.message_ids)


def _read_taken(reader: Reader) -> Taken:
    return Taken(_read_ids(reader))


def _write_settled(message: Settled) -> bytes:
    return NUMBER.pack(message.publisher) + _ids_bytes(message.message_ids)


def _read_settled(reader: Reader) -> Settled:
    return Settled(reader.number(), _read_ids(reader))


def _write_slice_settled(message: SliceSettled) -> bytes:
    return _TWO.pack(message.publisher, message.room) + _ids_bytes(message.message_ids)


def _read_slice_settled(reader: Reader) -> SliceSettled:
    publisher, room = reader.take(_TWO)
    return SliceSettled(publisher, room, _read_ids(reader))


def _write_declined(message: Declined) -> bytes:
    publisher, message_id, code, later, count, version = message
    return _DECLINED.pack(publisher, message_id, later, count, version) + text_bytes(code)


def _read_declined(reader: Reader) -> Declined:
    publisher, message_id, later, count, version = reader.take(_DECLINED)
    return Declined(publisher, message_id, reader.text(), later, count, version)


def _write_room_frame(message: RoomFrame) -> bytes:
    life, serial, number, base, fans = message.frame
    parts = [_FRAME.pack(life, serial, number, base, len(fans))]
    for room, message_id, body, is_reliable, sessions, is_end in fans:
        flags = is_reliable * _IS_RELIABLE + is_end * _IS_END + (sessions is not None) * _HAS_SESSIONS
        parts += (_FAN.pack(room, message_id, flags, len(body)), body)
        if sessions is not None:
            parts.append(_ids_bytes(sessions))
    return b"".join(parts)


def _read_room_frame(reader: Reader) -> RoomFrame:
    life, serial, number, base, count = reader.take(_FRAME)
    fans: list[Fan] = []
    for _ in range(count):
        room, message_id, flags, size = reader.take(_FAN)
        body = reader.data(size)
        if not flags:  # live talk for everyone: most of it
            fans.append(Fan(room, message_id, body))
            continue
        sessions = _read_ids(reader) if flags & _HAS_SESSIONS else None
        fans.append(Fan(room, message_id, body, bool(flags & _IS_RELIABLE), sessions, bool(flags & _IS_END)))
    return RoomFrame(Frame(life, serial, number, base, fans))


def _write_room_ack(message: RoomAck) -> bytes:
    return _TWO.pack(*message.ack)


def _read_room_ack(reader: Reader) -> RoomAck:
    return RoomAck(Ack(*reader.take(_TWO)))


def _read_key(reader: Reader) -> StreamKey:
    kind, partition, count = reader.take(_KEY)
    if kind > 2 or not count or count & (count - 1):
        raise RemoteProtocolError(f"there is no stream {kind} {partition}/{count}")
    return StreamKey(kind, partition, count)


def _rows_bytes(rows: Sequence[RouteRow]) -> bytes:
    parts = [COUNT.pack(len(rows))]
    for room, name, user, session_id, gateway, version, is_in in rows:
        parts += (_ROW.pack(room, user, session_id, gateway, version, is_in), text_bytes(name))
    return b"".join(parts)


def _read_rows(reader: Reader) -> tuple[RouteRow, ...]:
    rows: list[RouteRow] = []
    for _ in range(reader.count(_ROW.size + COUNT.size)):
        room, user, session_id, gateway, version, is_in = reader.take(_ROW)
        rows.append(RouteRow(room, reader.text(), user, session_id, gateway, version, bool(is_in)))
    return tuple(rows)


def _write_news(message: News) -> bytes:
    return _KEY.pack(*message.key) + _TWO.pack(message.life, message.first) + _rows_bytes(message.rows)


def _read_news(reader: Reader) -> News:
    key = _read_key(reader)
    life, first = reader.take(_TWO)
    return News(key, life, first, _read_rows(reader))


def _write_reach(message: Reach) -> bytes:
    key, life, position, oldest, digest = message
    return _KEY.pack(*key) + _REACH.pack(life, position, oldest, *digest)


def _read_reach(reader: Reader) -> Reach:
    key = _read_key(reader)
    life, position, oldest, count, mix = reader.take(_REACH)
    return Reach(key, life, position, oldest, Digest(count, mix))


def _write_want(message: Want) -> bytes:
    holes = COUNT.pack(len(message.holes)) + b"".join(_TWO.pack(*hole) for hole in message.holes)
    return _KEY.pack(*message.key) + _WANT.pack(message.life, message.position) + holes


def _read_want(reader: Reader) -> Want:
    key = _read_key(reader)
    life, position = reader.take(_WANT)
    return Want(key, life, position, tuple(Missing(first, last) for first, last in reader.rows(_TWO)))


def _write_ask(message: AskRoutes) -> bytes:
    return _KEY.pack(*message.key) + _ASK.pack(message.attempt)


def _read_ask(reader: Reader) -> AskRoutes:
    return AskRoutes(_read_key(reader), *reader.take(_ASK))


def _write_routes(message: Routes) -> bytes:
    key, life, position, attempt, page, pages, marks, rows = message
    marked = COUNT.pack(len(marks)) + b"".join(_TWO.pack(*mark) for mark in marks)
    return _KEY.pack(*key) + _ROUTES.pack(life, position, attempt, page, pages) + marked + _rows_bytes(rows)


def _read_routes(reader: Reader) -> Routes:
    key = _read_key(reader)
    life, position, attempt, page, pages = reader.take(_ROUTES)
    marks = tuple((gateway, version) for gateway, version in reader.rows(_TWO))
    if page >= pages:
        raise RemoteProtocolError(f"there is no page {page} of {pages}")
    return Routes(key, life, position, attempt, page, pages, marks, _read_rows(reader))


def _one_of(choices: Sequence[Any], place: int) -> Any:
    if place >= len(choices):
        raise RemoteProtocolError(f"{place} is none of {len(choices)} choices")
    return choices[place]


_KINDS: tuple[tuple[int, type, Callable[[Any], bytes], Callable[[Reader], ClusterMessage]], ...] = (
    (1, Beat, _write_beat, _read_beat),
    (2, BeatBack, _write_beat_back, _read_beat_back),
    (3, Talk, _write_talk, _read_talk),
    (4, Taken, _write_taken, _read_taken),
    (5, Settled, _write_settled, _read_settled),
    (6, Declined, _write_declined, _read_declined),
    (7, RoomFrame, _write_room_frame, _read_room_frame),
    (8, RoomAck, _write_room_ack, _read_room_ack),
    (9, News, _write_news, _read_news),
    (10, Reach, _write_reach, _read_reach),
    (11, Want, _write_want, _read_want),
    (12, AskRoutes, _write_ask, _read_ask),
    (13, Routes, _write_routes, _read_routes),
    (14, SliceSettled, _write_slice_settled, _read_slice_settled),
)
_WRITERS = {message: (kind, write) for kind, message, write, _ in _KINDS}
_READERS = {kind: read for kind, _, _, read in _KINDS}
TALK = _WRITERS[Talk][0]
"""The kind of a ``Talk``, which a proxy passes on without reading it."""
