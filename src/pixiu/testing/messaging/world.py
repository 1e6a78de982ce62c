"""A whole messaging platform in one seed: real queue, real stores, real roles, simulated everything else.

    result = run(17)                # the platform as it is
    result = run(17, mutant="E22")  # a literal error put back: some seed must catch it

A run has four parts. Under blows only what happens is checked. Then everything heals (what is up stays up: a restart or
a login would hide a stall), and the world must come to rest. At rest every promise is looked up. Then those who are
away come home and must find what waits for them; and after a last crash the stores must be what the log says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.ports.log import NOTIFY
from pixiu.testing.messaging.devices import Device
from pixiu.testing.messaging.mutants import MUTANTS, Mutant
from pixiu.testing.messaging.nemesis import Nemesis
from pixiu.testing.messaging.node import Node
from pixiu.testing.messaging.oracle import Oracle
from pixiu.testing.messaging.requests import Clients
from pixiu.testing.messaging.script import END_MS, HEAL_MS, Line, draw_script
from pixiu.testing.messaging.traffic import Traffic
from pixiu.testing.messaging.virtual_time import Outside
from pixiu.testing.messaging.weather import draw_messaging_weather
from pixiu.testing.messaging.wires import HTTP, NODE, Wires
from pixiu.testing.queue.oracle import Violation
from pixiu.testing.quiet import quiet_logs
from pixiu.testing.scheduler import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.model.session import Session

__all__ = ["Result", "World", "run"]

STEPS_MAX = 150_000
SETTLE_MS = 45_000
ENTRY_MS = 1_500
"""A slow device that is sent one entry at a time takes this long for each."""
TASK_MS = 400
"""A notification waits for others of its conversation, and then for its provider."""
QUIET_MS = 1_500


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed. ``failure`` is empty if every invariant held."""

    seed: int
    mutant: str
    failure: str
    trace: int
    steps: int
    accepted: int
    taken: int
    ends: int
    """How often the node's process ended."""
    lines: tuple[Line, ...]
    """The script as far as it was kept."""
    notes: tuple[str, ...] = field(default=(), repr=False)


