"""The pipeline beside Spark's own Parquet and DuckDB: `python -m benchmarks.pipeline`.

A log of five million records is made by the real writer's classes, read, archived, counted and audited. CPU counts the
Java process and every Python process below this one; on a busy machine trust it more than the wall. The exit code is 0
when every target was met.
"""

import argparse
import importlib.metadata
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from benchmarks.pipeline.bench import Bench
from benchmarks.pipeline.questions import QUESTIONS
from benchmarks.queue import frame, machine
from benchmarks.queue.frame import positive
from benchmarks.queue.section import Section
from benchmarks.queue.servers import ServerError

ROWS, QUICK_ROWS = 5_000_000, 200_000
MINUTES = 25
SHARE = 0.5
"""The most that one question may have of the time that is left: the others are asked all the same."""
MARKERS = "bench-pipeline"


class OutOfTime(BaseException):
    """A question is cut. No ``Exception``: what talks to Java would take it for a lost connection, and ask again."""


def main() -> int:
    """Run what was asked for; the exit code says whether every target was met."""
    return frame.run(_options(), _measure, source=None, markers=MARKERS)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    bench = Bench(root.resolve(), console, rows, options.quick, options.log)
    facts = machine.facts(root)
    for name in ("Valkey", "NATS", "TCP"):
        facts.pop(name, None)
    facts |= {name: importlib.metadata.version(name) for name in ("pyspark", "pyarrow", "duckdb", "deltalake")}
    for name, value in facts.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    words: dict[str, object] = {"messages": f"{rows:,}", "spark": "local[2]"}
    answered: list[Section] = []

    def ask(key: str) -> Section:
        answered.append(_answer(bench, key, options.minutes * 60))
        return answered[-1]

    try:
        sections = frame.sections_of(console, options.only or QUESTIONS, ask)
    except KeyboardInterrupt:
        frame.tell(options, facts, words | {"stopped": "yes (not whole)"}, answered, markers=MARKERS)
        raise
    finally:
        _ended(bench)
    return frame.tell(options, facts, words, sections, markers=MARKERS)


def _answer(bench: Bench, key: str, seconds: float) -> Section:
    """One answer; whatever goes wrong costs this question alone, and the next one has a session of its own."""
    left = seconds - (time.monotonic() - bench.began)
    try:
        with _at_most(max(1.0, left * SHARE)):
            return QUESTIONS[key](bench)
    except OutOfTime:
        reason = f"out of time: {left * SHARE:.0f} s were left for it (--minutes)"
    except ServerError:
        raise
    except Exception as error:  # noqa: BLE001 - any library that is measured may raise anything
        bench.console.print(traceback.format_exc(limit=-6), markup=False, highlight=False)
        lines = str(error).strip().splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0]}"
    _ended(bench)
    raise ServerError(reason)


def _ended(bench: Bench) -> None:
    try:
        with _at_most(60):
            bench.close()
    except (Exception, OutOfTime) as error:  # noqa: BLE001 - a session that does not end is left to the exit
        bench.say(f"the session did not end: {error!r}")


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTime`` in what takes longer."""

    def ring(number: int, at: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--rows", type=positive, help=f"messages in the log ({ROWS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} messages")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--log", type=Path, metavar="DIR", help="keep the log here, and use it again")
    parser.add_argument("--minutes", type=positive, default=MINUTES, help=f"cut what takes longer in all ({MINUTES})")
    frame.add_output_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
