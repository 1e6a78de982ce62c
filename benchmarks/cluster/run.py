"""The cluster's benchmarks: `python -m benchmarks.cluster`.

Real role processes on one machine, three replicas beside JetStream R3, failovers, and what a larger cluster would need.
The exit code is 0 when every target was met, 1 when one was missed or a server failed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster import (
    durable,
    failover,
    flat,
    idle,
    mesh,
    one_to_one,
    path,
    pause,
    proxies,
    scaling,
    small_rooms,
)
from benchmarks.cluster.bench import QUICK, Amounts, Bench
from benchmarks.gateway import crowd
from benchmarks.queue import frame, machine, report
from benchmarks.queue.frame import positive
from benchmarks.queue.servers import ServerError
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from benchmarks.queue.section import Section

QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    "path": path.measure,
    "proxy": proxies.measure,
    "publish": durable.measure,
    "durable": one_to_one.measure,
    "idle": idle.measure,
    "pause": pause.measure,
    "failover": failover.measure,
    "mesh": mesh.measure,
    "small-rooms": small_rooms.measure,
    "flat": flat.measure,
    "scaling": scaling.measure,
}
MARKERS = "bench-cluster"
AMOUNT_OPTIONS = {
    "pairs": "pairs",
    "rate": "rate",
    "seconds": "durable_seconds",
    "settle_seconds": "settle_seconds",
    "idle_seconds": "idle_seconds",
    "pause_rate": "pause_rate",
    "pause_seconds": "pause_seconds",
}
"""What each amount is called on the command line."""


def main() -> int:
    """Run what was asked for; the exit code says whether every target was met."""
    return frame.run(_options(), _measure, source=crowd.SOURCE, markers=MARKERS)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    cores = sorted(os.sched_getaffinity(0))
    bench = Bench(
        root=root,
        console=console,
        rounds=options.rounds or (1 if options.quick else 2),
        seconds=options.seconds or (1.0 if options.quick else 2.0),
        warmup=0.5 if options.quick else 1.0,
        repetitions=options.failovers or (1 if options.quick else 10),
        scale=0.1 if options.quick else 1.0,
        amounts=_amounts(options),
        server_cores=options.server_cores,
        crowd_cores=str(cores[-1]) if len(cores) > 1 else "",
    )
    if options.figures:
        bench.figures.update(scaling.figures_from(options.figures))
    facts = machine.facts(root)
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    try:
        sections = frame.sections_of(console, options.only or QUESTIONS, lambda key: _asked(bench, key))
    finally:
        bench.close()
    words: dict[str, object] = {"rounds": bench.rounds, "seconds per round": bench.seconds}
    words["seconds of durable messages"] = bench.amounts.seconds
    computed = [section for section in sections if section.key == "scaling" and section.rows]
    if not options.scaling or not computed:
        return frame.tell(options, facts, words, sections, markers=MARKERS)
    report.write_markdown(options.scaling, facts, dict(words), computed, name="scaling")
    others = [section for section in sections if section not in computed]
    code = frame.tell(options, facts, words, others, markers=MARKERS) if others else 0
    if options.json:  # with what was computed, and with the figures that it was computed from
        report.write_json(options.json, facts, words, sections)
    return code


def _amounts(options: argparse.Namespace) -> Amounts:
    """The usual ones, and those that were asked for."""
    asked = {name: getattr(options, option) for name, option in AMOUNT_OPTIONS.items()}
    usual = QUICK if options.quick else Amounts()
    return replace(usual, **{name: value for name, value in asked.items() if value is not None})


def _asked(bench: Bench, key: str) -> Section:
    try:
        return QUESTIONS[key](bench)
    except PixiuError as error:
        raise ServerError(str(error)) from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rounds", type=positive, help="rounds of each comparison (2)")
    parser.add_argument("--seconds", type=float, help="counted seconds of each run (2)")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s, one failover of each kind, a small crowd")
    parser.add_argument("--failovers", type=positive, metavar="N", help="failovers of each kind (10)")
    parser.add_argument("--pairs", type=positive, metavar="N", help="durable: pairs of clients (500)")
    parser.add_argument("--rate", type=positive, metavar="N", help="durable: messages/s of the open loop (500)")
    parser.add_argument("--durable-seconds", type=float, metavar="S", help="durable: counted seconds of each load (10)")
    parser.add_argument("--settle-seconds", type=float, metavar="S", help="idle: seconds before it is measured (10)")
    parser.add_argument("--idle-seconds", type=float, metavar="S", help="idle: seconds that are measured (20)")
    parser.add_argument("--pause-rate", type=positive, metavar="N", help="pause: messages/s (50)")
    parser.add_argument("--pause-seconds", type=float, metavar="S", help="pause: how long ZooKeeper is paused (60)")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="what an earlier --json has found, for scaling")
    parser.add_argument(
        "--server-cores", default="", metavar="CORES", help="where servers are while latency is compared (any)"
    )
    parser.add_argument(
        "--scaling", type=Path, metavar="FILE", help="write the table of scaling, between FILE's markers"
    )
    frame.add_output_options(parser)
    return parser.parse_args()
