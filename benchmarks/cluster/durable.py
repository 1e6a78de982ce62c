"""A shard with three replicas beside JetStream R3: rate, latency, CPU time of all replicas.

The messages are published to a topic of the shard's log, over smss; they are not sent to users.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cluster.roles import cpu_seconds
from benchmarks.cluster.servers import JetStreamThree, PixiuThree
from benchmarks.queue import generator
from benchmarks.queue.bench import faults_of, load_average
from benchmarks.queue.section import Section, at_least, below, milliseconds, ratio_check, spread, whole

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.cluster.bench import Bench
    from benchmarks.queue.generator import Load

__all__ = ["measure"]

CONNECTIONS = 256
BYTES = 200
RATE_MIN = 10_000
P99_MS_MAX = 100
RATIO_MIN = 2.2
KINDS = (PixiuThree, JetStreamThree)


def measure(bench: Bench) -> Section:
    """Interleaved rounds: a slow minute of the machine hits both."""
    columns = ["server", "messages/s", "rounds", "p50 ms", "p99 ms", "µs of CPU per message, all replicas"]
    title = (
        f"Publish to three replicas, on every in-sync disk before the answer: {CONNECTIONS} connections, {BYTES} bytes"
    )
    section = Section("publish", title, columns)
    loads: dict[str, list[Load]] = {kind.product: [] for kind in KINDS}
    costs: dict[str, list[float]] = {kind.product: [] for kind in KINDS}
    averages = []
    for number in range(1, bench.rounds + 1):
        averages.append(load_average())
        for kind in KINDS:
            load, cpu = _publish(kind, bench.directory(kind.protocol), bench.seconds, bench.warmup)
            loads[kind.product].append(load)
            costs[kind.product].append(cpu / max(load.acked_total, 1) * 1e6)
            section.runs.append({"server": kind.product, "round": number, "replicas_cpu": cpu, **load.as_json()})
            bench.say(
                f"  round {number}  {kind.product:<22} {load.per_second:>9,.0f}/s  p99 {load.p99_us / 1000:7.1f} ms  "
                f"{costs[kind.product][-1]:6.1f} µs of CPU per message"
            )
    for product, runs in loads.items():
        speeds = [load.per_second for load in runs]
        section.rows.append([
            product, whole(median(speeds)), spread(speeds), milliseconds(median(load.p50_us for load in runs)),
            milliseconds(median(load.p99_us for load in runs)), f"{median(costs[product]):.1f}",
        ])  # fmt: skip
    ours, theirs = ([load.per_second for load in loads[kind.product]] for kind in KINDS)
    section.checks = [
        at_least("messages/s", median(ours), RATE_MIN, "/s"),
        below("p99", median(load.p99_us for load in loads[PixiuThree.product]) / 1000, P99_MS_MAX, " ms"),
        ratio_check("Pixiu / JetStream, three replicas each", ours, theirs, RATIO_MIN),
        faults_of(loads[PixiuThree.product]),
    ]
    section.notes = [
        f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}.",
        (
            "Pixiu: `min_isr = 2`, acknowledged when every replica in sync has it on disk. JetStream: "
            "`num_replicas: 3`, `sync_interval: always`. ZooKeeper's CPU time is not counted; it has nothing to do "
            "with a message."
        ),
    ]
    return section


def _publish(
    kind: type[PixiuThree] | type[JetStreamThree], folder: Path, seconds: float, warmup: float
) -> tuple[Load, float]:
    """One round: what the generator saw, and the CPU seconds of all replicas, warm-up included."""
    with kind(folder) as server:
        before = sum(map(cpu_seconds, server.pids))
        load = generator.run(
            server.protocol, server.port, seconds=seconds, warmup=warmup, connections=CONNECTIONS, in_flight=1,
            bytes=BYTES, topic=server.topic,
        )  # fmt: skip
        return load, sum(map(cpu_seconds, server.pids)) - before
