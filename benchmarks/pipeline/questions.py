"""The questions: what the source, the archive, the marts and the audit cost, beside Spark's Parquet and DuckDB."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.pipeline.bench import COLUMNS, Bench, Cost
from benchmarks.queue.section import Check, Section, below
from benchmarks.queue.servers import ServerError
from pixiu.pipeline.checker import check_audit
from pixiu.pipeline.lake.intake import Target, take_in
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MART_SCHEMAS, ORDER
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.runtime.datadir import DataDirectory

__all__ = ["QUESTIONS"]

SCAN_RATIO, HEADER_RATIO, COPY_RATIO, HISTORY_RATIO = 1.3, 0.5, 1.2, 1.5
AUDIT_SECONDS, MEMORY_BYTES = 60, 3e9


def _at_most(what: str, measured: float, target: float) -> Check:
    return Check(what, f"≤ {target:.1f} x", f"{measured:.2f} x", measured <= target)


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _records(bench: Bench) -> str:
    """The records of the log as Parquet, written by Spark once."""
    path = bench.root / "records.parquet"
    if not path.exists():
        bench.spark.read.format("pixiu").load(str(bench.data)).write.parquet(str(path))
    return str(path)


def source(bench: Bench) -> Section:
    """Reading alone."""
    section = Section("source", "Source, read and thrown away (noop)", COLUMNS)
    scan = bench.spark.read.parquet(_records(bench))
    rows = scan.count()
    costs: dict[str, Cost] = {"Spark's Parquet scan": bench.measure(rows, partial(_noop, scan))}
    for name, columns in (("source, all columns", "full"), ("source, header", "header"), ("messages", "messages")):
        frame = bench.spark.read.format("pixiu").option("columns", columns).load(str(bench.data))
        costs[name] = bench.measure(rows, partial(_noop, frame))
    section.rows = [cost.row(name) for name, cost in costs.items()]
    full = costs["source, all columns"].cpu
    section.checks = [
        _at_most("source, all columns / Parquet scan, CPU", full / costs["Spark's Parquet scan"].cpu, SCAN_RATIO),
        _at_most("source, header / all columns, CPU", costs["source, header"].cpu / full, HEADER_RATIO),
    ]
    return section


def archive(bench: Bench) -> Section:
    """The log into three tables, exactly once."""
    section = Section("archive", "Archive: the log into three sorted tables", COLUMNS)
    records, copy = _records(bench), str(bench.root / "copy.parquet")
    rows = bench.spark.read.parquet(records).count()
    copied = bench.measure(rows, lambda: bench.spark.read.parquet(records).write.mode("overwrite").parquet(copy))

    def fill(name: str, through: int) -> None:
        with bench.pipeline(bench.another(name)) as pipeline:
            pipeline.run(["archive"], through=through)

    with bench.watched() as peak:
        archived = bench.measure(rows, lambda: fill("archive", bench.end), warm=lambda: fill("warm", bench.end // 10))
    alone = bench.measure(rows, lambda: _tasks_alone(bench, bench.end), warm=lambda: _tasks_alone(bench, 20_000))
    messages = bench.root / "archive" / "pipeline" / "lake" / "messages" / "data"
    duck = bench.measure(rows, lambda: _duckdb_sorts(messages, bench.root / "duck.parquet"))
    section.rows = [
        copied.row("Spark, Parquet → Parquet, as it is"), archived.row("Pixiu on Spark, log → archive"),
        alone.row("the same tasks in one process, no Spark"),
        duck.row("DuckDB, Parquet of messages → sorted Parquet"),
    ]  # fmt: skip
    section.notes.append(
        f"Peak memory of driver and executors: {peak.bytes / 1e9:.2f} GB. DuckDB cannot read the log; it gets the "
        "messages as Parquet, taken apart already, and has to sort and write them. Where one machine is enough, it is "
        "the cheaper tool; Spark is here for batches that are bounded, repeated and spread over machines."
    )
    section.checks = [
        _at_most("archive / Parquet copy, CPU", archived.cpu / copied.cpu, COPY_RATIO),
        below("peak memory, driver and executors", peak.bytes / 1e9, MEMORY_BYTES / 1e9, " GB"),
    ]
    return section


def _tasks_alone(bench: Bench, through: int) -> None:
    targets = {name: Target(str(bench.root / "alone" / f"{name}-{time.time_ns()}"), 0) for name in LAKE_SCHEMAS}
    for part in JournalFolder(bench.data).plan(0, through):
        for _ in take_in(part, targets):
            pass


def _duckdb_sorts(files: Path, to: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute("SET memory_limit = '2GB'")
        connection.execute(
            f"COPY (SELECT * FROM read_parquet('{files}/*/*.parquet') ORDER BY {', '.join(ORDER['messages'])}) "
            f"TO '{to}' (FORMAT parquet, COMPRESSION zstd)"
        )


def marts(bench: Bench) -> Section:
    """A minute's new data, behind a little history and behind ten times as much."""
    section = Section("marts", "Marts: one more minute", ["history", "events before", "new events", *MART_SCHEMAS])
    costs: dict[str, dict[str, Cost]] = {}
    for name, share in (("1x", 10), ("10x", 1)):
        before = (bench.end - bench.news) // share
        with bench.pipeline(bench.another(f"marts-{name}")) as pipeline:
            pipeline.run(["archive", *MART_SCHEMAS], through=before)
            pipeline.run(["archive"], through=before + bench.news)
            costs[name] = {
                mart: bench.measure(bench.news, partial(pipeline.run, [mart]), warm=lambda: None)
                for mart in MART_SCHEMAS
            }
        cells = [f"{cost.cpu:.2f} CPU s, {cost.wall:.2f} s" for cost in costs[name].values()]
        section.rows.append([name, f"{before:,}", f"{bench.news:,}", *cells])
    small, large = (sum(cost.cpu for cost in costs[name].values()) for name in ("1x", "10x"))
    section.checks = [_at_most("all marts at 10x / at 1x, CPU", large / small, HISTORY_RATIO)]
    return section


