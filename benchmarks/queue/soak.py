"""Does it stay small? Minutes of steady traffic, with memory watched: `python -m benchmarks.queue.soak`.

By default ten minutes at 5,000 messages/s over 10 topics with 10 subscribers, at flush level always. Every
message is stamped, so a gap, a repeat or disorder is found; latency counts from the time a message was due,
so a stall is not hidden. Exits with 1 when a target was missed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.queue import generator, machine, report
from benchmarks.queue.bench import stop_on_terminate
from benchmarks.queue.generator import GeneratorError, Load
from benchmarks.queue.section import Check, Section, at_least, below, milliseconds, whole
from benchmarks.queue.servers import Pixiu, Server, ServerError, use_pixiu_command

IN_FLIGHT = 200  # per connection, so that a stall of the disk does not hold back the rate
CATCH_UP_SECONDS = 5.0  # what subscribers get after the last message
SAMPLE_SECONDS = 1.0
RATE_TARGET = 0.99  # share of the wanted rate that must be reached


@dataclass(slots=True)
class Soak:
    """What was asked for and what was seen."""

    seconds: float
    rate: int
    topics: int
    subscribers: int
    memory_mb_max: float
    memory_mb: list[float] = field(default_factory=list)


def main() -> int:
    """Run the soak; the exit code says whether every target was met."""
    options = _options()
    stop_on_terminate()
    console = Console(width=None if sys.stdout.isatty() else 140)
    if options.pixiu_command:
        use_pixiu_command(options.pixiu_command)
    soak = Soak(options.minutes * 60, options.rate, options.topics, options.subscribers, options.memory)
    root = Path(tempfile.mkdtemp(prefix="soak-", dir=options.data or generator.build_directory()))
    server = Pixiu(root / "pixiu", options.flush)
    try:
        with server:
            server.prepare(soak.topics)
            section = _section(soak, *_traffic(soak, server, console))
    except (ServerError, GeneratorError, OSError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 1
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    report.print_section(console, section)
    if options.json:
        document = {"machine": machine.facts(generator.build_directory())} | section.as_json()
        options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return 0 if all(check.passed for check in section.checks) else 1


def _traffic(soak: Soak, server: Server, console: Console) -> tuple[Load, Load]:
    """Publish and subscribe for the whole time, and look at the memory each second."""
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.append(
            generator.start(
                "sub",
                server.port,
                seconds=soak.seconds + CATCH_UP_SECONDS,
                connections=soak.subscribers,
                topics=soak.topics,
                topic=server.topic,
                who="soak",
            )
        )
        processes.append(
            generator.start(
                "smss",
                server.port,
                seconds=soak.seconds,
                rate=soak.rate,
                connections=soak.topics,
                topics=soak.topics,
                in_flight=IN_FLIGHT,
                topic=server.topic,
                watch_pid=server.pid,
            )
        )
        _watch(soak, server, processes[1], console)
        published = generator.finish(processes[1], seconds_max=60.0)
        return published, generator.finish(processes[0], seconds_max=60.0)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _watch(soak: Soak, server: Server, publisher: subprocess.Popen[str], console: Console) -> None:
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=soak.seconds)
        while publisher.poll() is None and time.monotonic() - began < soak.seconds + 60:
            soak.memory_mb.append(server.memory_mb())
            words = f"{soak.memory_mb[-1]:.1f} MB, at most {max(soak.memory_mb):.1f} MB"
            progress.update(task, completed=time.monotonic() - began, description=words)
            time.sleep(SAMPLE_SECONDS)
    soak.memory_mb.append(server.memory_mb("VmHWM"))


def _section(soak: Soak, published: Load, received: Load) -> Section:
    per_topic = soak.subscribers // soak.topics
    missing = published.acked_total * per_topic - received.acked_total
    section = Section(
        "soak",
        f"{soak.seconds / 60:g} min at {soak.rate:,}/s, {soak.topics} topics, {soak.subscribers} subscribers",
        ["", "messages", "messages/s", "p50 ms", "p99 ms", "max ms"],
        rows=[
            _row("published, answered", published, published.seconds),
            _row("delivered", received, published.seconds),
        ],
        runs=[published.as_json(), received.as_json(), {"memory_mb": soak.memory_mb}],
    )
    faults = published.faults + received.gaps + received.repeats + received.disorder + received.foreign
    section.checks = [
        below("RSS at its highest", max(soak.memory_mb), soak.memory_mb_max, " MB"),
        at_least("published per second", published.per_second, soak.rate * RATE_TARGET, ""),
        Check("acknowledged but not delivered", "0", str(missing), missing == 0),
        Check("errors, gaps, repeats, disorder", "0", str(faults), faults == 0),
    ]
    first, last = soak.memory_mb[0], soak.memory_mb[-2]
    section.notes.append(f"RSS {first:.1f} MB at the start, {last:.1f} MB at the end.")
    section.notes.append(f"The server kept {published.server_cores:.2f} cores busy.")
    return section


def _row(label: str, load: Load, seconds: float) -> list[str]:
    latencies = [milliseconds(value) for value in (load.p50_us, load.p99_us, load.max_us)]
    return [label, whole(load.acked_total), whole(load.acked_total / seconds), *latencies]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--rate", type=int, default=5_000, help="messages per second over all topics (5000)")
    parser.add_argument("--topics", type=int, default=10, help="topics (10)")
    parser.add_argument("--subscribers", type=int, default=10, help="a multiple of the topics (10)")
    parser.add_argument("--memory", type=float, default=100.0, help="RSS in MB that must not be reached (100)")
    parser.add_argument("--flush", default="always", choices=("none", "interval", "always"), help="level (always)")
    parser.add_argument("--data", type=Path, help="a directory on the disk to use (benchmarks/.build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--pixiu-command", metavar="WORDS", help="another build, in place of `pixiu queue serve`")
    options = parser.parse_args()
    if options.topics < 1 or options.subscribers < 1 or options.subscribers % options.topics:
        parser.error("--subscribers must be a multiple of --topics")
    if not 0 < options.minutes <= 24 * 60 or not 0 < options.rate <= 1_000_000:
        parser.error("--minutes is at most a day and --rate at most 1,000,000")
    return options


if __name__ == "__main__":
    sys.exit(main())
