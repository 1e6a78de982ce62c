"""The client's session without a socket: its life, its requests, what arrives."""

from __future__ import annotations

import pytest

from pixiu.machines.client_session import (
    INBOX,
    Answered,
    Connect,
    Drop,
    Ended,
    FateUnknown,
    Hurry,
    Kicked,
    State,
)
from pixiu.machines.client_session.requests import REQUESTS_MAX, WINDOW
from pixiu.machines.client_session.values import Closed, Gap, GapEvent, Place, RecallEvent, RoomPresence
from pixiu.model.errors import (
    NotAllowed,
    Overloaded,
    RateLimited,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from tests.machines.client_frames import (
    CONTACTS,
    RULES,
    answers,
    arrived,
    events,
    frame,
    live,
    message,
    push,
    session,
    shown,
    written,
)


class TestLife:
    def test_a_connection_counts_from_its_first_push(self) -> None:
        made = session(cursor=7)
        assert made.start(0) == [Connect(7, needs_token=False)]
        asked, commands = made.request("user", {}, 1_000, 0)
        assert written(commands) == [] and made.opened(0) == []
        assert written(made.received(frame(CONTACTS), 0)) == [{"id": asked, "action": "user", "params": {}}]

    def test_waits_grow_and_are_jittered_and_a_good_connection_makes_them_short_again(self) -> None:
        made = session(jitter=1.0)
        made.start(0)
        now, waits = 0, []
        for _ in range(6):
            (closed,) = events(made.failed(Unavailable("no"), now), Closed)
            waits.append(closed.retry_ms)
            assert made.due() == now + closed.retry_ms
            assert made.tick(now + closed.retry_ms - 1) == []
            now += closed.retry_ms
            assert made.tick(now) == [Connect(0, needs_token=False)]
        assert waits == [50, 100, 200, 400, 500, 500], "half of it is random"
        made.received(frame(CONTACTS), now)
        (closed,) = events(made.closed(1006, "", now + RULES.stable_ms), Closed)
        assert closed.retry_ms == 50

    def test_the_server_s_advice_counts(self) -> None:
        made = session()
        live(made)
        made.received(frame({"push": "reconnect", "after_ms": 730}), 0)
        assert events(made.closed(1001, "shutdown", 0), Closed) == [Closed("shutdown", 730)]
        made.tick(730)
        assert events(made.failed(Unavailable("busy", retry_after_ms=900), 730), Closed) == [Closed("busy", 900)]

    @pytest.mark.parametrize("reason", ["no_ack", "slow", "resync", "unknown_session"])
    def test_kicks_after_which_it_comes_back(self, reason: str) -> None:
        made = session()
        live(made)
        made.received(frame({"push": "kick", "reason": reason}), 0)
        made.closed(4403, reason, 0)
        assert made.state is State.WAITING

    @pytest.mark.parametrize("reason", ["new_session", "bad behaviour"])
    def test_kicks_that_end_it(self, reason: str) -> None:
        made = session()
        live(made)
        _, commands = made.request("user", {}, 1_000, 0)
        made.received(frame({"push": "kick", "reason": reason}), 0)
        commands = made.closed(4403, reason, 0)
        (ended,) = (command for command in commands if isinstance(command, Ended))
        assert isinstance(ended.error, Kicked) and ended.error.reason == reason
        assert isinstance(answers(commands)[0], Kicked) and made.state is State.ENDED
        with pytest.raises(Unavailable):
            made.request("user", {}, 1_000, 0)

    def test_a_token_is_renewed_once(self) -> None:
        made = session()
        live(made)
        made.closed(4401, "expired", 0)
        assert made.why_refused.endswith("any more: it has expired")
        assert made.tick(0) == [Connect(0, needs_token=True)]
        (ended,) = (each for each in made.closed(4401, "unauthenticated", 0) if isinstance(each, Ended))
        assert isinstance(ended.error, Unauthenticated)
        fresh = session()
        fresh.start(0)
        fresh.closed(4401, "", 0)
        assert "any more" not in fresh.why_refused
        assert fresh.is_refused and fresh.tick(0) == [Connect(0, needs_token=True)]
        fresh.received(frame(CONTACTS), 0)
        assert not fresh.is_refused

    def test_a_server_that_says_nothing_is_given_up(self) -> None:
        made = session()
        made.start(0)
        assert made.due() == RULES.open_ms
        assert Drop() in made.tick(RULES.open_ms)
        made = session()
        live(made)
        assert written(made.tick(RULES.ping_ms))[0]["action"] == "ping"
        assert made.due() == RULES.ping_ms + 15_000
        assert Drop() in made.tick(RULES.ping_ms + 15_000) and made.state is State.WAITING
        made = session()
        live(made)
        (ping,) = written(made.tick(RULES.ping_ms))
        made.received(frame({"id": ping["id"], "result": {}}), RULES.ping_ms + 1)
        assert made.due() == 2 * RULES.ping_ms + 1

    def test_nonsense_ends_the_connection_not_the_session(self) -> None:
        made = session()
        live(made)
        for payload in (b"\xff", b"[]", b"{"):
            assert Drop() in made.received(payload, 0)
            made.tick(made.due() or 0)
            made.received(frame(CONTACTS), 0)
        assert made.state is State.LIVE
        assert made.received(frame({"push": "of the future", "x": 1}), 0) == []
        assert made.received(frame({"id": "not ours", "result": 1}), 0) == []


class TestRequests:
    def test_what_may_be_repeated_is_repeated_in_order(self) -> None:
        made = session()
        live(made)
        first, _ = made.request("send", {"send_id": "a"}, 10_000, 0)
        once, _ = made.request("say", {}, 10_000, 0)
        second, _ = made.request("history", {}, 10_000, 0)
        (failed,) = answers(made.closed(1006, "", 0))
        assert isinstance(failed, FateUnknown)
        made.tick(made.due() or 0)
        again = written(made.received(frame(CONTACTS), 200))
        assert [each["id"] for each in again] == [first, second] and once not in (first, second)
        commands = made.received(frame({"id": first, "result": {"message_id": "5"}}), 200)
        assert commands == [Answered(first, {"message_id": "5"})]
        assert made.received(frame({"id": first, "result": {}}), 200) == [], "answered already"

    def test_a_send_that_the_server_cannot_take_now_is_sent_again(self) -> None:
        made = session()
        live(made)
        asked, _ = made.request("send", {"send_id": "a"}, 3_000, 0)
        error = {"code": "rate_limited", "message": "slow down", "retry_after_ms": 700}
        assert made.received(frame({"id": asked, "error": error}), 0) == []
        assert made.due() == 700 and written(made.tick(699)) == []
        assert [each["id"] for each in written(made.tick(700))] == [asked]
        (told,) = answers(made.received(frame({"id": asked, "error": {**error, "retry_after_ms": 9_000}}), 800))
        assert isinstance(told, RateLimited) and told.retry_after_ms == 9_000, "beyond its deadline"
        asked, _ = made.request("search", {}, 3_000, 0)
        (told,) = answers(made.received(frame({"id": asked, "error": {"code": "unavailable", "message": "no"}}), 800))
        assert type(told) is Unavailable
        asked, _ = made.request("group", {}, 3_000, 0)
        (told,) = answers(made.received(frame({"id": asked, "error": {"code": "forbidden", "message": "no"}}), 800))
        assert type(told) is NotAllowed

    def test_deadlines_and_bounds(self) -> None:
        made = session()
        made.start(0)
        made.request("send", {}, 500, 0)
        (told,) = answers(made.tick(500))
        assert type(told) is Unavailable and "not sent" in str(told)
        made.received(frame(CONTACTS), 600)
        sent = []
        for _ in range(REQUESTS_MAX):
            sent += written(made.request("history", {}, 5_000, 600)[1])
        assert len(sent) == WINDOW
        with pytest.raises(Overloaded):
            made.request("history", {}, 5_000, 600)
        assert len(written(made.received(frame({"id": sent[0]["id"], "result": {}}), 700))) == 1
        commands = made.tick(5_000)
        assert len(answers(commands)) == REQUESTS_MAX - 1
        assert sum(isinstance(each, FateUnknown) for each in answers(commands)) == WINDOW
        assert made.waiting == 0

    def test_a_frame_that_is_too_large_fails_alone(self) -> None:
        made = session()
        live(made)
        small, _ = made.request("send", {"text": "x"}, 5_000, 0)
        large, _ = made.request("send", {"text": "x" * 1_000}, 5_000, 0)
        commands = made.closed(1009, "too_large", 0)
        (answered,) = (each for each in commands if isinstance(each, Answered))
        assert answered.number == large and isinstance(answered.answer, TooLarge)
        made.tick(made.due() or 0)
        assert [each["id"] for each in written(made.received(frame(CONTACTS), 200))] == [small]

    def test_what_waits_for_its_next_try_does_not_keep_an_offline_client_busy(self) -> None:
        made = session()
        live(made)
        made.request("send", {"to": "alice", "text": "x", "send_id": "1"}, 60_000, 0)
        error = {"code": "unavailable", "message": "no leader"}
        made.received(frame({"id": 1, "error": error}), 0)
        assert made.due() == 200, "the next try"
        made.closed(1006, "", 10)
        made.tick(made.due() or 0)
        assert made.state is State.CONNECTING
        assert made.due() == made._since + RULES.open_ms, "without a connection there is nothing to do at 200"
        again = made.received(frame(CONTACTS), 500)
        assert [each["action"] for each in written(again)] == ["send"], "and with one it goes at once"

    def test_requests_that_nobody_waits_for_take_no_room_while_offline(self) -> None:
        made = session()
        for number in range(5 * REQUESTS_MAX):
            asked, _ = made.request("send", {"to": "alice", "send_id": str(number)}, number + 10, number)
            made.tick(number + 10)
            made.give_up(asked)
        assert made.waiting == 0 and len(made._requests._queue) <= 2 * REQUESTS_MAX


class TestArriving:
    def test_once_and_in_order_and_acked_when_held(self) -> None:
        made = session()
        live(made)
        commands = made.received(push(1, 101), 0) + made.received(push(1, 101), 0) + made.received(push(2, 102), 0)
        assert shown(commands) == ["101", "102"] and written(commands) == []
        assert written(made.held(1, 0)) == [{"action": "ack", "params": {"cursor": "1"}}]
        assert made.held(1, 0) == [] and made.held(2, 7) == [], "held already; of another numbering"
        made.closed(1006, "", 0)
        assert Connect(1, needs_token=False) in made.tick(made.due() or 0)
        assert made.held(2, 0) == [], "no connection: told with the next"
        assert {"action": "ack", "params": {"cursor": "2"}} in written(made.received(frame(CONTACTS), 200))
        commands = made.received(push(2, 102), 200) + made.received(push(3, 103), 200)
        assert shown(commands) == ["103"]

    def test_what_this_client_sent_is_no_news(self) -> None:
        made = session()
        live(made)
        made.request("send", {"send_id": "mine"}, 5_000, 0)
        commands = made.received(push(1, 101, **{"from": "bob", "send_id": "mine"}), 0)
        assert shown(commands) == [] and arrived(commands)[0].cursor == 1, "kept, and acked"
        assert shown(made.received(push(2, 102, **{"from": "bob", "send_id": "of the phone"}), 0)) == ["102"]
        assert shown(made.received(push(3, 103, send_id="mine"), 0)) == ["103"], "someone else's token"
        made.sent(104)
        commands = made.received(push(4, 104), 0)
        assert [item.message for item in arrived(commands)] == [None] and arrived(commands)[0].cursor == 4

    def test_a_recall_is_an_event_with_a_place_in_the_order(self) -> None:
        made = session()
        live(made)
        raw = {"push": "recall", "cursor": "1", "message_id": "7", "message": message(101, kind="delete", ref="7")}
        commands = made.received(frame(raw), 0)
        assert events(commands, RecallEvent)[0].message_id == 7
        assert [(item.cursor, item.is_shown) for item in arrived(commands)] == [(1, False)]

    def test_resync_reads_the_inbox_page_by_page(self) -> None:
        made = session()
        live(made)
        made.received(push(1, 101), 0)
        (asked,) = written(made.received(frame({"push": "resync"}), 0))
        assert asked["action"] == "sync" and asked["params"]["cursor"] == "1"
        assert written(made.received(frame({"push": "resync"}), 0)) == [], "one at a time"
        overtaking = made.received(push(2, 102), 0)
        result = {"messages": [message(102), message(103)], "gaps": [], "has_more": True, "cursor": "3"}
        commands = made.received(frame({"id": asked["id"], "result": result}), 0)
        assert shown(overtaking + commands) == ["102", "103"] and arrived(commands)[-1].cursor == 3
        (asked,) = written(commands)
        result = {"messages": [message(104)], "gaps": [], "has_more": False, "cursor": "4"}
        commands = made.received(frame({"id": asked["id"], "result": result}), 0)
        assert shown(commands) == ["104"] and written(commands) == []
        assert shown(made.received(push(4, 104), 0) + made.received(push(5, 105), 0)) == ["105"]

    def test_a_cursor_of_another_inbox_begins_anew(self) -> None:
        made = session(cursor=50)
        live(made)
        (asked,) = written(made.received(frame({"push": "resync"}), 0))
        error = {"code": "bad_request", "message": "cursor 50 is not of this inbox"}
        (asked,) = written(made.received(frame({"id": asked["id"], "error": error}), 0))
        assert "cursor" not in asked["params"] and made.cursor == 0 and made.generation == 1
        result = {"messages": [message(7)], "gaps": [], "has_more": False, "cursor": "1"}
        (item, marker) = arrived(made.received(frame({"id": asked["id"], "result": result}), 0))
        assert item.generation == marker.generation == 1 and marker.cursor == 1
        assert made.held(40, 0) == [] and written(made.held(1, 1)) != []
        unannounced = session(cursor=50)
        live(unannounced)
        assert shown(unannounced.received(push(3, 3), 0)) == ["3"] and unannounced.generation == 1

    def test_gaps(self) -> None:
        made = session(cursor=3)
        live(made)
        commands = made.received(
            frame({"push": "gap", "inbox": "web", "after": "3", "before": "7", "trimmed": True}), 0
        )
        assert events(commands, GapEvent) == [GapEvent(Gap(Place("with", INBOX), 3, 7, is_trimmed=True))]
        assert made.received(frame({"push": "gap", "inbox": "web", "after": "3", "before": "5"}), 0) == [], (
            "not behind us"
        )
        commands = made.received(frame({"push": "gap", "group": "team", "after": "10", "before": "20"}), 0)
        assert events(commands, GapEvent) == [GapEvent(Gap(Place("group", "team"), 10, 20))]
        large = [
            frame({"push": "message", "message": message(number, group="crowd", prev=str(previous))})
            for number, previous in ((100, 90), (101, 100), (105, 103))
        ]
        commands = [command for each in large for command in made.received(each, 0)]
        assert shown(commands) == ["100", "101", "105"]
        assert events(commands, GapEvent) == [GapEvent(Gap(Place("group", "crowd"), 101, 105))]

    def test_a_gap_in_an_answer_to_a_sync_is_asked_for_from_before_that_answer(self) -> None:
        made = session()
        live(made)
        made.received(push(1, 101), 0)
        (asked,) = written(made.received(frame({"push": "resync"}), 0))
        gap = {"inbox": "web", "after": "1", "before": "5", "trimmed": True}
        result = {"messages": [message(150)], "gaps": [gap], "has_more": False, "cursor": "5"}
        commands = made.received(frame({"id": asked["id"], "result": result}), 0)
        assert shown(commands) == ["150"] and len(events(commands, GapEvent)) == 1
        assert made.take_missed() == 101, "not 150, which lies behind the gap"
        assert made.take_missed() is None

    @pytest.mark.parametrize(
        "odd",
        [
            {"push": "contacts", "contacts": 3},
            {"push": "contacts", "contacts": [None]},
            {"push": "receipt", "message_ids": 3},
            {"push": "message", "cursor": "1", "message": message(1, send_id={})},
            {"id": 1, "result": {"messages": [1], "gaps": [], "cursor": "5"}},
            {"id": 1, "result": {"messages": [], "gaps": 7, "cursor": "5"}},
        ],
    )
    def test_what_is_json_and_no_frame_ends_the_connection_and_not_the_session(self, odd: dict[str, object]) -> None:
        made = session()
        live(made)
        made.received(frame({"push": "resync"}), 0)
        commands = made.received(frame(odd), 0)
        assert any(isinstance(command, Drop) for command in commands) and made.state is State.WAITING
        made.tick(made.due() or 0)
        assert shown([*made.received(frame(CONTACTS), 200), *made.received(push(1, 101), 200)]) == ["101"]

    def test_rooms_and_watches_come_back_with_a_connection(self) -> None:
        made = session()
        live(made)
        made.rooms["lobby"] = None
        made.watches, made.watched = True, ["alice"]
        made.closed(1006, "", 0)
        made.tick(made.due() or 0)
        asked = {each["action"]: each for each in written(made.received(frame(CONTACTS), 200))}
        assert asked["enter"]["params"] == {"room": "lobby"} and asked["presence"]["params"] == {"users": ["alice"]}
        error = {"code": "forbidden", "message": "no"}
        commands = made.received(frame({"id": asked["enter"]["id"], "error": error}), 200)
        assert events(commands, RoomPresence) == [RoomPresence("lobby", is_in=False, reason="forbidden")]
        assert not made.rooms

    def test_what_could_not_be_kept_comes_again(self) -> None:
        made = session()
        live(made)
        made.received(push(1, 101), 0)
        assert Drop() in made.not_held("disk full", 0)
        made.tick(made.due() or 0)
        made.received(frame(CONTACTS), 200)
        assert shown(made.received(push(1, 101), 200)) == ["101"]

    def test_a_bad_request_while_opening_ends_it(self) -> None:
        made = session()
        made.start(0)
        (ended,) = (each for each in made.closed(4400, "bad_request", 0) if isinstance(each, Ended))
        assert isinstance(ended.error, RequestError)


class TestUrgentMessages:
    def test_early_copy_is_shown_at_once_and_the_message_still_arrives_with_its_cursor(self) -> None:
        made = session()
        live(made)
        early = frame({"push": "urgent", "message": message(9)})
        assert made.received(early, 0) == [Hurry(message(9))]
        assert made.cursor == 0
        (item,) = arrived(made.received(push(4, 9), 0))
        assert (item.cursor, item.is_shown) == (4, True), "the delivery buffer records whether the copy was taken"
        assert made.received(early, 0) == [], "a copy after the message is ignored"

    def test_malformed_early_copy_is_ignored(self) -> None:
        made = session()
        live(made)
        assert made.received(frame({"push": "urgent", "message": 5}), 0) == []
