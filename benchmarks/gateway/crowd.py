"""The clients: compiles `crowd.c` once and runs it. Everything it says is a JSON line; `Talk` is one with types."""

import json
import subprocess
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from benchmarks.gateway.servers import Pinned, PixiuServe, pinning
from benchmarks.queue.generator import GeneratorError, compiled

SOURCE = Path(__file__).with_name("crowd.c")
LINE_SECONDS_MAX = 420.0


FAULTS = "gaps, repeats, disorder, errors"


@dataclass(frozen=True, slots=True)
class Talk:
    """What one run saw of messages. Times are of the counted window, after the warm-up."""

    deliveries: int
    published: int
    seconds: float
    per_second: float
    published_per_second: float
    cpu_seconds: float
    server_cpu_seconds: float
    missing: int  # not there long after the end
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    gaps: int
    repeats: int
    disorder: int
    errors: int
    closed: int
    first_error: str
    watched: list[float]  # CPU seconds of each process of the server, in the order in which they were given
    # Of durable messages in pairs, the warm-up included:
    accepted: int = 0
    refused: int = 0  # answered with an error
    failed: int = 0  # refused, never answered, or not sent because the client was away
    lost: int = 0  # accepted, and not delivered long after the end
    turned_away: int = 0  # attempts to reconnect
    resyncs: int = 0  # `resync` pushes that clients received and answered with a sync
    away: int = 0  # clients that were closed and had not come back by the end

    @property
    def cpu_share(self) -> float:
        """How much of a core the generator used."""
        return self.cpu_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_per_million(self) -> float:
        """The server's CPU seconds per million deliveries."""
        return self.server_cpu_seconds / self.deliveries * 1e6 if self.deliveries else 0.0

    @property
    def faults(self) -> int:
        """Everything that must be 0 for the numbers to mean anything."""
        seen = self.gaps + self.repeats + self.disorder + self.errors + self.closed + self.missing
        return seen + self.failed + self.lost

    def as_json(self) -> dict[str, object]:
        """The generator's line, with what follows from it."""
        return asdict(self) | {"cpu_per_million": round(self.cpu_per_million, 3)}


def command(server: Pinned, cores: str, users: range, **options: int | float | str) -> list[str]:
    """The words that start a crowd against a server. Options are those of `crowd.c`, with underscores.

    ``users`` are their numbers: several crowds at one server are different people.
    """
    words = [*pinning(cores), str(compiled(SOURCE)), "--protocol", server.protocol, "--port", str(server.port)]
    for pid in server.pids():
        words += ["--watch-pid", str(pid)]
    if isinstance(server, PixiuServe):
        words += ["--tokens", str(server.tokens(users))]
    elif server.protocol == "plain":
        words += ["--path", "/"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def talk(server: Pinned, cores: str, users: range, **options: int | float | str) -> Talk:
    """Run a crowd to its end."""
    return run(command(server, cores, users, **options), server.label)


def run(words: list[str], label: str) -> Talk:
    """Run a crowd that was put together elsewhere to its end. Raises ``GeneratorError``."""
    try:
        outcome = subprocess.run(words, capture_output=True, text=True, timeout=LINE_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise GeneratorError(f"the crowd at {label} did not end") from None
    if outcome.returncode != 0:
        raise GeneratorError(f"{label}: {outcome.stderr.strip() or outcome.returncode}")
    return read(outcome.stdout)


def read(line: str) -> Talk:
    """The result line of a crowd."""
    known = {field.name for field in fields(Talk)}
    return Talk(**{name: value for name, value in json.loads(line).items() if name in known})


class Held:
    """A crowd that stays: a context manager. Each `line` is what it said next."""

    def __init__(self, server: Pinned, cores: str, users: range, **options: int | float | str) -> None:
        self._words = command(server, cores, users, mode="hold", **options)

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        return self

    def line(self) -> dict[str, Any]:
        """Wait for what it says."""
        assert self._process.stdout is not None and self._process.stderr is not None
        text = self._process.stdout.readline()
        if not text:
            raise GeneratorError(self._process.stderr.read().strip() or "the crowd ended without a word")
        return dict(json.loads(text))

    def tell(self, word: str) -> None:
        """Give it its next command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
