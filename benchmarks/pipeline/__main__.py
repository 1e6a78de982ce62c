"""Source and archive beside Spark's own Parquet scan of the same rows: CPU seconds per million rows, and wall time.

::

    python -m benchmarks.pipeline [--rows 5000000] [--data DIR] [--keep]

CPU counts the Java process and every Python process that it started. On a busy machine trust it more than the wall.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pipeline.logs import make_log
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.session import open_session

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU of this process and everything below it, the dead that were waited for included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= more
        grown = bool(more)
    return sum(ticks[pid] for pid in ours if pid in ticks) / TICKS


def measure(name: str, rows: int, work: Callable[[], Any]) -> float:
    """Run it twice; the second time counts."""
    work()
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    print(f"{name:40} {cpu * 1e6 / rows:7.2f} cpu-s/M {rows / wall / 1000:9.0f} K rows/s", flush=True)
    return cpu


def main() -> None:
    """Make the log, run everything, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    data = options.data or Path(tempfile.mkdtemp(prefix="pixiu-bench-")) / "data"
    print(f"load average {os.getloadavg()[0]:.1f}; making {options.rows} records")
    make_log(data, options.rows)
    spark = open_session(data / "pipeline" / "work", spark_url="local[2]", memory="2g")
    rows = options.rows

    def source(columns: str) -> Any:
        return spark.read.format("pixiu").option("columns", columns).load(str(data))

    def noop(frame: Any) -> Any:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    scan, copy = str(data / "scan.parquet"), str(data / "copy.parquet")
    source("full").write.mode("overwrite").parquet(scan)
    parquet = measure("Parquet scan -> noop", rows, noop(spark.read.parquet(scan)))
    full = measure("source full -> noop", rows, noop(source("full")))
    header = measure("source header -> noop", rows, noop(source("header")))
    measure("source messages -> noop", rows, noop(source("messages")))
    copied = measure("Parquet -> Parquet", rows, lambda: spark.read.parquet(scan).write.mode("overwrite").parquet(copy))

    def archive() -> None:
        for name in ("lake", "checkpoints"):
            shutil.rmtree(data / "pipeline" / name, ignore_errors=True)
        with Pipeline(data, lambda: spark) as pipeline:
            pipeline.run(["archive"])

    archived = measure("source -> archive (three tables)", rows, archive)
    print(f"full / Parquet scan {full / parquet:.2f}, header / full {header / full:.2f}")
    print(f"archive / Parquet copy {archived / copied:.2f}")
    spark.stop()
    if not options.keep and options.data is None:
        shutil.rmtree(data.parent)


if __name__ == "__main__":
    main()
