"""The tool that flips a partition count: only when all of the new half runs, once, and not before the last is over."""

import random

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.links.member import CLEAN_AT, COUNT_KEY, count_path, folder_of
from pixiu.links.splitting import Stand, check_split, flip
from pixiu.model.errors import Conflict, NotFound, PixiuError, RequestError
from pixiu.ports.registry import Folder, Registry, Write
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

ROOT = "/pubsub"
NOW = 1_000_000
LASTS = 5_000


class Tool:
    """A registry with a role in it, and somebody who doubles it."""

    def __init__(self, count: int = 1) -> None:
        self.scheduler = SimulatedScheduler(SimulatedClock(), random.Random(1), slow_us=0, pause_chance=0)
        self._registry = MemoryRegistry(self.scheduler)
        self.session = self._registry.open()
        self.write({COUNT_KEY: count}, -1)

    def write(self, data: dict[str, object], version: int | None = None) -> None:
        self.session.write(Write(count_path(ROOT, "broker"), data, version), lambda _result: None)
        self.scheduler.run_for(10)

    def add(self, partition: int, state: str = "Running") -> None:
        self.session.register(folder_of(ROOT, "broker", partition), {"state": state}, lambda _result: None)
        self.scheduler.run_for(10)

    def flip(self, *, replicas: int = 1, now_ms: int = NOW, to: int | None = None) -> list[Stand | PixiuError]:
        """Asked now, answered when time has passed."""
        answers: list[Stand | PixiuError] = []
        session: Registry = self._registry.open()
        flip(session, ROOT, "broker", answers.append, replicas=replicas, now_ms=now_ms, lasts_ms=LASTS, to=to)
        return answers

    def flipped(self, **options: int) -> Stand | PixiuError:
        answers = self.flip(**options)
        self.scheduler.run_for(10)
        (answer,) = answers
        return answer

    def count(self) -> object:
        found: list[Folder | PixiuError] = []
        self.session.read(count_path(ROOT, "broker"), found.append)
        self.scheduler.run_for(10)
        assert isinstance(found[0], dict)
        return found[0][""].data[COUNT_KEY]


def refusal(answer: Stand | PixiuError, kind: type[PixiuError], words: str) -> None:
    assert isinstance(answer, kind), answer
    assert words in str(answer)


@pytest.mark.feature("X16")
def test_it_flips_when_every_replica_of_the_new_half_runs_and_not_before() -> None:
    tool = Tool(2)
    tool.add(0)
    tool.add(1)
    refusal(tool.flipped(), Conflict, "partition 2 has 0 of 1")
    tool.add(2)
    refusal(tool.flipped(), Conflict, "partition 3 has 0 of 1")
    tool.add(3, "Init")
    refusal(tool.flipped(), Conflict, "not Running yet")
    assert tool.count() == 2
    other = Tool(2)
    other.add(2)
    other.add(3)
    refusal(other.flipped(replicas=2), Conflict, "1 of 2")
    assert isinstance(other.flipped(), Stand)
    assert other.count() == 4


@pytest.mark.feature("X16")
def test_of_two_who_flip_at_the_same_time_one_does() -> None:
    tool = Tool()
    tool.add(0)
    tool.add(1)
    one, two = tool.flip(), tool.flip()
    tool.scheduler.run_for(10)
    assert sorted(isinstance(answer, Stand) for answer in (*one, *two)) == [False, True]
    assert any(isinstance(answer, Conflict) for answer in (*one, *two))
    assert tool.count() == 2


@pytest.mark.feature("X16")
def test_the_next_doubling_waits_until_the_last_is_over() -> None:
    tool = Tool()
    for partition in range(2):
        tool.add(partition)
    assert isinstance(tool.flipped(), Stand)
    tool.add(2)
    tool.add(3)
    refusal(tool.flipped(now_ms=NOW + LASTS - 1_500), Conflict, "try again in 2 s")
    assert isinstance(tool.flipped(now_ms=NOW + LASTS), Stand)
    assert tool.count() == 4


@pytest.mark.feature("X18")
@pytest.mark.parametrize("to", [0, 1, 2, 3, 6, 8, 12, -4])
def test_a_count_only_doubles_whatever_is_asked_for(to: int) -> None:
    tool = Tool(2)
    for partition in range(4):
        tool.add(partition)
    refusal(tool.flipped(to=to), RequestError, f"not {to}" if to in (0, 3, 6, 12, -4) else f"not to {to}")
    assert tool.count() == 2
    assert isinstance(tool.flipped(to=4), Stand)


def test_what_the_registry_does_not_know_is_said() -> None:
    tool = Tool()
    answers: list[Stand | PixiuError] = []
    flip(tool.session, ROOT, "router", answers.append, replicas=1, now_ms=NOW, lasts_ms=LASTS)
    tool.scheduler.run_for(10)
    refusal(answers[0], NotFound, "no partition count of router")
    with pytest.raises(RequestError, match="power of two up to 256"):
        check_split(Stand("broker", 256, 0, 0, {}, {}), NOW)
    tool.write({COUNT_KEY: 1, CLEAN_AT: "soon"})
    tool.add(1)
    assert isinstance(tool.flipped(), Stand), "what is no time is none"
