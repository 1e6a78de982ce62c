"""Whole clusters under faults: loss, repeats, reordering, delays, crashes, freezes, cuts, a registry that is away.

A seed is a cluster, a script of faults, people who come, go and talk in rooms, and people who write to each other,
which the shard stores. Rooms may go over relays, a room may become big, a role of rooms may double, and double again.
The registry loses sessions and hints, answers late, or stops; the shard's journal may lose its beginning. Every seed
ends in a calm in which no process is restarted and no session enters a room, and everything must come right by itself.

| checked | |
|---|---|
| stored | what people write to each other (``durable``) |
| routes | all brokers run, and know of their rooms what the gateways know (I5, I7, I9) |
| answers | every sender gets an answer (I8) |
| once | no session was shown anything twice |
| all, in order | reliable room messages that were accepted were shown, in order, to everyone who was there throughout |
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pixiu.links.splitting import Stand
from pixiu.machines.bigrooms import JOINING
from pixiu.model.errors import PixiuError
from pixiu.testing.cluster.bugs import collected_bugs
from pixiu.testing.cluster.durable import Durable
from pixiu.testing.cluster.mutants import mutated
from pixiu.testing.cluster.shards import ShardNode
from pixiu.testing.cluster.world import Cluster, Environment, GatewayNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.testing.cluster.process import Process

__all__ = ["STEPS", "Fault", "Result", "churn", "run", "texts"]

STEPS = 12
KINDS = (
    "crash", "freeze", "cut", "session", "calm", "leader", "leader", "stop", "power", "disk", "follower", "registry",
    "outage", "drain", "hand-over", "clock", "restart",
)  # fmt: skip
"""See docs/simulation.md."""
RESTART_MS = 300
"""Within this time a replica comes back before another one can have taken over."""
HAND_OVER_MS = 300
"""Between the two requests that a leader hands over."""
CLOCK_MS = 1_000
"""How wrong a wall clock may be."""
LEAVES_MS = 8_000
"""How long to wait until a replica that is down is no member of the in-sync set."""


class Fault(NamedTuple):
    """One fault. What it hits is drawn from its own seed, whatever happened before."""

    step: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"step {self.step}: {self.kind} ({self.seed})"


@dataclass(slots=True)
class Result:
    """What became of a seed."""

    failure: str = ""
    script: tuple[Fault, ...] = ()
    accepted: int = 0
    stored: int = 0
    failovers: int = 0
    snapshots: int = 0
    datagrams: int = 0
    virtual_us: int = 0
    """How long the world lasted."""
    lines: list[str] = field(default_factory=list)


def texts(gateway: GatewayNode, session_id: int) -> list[str]:
    """What a session was shown."""
    return [json.loads(body)["message"]["text"] for body in gateway.shown[session_id]]


def churn(cluster: Cluster, rng: random.Random, steps: int = 60) -> None:
    """Let sessions come and go at all gateways that run."""
    for _ in range(steps):
        gateways = [each for each in cluster.gateways if not each.is_dead]
        gateway = rng.choice(gateways)
        session_id = rng.randrange(1, 12) * 1000 + gateway.boot % 997
        room = f"room {rng.randrange(4)}"
        if rng.random() < 0.6:
            gateway.enter(session_id, room)
        else:
            gateway.leave(session_id, room)
        cluster.run(rng.random() * 100)


def run(
    seed: int,
    mutant: str = "",
    *,
    keep: Sequence[int] | None = None,
    is_verbose: bool = False,
    has_rooms: bool = True,
) -> Result:
    """Run one world to its end or to the first promise that is broken. Without rooms: a shard and gateways only."""
    with mutated(mutant), collected_bugs() as bugs:
        world = _World(seed, keep, is_verbose=is_verbose, has_rooms=has_rooms)
        try:
            world.begin()
            world.play()
            world.result.failure = world.judge()
        except (AssertionError, PixiuError) as error:
            world.result.failure = f"{type(error).__name__}: {error}"
        finally:
            found = list(bugs)  # coroutines that are closed in the middle may complain
            world.end()
        if found:
            world.result.failure = f"a bug: {found[0]}"
        return world.result


class _World:
    def __init__(self, seed: int, keep: Sequence[int] | None, *, is_verbose: bool, has_rooms: bool) -> None:
        plan = random.Random(seed * 7 + 1)
        self.rng = rng = random.Random(seed)
        self.result = Result(script=tuple(
            Fault(step, plan.choice(KINDS), plan.randrange(2**32)) for step in range(STEPS)
        ))  # fmt: skip
        self._kept = range(STEPS) if keep is None else keep
        self._is_verbose = is_verbose
        self._troubles = 0
        environment = Environment(
            loss=plan.choice((0, 0.05, 0.2)), repeat=plan.choice((0, 0.1)), reorder=plan.choice((0, 0.2)),
            delay_ms_max=plan.choice((1, 20, 200)), watch_loss=plan.choice((0, 0.5, 1.0)),
            late=plan.choice((0, 0, 0.002, 0.01)), registry_ms=plan.choice((0, 5, 40)),
            disk_ms=plan.choice((0, 2, 20)),
        )  # fmt: skip
        self.counts = {
            "broker": plan.choice((1, 1, 2, 2, 4)), "router": plan.choice((1, 1, 2)),
            "relay": plan.choice((0, 0, 0, 1, 2)),
        }  # fmt: skip
        self.doubles = plan.choice(("", "broker", "router", "relay" if self.counts["relay"] else "broker"))
        replicas = plan.choice((1, 2, 3, 3, 3))
        has_retention = plan.random() < 0.5
        fill_bytes = plan.choice((0, 4_096))
        self.has_rooms = has_rooms
        self.grows = plan.random() < 0.4 and has_rooms
        if not has_rooms:
            self.counts, self.doubles = {}, ""
        is_small = self.counts.get(self.doubles) == 1
        self.doubles_again = is_small and random.Random(seed * 7 + 2).random() < 0.5
        self.cluster = cluster = Cluster(
            rng, environment=environment, brokers=self.counts.get("broker", 1), routers=self.counts.get("router", 1),
            relays=self.counts.get("relay", 0), heartbeat_ms=1_000,
        )  # fmt: skip
        self._say(
            f"{self.counts}, {replicas} replicas, {'retention, ' if has_retention else ''}doubles "
            f"{self.doubles or 'nothing'}, {environment}"
        )
        for role, count in self.counts.items():
            for partition in range(count):
                for _ in range(2):
                    self._start(role, partition)
        for _ in range(3):
            cluster.add_gateway()
        for _ in range(2 if has_rooms else 0):
            cluster.add_proxy()
        self.durable = Durable(cluster, rng, replicas=replicas, has_retention=has_retention, fill_bytes=fill_bytes)
        self.answers: list[list[object]] = []
        # These live to the end, with sessions that stay.
        self.stays: list[tuple[GatewayNode, int]] = []
        for number, gateway in enumerate(cluster.gateways[:2]):
            for session_id in (number + 1, number + 11):
                gateway.enter(session_id, "stay")
                self.stays.append((gateway, session_id))

    def begin(self) -> None:
        """Everything comes right before the first fault."""
        cluster = self.cluster
        assert cluster.run_until(cluster.is_settled, within_ms=60_000), "routes: not settled before the first fault"
        self.durable.talk(4)
        assert cluster.run_until(self.durable.rests, within_ms=60_000), f"stored: {self.durable.unsettled()}"

    def end(self) -> None:
        """Let go of everything."""
        result, durable = self.result, self.durable
        result.datagrams, result.virtual_us = self.cluster.datagrams, self.cluster.clock.now_us
        result.stored = sum(len(person.accepted) + len(person.scheduled) for person in durable.people)
        result.failovers = durable.failovers
        result.snapshots = durable.snapshots
        durable.end()

    def play(self) -> None:
        """Faults, and the workload beside them."""
        cluster, rng = self.cluster, self.rng
        for step, fault in enumerate(self.result.script):
            if step in self._kept:
                self._strike(fault)
            self.durable.talk(3)
            if step % 3 == 2 and (leader := self.durable.leader) is not None:
                self.durable.audit(leader)
            if self.has_rooms:
                churn(cluster, rng, 8)
            if step == 2 and self.grows:
                cluster.gateways[0].bigs.propose("stay", lambda _error: None)
            for _ in range(2 if self.has_rooms else 0):
                text = f"text {len(self.answers)}"
                self.answers.append(cluster.gateways[0].say(1, "stay", text, is_reliable=True))
            cluster.run(rng.random() * (1_000 if self.has_rooms else 2_000))
            if (step == 8 and self.doubles) or (step == 10 and self.doubles_again):
                self._calm()
                self._double(self.doubles)
            if self.durable.violation:
                return
        self._calm()

    def judge(self) -> str:
        """The first promise that is broken; nothing if all are kept."""
        cluster = self.cluster
        if not cluster.run_until(self.durable.rests, within_ms=120_000):
            return f"I8: {self.durable.unsettled() or 'something moves for ever'}"
        if found := self.durable.judge():
            return found
        if not cluster.run_until(cluster.is_settled, within_ms=120_000):
            return "routes: brokers do not know what the gateways know"
        if not cluster.run_until(lambda: all(self.answers), within_ms=600_000):
            return "answers: a sender waits for ever"
        if self.grows and not cluster.run_until(self._has_grown, within_ms=120_000):
            return "routes: a room that is to be big never is"
        accepted = [f"text {number}" for number, answer in enumerate(self.answers) if isinstance(answer[0], dict)]
        self.result.accepted = len(accepted)
        for gateway, session_id in self.stays:
            shown = texts(gateway, session_id)
            if len(set(shown)) != len(shown):
                return f"once: session {session_id} was shown something twice"
            if gateway.boot in cluster.declared_dead:
                continue  # senders did not wait for it, so it was not in the room throughout
            if [text for text in shown if text in accepted] != accepted:
                missing = sorted(set(accepted) - set(shown))
                return f"all, in order: session {session_id} lacks {missing or 'nothing, but the order'}"
        return ""

    # Steps.

    def _say(self, line: str) -> None:
        if self._is_verbose:
            self.result.lines.append(line)

    def _has_grown(self) -> bool:
        rooms = [room for node in self.cluster.proxies if not node.is_dead for room in node.bigs.map.rooms.values()]
        return all(room.phase != JOINING for room in rooms)

    def _start(self, role: str, partition: int) -> None:
        cluster = self.cluster
        if role == "router":
            cluster.add_router(partition)
        elif role == "broker":
            cluster.add_broker(partition)
        elif role == "relay":
            cluster.add_relay(partition)
        elif role == "proxy":
            cluster.add_proxy()
        else:
            cluster.add_gateway()
            self.durable.gateway_came()

    # Faults.

    def _strike(self, fault: Fault) -> None:
        rng, cluster = random.Random(fault.seed), self.cluster
        nodes = [node for node in cluster.nodes_by_address.values() if node.role != "publisher"]
        target = self._target(fault.kind, rng, nodes)
        where = "" if target is None else f" {target.role} {target.partition} {target.address}"
        self._say(f"{cluster.clock.now_us // 1000} ms: {fault.kind}{where}")
        if fault.kind == "cut":
            self._cut(rng, nodes)
        elif fault.kind == "outage":
            self._outage(rng)
        elif target is not None:
            self._hit(fault.kind, target, rng)

    def _target(self, kind: str, rng: random.Random, nodes: list[Process]) -> Process | None:
        """The process that a fault hits; None if it hits none, or many."""
        if kind in ("cut", "outage", "calm"):
            return None
        replicas: list[Process] = [*self.durable.nodes.values()]
        leader = self.durable.leader
        if kind == "crash":
            found = [node for node in nodes if node not in self.cluster.gateways[:2]]
        elif kind in ("leader", "stop", "drain", "hand-over"):
            found = replicas if leader is None else [leader]
        elif kind in ("power", "restart", "clock"):
            found = replicas
        elif kind in ("disk", "follower"):
            found = [node for node in replicas if node is not leader]
        else:
            found = nodes
        return rng.choice(found) if found else None

    def _hit(self, kind: str, target: Process, rng: random.Random) -> None:
        cluster = self.cluster
        if kind in ("freeze", "stop"):
            self._freeze(target, rng.random() * 6_000 if kind == "freeze" else 1_500 + rng.random() * 5_000)
        elif kind == "session":
            target.session.expire()
        elif kind == "registry":
            target.session.suspend()
            has_expired = rng.random() < 0.3
            self._later(rng.random() * 4_000, lambda: self._registry_is_back(target, has_expired=has_expired))
        elif not isinstance(target, ShardNode):
            self._crash(target, rng)
        elif kind == "follower":
            self._cut_follower(target, rng)
        elif kind == "hand-over":
            # The first request may find no member of the in-sync set alive: a leader reads who is there when asked.
            target.hear(target.replication.step_down)
            target.scheduler.after(HAND_OVER_MS, target.replication.step_down)
        elif kind == "clock":
            target.disk.clock.offset_ms = rng.randrange(-CLOCK_MS, CLOCK_MS)
        elif kind == "drain":
            if not target.is_ending:
                self._troubles += 1
                self.durable.stop(target, lambda: self._start_again(target, rng.random() * 2_000))
        elif kind == "restart":
            self._crash_replica(target, rng.random() * RESTART_MS, loses_power=rng.random() < 0.5)
        elif kind == "disk":
            self._crash_replica(target, 0, loses_power=True)
            self._lose_disk(target.name, cluster.clock.now_us // 1000 + LEAVES_MS)
        elif kind == "leader":
            self._crash_replica(target, 1_000 + rng.random() * 4_000, loses_power=rng.random() < 0.3)
        else:
            self._crash_replica(target, rng.random() * 5_000, loses_power=kind == "power")

    def _later(self, delay_ms: float, repair: Callable[[], object]) -> None:
        """End a fault after a while."""
        self._troubles += 1

        def repaired() -> None:
            self._troubles -= 1
            repair()

        self.cluster.scheduler.after(delay_ms, repaired)

    def _registry_is_back(self, target: Process, *, has_expired: bool) -> None:
        if self.cluster.is_registry_down or target.is_dead:
            return
        if has_expired:
            target.session.expire()
        else:
            target.session.resume()

    def _outage(self, rng: random.Random) -> None:
        """The registry stops; when it is back it may have forgotten all sessions."""
        cluster = self.cluster
        if not cluster.is_registry_down:
            cluster.stop_registry()
            has_expired = rng.random() < 0.5
            self._later(rng.random() * 8_000, lambda: cluster.start_registry(has_expired=has_expired))

    def _crash(self, target: Process, rng: random.Random) -> None:
        role, partition = target.role, target.partition
        target.crash()
        if isinstance(target, GatewayNode):
            self.durable.gateway_gone(target)
        self._later(rng.random() * 3_000, lambda: self._start(role, partition))

    def _crash_replica(self, target: ShardNode, again_ms: float, *, loses_power: bool) -> None:
        if target.is_ending:
            return
        self.durable.crash(target, loses_power=loses_power)
        self._troubles += 1
        self._start_again(target, again_ms)

    def _start_again(self, target: ShardNode, after_ms: float) -> None:
        """The end of a fault that counts as trouble already."""

        def started() -> None:
            self._troubles -= 1
            self.durable.start(target.name)

        self.cluster.scheduler.after(after_ms, started)

    def _lose_disk(self, name: str, until_ms: int) -> None:
        """Once a replica that is down is no member of the in-sync set, its disk may be lost. It starts again anyway."""
        cluster = self.cluster

        def look() -> None:
            if name not in self.durable.nodes and self.durable.lose_disk(name):
                self._say(f"{cluster.clock.now_us // 1000} ms: {name} has an empty disk")
            elif cluster.clock.now_us // 1000 < until_ms and name not in self.durable.nodes:
                cluster.scheduler.after(100, look)
                return
            self._troubles -= 1
            self.durable.start(name)

        self._troubles += 1
        cluster.scheduler.after(100, look)

    def _freeze(self, target: Process, lasts_ms: float) -> None:
        target.freeze()
        self._later(lasts_ms, lambda: None if target.is_dead else target.thaw())

    def _cut(self, rng: random.Random, nodes: list[Process]) -> None:
        places = [node.address for node in nodes]
        half = set(rng.sample(places, len(places) // 2))
        cuts = {(a, b) for a in places for b in places if (a in half) != (b in half)}
        if rng.random() < 0.5:  # some of them, one way
            cuts = set(rng.sample(sorted(cuts), len(cuts) // 3))
        self._cut_ways(cuts, rng.random() * 8_000)

    def _cut_follower(self, target: ShardNode, rng: random.Random) -> None:
        """One follower is cut from its leader alone, in both directions or in one."""
        leader = self.durable.leader
        if leader is not None:
            ways = [(target.address, leader.address), (leader.address, target.address)]
            self._cut_ways(set(rng.choice((ways, ways[:1], ways[1:]))), rng.random() * 8_000)

    def _cut_ways(self, cuts: set[tuple[str, str]], lasts_ms: float) -> None:
        cluster = self.cluster
        cluster.environment.cuts |= cuts
        self._later(lasts_ms, lambda: cluster.environment.cuts.difference_update(cuts))

    def _double(self, role: str) -> None:
        """Start the new half; the counts change when all of it runs, as by the operator's tool."""
        cluster, count = self.cluster, self.counts[role]
        for partition in range(count, 2 * count):
            self._start(role, partition)
        has_come = cluster.run_until(cluster.is_settled, within_ms=60_000)
        assert has_come, f"routes: the new half of the {role}s never came right"
        until_ms = cluster.clock.now_us // 1000 + 60_000
        while isinstance(stand := cluster.double(role), PixiuError) and cluster.clock.now_us // 1000 < until_ms:
            cluster.run(1_000)  # the grace of the doubling before
        assert isinstance(stand, Stand), f"routes: the {role}s do not double: {stand}"
        self.counts[role] = 2 * count
        self._say(f"{cluster.clock.now_us // 1000} ms: {role} doubles: {stand}")

    def _calm(self) -> None:
        """Wait until every fault is over."""
        cluster = self.cluster
        cluster.run_until(lambda: not self._troubles, within_ms=20_000)
        cluster.environment.cuts.clear()
        cluster.environment.loss = min(cluster.environment.loss, 0.05)
