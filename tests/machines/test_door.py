"""Which entries of a stream are done now, which wait, and which are finished."""

import random

import pytest

from pixiu.machines.door import DoorMachine, Finished


def machine_of(*kinds: str) -> DoorMachine[str, str]:
    """Entries 0, 1, … : ``s`` may be under way with others, ``a`` is alone."""
    machine: DoorMachine[str, str] = DoorMachine(tries_max=3, retry_ms=10, retry_most_ms=40)
    for number, kind in enumerate(kinds):
        assert machine.take(str(number), kind, is_alone=kind == "a")
    return machine


def begun(machine: DoorMachine[str, str], now_ms: int = 0) -> str:
    return "".join(entry_id for entry_id, _ in machine.begin(now_ms))


@pytest.mark.feature("R10")
def test_what_is_said_goes_together_and_changes_go_alone_in_order() -> None:
    machine = machine_of("s", "s", "a", "s", "a")
    assert begun(machine) == "01"
    machine.finish("1", "ok")
    assert begun(machine) == "", "the change waits for all before it"
    machine.finish("0", "ok")
    assert begun(machine) == "2"
    assert begun(machine) == "", "all behind wait for the change"
    machine.finish("2", "ok")
    assert begun(machine) == "3"
    machine.finish("3", "ok")
    assert begun(machine) == "4"


def test_an_answer_is_held_until_it_is_written_and_nobody_is_given_it_twice() -> None:
    machine = machine_of("s")
    assert begun(machine) == "0"
    assert not machine.take("0", "s", is_alone=False), "claimed from oneself"
    machine.finish("0", "ok")
    assert machine.finished() == [Finished("0", "ok")]
    assert not machine.take("0", "s", is_alone=False)
    assert machine.count == 1
    machine.written(["0"])
    assert (machine.count, machine.finished()) == (0, [])
    assert machine.take("0", "s", is_alone=False), "Redis has forgotten that it was finished"


def test_what_fails_for_now_keeps_its_place_and_is_tried_ever_later() -> None:
    machine = machine_of("a", "s")
    assert begun(machine) == "0"
    assert not machine.fail("0", "busy", 100, is_ready=True)
    assert begun(machine, 100) == "", "the one behind does not overtake"
    assert machine.due_in_ms(100) == 20
    assert begun(machine, 120) == "0"
    assert not machine.fail("0", "busy", 120, is_ready=True)
    assert machine.due_in_ms(120) == 40
    assert begun(machine, 160) == "0"
    assert machine.fail("0", "busy", 160, is_ready=True), "three tries are enough"
    assert machine.finished() == [Finished("0", "busy")]
    assert begun(machine, 160) == "1"


def test_a_node_that_is_not_ready_costs_no_try() -> None:
    machine = machine_of("s")
    now_ms = 0
    for _ in range(100):
        assert begun(machine, now_ms) == "0"
        assert not machine.fail("0", "down", now_ms, is_ready=False)
        now_ms += machine.due_in_ms(now_ms) or 0
    assert begun(machine, now_ms) == "0"
    machine.finish("0", "ok")
    assert machine.running == 0


@pytest.mark.parametrize("seed", range(20))
def test_every_entry_is_finished_once_and_no_change_has_company(seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.choices("sssa", k=60)
    machine = machine_of(*kinds)
    now_ms, running, answered, order = 0, set[str](), list[str](), list[str]()
    while machine.count:
        for entry_id, kind in machine.begin(now_ms):
            running.add(entry_id)
            assert kind == "s" or running == {entry_id}
            order.append(entry_id)
        assert sum(kinds[int(entry)] == "a" for entry in running) in (0, 1)
        assert len(running) == machine.running
        if running:
            entry_id = chance.choice(sorted(running))
            running.remove(entry_id)
            if chance.random() < 0.3:
                machine.fail(entry_id, "no", now_ms, is_ready=chance.random() < 0.5)
            else:
                machine.finish(entry_id, "ok")
        for each in machine.finished():
            answered.append(each.entry_id)
            machine.written([each.entry_id])
        now_ms += machine.due_in_ms(now_ms) or 0
    assert sorted(map(int, answered)) == list(range(60))
    firsts = [int(entry) for entry in dict.fromkeys(order)]
    assert firsts == sorted(firsts)
