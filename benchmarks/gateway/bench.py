"""One run of the gateway's benchmarks: its options, its directory, its servers one at a time."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks.gateway.crowd import Talk
from benchmarks.gateway.servers import Pinned
from benchmarks.queue.generator import SHARE_MAX
from benchmarks.queue.section import Check, faults_check

Kind = TypeVar("Kind", bound=Pinned)


@dataclass(slots=True)
class Bench:
    """How much is measured, where, and who is told."""

    root: Path
    console: Console
    rounds: int
    seconds: float
    warmup: float
    connections: int
    server_cores: str
    crowd_cores: str
    left_out: set[type[Pinned]] = field(default_factory=set)
    _directories: int = 0

    @contextmanager
    def running(self, kind: type[Kind]) -> Iterator[Kind]:
        """Start a server on an empty directory; stop it and remove its data at the end."""
        server = self.fresh(kind)
        try:
            with server:
                yield server
        finally:
            self.remove(server)

    def fresh(self, kind: type[Kind]) -> Kind:
        """A server, not started, with a directory nobody used."""
        self._directories += 1
        return kind(self.root / f"{self._directories:03d}-{kind.protocol}", "")

    def remove(self, server: Pinned) -> None:
        """Stop what is still running, remove the data, and let the disk come to rest."""
        server.stop()
        shutil.rmtree(server.directory, ignore_errors=True)
        os.sync()

    def say(self, text: str) -> None:
        """Tell the person who waits what was just measured."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def say_talk(self, round_number: int, label: str, talk: Talk) -> None:
        """One line per run."""
        self.say(
            f"  round {round_number}/{self.rounds}  {label:<20} {talk.per_second:>11,.0f}/s"
            f"  p50 {talk.p50_us / 1000:7.2f}  p99 {talk.p99_us / 1000:7.2f} ms"
            f"  server {talk.server_cpu_seconds / talk.seconds:4.0%}  generator {talk.cpu_share:4.0%}"
        )
        if talk.faults:
            self.say(
                f"    [red]{talk.gaps} gaps, {talk.repeats} repeats, {talk.disorder} out of order, "
                f"{talk.errors} errors, {talk.closed} closed, {talk.missing} missing[/red] {talk.first_error}"
            )


def faults_of(talks: list[Talk]) -> Check:
    """The check that nothing went wrong in these runs."""
    first_error = next((talk.first_error for talk in talks if talk.first_error), "")
    return faults_check("gaps, repeats, disorder, errors", sum(talk.faults for talk in talks), first_error)


def notes_of(averages: list[float], talks: list[Talk]) -> list[str]:
    """What a reader must know about the circumstances of these runs."""
    notes = [f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}."]
    if count := sum(talk.cpu_share > SHARE_MAX for talk in talks):
        notes.append(
            f"In {count} of {len(talks)} runs the generator used more than {SHARE_MAX:.0%} of a core: "
            "those speeds are lower bounds."
        )
    return notes
