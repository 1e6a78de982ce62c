"""A lane whose store was down is well again when it has caught up, and says until then how far it is behind."""

import pytest

from pixiu.config.messaging import CarrierSettings
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
