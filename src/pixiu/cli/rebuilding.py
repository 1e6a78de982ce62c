"""``pixiu pipeline rebuild``: the stores once more, from the log, and what is wrong with those of a node."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pixiu.cli.queue.asking import DEFAULT_DATA, Json, parse_duration_ms
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError, NotFound, Unavailable
from pixiu.runtime.datadir import DataDirectory, find_server
from pixiu.runtime.log_note import has_log

if TYPE_CHECKING:
    from pixiu.pipeline.lake.place import Place

__all__ = ["rebuild", "rebuild_to"]


def rebuild(
    to: Annotated[
        str, typer.Option("--to", metavar="TARGET", help="A folder, an empty redis://… or an empty cassandra://….")
    ],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The server's data directory.")] = DEFAULT_DATA,
    every: Annotated[
        str | None, typer.Option("--every", metavar="T", help="Keep them up with the log, such as 1m.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Then compare them with the stores of the node, which must not run.")
    ] = False,
    spark_url: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark computes.")] = "local[*]",
    json: Json = False,
) -> None:
    """Make the messaging stores again from the log: in bulk by Spark the first time, from there on what is new.

    The node may run meanwhile. FOLDER/stores can take the place of a stopped node's stores; an engine is taken over by
    the node when it is started with it. Exit code 1: --check has found bodies without ids, ids without bodies, wrong
    counts, or rows that differ.
    """
    rebuild_to(to, data, every=every, check=check, spark_url=spark_url, json=json)


def rebuild_to(
    to: str, data: Path, *, every: str | None = None, check: bool = False, spark_url: str = "local[*]", json: bool
) -> None:
    """What the command does, and the job ``rebuild`` of ``pixiu pipeline run``."""
    if every is not None and check:
        raise ConfigError("say --every or --check, not both")
    if not has_log(data):
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
    pause_s = parse_duration_ms(every) / 1000 if every is not None else 0.0
    from pixiu.pipeline.session import open_session, require_spark

    require_spark()
    from pixiu.pipeline.filling import is_engine
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.rebuilding import rebuild_store

    place = Place(data.resolve())
    if is_engine(to):
        if every is not None or check:
            raise ConfigError("--every and --check go with a folder: an engine is kept up by the node that has it")
        _fill(to, place, spark_url=spark_url, as_json=json)
        return
    folder = Path(to).resolve()
    while True:
        with progress("rebuilding", None):
            done = rebuild_store(
                lambda: open_session(place.work, spark_url=spark_url), place.data, folder,
                index_folder=place.index,
            )  # fmt: skip
        if json:
            print_json(asdict(done))
        else:
            rows = f"{counted(done.rows, 'row')} in {counted(done.files, 'bulk file')}"
            what = rows if done.is_bulk else f"{counted(done.rows, 'event')} applied"
            print(f"{done.folder}: through event {done.through}, {what}", flush=True)
        if every is None:
            break
        time.sleep(pause_s)
    if check and _check(place.data, folder / "stores", as_json=json):
        raise typer.Exit(1)


def _fill(target: str, place: "Place", *, spark_url: str, as_json: bool) -> None:
    """Fill an engine, and say how far it is while that goes on."""
    from pixiu.pipeline.filling import fill_engine
    from pixiu.pipeline.session import open_session

    def tell(text: str) -> None:
        if not as_json:
            print(text, flush=True)

    done = fill_engine(
        lambda: open_session(place.work, spark_url=spark_url), place.data, target, place.work,
        index_folder=place.index, tell=tell,
    )  # fmt: skip
    if as_json:
        print_json(asdict(done))
    else:
        print(f"{done.engine}: through event {done.through}, {counted(done.rows, 'row')}", flush=True)


def _check(data: Path, made: Path, *, as_json: bool) -> bool:
    """Print what differs. True if anything does."""
    holder = find_server(data)
    if holder is not None:
        raise Unavailable(f"a node runs on {data} (pid {holder.pid}): its stores cannot be compared; stop it first")
    from pixiu.node import cut_stopped
    from pixiu.pipeline.orphans import Finding, compare_stores

    with DataDirectory.open(data), progress("comparing", None):
        cut_stopped(data)  # brings them to the end of the log, as a start would do
        found = compare_stores(made, data / "stores")
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        print_rows(Finding._fields, list(found), empty="every row is as the log says")
    return bool(found)
