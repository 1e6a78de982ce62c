"""``pixiu rebuild``: every messaging store from the log alone."""

from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json, progress
from pixiu.cli.serve import Assignments, Config, read_settings
from pixiu.model.counted import counted
from pixiu.model.errors import NotFound, Unavailable
from pixiu.runtime.collector import spare_the_collector
from pixiu.runtime.datadir import DataDirectory, find_server

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog=examples("pixiu rebuild --data pixiu-data"))
def rebuild(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Of this data directory.")] = DEFAULT_DATA,
    config: Config = None,
    assignments: Assignments = None,
    json: Json = False,
) -> None:
    """Throw the inboxes, bodies, timelines and rosters of a stopped node away, and make them again from its log.

    Where the settings name another engine for some of them, that is emptied and filled, too.
    """
    settings = read_settings(config, {}, assignments or [])
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
    holder = find_server(data)
    if holder is not None:
        raise Unavailable(f"a node runs on {data} (pid {holder.pid}); stop it first")
    from pixiu.node.engines import rebuild_engines

    spare_the_collector()
    with DataDirectory.open(data), progress("rebuilding", None) as bar:
        skipped = rebuild_engines(settings.engines, data, bar.advance_to)
    if json:
        print_json({"data": str(data), "skipped": skipped})
    else:
        print(
            f"rebuilt the stores of {data} from its log"
            + (f"; {counted(skipped, 'record')} made no sense" if skipped else "")
        )
