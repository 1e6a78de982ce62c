"""``pixiu.json.v1``: text frames, as people read them.

::

    {"id": 1, "action": "send", "params": {"to": "bob", "text": "hi"}}      a request
    {"id": 1, "result": {"message_id": "…", "at": 1760000000000}}           its answer
    {"id": 1, "error": {"code": "not_found", "message": "…"}}               or this
    {"action": "ack", "params": {"cursor": "42"}}                           no answer
    {"push": "message", "cursor": "42", "message": {…}}                     what the server says of itself
    {"push": "urgent", "message": {…}}                                      an early copy, without a cursor
    {"push": "recall", "cursor": "43", "message_id": "…", "message": {…}}   a message that takes another one back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pixiu.machines.session.events import (
    DEPTH_MAX,
    ID_BYTES_MAX,
    Ack,
    BadFrame,
    Hello,
    Malformed,
    Pong,
    Request,
    read_cursor,
)
from pixiu.model.errors import RequestError, Unavailable
from pixiu.model.message import message_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.machines.session.events import ClientEvent, Encoded, RequestId
    from pixiu.model.errors import PixiuError
    from pixiu.model.message import PublicNames

__all__ = ["JsonCodec"]

INT64_END = 2**63


class _Frame(msgspec.Struct, gc=False):
    """Anything a client may send. Types are checked by hand, so that an error can name the request."""

    id: Any = None
    action: Any = None
    params: Any = None


class _Hello(msgspec.Struct, gc=False):
    token: str = ""
    cursor: Any = None
    codec: str = "json"


_encode = msgspec.json.Encoder().encode
_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_hello = msgspec.json.Decoder(_Hello).decode
_PONG = Pong()


class JsonCodec:
    """Frames to events, and answers and pushes to frames. Without state: one for all connections."""

    name = "json"
    is_text = True

    def decode(self, payload: bytes) -> ClientEvent:
        """What a client says. Raises ``BadFrame`` when it is nothing."""
        try:
            frame = _decode_frame(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise BadFrame(f"a frame must be a JSON object: {error}") from None
        # Most frames have few brackets: counting them is enough to know that they are not deep.
        if payload.count(b"{") + payload.count(b"[") > DEPTH_MAX and _is_deep(frame.params, DEPTH_MAX - 1):
            raise BadFrame(f"a frame may be {DEPTH_MAX} levels deep")
        action, params = frame.action, frame.params
        if params is None:
            params = {}
        if action == "ack" and type(params) is dict:
            try:
                return Ack(read_cursor(params.get("cursor")))
            except RequestError as error:
                return Malformed(_known_id(frame.id), str(error))
        if action == "pong":
            return _PONG
        request_id = _known_id(frame.id)
        if request_id is None:
            return Malformed(None, f"id must be a number or a text of up to {ID_BYTES_MAX} bytes")
        if type(action) is not str:
            return Malformed(request_id, "action must be a text")
        if type(params) is not dict:
            return Malformed(request_id, "params must be an object")
        return Request(request_id, action, params)

    def decode_hello(self, payload: bytes) -> Hello:
        """The first frame over TCP. Raises ``BadFrame``."""
        try:
            hello = _decode_hello(payload)
            return Hello(hello.token, 0 if hello.cursor in (None, "") else read_cursor(hello.cursor), hello.codec)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, RequestError) as error:
            raise BadFrame(f"the first frame must be {{token, cursor?, codec}}: {error}") from None

    def answer(self, request_id: RequestId, result: Mapping[str, object]) -> bytes:
        """A request was done."""
        return _encode({"id": request_id, "result": result})

    def error(self, request_id: RequestId, error: PixiuError) -> bytes:
        """It was not."""
        told: dict[str, object] = {"code": error.code, "message": str(error)}
        if isinstance(error, Unavailable) and error.retry_after_ms:
            told["retry_after_ms"] = error.retry_after_ms
        return _encode({"id": request_id, "error": told})

    def encode_message(self, body: bytes, names: PublicNames) -> Encoded:
        """What lies before and behind the cursor in a message's push: the same for everyone.

        A recall is a message too, with a cursor and an ack; its push is called what it is.
        """
        view = message_view(body, names)
        recalled = view.get("ref") if view["kind"] == "delete" else None
        if recalled is None:
            return b'{"push":"message","cursor":"', b'","message":%b}' % _encode(view)
        behind = b'","message_id":%b,"message":%b}' % (_encode(recalled), _encode(view))
        return b'{"push":"recall","cursor":"', behind

    def message(self, cursor: int, encoded: Encoded, _options: int = 0, _needs_ack: bool = True, /) -> bytes:
        """A message's push. Only gomsg's codec tells the client the options."""
        return b"%b%d%b" % (encoded[0], cursor, encoded[1])

    def early(self, encoded: Encoded, /) -> bytes:
        """The push of an early copy of an urgent message: without a cursor."""
        return b'{"push":"urgent%b' % encoded[1]

    def event(self, event: Mapping[str, object]) -> bytes:
        """Any other push."""
        return _encode(event)


def _known_id(value: object) -> RequestId:
    if type(value) is int:
        return value if -INT64_END <= value < INT64_END else None
    if type(value) is str and len(value) <= ID_BYTES_MAX:
        try:
            return value if len(value.encode()) <= ID_BYTES_MAX else None
        except UnicodeEncodeError:
            return None
    return None


def _is_deep(value: object, left: int) -> bool:
    """Are there more levels of objects and lists than ``left``? Level by level: a client chooses how many there are."""
    level: list[object] = [value]
    for _ in range(left):
        inner: list[object] = []
        for each in level:
            kind = type(each)
            if kind is dict:
                inner += each.values()  # type: ignore[attr-defined]
            elif kind is list:
                inner += each  # type: ignore[arg-type]
        if not inner:
            return False
        level = inner
    return any(type(each) is dict or type(each) is list for each in level)
