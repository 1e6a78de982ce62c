"""One run of the gateway's benchmarks: its clients, its cores, its servers one at a time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.gateway.crowd import Talk
from benchmarks.gateway.servers import Pinned
from benchmarks.queue.bench import Place

Kind = TypeVar("Kind", bound=Pinned)


@dataclass(slots=True, kw_only=True)
class Bench(Place):
    """A run of the gateway's benchmarks."""

    connections: int
    server_cores: str
    crowd_cores: str
    minutes: float
    began: float = field(default_factory=time.monotonic)

    def has_time(self, share: float) -> bool:
        """Has less than this share of the run's time gone? If not, what was measured so far has to do."""
        return time.monotonic() - self.began < self.minutes * 60 * share

    def rounds_note(self, rounds: int) -> list[str]:
        """What a table has to say if there were fewer rounds than wanted."""
        return [f"{rounds} of {self.rounds} rounds: the time was over."] if rounds < self.rounds else []

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
        return kind(self.directory(kind.protocol), "")

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
