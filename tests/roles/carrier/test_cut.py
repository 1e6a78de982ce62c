"""A cut is of one moment, however many turns it takes, and whatever is applied in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given

from pixiu.model.errors import Unavailable
from pixiu.roles.carrier import cut as cuts
from pixiu.roles.carrier.audit import Audit
from pixiu.roles.carrier.cut import CUT_TURN, Cut, Cutting, take_cut
from tests.roles.carrier.test_replay import LIMITS, logged, new_stores, randoms, scripts
from tests.roles.carrier.world import ANNA, BERT, CARL, Applied, World, ledger, opened, people, rows, send, user

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from pixiu.model.pixiu_pb2 import Record

MANY = range(1, CUT_TURN + 100)


def content(cut: Cut) -> dict[tuple[int, str], object]:
    return {inbox: (state, list(entries), set(missing)) for inbox, (state, entries, missing) in cut.inboxes.items()}


@given(scripts, scripts, randoms)
def test_what_is_applied_meanwhile_does_not_show(
    before: list[Record], behind: list[Record], dice: random.Random
) -> None:
    """Entries come, leave and are pushed out; inboxes open, and are called by another name."""
    world = Applied(stores=new_stores(), limits=LIMITS)
    for record, parsed in logged(before):
        world.log.append(record)
        world.appliers.apply(record, parsed)
    expected = take_cut(world.stores, len(world.log))
    with mock.patch.object(cuts, "CUT_TURN", dice.choice([1, 2, 5])):
        cutting = Cutting(world.stores, len(world.log))
        world.appliers.inboxes.watch(cutting.before)
        left = list(behind)
        for _ in cutting.slices():
            for _ in range(dice.choice([0, 1, 3])):
                if left:
                    world.apply(left.pop(0))
        world.appliers.inboxes.unwatch(cutting.before)
    assert content(cutting.cut) == content(expected)


def crowd() -> list[Record]:
    return [
        *(user(number) for number in MANY),
        *(send(number, number % len(MANY) + 1) for number in MANY),
        opened(ANNA, "web"),
        opened(ANNA, "ios"),
    ]


def test_the_carrier_goes_on_between_the_slices() -> None:
    """What arrives is applied and told at once; the books of the cut balance."""
    world = World().start(*crowd())
    world.run(1000)
    carrier, last = world.carrier, MANY[-1]
    with carrier.cutting() as cutting:
        event_id, turns = world.log.committed, 0
        for _ in cutting.slices():
            turns += 1
            woken = len(world.wakes)
            world.write(send(ANNA, last), ledger(["first", "web"], acked=rows((last, 0, 1, 1), (ANNA, 1, 1, 1))))
            assert len(world.wakes) > woken
    assert turns >= len(MANY) * 2 // CUT_TURN
    cut = cutting.cut
    assert cut.event_id == event_id < world.log.committed
    assert len(cut.inboxes[last, "first"][1]) == 2 > len(take_cut(world.stores, 0).inboxes[last, "first"][1]) - turns
    audit = Audit(new_stores())
    for record in world.log.records:
        if record.event_id <= event_id:
            audit.take(record)
    report = audit.close(cut)
    assert report.balanced and report.waiting == report.intended > len(MANY)


def test_nobody_looks_when_the_cut_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Cutting, "before", lambda _, number: told.append(number))
    world = World().start(user(ANNA), user(BERT))
    with world.carrier.cutting():
        world.write(send(ANNA, BERT))
        assert sorted(told) == [ANNA, BERT]
    world.write(send(ANNA, BERT))
    assert sorted(told) == [ANNA, BERT]


def test_users_that_were_read_early_take_their_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "CUT_TURN", 10)
    world = people(*(user(number) for number in range(CARL + 1, 100)))
    cutting = Cutting(world.stores, len(world.log))
    for number in range(1, 100):
        cutting.before(number)
    assert sum(1 for _ in cutting.slices()) >= 9
    assert content(cutting.cut) == content(take_cut(world.stores, len(world.log)))


def slices_of(cutting: Cutting) -> Iterator[None]:
    slices = cutting.slices()
    next(slices)
    return slices


def test_a_store_that_is_down_in_between_makes_no_cut_with_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record waits for its store; the cut is given up, and says why."""
    monkeypatch.setattr(cuts, "CUT_TURN", 1)
    world = people(send(ANNA, BERT), send(BERT, CARL))
    cutting = Cutting(world.stores, len(world.log))
    world.appliers.inboxes.watch(cutting.before)
    slices = slices_of(cutting)
    with monkeypatch.context() as patch:
        patch.setattr(world.stores.bodies, "get", mock.Mock(side_effect=Unavailable("bodies are away")))
        world.apply(send(ANNA, CARL))
    with pytest.raises(Unavailable, match="bodies are away"):
        list(slices)


def test_half_a_record_makes_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """One side of a message is in its inbox, and the store is down for the other."""
    world = World().start(user(ANNA), user(BERT))
    add = world.stores.inboxes.add

    def fail(number: int, *more: Any) -> int:
        if number == ANNA:
            raise Unavailable("inboxes are away")
        return add(number, *more)

    with monkeypatch.context() as patch:
        patch.setattr(world.stores.inboxes, "add", fail)
        world.write(send(ANNA, BERT))
        assert len(world.stores.inboxes.after(BERT, "first", 0, 10).entries) == 1
        with pytest.raises(Unavailable, match="by half"), world.carrier.cutting():
            pass
    world.run(world.settings.lane_retry_ms * 2)
    with world.carrier.cutting() as cutting:
        list(cutting.slices())
    assert cutting.cut.event_id == world.log.committed
    assert [len(entries) for _, entries, _ in cutting.cut.inboxes.values()] == [1, 1]


def test_stores_that_go_back_make_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "CUT_TURN", 1)
    world = World().start(user(ANNA), user(BERT), send(ANNA, BERT))
    monkeypatch.setattr(world.stores, "begin_again", lambda: None, raising=False)
    with world.carrier.cutting() as cutting:
        slices = slices_of(cutting)
        world.carrier.go_back(lambda: None)
        with pytest.raises(Unavailable, match="gone back"):
            list(slices)
    world.write(send(ANNA, BERT))
