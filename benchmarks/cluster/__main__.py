"""``make bench-cluster``: three replicas, durable, beside JetStream R3; and how long a leader's end is felt."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cluster.servers import JetStreamThree, PixiuThree
from benchmarks.queue import generator
from benchmarks.queue.servers import ServerError
from pixiu.model.errors import PixiuError
from pixiu.queue.client import BlockingClient

if TYPE_CHECKING:
    from benchmarks.queue.generator import Load

CONNECTIONS = 256
BYTES = 200
RATE_MIN = 10_000
P99_MS_MAX = 100
RATIO_MIN = 2.0
RESUME_SECONDS_MAX = 3.0
WRITERS = 8


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of some processes so far."""
    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def publish(kind: type[PixiuThree] | type[JetStreamThree], folder: Path, seconds: float) -> tuple[Load, float]:
    """One round: what the generator saw, and the CPU seconds of all replicas."""
    with kind(folder) as server:
        before = cpu_seconds(server.pids)
        load = generator.run(
            server.protocol, server.port, seconds=seconds, warmup=1.0, connections=CONNECTIONS, in_flight=1,
            bytes=BYTES, topic=server.topic,
        )  # fmt: skip
        return load, cpu_seconds(server.pids) - before


def failover(folder: Path, action: str) -> float:
    """The longest time without an accepted write when the leader is killed or frozen under load."""
    times: list[float] = []
    is_over = threading.Event()

    def write(client: BlockingClient, writer: int) -> None:
        number = 0
        while not is_over.is_set():
            client.append("bench-0", f"{writer} {number}", key=f"{writer} {number}")
            times.append(time.monotonic())
            number += 1

    with PixiuThree(folder) as server, BlockingClient(server.registry, patience_s=20) as client:
        threads = [threading.Thread(target=write, args=(client, writer)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        leader = next(row["name"] for row in server.queues() if "leads" in row["detail"])
        server.ask(action, leader)
        time.sleep(6)
        is_over.set()
        for thread in threads:
            thread.join()
    times.sort()
    return max(after - before for before, after in pairwise(times))


def main() -> int:
    """Run, print, say whether the targets were met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="counted seconds of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("publish", "failover"), default=("publish", "failover"))
    parser.add_argument("--json", type=Path, help="write everything here")
    options = parser.parse_args()
    found: dict[str, object] = {"load_average": os.getloadavg()[0]}
    failed = []
    with tempfile.TemporaryDirectory(dir=generator.build_directory()) as scratch:
        root = Path(scratch)
        if "publish" in options.only:
            failed += _publish(root, options.rounds, options.seconds, found)
        if "failover" in options.only:
            for action in ("kill", "freeze"):
                seconds = failover(root / action, action)
                found[action] = seconds
                print(f"{action} of the leader: writes resume after {seconds:.2f} s (target < {RESUME_SECONDS_MAX:g})")
                failed += [action] if seconds >= RESUME_SECONDS_MAX else []
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("targets met" if not failed else f"not met: {', '.join(failed)}")
    return 1 if failed else 0


def _publish(root: Path, rounds: int, seconds: float, found: dict[str, object]) -> list[str]:
    kinds = (PixiuThree, JetStreamThree)
    runs: dict[str, list[Load]] = {kind.product: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds:  # interleaved: a slow minute of the machine hits both
            load, cpu = publish(kind, root / f"{kind.protocol}-{number}", seconds)
            runs[kind.product].append(load)
            print(
                f"{kind.product:<22} {load.per_second:>9,.0f}/s  p50 {load.p50_us / 1000:6.1f} ms  "
                f"p99 {load.p99_us / 1000:6.1f} ms  {cpu / max(load.acked_total, 1) * 1e6:6.1f} us of CPU per message"
                f"{'  FAULTS ' + load.first_error if load.faults else ''}",
                flush=True,
            )
    found["publish"] = {name: [load.as_json() for load in loads] for name, loads in runs.items()}
    ours, theirs = (median(load.per_second for load in runs[kind.product]) for kind in kinds)
    p99_ms = median(load.p99_us for load in runs[PixiuThree.product]) / 1000
    print(f"{ours:,.0f}/s (target {RATE_MIN:,}), p99 {p99_ms:.1f} ms (target < {P99_MS_MAX}), "
          f"{ours / theirs:.2f} x JetStream R3 (target {RATIO_MIN:g})")  # fmt: skip
    checks = {"rate": ours >= RATE_MIN, "p99": p99_ms < P99_MS_MAX, "ratio": ours >= RATIO_MIN * theirs}
    checks["faults"] = not any(load.faults for load in runs[PixiuThree.product])
    return [name for name, is_met in checks.items() if not is_met]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PixiuError, ServerError) as error:
        sys.exit(f"bench-cluster: {error}")
