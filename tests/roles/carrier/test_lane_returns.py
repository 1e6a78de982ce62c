"""A lane whose store was down is well again when it has caught up, and says until then how far it is behind."""

import pytest

from pixiu.config.messaging import CarrierSettings
from pixiu.ports.log import LogRecord
from pixiu.testing.memory_log import MemoryLog
from tests.roles.carrier.test_consume import people, switched
from tests.roles.carrier.world import ANNA, BERT, World, send


@pytest.mark.feature("P28")
def test_a_lane_that_comes_back_says_how_far_it_is_behind_until_it_has_caught_up() -> None:
    world = World(CarrierSettings(batch_count=4))
    down = switched(world, "timelines")
    people(world)
    down.is_down = True
    world.write(*(send(ANNA, BERT) for _ in range(30)))
    world.run(100)
    assert world.carrier.problems() == ["timelines: the store is down"]

    told: list[str] = []
    put = world.stores.timelines.put_private

    def put_private(*row: object) -> object:
        told.extend(world.carrier.problems())
        return put(*row)  # type: ignore[arg-type]

    down.put_private = put_private  # type: ignore[attr-defined]
    down.is_down = False
    world.run(5000)
    behind = [int(problem.split()[1]) for problem in told if problem.endswith("events behind the log")]
    assert behind == sorted(behind, reverse=True)
    assert behind[0] == 26 and behind[-1] > 4
    assert world.carrier.problems() == []
    assert world.carrier.applied_all == world.log.committed


class FarLog(MemoryLog):
    """A log elsewhere, of which memory holds what is behind the last reading: for the rest it is asked again."""

    fetches = 0
    _reached: int | None = None
    """While more is on its way: what has come."""
    _begins = 0

    @property
    def committed(self) -> int:
        return super().committed if self._reached is None else self._reached

    def read(self, after: int, limit: int) -> list[LogRecord]:
        if after < self._begins:
            self.fetches += 1
            self._reached = after
            self._scheduler.after(20, self._come)
            return []
        self._begins = after
        return [] if self._reached is not None else super().read(after, limit)

    def _come(self) -> None:
        self._begins, self._reached = self._reached or 0, None
        assert self._receive is not None
        self._receive()


@pytest.mark.feature("X62")
def test_a_lane_that_needs_what_memory_no_longer_has_skips_nothing() -> None:
    world = World(CarrierSettings(batch_count=4))
    world.log = log = FarLog(world.clock, world.scheduler)
    world.carrier = world.new_carrier()
    down = switched(world, "timelines")
    people(world)
    down.is_down = True
    world.write(*(send(ANNA, BERT) for _ in range(30)))
    world.run(100)
    down.is_down = False
    world.run(5000)
    assert log.fetches, "the lane stood before what memory had"
    assert world.carrier.applied_all == log.committed
    assert len(world.stores.timelines.private_forward(BERT, limit=100)) == 30
