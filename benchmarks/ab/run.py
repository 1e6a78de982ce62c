"""`make bench-ab`: does this tree cost more CPU per message than an earlier commit?

Both commits run on this machine in turn, in the order A B B A A B B A …, so that a slow minute affects both alike. Each
pair gives one ratio of CPU time per message. The result is the median ratio with its 95 % interval; the target is met
if the upper bound is at most `--limit`. The load generators are those of this tree for both sides.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.ab.interval import Interval, median_interval
from benchmarks.gateway import crowd
from benchmarks.gateway.servers import PixiuServe
from benchmarks.queue import generator
from benchmarks.queue.bench import load_average
from benchmarks.queue.generator import build_directory
from benchmarks.queue.report import print_section, print_verdict
from benchmarks.queue.section import Check, Section
from benchmarks.queue.servers import Pixiu, Server

ROOT = Path(__file__).resolve().parents[2]
CORE = Path(__file__).with_name("private.py")
CORE_MESSAGES = 25_000
CORE_SECONDS_MAX = 300
ROOM_LISTENERS = 300
PAIRS_OF_PEOPLE = 100
PAIR_RATE = 1_000
LIMIT = 1.05


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits: a name for tables and the root of its files."""

    name: str
    tree: Path

    @property
    def environment(self) -> list[str]:
        """Words that put this side's source before the installed one."""
        return ["env", f"PYTHONPATH={self.tree / 'src'}{os.pathsep}{self.tree}"]


@dataclass(slots=True)
class Run:
    """What all measurements share."""

    folder: Path
    seconds: float
    server_cores: str
    crowd_cores: str
    count: int = 0
    faults: list[str] = field(default_factory=list)

    def directory(self) -> Path:
        """An unused directory."""
        self.count += 1
        return self.folder / f"{self.count:03d}"

    def fault(self, where: str, load: crowd.Talk | generator.Load) -> None:
        """Remember a run that lost or repeated messages: its figures mean nothing."""
        if load.faults:
            self.faults.append(f"{where}: {load.faults} faults, first: {load.first_error or 'gaps or repeats'}")


def queue_publish(run: Run, side: Side) -> float:
    """256 connections publish 200 bytes, on disk before the answer."""

    class Queue(Pixiu):
        program = [*side.environment, *Pixiu.program]  # noqa: RUF012 - a class for one run

    with _removed(Queue(run.directory(), "always")) as server:
        server.prepare()
        load = generator.run(
            server.protocol,
            server.port,
            seconds=run.seconds,
            warmup=1.0,
            connections=256,
            in_flight=1,
            bytes=200,
            topic=server.topic,
            watch_pid=server.pid,
        )
    run.fault(f"queue, {side.name}", load)
    return 1e6 / load.per_core


