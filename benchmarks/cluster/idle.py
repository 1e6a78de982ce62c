"""What a whole cluster costs while no client is connected: CPU time of all processes, and their memory."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from benchmarks.cluster.roles import used
from benchmarks.cluster.whole import ZOOKEEPER, cluster_file, cpu_by_role, resident_mb
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, at_most, whole

if TYPE_CHECKING:
    from benchmarks.cluster.bench import Bench

__all__ = ["measure"]

PIXIU_PERCENT_MAX = 8.0
ZOOKEEPER_PERCENT_MAX = 3.0
MEMORY_MB_MAX = 650.0
ALL = "all Pixiu processes"


def measure(bench: Bench) -> Section:
    """Once, after the cluster has settled."""
    amounts = bench.amounts
    section = Section(
        "idle",
        f"An idle cluster, {amounts.idle_seconds:g} s",
        ["role", "processes", "CPU, % of a core", "RSS MB", "PSS MB"],
    )
    with bench.cluster("idle", cluster_file()) as cluster:
        processes = cluster.processes()
        time.sleep(amounts.settle_seconds)
        average = load_average()
        before, began = cpu_by_role(processes), time.monotonic()
        time.sleep(amounts.idle_seconds)
        spent = used(before, cpu_by_role(processes))
        seconds = time.monotonic() - began
        memory = {pid: resident_mb(pid) for pid in processes}
    rss: dict[str, float] = defaultdict(float)
    pss: dict[str, float] = defaultdict(float)
    for pid, role in processes.items():
        rss[role] += memory[pid][0]
        pss[role] += memory[pid][1]
    counts: dict[str, float] = defaultdict(float, Counter(processes.values()))
    percent = {role: cpu / seconds * 100 for role, cpu in spent.items()}
    for by_role in (counts, percent, rss, pss):
        by_role[ALL] = sum(value for role, value in by_role.items() if role != ZOOKEEPER)
    order = [ALL, ZOOKEEPER, *(role for role in percent if role not in (ALL, ZOOKEEPER))]
    section.rows = [
        [role, whole(counts[role]), f"{percent[role]:.1f}", f"{rss[role]:.0f}", f"{pss[role]:.0f}"] for role in order
    ]
    section.checks = [
        at_most("CPU of all Pixiu processes", percent[ALL], PIXIU_PERCENT_MAX, " % of a core"),
        at_most("CPU of ZooKeeper", percent[ZOOKEEPER], ZOOKEEPER_PERCENT_MAX, " % of a core"),
        at_most("memory of all Pixiu processes, RSS", rss[ALL], MEMORY_MB_MAX, " MB"),
    ]
    section.notes = [
        f"Load average before: {average:.2f}. Measured {amounts.settle_seconds:g} s after all replicas were in sync.",
        "RSS counts pages that processes share once for each of them; PSS divides them. MB of 1,000,000 bytes.",
    ]
    section.runs = [
        {
            "role": role,
            "processes": counts[role],
            "cpu_percent": percent[role],
            "rss_mb": rss[role],
            "pss_mb": pss[role],
        }
        for role in order
    ]
    return section
