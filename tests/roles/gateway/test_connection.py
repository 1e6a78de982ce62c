"""The life of a connection, by what the relay and the client say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.errors import Conflict, NotFound, PixiuError, RequestError, Unauthenticated, Unavailable
from pixiu.model.frames_pb2 import ServerFrame
from pixiu.ports.clients import CloseCode
from tests.roles.gateway.scene import FakeTransport, Scene, body, pushes


def names_of(transport: FakeTransport) -> list[str]:
    return [frame.get("push", "answer") for frame in transport.frames]


class TestOpening:
    @pytest.mark.feature("R16")
    @pytest.mark.parametrize("token", ["", "bad"])
    def test_without_a_good_token_nothing_happens(self, token: str) -> None:
        scene = Scene()
        connection, transport = scene.open(token)
        assert transport.closed == (4401, "unauthenticated")
        assert not transport.writes and not scene.messaging.logins
        scene.say(connection, {"id": 1, "action": "send", "params": {}})
        assert not scene.messaging.asked
        assert scene.gateway.counters.refused == {("unauthenticated",): 1} and scene.gateway.counters.connections == 0

    def test_over_tcp_the_error_is_a_frame(self) -> None:
        _, transport = Scene().open("bad", is_websocket=False)
        assert [json.loads(frame)["error"]["code"] for frame in transport.tcp_frames] == ["unauthenticated"]
        assert transport.closed is not None

    def test_a_token_that_is_checked_elsewhere_holds_up_what_the_client_says(self) -> None:
        scene = Scene()
        scene.late_tokens = []
        connection, transport = scene.open("u1")
        scene.say(connection, {"id": 1, "action": "user", "params": {}})
        assert not transport.reads() and not scene.messaging.logins
        token, done = scene.late_tokens.pop()
        done(scene.identity(token))
        scene.run()
        assert transport.reads()
        assert [action for _, action, _, _ in scene.messaging.asked] == ["contacts", "user"]

    def test_a_token_that_nobody_answers_for_ends_it(self) -> None:
        scene = Scene(hello_timeout_ms=100)
        scene.late_tokens = []
        connection, transport = scene.open("u1")
        for _ in range(17):
            connection.received(b"{}", is_text=True)
        assert transport.closed == (4400, "bad_request")
        _, other = scene.open("u1")
        scene.run(200)
        assert other.closed == (CloseCode.TRY_LATER, "unavailable")
        for token, done in scene.late_tokens:
            done(scene.identity(token))
        assert not scene.messaging.logins

    @pytest.mark.feature("R17")
    def test_contacts_come_first_then_what_was_missed_then_what_is_said(self) -> None:
        scene = Scene()
        del scene.messaging.answers["contacts"]
        connection, transport = scene.open(cursor=0)
        scene.push(connection, pushes(1, 2))
        connection.event(1000, {"push": "presence", "user": "u2", "state": "online"})
        scene.run()
        assert not transport.frames
        (_, action, _, done) = scene.messaging.asked[0]
        assert action == "contacts"
        done({"contacts": [{"user": "u2"}], "others": []})
        scene.run()
        scene.push(connection, pushes(3))
        assert names_of(transport) == ["contacts", "presence", "message", "message", "message"]
        assert transport.cursors == [1, 2, 3]
        assert transport.frames[0]["contacts"] == [{"user": "u2"}]

    def test_requests_that_come_before_the_session_are_done_after_it(self) -> None:
        scene = Scene(requests_in_flight=2)
        scene.messaging.connects_at_once = False
        connection, transport = scene.open()
        for number in range(3):
            scene.say(connection, {"id": number, "action": "user", "params": {"user": "u2"}})
        assert [frame["error"]["code"] for frame in transport.frames] == ["busy"]
        scene.messaging.finish_login()
        scene.run()
        assert [action for _, action, _, _ in scene.messaging.asked] == ["contacts", "user", "user"]
        for _, _, _, done in scene.messaging.asked[1:]:
            done({})
        scene.run()
        assert [frame["id"] for frame in transport.frames if "result" in frame] == [0, 1]

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (Unauthenticated("no"), 4401),
            (NotFound("there is no user"), 4401),
            (RequestError("platform"), 4400),
            (Unavailable("stopping"), 1013),
        ],
    )
    def test_a_login_that_fails_says_why(self, error: PixiuError, code: int) -> None:
        scene = Scene()
        scene.messaging.refusal = error
        _, transport = scene.open()
        assert transport.closed is not None and transport.closed[0] == code

    def test_one_who_leaves_during_the_login_leaves_no_session(self) -> None:
        scene = Scene()
        scene.messaging.connects_at_once = False
        connection, _ = scene.open()
        connection.lost()
        scene.messaging.finish_login()
        assert scene.messaging.gone == [1000]
        assert scene.gateway.counters.connections == 0

    def test_a_resumed_client_is_told_what_it_cannot_have_any_more(self) -> None:
        scene = Scene()
        gap = {"inbox": "web", "after": "5", "before": "9", "trimmed": True}
        scene.messaging.answers["sync"] = {"messages": [], "gaps": [gap], "cursor": "8"}
        connection, transport = scene.open(cursor=5)
        assert scene.messaging.logins[0][3] == 5
        assert scene.messaging.asked[1][1:3] == ("sync", {"cursor": "5", "limit": 1})
        assert transport.frames[1] == {"push": "gap", **gap}
        scene.push(connection, pushes(4, 5, 9, previous=0))
        assert transport.cursors == [9], "what the client said it has does not come again"

    def test_a_cursor_of_another_inbox_is_told_and_hides_nothing(self) -> None:
        scene = Scene()
        scene.messaging.answers["sync"] = RequestError("cursor 99 is not of this inbox")
        connection, transport = scene.open(cursor=99)
        scene.push(connection, pushes(1, 2, previous=0))
        assert names_of(transport) == ["contacts", "resync", "message", "message"]


class TestRequests:
    @pytest.mark.feature("R18")
    def test_answers_come_with_their_id_in_any_order(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.say(connection, {"id": 1, "action": "send", "params": {"to": "u2", "text": "a"}})
        scene.say(connection, {"id": "two", "action": "gsend", "params": {"group": "g", "text": "b"}})
        first, second = scene.messaging.asked[-2:]
        second[3]({"message_id": "8"})
        first[3](Conflict("no"))
        scene.run()
        assert transport.frames[1:] == [
            {"id": "two", "result": {"message_id": "8"}},
            {"id": 1, "error": {"code": "conflict", "message": "no"}},
        ]

    @pytest.mark.feature("R16")
    def test_the_acting_user_is_the_tokens_whatever_the_params_say(self) -> None:
        scene = Scene()
        connection, _ = scene.open("u7")
        for params in ({"user": "u1", "from": "u1", "actor": 1}, {}):
            scene.say(connection, {"id": 1, "action": "send", "user": "u1", "actor": 1, "params": params})
        for actor, _, _, _ in scene.messaging.asked:
            assert (actor.user, actor.platform, actor.device, actor.session_id) == (7, "web", "d1", 1000)
            assert not actor.is_admin

    def test_too_many_at_once_are_busy(self) -> None:
        scene = Scene(requests_in_flight=3)
        connection, transport = scene.open()
        for number in range(5):
            scene.say(connection, {"id": number, "action": "user", "params": {}})
        assert [(frame["id"], frame["error"]["code"]) for frame in transport.frames[1:]] == [(3, "busy"), (4, "busy")]
        scene.messaging.asked[-1][3]({})
        scene.say(connection, {"id": 5, "action": "user", "params": {}})
        assert transport.frames[-1] == {"id": 2, "result": {}}

    def test_a_bug_is_an_internal_error_and_the_connection_lives(self) -> None:
        scene = Scene()
        connection, transport = scene.open()

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        scene.gateway.actions["broken"] = broken
        scene.say(connection, {"id": 1, "action": "broken"})
        scene.say(connection, {"id": 2, "action": "ping"})
        assert transport.frames[1]["error"]["code"] == "internal"
        assert transport.frames[2]["id"] == 2 and transport.frames[2]["result"]["at"] > 0

    def test_requests_without_sense_are_refused_by_their_id(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        for frame in ({"id": 1}, {"id": 2, "action": 3}, {"id": 3, "action": "send", "params": []}, {"action": "send"}):
            scene.say(connection, frame)
        assert [(frame["id"], frame["error"]["code"]) for frame in transport.frames[1:]] == [
            (1, "bad_request"),
            (2, "bad_request"),
            (3, "bad_request"),
            (None, "bad_request"),
        ]
        assert transport.is_open() and len(scene.messaging.asked) == 1

    @pytest.mark.parametrize("payload", [b"", b"x", b"[]", b"\xff\xfe", b'{"id":1', b"[" * 5000, b'{"params":' * 40])
    def test_garbage_is_answered_and_closed(self, payload: bytes) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.received(payload, is_text=True)
        scene.run()
        assert transport.frames[-1]["id"] is None and transport.frames[-1]["error"]["code"] == "bad_request"
        assert transport.closed == (4400, "bad_request") and scene.messaging.gone == [1000]

    def test_bytes_where_text_is_spoken_are_garbage(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.received(b'{"id":1,"action":"user"}', is_text=False)
        assert transport.closed == (4400, "bad_request")


class TestMessages:
    def test_an_ack_goes_to_the_relay_once_per_turn(self) -> None:
        scene = Scene()
        connection, _ = scene.open()
        for cursor in ("3", 4, "2"):
            connection.received(json.dumps({"action": "ack", "params": {"cursor": cursor}}).encode(), is_text=True)
        assert not scene.messaging.acks
        scene.run()
        assert scene.messaging.acks == [(1000, 4)]

    def test_an_ack_is_not_lost_with_the_connection(self) -> None:
        scene = Scene()
        connection, _ = scene.open()
        connection.received(b'{"action":"ack","params":{"cursor":"3"}}', is_text=True)
        connection.lost()
        assert scene.messaging.acks == [(1000, 3)] and scene.messaging.gone == [1000]

    def test_an_ack_of_a_session_that_nobody_knows_ends_it(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.messaging.is_known = False
        scene.say(connection, {"action": "ack", "params": {"cursor": "3"}})
        assert transport.frames[-1] == {"push": "kick", "reason": "unknown_session"}
        assert transport.closed == (4403, "unknown_session")

    @pytest.mark.parametrize("cursor", [-1, 2**63, "x", None, 1.5, True, {}, "１"])
    def test_an_ack_that_is_no_cursor_is_refused(self, cursor: Any) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.say(connection, {"action": "ack", "params": {"cursor": cursor}})
        assert transport.frames[-1]["error"]["code"] == "bad_request" and not scene.messaging.acks
        assert transport.is_open()

    def test_what_comes_again_is_not_shown_again_but_acked_again(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.push(connection, pushes(1, 2, 3))
        scene.say(connection, {"action": "ack", "params": {"cursor": "3"}})
        scene.push(connection, [push._replace(is_resend=True) for push in pushes(1, 2, 3)])
        assert transport.cursors == [1, 2, 3]
        assert scene.messaging.acks == [(1000, 3), (1000, 3)]
        scene.push(connection, pushes(2, 3, 4))
        assert transport.cursors == [1, 2, 3, 4]

    def test_a_hole_is_never_written_over(self) -> None:
        """An ack of a later message would say that the client has the missing one."""
        scene = Scene()
        connection, transport = scene.open()
        scene.push(connection, pushes(1))
        scene.push(connection, pushes(4, 5))
        scene.push(connection, pushes(6))
        assert transport.cursors == [1]
        assert len(transport.pushed("resync")) == 1
        scene.push(connection, pushes(2, 3, 4, 5, 6))
        assert transport.cursors == [1, 2, 3, 4, 5, 6]
        scene.run(60_000)
        assert transport.pushed("kick") == []

    def test_a_sync_closes_a_hole(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.push(connection, pushes(1))
        scene.push(connection, pushes(4))
        scene.messaging.answers["sync"] = {"messages": [], "gaps": [], "cursor": "4"}
        scene.say(connection, {"id": 1, "action": "sync", "params": {"cursor": "1"}})
        scene.push(connection, pushes(5))
        assert transport.cursors == [1, 5]

    def test_who_does_not_close_its_hole_is_kicked_and_comes_again(self) -> None:
        scene = Scene(slow_timeout_ms=1_000)
        connection, transport = scene.open()
        scene.push(connection, pushes(1))
        scene.push(connection, pushes(4))
        scene.run(1_500)
        assert transport.frames[-1] == {"push": "kick", "reason": "slow"}
        assert transport.closed == (4403, "slow") and scene.messaging.gone == [1000]

    def test_one_write_per_turn_and_one_encoding_for_all(self) -> None:
        scene = Scene()
        clients = [scene.open(f"u{number}") for number in range(1, 6)]
        binary, binary_transport = scene.open("u6", codec="proto", is_websocket=False)
        writes = [len(transport.writes) for _, transport in clients]
        before = scene.gateway.counters.encodings
        for connection, _ in clients:
            connection.push(0, pushes(1))
            connection.push(0, pushes(2))
            connection.event(0, {"push": "typing", "with": "u9"})
        binary.push(0, pushes(1))
        scene.run()
        assert [len(transport.writes) for _, transport in clients] == [count + 1 for count in writes]
        assert [transport.cursors for _, transport in clients] == [[1, 2]] * 5
        assert scene.gateway.counters.encodings - before == 3, "two messages in JSON, one of them in protobuf"
        assert binary_transport.proto_frames[1].message.chat == body(101)

    def test_a_recalled_body_is_not_mistaken_for_the_first(self) -> None:
        scene = Scene()
        (one, first), (two, second) = scene.open("u1"), scene.open("u2")
        one.push(0, pushes(1, text="said"))
        two.push(0, pushes(1, text=""))
        scene.run()
        assert first.frames[1]["message"]["text"] == "said" and second.frames[1]["message"]["text"] == ""

    def test_a_body_that_cannot_be_read_is_shown_as_gone(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.push(connection, [push._replace(body=b"\xff\xff") for push in pushes(1)])
        assert transport.frames[-1]["message"] == {
            "message_id": "101", "from": "u0", "at": 0, "kind": "text", "recalled": True
        }  # fmt: skip


class TestEnd:
    @pytest.mark.feature("P13")
    def test_a_kick_says_why_and_closes(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.close(1000, "new_session")
        assert transport.frames[-1] == {"push": "kick", "reason": "new_session"}
        assert transport.closed == (4403, "new_session")
        assert not scene.messaging.gone, "the relay has ended the session itself"
        assert scene.gateway.counters.closed == {("new_session",): 1}

    def test_a_relay_that_stops_sends_its_clients_away(self) -> None:
        connection, transport = Scene().open()
        connection.close(1000, "shutdown")
        assert transport.frames[-1]["push"] == "reconnect" and transport.closed == (1001, "shutdown")

    def test_a_token_that_ends_ends_its_connection(self) -> None:
        scene = Scene(idle_timeout_ms=3_600_000)
        _, short = scene.open("u1:2500")
        _, long = scene.open("u2:50000")
        scene.run(2_400)
        assert short.is_open()
        scene.run(200)
        assert short.closed == (4401, "expired") and scene.messaging.gone == [1000]
        scene.run(47_000)
        assert long.is_open()
        scene.run(2_000)
        assert long.closed == (4401, "expired")

    def test_an_old_token_is_no_token(self) -> None:
        _, transport = Scene().open("u1:0")
        assert transport.closed == (4401, "unauthenticated")

    def test_silence_is_asked_about_and_then_ended(self) -> None:
        scene = Scene(ping_interval_ms=1_000, idle_timeout_ms=3_000)
        _, quiet_transport = scene.open("u1")
        alive, alive_transport = scene.open("u2")
        for _ in range(10):
            scene.run(500)
            alive.heard()
        assert quiet_transport.pings >= 1 and quiet_transport.closed == (4408, "idle")
        assert alive_transport.is_open() and alive_transport.pings == 0
        assert scene.messaging.gone == [1000] and scene.messaging.beats.count(1001) >= 3

    def test_over_tcp_the_question_is_a_push_and_pong_answers_it(self) -> None:
        scene = Scene(ping_interval_ms=1_000, idle_timeout_ms=3_000)
        connection, transport = scene.open("u1", is_websocket=False)
        pings = 0
        for _ in range(8):
            scene.run(1_000)
            if sum(b'"push":"ping"' in write for write in transport.writes) > pings:
                pings += 1
                connection.received(b'{"action":"pong"}', is_text=True)
        assert pings >= 2 and transport.is_open()

    def test_a_heartbeat_that_nobody_knows_ends_it(self) -> None:
        scene = Scene(ping_interval_ms=1_000)
        _, transport = scene.open()
        scene.messaging.is_known = False
        scene.run(1_100)
        assert transport.closed == (4403, "unknown_session")

    @pytest.mark.feature("P26")
    def test_a_drain_tells_everyone_when_to_come_back_in_batches(self) -> None:
        scene = Scene(drain_batch=10, drain_spread_ms=5_000, connects_per_address=0)
        clients = [scene.open(f"u{number}")[1] for number in range(1, 36)]
        done: list[int] = []
        scene.gateway.drain(lambda: done.append(1))
        assert sum(transport.closed is not None for transport in clients) == 10 and not done
        scene.run(200)
        assert done == [1] and len(scene.messaging.gone) == 35
        after = [transport.frames[-1]["after_ms"] for transport in clients]
        assert all(transport.closed == (1001, "shutdown") for transport in clients)
        assert all(0 <= each < 5_000 for each in after)
        assert max(after) - min(after) > 3_000 and len(set(after)) > 30, "they do not come back at once"
        refusal = scene.gateway.refusal("10.0.0.2")
        assert refusal is not None and refusal.code == "unavailable"


class TestGarbage:
    @given(
        st.lists(
            st.tuples(st.binary(max_size=60), st.booleans())
            | st.tuples(
                st.builds(
                    lambda request_id, action, params: json.dumps(
                        {"id": request_id, "action": action, "params": params}
                    ).encode(),
                    st.none() | st.integers() | st.text(max_size=5),
                    st.sampled_from(["send", "ack", "ping", "pong", "typing", "sync", "receive", "presence"]),
                    st.none()
                    | st.dictionaries(st.sampled_from(["cursor", "with", "users"]), st.integers() | st.text()),
                ),
                st.just(True),
            ),
            max_size=12,
        ),
        st.sampled_from(["json", "proto"]),
    )
    def test_whatever_a_client_says_nothing_is_raised_and_all_is_in_order(
        self, frames: list[tuple[bytes, bool]], codec: str
    ) -> None:
        scene = Scene()
        connection, transport = scene.open(codec=codec, is_websocket=False)
        scene.messaging.answers |= {"sync": {"cursor": "4"}, "receive": {"cursor": "4"}, "send": {"at": 1}}
        for index, (payload, is_text) in enumerate(frames):
            connection.received(payload, is_text=is_text)
            scene.run()
            if transport.is_open():
                connection.push(1000, pushes(index + 1))
        scene.run()
        connection.lost()
        assert transport.closed in (None, (4400, "bad_request"))
        assert len(scene.messaging.gone) == 1 and scene.gateway.counters.connections == 0
        for frame in transport.tcp_frames:
            if codec == "json":
                json.loads(frame)
            else:
                assert ServerFrame.FromString(frame).WhichOneof("what")
