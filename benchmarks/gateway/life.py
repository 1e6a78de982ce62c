"""How soon does `pixiu serve` listen, and how big is it when nobody is there?"""

import time
from statistics import median

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.servers import PixiuServe
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, below


def measure(bench: Bench) -> Section:
    """Start it a few times, each on an empty directory."""
    section = Section("life", "`pixiu serve`: start and idle memory", ["start ms", "idle RSS MB"])
    before = load_average()
    starts, sizes = [], []
    for _ in range(bench.rounds):
        with bench.running(PixiuServe) as server:
            time.sleep(1)
            starts.append(server.start_seconds)
            sizes.append(server.all_memory_mb())
    section.rows = [[f"{median(starts) * 1000:.0f}", f"{median(sizes):.1f}"]]
    section.runs = [{"start_seconds": start, "rss_mb": size} for start, size in zip(starts, sizes, strict=True)]
    section.checks = [
        below("start to ready", median(starts), 2, " s"),
        below("idle RSS", median(sizes), 120, " MB"),
    ]
    section.notes.append(f"Load average before: {before:.2f}.")
    return section
