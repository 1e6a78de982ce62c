"""``pixiu pipeline``: from the log to tables."""

import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.erase import erase
from pixiu.cli.queue.asking import DEFAULT_DATA, Json, parse_duration_ms
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.cli.rebuilding import rebuild
from pixiu.model.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from pixiu.pipeline.lake.feed import Progress

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="From the log to tables: archive, audit, usage, latency, heat.",
)  # fmt: skip

DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="The server's data directory.")]
SparkUrl = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark computes: local[*], local-cluster[…], spark://…, yarn."),
]


@app.command()
def run(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]…", help="Only these.  [default: all]")] = None,
    once: Annotated[bool, typer.Option("--once", help="Take in what is there now, and end.")] = False,
    every: Annotated[str | None, typer.Option("--every", metavar="T", help="Again and again, such as 1m.")] = None,
    data: DataOption = DEFAULT_DATA,
    spark_url: SparkUrl = "local[*]",
    json: Json = False,
) -> None:
    """Bring the tables up to the log. The server may run meanwhile.

    A run that was killed, at any point, is taken up where the tables are. A second pipeline on the same data directory
    is refused.
    """
    if once == (every is not None):
        raise ConfigError("say --once, or --every with a time such as 1m")
    pause_ms = parse_duration_ms(every) if every is not None else 0
    _require_log(data)
    from pixiu.pipeline.session import open_session, require_spark

    require_spark()
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.runner import EVERY_JOBS, Pipeline
    from pixiu.pipeline.status import audit_of

    stopped = threading.Event()
    if every is not None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: stopped.set())
    with Pipeline(
        data,
        lambda: open_session(Place(data).work, spark_url=spark_url),
        tell=_tell_json if json else _tell,
        warn=lambda text: print(f"pixiu: {text}", file=sys.stderr),
    ) as pipeline:
        try:
            while True:
                began = time.monotonic()
                with progress("reading the log", None):
                    added = pipeline.run(jobs or (() if once else EVERY_JOBS))
                seconds = time.monotonic() - began
                if json:
                    told = {"added": added, "through": pipeline.held_through(), "seconds": round(seconds, 3)}
                    print_json(told | ({"audit": audit_of(data)} if "audit" in added else {}))
                else:
                    print(_summary(added, pipeline.held_through(), seconds), flush=True)
                    if "audit" in added:
                        print(_books(audit_of(data)), flush=True)
                if once or stopped.wait(max(0.0, pause_ms / 1000 - seconds)):
                    return
        finally:
            pipeline.stop()


def _tell(done: "Progress") -> None:
    if done.rows:
        rate = done.rows / done.seconds if done.seconds else 0.0
        print(
            f"{done.table}: {done.rows} rows, through event {done.through} of {done.end} "
            f"({done.end - done.through} to go), {rate:,.0f} rows/s",
            flush=True,
        )


def _tell_json(done: "Progress") -> None:
    print_json(
        {
            "table": done.table,
            "rows": done.rows,
            "through": done.through,
            "lag": done.end - done.through,
            "seconds": round(done.seconds, 3),
        }
    )


def _summary(added: dict[str, int], through: int, seconds: float) -> str:
    rows = ", ".join(f"{count} {name}" for name, count in added.items() if count) or "nothing new"
    return f"through event {through}: {rows} ({seconds:.1f} s)"


def _books(found: dict[str, Any]) -> str:
    if found["balanced"] is None:
        counts = "intended {intended}, acked {acked}, should wait {expected_waiting}, expired {expired}, dead {dead}"
        return f"audit: {counts.format_map(found)}; nobody has looked into the stores"
    verdict = "balanced" if found["balanced"] else "NOT balanced: SELECT * FROM findings"
    counts = "intended {intended} = acked {acked} + waiting {waiting} + expired {expired} + dead {dead}"
    return f"audit: {counts.format_map(found)}; {verdict}"


@app.command()
def status(data: DataOption = DEFAULT_DATA, json: Json = False) -> None:
    """How far each table is behind the log, how large it is, and who writes to it now."""
    _require_log(data)
    from pixiu.pipeline.session import require_packages

    require_packages()
    from pixiu.pipeline.status import status_of

    found = status_of(data)
    if json:
        print_json(found)
        return
    tables: list[dict[str, Any]] = found["tables"]
    print_rows(
        ("table", "through event", "behind", "rows", "files", "size"),
        [
            (each["table"], each["through"], each["lag"], each["rows"], each["files"], bytes_text(each["bytes"]))
            for each in tables
        ],
        empty=f"no tables yet; make them with: pixiu pipeline run --once --data {data}",
    )
    running = f"a pipeline runs (pid {found['pid']})" if found["pid"] else "no pipeline runs"
    print(f"the log is at event {found['log']}; {running}")


@app.command()
def compact(
    data: DataOption = DEFAULT_DATA,
    spark_url: SparkUrl = "local[*]",
    keep: Annotated[
        str, typer.Option("--keep", metavar="T", help="Keep replaced files this long, for readers that still use them.")
    ] = "7d",
    json: Json = False,
) -> None:
    """Make small files into large ones, fold receipts in, and remove files that nobody needs any more."""
    _require_log(data)
    hours = parse_duration_ms(keep) // 3_600_000
    from pixiu.pipeline.session import open_session, require_spark

    require_spark()
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.runner import Pipeline

    with Pipeline(data, lambda: open_session(Place(data).work, spark_url=spark_url)) as pipeline:
        try:
            done = pipeline.compact(vacuum_hours=hours)
        finally:
            pipeline.stop()
    rows = [(each.table, each.files_before, each.files_after, each.rewritten) for each in done]
    if json:
        print_json([dict(zip(("table", "before", "after", "rewritten"), row, strict=True)) for row in rows])
    else:
        print_rows(("table", "files before", "files after", "rewritten"), rows)


app.command("erase")(erase)
app.command("rebuild")(rebuild)


def _require_log(data: Path) -> None:
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
