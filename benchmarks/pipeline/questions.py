"""The questions: what the source, the archive, the marts and the audit cost, beside Spark's Parquet and DuckDB."""

import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.pipeline.bench import COLUMNS, ROUNDS, Bench, Cost
from benchmarks.queue.section import Check, Section, below
from benchmarks.queue.servers import ServerError
from pixiu.pipeline.checker import check_audit
from pixiu.pipeline.lake.intake import Target, take_in
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MARTS, ORDER
from pixiu.pipeline.source.journal import JournalFolder

__all__ = ["QUESTIONS"]

SCAN_RATIO, HEADER_RATIO, COPY_RATIO, HISTORY_RATIO = 1.3, 0.5, 1.2, 1.5
AUDIT_SECONDS, MEMORY_BYTES = 60, 3e9
TASKS_ALONE = 1_000_000
"""Events of the question what tasks cost without Spark: more of them say nothing new."""
CLUSTER_SEGMENTS = 2
CLUSTER_SECONDS = 300


def _at_most(what: str, measured: float, target: float) -> Check:
    return Check(what, f"≤ {target:.1f} x", f"{measured:.2f} x", measured <= target)


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _ratio_check(what: str, ours: list[Cost], theirs: list[Cost], target: float) -> Check:
    """Ours over theirs in CPU, by medians; those of single rounds are shown."""
    ratio = Cost.middle(ours).cpu / Cost.middle(theirs).cpu
    single = [mine.cpu / other.cpu for mine, other in zip(ours, theirs, strict=True)]
    measured = f"{ratio:.2f} x (rounds {min(single):.2f} – {max(single):.2f})"
    return Check(what, f"≤ {target:.1f} x", measured, ratio <= target)


def _records(bench: Bench) -> str:
    """The records of the log as Parquet, written by Spark once."""
    path = bench.root / "records.parquet"
    if not (path / "_SUCCESS").exists():
        data = str(bench.data)
        bench.say("the same records as Parquet …")
        bench.spark.read.format("pixiu").load(data).write.mode("overwrite").parquet(str(path))
    return str(path)