def core_private(run: Run, side: Side) -> float:
    """64 senders and 64 devices in one process: accepted, delivered and acked."""
    folder = run.directory()
    folder.mkdir()
    words = [*side.environment, sys.executable, str(CORE), str(folder), str(CORE_MESSAGES)]
    outcome = subprocess.run(words, capture_output=True, text=True, timeout=CORE_SECONDS_MAX, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if outcome.returncode != 0:
        raise generator.GeneratorError(f"core, {side.name}: {outcome.stderr.strip()[-500:]}")
    return float(outcome.stdout.split()[-1])


def gateway_pair(run: Run, side: Side) -> float:
    """1,000 durable messages a second between 100 pairs over WebSocket, with acks."""
    options: dict[str, int | float | str] = {"mode": "pair", "pairs": PAIRS_OF_PEOPLE, "rate": PAIR_RATE}
    return _gateway(run, side, 2 * PAIRS_OF_PEOPLE, options | {"class": "durable"})


def gateway_room(run: Run, side: Side) -> float:
    """A live room of 300 listeners with 128 messages in flight; per delivery."""
    options: dict[str, int | float | str] = {"mode": "room", "connections": ROOM_LISTENERS, "window": 128}
    return _gateway(run, side, ROOM_LISTENERS + 1, options)


def _gateway(run: Run, side: Side, people: int, options: dict[str, int | float | str]) -> float:
    class Serve(PixiuServe):
        def words(self) -> list[str]:
            return [*side.environment, *super().words()]

    Serve.cores = run.server_cores
    server = Serve(run.directory(), "")
    with _removed(server):
        talk = crowd.talk(server, run.crowd_cores, range(people), bytes=100, seconds=run.seconds, warmup=1.0, **options)
    run.fault(f"gateway {options['mode']}, {side.name}", talk)
    return talk.cpu_per_million


class _removed:  # noqa: N801 - reads as a function in a with statement
    """Start a server; stop it and remove its data at the end."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> Server:
        self._server.start()
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        shutil.rmtree(self._server.directory, ignore_errors=True)
        self._server.log.unlink(missing_ok=True)
        os.sync()


WORKLOADS: dict[str, Callable[[Run, Side], float]] = {
    "queue": queue_publish,
    "core": core_private,
    "pair": gateway_pair,
    "room": gateway_room,
}


def main() -> int:
    """Measure the workloads asked for. Exit 0 if every upper bound is at most the limit."""
    options = _options()
    console = Console()
    folder = build_directory() / f"ab-{os.getpid()}"
    folder.mkdir()
    try:
        sides = (Side("base", _checked_out(options.base, folder / "base")), Side("this tree", ROOT))
        run = Run(folder, options.seconds, *_cores())
        sections = [_measure(console, run, name, sides, options) for name in options.only]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for section in sections:
        print_section(console, section)
    print_verdict(console, sections)
    if options.json:
        rows = [section.as_json() for section in sections]
        options.json.write_text(json.dumps({"base": options.base, "sections": rows}, indent=2) + "\n")
    return 0 if all(check.passed for section in sections for check in section.checks) else 1


def _measure(console: Console, run: Run, name: str, sides: tuple[Side, Side], options: argparse.Namespace) -> Section:
    workload = WORKLOADS[name]
    costs: dict[str, list[float]] = {side.name: [] for side in sides}
    before = load_average()
    run.faults.clear()
    for pair in range(options.pairs):
        for side in sides if pair % 2 == 0 else reversed(sides):
            costs[side.name].append(workload(run, side))
        base, ours = (costs[side.name][-1] for side in sides)
        console.print(
            f"  {name} {pair + 1}/{options.pairs}  base {base:.2f} µs  this tree {ours:.2f} µs  {ours / base:.3f} x",
            highlight=False,
        )
    both = zip(*(costs[side.name] for side in sides), strict=True)
    ratio = median_interval([new / old for old, new in both])
    return _section(name, workload, costs, ratio, options, run, before)


def _section(
    name: str,
    workload: Callable[[Run, Side], float],
    costs: dict[str, list[float]],
    ratio: Interval,
    options: argparse.Namespace,
    run: Run,
    before: float,
) -> Section:
    section = Section(name, f"{name}: {(workload.__doc__ or '').strip()}", ["commit", "CPU µs", "least", "most"])
    for side, values in costs.items():
        section.rows.append([side, f"{median(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}"])
        section.runs.append({"commit": side, "cpu_us": values})
    measured = f"{ratio.median:.3f} x ({ratio.low:.3f} – {ratio.high:.3f})"
    section.checks = [
        Check("CPU per message, upper 95 % bound", f"≤ {options.limit:.2f} x", measured, ratio.high <= options.limit),
        Check("runs without loss or repeats", "all", "; ".join(run.faults) or "all", not run.faults),
    ]
    section.notes = [
        f"{options.pairs} pairs against {options.base}. Load average {before:.2f} before, {load_average():.2f} after."
    ]
    return section


def _checked_out(revision: str, folder: Path) -> Path:
    """The files of a commit, without its history. Ends the program if there is no such commit."""
    outcome = subprocess.run(["git", "-C", str(ROOT), "archive", revision], capture_output=True, check=False)
    if outcome.returncode != 0:
        raise SystemExit(f"--base {revision}: {outcome.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(outcome.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _cores() -> tuple[str, str]:
    """The server's cores and the generator's: the last core is the generator's, where there are two or more."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return "", ""
    return ",".join(map(str, cores[:-1])), str(cores[-1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, metavar="REV", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="workloads (all)")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of runs per workload, at least 6 (12)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds of each run (3)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="highest upper bound of the ratio (1.05)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    if options.pairs < 6:
        parser.error(f"--pairs {options.pairs}: at least 6 pairs are needed for a 95 % interval")
    return options


if __name__ == "__main__":
    sys.exit(main())
