"""The pipeline beside Spark's own Parquet and DuckDB: `python -m benchmarks.pipeline`.

A log of five million records is made by the real writer's classes, read, archived, counted and audited. CPU counts the
Java process and every Python process below this one; on a busy machine trust it more than the wall. The exit code is 0
when every target was met.
"""

import argparse
import importlib.metadata
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.pipeline.bench import Bench
from benchmarks.pipeline.questions import QUESTIONS
from benchmarks.queue import frame, machine
from benchmarks.queue.frame import positive

ROWS, QUICK_ROWS = 5_000_000, 200_000
MARKERS = "bench-pipeline"


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
    try:
        sections = frame.sections_of(console, options.only or QUESTIONS, lambda key: QUESTIONS[key](bench))
    finally:
        bench.close()
    return frame.tell(options, facts, {"messages": f"{rows:,}", "spark": "local[2]"}, sections, markers=MARKERS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--rows", type=positive, help=f"messages in the log ({ROWS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} messages")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="KEY", help=f"some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--log", type=Path, metavar="DIR", help="keep the log here, and use it again")
    frame.add_output_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
