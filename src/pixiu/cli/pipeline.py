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
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json, hours_of, parse_duration_ms
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.cli.rebuilding import rebuild, rebuild_to
from pixiu.cli.waiting import take_cut
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError, Conflict, NotFound
from pixiu.runtime.log_note import has_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.pipeline.lake.feed import Progress
    from pixiu.pipeline.search.steps import Sink
    from pixiu.pipeline.turns import Turn, Turns

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

RebuildTarget = Annotated[
    str | None, typer.Option("--to", metavar="TARGET", help="With the job rebuild alone: as of pixiu pipeline rebuild.")
]

Memory = Annotated[
    str,
    typer.Option("--memory", metavar="SIZE", help="The most that Spark's Java takes, such as 2g for a large backfill."),
]


@app.command(epilog=examples("pixiu pipeline run --once", "pixiu pipeline run archive usage --every 1m"))
def run(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]…", help="Only these.  [default: all]")] = None,
    once: Annotated[bool, typer.Option("--once", help="Take in what is there now, and end.")] = False,
    every: Annotated[str | None, typer.Option("--every", metavar="T", help="Again and again, such as 1m.")] = None,
    audit_every: Annotated[
        str | None,
        typer.Option("--audit-every", metavar="T", help="With --every: the audit, too, this often.  [default: never]"),
    ] = None,
    data: DataOption = DEFAULT_DATA,
    spark_url: SparkUrl = "local[*]",
    sink: Annotated[
        SearchSink, typer.Option("--sink", help="Where the job search puts messages: the embedded index, or a server.")
    ] = SearchSink.EMBEDDED,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The OpenSearch-compatible server of --sink opensearch.")
    ] = None,
    index: Annotated[str, typer.Option("--index", metavar="NAME", help="Its index there.")] = "pixiu-messages",
    memory: Memory = "1g",
    to: RebuildTarget = None,
    json: Json = False,
    until_idle: Annotated[str, typer.Option("--until-idle", metavar="T", hidden=True)] = "0s",
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Bring the tables up to the log. The server may run meanwhile.

    A run that was killed, at any point, is taken up where the tables are. A second one meanwhile is refused;
    between the runs of --every the tables are free for others.
    """
    if to is not None or "rebuild" in (jobs or ()):
        if to is None or jobs != ["rebuild"]:
            raise ConfigError("write: pixiu pipeline run rebuild --to TARGET; it runs alone")
        return rebuild_to(to, data, every=every, spark_url=spark_url, json=json)
    if once == (every is not None):
        raise ConfigError("say --once, or --every with a time such as 1m")
    if audit_every is not None and every is None:
        raise ConfigError("--audit-every goes with --every")
    if supervised:
        from pixiu.cli.supervised import obey_parent

        obey_parent()
    _require_log(data)
    from pixiu.pipeline.session import require_packages, require_spark

    open_sink = _open_sink(sink, url, index, jobs)
    if jobs == ["search"]:
        require_packages()  # it reads what is archived, and needs no Java
    else:
        require_spark()
    from pixiu.pipeline.turns import Turns

    turns = Turns(
        data,
        jobs or (),
        spark_url=spark_url,
        memory=memory,
        tell=_tell_json if json else _tell,
        warn=lambda text: print(f"pixiu: {text}", file=sys.stderr, flush=True),
        take_cut=take_cut,
        open_sink=open_sink,
        audit_every_s=None if every is None or jobs else parse_duration_ms(audit_every or "0s") / 1000,
    )
    try:
        if every is None:
            _one_run(turns, json=json)
        else:
            idle_s = parse_duration_ms(until_idle) / 1000
            _keep_running(turns, parse_duration_ms(every) / 1000, idle_s, json=json, is_patient=supervised)
    finally:
        turns.close()


def _one_run(turns: "Turns", *, json: bool) -> "Turn":
    begins = (lambda: print_json({"begins": True})) if json else (lambda: None)
    with progress("reading the log", None):
        turn = turns.run(begins=begins)
    if json:
        told = {"added": turn.added, "through": turn.through, "seconds": round(turn.seconds, 3)}
        print_json(told | ({} if turn.audit is None else {"audit": turn.audit}))
    else:
        print(_summary(turn.added, turn.through, turn.seconds), flush=True)
        if turn.audit is not None:
            print(_books(turn.audit), flush=True)
    return turn


def _keep_running(turns: "Turns", every_s: float, idle_s: float, *, json: bool, is_patient: bool) -> None:
    """Until a signal comes, or nothing new did for so long. Another pipeline is waited for, if we were here before."""
    stopped = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopped.set())
    newest = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            turn = _one_run(turns, json=json)
            is_patient = True
            if any(turn.added.values()):
                newest = time.monotonic()
        except Conflict as error:
            if not is_patient:
                raise
            newest = time.monotonic()
            text = f"{error}; this run is left out"
            print_json({"busy": text}) if json else print(f"pixiu: {text}", file=sys.stderr, flush=True)
        now = time.monotonic()
        if idle_s and now - newest >= idle_s:
            return
        if stopped.wait(max(0.0, every_s - (now - began))):
            return


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
            f"{done.table}: {counted(done.rows, 'row')}, through event {done.through} of {done.end} "
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


@app.command(epilog=examples("pixiu pipeline status"))
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


@app.command(epilog=examples("pixiu pipeline report", "pixiu pipeline report --html report.html"))
def report(
    data: DataOption = DEFAULT_DATA,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts, whole in one file.")
    ] = None,
    json: Json = False,
) -> None:
    """Usage, latency, heat and audit, as the tables have them. Needs no Java."""
    if html is not None and json:
        raise ConfigError("say one of --html and --json")
    _require_log(data)
    from pixiu.pipeline.session import require_packages

    require_packages()
    from pixiu.pipeline.report.gather import gather

    found = gather(data)
    if json:
        print_json(found)
    elif html is not None:
        from pixiu.pipeline.report.page import report_page

        try:
            html.write_text(report_page(found), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {html}: {error.strerror or error}") from error
        print(f"wrote {html}")
    else:
        from pixiu.pipeline.report.text import report_text

        print(report_text(found))


@app.command(epilog=examples("pixiu pipeline compact --keep 1d"))
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


app.command("erase", epilog=examples("pixiu pipeline erase bob", "pixiu pipeline erase bob --yes --json"))(erase)
app.command(
    "rebuild", epilog=examples("pixiu pipeline rebuild --to rebuilt", "pixiu pipeline rebuild --to rebuilt --check")
)(rebuild)


@app.command(epilog=examples("pixiu pipeline plan --partitions 2 --out plan.json"))
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
        print(f"{role['role']}: {role['from']} to {counted(role['to'], 'partition')} ({role['reason']})")
    if not found["virtual_rooms"] and not found["double"]:
        print("nothing to do: no room and no partition is above its bound")
    if out is not None:
        print(f"written to {out}")


@app.command(epilog=examples("pixiu pipeline backfill usage --from 2026-11-15"))
def backfill(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[MART]…", help="usage, heat or latency.  [default: all]")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="DAY|EVENT", help="The first day.  [default: the archive's first]")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="DAY|EVENT", help="The last day.  [default: the archive's last]")
    ] = None,
    data: DataOption = DEFAULT_DATA,
    spark_url: SparkUrl = "local[*]",
    memory: Memory = "1g",
    json: Json = False,
) -> None:
    """Make the marts of some days again from the archive, in the place of what they hold of these days, at once.

    An event id stands for its day (UTC). How far a mart holds the log stays the same, and so do its other days.
    """
    _require_log(data)
    from pixiu.pipeline.session import open_session, require_spark

    require_spark()
    from pixiu.pipeline.jobs.backfill import backfill, day_of_text, days_of_archive
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.lake.schema import MART_SCHEMAS
    from pixiu.pipeline.runner import Pipeline

    unknown = sorted(set(names or ()) - MART_SCHEMAS.keys())
    if unknown:
        raise ConfigError(f"there is no mart {unknown[0]!r}; there are: {', '.join(MART_SCHEMAS)}")
    oldest, newest = days_of_archive(data)
    first = oldest if since is None else day_of_text(data, "--from", since)
    last = newest if until is None else day_of_text(data, "--to", until)
    if not oldest <= first <= last:
        raise ConfigError(f"from {first} to {last} cannot be made: the archive has {oldest} to {newest}")
    with Pipeline(data, lambda: open_session(Place(data).work, spark_url=spark_url, memory=memory)) as pipeline:
        try:
            with progress("making them again", None):
                done = [backfill(pipeline, name, first, last) for name in MART_SCHEMAS if not names or name in names]
        finally:
            pipeline.stop()
    rows = [(each.mart, str(first), str(last), each.rows_before, each.rows_after) for each in done]
    columns = ("mart", "first day", "last day", "rows before", "rows after")
    if json:
        keys = ("mart", "from", "to", "rows_before", "rows_after")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_rows(columns, rows)


def _require_log(data: Path) -> None:
    if not has_log(data):
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
