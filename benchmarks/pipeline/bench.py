"""What every question of the pipeline's benchmark needs: a log, a session, a clock, the memory of a process tree."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any, Self

from pyspark import SparkContext
from rich.console import Console

from benchmarks.pipeline.logs import make_log
from pixiu.model.errors import Unavailable
from pixiu.pipeline.lake.feed import Progress
from pixiu.pipeline.lake.schema import MARTS
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.session import open_session
from pixiu.pipeline.source.journal import JournalFolder

__all__ = ["COLUMNS", "ROUNDS", "Bench", "Cost", "Lake"]

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.5
SAY_SECONDS = 15
JAVA_ENDS_SECONDS = 30
NO_STORES = "has a log and no stores"
ROUNDS = 3
MINUTES = 250
"""How long the history is, by the log's own clock."""
COLUMNS = ["job", "rows", "CPU s per million", "wall s", "K rows/s", "load before"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What some work took."""

    rows: int
    cpu: float
    wall: float
    load: float

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds per million rows: the number to trust on a busy machine."""
        return self.cpu * 1e6 / self.rows

    @classmethod
    def middle(cls, costs: Sequence[Self]) -> Self:
        """The medians of some rounds."""
        cpu, wall, load = (median(getattr(cost, name) for cost in costs) for name in ("cpu", "wall", "load"))
        return cls(costs[0].rows, cpu, wall, load)

    def row(self, name: str) -> list[str]:
        """As a line of a table."""
        rate = f"{self.rows / self.wall / 1000:,.0f}"
        return [name, f"{self.rows:,}", f"{self.cpu_per_million:.2f}", f"{self.wall:.1f}", rate, f"{self.load:.1f}"]


@dataclass(slots=True)
class Tree:
    """This process and everything below it."""

    watching: float = 0.0
    """CPU seconds of looking at memory: they are nobody's work."""

    def pids(self) -> list[int]:
        """All of them, now."""
        return list(_tree())

    def cpu_seconds(self) -> float:
        """CPU of all, the dead that were waited for included."""
        return sum(_tree().values()) / TICKS - self.watching

    def memory_bytes(self) -> int:
        """What all of them hold; pages that several share count once."""
        total = 0
        for pid in self.pids():
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
        return total


def _no_cut(data: Path) -> Any:
    raise Unavailable(f"{data} {NO_STORES}")


def _tree() -> dict[int, int]:
    """Ticks by process id."""
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
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: ticks.get(pid, 0) for pid in ours}


@dataclass(slots=True)
class Peak:
    """The most memory that was seen."""

    bytes: int = 0


@dataclass(slots=True)
class Lake:
    """A data directory with a lake through some event, and what it took to make that."""

    data: Path
    through: int
    archived: Cost
    peak: Peak
    audited: Cost | None = None
    """Set with the first audit."""


