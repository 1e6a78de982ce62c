"""Messages to frames and back."""

from __future__ import annotations

import struct
from itertools import starmap
from struct import Struct
from typing import TYPE_CHECKING, Any

from pixiu.machines.room_link import Ack, Frame
from pixiu.machines.rooms import Fan
from pixiu.machines.session.framing import LengthPrefixed
from pixiu.machines.wire.fields import COUNT, NUMBER, Reader, error_bytes, names_bytes, object_bytes, text_bytes
from pixiu.machines.wire.messages import (
    Acks,
    Alive,
    Answer,
    Call,
    End,
    Event,
    Find,
    Found,
    Heartbeat,
    Hello,
    Lives,
    LoggedIn,
    LogIn,
    LogOut,
    Pushes,
    PushRow,
    Refusal,
    Request,
    RoomAck,
    RoomFrame,
    Welcome,
    Writing,
)
from pixiu.model.errors import RemoteProtocolError, RequestError, TooLarge
from pixiu.model.session import LOGOUT_CAUSES, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.wire.messages import WireMessage

__all__ = ["FRAME_BYTES_MAX", "Stream", "encode"]

FRAME_BYTES_MAX = 64 * 2**20
"""The largest frame: more than the largest page of the largest messages."""

_HEAD = Struct(">IB")
_HELLO = Struct(">4sH")
_MAGIC = b"PXGW"
_WELCOME = Struct(">QI")
_LOGIN = Struct(">QQ")
_SESSION = Struct(">QQQQQ")
_REQUEST = Struct(">QQB")
_CALL = Struct(">QQB")
_TWO = Struct(">QQ")
_BODY = Struct(">QI")
_ROW = Struct(">QQQI??QB")
_FRAME = Struct(">QQQQ")
_FAN = Struct(">QQBI")
_BEAT = Struct(">QB")

_IS_RELIABLE, _IS_END, _HAS_SESSIONS = 1, 2, 4


def encode(message: WireMessage) -> bytes:
    """One frame.

    Raises ``TooLarge`` for more than a frame holds, ``RequestError`` for an object that cannot be passed on.
    """
    kind, write = _WRITERS[type(message)]
    try:
        body = write(message)
    except struct.error as error:
        raise RequestError(f"a number cannot be passed on: {error}") from None
    if len(body) >= FRAME_BYTES_MAX:
        raise TooLarge(f"{len(body)} bytes are more than one frame holds ({FRAME_BYTES_MAX})")
    return _HEAD.pack(len(body) + 1, kind) + body


def decode(frame: bytes) -> WireMessage:
    """The message of a frame, without its length. Raises ``RemoteProtocolError``."""
    kind = frame[0] if frame else -1
    read = _READERS.get(kind)
    if read is None:
        raise RemoteProtocolError(f"there is no message of kind {kind}")
    reader = Reader(frame, 1)
    message = read(reader)
    reader.end()
    return message


