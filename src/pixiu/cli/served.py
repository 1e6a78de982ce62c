"""Commands that work on a data directory whether a server runs on it or not: where to ask, or what to open."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from pixiu.cli.queue.asking import DEFAULT_DATA
from pixiu.model.errors import ConfigError, NotFound, Unavailable
from pixiu.runtime.datadir import find_server

__all__ = ["FoundNode", "ServedData", "find_node"]

ServedData = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Of this data directory, served or not.  [default: pixiu-data]"),
]


class FoundNode(NamedTuple):
    """A node that was named by --data or --url."""

    directory: Path
    is_running: bool
    """Then it is asked over HTTP; otherwise its files are opened."""


def find_node(data: Path | None, url: str | None) -> FoundNode:
    """The node that the options mean. Raises what is wrong with them, or with it."""
    directory = data or DEFAULT_DATA
    if url is not None:
        if data is not None:
            raise ConfigError("say where once: --url or --data")
        return FoundNode(directory, is_running=True)
    holder = find_server(directory)
    if holder is not None and holder.http is None:
        raise Unavailable(
            f"a node without HTTP runs on {directory} (pid {holder.pid}): stop it first, or use pixiu serve"
        )
    if holder is None and not (directory / "queue").is_dir():
        raise NotFound(f"there is no log in {directory}; name its data directory with --data, or a server with --url")
    return FoundNode(directory, is_running=holder is not None)
