"""The load generator: compiles `load.c` once and runs it.

The load comes from a C program in its own process, because a Python client would be slower than the servers
it measures. Everything it reports is one JSON line; `Load` is that line with types.
"""

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass, fields
from pathlib import Path

SOURCE = Path(__file__).with_name("load.c")
BUILD = Path(__file__).parent.parent / ".build"

# A generator that has no CPU time left measures itself.
SHARE_MAX = 0.90

NO_COMPILER = (
    "The load generator is a small C program and no C compiler was found.\n"
    "  Debian, Ubuntu:  apt install gcc libc6-dev\n"
    "  or set CC to the compiler to use."
)


class GeneratorError(Exception):
    """The generator could not be built, or a run of it failed."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the generator saw. Times are of the counted window, after the warm-up."""

    protocol: str
    connections: int
    in_flight: int
    bytes: int
    acked: int  # in the window; messages received when subscribing
    acked_total: int  # with the warm-up and with the answers that came after the end
    issued: int
    unanswered: int
    errors: int
    closed: int
    seconds: float
    per_second: float
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    cpu_seconds: float
    cpu_share: float
    server_cpu_seconds: float
    first_error: str
    batches: int = 0
    least: int = 0  # messages of the subscriber that got the fewest
    most: int = 0
    gaps: int = 0
    repeats: int = 0
    disorder: int = 0
    foreign: int = 0

    @property
    def per_core(self) -> float:
        """Messages per second of the server's CPU time."""
        return self.acked / self.server_cpu_seconds if self.server_cpu_seconds > 0 else 0.0

    @property
    def server_cores(self) -> float:
        """How many cores the server kept busy."""
        return self.server_cpu_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def faults(self) -> int:
        """Everything that must be 0 for the numbers to mean anything."""
        return self.errors + self.unanswered + self.gaps + self.repeats + self.disorder + self.foreign

    def as_json(self) -> dict[str, object]:
        """The line of the generator, with what follows from it."""
        return asdict(self) | {
            "per_core": round(self.per_core, 1),
            "server_cores": round(self.server_cores, 3),
        }


def build_directory() -> Path:
    """The directory for everything that a run makes; git does not see it."""
    BUILD.mkdir(exist_ok=True)
    (BUILD / ".gitignore").write_text("*\n")
    return BUILD


def compiled(source: Path = SOURCE) -> Path:
    """The generator's binary, compiled when the source is new."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    binary = build_directory() / f"{source.stem}-{digest}"
    if binary.exists():
        return binary
    wanted = os.environ.get("CC")
    names = [wanted] if wanted else ["cc", "gcc", "clang"]
    compiler = next((found for name in names if (found := shutil.which(name))), None)
    if compiler is None:
        raise GeneratorError(NO_COMPILER)
    unfinished = binary.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(unfinished), str(source)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if outcome.returncode != 0:
        raise GeneratorError(f"cannot compile {source.name} with {compiler}:\n{outcome.stderr}")
    for old in BUILD.glob(f"{source.stem}-*"):
        if old != unfinished:
            old.unlink(missing_ok=True)
    unfinished.replace(binary)
    return binary


def start(protocol: str, port: int, **options: int | float | str) -> subprocess.Popen[str]:
    """Start the generator; `finish` waits for it. Options are those of `load --help`, with underscores."""
    command = [str(compiled()), "--protocol", protocol, "--port", str(port)]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds_max: float) -> Load:
    """Wait for a generator, at most the given seconds, and read its line."""
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise GeneratorError(f"the generator did not end within {seconds_max:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        raise GeneratorError(errors.strip() or f"the generator ended with {process.returncode}")
    known = {field.name for field in fields(Load)}
    return Load(**{name: value for name, value in json.loads(output).items() if name in known})


def run(protocol: str, port: int, *, seconds: float, warmup: float = 0.0, **options: int | float | str) -> Load:
    """Run the generator to its end."""
    process = start(protocol, port, seconds=seconds, warmup=warmup, **options)
    return finish(process, seconds_max=seconds + warmup + 60)
