"""What every ``Unread`` must do."""

import pytest

from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.ports.unread import Unread
from tests.contracts.stores import StoresCase


class UnreadContract(StoresCase):
    """Counters that are touched once per event."""

    @property
    def unread(self) -> Unread:
        return self.stores().unread

    @pytest.mark.feature("R11")
    def test_reading_one_conversation_leaves_the_others(self) -> None:
        for event_id in range(1, 4):
            self.unread.add(1, Direct(5), event_id)
            self.unread.add(1, InGroup(5), event_id)
            self.unread.add(2, Direct(5), event_id)
        self.settle()
        self.unread.set(1, Direct(5), 0, 4)
        self.settle()
        assert self.unread.get(1, Direct(5)) == 0
        assert self.unread.get(1, InGroup(5)) == 3
        assert self.unread.get(2, Direct(5)) == 3

    def test_an_event_counts_once(self) -> None:
        assert self.unread.add(1, Direct(5), 10) == 1
        assert self.unread.add(1, Direct(5), 10) == 1
        self.settle()
        assert self.unread.add(1, Direct(5), 10) == 1
        assert self.unread.add(1, Direct(5), 11) == 2
        self.settle()
        assert self.unread.add(1, Direct(5), 10) == 2
        assert self.unread.get(1, Direct(5)) == 2

    def test_a_set_loses_against_a_later_event(self) -> None:
        self.unread.add(1, Direct(5), 10)
        self.settle()
        self.unread.set(1, Direct(5), 0, 9)
        assert self.unread.get(1, Direct(5)) == 1
        self.unread.set(1, Direct(5), 0, 12)
        self.unread.set(1, Direct(5), 0, 12)
        self.settle()
        assert self.unread.add(1, Direct(5), 11) == 0
        assert self.unread.add(1, Direct(5), 13) == 1

    def test_all_counters_of_a_user_zeros_included(self) -> None:
        assert self.unread.of(1) == {}
        self.unread.add(1, Direct(0), 1)
        self.unread.add(1, Direct(7), 1)
        self.unread.add(1, InGroup(7), 1)
        self.unread.set(1, InGroup(2**50), 0, 1)
        self.unread.add(2, Direct(7), 1)
        self.settle()
        self.unread.set(1, Direct(7), 0, 2)
        expected: dict[Conversation, int] = {Direct(0): 1, Direct(7): 0, InGroup(7): 1, InGroup(2**50): 0}
        assert self.unread.of(1) == expected
        self.settle()
        assert self.unread.of(1) == expected
        assert all(self.unread.get(1, conversation) == count for conversation, count in expected.items())

    def test_a_counter_that_was_only_asked_for_is_none(self) -> None:
        assert self.unread.get(1, Direct(5)) == 0
        self.settle()
        assert self.unread.of(1) == {}

    def test_a_dropped_counter_is_gone_and_begins_anew(self) -> None:
        self.unread.add(1, Direct(5), 10)
        self.unread.add(1, Direct(6), 10)
        self.settle()
        self.unread.drop(1, Direct(5))
        self.unread.drop(1, Direct(77))
        assert self.unread.of(1) == {Direct(6): 1}
        self.settle()
        assert self.unread.of(1) == {Direct(6): 1}
        assert self.unread.get(1, Direct(5)) == 0
        assert self.unread.add(1, Direct(5), 20) == 1

    def test_one_that_came_and_went_between_two_commits(self) -> None:
        self.unread.add(1, Direct(5), 10)
        assert self.unread.of(1) == {Direct(5): 1}
        self.unread.drop(1, Direct(5))
        assert self.unread.of(1) == {}
        self.settle()
        assert self.unread.of(1) == {}

    def test_several_counters_are_read_at_once_each_in_its_place(self) -> None:
        self.unread.add(1, Direct(5), 10)
        self.unread.add(1, InGroup(5), 11)
        self.settle()
        self.unread.add(1, InGroup(5), 12)
        self.unread.add(1, Direct(7), 13)
        self.unread.set(1, Direct(8), 0, 14)
        asked: list[Conversation] = [InGroup(5), Direct(9), Direct(5), Direct(8), Direct(7)]
        for _ in range(2):
            assert self.unread.many(1, asked) == [2, 0, 1, 0, 1]
            assert self.unread.many(2, asked) == [0] * 5 and self.unread.many(1, []) == []
            self.settle()
        self.unread.drop(1, Direct(5))
        assert self.unread.many(1, asked) == [2, 0, 0, 0, 1]
        assert self.unread.get(1, Direct(9)) == 0 and Direct(9) not in self.unread.of(1)

    def test_private_counters_are_read_in_pages_by_peer(self) -> None:
        for event, peer in enumerate((7, 3, 2**50, 5, 0), start=10):
            self.unread.add(1, Direct(peer), event)
            self.unread.add(1, InGroup(peer + 1), event)
        self.unread.set(1, Direct(5), 0, 20)
        self.settle()
        self.unread.add(1, Direct(4), 21)
        self.unread.drop(1, Direct(3))
        rows = [(0, 1), (4, 1), (5, 0), (7, 1), (2**50, 1)]
        for _ in range(2):
            assert self.unread.direct(1, 9) == rows
            assert self.unread.direct(1, 2, after=4) == rows[2:4]
            assert self.unread.direct(1, 9, after=2**50) == self.unread.direct(2, 9) == []
            self.settle()
        self.unread.add(1, Direct(6), 30)
        self.unread.add(1, Direct(7), 31)
        assert self.unread.direct(1, 2, after=5) == [(6, 1), (7, 2)]
