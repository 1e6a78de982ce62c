"""A replica from its registration to its end: nothing is missed on the way, whatever the order of things."""

import random

import pytest

from pixiu.machines.lifecycle import Apply, Leave, Lifecycle, Load, Phase, Register, SetRunning, Subscribe


def begun(*sources: str) -> Lifecycle[int]:
    life: Lifecycle[int] = Lifecycle(sources)
    assert life.start() == [Register("Init")]
    assert life.registered(3) == [Subscribe(frozenset(sources))]
    return life


def running(*sources: str) -> Lifecycle[int]:
    life = begun(*sources)
    for source in sources:
        life.subscribed(source, 0)
    assert life.loaded(1) == [SetRunning()]
    return life


def works(life: Lifecycle[int]) -> bool:
    return life.takes_work


def phase(life: Lifecycle[int]) -> Phase:
    return life.phase


@pytest.mark.feature("X12", "X13")
def test_the_way_to_running() -> None:
    # X12, X13: the snapshot is taken after every source has said from where on it sends.
    life = begun("r0", "r1")
    assert phase(life) is Phase.INIT
    assert life.heard(10) == []
    assert life.subscribed("r0", 7) == []
    assert life.subscribed("r1", 9) == [Load({"r0": 7, "r1": 9}, 1)]
    assert life.heard(11) == []
    assert not works(life)
    assert life.loaded(1) == [Apply([10, 11])]
    assert life.heard(12) == [], "order: 10 and 11 are still being applied"
    assert life.applied() == [Apply([12])]
    assert not works(life)
    assert life.applied() == [SetRunning()]
    assert works(life)
    assert life.heard(13) == [Apply([13])]


def test_one_without_sources_loads_at_once() -> None:
    life: Lifecycle[int] = Lifecycle([])
    life.start()
    assert life.registered(1) == [Load({}, 1)]
    assert life.loaded(1) == [SetRunning()]


def test_a_lost_session_costs_a_number_and_no_data() -> None:
    life = running("r0")
    assert life.session_lost() == [Register("Running")]
    assert life.heard(5) == [Apply([5])]
    assert life.registered(9) == []
    assert (life.replica, life.phase) == (9, Phase.RUNNING)
    early = begun("r0")
    early.heard(1)
    assert early.session_lost() == [Register("Init")]
    assert early.registered(4) == []
    early.subscribed("r0", 3)
    assert early.loaded(1) == [Apply([1])]


def test_other_sources_before_running_load_again_and_keep_what_is_queued() -> None:
    life = begun("r0")
    life.heard(1)
    assert life.subscribed("r0", 5) == [Load({"r0": 5}, 1)]
    assert life.sources_changed(["r1"]) == [Subscribe(frozenset({"r1"}))]
    assert life.loaded(1) == [], "a snapshot of before"
    assert life.subscribed("r0", 6) == []
    assert life.subscribed("r1", 8) == [Load({"r1": 8}, 2)]
    assert life.loaded(2) == [Apply([1])]
    assert life.sources_changed(["r1"]) == []


def test_other_sources_while_running_are_only_subscribed_to() -> None:
    life = running("r0")
    assert life.sources_changed(["r0", "r1"]) == [Subscribe(frozenset({"r0", "r1"}))]
    assert life.phase is Phase.RUNNING


def test_a_snapshot_that_fails_is_asked_for_again() -> None:
    life = begun("r0")
    life.subscribed("r0", 5)
    assert life.load_failed(1) == [Subscribe(frozenset({"r0"}))]
    assert life.load_failed(1) == []
    assert life.subscribed("r0", 6) == [Load({"r0": 6}, 2)]


def test_the_queue_is_bounded_and_the_load_begins_again() -> None:
    life: Lifecycle[int] = Lifecycle(["r0"], queue_max=3)
    life.start()
    life.registered(1)
    life.subscribed("r0", 0)
    for news in range(3):
        assert life.heard(news) == []
    assert life.heard(3) == [Subscribe(frozenset({"r0"}))]
    assert life.subscribed("r0", 4) == [Load({"r0": 4}, 2)]
    assert life.loaded(1) == []
    assert life.heard(4) == []
    assert life.loaded(2) == [Apply([4])]


def test_draining_and_stopping() -> None:
    life = running("r0")
    assert life.drain() == [Register("Draining")]
    assert life.takes_work, "what still comes is done"
    assert life.stop() == [Leave()]
    assert life.stop() == []
    assert begun("r0").drain() == [Leave()]
    assert life.heard(1) == [] and life.session_lost() == []
    assert life.registered(5) == [Leave()], "a registration that came too late leaves no ghost"


@pytest.mark.feature("X13")
@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_missed_whatever_the_order(seed: int) -> None:
    # X13: one source numbers its news; the snapshot may be any moment at or after the position asked for.
    dice = random.Random(seed)
    life: Lifecycle[int] = Lifecycle(["r"], queue_max=25)
    todo = [*life.start()]
    sent, sends_from, table = 0, None, set[int]()
    pending: list[int] = []
    for step in range(400):
        if step < 300 and dice.random() < 0.5:
            sent += 1
            if sends_from is not None:
                pending.append(sent)
        while pending and (step >= 300 or dice.random() < 0.5):
            todo += life.heard(pending.pop(0))
        if not todo or (step < 300 and dice.random() < 0.5):
            continue
        command = todo.pop(0)
        match command:
            case Register():
                todo += life.registered(step)
            case Subscribe():
                sends_from = sent
                todo += life.subscribed("r", sent)
            case Load(positions, attempt):
                if dice.random() < 0.2:
                    todo += life.load_failed(attempt)
                else:
                    assert positions["r"] <= sent
                    table |= set(range(1, dice.randint(positions["r"], sent) + 1))
                    todo += life.loaded(attempt)
            case Apply(news):
                table |= set(news)
                todo += life.applied()
            case _:
                pass
    assert life.phase is Phase.RUNNING
    assert table == set(range(1, sent + 1))
