"""An observer's view of the instances of a role: every cell of its table, and its measures."""

import random

import pytest

from pixiu.machines.view import Instance, PeerState, Standing, View, ViewRules

RUNNING, INIT = PeerState.RUNNING, PeerState.INIT
USUAL = ViewRules()


class Observer:
    """A view, its clock, and instances that answer or do not."""

    def __init__(self, rules: ViewRules = USUAL, *, replicas: tuple[int, ...] = (7, 3, 12)) -> None:
        self.now = 0
        self.view = View(rules)
        self.silent: set[int] = set()
        self.delay: dict[int, int] = {}
        self.late: list[tuple[int, int, int]] = []
        self.instances = {replica: Instance(f"udp://host:{replica}", RUNNING) for replica in replicas}
        self.view.listed(self.instances, self.now)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.beat()
            self.now += 100

    def beat(self) -> None:
        for replica, number in self.view.due(self.now):
            if replica not in self.silent:
                self.late.append((self.now + self.delay.get(replica, 0), replica, number))
        due = [each for each in self.late if each[0] <= self.now]
        self.late = [each for each in self.late if each[0] > self.now]
        for _, replica, number in due:
            self.view.replied(replica, number, self.instances[replica].state, self.now)

    def standing(self, replica: int) -> Standing | None:
        peer = self.view.peer(replica)
        return None if peer is None else peer.standing

    def unlist(self, replica: int) -> None:
        self.view.listed({key: value for key, value in self.instances.items() if key != replica}, self.now)

    def list_again(self) -> None:
        self.view.listed(self.instances, self.now)


@pytest.mark.feature("X05")
def test_instances_are_sorted_by_number_and_used_once_they_answer() -> None:
    # X05.
    observer = Observer()
    assert observer.view.usable() == []
    assert observer.view.known() == [3, 7, 12]
    observer.run(0.1)
    assert observer.view.usable() == [3, 7, 12]


@pytest.mark.feature("X11", "X12")
def test_one_that_is_starting_gets_news_and_no_work() -> None:
    # X11, X12.
    observer = Observer()
    observer.instances[7] = Instance("udp://host:7", INIT)
    observer.list_again()
    observer.run(3)
    assert observer.standing(7) is Standing.PROBING
    assert observer.view.usable() == [3, 12]
    assert observer.view.known() == [3, 7, 12]
    observer.instances[7] = Instance("udp://host:7", RUNNING)
    observer.run(1.1)
    assert observer.view.usable() == [3, 7, 12]  # its own reply said so, before the registry did


def test_one_that_drains_gets_no_more_work() -> None:
    observer = Observer()
    observer.run(1)
    observer.instances[7] = Instance("udp://host:7", PeerState.DRAINING)
    observer.run(1.1)
    assert observer.view.usable() == [3, 12]


@pytest.mark.feature("X19", "X20")
def test_silence_makes_suspect_then_dead_and_two_replies_bring_it_back() -> None:
    # X19, X20: the registry sees nothing of this.
    observer = Observer()
    observer.run(1)
    observer.silent = {7}
    observer.run(2)
    assert observer.standing(7) is Standing.USABLE
    observer.run(1)
    assert observer.standing(7) is Standing.SUSPECT
    assert observer.view.usable() == [3, 12]
    observer.run(2)
    assert observer.standing(7) is Standing.DEAD
    observer.silent = set()
    observer.run(1)
    assert observer.standing(7) is Standing.DEAD, "one good reply may be luck"
    observer.run(1.1)
    assert observer.view.usable() == [3, 7, 12]


def test_a_suspect_that_answers_is_used_again_at_once() -> None:
    observer = Observer()
    observer.run(1)
    observer.silent = {7}
    observer.run(3)
    assert observer.standing(7) is Standing.SUSPECT
    observer.silent = set()
    observer.run(1.1)
    assert observer.standing(7) is Standing.USABLE


def test_one_that_the_registry_lost_lingers_while_it_answers() -> None:
    # E40.
    observer = Observer()
    observer.run(1)
    observer.unlist(7)
    assert observer.standing(7) is Standing.LINGERING
    observer.run(20)
    assert observer.view.usable() == [3, 7, 12]
    observer.list_again()
    assert observer.standing(7) is Standing.USABLE
    observer.unlist(7)
    observer.run(31)
    assert observer.view.known() == [3, 12], "the grace is over"


def test_one_that_lingers_and_falls_silent_is_out() -> None:
    observer = Observer()
    observer.run(1)
    observer.unlist(7)
    observer.silent = {7}
    observer.run(3.5)
    assert observer.standing(7) is None


def test_of_a_role_with_a_leader_one_that_is_not_listed_is_out_at_once() -> None:
    observer = Observer(ViewRules(has_leader=True))
    observer.run(1)
    observer.unlist(7)
    assert observer.standing(7) is None