def _duckdb(bench: Bench, question: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute("SET memory_limit = '2GB'")
        connection.execute(f"SET temp_directory = '{bench.root / 'spilled'}'")
        connection.execute(question)


def source(bench: Bench) -> Section:
    """Reading alone."""
    section = Section("source", "Source, read and thrown away (noop)", COLUMNS)
    records = _records(bench)
    scan = bench.spark.read.parquet(records)
    rows = scan.count()
    scanned, full, header = "Spark's scan of the same rows as Parquet", "source, all columns", "source, header"
    jobs = {scanned: partial(_noop, scan)}
    for name, columns in ((full, "full"), (header, "header"), ("source, the table messages", "messages")):
        frame = bench.spark.read.format("pixiu").option("columns", columns).load(str(bench.data))
        jobs[name] = partial(_noop, frame)
    looked = ", ".join(f"max({name})" for name in scan.columns)
    jobs["DuckDB, every column of the same Parquet looked at"] = partial(
        _duckdb, bench, f"SELECT {looked} FROM read_parquet('{records}/*.parquet')"
    )
    costs = bench.rounds(rows, jobs)
    section.rows = [Cost.middle(each).row(name) for name, each in costs.items()]
    section.notes.append(f"Medians of {ROUNDS} rounds, in turn, after one to warm up.")
    section.checks = [
        _ratio_check("source, all columns / Parquet scan, CPU", costs[full], costs[scanned], SCAN_RATIO),
        _ratio_check("source, header / all columns, CPU", costs[header], costs[full], HEADER_RATIO),
    ]
    return section


def archive(bench: Bench) -> Section:
    """The log into its tables, exactly once."""
    section = Section("archive", "Archive: the log into sorted tables", COLUMNS)
    records, copy = _records(bench), str(bench.root / "copy.parquet")
    rows = bench.spark.read.parquet(records).count()
    copied = bench.measure(
        "Spark, Parquet → Parquet", rows,
        lambda: bench.spark.read.parquet(records).write.mode("overwrite").parquet(copy),
    )  # fmt: skip
    shutil.rmtree(copy, ignore_errors=True)
    lake = bench.lake
    part = min(bench.end, TASKS_ALONE)
    alone = bench.measure(
        "tasks alone", part, lambda: _tasks_alone(bench, part), warm=lambda: _tasks_alone(bench, 20_000)
    )
    duck_copied = bench.measure(
        "DuckDB, Parquet → Parquet", rows,
        lambda: _duckdb(bench, _copy(f"read_parquet('{records}/*.parquet')", bench.root / "duck.parquet")), warm=False,
    )  # fmt: skip
    messages = lake.data / "pipeline" / "lake" / "messages" / "data"
    sorted_messages = f"read_parquet('{messages}/*/*.parquet') ORDER BY {', '.join(ORDER['messages'])}"
    duck = bench.measure(
        "DuckDB sorts", rows, lambda: _duckdb(bench, _copy(sorted_messages, bench.root / "duck.parquet")), warm=False
    )
    section.rows = [
        copied.row("Spark, Parquet → Parquet, as it is"), lake.archived.row("Pixiu on Spark, log → archive"),
        alone.row("the same tasks in one process, no Spark"),
        duck_copied.row("DuckDB, Parquet → Parquet, as it is"),
        duck.row("DuckDB, Parquet of messages → sorted Parquet"),
    ]  # fmt: skip
    section.notes.append(
        f"Peak memory of driver and executors: {lake.peak.bytes / 1e9:.2f} GB. DuckDB cannot read the log; it gets the "
        "messages as Parquet, taken apart already, and has to sort and write them. Where one machine is enough, it is "
        "the cheaper tool. Spark is here for what it has not: batches with a checkpoint that are taken up after a "
        "crash, the same code on many machines, and no bound on what fits into one."
    )
    section.checks = [
        _at_most("archive / Parquet copy, CPU", lake.archived.cpu_per_million / copied.cpu_per_million, COPY_RATIO),
        below("peak memory, driver and executors", lake.peak.bytes / 1e9, MEMORY_BYTES / 1e9, " GB"),
    ]
    return section


def _copy(rows: str, to: Path) -> str:
    return f"COPY (SELECT * FROM {rows}) TO '{to}' (FORMAT parquet, COMPRESSION zstd)"


def _tasks_alone(bench: Bench, through: int) -> None:
    pa.set_memory_pool(pa.system_memory_pool())  # as Spark's processes have it
    targets = {name: Target(str(bench.root / "alone" / f"{name}-{time.time_ns()}"), 0) for name in LAKE_SCHEMAS}
    for part in JournalFolder(bench.data).plan(0, through):
        for _ in take_in(part, targets):
            pass


def marts(bench: Bench) -> Section:
    """A minute's new data, behind a little history and behind ten times as much."""
    jobs = (*MARTS, "audit")
    section = Section("marts", "One more minute", ["history", "events before", "new events", *jobs, "rows read"])
    costs: dict[str, dict[str, Cost]] = {}
    rows: dict[str, int] = {}
    for name, lake in (("1x", bench.small_lake), ("10x", bench.lake)):
        bench.audit(lake)
        bench.say(f"history {name}: its marts …")
        bench.close()  # both histories find a session that has done nothing yet
        with bench.watched() as peak, bench.pipeline(lake.data) as pipeline:
            pipeline.run([*MARTS], through=lake.through)
            pipeline.run(["archive"], through=lake.through + bench.news)
        with bench.pipeline(lake.data) as pipeline:
            costs[name] = bench.marts(pipeline)
        rows[name] = sum(pipeline.rows_read.values())
        cells = [f"{cost.cpu:.2f} CPU s, {cost.wall:.2f} s" for cost in costs[name].values()]
        section.rows.append([name, f"{lake.through:,}", f"{bench.news:,}", *cells, f"{rows[name]:,}"])
    small, large = (sum(cost.cpu for cost in costs[name].values()) for name in ("1x", "10x"))
    section.notes.append("Rows read are those of all files of the archive that the four jobs have opened.")
    section.checks = [
        _at_most("all jobs at 10x / at 1x, CPU", large / small, HISTORY_RATIO),
        _at_most("all jobs at 10x / at 1x, rows read", rows["10x"] / rows["1x"], HISTORY_RATIO),
        below("peak memory while the marts of 10x were made", peak.bytes / 1e9, MEMORY_BYTES / 1e9, " GB"),
    ]
    return section


def audit(bench: Bench) -> Section:
    """The books of every inbox, from the archive."""
    section = Section("audit", "Audit: every entry of every inbox", COLUMNS)
    lake, small = bench.lake, bench.small_lake
    made = bench.audit(lake)
    answers: list[dict[str, Any]] = []
    duck = bench.measure(
        "DuckDB, a tenth", small.through, lambda: answers.append(check_audit(small.data, small.through)), warm=False
    )
    section.rows = [made.row("Spark, from nothing"), duck.row("DuckDB, the counts alone, of a tenth")]
    section.notes.append(
        f"The tenth has {answers[0]['intended']:,} entries of {answers[0]['accepted']:,} messages. Peak memory "
        f"{lake.peak.bytes / 1e9:.2f} GB. DuckDB's is the checker's query: no hours, no reordering, no findings, and "
        "every entry compared with every row of its inbox's ledger."
    )
    section.checks = [
        below("audit, wall", made.wall, AUDIT_SECONDS, " s"),
        below("peak memory, driver and executors", lake.peak.bytes / 1e9, MEMORY_BYTES / 1e9, " GB"),
    ]
    return section


def cluster(bench: Bench) -> Section:
    """The same archive by one executor process and by two."""
    section = Section("cluster", "Archive on a local cluster: workers with one core each", ["workers", "seconds", "x"])
    bench.close()  # these runs have sessions of their own
    seconds = [_on_executors(bench, count) for count in (1, 2)]
    section.rows = [[str(number + 1), f"{took:.1f}", f"{seconds[0] / took:.2f}"] for number, took in enumerate(seconds)]
    section.notes.append(
        f"The first {CLUSTER_SEGMENTS} segments, from the first batch to the last, sessions not counted. The machine "
        f"has {os.cpu_count()} cores; driver and "
        "executors share them."
    )
    return section


def _on_executors(bench: Bench, count: int) -> float:
    data = bench.another(f"cluster-{count}", segments=CLUSTER_SEGMENTS)
    command = [sys.executable, "-m", "pixiu", "pipeline", "run", "archive", "--once", "--json", "--data", str(data)]
    bench.say(f"{count} workers …")
    try:
        done = subprocess.run(
            [*command, "--master", f"local-cluster[{count},1,1024]"],
            capture_output=True, text=True, check=False, timeout=CLUSTER_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"the run on {count} workers did not end within {CLUSTER_SECONDS} s") from error
    if done.returncode:
        raise ServerError(f"the run on {count} workers failed: {done.stderr[-500:]}")
    batches: dict[int, float] = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if "table" in told:
            batches[told["through"]] = max(batches.get(told["through"], 0.0), told["seconds"])
    took = sum(batches.values())
    bench.say(f"{count} workers, {max(batches, default=0):,} events: {took:.1f} s")
    return took


QUESTIONS = {"source": source, "archive": archive, "audit": audit, "marts": marts, "cluster": cluster}
