"""A whole replicated journal in one thread and no time: nodes, disks, network, registry, clients, blows.

    result = run(17)                     # the right machine
    result = run(17, mutant="no-lease")  # a literal error put back: some seed must catch it

A run has three parts. Under blows only safety is checked. Then everything heals (what is up stays up: a restart
would hide a stall), and the world must come to rest. At rest nothing may move any more, and every promise is
looked up in the journals.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.requests import encode_follow, encode_follow_progress
from pixiu.machines.replication import Election
from pixiu.testing.network import SimulatedNetwork
from pixiu.testing.queue.clients import Wire
from pixiu.testing.quiet import quiet_logs
from pixiu.testing.replication.environment import NEMESIS_MS, SESSION_TIMEOUT_MS, Blow, draw_environment, draw_script
from pixiu.testing.replication.host import ProcessScheduler
from pixiu.testing.replication.mutants import MUTANTS, Mutant
from pixiu.testing.replication.nemesis import Nemesis
from pixiu.testing.replication.operators import Operator
from pixiu.testing.replication.oracle import Oracle, Violation
from pixiu.testing.replication.process import SimulatedProcess
from pixiu.testing.shrink import shrink
from pixiu.testing.simulated_registry import REGISTRY, RegistryRequest, SimulatedRegistry
from pixiu.testing.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.machines.replication import LogState, Replica

__all__ = ["Result", "World", "explain", "list_mutants", "main", "run"]

STEPS_MAX = 1_500_000
LAST_WRITES_MS = 3_500.0
QUIET_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one seed. ``failure`` is empty if every invariant held."""

    seed: int
    mutant: str
    failure: str
    trace: int
    steps: int
    acked: int
    epochs: int
    script: tuple[Blow, ...]
    lines: tuple[str, ...] = field(default=(), repr=False)


class World:
    """One seed's world."""

    def __init__(self, seed: int, mutant: Mutant, *, keep: Sequence[int] | None, is_verbose: bool) -> None:
        self.rng = random.Random(seed)
        self.environment = draw_environment(self.rng)
        script = draw_script(self.rng, self.environment)
        self.script = script if keep is None else tuple(script[index] for index in keep)
        self.mutant = mutant
        self.faults = mutant.faults
        self.is_manual = self.environment.settings.election is Election.MANUAL
        self.simulation = Simulation(self.rng, steps_max=STEPS_MAX, is_verbose=is_verbose)
        self.note = self.simulation.note
        self.network = SimulatedNetwork(self.simulation, self.environment.links, self._deliver)
        names = [f"n{number + 1}" for number in range(self.environment.node_count)]
        self.nodes = {name: SimulatedProcess(self, index, name) for index, name in enumerate(names)}
        self.oracle = Oracle(self)
        self.registry = SimulatedRegistry(
            self.simulation, self.network, session_timeout_ms=SESSION_TIMEOUT_MS, changed=self.oracle.control_changed
        )
        self.registry.watch_loss = self.environment.watch_loss
        self.registry.stale_ms = self.environment.stale_ms
        self.registry.watch_delay_ms = self.environment.watch_delay_ms
        self.nemesis = Nemesis(self)
        self.operator = Operator(self)
        self._writes = self._wires = 0
        self._is_writing = True
        self._likely_leader = names[0]

    # --- What the nodes ask of the world -------------------------------------------------------------------

    def make_replica(self, name: str, log: LogState) -> Replica:
        """The machine under test, or the mutant of it."""
        return self.mutant.replica(name, self.environment.settings, log)

    def leader_to_follow(self, name: str) -> str | None:
        """Manual: how the operator starts a node."""
        leader = self.operator.leader_named
        return leader if self.is_manual and name != leader else None

    def next_wire(self) -> int:
        """A number for a new connection."""
        self._wires += 1
        return self._wires

    def ask_registry(self, request: RegistryRequest) -> None:
        """A node's request sets out for the registry."""
        if not self.network.is_lost(request.name, REGISTRY):
            self.simulation.after(self.network.delay_ms(), self.registry.receive, request)

    def _deliver(self, source: str, target: str, number: int, message: object) -> None:
        self.nodes[target].deliver(source, number, message)

    def stranger(self, leader: SimulatedProcess, name: str, epoch: int) -> None:
        """A process that is none of these replicas asks to follow under some name, and reports what it has."""
        client = Wire(leader.server, ProcessScheduler(leader))  # type: ignore[arg-type]
        client.connection.is_node = True
        stamp_ms = 0 if name in self.nodes else leader.local_ms - 1
        asked = encode_follow(name.encode(), last_event_id=0, last_epoch=0, highest_epoch=epoch, flags=1)
        report = encode_follow_progress(durable_event_id=1, epoch=epoch, stamp_ms=stamp_ms)
        for call in (lambda: client.send(asked), lambda: client.send(report), client.hang_up):
            self.simulation.after(self.network.delay_ms(), leader.run, leader.incarnation, call)

    # --- The run -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises Violation."""
        simulation = self.simulation
        for node, rate in zip(self.nodes.values(), self.environment.clock_rates, strict=True):
            node.clock_rate = rate
            node.clock_offset_ms = self.rng.uniform(0, 100_000)
            simulation.after(self.rng.uniform(0, 50), node.start)
        for blow in self.script:
            simulation.after(blow.at_ms, self.nemesis.strike, blow)
        simulation.after(200, self._write)
        if self.is_manual:
            simulation.after(100, self.operator.operate)
        simulation.run(until_ms=NEMESIS_MS)
        self.nemesis.heal()
        acked_before = len(self.oracle.acked)
        simulation.run(until_ms=simulation.now_ms + LAST_WRITES_MS)
        self._is_writing = False
        deadline_ms = simulation.now_ms + self.environment.settle_ms
        while reason := self.oracle.unsettled() or self._unquiet():
            if simulation.now_ms >= deadline_ms:
                raise Violation(f"no rest after healing: {reason}")
            simulation.run(until_ms=simulation.now_ms + 100)
        self.oracle.final()
        if len(self.oracle.acked) == acked_before:
            raise Violation("nothing was acknowledged after healing")

    def _unquiet(self) -> str:
        """At rest nobody connects anew, nothing is appended and the control record is only renewed."""
        before = self._activity()
        self.simulation.run(until_ms=self.simulation.now_ms + QUIET_MS)
        after = self._activity()
        return self.oracle.unsettled() if after == before else f"{before} became {after}"

    def _activity(self) -> list[tuple[int, int, int]]:
        return [(node.follow_count, node.log.tail_event_id, node.kept_version) for node in self.nodes.values()] + [
            (self.oracle.control_changes, 0, 0)
        ]

    def _write(self) -> None:
        """A client appends something that is nowhere else."""
        if not self._is_writing:
            return
        if self.rng.random() < 0.2:
            self._likely_leader = self.rng.choice(list(self.nodes))
        self._writes += 1
        node = self.nodes[self._likely_leader]
        if not node.submit(f"value {self._writes}"):
            self._likely_leader = self.rng.choice(list(self.nodes))
        self.simulation.after(self.environment.write_every_ms * self.rng.uniform(0.2, 1.8), self._write)