@pytest.mark.parametrize("seconds", [0.0, 3.5, 6.5])
def test_whoever_is_not_usable_and_not_listed_is_forgotten(seconds: float) -> None:
    observer = Observer()
    observer.silent = {7}
    if seconds:
        observer.silent = set()
        observer.run(1)
        observer.silent = {7}
        observer.run(seconds)
    observer.unlist(7)
    assert observer.standing(7) is None


def test_while_the_registry_is_out_of_reach_heartbeats_alone_take_out_and_in() -> None:
    observer = Observer()
    observer.run(1)
    observer.unlist(12)
    observer.view.registry_lost()
    assert observer.view.is_frozen
    observer.run(60)
    assert observer.view.usable() == [3, 7, 12], "nobody knows whether it is still not listed"
    observer.silent = {3}
    observer.run(6)
    assert observer.view.usable() == [7, 12]
    observer.silent = set()
    observer.run(2.2)
    assert observer.view.usable() == [3, 7, 12]
    observer.list_again()
    assert not observer.view.is_frozen


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    observer = Observer()
    observer.run(0.1)
    observer.silent = {7}
    observer.run(4)
    observer.view.replied(7, 10_000, RUNNING, observer.now)
    observer.view.replied(99, 1, RUNNING, observer.now)
    assert observer.standing(7) is Standing.SUSPECT
    assert observer.view.known() == [3, 7, 12]


@pytest.mark.feature("X31")
def test_every_instance_shows_its_success_and_its_round_trip() -> None:
    # X31.
    observer = Observer()
    observer.delay = {12: 300}
    observer.run(10)
    peers = {replica: observer.view.peer(replica) for replica in (3, 7, 12)}
    assert all(peer is not None and peer.success > 0.99 for peer in peers.values())
    assert peers[12] is not None and peers[12].rtt_ms == pytest.approx(300)
    observer.silent = {7}
    observer.run(5.1)
    assert peers[7] is not None and peers[7].success < 0.5


def test_a_slow_one_falls_below_a_tenth_of_its_share_and_comes_back() -> None:
    rules = ViewRules(weigh_ms=10_000, half_life_ms=4_000)
    observer = Observer(rules, replicas=(1, 2, 3, 4))
    observer.delay = dict.fromkeys((1, 2, 3, 4), 10)
    observer.run(20)
    assert set(observer.view.weights(observer.now).values()) == {1.0}
    observer.delay[2] = 1_200
    observer.run(19)
    weights = observer.view.weights(observer.now)
    assert weights[2] / sum(weights.values()) * 4 < 0.1
    observer.delay[2] = 10
    observer.run(60)
    weights = observer.view.weights(observer.now)
    assert weights[2] / sum(weights.values()) * 4 >= 0.8


def test_weights_change_seldom_but_a_new_one_has_its_weight_at_once() -> None:
    observer = Observer(replicas=(1, 2))
    observer.run(1)
    first = observer.view.weights(observer.now)
    observer.delay[2] = 900
    observer.run(10)
    assert observer.view.weights(observer.now) == first
    observer.instances[5] = Instance("udp://host:5", RUNNING)
    observer.list_again()
    observer.run(0.2)
    assert observer.view.weights(observer.now)[5] > 0
    assert {replica: observer.view.weights(observer.now)[replica] for replica in (1, 2)} == first


def test_at_most_a_third_is_given_no_weight() -> None:
    observer = Observer(ViewRules(weigh_ms=0, suspect_ms=10**6, dead_ms=10**6), replicas=tuple(range(6)))
    observer.run(1)
    observer.silent = {0, 1, 2, 3}
    observer.run(20)
    weights = observer.view.weights(observer.now)
    assert sum(weight == 0 for weight in weights.values()) == 2


def test_of_two_the_cheaper_is_taken() -> None:
    observer = Observer(replicas=(1, 2))
    observer.delay = {1: 100, 2: 500}
    observer.run(5)
    assert observer.view.cheaper(1, 2, {}) == 1
    assert observer.view.cheaper(1, 2, {1: 9}) == 2


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_a_quiet_time_brings_everyone_back(seed: int) -> None:
    dice = random.Random(seed)
    observer = Observer(replicas=(1, 2, 3, 4, 5))
    for _ in range(40):
        chance = dice.random()
        if chance < 0.3:
            observer.silent = {replica for replica in observer.instances if dice.random() < 0.4}
        elif chance < 0.5:
            observer.unlist(dice.choice(list(observer.instances)))
        elif chance < 0.6:
            observer.view.registry_lost()
        elif chance < 0.8:
            observer.list_again()
        observer.run(dice.random() * 8)
        usable = observer.view.usable()
        assert usable == sorted(set(usable)) and set(usable) <= set(observer.instances)
    observer.silent = set()
    observer.list_again()
    observer.run(6)
    assert observer.view.usable() == [1, 2, 3, 4, 5]
