"""What a comparison with other servers does around its questions: a directory, interrupts, tables, files, an exit code.

The queue's run and the gateway's differ in what they ask, and beside whom; the rest of them is here.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from benchmarks.queue import generator, report
from benchmarks.queue.bench import stop_on_terminate
from benchmarks.queue.generator import GeneratorError
from benchmarks.queue.section import Check, Section
from benchmarks.queue.servers import ServerError

__all__ = ["add_output_options", "positive", "run", "sections_of", "tell"]

Measure = Callable[[argparse.Namespace, Console, Path], int]


def run(
    options: argparse.Namespace, measure: Measure, *, source: Path | None = generator.SOURCE, markers: str = "bench"
) -> int:
    """Compile the generator from ``source``, if there is one, measure in a directory of its own, clean up.

    Returns the exit code.
    """
    console = Console(width=None if sys.stdout.isatty() else 140)
    stop_on_terminate()
    try:
        if options.data is not None:
            options.data.mkdir(parents=True, exist_ok=True)
        if source is not None:
            generator.compiled(source)
        if options.markdown and options.markdown.exists():
            report.split_at_markers(options.markdown, markers)
    except (GeneratorError, ValueError, OSError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    root = Path(tempfile.mkdtemp(prefix="run-", dir=options.data or generator.build_directory()))
    try:
        return measure(options, console, root)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 1
    finally:
        shutil.rmtree(root, ignore_errors=True)


def sections_of(
    console: Console,
    keys: Iterable[str],
    ask: Callable[[str], Section],
    keep: Callable[[list[Section]], object] = lambda sections: None,
) -> list[Section]:
    """The sections, each printed as soon as it is there. A server that fails costs its section, not the run.

    ``keep`` gets all that are there, each time there is one more: a run that is stopped leaves what it has measured.
    """
    sections: list[Section] = []
    for key in keys:
        console.rule(f"[bold]{key}", align="left")
        try:
            section = ask(key)
        except (ServerError, GeneratorError, OSError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            reason = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
            section = Section(key, f"{key}: not measured", [], notes=[str(error)])
            section.checks.append(Check(f"{key} can be measured", "yes", reason, passed=False))
        sections.append(section)
        report.print_section(console, section)
        keep(sections)
    report.print_verdict(console, sections)
    return sections


def tell(
    options: argparse.Namespace,
    facts: dict[str, str],
    words: dict[str, object],
    sections: list[Section],
    *,
    markers: str = "bench",
) -> int:
    """Write what was asked for. Returns 0 when every target was met."""
    if options.quick:
        words["quick"] = "yes (not for publishing)"
    if options.json:
        report.write_json(options.json, facts, words, sections)
    if options.markdown:
        report.write_markdown(options.markdown, facts, words, sections, name=markers)
    return 0 if all(check.passed for section in sections for check in section.checks) else 1


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Where to measure and where to write."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="a directory on the disk to use (benchmarks/.build)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables, between FILE's markers")


def positive(text: str) -> int:
    """A number of one or more; 10,000 and 10_000 are ten thousand."""
    value = int(text.replace(",", "").replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