class World:
    """One seed's world."""

    def __init__(self, seed: int, mutant: Mutant, *, keep: Sequence[int] | None, is_verbose: bool) -> None:
        draws = random.Random(seed)
        self.weather = draw_messaging_weather(draws)
        if mutant.is_embedded is not None:
            self.weather.is_embedded = mutant.is_embedded
        self.script = draw_script(draws, self.weather)
        kept = None if keep is None else set(keep)
        self.lines = tuple(line for line in self.script.lines if kept is None or line.number in kept)
        self.mutant = mutant
        self.rng = random.Random(seed + (1 << 40))
        self.clock = SimulatedClock()
        self.has_flaky_stores = any(line.kind == "lane" for line in self.lines)
        self.outside = Outside(
            self.rng, self.clock, steps_max=STEPS_MAX, is_verbose=is_verbose,
            node_next_us=lambda: self.node.next_us(), run_node=lambda: self.node.run_one(),
        )  # fmt: skip
        self.note = self.outside.note
        self.wires = Wires(self.outside, self.weather.links, self._hand_over)
        self.node = Node(self)
        self.nemesis = Nemesis(self)
        self.clients = Clients(self)
        self.devices = [Device(self, index, plan) for index, plan in enumerate(self.script.devices)]
        self._by_name = {device.name: device for device in self.devices}
        self.traffic = Traffic(self)
        self.oracle = Oracle(self)
        self.numbers: dict[str, int] = {}
        """Users' numbers by public id."""
        self.sessions_seen: dict[int, str] = {}
        """Sessions that the node has opened, with the device that asked for them."""
        self._connection = 0

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self.outside.now_ms

    def next_connection(self) -> int:
        """A number for a new connection."""
        self._connection += 1
        return self._connection

    def logged_in(self, session: Session, client: str) -> None:
        """The node has opened a session."""
        device = self._by_name[client]
        if self.numbers.setdefault(device.user_name, session.user) != session.user:
            raise Violation(f"{device.user_name} is {self.numbers[device.user_name]}, and logged in as {session.user}")
        if self.sessions_seen.setdefault(session.session_id, client) != client:
            raise Violation(f"session id {session.session_id} is given twice, to {client} the second time")

    def has_rival(self, device: Device) -> bool:
        """Is there another device that wants this one's place?"""
        return any(
            each is not device
            and each.is_wanted
            and (each.plan.user, each.plan.platform) == (device.plan.user, device.plan.platform)
            for each in self.devices
        )

    def _hand_over(self, source: str, target: str, connection: int, message: object) -> None:
        assert isinstance(message, tuple)
        if target == NODE:
            self.node.receive(source, connection, message)
        elif target == HTTP:
            if message[0] == "answer":
                self.clients.answered(message[1], message[2])
        else:
            self._by_name[target].receive(connection, message)

    # The run.

    def run(self) -> None:
        """All of it; raises what it finds."""
        outside = self.outside
        start_ms = outside.now_ms
        self.node.boot()
        for user, born_ms in enumerate(self.script.born_ms):
            outside.after(born_ms, self.traffic.create_user, user)
        for line in self.lines:
            outside.after(line.at_ms, self.nemesis.strike if line.is_blow else self.traffic.perform, line)
        outside.run(until_ms=start_ms + HEAL_MS)
        self.nemesis.heal()
        outside.run(until_ms=start_ms + END_MS)
        self._settle("after healing")
        self.oracle.check()
        self._come_home()
        self._settle("with everyone at home")
        model = self.oracle.check()
        self.nemesis.end_and_start("crash" if self.weather.may_crash else "kill")
        self._settle("after the last crash")
        self.oracle.check_stores(self.oracle.model())
        self.note("end", self.node.log.committed, len(model.messages), sorted(model.bodies))

    def _settle(self, when: str) -> None:
        """Wait for rest: nothing is left to do, and nothing moves."""
        outside = self.outside
        states = self.node.stores.inboxes.states(limit=1000) if self.node.state == "up" else []
        longest = max((state.waiting for state in states), default=0)
        deadline_ms = outside.now_ms + SETTLE_MS + ENTRY_MS * longest
        while reason := self.oracle.unsettled() or self._unquiet():
            if outside.now_ms >= deadline_ms + self._tasks_ms():
                raise Violation(f"I8: no rest {when}: {reason}")
            outside.run(until_ms=outside.now_ms + 100)

    def _tasks_ms(self) -> int:
        """How long all tasks of the past take, one after the other: stores that were made anew find them again."""
        if self.node.state != "up" or self.weather.settings.carrier.tasks_in_flight_max > 1:
            return 0
        return TASK_MS * len(self.node.log.topic(NOTIFY, 0, 1_000_000))

    def _unquiet(self) -> str:
        before = self.oracle.activity()
        self.outside.run(until_ms=self.outside.now_ms + QUIET_MS)
        if reason := self.oracle.unsettled():
            return reason
        after = self.oracle.activity()
        return "" if after == before else f"{before} became {after}"

    def _come_home(self) -> None:
        """One device of every inbox that has one comes online, and acks."""
        homes: set[tuple[int, str]] = {
            (device.plan.user, device.plan.platform)
            for device in self.devices
            if device.is_online and not device.is_deaf
        }
        for device in self.devices:
            home = (device.plan.user, device.plan.platform)
            if home not in homes and device.plan.habit != "deaf":
                homes.add(home)
                device.connect()


def run(seed: int, mutant: str = "", *, keep: Sequence[int] | None = None, is_verbose: bool = False) -> Result:
    """Run one seed. ``keep`` names the lines of its script to keep; a mutant puts one literal error back."""
    chosen = MUTANTS[mutant]
    world = World(seed, chosen, keep=keep, is_verbose=is_verbose)
    failure = ""
    try:
        with quiet_logs(), chosen.put_back():
            world.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        failure = f"{type(error).__name__}: {error}"
    finally:
        if world.node.state != "down":
            world.node.scheduler.close()
    return Result(
        seed=seed,
        mutant=mutant,
        failure=failure,
        trace=world.outside.trace,
        steps=world.outside.steps,
        accepted=sum(len(asked.message_ids) for asked in world.clients.asked),
        taken=sum(len(device.taken) for device in world.devices),
        ends=sum(world.nemesis.ends.values()),
        lines=world.lines,
        notes=tuple(world.outside.lines),
    )