class Stream:
    """One direction of a link: bytes as they come, messages as they are whole."""

    __slots__ = ("_frames",)

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frames = LengthPrefixed(bytes_max)

    def feed(self, data: bytes) -> list[WireMessage]:
        """Messages that are whole now. Raises ``RemoteProtocolError``: then all is lost, close."""
        return [decode(frame) for frame in self._frames.feed(data)]

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole."""
        return self._frames.buffered


# Each message: how it is written, and how it is read.


def _write_hello(message: Hello) -> bytes:
    return _HELLO.pack(_MAGIC, message.version) + text_bytes(message.name)


def _read_hello(reader: Reader) -> Hello:
    magic, version = reader.take(_HELLO)
    if magic != _MAGIC:
        raise RemoteProtocolError("the peer is no gateway")
    return Hello(version, reader.text())


def _write_welcome(message: Welcome) -> bytes:
    return _WELCOME.pack(*message)


def _read_welcome(reader: Reader) -> Welcome:
    return Welcome(*reader.take(_WELCOME))


def _write_login(message: LogIn) -> bytes:
    texts = text_bytes(message.user) + text_bytes(message.platform) + text_bytes(message.device)
    return _LOGIN.pack(message.request, message.cursor) + texts


def _read_login(reader: Reader) -> LogIn:
    request, cursor = reader.take(_LOGIN)
    return LogIn(request, reader.text(), reader.text(), reader.text(), cursor)


def _write_logged_in(message: LoggedIn) -> bytes:
    request, (session_id, user, platform, device, number, gateway, epoch) = message
    texts = text_bytes(platform) + text_bytes(device) + text_bytes(gateway)
    return _SESSION.pack(request, session_id, user, number, epoch) + texts


def _read_logged_in(reader: Reader) -> LoggedIn:
    request, session_id, user, number, epoch = reader.take(_SESSION)
    platform, device, gateway = reader.text(), reader.text(), reader.text()
    return LoggedIn(request, Session(session_id, user, platform, device, number, gateway, epoch))


def _write_logout(message: LogOut) -> bytes:
    return NUMBER.pack(message.session_id) + text_bytes(message.cause)


def _read_logout(reader: Reader) -> LogOut:
    session_id, cause = reader.number(), reader.text()
    if cause not in LOGOUT_CAUSES:
        raise RemoteProtocolError(f"a session does not end by {cause[:20]!r}")
    return LogOut(session_id, cause)


def _write_request(message: Request) -> bytes:
    head = _REQUEST.pack(message.request, message.session_id, message.is_admin)
    return head + text_bytes(message.action) + object_bytes(message.params)


def _read_request(reader: Reader) -> Request:
    request, session_id, is_admin = reader.take(_REQUEST)
    return Request(request, session_id, bool(is_admin), reader.text(), reader.object())


def _write_answer(message: Answer) -> bytes:
    return NUMBER.pack(message.request) + object_bytes(message.result)


def _read_answer(reader: Reader) -> Answer:
    return Answer(reader.number(), reader.object())


def _write_refusal(message: Refusal) -> bytes:
    return NUMBER.pack(message.request) + error_bytes(message.error)


def _read_refusal(reader: Reader) -> Refusal:
    return Refusal(reader.number(), reader.error())


def _write_acks(message: Acks) -> bytes:
    return COUNT.pack(len(message.acks)) + b"".join(_TWO.pack(*ack) for ack in message.acks)


def _read_acks(reader: Reader) -> Acks:
    return Acks([(session_id, cursor) for session_id, cursor in reader.rows(_TWO)])


def _write_lives(message: Lives) -> bytes:
    return COUNT.pack(len(message.session_ids)) + b"".join(map(NUMBER.pack, message.session_ids))


def _read_lives(reader: Reader) -> Lives:
    return Lives([session_id for (session_id,) in reader.rows(NUMBER)])


def _write_writing(message: Writing) -> bytes:
    return _write_lives(Lives(message.session_ids))


def _read_writing(reader: Reader) -> Writing:
    return Writing(_read_lives(reader).session_ids)


def _write_pushes(message: Pushes) -> bytes:
    bodies, rows, users, groups = message
    parts = [COUNT.pack(len(bodies))]
    for message_id, body in bodies:
        parts += (_BODY.pack(message_id, len(body)), body)
    parts += (COUNT.pack(len(rows)), *starmap(_ROW.pack, rows), names_bytes(users), names_bytes(groups))
    return b"".join(parts)


def _read_pushes(reader: Reader) -> Pushes:
    bodies: list[tuple[int, bytes]] = []
    for _ in range(reader.count(_BODY.size)):
        message_id, size = reader.take(_BODY)
        bodies.append((message_id, reader.data(size)))
    rows = list(starmap(PushRow, reader.rows(_ROW)))
    if max((row[3] for row in rows), default=-1) >= len(bodies):
        raise RemoteProtocolError(f"a push names a body that is not among the {len(bodies)} of its frame")
    return Pushes(bodies, rows, reader.names(), reader.names())


def _write_event(message: Event) -> bytes:
    return _write_lives(Lives(message.session_ids)) + object_bytes(message.event)


def _read_event(reader: Reader) -> Event:
    return Event(_read_lives(reader).session_ids, reader.object())


def _write_end(message: End) -> bytes:
    return NUMBER.pack(message.session_id) + text_bytes(message.reason)


def _read_end(reader: Reader) -> End:
    return End(reader.number(), reader.text())


def _write_room_frame(message: RoomFrame) -> bytes:
    life, serial, number, base, fans = message.frame
    parts = [text_bytes(message.source), _FRAME.pack(life, serial, number, base), COUNT.pack(len(fans))]
    for room, message_id, body, is_reliable, sessions, is_end in fans:
        flags = is_reliable * _IS_RELIABLE + is_end * _IS_END + (sessions is not None) * _HAS_SESSIONS
        parts += (_FAN.pack(room, message_id, flags, len(body)), body)
        if sessions is not None:
            parts.append(_write_lives(Lives(sessions)))
    return b"".join(parts)


def _read_room_frame(reader: Reader) -> RoomFrame:
    source, (life, serial, number, base) = reader.text(), reader.take(_FRAME)
    fans: list[Fan] = []
    for _ in range(reader.count(_FAN.size)):
        room, message_id, flags, size = reader.take(_FAN)
        body = reader.data(size)
        sessions = tuple(_read_lives(reader).session_ids) if flags & _HAS_SESSIONS else None
        fans.append(Fan(room, message_id, body, bool(flags & _IS_RELIABLE), sessions, bool(flags & _IS_END)))
    return RoomFrame(source, Frame(life, serial, number, base, fans))


def _write_room_ack(message: RoomAck) -> bytes:
    return text_bytes(message.source) + _TWO.pack(*message.ack)


def _read_room_ack(reader: Reader) -> RoomAck:
    return RoomAck(reader.text(), Ack(*reader.take(_TWO)))


def _write_heartbeat(message: Heartbeat) -> bytes:
    return _BEAT.pack(message.connections, message.is_open) + object_bytes(message.counts)


def _read_heartbeat(reader: Reader) -> Heartbeat:
    connections, is_open = reader.take(_BEAT)
    return Heartbeat(connections, bool(is_open), reader.object())


def _write_alive(_message: Alive) -> bytes:
    return b""


def _read_alive(_reader: Reader) -> Alive:
    return Alive()


def _write_find(message: Find) -> bytes:
    return NUMBER.pack(message.request) + text_bytes(message.user)


def _read_find(reader: Reader) -> Find:
    return Find(reader.number(), reader.text())


def _write_found(message: Found) -> bytes:
    return _TWO.pack(*message)


def _read_found(reader: Reader) -> Found:
    return Found(*reader.take(_TWO))


def _write_call(message: Call) -> bytes:
    request, user, is_admin, platform, device, action, params = message
    texts = text_bytes(platform) + text_bytes(device) + text_bytes(action)
    return _CALL.pack(request, user, is_admin) + texts + object_bytes(params)


def _read_call(reader: Reader) -> Call:
    request, user, is_admin = reader.take(_CALL)
    texts = reader.text(), reader.text(), reader.text()
    return Call(request, user, bool(is_admin), *texts, reader.object())


_KINDS: tuple[tuple[int, type, Callable[[Any], bytes], Callable[[Reader], WireMessage]], ...] = (
    (1, Hello, _write_hello, _read_hello),
    (2, Welcome, _write_welcome, _read_welcome),
    (3, Heartbeat, _write_heartbeat, _read_heartbeat),
    (4, LogIn, _write_login, _read_login),
    (5, LoggedIn, _write_logged_in, _read_logged_in),
    (6, LogOut, _write_logout, _read_logout),
    (7, Request, _write_request, _read_request),
    (8, Answer, _write_answer, _read_answer),
    (9, Refusal, _write_refusal, _read_refusal),
    (10, Acks, _write_acks, _read_acks),
    (11, Lives, _write_lives, _read_lives),
    (12, Pushes, _write_pushes, _read_pushes),
    (13, Event, _write_event, _read_event),
    (14, End, _write_end, _read_end),
    (15, RoomFrame, _write_room_frame, _read_room_frame),
    (16, RoomAck, _write_room_ack, _read_room_ack),
    (17, Alive, _write_alive, _read_alive),
    (18, Find, _write_find, _read_find),
    (19, Found, _write_found, _read_found),
    (20, Call, _write_call, _read_call),
    (21, Writing, _write_writing, _read_writing),
)
_WRITERS = {message: (kind, write) for kind, message, write, _ in _KINDS}
_READERS = {kind: read for kind, _, _, read in _KINDS}
