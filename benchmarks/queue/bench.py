"""One run of the benchmarks: its options, its directory, its servers one at a time.

Only one server runs at any moment, each on an empty directory; when it is done its data is removed and the
disk is synced, so that nobody pays for the writes of the one before.
"""

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console

from benchmarks.queue.generator import SHARE_MAX, Load
from benchmarks.queue.section import Check, faults_check
from benchmarks.queue.servers import Server


class Run(Protocol):
    """What a generator has to say of one run, whatever it did."""

    @property
    def cpu_share(self) -> float: ...
    @property
    def faults(self) -> int: ...
    @property
    def first_error(self) -> str: ...


@dataclass(slots=True, kw_only=True)
class Place:
    """Where servers are measured, how long, and who is told."""

    root: Path
    console: Console
    rounds: int
    seconds: float
    warmup: float
    left_out: set[str] = field(default_factory=set)  # products that are not there or not wanted
    _directories: int = 0

    def directory(self, name: str) -> Path:
        """A directory that nobody used."""
        self._directories += 1
        return self.root / f"{self._directories:03d}-{name}"

    def remove(self, server: Server) -> None:
        """Stop what is still running, remove the data, and let the disk come to rest."""
        server.stop()
        shutil.rmtree(server.directory, ignore_errors=True)
        os.sync()

    def wanted(self, kind: type[Server]) -> bool:
        """Whether this product takes part."""
        return kind.product not in self.left_out

    def say(self, text: str) -> None:
        """Tell the person who waits what was just measured."""
        self.console.print(text, highlight=False, soft_wrap=True)


@dataclass(slots=True, kw_only=True)
class Bench(Place):
    """A run of the queue's benchmarks."""

    million: int  # messages where the targets say a million; fewer in a quick run
    seed_messages: int
    seed_rounds: int

    @contextmanager
    def running(self, kind: type[Server], flush: str, topics: int = 1) -> Iterator[Server]:
        """Start a server on an empty directory and prepare it; stop it and remove its data at the end."""
        server = self.fresh(kind, flush)
        try:
            with server:
                server.prepare(topics)
                yield server
        finally:
            self.remove(server)

    def fresh(self, kind: type[Server], flush: str) -> Server:
        """A server, not started, with a directory nobody used."""
        return kind(self.directory(f"{kind.product.lower()}-{flush}"), flush)

    def say_load(self, round_number: int, rounds: int, label: str, load: Load) -> None:
        """One line per run, with a warning when the generator was the bottleneck."""
        line = (
            f"  round {round_number}/{rounds}  {label:<20} {load.per_second:>11,.0f}/s  "
            f"p99 {load.p99_us / 1000:8.2f} ms  generator {load.cpu_share:4.0%} CPU"
        )
        self.say(line)
        if load.cpu_share > SHARE_MAX:
            self.say("    [yellow]the generator had no CPU time left: this number is a lower bound[/yellow]")
        if load.faults:
            self.say(f"    [red]{load.faults} faults[/red] {load.first_error}")


def stop_on_terminate() -> None:
    """Let SIGTERM stop the servers as Ctrl-C does, instead of leaving them behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def load_average() -> float:
    """Processes that wanted to run, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def faults_of(runs: Sequence[Run], what: str = "errors, gaps, repeats, requests without answer") -> Check:
    """The check that nothing went wrong in these runs."""
    first_error = next((run.first_error for run in runs if run.first_error), "")
    return faults_check(what, sum(run.faults for run in runs), first_error)


def notes_of(averages: list[float], runs: Sequence[Run]) -> list[str]:
    """What a reader must know about the circumstances of these runs."""
    notes = [f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}."]
    if count := sum(run.cpu_share > SHARE_MAX for run in runs):
        notes.append(
            f"In {count} of {len(runs)} runs the generator used more than {SHARE_MAX:.0%} of a core: "
            "those speeds are lower bounds."
        )
    return notes
