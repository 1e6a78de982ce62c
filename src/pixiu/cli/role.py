"""``pixiu role NAME``: one role of a cluster as a process of its own."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.serve import Assignments, Config, Data, read_settings
from pixiu.model.errors import ConfigError

__all__ = ["ROLES", "app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

ROLES = {
    "proxy": "pixiu.node.role_process:run_role",
    "broker": "pixiu.node.role_process:run_role",
    "router": "pixiu.node.role_process:run_role",
    "gateway": "pixiu.node.role_process:run_role",
}
"""Who runs which role: a function of ``RoleOptions`` that returns the exit code, imported when it is asked for."""


@app.command()
def role(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(ROLES)}.")],
    registry: Annotated[str, typer.Option(metavar="zk://HOST:PORT[,…][/PATH]", help="Where the cluster is.")],
    partition: Annotated[int, typer.Option(metavar="K", min=0, max=255, help="Which part of the role this is.")] = 0,
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, max=256, help="How many parts, if nobody has said so yet.")
    ] = 1,
    bind: Annotated[str, typer.Option(metavar="HOST", help="Where others reach it.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="P", min=0, max=65535, help="Of a gateway: for clients. 0 picks a free one.")
    ] = 0,
    data: Data = Path("pixiu-data"),
    secret_file: Annotated[
        Path | None, typer.Option(metavar="F", help="The cluster's secret, one per line; two while it changes.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what started as JSON.")] = False,
) -> None:
    """Run one role of a cluster until SIGTERM; then it drains and leaves."""
    if name not in ROLES:
        raise ConfigError(f"there is no role {name!r}; there is {', '.join(ROLES)}")
    from pixiu.node.role_options import RoleOptions

    module, _, function = ROLES[name].partition(":")
    options = RoleOptions(
        role=name, registry=registry, partition=partition, partitions=partitions, bind=bind, port=port, data=data,
        secret_file=secret_file, settings=read_settings(config, {}, assignments or []),
        started=print_json if as_json else print_line,
    )  # fmt: skip
    raise typer.Exit(getattr(importlib.import_module(module), function)(options))


def print_json(said: Mapping[str, object]) -> None:
    """One line for scripts."""
    typer.echo(json.dumps(said))


def print_line(said: Mapping[str, object]) -> None:
    """One line for people."""
    typer.echo(" ".join(f"{key}={value}" for key, value in said.items()))
