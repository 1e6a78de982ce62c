"""The core benchmark's workloads on one mix of engines: accepted, delivered, stored, caught up with, read."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.messaging import backlog, private
from benchmarks.messaging.rig import Stopwatch, rig
from pixiu.im.draft import Actor
from pixiu.model.errors import PixiuError
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.engines.mixes import Engines, Mix
    from pixiu.node.embedded import EmbeddedNode

__all__ = ["Result", "measure"]

PAGE = 100
PAGES = backlog.BACKLOG // PAGE
UNANSWERED = 8
ALONE = 10
"""Sends that are made one at a time, each stored before the next."""
WARM_UP = 256
LANES = (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)


@dataclass(slots=True)
class Result:
    """One round of one mix."""

    accepted: float = 0.0
    delivered: float = 0.0
    stored: float = 0.0
    """Per second until every store had them, history included."""
    cpu_us: float = 0.0
    """CPU of this process per message delivered."""
    catch_up_s: float = 0.0
    pages: float = 0.0
    is_balanced: bool = False
    bulk: dict[str, float] = field(default_factory=dict)
    """Round trips per send, of many at a time."""
    alone: dict[str, float] = field(default_factory=dict)
    """The same, of sends that come one at a time."""

    def as_json(self) -> dict[str, object]:
        """Everything."""
        return asdict(self)


async def measure(folder: Path, engines: Engines, mix: Mix, count: int) -> Result:
    """All of it, on one node with data of its own."""
    found = Result()
    async with rig(folder, engines.settings_of(mix)) as node:
        numbers, seen = await private.people(node)
        await private.end_to_end(node, numbers, seen, WARM_UP, prefix="w")
        await _stored(node)
        before = _counts(node, engines, mix)
        watch = Stopwatch()
        found.delivered, per_cpu = await private.end_to_end(node, numbers, seen, count)
        found.cpu_us = 1e6 / per_cpu
        await _stored(node)
        found.stored = count / watch.read()[0]
        found.bulk = _per_send(before, _counts(node, engines, mix), count)
        found.accepted, _, _ = await private.burst(node, numbers, seen, UNANSWERED, count)
        await _stored(node)
        before = _counts(node, engines, mix)
        for number in range(ALONE):
            await node.send("s0", to="s1", text="x", send_id=f"alone{number}")
            await _stored(node)
        found.alone = _per_send(before, _counts(node, engines, mix), ALONE)
        found.catch_up_s = await backlog.catch_up(node)
        await _stored(node)
        found.pages = await _pages(node)
        found.is_balanced = bool((await node.audit())["balanced"])
    return found


async def _stored(node: EmbeddedNode) -> None:
    """Wait until every store has everything for good, with the commits that a node makes by itself."""
    end, stores = node.host.log.committed, node.host.stores
    await node.host.applied()
    while min(stores.applied(lane) for lane in LANES) < end:
        await asyncio.sleep(0.005)


async def _pages(node: EmbeddedNode) -> float:
    """Pages of a hundred messages per second, one after the other, from the newest back to the first."""
    actor = Actor(node.messaging.proxy.context.directory.user("receiver"))
    act = node.messaging.act
    loop = asyncio.get_running_loop()
    params: dict[str, object] = {"with": "sender", "limit": PAGE}
    read = 0
    began = perf_counter()
    for _ in range(PAGES):
        answered: asyncio.Future[Any] = loop.create_future()
        act(actor, "history", params, answered.set_result)
        page = await answered
        if isinstance(page, PixiuError):
            raise page
        read += len(page["messages"])
        params = {**params, "before": page["min"]}
    if read != backlog.BACKLOG:
        raise AssertionError(f"history shows {read} of {backlog.BACKLOG} messages")
    return PAGES / (perf_counter() - began)


def _counts(node: EmbeddedNode, engines: Engines, mix: Mix) -> dict[str, int]:
    """What was asked of others so far: as this side counts, and as the servers do."""
    found: dict[str, int] = {}
    if "redis" in mix.needs:
        found["Redis: round trips"] = node.host.redis_round_trips
        found["Redis: commits, by its own count"] = engines.function_calls()
    if mix.has_cassandra:
        link = next(part.link for part in getattr(node.host.stores, "parts", ()) if hasattr(part, "link"))
        found["Cassandra: logged batches"] = link.batches
        found["Cassandra: requests"] = link.requests
        found["Cassandra: requests, by its own count"] = engines.cassandra_requests()
    if "kafka" in mix.needs:
        found["Kafka: transactions"] = getattr(node.host.log, "counters").batches  # noqa: B009 - not of every log
    return found


def _per_send(before: dict[str, int], after: dict[str, int], sends: int) -> dict[str, float]:
    return {name: (after[name] - count) / sends for name, count in before.items()}
