"""``pixiu restore``: a data directory from a backup."""

from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.backup import print_backup
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import progress
from pixiu.model.errors import CorruptData
from pixiu.queue.verify import Verifier
from pixiu.runtime.backup import read_manifest
from pixiu.runtime.backup import restore as restore_files
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `pixiu backup` wrote.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The new data directory.")] = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Check a backup, copy it into a new data directory, and verify the result."""
    read_manifest(folder)
    with DataDirectory.open(data), progress("restoring", None) as bar:
        found = restore_files(folder, data, bar.advance)
        report = Verifier(SystemFiles(data), bar.advance).run()
    if not report.is_sound:
        fault = report.faults[0]
        raise CorruptData(f"restored, but {fault.file} byte {fault.position} is damaged: {fault.reason}")
    print_backup("restored", found, str(data), as_json=json)
    if not json:
        print(f"Start it with: pixiu serve --data {data}")
