"""Clients that do not keep up, and those who come too often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pixiu.config.gateway import GatewaySettings
from pixiu.machines.room_bodies import body_class, message_body
from pixiu.machines.scheduling import Priority
from pixiu.machines.session import CODECS
from pixiu.model.errors import ConfigError, Overloaded
from pixiu.model.frames_pb2 import ClientFrame
from pixiu.roles.gateway.outlet import DEFERRED_MAX, Talk
from pixiu.roles.gateway.rates import Buckets
from tests.roles.gateway.scene import Scene, pushes


def room_body(number: int, priority: str) -> bytes:
    return message_body(1000 + number, "ann", "lobby", 0, str(number), "", priority)


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["text"] for frame in frames]


class TestSlowReader:
    def test_live_events_give_way_the_latest_stays_and_the_gap_is_told(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.pause_writing()
        assert not transport.reads(), "who does not read its answers asks for no more"
        for number in range(5):
            connection.event(0, {"push": "presence", "user": "u2", "state": f"s{number}"})
            connection.event(0, {"push": "presence", "user": "u3", "state": f"s{number}"})
            connection.outlet.talk(Talk("lobby", [json.dumps({"push": "message", "n": number}).encode()] * 2))
        scene.run()
        assert len(transport.frames) == 1, "only the contacts"
        connection.resume_writing()
        scene.run()
        assert transport.reads()
        assert transport.frames[1:] == [
            {"push": "gap", "missed": 8},
            {"push": "gap", "room": "lobby", "missed": 8},
            {"push": "presence", "user": "u2", "state": "s4"},
            {"push": "presence", "user": "u3", "state": "s4"},
            {"push": "message", "n": 4},
            {"push": "message", "n": 4},
        ]
        assert scene.gateway.counters.dropped_events == 16

    def test_repeat_of_what_has_not_reached_the_client_is_reported_and_not_written_again(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        transport.on_its_way = 100
        scene.push(connection, pushes(1, 2))
        scene.push(connection, pushes(1, 2))
        assert scene.messaging.writings == [1000], "once for each repeat"
        again = [push._replace(is_resend=True) for push in pushes(1, 2)]
        scene.push(connection, again)
        assert transport.cursors == [1, 2], "it is not written again while it is on its way"
        transport.on_its_way = 0
        scene.push(connection, again)
        assert scene.messaging.writings == [1000, 1000], "from here on the client can ack"
        assert transport.cursors == [1, 2, 1, 2]
        transport.on_its_way = 100
        scene.push(connection, again)
        assert scene.messaging.writings == [1000, 1000], "only the repeat itself is on its way"

    def test_bytes_behind_the_messages_do_not_excuse_a_missing_ack(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        scene.push(connection, pushes(1))
        for number in range(100):
            connection.outlet.talk(Talk("lobby", [room_body(number, "normal")]))
        scene.run()
        transport.on_its_way = 2_000
        scene.push(connection, pushes(1))
        assert scene.messaging.writings == []

    def test_repeat_during_the_login_is_reported_and_kept_once(self) -> None:
        scene = Scene()
        del scene.messaging.answers["contacts"]
        connection, transport = scene.open()
        scene.push(connection, pushes(1, 2))
        scene.push(connection, pushes(1, 2))
        assert scene.messaging.writings == [1000]
        scene.messaging.asked[0][3]({"contacts": [], "others": []})
        scene.run()
        assert transport.cursors == [1, 2]
        assert scene.gateway.counters.repeats == 0

    def test_client_that_takes_no_bytes_of_its_messages_is_closed_as_slow(self) -> None:
        scene = Scene(slow_timeout_ms=1_000)
        connection, transport = scene.open()
        transport.on_its_way = 100_000
        scene.push(connection, pushes(1))
        scene.push(connection, pushes(1))
        for _ in range(4):  # 16 KiB in a second are enough
            transport.on_its_way -= 16 * 1024
            scene.run(1_000)
            assert transport.is_open()
        scene.run(1_000)
        assert transport.closed == (4403, "slow")

    def test_client_is_not_closed_as_idle_while_its_socket_is_full(self) -> None:
        scene = Scene(slow_timeout_ms=3_600_000, ping_interval_ms=1_000, idle_timeout_ms=2_000)
        connection, transport = scene.open()
        connection.pause_writing()
        scene.run(10_000)
        assert transport.is_open()
        connection.resume_writing()
        scene.run(10_000)
        assert transport.closed == (4408, "idle")

    @pytest.mark.feature("P27")
    def test_reliable_talk_waits_for_a_slow_client_and_live_talk_does_not(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.pause_writing()
        for number in range(200):
            body = json.dumps({"push": "message", "n": number}).encode()
            connection.outlet.talk(Talk("lobby", [body], is_reliable=number % 2 == 0))
            connection.event(0, {"push": "presence", "user": f"u{number}", "state": "online"})
        connection.resume_writing()
        scene.run()
        assert [frame["n"] for frame in transport.pushed("message")] == [*range(0, 200, 2), 199], "in order"
        assert {"push": "gap", "room": "lobby", "missed": 99} in transport.frames
        assert len(transport.pushed("presence")) == DEFERRED_MAX - 1, "the bound of the others is their own"

    def test_urgent_room_messages_overtake_what_waits_and_bulk_comes_last(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.pause_writing()
        said = ["low", "normal", "high", "normal", "low"]
        for number, priority in enumerate(said):
            connection.outlet.talk(Talk("lobby", [room_body(number, priority)]))
        connection.outlet.talk(Talk("lobby", [room_body(5, "normal"), room_body(6, "high")], is_reliable=True))
        connection.resume_writing()
        scene.run()
        assert texts(transport.pushed("message")) == ["2", "6", "3", "5", "4"]
        assert {"push": "gap", "room": "lobby", "missed": 2} in transport.frames

    def test_bulk_gives_way_at_the_bound_of_what_waits(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.pause_writing()
        for number in range(DEFERRED_MAX):
            connection.outlet.talk(Talk(f"room {number}", [room_body(number, "low")]))
        for number in range(DEFERRED_MAX, DEFERRED_MAX + 2):
            connection.outlet.talk(Talk(f"room {number}", [room_body(number, "normal")]))
        connection.outlet.talk(Talk("another room", [room_body(0, "low")]))
        connection.resume_writing()
        scene.run()
        kept = [str(number) for number in (64, 65, *range(2, DEFERRED_MAX))]
        assert texts(transport.pushed("message")) == kept
        assert scene.gateway.counters.dropped_events == 3

    def test_text_of_a_message_cannot_claim_a_priority(self) -> None:
        claim = '{"push":"message","message":{"priority":"high"'
        assert body_class(message_body(1, "ann", "lobby", 0, claim, "")) is Priority.CHAT

    @pytest.mark.feature("P27")
    def test_who_does_not_take_reliable_talk_is_kicked_and_not_deceived(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open()
        connection.pause_writing()
        sent = 0
        while transport.is_open():
            connection.outlet.talk(
                Talk("lobby", [json.dumps({"push": "message", "n": sent}).encode()], is_reliable=True)
            )
            sent += 1
            assert sent < 1000
        assert transport.closed == (4403, "slow") and transport.frames[-1] == {"push": "kick", "reason": "slow"}
        assert 50 < sent < 4096 // 20
        connection.outlet.talk(Talk("lobby", [b"{}"], is_reliable=True))
        scene.run()

    def test_more_talk_than_one_write_may_have_is_spread_over_several(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open()
        bodies = [json.dumps({"push": "message", "n": number, "x": "y" * 200}).encode() for number in range(100)]
        for body in bodies:
            connection.outlet.talk(Talk("lobby", [body], is_reliable=True))
        scene.run()
        assert [frame["n"] for frame in transport.pushed("message")] == list(range(100)) and transport.is_open()
        assert max(map(len, transport.writes)) < 4096 + 300, "whatever comes in one turn"

    def test_what_is_kept_for_a_slow_client_is_bounded(self) -> None:
        scene = Scene()
        connection, transport = scene.open()
        connection.pause_writing()
        for number in range(3 * DEFERRED_MAX):
            connection.event(0, {"push": "presence", "user": f"u{number}", "state": "online"})
            connection.outlet.talk(Talk(f"room {number}", [b"{}"]))
        connection.resume_writing()
        scene.run()
        assert len(transport.frames) <= 2 * DEFERRED_MAX + 2
        told = sum(frame["missed"] for frame in transport.pushed("gap"))
        kept = len(transport.frames) - 1 - len(transport.pushed("gap"))
        assert told + kept == 6 * DEFERRED_MAX, "everything is either shown or said to be missing"

    def test_messages_beyond_the_bound_are_held_back_and_follow(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open(room=0)
        connection.pause_writing()
        scene.push(connection, pushes(*range(1, 41), text="x" * 100))
        written = transport.cursors
        assert 0 < len(written) < 40 and written == list(range(1, len(written) + 1))
        assert sum(map(len, transport.writes)) < 4096 + 2_000
        scene.push(connection, pushes(41))
        scene.push(connection, pushes(*range(1, 41)))  # the relay, after its timeout
        assert transport.cursors == written, "nothing passes what was held back"
        assert scene.gateway.counters.lags == 1
        transport.drain()
        connection.resume_writing()
        scene.run()
        assert transport.cursors == list(range(1, 42)), "all of it, in order, once"
        assert not transport.pushed("resync"), "nothing is missing"
        scene.run(20_000)
        assert transport.is_open(), "it has caught up"

    def test_a_burst_that_the_socket_takes_is_only_put_off(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open()
        scene.push(connection, pushes(*range(1, 401), text="x" * 100))
        assert transport.cursors == list(range(1, 401))
        assert all(len(write) <= 4096 + 300 for write in transport.writes)

    def test_who_gets_on_slowly_is_not_kicked(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096, slow_timeout_ms=1_000, idle_timeout_ms=60_000)
        connection, transport = scene.open(room=0)
        connection.pause_writing()
        scene.push(connection, pushes(*range(1, 201), text="x" * 100))
        while len(transport.cursors) < 200:
            scene.run(800)
            transport.waiting = 0
            connection.resume_writing()
            scene.run()
            connection.pause_writing()
        assert transport.is_open() and transport.cursors == list(range(1, 201))

    def test_a_sync_replaces_what_was_held_back(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open(room=0)
        connection.pause_writing()
        scene.push(connection, pushes(*range(1, 101), text="x" * 100))
        transport.waiting = 0
        scene.messaging.answers["sync"] = {"messages": [], "gaps": [], "cursor": "90"}
        scene.say(connection, {"id": 1, "action": "sync", "params": {}})
        written = transport.cursors
        transport.drain()
        connection.resume_writing()
        scene.run()
        assert transport.cursors == [*written, *range(91, 101)]

    def test_a_sync_that_was_not_sent_closes_no_hole(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open(room=0)
        connection.pause_writing()
        scene.push(connection, pushes(*range(1, 101), text="x" * 100))
        scene.messaging.answers["sync"] = {"messages": ["x" * 1000], "gaps": [], "cursor": "90"}
        scene.say(connection, {"id": 1, "action": "sync", "params": {}})
        assert transport.frames[-1]["error"]["code"] == "busy"
        transport.drain()
        connection.resume_writing()
        scene.run()
        assert transport.cursors == list(range(1, 101))

    def test_one_message_larger_than_the_bound_still_goes(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096)
        connection, transport = scene.open()
        scene.push(connection, pushes(1, text="x" * 10_000))
        assert transport.cursors == [1]

    def test_who_stays_slow_is_kicked(self) -> None:
        scene = Scene(slow_timeout_ms=2_000, idle_timeout_ms=60_000)
        connection, transport = scene.open()
        connection.pause_writing()
        scene.run(1_000)
        connection.resume_writing()
        scene.run(5_000)
        assert transport.is_open(), "it was slow once, and has recovered"
        connection.pause_writing()
        scene.run(2_100)
        assert transport.closed == (4403, "slow") and scene.messaging.gone == [1000]
        assert transport.frames[-1] == {"push": "kick", "reason": "slow"}

    def test_answers_that_nobody_reads_become_an_error(self) -> None:
        scene = Scene(output_mark_bytes=2048, output_bytes_max=4096, requests_in_flight=100)
        connection, transport = scene.open(room=0)
        scene.messaging.answers["history"] = {"messages": ["x" * 1_000]}
        for number in range(20):
            connection.received(json.dumps({"id": number, "action": "history", "params": {}}).encode(), is_text=True)
        scene.run()
        answers = transport.frames[1:]
        assert [frame["id"] for frame in answers] == list(range(20)), "every request is answered"
        codes = {frame["error"]["code"] for frame in answers if "error" in frame}
        assert codes == {"busy"} and sum("result" in frame for frame in answers) in (3, 4)
        assert sum(map(len, transport.writes)) < 4096 + 20 * 120


class TestLimits:
    @pytest.mark.feature("T3")
    def test_one_more_than_the_limit_is_refused_and_the_others_stay(self) -> None:
        scene = Scene(connections_max=3)
        clients = [scene.open(f"u{number}") for number in range(1, 4)]
        refusal = scene.gateway.refusal("10.0.0.9")
        assert isinstance(refusal, Overloaded) and refusal.code == "busy" and refusal.retry_after_ms > 0
        snapshot = scene.gateway.counters.snapshot()
        assert snapshot["pixiu_gateway_connections"] == snapshot["pixiu_gateway_connections_max"] == 3
        assert snapshot["pixiu_gateway_refused_total"] == {("busy",): 1}
        assert all(transport.is_open() for _, transport in clients)
        clients[0][0].lost()
        assert scene.gateway.refusal("10.0.0.9") is None

    def test_connects_of_one_address_and_of_one_user_are_limited(self) -> None:
        scene = Scene(
            connects_per_address=10, connect_burst_per_address=5, connects_per_user=1, connect_burst_per_user=2
        )
        found = [scene.gateway.refusal("10.0.0.1") for _ in range(7)]
        assert [error and error.code for error in found] == [None] * 5 + ["rate_limited"] * 2
        assert scene.gateway.refusal("10.0.0.2") is None
        assert all(scene.gateway.refusal("127.0.0.1") is None for _ in range(50))
        scene.run(200)
        assert scene.gateway.refusal("10.0.0.1") is None
        transports = [scene.open("u1")[1] for _ in range(3)]
        assert [transport.closed for transport in transports] == [None, None, (4429, "rate_limited")]

    def test_requests_of_one_user_are_limited_over_all_its_connections(self) -> None:
        scene = Scene(requests_per_user=1, request_burst_per_user=3, requests_in_flight=100)
        scene.messaging.answers["user"] = {}
        (one, first), (two, second) = scene.open("u1"), scene.open("u1")
        for number in range(3):
            scene.say(one, {"id": number, "action": "user", "params": {}})
            scene.say(two, {"id": number, "action": "user", "params": {}})
        codes = [frame.get("error", {}).get("code", "ok") for frame in [*first.frames[1:], *second.frames[1:]]]
        assert codes.count("ok") == 3 and codes.count("rate_limited") == 3
        limited = next(frame for frame in first.frames if "error" in frame)
        assert limited["error"]["retry_after_ms"] > 0

    def test_the_tables_of_rates_are_bounded(self) -> None:
        buckets = Buckets("x", per_second=1, burst=5, buckets_max=100)
        for number in range(1_000):
            assert buckets.take(number, 1_000_000) is None
        assert len(buckets) <= 100
        assert buckets.take(999, 1_000_000) is None
        for number in range(1_000, 1_101):
            buckets.take(number, 10**12)
        assert len(buckets) <= 101, "full buckets are forgotten first"


class TestBinary:
    def test_a_request_and_its_answer(self) -> None:
        scene = Scene()
        connection, transport = scene.open("u1", codec="proto", is_websocket=False)
        frame = ClientFrame()
        frame.request.id = 5
        frame.request.action = "send"
        frame.request.params["to"].text = "u2"
        frame.request.params["body"].data = b"\x00\xff"
        connection.received(frame.SerializeToString(), is_text=False)
        actor, action, params, done = scene.messaging.asked[-1]
        assert (actor.user, action, params) == (1, "send", {"to": "u2", "body": "AP8="})
        done({"message_id": "9", "at": 5})
        scene.run()
        contacts, answer = transport.proto_frames
        assert contacts.event.push == "contacts" and contacts.event.fields["contacts"].WhichOneof("kind") == "list"
        assert answer.answer.id == 5 and answer.answer.result["message_id"].text == "9"
        assert answer.answer.result["at"].number == 5

    def test_talk_of_rooms_reaches_it_too(self) -> None:
        scene = Scene()
        connection, transport = scene.open("u1", codec="proto", is_websocket=False)
        body = CODECS["json"].event({"push": "message", "message": {"room": "lobby", "text": "hi"}})
        connection.outlet.talk(Talk("lobby", [body, body]))
        scene.run()
        (_, one, two) = transport.proto_frames
        assert one == two and one.event.fields["message"].map.values["text"].text == "hi"


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="output_bytes_max must be at least twice"):
        GatewaySettings(output_mark_bytes=100_000, output_bytes_max=150_000)
    with pytest.raises(ConfigError, match="ping_interval_ms"):
        GatewaySettings(ping_interval_ms=0)
