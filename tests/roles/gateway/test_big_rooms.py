"""A gateway writes to big rooms in slices of time: what is said in small ones gets in between."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config import Settings
from pixiu.im.draft import Actor
from pixiu.machines.room_link import Frame
from pixiu.machines.rooms import Fan, room_number
from pixiu.machines.session import CODECS, WEBSOCKET_TEXT
from pixiu.model.partitions import SLICE_ROOMS_BEGIN
from pixiu.roles.gateway import RoomListening
from pixiu.roles.gateway.metrics import GatewayCounters
from pixiu.roles.gateway.outlet import Outlet, OutletRules
from pixiu.roles.gateway.rooms import LARGE_MAX, SESSIONS_AT_ONCE, SESSIONS_PER_TURN, TURN_US
from pixiu.roles.gateway.tick import Tick
from pixiu.testing.scheduler import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable

WRITE_US = 10
PEOPLE = 1000


class Turns:
    """A loop that is turned by hand."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], object]] = deque()

    def soon(self, call: Callable[[], object]) -> None:
        self._ready.append(call)

    def turn(self) -> bool:
        """Run all that was ready when the turn began. False if nothing is left."""
        for _ in range(len(self._ready)):
            self._ready.popleft()()
        return bool(self._ready)


class Person:
    """A connection as rooms see it, and its socket, on which a write takes its time."""

    def __init__(self, world: World, number: int) -> None:
        self.actor = Actor(number, session_id=number)
        self.is_closed = False
        self.heard: list[bytes] = []
        self._world = world
        self.outlet = Outlet(world.rules, self, CODECS["json"], WEBSOCKET_TEXT, lambda: None)
        self.outlet.open()

    def write(self, data: bytes) -> None:
        self._world.clock.now_us += self._world.write_us
        self.heard.append(data)

    def close(self, code: int, reason: str) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def pending(self) -> int:
        return 0

    def outstanding(self) -> int:
        return 0


class World:
    """One gateway's listening, with a big room in one slice and a small one."""

    def __init__(self, write_us: int = WRITE_US, people: int = PEOPLE) -> None:
        self.clock = SimulatedClock()
        self.turns = Turns()
        self.write_us = write_us
        settings, counters = Settings(), GatewayCounters(10)
        scheduler: Any = self.turns
        names: Any = None
        tick = Tick(scheduler, names, counters)
        self.rules = OutletRules(settings.gateway, tick, scheduler, counters)
        self._actions: dict[str, Any] = {}
        gateway: Any = SimpleNamespace(actions=self._actions, when_left=[], when_rejoined=[], tick=tick)
        self.listening = RoomListening(
            gateway, settings.rooms, self.clock, act=lambda _actor, _action, params, done: done(dict(params)),
            session_gone=lambda _session: None, soon=self.turns.soon,
        )  # fmt: skip
        self.small = [self._enter(number, "small") for number in (1, 2)]
        self.big = [self._enter(10 + number, "big") for number in range(people)]
        for person in self.big:
            session_id = person.actor.session_id
            self.listening.join(room_number("big"), SLICE_ROOMS_BEGIN, "big", session_id, overlaps=False)
        self._serial = 0

    def _enter(self, number: int, room: str) -> Person:
        person = Person(self, number)
        self._actions["enter"](person, {"room": room}, lambda _answer: None)
        return person

    def say(self, room: int, text: bytes) -> None:
        self._serial += 1
        fan = Fan(room, self._serial, b'"%b"' % text)
        self.listening.receive("broker", Frame(1, self._serial, 0, 0, [fan]))

    def heard(self) -> int:
        return sum(bool(person.heard) for person in self.big)


def test_a_turn_for_big_rooms_ends_when_its_time_is_over() -> None:
    world = World()
    world.say(SLICE_ROOMS_BEGIN, b"all")
    at_most = TURN_US + SESSIONS_AT_ONCE * WRITE_US
    turns, more = 0, True
    while more:
        began = world.clock.now_us
        more = world.turns.turn()
        turns += 1
        assert world.clock.now_us - began <= at_most
    assert turns >= PEOPLE * WRITE_US // at_most
    assert [len(person.heard) for person in world.big] == [1] * PEOPLE


def test_a_turn_for_big_rooms_ends_after_some_sessions_when_writing_takes_no_time() -> None:
    world = World(write_us=0)
    world.say(SLICE_ROOMS_BEGIN, b"all")
    world.turns.turn()
    assert world.heard() == SESSIONS_PER_TURN


def test_what_is_said_in_a_small_room_does_not_wait_for_a_big_one() -> None:
    world = World()
    world.say(SLICE_ROOMS_BEGIN, b"all")
    world.turns.turn()
    world.say(room_number("small"), b"few")
    world.turns.turn()
    assert [len(person.heard) for person in world.small] == [1, 1]
    assert world.heard() < PEOPLE / 2


def test_sessions_of_a_big_room_hear_all_in_order() -> None:
    world = World()
    for number in range(5):
        world.say(SLICE_ROOMS_BEGIN, b"%d" % number)
        world.turns.turn()
    while world.turns.turn():
        pass
    orders = {bytes(each for each in b"".join(person.heard) if each in b"01234") for person in world.big}
    assert orders == {b"01234"}


@pytest.mark.parametrize("beyond", [False, True])
def test_beyond_its_bound_all_that_waits_is_written_at_once(beyond: bool) -> None:
    world = World(people=150)
    for number in range(LARGE_MAX + beyond):
        world.say(SLICE_ROOMS_BEGIN, b"%d" % number)
    world.turns.turn()
    world.turns.turn()
    assert (world.heard() == len(world.big)) is beyond
