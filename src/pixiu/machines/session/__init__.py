"""One client's connection as a protocol: bytes to what the client says, and what it is told to bytes.

Sans-IO and almost without state. Two codecs (``pixiu.json.v1``, ``pixiu.proto.v1``) say the same; two envelopes
(WebSocket frames, frames behind their length) carry them::

    codec, envelope = CODECS["json"], WEBSOCKET_TEXT
    codec.decode(b'{"id":1,"action":"send","params":{"to":"bob"}}')   # Request(1, "send", {"to": "bob"})
    envelope.wrap(codec.answer(1, {"message_id": "7"}))               # bytes for the socket

A frame that cannot be read raises ``BadFrame``: say so and close. One that can be read and makes no sense is
``Malformed``: refuse it by its id and go on. Sizes and depth are bounded.
"""

from collections.abc import Mapping
from typing import Protocol

from pixiu.machines.session.events import (
    DEPTH_MAX,
    FRAME_SLACK_BYTES,
    Ack,
    BadFrame,
    ClientEvent,
    Encoded,
    Hello,
    Malformed,
    Pong,
    Request,
    RequestId,
)
from pixiu.machines.session.framing import (
    LENGTH_PREFIXED,
    WEBSOCKET_BINARY,
    WEBSOCKET_TEXT,
    Envelope,
    FrameTooLarge,
    LengthPrefixed,
)
from pixiu.machines.session.json_codec import JsonCodec
from pixiu.machines.session.proto_codec import ProtoCodec
from pixiu.model.errors import PixiuError
from pixiu.model.message import PublicNames

__all__ = [
    "CODECS",
    "DEPTH_MAX",
    "FRAME_SLACK_BYTES",
    "GOMSG",
    "LENGTH_PREFIXED",
    "WEBSOCKET_BINARY",
    "WEBSOCKET_TEXT",
    "Ack",
    "BadFrame",
    "ClientEvent",
    "Codec",
    "Encoded",
    "Envelope",
    "FrameTooLarge",
    "Hello",
    "JsonCodec",
    "LengthPrefixed",
    "Malformed",
    "Pong",
    "ProtoCodec",
    "Request",
    "RequestId",
    "codec_of",
    "decode_hello",
    "envelope_of",
]


class Codec(Protocol):
    """How frames are written. See ``JsonCodec``."""

    name: str
    is_text: bool

    def decode(self, payload: bytes) -> ClientEvent: ...
    def answer(self, request_id: RequestId, result: Mapping[str, object]) -> bytes: ...
    def error(self, request_id: RequestId, error: PixiuError) -> bytes: ...
    def encode_message(self, body: bytes, names: PublicNames) -> Encoded: ...
    def message(self, cursor: int, encoded: Encoded, options: int = ..., needs_ack: bool = ..., /) -> bytes: ...
    def early(self, encoded: Encoded, /) -> bytes: ...
    def event(self, event: Mapping[str, object]) -> bytes: ...


_JSON, _PROTO = JsonCodec(), ProtoCodec()
CODECS: dict[str, Codec] = {_JSON.name: _JSON, _PROTO.name: _PROTO}
"""What a client may choose."""
GOMSG = "gomsg"
_OTHERS: dict[str, Codec] = {}


def codec_of(name: str) -> Codec:
    """A codec by its name. gomsg's is made when it is first asked for: few nodes have that door."""
    if name == GOMSG and name not in _OTHERS:
        from pixiu.machines.session.gomsg_codec import GomsgCodec

        _OTHERS[name] = GomsgCodec()
    return _OTHERS.get(name) or CODECS[name]


def envelope_of(codec: Codec) -> Envelope:
    """How a WebSocket carries a codec."""
    return WEBSOCKET_TEXT if codec.is_text else WEBSOCKET_BINARY


def decode_hello(payload: bytes) -> Hello:
    """The first frame over TCP, in JSON or protobuf: the first byte tells. Raises ``BadFrame``."""
    hello = _JSON.decode_hello(payload) if payload.lstrip(b" \t\r\n")[:1] == b"{" else _PROTO.decode_hello(payload)
    if hello.codec not in CODECS:
        raise BadFrame(f"codec must be one of {', '.join(CODECS)}, not {hello.codec[:20]!r}")
    return hello
