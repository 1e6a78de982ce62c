"""Which replica leads each shard: readings of the registry, stale ones, and what is known from an earlier process."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.links.leaders import KnownLeaders, Leader, Leaders
from pixiu.model.errors import Unavailable
from pixiu.ports.registry import Write
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pixiu.model.errors import PixiuError
    from pixiu.ports.registry import Folder


class Memory:
    """A ``LeaderMemory`` in a variable."""

    def __init__(self, known: KnownLeaders | None = None) -> None:
        self.known = known
        self.kept: list[KnownLeaders] = []

    def recall(self) -> KnownLeaders | None:
        return self.known

    def keep(self, known: KnownLeaders) -> None:
        self.kept.append(known)


class World:
    def __init__(self, memory: Memory | None = None, *, has_registry: bool = True) -> None:
        self.scheduler = SimulatedScheduler(SimulatedClock(), random.Random(1), slow_us=0, pause_chance=0)
        tree = MemoryRegistry(self.scheduler)
        self._writer, self.session = tree.open(), tree.open()
        if not has_registry:
            self.session.suspend()
        self.leaders = Leaders(self.session, self.scheduler, "/c", "shard", memory=memory)
        self.changes = 0
        self.leaders.when_changed = self._changed

    def _changed(self) -> None:
        self.changes += 1

    def start(self) -> None:
        self.leaders.start()
        self.scheduler.run_for(10)

    def write(self, path: str, **data: object) -> None:
        self._writer.write(Write(f"/c/shard/{path}", data), lambda _version: None)
        self.scheduler.run_for(10)

    def lead(self, epoch: int, name: str, **more: object) -> None:
        self.write("partition0/leader", **{"epoch": epoch, "name": name, "hub": "h:1", "boot": "1f", **more})


def test_leaders_and_count_are_what_the_registry_says() -> None:
    world = World()
    world.start()
    assert world.leaders.is_read and world.leaders.is_known and world.leaders.count == 0
    world.write("partition_num", count=2)
    world.lead(7, "a")
    world.write("partition1/leader", epoch=3, name="b", hub="h:2")
    world.write("partition1/0000000001", name="b", hub="h:2")
    assert world.leaders.count == 2
    assert world.leaders.of(0) == Leader(7, "a", "h:1", 0x1F)
    assert world.leaders.of(1) == Leader(3, "b", "h:2") and world.leaders.of(2) is None
    changes = world.changes
    world.scheduler.run_for(5_000)
    assert world.changes == changes, "no change, no call"


def test_leader_of_an_earlier_epoch_is_ignored() -> None:
    world = World()
    world.start()
    world.lead(7, "a")
    world.lead(6, "b")
    assert world.leaders.of(0) == Leader(7, "a", "h:1", 0x1F)
    world.lead(7, "a", hub="h:9", boot="20")
    assert world.leaders.of(0) == Leader(7, "a", "h:9", 0x20), "the same epoch, another process"
    world.lead(8, "b")
    assert world.leaders.of(0) == Leader(8, "b", "h:1", 0x1F)


def test_unreadable_entries_are_logged_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.start()
    world.lead(7, "a")
    world.write("partition_num", count=2)
    world.lead(8, "b", hub=None)
    world.write("partition_num", count=3)
    world.write("partition_num", count="4")
    assert world.leaders.of(0) == Leader(7, "a", "h:1", 0x1F) and world.leaders.count == 2
    assert {record.message for record in caplog.records} == {"bad_leader_entry", "bad_partition_count"}


def test_leaders_stay_known_while_the_registry_is_silent() -> None:
    world = World(Memory(KnownLeaders(1, {0: Leader(9, "stale", "h:3")})))
    world.start()
    world.write("partition_num", count=1)
    world.lead(7, "a")
    world.session.suspend()
    world.scheduler.run_for(60_000)
    assert (world.leaders.count, world.leaders.of(0)) == (1, Leader(7, "a", "h:1", 0x1F)), "the memory is not used"


def test_memory_is_used_if_the_registry_is_not_read_within_a_poll_and_replaced_by_the_first_reading() -> None:
    stale = Leader(9, "stale", "h:3", 5)
    memory = Memory(KnownLeaders(2, {0: stale, 1: stale}))
    world = World(memory, has_registry=False)
    world.start()
    assert (world.leaders.is_known, world.leaders.count) == (False, 0)
    world.scheduler.run_for(2_000)
    assert (world.leaders.is_known, world.leaders.is_read) == (True, False)
    assert (world.leaders.count, world.leaders.of(0), world.leaders.of(1)) == (2, stale, stale)
    assert world.changes == 1 and not memory.kept
    world.write("partition_num", count=2)
    world.lead(7, "a")
    world.session.resume()
    world.scheduler.run_for(10)
    assert world.leaders.is_read
    assert world.leaders.of(0) == Leader(7, "a", "h:1", 0x1F), "what is read replaces what was known, at any epoch"
    assert world.leaders.of(1) == stale, "the registry names no leader there"
    assert memory.kept == [KnownLeaders(2, {0: Leader(7, "a", "h:1", 0x1F), 1: stale})]
    world.lead(6, "b")
    assert world.leaders.of(0) == Leader(7, "a", "h:1", 0x1F)


def test_every_change_is_kept_and_no_cluster_without_shards_is() -> None:
    memory = Memory()
    world = World(memory)
    world.start()
    assert not memory.kept
    world.write("partition_num", count=1)
    world.lead(7, "a")
    world.lead(8, "b")
    assert [known.leaders.get(0) for known in memory.kept] == [
        None, Leader(7, "a", "h:1", 0x1F), Leader(8, "b", "h:1", 0x1F)
    ]  # fmt: skip


def test_without_registry_and_without_memory_nothing_is_known() -> None:
    for memory in (None, Memory()):
        world = World(memory, has_registry=False)
        world.start()
        world.scheduler.run_for(5_000)
        assert not world.leaders.is_known and world.changes == 0


def test_registry_that_does_not_answer_has_one_request_at_most() -> None:
    world = World()
    waiting: list[Callable[[Folder | PixiuError], object]] = []
    world.session.read = lambda path, done: waiting.append(done)  # type: ignore[method-assign]
    world.start()
    world.scheduler.run_for(60_000)
    world.leaders.refresh()
    assert len(waiting) == 1
    waiting[0]({})
    assert len(waiting) == 2, "a change may have come after the first reading began"
    waiting[1](Unavailable("the registry did not answer"))
    assert len(waiting) == 2
    world.scheduler.run_for(1_000)
    assert len(waiting) == 3