def run(seed: int, mutant: str | None = None, *, keep: Sequence[int] | None = None, is_verbose: bool = False) -> Result:
    """Run one seed. ``keep`` names the blows of its script to keep; a mutant puts one literal error back."""
    world = World(seed, MUTANTS[mutant or ""], keep=keep, is_verbose=is_verbose)
    failure = ""
    try:
        with quiet_logs():
            world.run()
    except (Violation, AssertionError, TimeoutError) as error:
        failure = f"{type(error).__name__}: {error}"
    simulation = world.simulation
    control = world.registry.control
    epochs = control.epoch if control else max(world.oracle.leaders, default=0)
    return Result(
        seed=seed, mutant=mutant or "", failure=failure, trace=simulation.trace, steps=simulation.steps,
        acked=len(world.oracle.acked), epochs=epochs, script=world.script, lines=tuple(simulation.lines),
    )  # fmt: skip


def list_mutants() -> dict[str, str]:
    """Name and description of each literal error that can be put back."""
    return {name: mutant.what for name, mutant in MUTANTS.items() if name}


def explain(result: Result) -> str:
    """A failure as short as it gets: what broke, the blows that are needed, and the command that replays it."""

    def fails(keep: Sequence[int]) -> bool:
        return bool(run(result.seed, result.mutant, keep=keep).failure)

    keep = shrink(range(len(result.script)), fails)
    last = run(result.seed, result.mutant, keep=keep)
    command = f"python -m pixiu.testing.replication.world {result.seed} --keep {','.join(map(str, keep)) or 'none'}"
    if result.mutant:
        command += f" --mutant {result.mutant}"
    blows = "\n".join(f"  {blow}" for blow in last.script) or "  no blows are needed"
    return f"seed {result.seed}: {last.failure}\n{blows}\nreplay: {command}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one seed, line by line."""
    parser = argparse.ArgumentParser(prog="python -m pixiu.testing.replication.world", description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--mutant", choices=sorted(list_mutants()), default="")
    parser.add_argument("--keep", help="numbers of the blows to keep, or none", default=None)
    options = parser.parse_args(arguments)
    keep = None
    if options.keep is not None:
        keep = [] if options.keep == "none" else [int(number) for number in options.keep.split(",")]
    result = run(options.seed, options.mutant, keep=keep, is_verbose=True)
    lines = [*result.lines, *map(str, result.script), result.failure or "every invariant held"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if result.failure else 0


if __name__ == "__main__":
    sys.exit(main())
