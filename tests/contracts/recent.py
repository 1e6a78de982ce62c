"""What every ``Recent`` must do. It may forget a whole group at any time, so nothing here settles in between."""

import pytest

from pixiu.ports.recent import RECENT_MAX, Recent
from tests.contracts.stores import StoresCase


def message(number: int) -> tuple[int, bytes]:
    return number, b"body %d" % number


def newest_first(first: int, last: int) -> list[tuple[int, bytes]]:
    return [message(number) for number in range(last, first - 1, -1)]


class RecentContract(StoresCase):
    """The newest messages of a group."""

    @property
    def recent(self) -> Recent:
        return self.stores().recent

    def test_a_group_is_cold_until_it_is_warmed(self) -> None:
        self.recent.push(1, *message(5))
        assert not self.recent.is_warm(1)
        assert (self.recent.count(1), self.recent.latest(1, 10), self.recent.page(1, 0, 10)) == (0, [], [])
        assert not self.recent.has_all(1)
        self.recent.replace(1, 5, b"x")
        self.recent.warm(1, [], is_all=True)
        assert self.recent.is_warm(1)
        assert self.recent.has_all(1)
        assert not self.recent.is_warm(2)
        self.recent.push(1, *message(6))
        assert self.recent.latest(1, 10) == [message(6)]

    @pytest.mark.feature("B10")
    def test_the_newest_thousand_are_held_newest_first(self) -> None:
        self.recent.warm(1, [], is_all=True)
        for number in range(1, 1501):
            self.recent.push(1, *message(number))
            assert self.recent.has_all(1) == (number <= RECENT_MAX)
        assert self.recent.count(1) == RECENT_MAX == 1000
        assert self.recent.latest(1, 2000) == newest_first(501, 1500)
        for count in (0, 1, 30, 999, 1000):
            assert self.recent.latest(1, count) == newest_first(1501 - count, 1500)

    @pytest.mark.feature("B10")
    def test_pages_lie_behind_the_newest(self) -> None:
        self.recent.warm(1, newest_first(1, 100), is_all=False)
        assert self.recent.page(1, 0, 10) == newest_first(91, 100)
        assert self.recent.page(1, 10, 10) == newest_first(81, 90)
        assert self.recent.page(1, 95, 10) == newest_first(1, 5)
        assert self.recent.page(1, 100, 10) == self.recent.page(1, 500, 10) == self.recent.page(1, 5, 0) == []
        assert not self.recent.has_all(1)

    def test_warming_takes_no_more_than_the_bound(self) -> None:
        self.recent.warm(1, newest_first(1, 1200), is_all=True)
        assert self.recent.latest(1, 10**6) == newest_first(201, 1200)
        assert not self.recent.has_all(1)
        self.recent.warm(1, newest_first(1, 1000), is_all=True)
        assert self.recent.latest(1, 10**6) == newest_first(1, 1000)
        assert self.recent.has_all(1)

    def test_pushing_twice_is_pushing_once(self) -> None:
        self.recent.warm(1, newest_first(1, 5), is_all=True)
        for number in (5, 6, 6, 3, 7):
            self.recent.push(1, *message(number))
        assert self.recent.latest(1, 100) == newest_first(1, 7)

    def test_a_recall_changes_what_is_held(self) -> None:
        self.recent.warm(1, newest_first(1, 5), is_all=True)
        self.recent.warm(2, newest_first(1, 5), is_all=True)
        self.recent.replace(1, 3, b"recalled")
        self.recent.replace(1, 99, b"recalled")
        assert self.recent.latest(1, 100) == [message(5), message(4), (3, b"recalled"), message(2), message(1)]
        assert self.recent.latest(2, 100) == newest_first(1, 5)

    def test_a_list_is_the_caller_s_own(self) -> None:
        self.recent.warm(1, newest_first(1, 5), is_all=True)
        self.recent.latest(1, 5).clear()
        assert self.recent.count(1) == 5

    def test_a_group_whose_oldest_have_gone_is_cold(self) -> None:
        for number in (1, 2):
            self.recent.warm(number, newest_first(1, 5), is_all=True)
        self.recent.drop(1)
        self.recent.drop(3)
        self.recent.push(1, *message(6))
        assert [self.recent.is_warm(number) for number in (1, 2, 3)] == [False, True, False]
        self.recent.warm(1, newest_first(4, 6), is_all=False)
        assert self.recent.latest(1, 10) == newest_first(4, 6)

    def test_what_was_dropped_is_cold_also_when_it_had_been_written(self) -> None:
        self.recent.warm(1, newest_first(1, 5), is_all=True)
        self.settle()
        self.recent.drop(1)
        assert not self.recent.is_warm(1)
        self.settle()
        assert not self.recent.is_warm(1)
