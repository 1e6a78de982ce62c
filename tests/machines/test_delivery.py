"""The delivery machine, cell by cell of its table."""

from __future__ import annotations

import pytest

from pixiu.config import InboxSettings
from pixiu.machines.delivery import (
    BEATS_PER_READ,
    NOTHING,
    AckInbox,
    BodyLost,
    Delivery,
    FetchBodies,
    FetchIds,
    Kick,
    Push,
    PushTo,
    Resend,
    SetTimer,
    State,
    TimerKind,
)
from pixiu.model.inbox import Entry, Page
from pixiu.model.pixiu_pb2 import ChatMsgStatus, MsgChat
from tests.machines.deliveries import (
    CANCEL,
    FIRST,
    NOW,
    SECOND,
    SET_ACK,
    SET_REQUEST,
    SETTINGS,
    bodies_of,
    entries,
    entry,
    fetching_bodies,
    fetching_ids,
    online,
    pushed,
    sending,
    useqs,
    wake,
)


@pytest.mark.feature("X63")
class TestOffline:
    def test_a_login_reads_behind_what_was_acked(self) -> None:
        delivery = Delivery(SETTINGS)
        assert delivery.logged_in(FIRST) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]
        assert delivery.state is State.FETCHING_IDS
        delivery.check()

    def test_a_heartbeat_of_a_session_that_is_newer_than_the_closed_one_is_a_login(self) -> None:
        delivery = online()
        delivery.logged_out(FIRST.session_id)
        assert delivery.heartbeat(FIRST) == NOTHING
        assert delivery.heartbeat(SECOND) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]

    @pytest.mark.parametrize("event", ["woken", "acked", "logged_out", "ids", "bodies", "request", "ack", "doubted"])
    def test_everything_else_is_ignored(self, event: str) -> None:
        delivery = online()
        delivery.logged_out(FIRST.session_id)
        turn = delivery.turn
        answer = {
            "woken": lambda: wake(delivery, entries(1, 2)),
            "acked": lambda: delivery.acked(FIRST.session_id, 2),
            "logged_out": lambda: delivery.logged_out(FIRST.session_id),
            "ids": lambda: delivery.ids_fetched(turn, Page(entries(1, 2), 0, 2), NOW),
            "bodies": lambda: delivery.bodies_fetched(turn, bodies_of(entries(1, 2))),
            "request": delivery.request_timed_out,
            "ack": delivery.ack_timed_out,
            "doubted": delivery.doubted,
        }[event]()
        assert answer == NOTHING
        assert delivery.state is State.OFFLINE
        delivery.check()


