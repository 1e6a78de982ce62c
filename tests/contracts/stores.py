"""What every ``Stores`` must do, and how the contracts of its parts get at it."""

from abc import ABC, abstractmethod

import pytest

from pixiu.model.conversation import Direct
from pixiu.model.timeline import PrivateRow
from pixiu.ports.sendkeys import Sent
from pixiu.ports.stores import Lane, Stores

__all__ = ["StoresCase", "StoresContract"]


class StoresCase(ABC):
    """A test that has stores. The contract of each part is a class that inherits from this one."""

    @abstractmethod
    def stores(self) -> Stores:
        """The stores as they are now; empty at first."""

    @abstractmethod
    def settle(self) -> None:
        """What may happen between two calls without anybody noticing: nothing, a commit, or a restart after one."""


class StoresContract(StoresCase):
    """Commits, and how far the lanes have got."""

    def test_lanes_begin_at_nothing(self) -> None:
        assert [self.stores().applied(lane) for lane in Lane] == [0, 0, 0, 0]

    def test_a_commit_notes_how_far_each_lane_has_got(self) -> None:
        self.stores().commit({Lane.ROSTERS: 5, Lane.INBOXES: 3})
        self.settle()
        self.stores().commit({Lane.INBOXES: 4, Lane.TASKS: 2**62})
        self.settle()
        applied = {lane: self.stores().applied(lane) for lane in Lane}
        assert applied == {Lane.ROSTERS: 5, Lane.INBOXES: 4, Lane.TIMELINES: 0, Lane.TASKS: 2**62}

    @pytest.mark.feature("P18")
    def test_an_offline_write_is_idempotent_and_counts_its_references(self) -> None:
        inboxes = [(1, "ios"), (1, "web"), (2, "ios")]
        for user, platform in inboxes:
            self.stores().inboxes.open(user, platform)
        for _ in range(2):
            stores = self.stores()
            added = [
                stores.inboxes.add(user, platform, message_id=70, event_id=7, at=1, options=7, session=0)
                for user, platform in inboxes
            ]
            assert added in ([1, 1, 1], [0, 0, 0])
            stores.bodies.put(70, b"body", len(inboxes))
            self.settle()
        assert self.stores().bodies.references(70) == 3
        assert [len(self.stores().inboxes.after(*name, 0, 9).entries) for name in inboxes] == [1, 1, 1]
        for left, name in zip((2, 1, 0), inboxes, strict=True):
            for _ in range(2):
                for entry in self.stores().inboxes.ack(*name, 1):
                    assert self.stores().bodies.release(entry.message_id) == left
                self.settle()
            assert self.stores().bodies.references(70) == left
        assert self.stores().bodies.get([70]) == {}

    def test_writes_of_all_parts_are_seen_before_and_after_a_commit(self) -> None:
        def write(number: int) -> None:
            stores = self.stores()
            stores.inboxes.open(number, "first")
            stores.inboxes.add(number, "first", message_id=number, event_id=number, at=1, options=7, session=0)
            stores.bodies.put(number, b"%d" % number, 2)
            stores.unread.add(number, Direct(1), number)
            stores.keys.put(b"%d" % number, Sent(number, number, 1))
            stores.timelines.put_private(number, PrivateRow(number, 1, is_incoming=True))
            stores.contacts.link(number, 1, 5)

        def check(number: int) -> None:
            stores = self.stores()
            page = stores.inboxes.after(number, "first", 0, 10)
            assert [entry.message_id for entry in page.entries] == [number]
            assert stores.bodies.get([number]) == {number: b"%d" % number}
            assert stores.unread.of(number) == {Direct(1): 1}
            assert stores.keys.get(b"%d" % number) == Sent(number, number, 1)
            assert [row.message_id for row in stores.timelines.private_backward(number)] == [number]
            assert stores.contacts.of(number) == [(1, 5)]

        for number in range(1, 30):
            write(number)
            check(number)
            if number % 10 == 0:
                self.stores().commit({Lane.INBOXES: number})
                self.settle()
            check(max(number - 7, 1))
        self.settle()
        for number in range(1, 30):
            check(number)
