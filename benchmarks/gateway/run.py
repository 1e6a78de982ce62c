"""The gateway's benchmarks beside NATS core, Valkey's pub/sub and `websockets`: `python -m benchmarks.gateway`.

The server is a real `pixiu serve`; the clients are a C program. Servers run one at a time on one core, the clients on
the other. The exit code is 0 when every target was met, 1 when one was missed or a server failed.
"""

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.gateway import crowd, idle, life, pair, room, storm
from benchmarks.gateway.bench import Bench
from benchmarks.gateway.servers import PEERS, Pinned, PixiuServe, missing
from benchmarks.queue import frame, machine
from benchmarks.queue.frame import positive
from benchmarks.queue.section import Section

QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    "room": room.measure,
    "pair": pair.measure,
    "idle": idle.measure,
    "storm": storm.measure,
    "life": life.measure,
    "idle-max": idle.measure_max,
    "storm-tcp": storm.measure_tcp,
}
USUAL = [key for key in QUESTIONS if key not in ("idle-max", "storm-tcp")]
MARKERS = "bench-gateway"


def main() -> int:
    """Run what was asked for; the exit code says whether every target was met."""
    return frame.run(_options(), _measure, source=crowd.SOURCE, markers=MARKERS)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    bench = _bench(options, console, root)
    facts = machine.facts(root) | {"websockets": importlib.metadata.version("websockets")}
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    words: dict[str, object] = {
        "rounds": bench.rounds,
        "seconds per round": bench.seconds,
        "payload bytes": room.PAYLOAD_BYTES,
        "server cores": bench.server_cores or "any",
        "generator cores": bench.crowd_cores or "any",
    }
    if PixiuServe.gateways:
        words["gateways"] = PixiuServe.gateways

    def tell(sections: list[Section]) -> int:
        return frame.tell(options, facts, words, sections, markers=MARKERS)

    return tell(frame.sections_of(console, options.only or USUAL, lambda key: QUESTIONS[key](bench), tell))


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
        minutes=options.minutes,
    )
    Pinned.cores = bench.server_cores
    PixiuServe.gateways = options.gateways
    for assignment in options.set or ():
        name, _, value = assignment.partition("=")
        PixiuServe.settings[name] = value
    for name in options.without or ():
        bench.left_out.add(PEERS[name].product)
    for kind in PEERS.values():
        if bench.wanted(kind) and (reason := missing(kind)):
            console.print(f"[yellow]{kind.product} is left out: {reason}[/yellow]")
            bench.left_out.add(kind.product)
    return bench


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--rounds", type=positive, help="rounds of each comparison (5)")
    parser.add_argument("--seconds", type=float, help="counted seconds of each run (3)")
    parser.add_argument("--connections", type=positive, help="clients of idle and storm (10,000)")
    parser.add_argument(
        "--minutes", type=float, default=12, help="rounds that do not fit into this are left out (%(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s and a tenth of the clients")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--without", nargs="+", choices=PEERS, metavar="PEER", help=f"leave out: {', '.join(PEERS)}")
    parser.add_argument("--gateways", type=int, default=0, metavar="N", help="processes of gateways of `pixiu serve`")
    parser.add_argument("--set", action="append", metavar="SECTION.KEY=VALUE", help="a setting of `pixiu serve`")
    parser.add_argument("--unpinned", action="store_true", help="let the system place servers and generator")
    frame.add_output_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
