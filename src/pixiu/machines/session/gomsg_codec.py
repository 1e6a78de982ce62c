"""gomsg's LoopV1: its clients' payloads as what they mean here, and what is said to them as gomsg's payloads.

A gomsg client knows three things that a server may say: pong, messages, and the answer to entering a room. Messages
come one to a payload, whose ``seq`` is the cursor, so that the ack of a payload is the ack of the cursor. What else
Pixiu pushes (contacts, receipts, presence …) such a client could not read: it is left out. Talk of rooms comes as
messages that want no ack, the event packed as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from pixiu.machines.session.events import CURSOR_MAX, ID_BYTES_MAX, Ack, BadFrame, Malformed, Pong, Request
from pixiu.machines.session.proto_codec import event_of
from pixiu.model.gomsg.error_pb2 import Code
from pixiu.model.gomsg.msg_pb2 import (
    ClientPayload,
    CommonResponse,
    Message,
    MessageOption,
    MessagesWrapper,
    ServerPayload,
)
from pixiu.model.gomsg.msg_pb2 import Pong as PongPayload
from pixiu.model.inbox import NEED_ALL
from pixiu.model.pixiu_pb2 import PLUGIN, MsgChat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.machines.session.events import ClientEvent, Encoded, RequestId
    from pixiu.model.errors import PixiuError
    from pixiu.model.message import PublicNames

__all__ = ["GomsgCodec"]

_PING, _SUB = "ping ", "sub "
_LIVES = Pong()
_NOTHING = b""
"""No payload: whoever writes leaves it out."""


class GomsgCodec:
    """Payloads to events, and answers and pushes to payloads. Without state: one for all connections."""

    name = "gomsg"
    is_text = False

    def decode(self, payload: bytes) -> ClientEvent:
        """What a client says. Raises ``BadFrame`` for a payload without a body, which ends the stream, as there."""
        try:
            frame = ClientPayload.FromString(payload)
        except DecodeError as error:
            raise BadFrame(f"a payload must be a ClientPayload: {error}") from None
        match frame.WhichOneof("Body"):
            case "ack":
                seq = frame.ack.seq
                is_cursor = 0 < len(seq) <= 19 and seq.isascii() and seq.isdigit() and int(seq) <= CURSOR_MAX
                return Ack(int(seq)) if is_cursor else _LIVES  # of something unknown: ignored
            case "ping":
                return self._request(_PING, frame.seq, "ping", {})
            case "sub":
                return self._request(_SUB, frame.seq, "enter", {"room": frame.sub.room})
            case _:
                raise BadFrame("a payload must have a body: ack, ping or sub")

    def _request(self, kind: str, seq: str, action: str, params: dict[str, object]) -> ClientEvent:
        if len(seq.encode()) > ID_BYTES_MAX:
            return Malformed(None, f"seq may have {ID_BYTES_MAX} bytes")
        return Request(kind + seq, action, params)

    def answer(self, request_id: RequestId, result: Mapping[str, object]) -> bytes:
        """A ping was heard, or a room entered."""
        return _answer(request_id, Code.NONE, "")

    def error(self, request_id: RequestId, error: PixiuError) -> bytes:
        """It was not. What is wrong with the stream itself is in the status that ends it."""
        return _answer(request_id, Code.UNKNOWN, str(error))

    def encode_message(self, body: bytes, names: PublicNames) -> Encoded:
        """The message without its options: the same for every client. A body that came as an Any leaves as that Any."""
        chat = MsgChat.FromString(body)
        packed = Any()
        type_url = chat.params.get("@type", "")
        if chat.msgType == PLUGIN and type_url:
            packed.type_url, packed.value = type_url, chat.data
        else:
            packed.Pack(chat)
        return _NOTHING, Message(seq=str(chat.msgId), body=packed).SerializeToString()

    def message(self, cursor: int, encoded: Encoded, options: int = NEED_ALL, needs_ack: bool = True, /) -> bytes:
        """A message's push, with the options that the publisher gave it."""
        message = Message.FromString(encoded[1])
        message.options = cast("MessageOption", options)
        return _wrapped(message, needs_ack, str(cursor))

    def early(self, _encoded: Encoded, /) -> bytes:
        """Nothing: gomsg's clients expect each message once."""
        return _NOTHING

    def event(self, event: Mapping[str, object]) -> bytes:
        """What is said in a room; nothing else."""
        message = event.get("message")
        if event.get("push") != "message" or not isinstance(message, dict):
            return _NOTHING
        packed = Any()
        packed.Pack(event_of(event))
        return _wrapped(Message(seq=str(message.get("message_id", "")), body=packed), needs_ack=False)


def _wrapped(message: Message, needs_ack: bool, cursor: str = "") -> bytes:
    wrapper = MessagesWrapper(msgs=[message])
    return ServerPayload(seq=cursor, need_ack=needs_ack, msgs_wrapper=wrapper).SerializeToString()


def _answer(request_id: RequestId, code: Code, text: str) -> bytes:
    if not isinstance(request_id, str):
        return _NOTHING
    kind, _, seq = request_id.partition(" ")
    if kind == _PING.strip():
        return ServerPayload(seq=seq, pong=PongPayload(code=code, msg=text)).SerializeToString()
    return ServerPayload(seq=seq, sub_resp=CommonResponse(seq=seq, code=code, msg=text)).SerializeToString()
