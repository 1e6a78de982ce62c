"""What clients and gateways say, by bytes, in both subprotocols."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pixiu.machines.session import CODECS, DEPTH_MAX, Ack, BadFrame, Hello, Malformed, Pong, Request, decode_hello
from pixiu.model.errors import NotFound, RateLimited, RequestError
from pixiu.model.frames_pb2 import ClientFrame, MessagePush, ServerFrame, Value
from pixiu.model.pixiu_pb2 import DELETE, GROUP, NORMAL, P2P, SYSTEM, MsgChat

JSON, PROTO = CODECS["json"], CODECS["proto"]


class Names:
    def user_name(self, number: int) -> str:
        return {1: "alice", 2: "鲍勃"}.get(number, str(number))

    def group_name(self, number: int) -> str:
        return {9: "team"}.get(number, str(number))


def nested(depth: int) -> dict[str, object]:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {"id": 1, "action": "send", "params": {"x": value}}


class TestJson:
    def test_the_frames_of_the_design(self) -> None:
        assert JSON.decode(b'{"id":1,"action":"send","params":{"to":"bob","text":"hi"}}') == Request(
            1, "send", {"to": "bob", "text": "hi"}
        )
        assert JSON.decode(b'{"id":"a","action":"contacts"}') == Request("a", "contacts", {})
        assert JSON.decode(b'{"action":"ack","params":{"cursor":"42"}}') == Ack(42)
        assert JSON.decode(b'{"id":7,"action":"ack","params":{"cursor":42}}') == Ack(42)
        assert JSON.decode(b'{"action":"pong"}') == Pong()
        assert JSON.answer(1, {"message_id": "7", "at": 5}) == b'{"id":1,"result":{"message_id":"7","at":5}}'
        assert JSON.error(None, NotFound("no")) == b'{"id":null,"error":{"code":"not_found","message":"no"}}'
        limited = json.loads(JSON.error("x", RateLimited("slow down", retry_after_ms=20)))
        assert limited == {
            "id": "x", "error": {"code": "rate_limited", "message": "slow down", "retry_after_ms": 20}
        }  # fmt: skip
        assert JSON.event({"push": "kick", "reason": "new_session"}) == b'{"push":"kick","reason":"new_session"}'

    def test_a_message_has_public_ids_and_texts_for_numbers(self) -> None:
        chat = MsgChat(fromId=1, toId=2, chatType=P2P, tm=17, sendId="s1", data="你好".encode(), msgId=2**60)
        chat.priority = NORMAL
        encoded = JSON.encode_message(chat.SerializeToString(), Names())
        assert json.loads(JSON.message(2**53 + 1, encoded)) == {
            "push": "message",
            "cursor": str(2**53 + 1),
            "message": {
                "message_id": str(2**60), "from": "alice", "to": "鲍勃", "at": 17, "kind": "text", "text": "你好",
                "send_id": "s1",
            },
        }  # fmt: skip

    def test_a_recall_is_a_push_of_its_own_with_a_cursor(self) -> None:
        chat = MsgChat(fromId=1, toId=9, chatType=GROUP, msgType=DELETE, refMessageId=77, msgId=80, priority=NORMAL)
        payload = JSON.message(5, JSON.encode_message(chat.SerializeToString(), Names()))
        assert json.loads(payload) == {
            "push": "recall",
            "cursor": "5",
            "message_id": "77",
            "message": {"message_id": "80", "from": "alice", "group": "team", "at": 0, "kind": "delete", "ref": "77"},
        }

    @pytest.mark.parametrize(
        "payload",
        [b"", b"null", b"1", b'"x"', b"[]", b"{", b'{"id":1}x', b"\xff", b'{"action":"\xff"}', b"[" * 100_000],
    )
    def test_what_is_no_frame(self, payload: bytes) -> None:
        with pytest.raises(BadFrame) as caught:
            JSON.decode(payload)
        assert caught.value.code == "bad_request"

    def test_depth_is_bounded(self) -> None:
        assert isinstance(JSON.decode(json.dumps(nested(DEPTH_MAX - 2)).encode()), Request)
        for depth in (DEPTH_MAX - 1, DEPTH_MAX, 500, 50_000):
            deep = b'{"id":1,"action":"a","params":{"x":' + b"[" * depth + b"]" * depth + b"}}"
            with pytest.raises(BadFrame):
                JSON.decode(deep)
        many = {"id": 1, "action": "sync", "params": {"list": [{}] * 100}}
        assert isinstance(JSON.decode(json.dumps(many).encode()), Request), "many is not deep"

    @pytest.mark.parametrize("bad", [None, True, 1.5, "x" * 65, "界" * 22, 2**63, -(2**63) - 1, [], {}])
    def test_an_id_must_be_one(self, bad: Any) -> None:
        payload = json.dumps({"id": bad, "action": "send"}).encode()
        assert JSON.decode(payload) == Malformed(None, "id must be a number or a text of up to 64 bytes")

    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8))  # fmt: skip  # noqa: E501
    def test_any_json_is_an_event_or_a_bad_frame(self, value: object) -> None:
        for content in (value, {"id": value, "action": "send", "params": value}, {"id": 1, "action": value}):
            decode_any("json", json.dumps(content).encode())


def decode_any(codec: str, payload: bytes) -> None:
    """Nothing but typed errors, and what comes out can be encoded."""
    try:
        event = CODECS[codec].decode(payload)
    except BadFrame as error:
        assert CODECS[codec].error(None, error)
        return
    assert isinstance(event, Request | Ack | Pong | Malformed)
    if isinstance(event, Request):
        assert event.id is not None
        CODECS[codec].answer(event.id, {"x": 1})
    if isinstance(event, Malformed):
        CODECS[codec].error(event.id, RequestError(event.reason))


class TestGarbage:
    @given(st.binary(max_size=400))
    @example(b'{"id":1,"action":"\\ud800","params":{"\\udfff":"\\ud800"}}')
    @example(b'{"id":"\\ud800","action":"a"}')
    @example(b'{"id":1e400,"action":"a"}')
    @example(b'{"id":' + b"9" * 5000 + b"}")
    @example(b'{"action":"ack","params":{"cursor":' + b"9" * 400 + b"}}")
    def test_bytes_never_raise_anything_else(self, payload: bytes) -> None:
        decode_any("json", payload)
        decode_any("proto", payload)
        try:
            assert isinstance(decode_hello(payload), Hello)
        except BadFrame:
            pass

    @given(st.data())
    def test_a_frame_with_a_few_changed_bytes_never_raises_anything_else(self, data: st.DataObject) -> None:
        frame = ClientFrame()
        frame.request.id, frame.request.action = 1, "send"
        frame.request.params["a"].list.values.add().map.values["b"].text = "c"
        codec = data.draw(st.sampled_from(["json", "proto"]))
        whole = frame.SerializeToString() if codec == "proto" else json.dumps(nested(5)).encode()
        payload = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        decode_any(codec, bytes(payload))


class TestProto:
    def test_requests_acks_and_signs_of_life(self) -> None:
        frame = ClientFrame()
        frame.request.id, frame.request.action = 2**63, "send"
        params = frame.request.params
        params["to"].text = "bob"
        params["at"].number = -5
        params["really"].flag = True
        params["share"].real = 0.5
        params["body"].data = b"\x00\x01"
        params["users"].list.values.add().text = "x"
        params["with"].map.values["bob"].number = 17
        params["nothing"].SetInParent()
        assert PROTO.decode(frame.SerializeToString()) == Request(
            2**63,
            "send",
            {
                "to": "bob", "at": -5, "really": True, "share": 0.5, "body": "AAE=", "users": ["x"],
                "with": {"bob": 17}, "nothing": None,
            },
        )  # fmt: skip
        ack, pong = ClientFrame(), ClientFrame()
        ack.ack.cursor = 42
        pong.pong.SetInParent()
        assert PROTO.decode(ack.SerializeToString()) == Ack(42)
        assert PROTO.decode(pong.SerializeToString()) == Pong()
        assert isinstance(PROTO.decode(b""), Malformed), "a kind of frame that this server does not know"
        ack.ack.cursor = -1
        assert isinstance(PROTO.decode(ack.SerializeToString()), Malformed)

    def test_early_copy_is_an_event_with_a_message_push_without_a_cursor(self) -> None:
        body = MsgChat(fromId=1, toId=2, chatType=P2P, data=b"fire", msgId=5).SerializeToString()
        event = ServerFrame.FromString(PROTO.early(PROTO.encode_message(body, Names()))).event
        early = MessagePush.FromString(event.fields["message"].data)
        assert (event.push, early.cursor, early.chat, early.to) == ("urgent", 0, body, "鲍勃")

    @pytest.mark.parametrize("chat_type", [P2P, GROUP, SYSTEM])
    def test_a_message_carries_the_stored_bytes(self, chat_type: Any) -> None:
        to = 9 if chat_type == GROUP else 2
        body = MsgChat(fromId=1, toId=to, chatType=chat_type, data=b"x" * 300).SerializeToString() + b"\x08\x05"
        payload = PROTO.message(2**40, PROTO.encode_message(body, Names()))
        assert body in payload, "untouched"
        frame = ServerFrame.FromString(payload)
        assert frame.message.cursor == 2**40 and frame.message.chat == body
        assert MsgChat.FromString(frame.message.chat).msgId == 5
        assert getattr(frame.message, "from") == "alice"
        places = {P2P: ("鲍勃", ""), GROUP: ("", "team"), SYSTEM: ("", "")}
        assert (frame.message.to, frame.message.group) == places[chat_type]

    def test_answers_errors_and_events(self) -> None:
        result = {"a": 1, "b": [True, None, {"c": "d"}], "e": 2**70, "f": 1.5, "g": b"x", "h": {}, "i": [], "j": None}
        answer = ServerFrame.FromString(PROTO.answer(3, result)).answer
        assert answer.id == 3 and answer.result["e"].text == str(2**70)
        assert [each.WhichOneof("kind") for each in answer.result["b"].list.values] == ["flag", None, "map"]
        kinds = {name: value.WhichOneof("kind") for name, value in answer.result.items()}
        assert kinds["h"] == "map" and kinds["i"] == "list" and kinds["g"] == "data" and kinds["j"] is None
        error = ServerFrame.FromString(PROTO.error(None, RateLimited("no", retry_after_ms=7))).error
        assert (error.id, error.code, error.message, error.retry_after_ms) == (0, "rate_limited", "no", 7)
        event = ServerFrame.FromString(PROTO.event({"push": "gap", "missed": 2})).event
        assert event.push == "gap" and event.fields["missed"].number == 2 and "push" not in event.fields

    def test_depth_is_bounded(self) -> None:
        def request(depth: int) -> bytes:
            frame = ClientFrame()
            frame.request.id = 1
            value: Value = frame.request.params["x"]
            for _ in range(depth):
                value = value.list.values.add()
            value.text = "deep"
            return frame.SerializeToString()

        assert isinstance(PROTO.decode(request(DEPTH_MAX - 2)), Request)
        for depth in (DEPTH_MAX - 1, 60):
            with pytest.raises(BadFrame):
                PROTO.decode(request(depth))


class TestHello:
    def test_in_json_and_in_protobuf(self) -> None:
        assert decode_hello(b'{"token":"t","cursor":"5","codec":"json"}') == Hello("t", 5, "json")
        assert decode_hello(b'{"token":"t","codec":"proto"}') == Hello("t", 0, "proto")
        assert decode_hello(b' {"token":"t"}') == Hello("t", 0, "json")
        frame = ClientFrame()
        frame.hello.token, frame.hello.cursor = "t", 9
        assert decode_hello(frame.SerializeToString()) == Hello("t", 9, "proto")

    @pytest.mark.parametrize(
        "payload",
        [b"", b"x", b"{}x", b'{"token":1}', b'{"codec":"xml"}', b'{"cursor":-1}', b'{"cursor":{}}', b"\x12\x00"],
    )
    def test_anything_else_is_no_hello(self, payload: bytes) -> None:
        with pytest.raises(BadFrame):
            decode_hello(payload)
