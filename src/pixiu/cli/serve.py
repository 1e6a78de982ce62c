"""``pixiu serve``: everything in one process."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.banner import Doors, print_addresses, print_banner, when_charts_come
from pixiu.cli.examples import examples
from pixiu.config import Settings, load_settings, parse_assignment
from pixiu.model.errors import ConfigError
from pixiu.model.hosts import is_loopback

__all__ = ["app", "read_settings", "run_server"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

SMSS = "smss://"
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where everything is kept.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", envvar="PIXIU_CONFIG", help="A file of settings (TOML)."),
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
]
Flush = Annotated[
    str | None,
    typer.Option(metavar="none|interval|always", help="When records reach the disk.  [default: always]"),
]
Follow = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Copy that leader instead of leading.")]
SecretFile = Annotated[
    str | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="The cluster's secret; with --follow on one machine, node.key of the leader's data directory.",
    ),
]
Gateways = Annotated[
    int | None,
    typer.Option(metavar="N", help="Processes that hold the clients' connections; 0 is this one.  [default: 0]"),
]
Event = Annotated[int, typer.Option(metavar="N", min=0, help="With --follow: the last event id that is here already.")]
ReadyJson = Annotated[bool, typer.Option("--json", help="Say where it listens as one line of JSON.")]
NoPipeline = Annotated[
    bool, typer.Option("--no-pipeline", help="Make no tables and charts beside it (setting pipeline.enabled).")
]


@app.command(epilog=examples("pixiu serve --dev", "pixiu serve --config pixiu.toml --data /var/lib/pixiu"))
def serve(
    data: Data = Path("pixiu-data"),
    port: Annotated[int | None, typer.Option("--port", help="HTTP port; 0 picks a free one.  [default: 8400]")] = None,
    queue_port: Annotated[
        int | None, typer.Option("--queue-port", help="Queue port; 0 picks a free one.  [default: 12301]")
    ] = None,
    dev: Annotated[bool, typer.Option("--dev", help="For this machine alone: loopback only.")] = False,
    flush: Flush = None,
    gateways: Gateways = None,
    grpc: Annotated[
        int | None, typer.Option("--grpc", metavar="PORT", help="Serve gomsg's gRPC clients; 0 picks a free port.")
    ] = None,
    follow: Follow = None,
    secret_file: SecretFile = None,
    event: Event = 0,
    no_pipeline: NoPipeline = False,
    config: Config = None,
    assignments: Assignments = None,
    json: ReadyJson = False,
) -> None:
    """Start Pixiu: the queue, messaging over WebSocket and HTTP, health and metrics.

    With --dev users are made when they are first named, and there is a key for tokens; without it you make both.
    """
    options = {
        "http.port": port, "queue.port": queue_port, "journal.flush": flush, "gateway.processes": gateways,
        "gateway.grpc_port": grpc, "replication.secret_file": secret_file,
        "pipeline.enabled": False if no_pipeline else None,
    }  # fmt: skip
    settings = read_settings(config, options, assignments or [])
    if settings.engines.registry:
        raise ConfigError("pixiu serve is a node of its own: leave engines.registry out, or run pixiu role … there")
    raise typer.Exit(
        run_server(settings, data=data, dev=dev, http=True, follow=follow, follow_event=event, as_json=json)
    )


def read_settings(config: Path | None, options: Mapping[str, object | None], assignments: list[str]) -> Settings:
    """The settings of a command. An option that was not given (None) changes nothing."""
    overrides = {key: value for key, value in options.items() if value is not None}
    overrides.update(parse_assignment(text) for text in assignments)
    return load_settings(config, environ=os.environ, overrides=overrides)


def run_server(
    settings: Settings,
    *,
    data: Path,
    dev: bool,
    http: bool,
    follow: str | None = None,
    follow_event: int = 0,
    as_json: bool = False,
) -> int:
    """Run a node until it is told to stop. Return its exit code."""
    follows_smss = follow is not None and follow.startswith(SMSS)
    if follows_smss and http:
        raise ConfigError("pixiu serve cannot follow an smss master: use pixiu queue serve --follow smss://HOST:PORT")
    if follow_event and (follow is None or follows_smss):
        raise ConfigError("--event says where a follower begins: it goes with --follow")
    if dev:
        for key, host in (("queue.host", settings.queue.host), ("http.host", settings.http.host)):
            if not is_loopback(host):
                raise ConfigError(f"{key} is {host}, and --dev is for loopback only; leave one of them out")
    from pixiu.node import run_node

    leader = None if follow is None else parse_address("--follow", follow.removeprefix(SMSS))
    if leader is not None and not follows_smss and not settings.replication.secret_file:
        settings = _with_key_of_default(settings, *leader)
    return run_node(
        settings,
        data=data,
        dev=dev,
        http=http,
        follow=leader,
        follows_smss=follows_smss,
        follow_event=follow_event,
        on_ready=print_addresses
        if as_json
        else partial(
            print_banner,
            leads=follow is None,
            charts=when_charts_come(settings.pipeline),
            doors=Doors.of(settings, is_dev=dev),
        ),
    )


def _with_key_of_default(settings: Settings, host: str, port: int) -> Settings:
    """Use node.key of ./pixiu-data if its server is the leader to follow; otherwise change nothing."""
    from pixiu.cli.queue.asking import DEFAULT_DATA
    from pixiu.runtime.datadir import NODE_KEY, find_server

    holder = find_server(DEFAULT_DATA)
    if holder is None or holder.address != f"{host}:{port}":
        return settings
    file = str(DEFAULT_DATA / NODE_KEY)
    return replace(settings, replication=replace(settings.replication, secret_file=file))


def parse_address(option: str, text: str) -> tuple[str, int]:
    """The host and port of ``HOST:PORT``, where the host may be in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{option} must be HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
