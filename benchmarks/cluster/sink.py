"""Brokers that only count: ``python -m benchmarks.cluster.sink zk://… PARTITIONS``.

What is behind the proxies when only proxies are measured. It registers as one broker for each partition, answers
heartbeats, counts what it gets, and says every second how much that was.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import uvloop

from pixiu.config import Settings
from pixiu.links.member import Member, ensure_count
from pixiu.machines.view import PeerState
from pixiu.node.processes.cluster_end import ClusterEnd, secrets_of

if TYPE_CHECKING:
    from typing import Any


class _Sink:
    def __init__(self, end: ClusterEnd, partition: int) -> None:
        self.end = end
        self.received = 0
        end.endpoint.on_talks(self._talks)
        end.endpoint.state = PeerState.RUNNING
        self.member = Member(
            end.registry,
            end.scheduler,
            end.root,
            role="broker",
            partition=partition,
            boot=end.boot,
            address=end.address,
        )
        self.member.state = PeerState.RUNNING

    def _talks(self, talks: list[tuple[int, Any]]) -> None:
        self.received += len(talks)


async def _run(registry: str, partitions: int) -> None:
    sinks = []
    for partition in range(partitions):
        end = await ClusterEnd.open(registry, secrets_of("", "127.0.0.1"), Settings().links)
        sink = _Sink(end, partition)
        counted = asyncio.Event()
        ensure_count(end.registry, end.scheduler, end.root, "broker", partitions, counted.set)
        await counted.wait()
        sink.member.register()
        end.directory.start()
        sinks.append(sink)
    print(json.dumps({"ready": True}), flush=True)
    while True:
        await asyncio.sleep(1)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2])))
