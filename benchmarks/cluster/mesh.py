"""What it costs that everyone asks everyone whether they are well: heartbeats of 10, 100 and 1,000 nodes.

The worst case: each node follows all others. (In a cluster a node follows the roles that it sends to.) Ten and a
hundred are nodes with sockets of their own, in one process, by the clock; a thousand is one node with its real code
against others that only ask and answer, in simulated time, without the system's part. Both are shown for 10 and 100.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, below
from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.links.directory import Directory, DirectoryRules
from pixiu.links.endpoint import Endpoint
from pixiu.links.member import folder_of
from pixiu.links.wire import WireWay
from pixiu.machines.links.codec import encode, kind_of
from pixiu.machines.links.messages import Beat, BeatBack
from pixiu.machines.links.packing import pack, unpack
from pixiu.machines.links.sealing import HEAD_BYTES, Sealer, Secrets
from pixiu.machines.view import PeerState
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datagrams import UdpSocket
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cluster.bench import Bench
    from pixiu.ports.clock import Clock
    from pixiu.ports.registry import Registry
    from pixiu.ports.scheduler import Scheduler

__all__ = ["Cost", "measure", "simulated"]

HEADERS_BYTES = 28
"""Of IP and UDP."""
STEP_MS = 10
ROLE = "node"
CPU_PERCENT_MAX = 10.0
"""Of a core, for a thousand nodes: not in the issue, but above it a mesh would be a burden."""
SECRETS = Secrets([b"a secret of this benchmark"])
WARM_SECONDS = 2.0


class Cost(NamedTuple):
    """Of one node, per second."""

    beats: float
    """Asked and answered."""
    bytes_out: float
    cpu_seconds: float


class _Node:
    """One process's end of links: everything but the role."""

    def __init__(self, boot: int, registry: Registry, clock: Clock, scheduler: Scheduler) -> None:
        self.way = WireWay(SECRETS, boot, clock)
        self.endpoint = Endpoint(boot, self.way, clock, scheduler)
        self.endpoint.state = PeerState.RUNNING
        self.directory = Directory(registry, self.endpoint, clock, scheduler, "/mesh", DirectoryRules())
        self.view = self.directory.follow(ROLE)


def _list(registry: Registry, boot: int, address: str) -> None:
    data = {"name": f"{ROLE}-{boot}", "role": ROLE, "partition": 0, "replica": 0, "address": address,
            "state": PeerState.RUNNING.value, "boot": f"{boot:x}"}  # fmt: skip
    registry.register(folder_of("/mesh", ROLE, 0), data, lambda _path: None)


def measure(bench: Bench) -> Section:
    """All sizes."""
    columns = ["nodes", "how", "beats/s of a node", "bytes/s out of a node", "CPU ms/s of a node", "all nodes, Mbit/s"]
    section = Section("mesh", "A heartbeat mesh, everyone to everyone, once a second", columns)
    before, seconds = load_average(), max(bench.seconds, 1.0)
    found: list[tuple[int, str, Cost]] = []
    for nodes in (10, 100):
        found.append((nodes, "sockets", uvloop.run(_real(nodes, seconds))))
        found.append((nodes, "simulated", simulated(nodes, seconds)))
    found.append((1_000, "simulated", simulated(1_000, seconds)))
    for nodes, how, cost in found:
        bits = cost.bytes_out * nodes * 8 / 1e6
        section.rows.append([
            f"{nodes:,}", how, f"{cost.beats:,.0f}", f"{cost.bytes_out:,.0f}", f"{cost.cpu_seconds * 1000:.2f}",
            f"{bits:,.1f}",
        ])  # fmt: skip
        section.runs.append({"nodes": nodes, "how": how, **cost._asdict()})
    largest = found[-1][2]
    bench.figures["mesh_cpu_per_peer"] = largest.cpu_seconds / 999
    section.checks = [below("CPU of a node among 1,000", largest.cpu_seconds * 100, CPU_PERCENT_MAX, " % of a core")]
    section.notes = [
        f"Load average before: {before:.2f}.",
        f"A beat is a datagram, and so is its answer: {HEADERS_BYTES} bytes of IP and UDP, {HEAD_BYTES} of the seal.",
    ]
    return section


# With sockets, by the clock.