@pytest.mark.feature("X63")
class TestIdle:
    def test_a_newer_login_reads_for_the_new_session(self) -> None:
        delivery = online()
        assert delivery.logged_in(SECOND) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]
        assert delivery.session is SECOND

    def test_an_older_login_and_a_repeated_one_are_ignored(self) -> None:
        delivery = online(session=SECOND)
        assert delivery.logged_in(FIRST) == NOTHING
        assert delivery.logged_in(SECOND) == NOTHING
        assert delivery.session is SECOND

    @pytest.mark.feature("E24")
    def test_every_so_many_heartbeats_read(self) -> None:
        delivery = online()
        answers = [delivery.heartbeat(FIRST) for _ in range(BEATS_PER_READ)]
        assert answers[:-1] == [NOTHING] * (BEATS_PER_READ - 1)
        assert answers[-1] == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]

    def test_a_heartbeat_of_a_newer_session_is_a_login_and_of_an_older_one_nothing(self) -> None:
        delivery = online(session=SECOND)
        assert delivery.heartbeat(FIRST) == NOTHING
        third = SECOND._replace(session_id=13, number=3)
        assert delivery.heartbeat(third)
        assert delivery.session is third

    def test_a_closed_session_is_not_revived_after_an_older_one_took_over(self) -> None:
        delivery = online(session=SECOND)
        delivery.logged_out(SECOND.session_id)
        delivery.logged_in(FIRST)
        assert delivery.heartbeat(SECOND) == NOTHING
        assert delivery.session is FIRST

    def test_a_wake_without_entries_reads(self) -> None:
        delivery = online()
        assert delivery.woken(2) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]

    def test_a_wake_with_what_follows_is_pushed_at_once(self) -> None:
        delivery = online()
        found = entries(1, 2)
        expected = [
            Push(1, 0, 1001, b"body 1", False, True, 0),
            Push(2, 1, 1002, b"body 2", False, True, 0),
        ]
        assert wake(delivery, found) == [SET_ACK, PushTo(FIRST.session_id, expected, expected)]
        assert delivery.state is State.SENDING
        delivery.check([1, 2])

    @pytest.mark.parametrize(
        ("found", "why"),
        [
            (entries(2, 3), "one is missing before"),
            ([entry(1), entry(3)], "one is missing between"),
        ],
    )
    def test_a_wake_that_does_not_follow_reads(self, found: list[Entry], why: str) -> None:
        delivery = online()
        assert wake(delivery, found) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)], why

    def test_a_wake_whose_first_body_is_missing_reads(self) -> None:
        delivery = online()
        assert delivery.woken(1, entries(1, 1), {}) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]

    def test_a_wake_with_some_bodies_pushes_those_before_the_first_that_is_missing(self) -> None:
        delivery = online()
        commands = delivery.woken(3, entries(1, 3), bodies_of(entries(1, 2)))
        assert pushed(commands) == [1, 2]
        assert delivery.acked(FIRST.session_id, 2) == [AckInbox(1, 2), SET_REQUEST, FetchIds(delivery.turn, 2, 3)]

    def test_a_repeated_wake_is_ignored(self) -> None:
        delivery = sending(2)
        delivery.acked(FIRST.session_id, 2)
        assert delivery.state is State.IDLE
        assert wake(delivery, entries(1, 2)) == NOTHING

    def test_old_acks_and_late_answers_and_timers_are_ignored(self) -> None:
        delivery = sending(2)
        delivery.acked(FIRST.session_id, 2)
        assert delivery.acked(FIRST.session_id, 1) == NOTHING
        assert delivery.acked(FIRST.session_id, 9) == NOTHING
        assert delivery.ids_fetched(delivery.turn, Page(entries(3, 4), 0, 4), NOW) == NOTHING
        assert delivery.bodies_fetched(delivery.turn, {}) == NOTHING
        assert delivery.request_timed_out() == NOTHING
        assert delivery.ack_timed_out() == NOTHING
        assert delivery.state is State.IDLE

    @pytest.mark.feature("E43")
    def test_only_the_logout_of_its_own_session_ends_it(self) -> None:
        delivery = online(session=SECOND)
        assert delivery.logged_out(FIRST.session_id) == NOTHING
        assert delivery.session is SECOND
        assert delivery.logged_out(SECOND.session_id) == [CANCEL]
        assert delivery.state is State.OFFLINE


