"""Rules of the delivery machine beside its table: what needs no ack, what has expired, where a login starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.delivery import (
    AckInbox,
    Delivery,
    Expire,
    FetchBodies,
    FetchIds,
    PushEarly,
    PushTo,
    Resend,
    State,
)
from pixiu.model.inbox import NEED_OFFLINE, Page
from pixiu.model.pixiu_pb2 import HIGH, NORMAL, ChatMsgType, MsgChat
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
    urgent,
    useqs,
    wake,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.machines.delivery import Command


class TestWhatNeedsNoAck:
    def test_what_the_session_sent_itself_is_not_pushed_back_and_counts_as_acked(self) -> None:
        delivery = online()
        commands = wake(delivery, [entry(1, session=FIRST.session_id)])
        assert [type(command) for command in commands] == [PushTo, AckInbox]
        assert pushed(commands) == []
        assert isinstance(commands[0], PushTo)
        assert useqs(commands[0].others) == [1]  # other sessions of the platform see it
        assert delivery.acked_through == 1
        assert delivery.state is State.IDLE
        delivery.check()

    @pytest.mark.parametrize("count", [1, 3, 4, 9])
    def test_any_number_of_own_sends_is_acked_and_the_inbox_is_read_if_there_is_more(self, count: int) -> None:
        delivery = online()
        mine = [entry(number, session=FIRST.session_id) for number in range(1, count + 1)]
        commands = delivery.woken(count + 1, mine, bodies_of(mine))
        seen = [useq for command in commands if isinstance(command, PushTo) for useq in useqs(command.others)]
        rows = [command for command in commands if isinstance(command, AckInbox)]
        acked = [useq for first, through in rows for useq in range(first, through + 1)]
        assert seen == acked == list(range(1, len(seen) + 1))
        assert delivery.acked_through == delivery.held == len(seen)
        assert delivery.state is State.FETCHING_IDS, "the inbox has one more than we were given"
        assert (len(seen) == count) or count > 6
        delivery.check()

    def test_it_is_acked_with_what_precedes_it(self) -> None:
        delivery = online()
        mine = entry(2, session=FIRST.session_id)
        commands = wake(delivery, [entry(1), mine, entry(3)])
        assert pushed(commands) == [1, 3]
        assert delivery.acked_through == 0
        push = delivery.items[2]
        assert (push.useq, push.previous_useq) == (3, 1)  # the client will never hold 2
        assert delivery.acked(FIRST.session_id, 1) == [AckInbox(1, 1), AckInbox(2, 2), SET_ACK]
        assert delivery.acked(FIRST.session_id, 3) == [AckInbox(3, 3), CANCEL]

    def test_after_a_reconnect_the_first_push_needs_nothing_before_it(self) -> None:
        delivery = online()
        wake(delivery, [entry(1, session=FIRST.session_id)])
        delivery.logged_in(SECOND)
        delivery.ids_fetched(delivery.turn, Page([], 1, 1), NOW)
        wake(delivery, [entry(2)])
        assert delivery.items[0].previous_useq == 0

    @pytest.mark.feature("P22")
    def test_a_live_message_without_need_ack_is_acked_when_it_was_handed_over(self) -> None:
        delivery = online()
        commands = wake(delivery, [entry(1, options=NEED_OFFLINE)])
        assert pushed(commands) == [1]
        assert AckInbox(1, 1) in commands
        assert delivery.state is State.IDLE

    @pytest.mark.feature("P22")
    def test_it_waits_for_what_precedes_it_and_is_not_sent_again(self) -> None:
        delivery = online()
        wake(delivery, [entry(1), entry(2, options=NEED_OFFLINE), entry(3)])
        assert delivery.items[2].previous_useq == 1  # the one without an ack may be lost: nothing waits for it
        resent = delivery.ack_timed_out()[-1]
        assert isinstance(resent, Resend)
        assert useqs(resent.pushes) == [1, 3]
        assert delivery.acked(FIRST.session_id, 1) == [AckInbox(1, 1), AckInbox(2, 2), SET_ACK]

    @pytest.mark.feature("C30", "P22")
    def test_from_a_backlog_it_is_acked_like_others(self) -> None:
        delivery = fetching_ids(1)
        found = [entry(1, options=NEED_OFFLINE)]
        delivery.ids_fetched(delivery.turn, Page(found, 0, 1), NOW)
        commands = delivery.bodies_fetched(delivery.turn, bodies_of(found))
        assert pushed(commands) == [1]
        assert delivery.acked_through == 0
        assert delivery.state is State.SENDING

    def test_a_long_run_of_own_messages_makes_room_in_a_small_window(self) -> None:
        delivery = online(replace(SETTINGS, window=1, read_limit=4000))
        own = [entry(useq, session=FIRST.session_id) for useq in range(1, 4000)]
        commands = wake(delivery, [*own, entry(4000)])
        assert pushed(commands) == [4000]
        assert delivery.acked_through == 3999
        delivery.check([4000])


class TestExpiry:
    OLD = NOW - SETTINGS.expire_ms

    def test_what_has_waited_too_long_is_not_pushed_but_told(self) -> None:
        delivery = fetching_ids(3)
        found = [entry(1, at=self.OLD), entry(2), entry(3, at=self.OLD)]
        commands = delivery.ids_fetched(delivery.turn, Page(found, 0, 3), NOW)
        assert commands == [Expire(1, 1), Expire(3, 3), SET_REQUEST, FetchBodies(delivery.turn, [1002])]
        assert pushed(delivery.bodies_fetched(delivery.turn, bodies_of(found[1:2]))) == [2]
        assert delivery.acked(FIRST.session_id, 2) == [AckInbox(2, 2), CANCEL]
        assert delivery.acked_through == 3

    def test_a_millisecond_earlier_it_is_pushed(self) -> None:
        delivery = fetching_ids(1)
        commands = delivery.ids_fetched(delivery.turn, Page([entry(1, at=self.OLD + 1)], 0, 1), NOW)
        assert commands == [SET_REQUEST, FetchBodies(delivery.turn, [1001])]

    @pytest.mark.feature("P21")
    def test_a_page_of_nothing_else_does_not_end_the_reading(self) -> None:
        delivery = fetching_ids(9)
        found = [entry(useq, at=self.OLD) for useq in (1, 2, 3)]
        assert delivery.ids_fetched(delivery.turn, Page(found, 0, 9), NOW) == [
            Expire(1, 3),
            SET_REQUEST,
            FetchIds(delivery.turn, 3, 3),
        ]

    def test_an_ack_over_holes_makes_exact_rows(self) -> None:
        delivery = fetching_ids(3)
        found = [entry(1), entry(2, at=self.OLD), entry(3)]
        delivery.ids_fetched(delivery.turn, Page(found, 0, 3), NOW)
        delivery.bodies_fetched(delivery.turn, bodies_of(found))
        delivery.check([1, 3])
        assert delivery.acked(FIRST.session_id, 3) == [AckInbox(1, 1), AckInbox(3, 3), CANCEL]


class TestCursor:
    def test_a_login_with_a_cursor_starts_behind_it(self) -> None:
        delivery = Delivery(SETTINGS)
        assert delivery.logged_in(FIRST, cursor=5) == [SET_REQUEST, FetchIds(delivery.turn, 5, 3)]
        commands = delivery.ids_fetched(delivery.turn, Page(entries(6, 7), 2, 7), NOW)
        assert commands == [AckInbox(3, 5), SET_REQUEST, FetchBodies(delivery.turn, [1006, 1007])]

    def test_a_cursor_below_the_floor_says_nothing_new(self) -> None:
        delivery = Delivery(SETTINGS)
        delivery.logged_in(FIRST, cursor=1)
        commands = delivery.ids_fetched(delivery.turn, Page(entries(6, 7), 5, 7), NOW)
        assert commands == [SET_REQUEST, FetchBodies(delivery.turn, [1006, 1007])]

    def test_a_cursor_beyond_the_inbox_is_not_believed(self) -> None:
        delivery = Delivery(SETTINGS)
        delivery.logged_in(FIRST, cursor=50)
        commands = delivery.ids_fetched(delivery.turn, Page([], 2, 7), NOW)
        assert commands == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]
        assert delivery.acked_through == 0


class TestUrgentMessages:
    """SETTINGS: a window of 4, reads of 3."""

    def test_urgent_message_with_room_in_the_window_has_no_early_copy(self) -> None:
        delivery = sending(2)
        commands = wake(delivery, [entry(3)], {1003: urgent(1003)})
        assert pushed(commands) == [3]
        assert early(commands) == []

    def test_urgent_message_behind_a_full_window_is_copied_early_and_keeps_its_place(self) -> None:
        delivery = sending(4)
        commands = wake(delivery, entries(5, 6), {1005: b"body 5", 1006: urgent(1006)})
        assert early(commands) == [6]
        assert pushed(commands) == []
        assert (delivery.acked_through, delivery.sent, useqs(delivery.items)) == (0, 4, [1, 2, 3, 4, 5, 6])
        assert pushed(delivery.acked(FIRST.session_id, 2)) == [5, 6]
        delivery.check(range(1, 7))

    @pytest.mark.parametrize("waiting", [fetching_ids, fetching_bodies])
    def test_urgent_message_is_copied_early_while_the_backlog_is_read(self, waiting: Callable[[int], Delivery]) -> None:
        delivery = waiting(9)
        before = delivery.state, delivery.turn, delivery.fetched_through
        commands = wake(delivery, [entry(10)], {1010: urgent(1010)})
        assert commands == [PushEarly(commands[0].pushes)]  # type: ignore[union-attr]
        assert early(commands) == [10]
        assert (delivery.state, delivery.turn, delivery.fetched_through) == before
        assert delivery.latest == 10

    def test_urgent_message_beyond_the_bound_of_the_queue_is_copied_early(self) -> None:
        delivery = sending(7)
        commands = wake(delivery, [entry(8)], {1008: urgent(1008)})
        assert early(commands) == [8]
        assert delivery.fetched_through == 7

    def test_normal_messages_and_recalls_are_never_copied_early(self) -> None:
        recall = MsgChat(msgId=1006, priority=HIGH, msgType=ChatMsgType.DELETE).SerializeToString()
        looks_urgent = MsgChat(msgId=1005, priority=NORMAL, data=b"P\x02").SerializeToString()
        delivery = sending(4)
        assert early(wake(delivery, entries(5, 7), {1005: looks_urgent, 1006: recall, 1007: b"P\x02 broken"})) == []

    def test_ack_after_an_early_copy_covers_only_what_was_pushed_in_place(self) -> None:
        delivery = sending(4)
        wake(delivery, entries(5, 6), {1005: b"body 5", 1006: urgent(1006)})
        assert delivery.acked(FIRST.session_id, 4)[0] == AckInbox(1, 4)
        assert delivery.acked_through == 4


def early(commands: Sequence[Command]) -> list[int]:
    return [useq for command in commands if isinstance(command, PushEarly) for useq in useqs(command.pushes)]
