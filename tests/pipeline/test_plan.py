"""Plans from heat: rooms first, then roles; the reasons are in the file."""

import pytest

pytest.importorskip("duckdb")

from pixiu.machines.rooms import room_number
from pixiu.model.errors import ConfigError
from pixiu.pipeline.plan import Bounds, Heat, make_plan

BOUNDS = Bounds(room_members=100, room_deliveries=10, broker_deliveries=50, relay_entries=5)


def test_nothing_to_do() -> None:
    heats = [Heat("r:small", 60, 600, 100), Heat("u:1:2", 60, 0, 0), Heat("push", 1000, 0, 0)]
    plan = make_plan(heats, partitions=1, bounds=BOUNDS)
    assert plan["virtual_rooms"] == plan["double"] == []
    assert plan["load"]["broker"] == [{"partition": 0, "per_second": 10.0, "skew": 1.0}]
    assert plan["load"]["relay"] == [{"partition": 0, "per_second": 2.0, "skew": 1.0}]


def test_a_hot_room_is_split_and_counts_everywhere_then() -> None:
    heats = [Heat("r:hall", 60, 60 * 80, 101), Heat("r:fan", 1, 60 * 11, 3)]
    plan = make_plan(heats, partitions=2, bounds=BOUNDS)
    assert [(each["room"], each["slices"]) for each in plan["virtual_rooms"]] == [("hall", 64), ("fan", 64)]
    assert plan["virtual_rooms"][0]["reason"] == "101 sessions, more than 100; 80 deliveries a second, more than 10"
    assert plan["virtual_rooms"][1]["reason"] == "11 deliveries a second, more than 10"
    assert [each["per_second"] for each in plan["load"]["broker"]] == [45.5, 45.5]
    assert plan["double"] == []  # a room that is split no longer makes one partition hot


def test_many_rooms_double_the_brokers() -> None:
    rooms = [f"room{number}" for number in range(60)]
    heats = [Heat(f"r:{name}", 60, 60 * 5, 10) for name in rooms]
    plan = make_plan(heats, partitions=2, bounds=BOUNDS)
    counts = [sum(room_number(name) % 2 == place for name in rooms) for place in (0, 1)]
    assert [each["per_second"] for each in plan["load"]["broker"]] == [5.0 * count for count in counts]
    hottest = counts.index(max(counts))
    (role,) = plan["double"]
    assert (role["role"], role["from"], role["to"], role["hottest_partition"]) == ("broker", 2, 4, hottest)


def test_inboxes_double_the_relays() -> None:
    heats = [Heat("u:2:4", 60 * 3, 0, 0), Heat("g:7", 60, 0, 4)]
    plan = make_plan(heats, partitions=2, bounds=BOUNDS)
    # Both users of the private conversation are in partition 0; the group's members are anywhere.
    assert [each["per_second"] for each in plan["load"]["relay"]] == [8.0, 2.0]
    assert plan["double"][0]["reason"] == "partition 0 has 8 inbox entries a second, more than 5"


@pytest.mark.parametrize("partitions", [0, 3, 512])
def test_partitions_are_powers_of_two(partitions: int) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        make_plan([], partitions=partitions, bounds=BOUNDS)
