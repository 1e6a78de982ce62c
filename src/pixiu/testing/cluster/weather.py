"""Whole clusters under everything at once: loss, repeats, reordering, delays to 5 s, crashes, freezes, cuts, doublings.

A seed is a cluster, a script of blows, people who come, go and talk in rooms, and people who write to each other, which
carriers keep. Rooms may go over relays, a room may become big, a role or the carriers may double, and double again. The
registry loses sessions and hints and answers late; the log is out of reach now and then, and loses its beginning. Every
seed ends with a calm in which nobody enters and nobody is restarted, and everything must come right by itself.

| checked | |
|---|---|
| stored | what people write to each other (``durable``: I1 to I4, I6 to I8) |
| routes | all brokers run, and know of their rooms what the gateways say (I5, I7, I9) |
| answers | every sender has an answer: nothing waits for ever (I8) |
| once | nobody was shown anything twice |
| all, in order | reliable talk that was accepted was shown, in order, to everyone who was there throughout |
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pixiu.links.splitting import Stand
from pixiu.machines.bigrooms import JOINING
from pixiu.model.errors import PixiuError
from pixiu.testing.cluster.carriers import CarrierNode
from pixiu.testing.cluster.durable import Durable
from pixiu.testing.cluster.log import LOG
from pixiu.testing.cluster.mutants import mutated
from pixiu.testing.cluster.world import Cluster, Weather

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import GatewayNode

__all__ = ["STEPS", "Blow", "Result", "churn", "run", "texts"]

STEPS = 12
KINDS = (
    "crash", "freeze", "cut", "session", "calm", "carrier", "stop", "disk", "lag", "log", "retention", "registry",
)  # fmt: skip
"""``carrier`` is the death of one that serves, ``stop`` its standing still for longer than its lease; with ``disk`` a
replica comes back with nothing; with ``lag`` one that serves dies while those who stand by get the log slowly; the
``log`` and the ``registry`` are out of reach for a while."""
LAG_MS = 8_000
CARRIER = "carrier"


class Blow(NamedTuple):
    """One piece of trouble: what it hits is drawn from its own seed, whatever happened before."""

    step: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"step {self.step}: {self.kind} ({self.seed})"


@dataclass(slots=True)
class Result:
    """What became of a seed."""

    failure: str = ""
    script: tuple[Blow, ...] = ()
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
    """Sessions come and go at all gateways that live."""
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
    """One world, to its end or to the first promise that is broken. Without rooms it has carriers and gateways only."""
    with mutated(mutant):
        world = _World(seed, keep, is_verbose=is_verbose, has_rooms=has_rooms)
        try:
            world.begin()
            world.play()
            world.result.failure = world.judge()
        except (AssertionError, PixiuError) as error:
            world.result.failure = f"{type(error).__name__}: {error}"
        finally:
            world.end()
        return world.result


class _World:
    def __init__(self, seed: int, keep: Sequence[int] | None, *, is_verbose: bool, has_rooms: bool) -> None:
        plan = random.Random(seed * 7 + 1)
        self.rng = rng = random.Random(seed)
        self.result = Result(script=tuple(
            Blow(step, plan.choice(KINDS), plan.randrange(2**32)) for step in range(STEPS)
        ))  # fmt: skip
        self._kept = range(STEPS) if keep is None else keep
        self._is_verbose = is_verbose
        self._troubles = 0
        weather = Weather(
            loss=plan.choice((0, 0.05, 0.2)), repeat=plan.choice((0, 0.1)), reorder=plan.choice((0, 0.2)),
            delay_ms_max=plan.choice((1, 20, 200)), watch_loss=plan.choice((0, 0.5, 1.0)),
            late=plan.choice((0, 0, 0.002, 0.01)), registry_ms=plan.choice((0, 5, 40)),
        )  # fmt: skip
        self.counts = {
            "broker": plan.choice((1, 1, 2, 2, 4)), "router": plan.choice((1, 1, 2)),
            "relay": plan.choice((0, 0, 0, 1, 2)),
        }  # fmt: skip
        self.doubles = plan.choice(
            ("", "broker", "router", "relay" if self.counts["relay"] else "broker", CARRIER, CARRIER)
        )
        carriers = plan.choice((1, 2))
        self.has_rooms = has_rooms
        self.grows = plan.random() < 0.4 and has_rooms
        if not has_rooms:
            self.counts = {}
            self.doubles = CARRIER if self.doubles else ""
        is_small = self.doubles == CARRIER or self.counts.get(self.doubles) == 1
        self.doubles_again = is_small and random.Random(seed * 7 + 2).random() < 0.5
        self.cluster = cluster = Cluster(
            rng, weather=weather, brokers=self.counts.get("broker", 1), routers=self.counts.get("router", 1),
            relays=self.counts.get("relay", 0), heartbeat_ms=1_000,
        )  # fmt: skip
        self._say(f"{self.counts}, {carriers} carriers, doubles {self.doubles or 'nothing'}, {weather}")
        for role, count in self.counts.items():
            for partition in range(count):
                for _ in range(2):
                    self._start(role, partition)
        for _ in range(3):
            cluster.add_gateway()
        for _ in range(2 if has_rooms else 0):
            cluster.add_proxy()
        self.durable = Durable(cluster, rng, partitions=carriers, replicas=2)
        self.answers: list[list[object]] = []
        # These live to the end, with sessions that stay.
        self.stays: list[tuple[GatewayNode, int]] = []
        for number, gateway in enumerate(cluster.gateways[:2]):
            for session_id in (number + 1, number + 11):
                gateway.enter(session_id, "stay")
                self.stays.append((gateway, session_id))

    def begin(self) -> None:
        """Everything comes right before any blow."""
        cluster = self.cluster
        assert cluster.run_until(cluster.is_settled, within_ms=60_000), "routes: they never came right before any blow"
        self.durable.talk(4)
        assert cluster.run_until(self.durable.rests, within_ms=60_000), f"stored: {self.durable.unsettled()}"

    def end(self) -> None:
        """Let go of everything."""
        result, durable = self.result, self.durable
        result.datagrams, result.virtual_us = self.cluster.datagrams, self.cluster.clock.now_us
        result.stored = sum(len(person.accepted) for person in durable.people)
        result.failovers = durable.failovers
        result.snapshots = durable.snapshots + sum(node.life.snapshots for node in durable.nodes.values())
        durable.end()

    def play(self) -> None:
        """Blows, people, talk."""
        cluster, rng = self.cluster, self.rng
        for step, blow in enumerate(self.result.script):
            if step in self._kept:
                self._strike(blow)
            self.durable.talk(3)
            if step % 3 == 2 and (auditor := self._carrier(rng, serves=True)) is not None:
                self.durable.audit(auditor)
            if self.has_rooms:
                churn(cluster, rng, 8)
            if step == 2 and self.grows:
                cluster.gateways[0].bigs.propose("stay", lambda _error: None)
            for _ in range(2 if self.has_rooms else 0):
                text = f"text {len(self.answers)}"
                self.answers.append(cluster.gateways[0].say(1, "stay", text, is_reliable=True))
            cluster.run(rng.random() * 1_000)
            if (step == 8 and self.doubles) or (step == 10 and self.doubles_again):
                self._calm()
                self._double(self.doubles)
        self._calm()

    def judge(self) -> str:
        """The first promise that is broken; nothing if all are kept."""
        cluster = self.cluster
        if not cluster.run_until(self.durable.rests, within_ms=120_000):
            return f"I8: {self.durable.unsettled() or 'something moves for ever'}"
        if found := self.durable.judge():
            return found
        if not cluster.run_until(cluster.is_settled, within_ms=120_000):
            return "routes: brokers do not know what the gateways say"
        if not cluster.run_until(lambda: all(self.answers), within_ms=600_000):
            return "answers: a sender waits for ever"
        if self.grows and not cluster.run_until(self._has_grown, within_ms=120_000):
            return "routes: a room that is to be big never is"
        accepted = [f"text {number}" for number, answer in enumerate(self.answers) if isinstance(answer[0], dict)]
        self.result.accepted = len(accepted)
        for gateway, session_id in self.stays:
            heard = texts(gateway, session_id)
            if len(set(heard)) != len(heard):
                return f"once: session {session_id} was shown something twice"
            if gateway.boot in cluster.declared_dead:
                continue  # whoever is there was not in the room throughout: senders did not wait for it
            if [text for text in heard if text in accepted] != accepted:
                missing = sorted(set(accepted) - set(heard))
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
            self.durable.came()

    def _strike(self, blow: Blow) -> None:
        rng, cluster = random.Random(blow.seed), self.cluster
        nodes = [node for node in cluster.nodes_by_address.values() if node.role not in ("publisher", "operator")]
        mortal = [node for node in nodes if node not in cluster.gateways[:2]]
        target: Process | None = None
        if blow.kind == "crash":
            target = rng.choice(mortal) if mortal else None
            if target is not None:
                self._crash(target, rng)
        elif blow.kind in ("carrier", "stop", "disk"):
            target = self._carrier(rng, serves=blow.kind != "disk" or rng.random() < 0.5)
            if target is not None and blow.kind == "stop":
                self._freeze(target, 1_500 + rng.random() * 5_000)
            elif target is not None:
                self._crash(target, rng, loses_disk=blow.kind == "disk")
        elif blow.kind == "lag":
            target = self._carrier(rng, serves=True)
            if target is not None:
                self._lag(target, rng)
        elif blow.kind == "freeze":
            target = rng.choice(nodes)
            self._freeze(target, rng.random() * 6_000)
        elif blow.kind == "cut":
            self._cut(rng, nodes)
        elif blow.kind == "session":
            target = rng.choice(nodes)
            target.session.expire()
        elif blow.kind == "registry":
            target = away = rng.choice(nodes)
            away.session.suspend()
            back = away.session.expire if rng.random() < 0.3 else away.session.resume
            self._later(rng.random() * 4_000, back)
        elif blow.kind == "log":
            self.durable.log.is_out = True
            self._later(rng.random() * 4_000, self._log_is_back)
        elif blow.kind == "retention":
            self._say(f"the log begins at {self.durable.trim()}")
        where = "" if target is None else f" {target.role} {target.partition} {target.address}"
        self._say(f"{cluster.clock.now_us // 1000} ms: {blow.kind}{where}")

    def _later(self, delay_ms: float, mend: Callable[[], object]) -> None:
        """What a blow has broken is whole again."""
        self._troubles += 1

        def mended() -> None:
            self._troubles -= 1
            mend()

        self.cluster.scheduler.after(delay_ms, mended)

    def _log_is_back(self) -> None:
        self.durable.log.is_out = False

    def _carrier(self, rng: random.Random, *, serves: bool) -> CarrierNode | None:
        nodes = list(self.durable.nodes.values())
        chosen = [node for node in nodes if node.life.is_serving == serves] or nodes
        return rng.choice(chosen) if chosen else None

    def _lag(self, target: CarrierNode, rng: random.Random) -> None:
        """The log goes on, the others of its partition hear of it slowly, and it dies."""
        for node in self.durable.nodes.values():
            if node is not target and node.partition == target.partition and node.view is not None:
                node.view.lag(LAG_MS)
        self._later(200 + rng.random() * 800, lambda: None if target.is_dead else self._crash(target, rng))

    def _crash(self, target: Process, rng: random.Random, *, loses_disk: bool = False) -> None:
        if target.is_frozen:
            target.thaw()
        role, partition = target.role, target.partition
        again_ms = rng.random() * 3_000
        if isinstance(target, CarrierNode):
            name = target.name
            self.durable.crash(target, loses_disk=loses_disk)
            if rng.random() < 0.5:  # while it is away, the log goes on without it
                self.cluster.scheduler.after(again_ms, self.durable.trim)
                again_ms += 1_000
            self._later(again_ms, lambda: self.durable.start(name, partition))
        else:
            target.crash()
            self._later(again_ms, lambda: self._start(role, partition))

    def _freeze(self, target: Process, lasts_ms: float) -> None:
        target.freeze()
        self._later(lasts_ms, lambda: None if target.is_dead else target.thaw())

    def _cut(self, rng: random.Random, nodes: list[Process]) -> None:
        cluster = self.cluster
        places = [*(node.address for node in nodes), LOG]
        half = set(rng.sample(places, len(places) // 2))
        cuts = {(a, b) for a in places for b in places if (a in half) != (b in half)}
        if rng.random() < 0.5:  # one way, some of them
            cuts = set(rng.sample(sorted(cuts), len(cuts) // 3))
        cluster.weather.cuts |= cuts
        self._later(rng.random() * 8_000, lambda: cluster.weather.cuts.difference_update(cuts))

    def _double(self, role: str) -> None:
        """The new half is started; the flip comes when all of it runs, as the operator's tool has it."""
        cluster = self.cluster
        if role == CARRIER:
            self.durable.double()
            struck: set[str] = set()
            has_doubled = cluster.run_until(lambda: self._strikes_the_new(struck), within_ms=60_000)
            self._say(f"{cluster.clock.now_us // 1000} ms: carriers double: {has_doubled}")
            assert has_doubled, f"I8: carriers that stand still do not double: {self.durable.unsettled()}"
            return
        count = self.counts[role]
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

    def _strikes_the_new(self, struck: set[str]) -> bool:
        """Some die right behind a snapshot, while nothing is said that would make them write down what they did."""
        for node in list(self.durable.nodes.values()):
            if node.partition >= self.durable.partitions and node.life.snapshots and node.name not in struck:
                struck.add(node.name)
                if self.rng.random() < 0.5:
                    die = partial(self._dies_anew, node)
                    self._later(self.rng.random() * 300, die)
        return self.durable.has_doubled

    def _dies_anew(self, node: CarrierNode) -> None:
        if not node.is_dead:
            self._crash(node, self.rng)

    def _calm(self) -> None:
        """Until everything that was broken is whole again."""
        cluster = self.cluster
        cluster.run_until(lambda: not self._troubles, within_ms=10_000)
        cluster.weather.cuts.clear()
        cluster.weather.loss = min(cluster.weather.loss, 0.05)
