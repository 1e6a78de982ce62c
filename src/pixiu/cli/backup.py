"""``pixiu backup``: a copy of a queue, running or not, with checksums."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.cli.serve import parse_address
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError, NotAllowed, NotFound
from pixiu.queue.storage.verify import Fault
from pixiu.runtime.backup import Backup, backup_running, backup_stopped, check, check_records
from pixiu.runtime.datadir import find_server, read_node_key

__all__ = ["app", "print_backup"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog=examples("pixiu backup monday", "pixiu backup tuesday --url 127.0.0.1:12301 --json"))
def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the backup.")],
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Back up this data directory.")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="HOST:PORT", help="Back up the queue there.")] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="With --url: the cluster's secret, or its node.key."),
    ] = None,
    json: Json = False,
) -> None:
    """Copy a queue to a folder while it runs, or from its files when it does not, and check the copy."""
    if data is not None and url is not None:
        raise ConfigError("say what to back up once: --data or --url")
    if url is not None:
        parse_address("--url", url)
    directory = data or DEFAULT_DATA
    if url is None and folder.resolve().is_relative_to(directory.resolve()) and directory.is_dir():
        raise ConfigError(f"{folder} is inside {directory}, and would be lost with it: name a folder elsewhere")
    holder = None if url is not None else find_server(directory)
    address = url if holder is None else holder.address
    from pixiu.node.logs import noted_log

    where = "" if url is not None else noted_log(directory)
    if where:
        raise NotAllowed(
            f"the log of {directory} is {where}: back it up there, with Kafka's own tools; the stores are made again "
            "from it (pixiu rebuild). The queue alone: --url HOST:PORT"
        )
    with progress("copying", None) as bar:
        if address is not None:
            backup_running(address, folder, bar.advance, key=_key(directory, holder is not None, secret_file))
        elif (directory / "queue").is_dir():
            from pixiu.node import stopped_snapshot

            backup_stopped(stopped_snapshot(directory), folder, bar.advance)
        else:
            raise NotFound(f"there is no queue in {directory}; name its data directory with --data")
    with progress("checking", None) as bar:
        found = check(folder, bar.advance)
        faults = check_records(folder, bar.advance)
    print_backup("backed up", found, str(folder), as_json=json, faults=faults)
    if faults:
        raise typer.Exit(1)


def _key(directory: Path, is_served: bool, secret_file: Path | None) -> str:
    """What the queue may want to see: the cluster's secret, or the key of the directory that it runs on."""
    if secret_file is not None:
        from pixiu.node.processes.cluster_secrets import queue_key, read_secrets

        return queue_key(read_secrets(secret_file), "")
    return read_node_key(directory) if is_served else ""


def print_backup(verb: str, found: Backup, where: str, *, as_json: bool, faults: Sequence[Fault] = ()) -> None:
    """What was done, in one line; and what is damaged."""
    if as_json:
        row = {"event_id": found.event_id, "epoch": found.epoch, "files": found.files, "bytes": found.bytes}
        damage = [asdict(fault) for fault in faults]
        print_json({**row, "folder": where, "verified": not faults, "faults": damage})
        return
    said = "DAMAGED" if faults else "every checksum right"
    print(
        f"{verb} everything through event {found.event_id}: "
        f"{counted(found.files, 'file')}, {bytes_text(found.bytes)}, {said}, in {where}"
    )
    if faults:
        print_rows(("file", "byte", "damage"), [(fault.file, fault.position, fault.reason) for fault in faults])
        print("The queue itself is damaged, and the copy is as it is: keep older backups, and see pixiu queue verify.")