def audit(bench: Bench) -> Section:
    """The books of every inbox, from the archive."""
    section = Section("audit", "Audit: every entry of every inbox", COLUMNS)
    data = bench.another("audit")
    with DataDirectory.open(data), bench.watched() as peak, bench.pipeline(data) as pipeline:
        pipeline.run(["archive"], through=bench.end)
        made = bench.measure(bench.rows, lambda: pipeline.run(["audit"]), warm=lambda: None)
        end = pipeline.held_through()
    answers: list[dict[str, Any]] = []
    duck = bench.measure(bench.rows, lambda: answers.append(check_audit(data, end)), warm=lambda: None)
    section.rows = [made.row("Spark"), duck.row("DuckDB, the counts alone")]
    section.notes.append(
        f"{answers[0]['intended']:,} entries of {answers[0]['accepted']:,} messages. Peak memory "
        f"{peak.bytes / 1e9:.2f} GB. DuckDB's is the checker's query: no hours, no reordering, no findings."
    )
    section.checks = [below("audit, wall", made.wall, AUDIT_SECONDS, " s")]
    return section


def cluster(bench: Bench) -> Section:
    """The same archive by one executor process and by two."""
    section = Section("cluster", "Archive on a local cluster: workers with one core each", ["workers", "seconds", "x"])
    seconds = [_on_executors(bench, count) for count in (1, 2)]
    section.rows = [[str(number + 1), f"{took:.1f}", f"{seconds[0] / took:.2f}"] for number, took in enumerate(seconds)]
    section.notes.append(
        f"From the first batch to the last, sessions not counted. The machine has {os.cpu_count()} cores; driver and "
        "executors share them."
    )
    return section


def _on_executors(bench: Bench, count: int) -> float:
    data = bench.another(f"cluster-{count}")
    command = [sys.executable, "-m", "pixiu", "pipeline", "run", "archive", "--once", "--json", "--data", str(data)]
    done = subprocess.run(
        [*command, "--master", f"local-cluster[{count},1,1024]"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServerError(f"the run on {count} workers failed: {done.stderr[-500:]}")
    batches: dict[int, float] = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if "table" in told:
            batches[told["through"]] = max(batches.get(told["through"], 0.0), told["seconds"])
    return sum(batches.values())


QUESTIONS = {"source": source, "archive": archive, "marts": marts, "audit": audit, "cluster": cluster}
