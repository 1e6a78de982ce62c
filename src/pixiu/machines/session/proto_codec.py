"""``pixiu.proto.v1``: the same as bytes. See ``model/frames.proto``.

What is sent often is put together by hand, so that a stored body is copied and never decoded for a second client.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.machines.session.events import (
    CURSOR_MAX,
    DEPTH_MAX,
    VALUES_MAX,
    Ack,
    BadFrame,
    Hello,
    Malformed,
    Pong,
    Request,
)
from pixiu.model.errors import Unavailable
from pixiu.model.frames_pb2 import Answer, ClientFrame, Event, Refusal, ServerFrame, Value
from pixiu.model.pixiu_pb2 import GROUP, P2P, MsgChat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.machines.session.events import ClientEvent, Encoded, RequestId
    from pixiu.model.errors import PixiuError
    from pixiu.model.message import PublicNames

__all__ = ["ProtoCodec", "event_of"]

_INT64_MIN, _INT64_END = -(2**63), 2**63
_MESSAGE, _CURSOR, _CHAT, _FROM, _TO, _GROUP = b"\x1a", b"\x08", b"\x12", b"\x1a", b"\x22", b"\x2a"
_PONG = Pong()


class ProtoCodec:
    """Frames to events, and answers and pushes to frames. Without state: one for all connections."""

    name = "proto"
    is_text = False

    def decode(self, payload: bytes) -> ClientEvent:
        """What a client says. Raises ``BadFrame`` when it is nothing."""
        frame = _client_frame(payload)
        match frame.WhichOneof("what"):
            case "ack":
                cursor = frame.ack.cursor
                return Ack(cursor) if 0 <= cursor <= CURSOR_MAX else Malformed(None, "cursor must not be negative")
            case "request":
                request = frame.request
                if not request.id:
                    return Malformed(None, "id must not be 0")
                room = [VALUES_MAX]
                params = {name: _content(value, DEPTH_MAX - 2, room) for name, value in request.params.items()}
                return Request(request.id, request.action, params)
            case "pong":
                return _PONG
            case _:
                return Malformed(None, "a frame must be a request, an ack or a pong")

    def decode_hello(self, payload: bytes) -> Hello:
        """The first frame over TCP. Raises ``BadFrame``."""
        frame = _client_frame(payload)
        if not frame.HasField("hello") or frame.hello.cursor < 0:
            raise BadFrame("the first frame must be a hello")
        return Hello(frame.hello.token, frame.hello.cursor, self.name)

    def answer(self, request_id: RequestId, result: Mapping[str, object]) -> bytes:
        """A request was done."""
        answer = Answer(id=_number(request_id))
        for name, value in result.items():
            _fill(answer.result[name], value)
        return ServerFrame(answer=answer).SerializeToString()

    def error(self, request_id: RequestId, error: PixiuError) -> bytes:
        """It was not."""
        later = error.retry_after_ms if isinstance(error, Unavailable) else 0
        refusal = Refusal(id=_number(request_id), code=error.code, message=str(error), retry_after_ms=later)
        return ServerFrame(error=refusal).SerializeToString()

    def encode_message(self, body: bytes, names: PublicNames) -> Encoded:
        """What lies before and behind the cursor in a message's push: the same for everyone."""
        chat = MsgChat.FromString(body)
        parts = [_field(_CHAT, body), _field(_FROM, names.user_name(chat.fromId).encode())]
        if chat.chatType == P2P:
            parts.append(_field(_TO, names.user_name(chat.toId).encode()))
        elif chat.chatType == GROUP:
            parts.append(_field(_GROUP, names.group_name(chat.toId).encode()))
        return _CURSOR, b"".join(parts)

    def message(self, cursor: int, encoded: Encoded, _options: int = 0, _needs_ack: bool = True, /) -> bytes:
        """A message's push. Only gomsg's codec tells the client the options."""
        return _field(_MESSAGE, encoded[0] + _varint(cursor) + encoded[1])

    def early(self, encoded: Encoded, /) -> bytes:
        """The event of an early copy: its field ``message`` is an encoded MessagePush without a cursor."""
        return self.event({"push": "urgent", "message": encoded[1]})

    def event(self, event: Mapping[str, object]) -> bytes:
        """Any other push."""
        return ServerFrame(event=event_of(event)).SerializeToString()


def event_of(event: Mapping[str, object]) -> Event:
    """A push that is no stored message."""
    told = Event(push=str(event["push"]))
    for name, value in event.items():
        if name != "push":
            _fill(told.fields[name], value)
    return told


def _client_frame(payload: bytes) -> ClientFrame:
    try:
        return ClientFrame.FromString(payload)
    except DecodeError as error:
        raise BadFrame(f"a frame must be a ClientFrame: {error}") from None


def _number(request_id: RequestId) -> int:
    """Only this codec's own requests are answered by it, and those have numbers."""
    return request_id if isinstance(request_id, int) else 0


def _content(value: Value, left: int, room: list[int]) -> object:
    """What JSON would have given. ``room`` counts down the values of the frame: each takes a few microseconds."""
    room[0] -= 1
    if room[0] < 0:
        raise BadFrame(f"a frame may hold {VALUES_MAX} values")
    match value.WhichOneof("kind"):
        case "text":
            return value.text
        case "number":
            return value.number
        case "flag":
            return value.flag
        case "real":
            return value.real
        case "data":
            return b64encode(value.data).decode()
        case "list" | "map" as kind:
            if left == 0:
                raise BadFrame(f"a frame may be {DEPTH_MAX} levels deep")
            if kind == "list":
                return [_content(each, left - 1, room) for each in value.list.values]
            return {name: _content(each, left - 1, room) for name, each in value.map.values.items()}
        case _:
            return None


def _fill(value: Value, content: object) -> None:
    """What JSON would have had."""
    match content:
        case bool():
            value.flag = content
        case str():
            value.text = content
        case int():
            if _INT64_MIN <= content < _INT64_END:
                value.number = content
            else:
                value.text = str(content)
        case float():
            value.real = content
        case bytes():
            value.data = content
        case list() | tuple():
            value.list.SetInParent()
            for each in content:
                _fill(value.list.values.add(), each)
        case dict():
            value.map.SetInParent()
            for name, each in content.items():
                _fill(value.map.values[str(name)], each)
        case None:
            value.SetInParent()
        case _:
            value.text = str(content)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data
