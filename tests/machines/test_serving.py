"""Who serves a partition: never two at once, always one again, and no epoch twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pixiu.machines.replication import Control, ControlRefused, ControlSeen
from pixiu.machines.serving import (
    ChangeRecord,
    ReadRecord,
    Serve,
    Serving,
    ServingCommand,
    ServingRules,
    ServingState,
    Stop,
)

RULES = ServingRules()
CALM_MS = 34_000
"""From here on nothing is lost."""


@dataclass
class Registry:
    """One record; answers travel, and may be lost."""

    version: int = 0
    control: Control | None = None

    def change(self, expected: int, control: Control) -> bool:
        if expected != self.version:
            return False
        self.version += 1
        self.control = control
        return True


@dataclass
class Replica:
    """A replica with a clock of its own speed, which may stand still."""

    name: str
    speed: float
    machine: Serving = field(init=False)
    frozen_until: float = 0
    is_ready: bool = True
    serves: int = 0

    def __post_init__(self) -> None:
        self.machine = Serving(self.name, RULES)

    def now_ms(self, at: float) -> int:
        return int(at * self.speed)


class World:
    """Replicas, a registry, and everything that can go wrong between them."""

    def __init__(self, seed: int, *, lease_is_kept: bool = True) -> None:
        self.rng = random.Random(seed)
        self.registry = Registry()
        self.at = 0.0
        self.replicas = [Replica(name, self.rng.uniform(1.0, 1.2)) for name in ("c0", "c1", "c2")]
        self.events: list[tuple[float, int, object]] = []
        self.count = 0
        self.served: list[tuple[int, str]] = []
        self.outage_until = 0.0
        self.handed_over = 0
        self.lease_is_kept = lease_is_kept

    def later(self, delay: float, call: object) -> None:
        self.count += 1
        self.events.append((self.at + delay, self.count, call))

    def run(self, until: float) -> None:
        for replica in self.replicas:
            self.later(self.rng.uniform(0, 50), lambda replica=replica: self.tick(replica))
        while self.events:
            self.events.sort(reverse=True, key=lambda event: event[:2])
            self.at, _, call = self.events.pop()
            if self.at > until:
                break
            call()  # type: ignore[operator]
            self.check()

    def check(self) -> None:
        now = [each for each in self.replicas if self.may_serve(each)]
        assert len(now) <= 1, f"{[each.name for each in now]} serve at {self.at}"

    def may_serve(self, replica: Replica) -> bool:
        """One that stands still does nothing; when it goes on, it asks before it does."""
        if self.at < replica.frozen_until:
            return False
        if not self.lease_is_kept:
            return replica.machine.state is ServingState.SERVING
        return replica.machine.is_serving(replica.now_ms(self.at))

    def tick(self, replica: Replica) -> None:
        if self.at < replica.frozen_until:
            self.later(replica.frozen_until - self.at + 0.01, lambda: self.tick(replica))
            return
        self.perform(replica, replica.machine.tick(replica.now_ms(self.at), is_ready=replica.is_ready))
        self.later(self.rng.uniform(40, 90), lambda: self.tick(replica))

    def hand_over(self) -> None:
        """Whoever serves lets others."""
        for replica in self.replicas:
            if self.may_serve(replica):
                self.handed_over += 1
                self.perform(replica, replica.machine.hand_over(replica.now_ms(self.at), "it cannot"))
                assert not self.may_serve(replica)

    def perform(self, replica: Replica, commands: list[ServingCommand]) -> None:
        for command in commands:
            match command:
                case ReadRecord(asked_ms):
                    self.call(replica, lambda asked_ms=asked_ms: self.read(replica, asked_ms))
                case ChangeRecord(expected, control, asked_ms):
                    self.call(replica, lambda e=expected, c=control, a=asked_ms: self.change(replica, e, c, a))
                case Serve(epoch):
                    self.served.append((epoch, replica.name))
                case Stop():
                    pass

    def call(self, replica: Replica, ask: object) -> None:
        """The way there takes a while, and some never arrive."""
        if self.at < min(CALM_MS, self.outage_until) or (self.at < CALM_MS and self.rng.random() < 0.02):
            return
        self.later(self.rng.uniform(1, 120), ask)

    def answer(self, replica: Replica, tell: object) -> None:
        if self.at < min(CALM_MS, self.outage_until) or (self.at < CALM_MS and self.rng.random() < 0.02):
            return
        self.later(self.rng.uniform(1, 120), lambda: self.told(replica, tell))

    def told(self, replica: Replica, tell: object) -> None:
        if self.at < replica.frozen_until:
            self.later(replica.frozen_until - self.at + 0.001, lambda: self.told(replica, tell))
        else:
            self.perform(replica, tell())  # type: ignore[operator]

    def read(self, replica: Replica, asked_ms: int) -> None:
        seen = ControlSeen(self.registry.version, self.registry.control, asked_ms=asked_ms)
        self.answer(replica, lambda: replica.machine.seen(replica.now_ms(self.at), seen))

    def change(self, replica: Replica, expected: int, control: Control, asked_ms: int) -> None:
        if self.registry.change(expected, control):
            seen = ControlSeen(self.registry.version, control, asked_ms=asked_ms, is_granted=True)
            self.answer(replica, lambda: replica.machine.seen(replica.now_ms(self.at), seen))
        else:
            refused = ControlRefused(expected)
            self.answer(replica, lambda: replica.machine.refused(replica.now_ms(self.at), refused))


def stormy(seed: int, *, hand_overs: int = 0, **more: bool) -> World:
    world = World(seed, **more)
    for _ in range(hand_overs):
        world.later(world.rng.uniform(500, 25_000), world.hand_over)
    for _ in range(8):
        at = world.rng.uniform(500, 20_000)
        replica = world.rng.choice(world.replicas)
        for_ms = world.rng.choice((300, 1_500, 4_000))
        if world.rng.random() < 0.7:
            world.later(at, lambda r=replica, f=for_ms: setattr(r, "frozen_until", world.at + f))
        else:
            world.later(at, lambda f=for_ms: setattr(world, "outage_until", world.at + f))
    world.run(40_000)
    return world


@pytest.mark.feature("E41", "X50", "X51", "X69")
@pytest.mark.parametrize("seed", range(60))
def test_there_are_never_two_and_after_every_trouble_there_is_one(seed: int) -> None:
    world = stormy(seed)
    epochs = [epoch for epoch, _ in world.served]
    assert epochs == sorted(set(epochs)), "an epoch is served once"
    assert any(world.may_serve(each) for each in world.replicas)


@pytest.mark.feature("E41", "X50", "X51", "X69")
@pytest.mark.parametrize("seed", range(30))
def test_whoever_hands_over_is_followed_by_one_and_never_beside_another(seed: int) -> None:
    world = stormy(seed, hand_overs=12)
    assert world.handed_over > 0
    epochs = [epoch for epoch, _ in world.served]
    assert epochs == sorted(set(epochs)), "an epoch is served once"
    assert any(world.may_serve(each) for each in world.replicas)


def test_one_that_does_not_look_at_its_lease_is_caught() -> None:
    """The literal error: who was granted it serves until it is told otherwise."""
    with pytest.raises(AssertionError, match="serve at"):
        for seed in range(60):
            stormy(seed, lease_is_kept=False)


def served(machine: Serving, now_ms: int, version: int, epoch: int) -> None:
    (asked,) = machine.tick(now_ms, is_ready=True)
    assert asked == ChangeRecord(version, Control(epoch, machine.name, frozenset()), now_ms)
    seen = ControlSeen(version + 1, asked.control, asked_ms=now_ms, is_granted=True)
    assert machine.seen(now_ms + 1, seen) == [Serve(epoch)]


@pytest.mark.feature("X50")
def test_the_first_one_serves_at_once_and_hands_over_when_it_leaves() -> None:
    first, second = Serving("c0", RULES), Serving("c1", RULES)
    assert first.tick(0, is_ready=True) == [ReadRecord(0)]
    assert first.seen(1, ControlSeen(0, None, asked_ms=0)) == []
    served(first, 250, 0, 1)
    (left,) = first.leave(300)
    assert left == ChangeRecord(1, Control(1, "", frozenset()), 300)
    assert not first.is_serving(301)
    second.tick(300, is_ready=True)
    second.seen(301, ControlSeen(2, Control(1, "", frozenset()), asked_ms=300))
    served(second, 550, 2, 2)


def test_one_that_is_behind_lets_others_go_first() -> None:
    behind = Serving("c0", RULES)
    behind.tick(0, is_ready=False)
    behind.seen(1, ControlSeen(3, Control(4, "", frozenset()), asked_ms=0))
    assert behind.tick(300, is_ready=False) == [ReadRecord(300)]
    (claim,) = behind.tick(RULES.behind_ms + 300, is_ready=False)
    assert isinstance(claim, ChangeRecord) and claim.control.epoch == 5, "if nobody else does, it must"


def test_one_that_hands_over_lets_one_that_is_ready_go_first() -> None:
    first, second = Serving("c0", RULES), Serving("c1", RULES)
    first.tick(0, is_ready=True)
    first.seen(1, ControlSeen(0, None, asked_ms=0))
    served(first, 250, 0, 1)
    change, stop = first.hand_over(400, "its engine is down")
    assert change == ChangeRecord(1, Control(1, "", frozenset()), 400)
    assert stop == Stop("its engine is down")
    assert first.hand_over(401, "again") == []
    nobody = ControlSeen(2, Control(1, "", frozenset()), asked_ms=400, is_granted=True)
    assert first.seen(410, nobody) == []
    assert first.tick(700, is_ready=False) == [ReadRecord(700)], "not at once: another may be ready"
    second.tick(400, is_ready=True)
    second.seen(420, ControlSeen(2, Control(1, "", frozenset()), asked_ms=400))
    served(second, 700, 2, 2)
    (claim,) = first.tick(400 + RULES.behind_ms, is_ready=False)
    assert isinstance(claim, ChangeRecord) and claim.control.epoch == 2, "if nobody else does, it must"