@dataclass
class Bench:
    """One run."""

    root: Path
    console: Console
    rows: int
    is_quick: bool = False
    log: Path | None = None
    tree: Tree = field(default_factory=Tree)

    began: float = field(default_factory=time.monotonic)

    @property
    def news(self) -> int:
        """Events of a minute: so many come on top of the history."""
        return max(256, self.rows // MINUTES)

    def say(self, text: str) -> None:
        """One line, with the time since the run began: it is seen to go on."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        self.console.print(f"  {minutes:2d}:{seconds:02d}  {text}", highlight=False, markup=False)

    @cached_property
    def data(self) -> Path:
        """A data directory with the log: so many messages, and a minute's more."""
        path, count = self.log or self.root / "data", self.rows + self.news
        began = told = time.perf_counter()
        self.say(f"a log of {count:,} messages …")

        def tell(made: int) -> None:
            nonlocal told
            if time.perf_counter() - told >= SAY_SECONDS:
                told = time.perf_counter()
                self.say(f"a log of {count:,} messages: {made:,} are written")

        make_log(path, count, self.news, tell)
        self.say(f"a log of {count:,} messages: {time.perf_counter() - began:.1f} s")
        return path

    @cached_property
    def end(self) -> int:
        """The log's last event."""
        return JournalFolder(self.data).end().event_id

    @cached_property
    def spark(self) -> Any:
        """The session that all questions share, but those that are about sessions."""
        return open_session(self.root / "work", spark_url="local[2]")

    @cached_property
    def lake(self) -> Lake:
        """The archive of all but the last minute. Questions share it, and the first that asks pays."""
        return self._filled("lake", self.end - self.news)

    @cached_property
    def small_lake(self) -> Lake:
        """The archive of a tenth of that."""
        return self._filled("small-lake", (self.end - self.news) // 10)

    def _filled(self, name: str, through: int) -> Lake:
        """Twice: in the session that its peer was measured in, for CPU; in a Java process of its own, for memory."""
        cost = self.measure(f"archive through event {through:,}", through, lambda: self.fill(name, through))
        self.close()
        self.say("the same in a new Java process, for its memory …")
        with self.watched() as peak:
            self.fill(name, through)
        return Lake(self.root / name, through, cost, peak)

    def fill(self, name: str, through: int) -> None:
        """A new lake of this name."""
        with self.pipeline(self.another(name)) as pipeline:
            pipeline.run(["archive"], through=through)

    def audit(self, lake: Lake) -> Cost:
        """The first audit of a lake."""
        if lake.audited is None:
            with self.watched() as peak, self.pipeline(lake.data) as pipeline:
                lake.audited = self.measure(
                    f"first audit through event {lake.through:,}",
                    lake.through,
                    lambda: pipeline.run(["audit"]),
                    warm=False,
                )
            lake.peak.bytes = max(lake.peak.bytes, peak.bytes)
        return lake.audited

    def another(self, name: str, segments: int | None = None) -> Path:
        """The same log in a data directory of its own, so with a lake of its own; or its first segments alone."""
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        journal = path / "queue" / "journal"
        journal.mkdir(parents=True)
        for log in sorted((self.data.resolve() / "queue" / "journal").glob("*.log"))[:segments]:
            for file in (log, log.with_suffix(".idx")):
                (journal / file.name).symlink_to(file)
        return path

    def pipeline(self, data: Path) -> Pipeline:
        """The pipeline of a data directory, in the shared session. No stores belong to the log: nobody is asked."""
        return Pipeline(data, lambda: self.spark, take_cut=_no_cut, tell=self._told, warn=self._warned)

    def _warned(self, text: str) -> None:
        if NO_STORES not in text:
            self.say(f"warning: {text}")

    def _told(self, progress: Progress) -> None:
        if progress.table == "messages":
            self.say(f"  archived through event {progress.through:,} of {progress.end:,}")

    def measure(self, name: str, rows: int, work: Callable[[], Any], *, warm: Callable[[], Any] | bool = True) -> Cost:
        """Warm up with ``warm``, or with the work itself (True), or not; then measure it once, and say what it took.

        DuckDB works in this process: those of Spark that end meanwhile take nothing off its time.
        """
        if warm is not False:
            self.say(f"{name}: warming up …")
            (work if warm is True else warm)()
        self.say(f"{name} …")
        load = os.getloadavg()[0]
        cpu_seconds = time.process_time if name.startswith("DuckDB") else self.tree.cpu_seconds
        cpu, wall = cpu_seconds(), time.perf_counter()
        work()
        cost = Cost(rows, cpu_seconds() - cpu, time.perf_counter() - wall, load)
        self.say(f"{name}: {cost.cpu:.1f} CPU s, {cost.wall:.1f} s, {cost.cpu_per_million:.2f} CPU s per million")
        return cost

    def rounds(self, rows: int, jobs: Mapping[str, Callable[[], Any]]) -> dict[str, list[Cost]]:
        """Jobs that are compared with each other, each warmed up first, then round by round in turn."""
        for name, work in jobs.items():
            self.say(f"{name}: warming up …")
            work()
        costs: dict[str, list[Cost]] = {name: [] for name in jobs}
        for _ in range(ROUNDS):
            for name, work in jobs.items():
                costs[name].append(self.measure(name, rows, work, warm=False))
        return costs

    @contextmanager
    def watched(self) -> Iterator[Peak]:
        """The most memory that this process and those below it hold meanwhile."""
        peak, stopped = Peak(), threading.Event()

        def watch() -> None:
            before = self.tree.watching
            while not stopped.wait(SAMPLE_SECONDS):
                peak.bytes = max(peak.bytes, self.tree.memory_bytes())
                self.tree.watching = before + time.thread_time()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            stopped.set()
            thread.join()

    def marts(self, pipeline: Pipeline) -> dict[str, Cost]:
        """What one more minute costs each job that reads the archive, and which files of it are read."""
        return {
            job: self.measure(f"{job}, one more minute", self.news, partial(pipeline.run, [job]), warm=False)
            for job in (*MARTS, "audit")
        }

    def close(self) -> None:
        """End the session, if one was opened, and its Java process; who asks for one later gets another."""
        session = self.__dict__.pop("spark", None)
        if session is not None:
            session.stop()
            gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
            if gateway is not None:
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait(JAVA_ENDS_SECONDS)
