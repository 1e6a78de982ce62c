"""Replicas of a shard whose log is in Kafka take, keep and hand over one lease in the registry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config import ReplicationSettings
from pixiu.node.registry_lease import NOT_READY_MS, RegistryLease
from pixiu.queue.replication.control import RegistryControl
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("X48", "X75")

FOLDER = "/pubsub/shard/partition0"
SETTINGS = ReplicationSettings()
TAKEOVER_MS = SETTINGS.lease_ms * 2


class Replica:
    """One replica, and the calls that it received."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.problems: list[str] = []
        self.terms: list[int] = []
        self.ended: list[str] = []
        self.session = world.tree.open()
        self.control = RegistryControl(self.session, world.scheduler, folder=FOLDER, name=name, address=f"{name}:1")
        self.lease = RegistryLease(
            SETTINGS, self.control, self.session, FOLDER, world.clock, world.scheduler, name=name
        )
        self.lease.when_leading = self.terms.append
        self.lease.when_leading_ended = self.ended.append
        self.lease.why_not_ready = lambda: self.problems


class World:
    """A registry and two replicas."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=100, pause_chance=0)
        self.tree = MemoryRegistry(self.scheduler)
        self.one, self.two = Replica(self, "one"), Replica(self, "two")

    def start(self, *replicas: Replica) -> None:
        for replica in replicas:
            replica.lease.start()
        self.pass_ms(TAKEOVER_MS)

    def pass_ms(self, milliseconds: float) -> None:
        for _ in range(int(milliseconds // 50)):
            self.scheduler.run_for(50)
            assert not (self.one.lease.holds_lease() and self.two.lease.holds_lease())

    @property
    def holders(self) -> list[str]:
        return [each.name for each in (self.one, self.two) if each.lease.holds_lease()]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.scheduler.close()


def test_first_replica_leads_and_keeps_its_term(world: World) -> None:
    world.start(world.one)
    world.start(world.two)
    world.pass_ms(20_000)
    assert world.holders == ["one"] and world.one.terms == [1] and not world.one.ended and not world.two.terms
    assert world.two.lease.leader_name == "one"


def test_replica_that_stops_hands_the_lease_over_at_once(world: World) -> None:
    world.start(world.one)
    world.start(world.two)
    left: list[bool] = []
    world.one.lease.leave(lambda: left.append(True))
    world.pass_ms(SETTINGS.renew_ms * 2)
    assert left and world.holders == ["two"] and world.two.terms == [2]
    world.one.lease.stop()
    world.pass_ms(1_000)
    assert world.two.lease.holds_lease()


def test_replica_that_is_not_ready_lets_another_go_first(world: World) -> None:
    world.one.problems = ["behind the log"]
    world.start(world.one, world.two)
    assert world.holders == ["two"]


def test_replica_that_is_not_ready_leads_if_there_is_no_other(world: World) -> None:
    world.one.problems = ["Kafka does not answer"]
    world.start(world.one)
    world.pass_ms(3_000)
    assert world.holders == ["one"]


def test_leader_that_stays_not_ready_hands_over_to_one_that_is_ready(world: World) -> None:
    world.start(world.one)
    world.start(world.two)
    world.one.problems = ["Kafka does not answer"]
    world.pass_ms(NOT_READY_MS - 1_000)
    assert world.holders == ["one"]
    world.one.problems = []
    world.pass_ms(1_000)
    world.one.problems = ["Kafka does not answer"]
    world.pass_ms(NOT_READY_MS - 1_000)
    assert world.holders == ["one"], "the time counts from the last moment in which it was ready"
    world.pass_ms(5_000)
    assert world.holders == ["two"] and world.one.ended == ["another replica is ready"]


def test_leader_keeps_the_lease_while_no_other_is_ready(world: World) -> None:
    world.start(world.one)
    world.start(world.two)
    world.one.problems = world.two.problems = ["Kafka does not answer"]
    world.pass_ms(2 * NOT_READY_MS + 5_000)
    assert world.holders == ["one"] and not world.one.ended
    world.one.lease.step_down()
    world.pass_ms(1_000)
    assert world.holders == ["one"]
    world.two.problems = []
    world.pass_ms(1_000)
    world.one.lease.step_down()
    world.pass_ms(1_000)
    assert world.holders == ["two"]


def test_end_of_the_registry_session_does_not_end_a_term(world: World) -> None:
    world.start(world.one)
    world.start(world.two)
    world.one.session.expire()
    world.pass_ms(5_000)
    assert world.holders == ["one"] and not world.one.ended
