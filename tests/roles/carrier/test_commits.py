"""An engine elsewhere works on a commit: everybody goes on, and nothing is applied."""

from collections.abc import Mapping

import pytest

from pixiu.config.messaging import CarrierSettings
from pixiu.model.errors import Unavailable
from pixiu.ports.stores import Begins, Lane
from pixiu.roles.carrier.commit_pace import COMMIT_US, WAIT_US, CommitPace
from tests.roles.carrier.world import ALL, ANNA, BERT, CommittedStores, World, send, user


class SlowStores(CommittedStores):
    """They answer when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[dict[Lane, int]] = []
        self.waited: list[int] = []
        self.has_answered = False
        self.refusal: Unavailable | None = None

    def begin_commit(self, applied: Mapping[Lane, int]) -> bool:
        self.begun.append(dict(applied))
        return True

    def is_answered(self, waited_ms: int) -> bool:
        self.waited.append(waited_ms)
        return self.has_answered

    def commit(self, applied: Mapping[Lane, int]) -> None:
        if self.refusal is not None:
            raise self.refusal
        super().commit(applied)


def slow_world(*, batch_count: int = 512) -> tuple[World, SlowStores]:
    """Its first commit is under way."""
    world = World(CarrierSettings(commit_ms=50, lane_retry_ms=100, batch_count=batch_count))
    world.stores = stores = SlowStores()
    assert isinstance(stores, Begins)
    world.carrier = world.new_carrier()
    world.start(*map(user, ALL))
    world.run(60)
    return world, stores


def test_nothing_is_applied_until_the_answer_is_there_and_then_all_of_it() -> None:
    world, stores = slow_world()
    (begun,) = stores.begun
    world.write(send(ANNA, BERT))
    world.run(30)
    assert world.carrier.behind == 1 and not world.wakes
    assert stores.commits == 0 and stores.applied(Lane.INBOXES) == 0
    assert stores.waited[-1] >= 29, "it is told how long it takes"
    stores.has_answered = True
    world.run(5)
    assert stores.applied(Lane.INBOXES) == begun[Lane.INBOXES] < world.log.committed
    assert world.carrier.behind == 0 and world.wakes
    world.run(60)
    assert stores.applied(Lane.INBOXES) == world.log.committed


def test_whoever_is_behind_stops_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world, stores = slow_world(batch_count=8)
    stores.has_answered = True
    world.run(5)
    stores.has_answered = False
    monkeypatch.setattr(SlowStores, "pending_bytes", world.settings.commit_bytes)
    for _ in range(80):
        world.append(send(ANNA, BERT))
    world.run(30)
    at = stores.begun[1][Lane.INBOXES]
    assert at == world.carrier.applied(Lane.INBOXES) < world.log.committed
    assert world.carrier.applied(Lane.TIMELINES) == stores.begun[1][Lane.TIMELINES]
    stores.has_answered = True
    world.run(500)
    assert stores.applied(Lane.TIMELINES) == world.log.committed


def test_one_that_fails_is_told_again_and_the_lanes_go_on() -> None:
    world, stores = slow_world()
    stores.refusal = Unavailable("full")
    stores.has_answered = True
    world.write(send(ANNA, BERT))
    world.run(5)
    assert world.carrier.problems() == ["commit: full"]
    assert world.wakes, "the log has it: nobody waits for the engine"
    stores.refusal = None
    world.run(200)
    assert not world.carrier.problems() and stores.applied(Lane.INBOXES) == world.log.committed


def test_whoever_must_have_it_now_waits() -> None:
    world, stores = slow_world()
    assert world.carrier.commit()
    assert stores.commits == 1 and stores.applied(Lane.ROSTERS) == world.log.committed
    world.run(5)
    assert stores.commits == 1


def test_a_stop_leaves_nothing_under_way() -> None:
    world, stores = slow_world()
    world.carrier.stop()
    assert stores.applied(Lane.ROSTERS) == world.log.committed
    world.run(100)
    assert stores.commits == 1


def test_lanes_that_go_back_do_not_wait_for_it() -> None:
    world, _ = slow_world()
    world.write(send(ANNA, BERT))
    world.carrier.go_back(lambda: None)
    world.run(5)
    assert world.carrier.behind == 0


def test_what_the_carrier_waits_counts_less_than_what_the_loop_does() -> None:
    pace, held = CommitPace(CarrierSettings()), CommitPace(CarrierSettings())
    for _ in range(30):
        pace.took(2**20, 10, WAIT_US)
        held.took(2**20, COMMIT_US)
    assert pace.bytes == held.bytes
