"""The gateway's benchmarks beside NATS core, Valkey's pub/sub and `websockets`: `python -m benchmarks.gateway`.

The server is a real `pixiu serve`; the clients are a C program. Servers run one at a time on one core, the clients on
the other. The exit code is 0 when every target was met, 1 when one was missed or a server failed.
"""

import argparse
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.gateway import crowd, idle, life, pair, room, storm
from benchmarks.gateway.bench import Bench
from benchmarks.gateway.servers import PEERS, Pinned, PixiuServe, missing
from benchmarks.queue import generator, machine, report
from benchmarks.queue.bench import stop_on_terminate
from benchmarks.queue.generator import GeneratorError
from benchmarks.queue.section import Check, Section
from benchmarks.queue.servers import ServerError

QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    "room": room.measure,
    "pair": pair.measure,
    "idle": idle.measure,
    "storm": storm.measure,
    "life": life.measure,
    "idle-max": idle.measure_max,
}
USUAL = [key for key in QUESTIONS if key != "idle-max"]
MARKERS = "bench-gateway"


def main() -> int:
    """Run what was asked for; the exit code says whether every target was met."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 140)
    stop_on_terminate()
    try:
        generator.compiled(crowd.SOURCE)
        if options.markdown and options.markdown.exists():
            report.split_at_markers(options.markdown, MARKERS)
    except (GeneratorError, ValueError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    root = Path(tempfile.mkdtemp(prefix="run-", dir=options.data or generator.build_directory()))
    try:
        return _measure(options, console, root)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 1
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    bench = _bench(options, console, root)
    facts = machine.facts(root) | {"websockets": importlib.metadata.version("websockets")}
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    sections = []
    for key in options.only or USUAL:
        console.rule(f"[bold]{key}", align="left")
        section = _answer(bench, key)
        sections.append(section)
        report.print_section(console, section)
    report.print_verdict(console, sections)
    words: dict[str, object] = {
        "rounds": bench.rounds,
        "seconds per round": bench.seconds,
        "payload bytes": room.PAYLOAD_BYTES,
        "server cores": bench.server_cores or "any",
        "generator cores": bench.crowd_cores or "any",
    }
    if PixiuServe.gateways:
        words["gateways"] = PixiuServe.gateways
    if options.quick:
        words["quick"] = "yes (not for publishing)"
    if options.json:
        report.write_json(options.json, facts, words, sections)
    if options.markdown:
        report.write_markdown(options.markdown, facts, words, sections, name=MARKERS)
    return 0 if all(check.passed for section in sections for check in section.checks) else 1


def _answer(bench: Bench, key: str) -> Section:
    """One section; a server that fails costs its section, not the run."""
    try:
        return QUESTIONS[key](bench)
    except (ServerError, GeneratorError, OSError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        failed = Section(key, f"{key}: not measured", [], notes=[str(error)])
        failed.checks.append(Check(f"{key} can be measured", "yes", lines[-1], passed=False))
        return failed


def _bench(options: argparse.Namespace, console: Console, root: Path) -> Bench:
    cores = sorted(os.sched_getaffinity(0))
    is_pinned = not options.unpinned and len(cores) > 1
    bench = Bench(
        root=root,
        console=console,
        rounds=options.rounds or (1 if options.quick else 5),
        seconds=options.seconds or (1.0 if options.quick else 3.0),
        warmup=0.3 if options.quick else 1.0,
        connections=options.connections or (1000 if options.quick else idle.CONNECTIONS),
        server_cores=",".join(map(str, cores[:-1])) if is_pinned else "",
        crowd_cores=str(cores[-1]) if is_pinned else "",
    )
    Pinned.cores = bench.server_cores
    PixiuServe.gateways = options.gateways
    for assignment in options.set or ():
        name, _, value = assignment.partition("=")
        PixiuServe.settings[name] = value
    for name in options.without or ():
        bench.left_out.add(PEERS[name])
    for kind in PEERS.values():
        if kind not in bench.left_out and (reason := missing(kind)):
            console.print(f"[yellow]{kind.product} is left out: {reason}[/yellow]")
            bench.left_out.add(kind)
    return bench


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--rounds", type=_positive, help="rounds of each comparison (5)")
    parser.add_argument("--seconds", type=float, help="counted seconds of each run (3)")
    parser.add_argument("--connections", type=_positive, help="clients of idle and storm (10,000)")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s and a tenth of the clients")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--without", nargs="+", choices=PEERS, metavar="PEER", help=f"leave out: {', '.join(PEERS)}")
    parser.add_argument("--gateways", type=int, default=0, metavar="N", help="processes of gateways of `pixiu serve`")
    parser.add_argument("--set", action="append", metavar="SECTION.KEY=VALUE", help="a setting of `pixiu serve`")
    parser.add_argument("--unpinned", action="store_true", help="let the system place servers and generator")
    parser.add_argument("--data", type=Path, help="a directory on the disk to use (benchmarks/.build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables, between FILE's markers")
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text.replace(",", "").replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
