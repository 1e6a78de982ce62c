"""Turns on a link: first things first, nobody starves, too much is shed from below."""

from collections import Counter

import pytest

from pixiu.machines.scheduling import Priority, TurnRules, Turns

CONTROL, COMMAND, CHAT, BULK = Priority
RULES = TurnRules()


def full(*priorities: Priority, count: int = 4_000, size: int = 100) -> Turns[Priority]:
    turns: Turns[Priority] = Turns(RULES)
    for _ in range(count):
        for priority in priorities:
            assert turns.put(priority, priority, size, 0)
    return turns


def test_a_link_with_room_takes_everything_in_the_order_of_classes() -> None:
    turns: Turns[str] = Turns(RULES)
    for name, priority in (("b", BULK), ("c1", CHAT), ("k", CONTROL), ("c2", CHAT), ("m", COMMAND)):
        turns.put(priority, name, 10, 0)
    taken = turns.take(10_000, 0)
    assert taken[0] == "k"
    assert sorted(taken) == ["b", "c1", "c2", "k", "m"]
    assert taken.index("c1") < taken.index("c2")
    assert len(turns) == 0
    assert turns.take(10_000, 0) == []


def test_under_load_shares_follow_weights_and_bulk_keeps_moving() -> None:
    turns = full(COMMAND, CHAT, BULK)
    taken: Counter[Priority] = Counter()
    for _ in range(100):
        taken.update(turns.take(2_800, 0))
    total = sum(taken.values())
    assert taken[COMMAND] / total == pytest.approx(4 / 7, abs=0.05)
    assert taken[CHAT] / total == pytest.approx(2 / 7, abs=0.05)
    assert taken[BULK] / total >= 0.05


def test_a_storm_of_control_leaves_half_to_the_others() -> None:
    turns = full(CONTROL, COMMAND, CHAT, BULK)
    taken: Counter[Priority] = Counter()
    for _ in range(50):
        taken.update(turns.take(4_000, 0))
    assert taken[CONTROL] / sum(taken.values()) == pytest.approx(0.5, abs=0.05)
    assert taken[BULK] / sum(taken.values()) >= 0.05


def test_control_alone_may_have_it_all() -> None:
    turns = full(CONTROL, count=50)
    assert len(turns.take(4_000, 0)) == 40
    assert len(turns.take(4_000, 0)) == 10


def test_order_inside_a_class_is_kept() -> None:
    turns: Turns[tuple[Priority, int]] = Turns(RULES)
    for number in range(3_000):
        for priority in Priority:
            turns.put(priority, (priority, number), 50 + number % 100, 0)
    seen: dict[Priority, list[int]] = {priority: [] for priority in Priority}
    while len(turns):
        for priority, number in turns.take(5_000, 0):
            seen[priority].append(number)
    assert all(numbers == list(range(3_000)) for numbers in seen.values())


def test_one_that_is_larger_than_a_turn_still_goes() -> None:
    turns: Turns[str] = Turns(RULES)
    turns.put(BULK, "huge", 50_000, 0)
    turns.put(CHAT, "small", 10, 0)
    taken = turns.take(1_000, 0) + turns.take(100_000, 0)
    assert sorted(taken) == ["huge", "small"]


def test_a_burst_waits_and_a_flood_is_shed_from_the_lowest_class() -> None:
    turns = full(COMMAND, CHAT, BULK, count=100)
    turns.take(0, 200)
    assert sum(turns.shed) == 0, "late, but not for long"
    turns.take(0, 650)
    assert sum(turns.shed) == 0
    turns.take(0, 701)
    assert turns.shed == [0, 0, 0, 100]
    turns.take(0, 702)
    assert turns.shed == [0, 0, 100, 100]


def test_durable_traffic_is_never_shed() -> None:
    turns: Turns[int] = Turns(RULES)
    for number in range(10):
        turns.put(CHAT, number, 10, 0, may_shed=number % 2 == 0)
    turns.take(0, 200)
    turns.take(0, 800)
    assert turns.shed[CHAT] == 5
    assert turns.take(10_000, 800) == [1, 3, 5, 7, 9]


def test_a_full_class_says_so() -> None:
    turns: Turns[int] = Turns(TurnRules(queued_max=3))
    assert [turns.put(CHAT, number, 1, 0) for number in range(4)] == [True, True, True, False]
    assert turns.put(BULK, 9, 1, 0)
