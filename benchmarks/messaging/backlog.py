"""A user who was away, and what users cost while they are idle or only connected."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.messaging.rig import TEXT, Meter, Stopwatch, connect, create_users, rig, rss_bytes, senders, settings
from benchmarks.queue.section import Section, below
from pixiu.im.draft import Actor
from pixiu.node.embedded import EmbeddedNode

BACKLOG = 10_000
ONLINE = 5_000
IDLE = 20_000


async def measure(folder: Path, *, rounds: int) -> Section:
    """Seconds to catch up; bytes per user."""
    section = Section("backlog", "A user who was away; memory per user", ["what", "measured"])
    times = [await _catch_up(folder) for _ in range(rounds)]
    online = await _online_bytes(folder)
    idle = await _idle_bytes(folder)
    section.rows = [
        [f"{BACKLOG:,} waiting messages, from login to the last ack", f"{median(times):.2f} s"],
        [f"per online user ({ONLINE:,} connected)", f"{online:,.0f} bytes"],
        [f"per idle user (a node of {IDLE:,} beside one of none, started anew)", f"{idle:,.0f} bytes"],
    ]
    section.checks = [
        below("catching up with 10,000", median(times), 1, " s"),
        below("per online user", online, 4096, " bytes"),
        below("per idle user", idle, 64, " bytes"),
    ]
    section.runs = [{"catch_up_s": times, "online_bytes": online, "idle_bytes": idle}]
    return section


async def _catch_up(folder: Path) -> float:
    async with rig(folder, settings()) as node:
        return await catch_up(node)


async def catch_up(node: EmbeddedNode) -> float:
    """Seconds from the login of somebody for whom much waits to the last ack."""
    numbers = await create_users(node, ["sender", "receiver"])
    accepted = Meter(BACKLOG)
    senders(node, _jobs(numbers[0]), accepted, 256)
    await accepted.done
    await node.host.applied()
    meter = Meter(BACKLOG)
    watch = Stopwatch()
    device = await connect(node, "receiver", meter.add)
    await meter.done
    while True:
        state = node.messaging.stores.inboxes.state(numbers[1], "web")
        if state is not None and node.messaging.cursors.of(state.floor) == device.last:
            return watch.read()[0]
        await asyncio.sleep(0.001)


def _jobs(sender: int) -> Iterator[tuple[Actor, str, dict[str, object]]]:
    for number in range(BACKLOG):
        yield Actor(sender), "send", {"to": "receiver", "text": TEXT, "send_id": str(number)}


async def _online_bytes(folder: Path) -> float:
    async with rig(folder, settings()) as node:
        names = [f"u{number}" for number in range(ONLINE)]
        await create_users(node, names)
        warm = [await connect(node, name, int) for name in names[:200]]
        gc.collect()
        tracemalloc.start()  # counts what is allocated: the process's own size also has what was freed before
        before, _ = tracemalloc.get_traced_memory()
        devices = [await connect(node, name, int) for name in names[200:]]
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(warm) + len(devices) == ONLINE
        return used / len(devices)


async def _idle_bytes(folder: Path) -> float:
    """What a node that has just been started takes more because it has users, per user."""
    with TemporaryDirectory(dir=folder) as empty, TemporaryDirectory(dir=folder) as full:
        async with EmbeddedNode(full, settings=settings()) as node:
            await create_users(node, [f"u{number}" for number in range(IDLE)])
        sizes = []
        for data in (empty, full, empty, full):
            async with EmbeddedNode(data, settings=settings()):
                gc.collect()
                sizes.append(rss_bytes())
        return max(sizes[3] - sizes[2], 0) / IDLE