@pytest.mark.feature("X63")
class TestFetchingIds:
    def test_a_newer_login_makes_the_old_read_void(self) -> None:
        delivery = fetching_ids()
        old = delivery.turn
        delivery.logged_in(SECOND)
        assert delivery.ids_fetched(old, Page(entries(1, 3), 0, 3), NOW) == NOTHING
        assert delivery.state is State.FETCHING_IDS

    def test_a_heartbeat_and_an_ack_change_nothing(self) -> None:
        delivery = fetching_ids()
        assert delivery.heartbeat(FIRST) == NOTHING
        assert delivery.acked(FIRST.session_id, 3) == NOTHING
        assert delivery.acked_through == 0

    def test_a_wake_is_remembered(self) -> None:
        delivery = fetching_ids(3)
        assert delivery.woken(7) == NOTHING
        assert delivery.latest == 7

    def test_a_wake_with_what_follows_is_the_answer(self) -> None:
        delivery = fetching_ids(2)
        turn = delivery.turn
        assert pushed(wake(delivery, entries(1, 2))) == [1, 2]
        assert delivery.ids_fetched(turn, Page(entries(1, 2), 0, 2), NOW) == NOTHING
        delivery.check([1, 2])

    def test_the_logout_ends_it(self) -> None:
        delivery = fetching_ids()
        assert delivery.logged_out(FIRST.session_id) == [CANCEL]
        delivery.check()

    def test_nothing_found_and_nothing_known_is_idle(self) -> None:
        delivery = Delivery(SETTINGS)
        delivery.logged_in(FIRST)
        assert delivery.ids_fetched(delivery.turn, Page([], 5, 5), NOW) == [CANCEL]
        assert (delivery.acked_through, delivery.fetched_through, delivery.latest) == (5, 5, 5)
        assert delivery.state is State.IDLE

    @pytest.mark.feature("E24")
    def test_nothing_found_though_more_is_known_reads_again_a_moment_later(self) -> None:
        delivery = fetching_ids(3)
        assert delivery.ids_fetched(delivery.turn, Page([], 0, 0), NOW) == [SET_REQUEST]
        assert delivery.state is State.FETCHING_IDS
        assert delivery.request_timed_out() == [
            SetTimer(TimerKind.REQUEST, 1),
            FetchIds(delivery.turn, 0, 3),
        ]

    def test_what_was_known_and_is_gone_is_not_waited_for(self) -> None:
        delivery = fetching_ids(3)
        assert delivery.ids_fetched(delivery.turn, Page([], 1, 3), NOW) == [CANCEL]
        assert delivery.acked_through == 3

    def test_the_floor_is_learnt(self) -> None:
        delivery = Delivery(SETTINGS)
        delivery.logged_in(FIRST)
        commands = delivery.ids_fetched(delivery.turn, Page(entries(8, 9), 7, 9), NOW)
        assert commands == [SET_REQUEST, FetchBodies(delivery.turn, [1008, 1009])]
        assert (delivery.acked_through, delivery.latest) == (7, 9)

    def test_an_answer_to_another_turn_is_dropped(self) -> None:
        delivery = fetching_ids()
        assert delivery.ids_fetched(delivery.turn - 1, Page(entries(1, 3), 0, 3), NOW) == NOTHING
        assert delivery.bodies_fetched(delivery.turn, {}) == NOTHING

    @pytest.mark.feature("E23")
    def test_no_answer_asks_again_and_waits_longer_each_time(self) -> None:
        delivery = fetching_ids()
        turn = delivery.turn
        for attempt in (1, 2, 3):
            assert delivery.request_timed_out() == [
                SetTimer(TimerKind.REQUEST, attempt),
                FetchIds(turn, 0, 3),
            ]
        assert delivery.ids_fetched(turn, Page(entries(1, 3), 0, 3), NOW)

    def test_the_ack_timer_means_nothing_here(self) -> None:
        assert fetching_ids().ack_timed_out() == NOTHING

    def test_a_doubt_during_a_read_reads_once_more(self) -> None:
        delivery = fetching_ids(0 + 1)
        assert delivery.doubted() == NOTHING
        assert delivery.ids_fetched(delivery.turn, Page([], 1, 1), NOW) == [
            SET_REQUEST,
            FetchIds(delivery.turn, 1, 3),
        ]


@pytest.mark.feature("X63")
class TestFetchingBodies:
    def test_a_newer_login_starts_over(self) -> None:
        delivery = fetching_bodies()
        old = delivery.turn
        assert delivery.logged_in(SECOND) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]
        assert delivery.bodies_fetched(old, bodies_of(entries(1, 3))) == NOTHING

    def test_heartbeats_wakes_acks_and_ids_change_nothing(self) -> None:
        delivery = fetching_bodies()
        assert delivery.heartbeat(FIRST) == NOTHING
        assert wake(delivery, entries(1, 5)) == NOTHING
        assert delivery.latest == 5
        assert delivery.acked(FIRST.session_id, 3) == NOTHING
        assert delivery.ids_fetched(delivery.turn, Page(entries(1, 3), 0, 3), NOW) == NOTHING
        assert delivery.ack_timed_out() == NOTHING
        assert delivery.state is State.FETCHING_BODIES

    def test_the_logout_ends_it(self) -> None:
        delivery = fetching_bodies()
        assert delivery.logged_out(FIRST.session_id) == [CANCEL]
        delivery.check()

    def test_all_bodies_are_pushed_in_order(self) -> None:
        delivery = fetching_bodies()
        commands = delivery.bodies_fetched(delivery.turn, bodies_of(entries(1, 3)))
        assert commands[0] == SET_ACK
        assert pushed(commands) == [1, 2, 3]
        assert delivery.fetched_through == 3
        delivery.check([1, 2, 3])

    def test_what_lies_before_a_missing_body_is_pushed_and_the_rest_is_read_again(self) -> None:
        delivery = fetching_bodies()
        bodies = bodies_of(entries(1, 3))
        del bodies[1002]
        assert pushed(delivery.bodies_fetched(delivery.turn, bodies)) == [1]
        assert delivery.fetched_through == 1
        assert delivery.acked(FIRST.session_id, 1)[-1] == FetchIds(delivery.turn, 1, 3)

    def test_a_body_that_stays_missing_becomes_a_tombstone(self) -> None:
        delivery = fetching_bodies()
        bodies = bodies_of(entries(2, 3))
        for _ in range(SETTINGS.tries_max):
            assert delivery.bodies_fetched(delivery.turn, bodies) == [SET_REQUEST]
            assert delivery.request_timed_out()[-1] == FetchIds(delivery.turn, 0, 3)
            delivery.ids_fetched(delivery.turn, Page(entries(1, 3), 0, 3), NOW)
        commands = delivery.bodies_fetched(delivery.turn, bodies)
        assert commands[0] == BodyLost(1, 1001)
        assert pushed(commands) == [1, 2, 3]
        shown = MsgChat.FromString(delivery.items[0].body)
        assert (shown.msgId, shown.status) == (1001, ChatMsgStatus.DELETED)

    def test_an_entry_that_is_gone_when_it_is_read_again_needs_no_tombstone(self) -> None:
        delivery = fetching_bodies()
        assert delivery.bodies_fetched(delivery.turn, {}) == [SET_REQUEST]
        delivery.request_timed_out()
        delivery.ids_fetched(delivery.turn, Page(entries(2, 3), 1, 3), NOW)
        assert pushed(delivery.bodies_fetched(delivery.turn, bodies_of(entries(2, 3)))) == [2, 3]

    @pytest.mark.feature("E23")
    def test_no_answer_asks_again(self) -> None:
        delivery = fetching_bodies()
        assert delivery.request_timed_out() == [
            SetTimer(TimerKind.REQUEST, 1),
            FetchBodies(delivery.turn, [1001, 1002, 1003]),
        ]


