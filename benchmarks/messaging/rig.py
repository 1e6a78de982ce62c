"""A node in this process with users and devices, driven by callbacks: the load must cost little beside the node."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from pixiu.config import CarrierSettings, HornSettings, MessagingSettings, Settings
from pixiu.im.draft import Actor
from pixiu.machines.delivery import Push
from pixiu.model.errors import PixiuError
from pixiu.node.embedded import EmbeddedNode
from pixiu.runtime.collector import spare_the_collector

TEXT = "x" * 100


def settings(**carrier: int) -> Settings:
    """The defaults, without the rate limit that protects users from each other."""
    return replace(
        Settings(),
        messaging=MessagingSettings(sends_per_second=0),
        horn=HornSettings(provider="none"),
        carrier=CarrierSettings(**carrier),
    )


class Device:
    """Takes pushes, acks them cumulatively once per turn, counts."""

    def __init__(self, node: EmbeddedNode, seen: Callable[[int], object]) -> None:
        self._ack = node.messaging.ack
        self._soon = asyncio.get_running_loop().call_soon
        self._seen = seen
        self._is_due = False
        self.session_id = 0
        self.last = 0
        self.count = 0
        self.closed = ""

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Count what is new."""
        last, fresh = self.last, 0
        for push in pushes:
            if push.useq > last:
                last = push.useq
                fresh += 1
        self.last = last
        self.count += fresh
        self.session_id = session_id
        if not self._is_due:
            self._is_due = True
            self._soon(self._answer)
        self._seen(fresh)

    def _answer(self) -> None:
        self._is_due = False
        self._ack(self.session_id, self.last)

    def event(self, _session_id: int, _event: object) -> None:
        """Nothing to do."""

    def close(self, _session_id: int, reason: str) -> None:
        """Remember why."""
        self.closed = reason


class Meter:
    """Counts towards a goal."""

    def __init__(self, goal: int) -> None:
        self.goal = goal
        self.count = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, count: int = 1) -> None:
        """So many more."""
        self.count += count
        if self.count >= self.goal and not self.done.done():
            self.done.set_result(None)


@asynccontextmanager
async def rig(folder: Path, options: Settings) -> AsyncIterator[EmbeddedNode]:
    """A node on an empty data directory, in a process that is little else: its collector is set as a server's is."""
    with TemporaryDirectory(dir=folder) as data:
        async with EmbeddedNode(data, settings=options) as node:
            spare_the_collector()
            yield node


async def create_users(node: EmbeddedNode, names: list[str]) -> list[int]:
    """Users, many at a time. Returns their numbers."""
    for first in range(0, len(names), 500):
        await asyncio.gather(*(node.create_user(name) for name in names[first : first + 500]))
    directory = node.messaging.proxy.context.directory
    return [directory.user(name) for name in names]


async def connect(node: EmbeddedNode, name: str, seen: Callable[[int], object]) -> Device:
    """A device of a user, on the web."""
    device = Device(node, seen)
    connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    node.messaging.connect(name, "web", "d", device, connected.set_result)
    session = await connected
    if isinstance(session, PixiuError):
        raise session
    return device


def senders(
    node: EmbeddedNode, jobs: Iterator[tuple[Actor, str, dict[str, object]]], meter: Meter, in_flight: int
) -> None:
    """Keep so many actions under way until the jobs run out; the meter counts answers."""
    act = node.messaging.act

    def go_on(answer: dict[str, object] | PixiuError) -> None:
        if isinstance(answer, PixiuError):
            raise answer
        meter.add()
        begin()

    def begin() -> None:
        job = next(jobs, None)
        if job is not None:
            act(*job, go_on)

    for _ in range(in_flight):
        begin()


class Stopwatch:
    """Wall time and this process's CPU time."""

    def __init__(self) -> None:
        self._wall, self._cpu = perf_counter(), process_time()

    def read(self) -> tuple[float, float]:
        """Seconds since the start: wall, CPU."""
        return perf_counter() - self._wall, process_time() - self._cpu


def rss_bytes() -> int:
    """Memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def newest(meters: list[Meter]) -> Callable[[int], None]:
    """Count into whichever meter is the last one by then."""

    def add(count: int) -> None:
        meters[-1].add(count)

    return add
