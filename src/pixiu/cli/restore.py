"""``pixiu restore``: a data directory from a backup."""

from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.backup import print_backup
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import progress
from pixiu.model.errors import CorruptData
from pixiu.queue.storage.verify import Verifier
from pixiu.runtime.backup import read_manifest
from pixiu.runtime.backup import restore as restore_files
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog=examples("pixiu restore monday --data restored"))
def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `pixiu backup` wrote.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The new data directory.")] = DEFAULT_DATA,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Also one whose records are damaged, to mend what can be mended.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a backup and every record in it, copy it into a new data directory, and verify the result."""
    read_manifest(folder)
    with DataDirectory.open(data), progress("restoring", None) as bar:
        found = restore_files(folder, data, bar.advance, takes_damaged=damaged)
        faults = Verifier(SystemFiles(data), bar.advance).run().faults
    if faults and not damaged:
        raise CorruptData(f"restored, but {faults[0]}; see: pixiu queue verify --data {data}")
    print_backup("restored", found, str(data), as_json=json, faults=faults)
    if faults:
        raise typer.Exit(1)
    if not json:
        print(f"Start it with: pixiu serve --data {data}")