@pytest.mark.feature("X63")
class TestSending:
    def test_a_newer_login_sends_all_that_is_not_acked_to_the_new_session(self) -> None:
        delivery = sending(3)
        delivery.acked(FIRST.session_id, 1)
        assert delivery.logged_in(SECOND) == [SET_REQUEST, FetchIds(delivery.turn, 1, 3)]
        delivery.check()
        delivery.ids_fetched(delivery.turn, Page(entries(2, 3), 1, 3), NOW)
        commands = delivery.bodies_fetched(delivery.turn, bodies_of(entries(2, 3)))
        assert isinstance(commands[-1], PushTo)
        assert commands[-1].session_id == SECOND.session_id
        assert pushed(commands) == [2, 3]
        assert commands[-1].pushes[0].previous_useq == 0

    def test_a_heartbeat_changes_nothing(self) -> None:
        delivery = sending(2)
        assert [delivery.heartbeat(FIRST) for _ in range(BEATS_PER_READ)] == [NOTHING] * BEATS_PER_READ
        # but the last one asks for a read when all is acked
        assert delivery.acked(FIRST.session_id, 2)[-1] == FetchIds(delivery.turn, 2, 3)

    def test_a_wake_with_what_follows_fills_the_window_then_the_queue_then_is_only_remembered(self) -> None:
        delivery = sending(3)
        assert pushed(wake(delivery, entries(4, 5))) == [4]
        assert delivery.sent == 4
        assert not wake(delivery, entries(6, 9))
        assert delivery.fetched_through == 7  # window 4, read_limit 3
        assert delivery.latest == 9
        assert not wake(delivery, entries(10, 10))
        delivery.check(range(1, 11))
        assert pushed(delivery.acked(FIRST.session_id, 4)) == [5, 6, 7]
        assert delivery.acked(FIRST.session_id, 7) == [
            AckInbox(5, 7),
            SET_REQUEST,
            FetchIds(delivery.turn, 7, 3),
        ]

    def test_an_ack_of_a_part_moves_the_window(self) -> None:
        delivery = sending(6)
        assert delivery.sent == 4
        commands = delivery.acked(FIRST.session_id, 2)
        assert commands[:2] == [AckInbox(1, 2), SET_ACK]
        assert pushed(commands) == [5, 6]
        assert delivery.acked_through == 2
        delivery.check(range(1, 7))

    def test_an_ack_of_all_rests(self) -> None:
        delivery = sending(3)
        assert delivery.acked(FIRST.session_id, 3) == [AckInbox(1, 3), CANCEL]
        assert delivery.state is State.IDLE

    def test_an_ack_of_all_reads_on_when_more_is_known(self) -> None:
        delivery = sending(3)
        delivery.woken(9)
        assert delivery.acked(FIRST.session_id, 3) == [AckInbox(1, 3), SET_REQUEST, FetchIds(delivery.turn, 3, 3)]

    def test_an_ack_beyond_what_was_fetched_acks_what_was_fetched(self) -> None:
        delivery = sending(3)
        assert delivery.acked(FIRST.session_id, 99) == [AckInbox(1, 3), CANCEL]
        assert delivery.acked_through == 3

    def test_an_ack_of_what_waits_in_the_queue_counts(self) -> None:
        delivery = sending(6)
        assert delivery.acked(FIRST.session_id, 5)[0] == AckInbox(1, 5)
        assert useqs(delivery.items) == [6]
        delivery.check(range(1, 7))

    @pytest.mark.feature("E42", "P12")
    def test_an_ack_of_another_session_counts_for_nothing(self) -> None:
        delivery = sending(3)
        assert delivery.acked(SECOND.session_id, 3) == NOTHING
        assert delivery.acked_through == 0

    @pytest.mark.feature("E22", "X65")
    def test_a_logout_settles_what_was_acked_and_not_what_was_sent(self) -> None:
        delivery = sending(3)
        delivery.acked(FIRST.session_id, 1)
        assert delivery.logged_out(FIRST.session_id) == [CANCEL]
        assert (delivery.acked_through, delivery.fetched_through) == (1, 1)
        delivery.check()

    def test_late_answers_are_dropped(self) -> None:
        delivery = sending(3)
        assert delivery.ids_fetched(delivery.turn, Page(entries(1, 3), 0, 3), NOW) == NOTHING
        assert delivery.bodies_fetched(delivery.turn, bodies_of(entries(1, 3))) == NOTHING
        assert delivery.request_timed_out() == NOTHING

    @pytest.mark.feature("E23", "P25", "X66")
    def test_no_ack_sends_the_window_again_with_the_same_ids(self) -> None:
        delivery = sending(6)
        again = [push._replace(is_resend=True) for push in delivery.items[:4]]
        assert delivery.ack_timed_out() == [SetTimer(TimerKind.ACK, 1), Resend(FIRST.session_id, again)]
        assert [push.message_id for push in again] == [1001, 1002, 1003, 1004]

    @pytest.mark.feature("P10", "P14", "C26")
    def test_a_session_that_never_acks_is_kicked_and_nothing_is_acked(self) -> None:
        delivery = sending(3)
        for _ in range(SETTINGS.tries_max):
            assert isinstance(delivery.ack_timed_out()[-1], Resend)
        assert delivery.ack_timed_out() == [CANCEL, Kick(FIRST.session_id, "no_ack")]
        assert delivery.state is State.OFFLINE
        assert delivery.acked_through == 0

    def test_time_for_an_ack_begins_again_while_the_gateway_still_writes(self) -> None:
        delivery = sending(3)
        for _ in range(3):
            for _ in range(SETTINGS.tries_max):
                assert isinstance(delivery.ack_timed_out()[-1], Resend)
            assert delivery.writing(FIRST.session_id) == [SetTimer(TimerKind.ACK, 0)]
        assert delivery.writing(SECOND.session_id) == NOTHING, "only of the newest session"
        delivery.acked(FIRST.session_id, 3)
        assert delivery.writing(FIRST.session_id) == NOTHING, "no ack is waited for"
        delivery.logged_out(FIRST.session_id)
        assert delivery.writing(FIRST.session_id) == NOTHING
        delivery.check()

    def test_progress_forgives_earlier_silence(self) -> None:
        delivery = sending(3)
        for useq in (1, 2):
            for _ in range(SETTINGS.tries_max):
                assert isinstance(delivery.ack_timed_out()[-1], Resend)
            delivery.acked(FIRST.session_id, useq)
        assert isinstance(delivery.ack_timed_out()[-1], Resend)


@pytest.mark.feature("E59")
def test_default_windows_and_timers_are_the_documented_ones() -> None:
    """E59 names T_req 500 ms, T_ack 2 s and K 3. Its N 50 and W 8 are 64 here: decision 0014."""
    defaults = InboxSettings()
    assert (defaults.request_timeout_ms, defaults.ack_timeout_ms, defaults.tries_max) == (500, 2_000, 3)
    assert (defaults.read_limit, defaults.window) == (64, 64)
    delivery = Delivery(defaults)
    delivery.logged_in(FIRST)
    commands = delivery.woken(100, entries(1, 100), bodies_of(entries(1, 100)))
    assert len(pushed(commands)) == 64, "the window, and not more"
    for attempt in range(1, 4):
        assert delivery.ack_timed_out()[0] == SetTimer(TimerKind.ACK, attempt)
    assert delivery.ack_timed_out()[-1] == Kick(FIRST.session_id, "no_ack")
