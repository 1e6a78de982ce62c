"""``pixiu queue import``: the data of a stopped smss server."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.cli.serve import Assignments, Config, read_settings
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.smss_files import SmssFiles

__all__ = ["register"]


def import_(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of smss's setting store.path.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="An empty data directory.")] = DEFAULT_DATA,
    config: Config = None,
    assignments: Assignments = None,
    json: Json = False,
) -> None:
    """Copy topics, messages and delayed messages of a stopped smss server, with their event ids."""
    from pixiu.node.smss_import import import_smss

    settings = read_settings(config, {}, assignments or [])
    size = SmssFiles(source).journal_bytes
    with DataDirectory.open(data), progress("importing", size) as bar:
        done = import_smss(source, data, settings, bar.advance)
    if json:
        print_json(asdict(done))
        return
    print_rows(
        ("what", "count"),
        [("topics", done.topics), ("messages", done.messages), ("delayed", done.delayed), ("skipped", done.skipped)],
    )
    print(f"events {done.first_event_id} to {done.last_event_id} are in {data}")
    if done.without_create:
        print(f"permanent, because smss no longer has their creation: {', '.join(done.without_create)}")
    if done.cut_off:
        print(f"the last record was not whole and is left out: {done.cut_off}")
    print(f"Start it with: pixiu queue serve --data {data}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import", epilog=examples("pixiu queue import /var/lib/smss/data --data pixiu-data"))(import_)
