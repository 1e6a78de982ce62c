"""``pixiu pipeline``: from the log to tables."""

import signal
import sys
import threading
import time
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.erase import erase
from pixiu.cli.queue.asking import DEFAULT_DATA, Json, parse_duration_ms
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.model.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.pipeline.lake.feed import Progress
    from pixiu.pipeline.search.steps import Sink

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="From the log to tables: archive, search, audit, usage, latency, heat.",
)  # fmt: skip

DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="The server's data directory.")]


class SearchSink(StrEnum):
    """What messages are indexed by."""

    EMBEDDED = "embedded"
    OPENSEARCH = "opensearch"


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
    sink: Annotated[
        SearchSink, typer.Option("--sink", help="Where the job search puts messages: the embedded index, or a server.")
    ] = SearchSink.EMBEDDED,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The OpenSearch-compatible server of --sink opensearch.")
    ] = None,
    index: Annotated[str, typer.Option("--index", metavar="NAME", help="Its index there.")] = "pixiu-messages",
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
    from pixiu.pipeline.session import open_session, require_packages, require_spark

    open_sink = _open_sink(sink, url, index, jobs)
    if jobs == ["search"]:
        require_packages()  # it reads what is archived, and needs no Java
    else:
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
        open_sink=open_sink,
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


def _open_sink(sink: SearchSink, url: str | None, index: str, jobs: list[str] | None) -> "Callable[[], Sink] | None":
    """What makes the sink of the job search; None is the embedded index."""
    if sink is SearchSink.EMBEDDED:
        if url is not None:
            raise ConfigError("--url is for --sink opensearch")
        return None
    if url is None:
        raise ConfigError("--sink opensearch needs --url, such as http://127.0.0.1:9200")
    if jobs != ["search"]:
        raise ConfigError(
            "--sink opensearch is for the job search alone: pixiu pipeline run search --sink opensearch …"
        )

    def open_sink() -> "Sink":
        from pixiu.pipeline.search.opensearch import OpenSearchIndex

        return OpenSearchIndex(url, index)

    return open_sink


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
    keep_days: Annotated[
        int | None,
        typer.Option(
            "--keep-days", metavar="N", help="Let messages and ledgers of older days go.  [default: keep all]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make small files into large ones, fold receipts in, and remove files that nobody needs any more."""
    _require_log(data)
    hours = hours_of(keep)
    if keep_days is not None and keep_days < 1:
        raise ConfigError("--keep-days is a number of days, from 1 on")
    from pixiu.pipeline.session import open_session, require_spark

    require_spark()
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.runner import Pipeline

    with Pipeline(data, lambda: open_session(Place(data).work, spark_url=spark_url)) as pipeline:
        try:
            done = pipeline.compact(vacuum_hours=hours, keep_days=keep_days)
        finally:
            pipeline.stop()
    rows = [(each.table, each.files_before, each.files_after, each.rewritten) for each in done]
    if json:
        print_json([dict(zip(("table", "before", "after", "rewritten"), row, strict=True)) for row in rows])
    else:
        print_rows(("table", "files before", "files after", "rewritten"), rows)


app.command("erase")(erase)


@app.command()
def plan(
    data: DataOption = DEFAULT_DATA,
    partitions: Annotated[int, typer.Option("--partitions", metavar="N", help="Of each role now.")] = 1,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="Look at the newest of them.")] = 7,
    room_members: Annotated[
        int | None, typer.Option("--room-members", metavar="N", min=1, help="Sessions that one room may have.")
    ] = None,
    room_deliveries: Annotated[
        int | None, typer.Option("--room-deliveries", metavar="N", min=1, help="Deliveries of a room per second.")
    ] = None,
    broker_deliveries: Annotated[
        int | None,
        typer.Option("--broker-deliveries", metavar="N", min=1, help="Of a partition of brokers per second."),
    ] = None,
    relay_entries: Annotated[
        int | None, typer.Option("--relay-entries", metavar="N", min=1, help="Inbox entries of a partition per second.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan there.")] = None,
    json: Json = False,
) -> None:
    """Say which rooms should become virtual rooms and which role should double, and why.

    The file is what pixiu cluster split --plan takes. Nothing is changed. It needs no Java.
    """
    from pixiu.pipeline.session import require_packages

    require_packages()
    from pixiu.pipeline.plan import Bounds, plan_of

    given = {
        "room_members": room_members, "room_deliveries": room_deliveries, "broker_deliveries": broker_deliveries,
        "relay_entries": relay_entries,
    }  # fmt: skip
    bounds = Bounds(**{name: value for name, value in given.items() if value is not None})
    found = plan_of(data, partitions=partitions, bounds=bounds, days=days)
    if out is not None:
        try:
            out.write_text(dumps(found, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from error
    if json:
        print_json(found)
        return
    for room in found["virtual_rooms"]:
        print(f"room {room['room']}: {room['slices']} virtual rooms ({room['reason']})")
    for role in found["double"]:
        print(f"{role['role']}: {role['from']} to {role['to']} partitions ({role['reason']})")
    if not found["virtual_rooms"] and not found["double"]:
        print("nothing to do: no room and no partition is above its bound")
    if out is not None:
        print(f"written to {out}")


def hours_of(keep: str) -> int:
    """A time as whole hours, which is what Delta counts in; rounded up, so that nothing goes before its time."""
    return -(-parse_duration_ms(keep) // 3_600_000)


def _require_log(data: Path) -> None:
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
