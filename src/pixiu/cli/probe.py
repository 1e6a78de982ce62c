"""``pixiu probe``: every way through a cluster's rooms, tried from here."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Json
from pixiu.cli.queue.output import print_json, print_rows
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path as FilePath

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

SLA = 0.99
"""The share of probes that must come back on every path."""
WARM_SECONDS = 5.0


@app.command(epilog=examples("pixiu probe --registry zk://127.0.0.1:2181/pubsub --secret-file pixiu-cluster/secret"))
def probe(
    registry: Annotated[
        str, typer.Option("--registry", metavar="zk://HOST:PORT[,…]/PATH", help="Where the cluster's registry is.")
    ],
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=1, max=3600, help="How long.")] = 10.0,
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST", help="Address that the cluster reaches.")
    ] = "127.0.0.1",
    secret_file: Annotated[
        str, typer.Option("--secret-file", metavar="FILE", help="The cluster's secret, in a file.")
    ] = "",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Send probes over every proxy, broker partition and replica, and show what came back.

    Exit code 1: on some path fewer than 99 of 100 came back, or there is none.
    """
    from pathlib import Path

    from pixiu.cli.serve import read_settings
    from pixiu.node.processes.cluster_end import read_secrets, secrets_of

    path: FilePath | None = Path(secret_file) if secret_file else None
    secrets = secrets_of(read_secrets(path), bind)
    settings = read_settings(None, {}, assignments or []).links
    found = asyncio.run(_probe(RegistryAddress.parse(registry), secrets, settings, bind, seconds))
    if json:
        print_json(found)
    else:
        columns = ("proxy", "partition", "copy", "broker", "probes", "success", "p50_ms", "p99_ms")
        print_rows(columns, [[row[column] for column in columns] for row in found["paths"]])
        for text in found["alarms"]:
            print(f"broken: {text}")
    if not found["paths"]:
        ask = "do they have this secret?" if secret_file else "if they have a secret, name it with --secret-file FILE"
        raise ConfigError(f"there is no path: no proxy and broker answer there; {ask}")
    if any(row["success"] is None or row["success"] < SLA for row in found["paths"]):
        raise typer.Exit(1)


async def _probe(registry: RegistryAddress, secrets: Any, settings: Any, bind: str, seconds: float) -> dict[str, Any]:
    from pixiu.machines.probes import ProbeRules
    from pixiu.machines.view import PeerState
    from pixiu.node.processes.cluster_end import ClusterEnd
    from pixiu.node.processes.watching import make_probe

    end = await ClusterEnd.open(registry, secrets, settings, bind=bind)
    try:
        probe, member = make_probe(end, ProbeRules(interval_ms=200))
        end.endpoint.state = PeerState.RUNNING
        end.directory.start()
        end.bigs.start()
        probe.start()
        member.register()
        await asyncio.sleep(WARM_SECONDS + seconds)
        probe.stop()
        found = {"paths": probe.rows(), "alarms": probe.alarm_texts()}
        left = asyncio.Event()
        member.leave(left.set)
        await asyncio.wait_for(left.wait(), 5)
    finally:
        await end.close()
    return found
