"""What every ``Inboxes`` must do."""

import random

import pytest

from pixiu.model.errors import LocalProtocolError
from pixiu.model.inbox import FIRST, NEED_ALL, Entry, InboxState, Page
from pixiu.ports.inboxes import Inboxes
from tests.contracts.stores import StoresCase


def entry(useq: int) -> Entry:
    """What ``fill`` adds as number ``useq`` of an inbox that was empty."""
    return Entry(useq, 2**61 + useq, useq * 10, 1_700_000_000_000 + useq, NEED_ALL, 2**60 if useq % 2 else 0)


class InboxesContract(StoresCase):
    """Ids that wait, with a dense sequence per inbox."""

    @property
    def inboxes(self) -> Inboxes:
        return self.stores().inboxes

    def add(self, useq: int, user: int = 1, platform: str = "ios") -> int:
        made = entry(useq)
        return self.inboxes.add(
            user,
            platform,
            message_id=made.message_id,
            event_id=made.event_id,
            at=made.at,
            options=made.options,
            session=made.session,
        )

    def fill(self, count: int, user: int = 1, platform: str = "ios") -> None:
        """Open an inbox and add ``count`` entries."""
        self.inboxes.open(user, platform)
        assert [self.add(number, user, platform) for number in range(1, count + 1)] == list(range(1, count + 1))

    def useqs(self, user: int = 1, platform: str = "ios", after: int = 0) -> list[int]:
        return [found.useq for found in self.inboxes.after(user, platform, after, 10**6).entries]

    def state(self) -> tuple[int, int, int, int]:
        """floor, latest, waiting, useq of the oldest that waits."""
        state = self.inboxes.state(1, "ios")
        assert state is not None
        oldest = state.oldest_at - 1_700_000_000_000 if state.oldest_at else 0
        return state.floor, state.latest, state.waiting, oldest

    def test_an_inbox_that_is_not_open_is_empty(self) -> None:
        assert self.inboxes.platforms(1) == ()
        assert self.inboxes.after(1, "ios", 0, 10) == Page([], 0, 0)
        assert self.inboxes.ack(1, "ios", 5) == []
        assert self.inboxes.remove(1, "ios", 1, 5) == []
        assert self.inboxes.state(1, "ios") is None
        assert self.inboxes.states() == []
        with pytest.raises(LocalProtocolError, match="no open inbox 'ios'"):
            self.add(1)

    def test_platforms_are_in_the_order_of_their_opening(self) -> None:
        for platform in ("web", "ios", "android"):
            assert self.inboxes.open(1, platform)
            assert not self.inboxes.open(1, platform)
        self.settle()
        assert self.inboxes.platforms(1) == ("web", "ios", "android")
        assert not self.inboxes.open(1, "ios")
        assert self.inboxes.platforms(2) == ()

    def test_the_first_platform_takes_over_the_first_inbox_with_all_that_waits(self) -> None:
        self.fill(3, platform=FIRST)
        self.settle()
        assert self.inboxes.open(1, "ios")
        for _ in range(2):
            assert self.inboxes.platforms(1) == ("ios",)
            assert self.inboxes.after(1, "ios", 0, 10) == Page([entry(1), entry(2), entry(3)], 0, 3)
            assert self.inboxes.state(1, FIRST) is None
            assert self.inboxes.after(1, FIRST, 0, 10) == Page([], 0, 0)
            self.settle()
        assert self.add(3) == 0
        assert self.add(4) == 4
        assert self.inboxes.open(1, "web")
        assert self.useqs(platform="web") == []

    def test_the_first_inbox_is_only_for_those_who_have_none(self) -> None:
        self.inboxes.open(1, "ios")
        assert not self.inboxes.open(1, FIRST)
        self.settle()
        assert not self.inboxes.open(1, FIRST)
        assert self.inboxes.platforms(1) == ("ios",)

    def test_a_take_over_happens_once(self) -> None:
        self.inboxes.open(1, FIRST)
        self.inboxes.open(1, "ios")
        self.inboxes.open(1, "web")
        self.settle()
        assert self.inboxes.platforms(1) == ("ios", "web")

    @pytest.mark.feature("P18")
    def test_adding_an_event_twice_is_adding_it_once(self) -> None:
        self.fill(2)
        assert self.add(2) == 0
        self.settle()
        assert self.add(1) == 0
        assert self.add(2) == 0
        self.inboxes.ack(1, "ios", 2)
        assert self.add(2) == 0
        self.settle()
        assert self.add(2) == 0
        assert self.useqs() == []
        assert self.add(3) == 3

    def test_entries_are_read_in_order_and_in_pages(self) -> None:
        self.fill(10)
        for _ in range(2):
            assert self.inboxes.after(1, "ios", 0, 4) == Page([entry(number) for number in (1, 2, 3, 4)], 0, 10)
            assert self.inboxes.after(1, "ios", 4, 4) == Page([entry(number) for number in (5, 6, 7, 8)], 0, 10)
            assert self.inboxes.after(1, "ios", 8, 4) == Page([entry(number) for number in (9, 10)], 0, 10)
            assert self.inboxes.after(1, "ios", 10, 4) == Page([], 0, 10)
            assert self.inboxes.after(1, "ios", 99, 4) == Page([], 0, 10)
            assert self.inboxes.after(1, "ios", 0, 0) == Page([], 0, 10)
            self.settle()

    def test_an_ack_takes_all_through_it_and_gives_them_back(self) -> None:
        self.fill(10)
        self.settle()
        assert self.inboxes.ack(1, "ios", 3) == [entry(number) for number in (1, 2, 3)]
        assert self.state() == (3, 10, 7, 4)
        assert self.inboxes.ack(1, "ios", 3) == []
        assert self.inboxes.ack(1, "ios", 1) == []
        assert self.inboxes.ack(1, "ios", 0) == []
        self.settle()
        assert self.inboxes.after(1, "ios", 0, 2) == Page([entry(4), entry(5)], 3, 10)
        assert self.inboxes.ack(1, "ios", 5) == [entry(4), entry(5)]
        assert self.state() == (5, 10, 5, 6)

    def test_an_ack_beyond_the_end_is_an_ack_of_all(self) -> None:
        self.fill(3)
        assert len(self.inboxes.ack(1, "ios", 10**18)) == 3
        assert self.state() == (3, 3, 0, 0)
        self.settle()
        assert self.add(4) == 4
        assert self.useqs() == [4]
        assert self.state() == (3, 4, 1, 4)

    def test_numbers_are_never_used_again(self) -> None:
        self.fill(5)
        self.settle()
        self.inboxes.ack(1, "ios", 5)
        self.settle()
        self.settle()
        assert self.add(6) == 6
        self.inboxes.remove(1, "ios", 6, 6)
        self.settle()
        assert self.add(7) == 7
        assert self.state() == (6, 7, 1, 7)

    def test_a_range_is_removed_and_leaves_a_hole(self) -> None:
        self.fill(10)
        self.settle()
        assert self.inboxes.remove(1, "ios", 4, 6) == [entry(4), entry(5), entry(6)]
        assert self.inboxes.remove(1, "ios", 4, 6) == []
        assert self.inboxes.remove(1, "ios", 6, 4) == []
        assert self.state() == (0, 10, 7, 1)
        self.settle()
        assert self.inboxes.after(1, "ios", 2, 3) == Page([entry(3), entry(7), entry(8)], 0, 10)
        assert self.inboxes.remove(1, "ios", 3, 7) == [entry(3), entry(7)]
        assert self.state() == (0, 10, 5, 1)

    def test_the_floor_moves_over_what_is_gone_at_the_front(self) -> None:
        self.fill(10)
        self.inboxes.remove(1, "ios", 3, 4)
        self.settle()
        self.inboxes.remove(1, "ios", 0, 1)
        assert self.state() == (1, 10, 7, 2)
        self.inboxes.ack(1, "ios", 2)
        assert self.state() == (4, 10, 6, 5)
        self.settle()
        assert self.inboxes.ack(1, "ios", 4) == []
        self.inboxes.remove(1, "ios", 8, 10)
        self.inboxes.remove(1, "ios", 5, 7)
        assert self.state() == (10, 10, 0, 0)
        self.settle()
        assert self.state() == (10, 10, 0, 0)

    @pytest.mark.feature("P20")
    def test_the_oldest_make_room_for_the_newest(self) -> None:
        self.inboxes.open(1, "ios")
        evicted = []
        for number in range(1, 101):
            self.stores().bodies.put(entry(number).message_id, b"body", 2)
            self.add(number)
            state = self.inboxes.state(1, "ios")
            assert state is not None
            if state.waiting > 80:
                oldest = self.inboxes.after(1, "ios", state.floor, 1).entries[0].useq
                for gone in self.inboxes.remove(1, "ios", oldest, oldest):
                    assert self.stores().bodies.release(gone.message_id) == 1
                    evicted.append(gone.useq)
            if number % 30 == 0:
                self.settle()
        assert evicted == list(range(1, 21))
        assert self.useqs() == list(range(21, 101))
        assert self.state() == (20, 100, 80, 21)
        counts = [self.stores().bodies.references(entry(number).message_id) for number in range(1, 101)]
        assert counts == [1] * 20 + [2] * 80

    def test_inboxes_do_not_touch_each_other(self) -> None:
        self.fill(3, 1, "ios")
        self.fill(2, 1, "web")
        self.fill(4, 2, "ios")
        self.settle()
        self.inboxes.ack(1, "ios", 2)
        self.settle()
        assert (self.useqs(1, "ios"), self.useqs(1, "web"), self.useqs(2, "ios")) == ([3], [1, 2], [1, 2, 3, 4])

    def test_a_long_backlog_is_read_and_acked_page_by_page(self) -> None:
        self.fill(1000)
        self.settle()
        seen: list[int] = []
        while page := self.inboxes.after(1, "ios", seen[-1] if seen else 0, 64).entries:
            seen += [found.useq for found in page]
            if len(seen) % 3:
                assert [gone.useq for gone in self.inboxes.ack(1, "ios", seen[-1])][-1] == seen[-1]
            if len(seen) % 5 == 0:
                self.settle()
                self.add(1000 + len(seen))
        assert seen == list(range(1, self.state()[1] + 1))
        self.inboxes.ack(1, "ios", 10**9)
        self.settle()
        assert self.useqs() == []

    def test_a_long_inbox_stays_whole_while_it_grows_and_shrinks(self) -> None:
        rng = random.Random(4)
        self.inboxes.open(1, "ios")
        model: dict[int, Entry] = {}
        latest = 0
        for step in range(3000):
            choice = rng.random()
            if choice < 0.75:
                latest += 1
                assert self.add(latest) == latest
                model[latest] = entry(latest)
            elif choice < 0.8:
                first = rng.randint(0, latest + 1)
                through = first + rng.choice([0, 3, 50])
                self.check_gone(self.inboxes.remove(1, "ios", first, through), model, first, through)
            elif choice < 0.81 and model:
                through = min(model) + rng.choice([0, 1, 40, 400])
                self.check_gone(self.inboxes.ack(1, "ios", through), model, 0, through)
            elif choice < 0.98:
                after, limit = rng.choice([0, latest, rng.randint(0, latest)]), rng.choice([1, 5, 64, 500])
                expected = [model[number] for number in sorted(model) if number > after][:limit]
                floor = min(model) - 1 if model else latest
                assert self.inboxes.after(1, "ios", after, limit) == Page(expected, floor, latest), step
            else:
                self.settle()

    @staticmethod
    def check_gone(gone: list[Entry], model: dict[int, Entry], first: int, through: int) -> None:
        assert gone == [model.pop(number) for number in sorted(model) if first <= number <= through]

    def test_states_are_in_order_and_in_pages(self) -> None:
        names = [(2, "web"), (2, "ios"), (1, "b"), (1, "a"), (300, FIRST), (2**50, "ios")]
        for user, platform in names:
            self.inboxes.open(user, platform)
        self.add(1, 2, "ios")
        self.settle()
        self.add(1, 1, "a")
        self.add(2, 1, "a")
        states = self.inboxes.states()
        assert [(state.user, state.platform) for state in states] == sorted(names)
        assert states[0] == InboxState(1, "a", 0, 2, 2, entry(1).at)
        assert states[2] == InboxState(2, "ios", 0, 1, 1, entry(1).at)
        assert states[3] == InboxState(2, "web", 0, 0, 0, 0)
        pages: list[InboxState] = []
        while page := self.inboxes.states(after=(pages[-1].user, pages[-1].platform) if pages else None, limit=2):
            pages += page
        assert pages == states
        assert self.inboxes.states(after=(2, "j"))[0].platform == "web"
        assert self.inboxes.states(limit=0) == []
        assert all(self.inboxes.state(state.user, state.platform) == state for state in states)

    def test_pages_have_what_was_changed_since_the_last_commit(self) -> None:
        for user in range(10, 60, 10):
            self.inboxes.open(user, "web")
        self.settle()
        for user in (5, 10, 25, 26, 30, 70):  # new ones before, between and behind, and some that have a row
            self.inboxes.open(user, "ios")
            self.add(1, user, "ios")
        users = sorted({*range(10, 60, 10), 5, 25, 26, 70})
        names = [(user, name) for user in users for name in self.inboxes.platforms(user)]
        for limit in (1, 2, 3, 100):
            pages: list[InboxState] = []
            while page := self.inboxes.states(
                after=(pages[-1].user, pages[-1].platform) if pages else None, limit=limit
            ):
                assert len(page) <= limit
                pages += page
            assert pages == [self.inboxes.state(*name) for name in sorted(names)]