async def _real(nodes: int, seconds: float) -> Cost:
    loop, clock = asyncio.get_running_loop(), SystemClock()
    scheduler = LoopScheduler(loop)
    tree = MemoryRegistry(scheduler)
    sent = [0, 0]
    made, sockets = [], []
    for boot in range(1, nodes + 1):
        node = _Node(boot, tree.open(), clock, scheduler)
        socket = _CountedSocket(loop, node.way.datagram, sent)
        node.way.datagrams = socket
        _list(tree.open(), boot, f"127.0.0.1:{socket.bind('127.0.0.1', 0)}")
        made.append(node)
        sockets.append(socket)
    for node in made:
        node.directory.start()
        await asyncio.sleep(1 / nodes)  # as processes do that were not started at once
    await asyncio.sleep(WARM_SECONDS)
    cpu, began, before = time.process_time(), time.monotonic(), list(sent)
    beats = sum(node.endpoint.counters.beats for node in made)
    await asyncio.sleep(seconds)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    beats = sum(node.endpoint.counters.beats for node in made) - beats
    for node, socket in zip(made, sockets, strict=True):
        node.directory.stop()
        socket.close()
    scheduler.close()
    return Cost(beats / nodes / took, (sent[1] - before[1]) / nodes / took, cpu / nodes / took)


class _CountedSocket(UdpSocket):
    """A socket that adds to what all nodes have sent: datagrams, and bytes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, received: Callable[[bytes, str], object], sent: list[int]
    ) -> None:
        super().__init__(loop, received)
        self._sent = sent

    def send(self, address: str, data: bytes) -> bool:
        """Send one."""
        self._sent[0] += 1
        self._sent[1] += len(data) + HEADERS_BYTES
        return super().send(address, data)


# In simulated time.


class _Others:
    """The others: they ask once a second, and answer what they are asked."""

    def __init__(self, clock: Clock, boots: range, of: int) -> None:
        self.is_full = False
        self.when_free: Callable[[], object] = lambda: None
        self._clock = clock
        self._of = of
        self._sealers = {boot: Sealer(SECRETS, boot) for boot in boots}
        self.answers: list[tuple[bytes, str]] = []
        self.asked = 0
        self.bytes = 0

    def send(self, address: str, data: bytes) -> bool:
        """What the node sends: remembered, and answered later."""
        self.bytes += len(data) + HEADERS_BYTES
        self.asked += 1
        self.answers.append((data, address))
        return True

    def replies(self) -> list[tuple[bytes, str]]:
        """The answers to what was asked since the last time."""
        asked, self.answers = self.answers, []
        found = []
        for data, address in asked:
            boot = int(address.rpartition(":")[2])
            for kind, body in unpack(data[HEAD_BYTES:]):
                if kind == kind_of(Beat(0)):
                    back = BeatBack(int.from_bytes(body, "big"), PeerState.RUNNING, 0)
                    found.append((self.sealed(boot, back), address))
        return found

    def sealed(self, boot: int, message: Beat | BeatBack) -> bytes:
        """A datagram of one of them."""
        contents, _ = pack([(kind_of(message), encode(message))])
        return self._sealers[boot].seal(self._of, contents[0], self._clock.now_ms() // 1000)


def simulated(nodes: int, seconds: float) -> Cost:
    """One node of so many, in virtual time."""
    clock = SimulatedClock()
    scheduler = SimulatedScheduler(clock, random.Random(1), slow_us=0, pause_chance=0)
    tree = MemoryRegistry(scheduler)
    others = _Others(clock, range(2, nodes + 1), of=1)
    node = _Node(1, tree.open(), clock, scheduler)
    node.way.datagrams = others
    for boot in range(2, nodes + 1):
        _list(tree.open(), boot, f"127.0.0.1:{boot}")
    node.directory.start()
    spent, beats, sent = 0.0, 0, 0
    steps, warm_steps = int(seconds * 1000 / STEP_MS), int(WARM_SECONDS * 1000 / STEP_MS)
    numbers = count(1)
    for step in range(-warm_steps, steps):
        if step == 0:
            spent, beats, sent = 0.0, node.endpoint.counters.beats, others.bytes
        turn = step % (1000 // STEP_MS)
        come = others.replies()
        for boot in range(2 + turn, nodes + 1, 1000 // STEP_MS):
            come.append((others.sealed(boot, Beat(next(numbers))), f"127.0.0.1:{boot}"))
        began = time.process_time()
        for data, address in come:
            node.way.datagram(data, address)
        scheduler.run_for(STEP_MS)
        spent += time.process_time() - began
    if len(node.view.usable()) != nodes - 1:
        raise AssertionError(f"{len(node.view.usable())} of {nodes - 1} are usable: the mesh does not work")
    return Cost((node.endpoint.counters.beats - beats) / seconds, (others.bytes - sent) / seconds, spent / seconds)
