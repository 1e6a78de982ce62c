"""``pixiu role NAME``: one role of a cluster as a process of its own."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.streams import announce
from pixiu.config.engines import EMBEDDED
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from pixiu.node.serving import Running

__all__ = ["ROLES", "RoleOrders", "app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class RoleOrders:
    """What the command line says, the same for every role."""

    name: str
    registry: RegistryAddress
    partition: int
    partitions: int | None
    bind: str
    port: int
    data: Path | None
    secret_file: Path | None
    assignments: tuple[str, ...]
    as_json: bool
    replica: int | None = None
    """Of a shard."""

    def say_ready(self, address: str, **more: object) -> None:
        """Tell whoever started this where it listens."""
        if self.as_json:
            row = {"role": self.name, "partition": self.partition, "address": address, **more}
            announce(json.dumps(row))
        else:
            words = [f"{self.name} listening on {address}", *(f"{key}={value}" for key, value in more.items())]
            announce(" ".join(words))


def _shard(orders: RoleOrders) -> int:
    """A replica of a shard: the log, the stores made from it, and what users do."""
    from pixiu.cli.serve import read_settings
    from pixiu.node.logs import is_kafka, noted_log
    from pixiu.node.processes.cluster_secrets import read_secrets
    from pixiu.node.processes.shard import SHARD_DEFAULTS, run_shard

    if orders.data is None:
        raise ConfigError("a shard keeps its log and its stores in a folder: name it with --data")
    options = {**SHARD_DEFAULTS, "queue.host": orders.bind, "queue.port": orders.port, "http.host": orders.bind}
    if orders.replica is not None:
        options["replication.name"] = f"{orders.name}-{orders.partition}-{orders.replica}"
        options["queue.node_id"] = orders.replica
    settings = read_settings(None, options, list(orders.assignments))
    settings = replace(settings, http=replace(settings.http, port=settings.links.admin_port))
    if not is_kafka(settings) and (noted := noted_log(orders.data)):
        raise ConfigError(
            f"the log of this shard is in Kafka ({orders.data} has applied it), and the replicas' own log would have "
            f"other events. Start with --set log={noted}, or use another registry path and other folders"
        )

    def ready(running: "Running") -> None:
        orders.say_ready(running.queue_address, admin=f"http://{running.http_address}", pid=os.getpid())

    return run_shard(
        settings, orders.registry, shard=orders.partition, hub_port=settings.links.hub_port, data=orders.data,
        secrets=read_secrets(orders.secret_file), secret_file=orders.secret_file, on_ready=ready,
    )  # fmt: skip


def _rooms(orders: RoleOrders) -> int:
    """The roles that live rooms are made of."""
    from pixiu.cli.serve import read_settings
    from pixiu.node.processes.options import RoleOptions
    from pixiu.node.processes.rooms import run_role

    options = RoleOptions(
        role=orders.name, registry=orders.registry, partition=orders.partition, partitions=orders.partitions or 1,
        bind=orders.bind, port=orders.port, data=orders.data or Path("pixiu-data"), secret_file=orders.secret_file,
        settings=read_settings(None, {}, list(orders.assignments)), started=orders.say_ready,
    )  # fmt: skip
    return run_role(options)


ROLES: Mapping[str, Callable[[RoleOrders], int]] = {
    "shard": _shard,
    "proxy": _rooms,
    "broker": _rooms,
    "router": _rooms,
    "relay": _rooms,
    "gateway": _rooms,
    "probe": _rooms,
    "meta": _rooms,
}
"""A role's name, and what runs it until it is told to stop. Returns the exit code."""


@app.command(
    epilog=examples(
        "pixiu role shard --replica 0 --registry zk://127.0.0.1:2181/pubsub --data shard-0",
        "pixiu role gateway --registry zk://127.0.0.1:2181/pubsub --port 8401",
    )
)
def role(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(ROLES)}.")],
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="zk://HOST:PORT[,…]/PATH", help="The cluster's registry (or engines.registry)."
        ),
    ] = None,
    partition: Annotated[int, typer.Option("--partition", metavar="K", min=0, help="The partition to serve.")] = 0,
    shard: Annotated[int | None, typer.Option("--shard", metavar="K", min=0, help="Of a shard: its number.")] = None,
    replica: Annotated[
        int | None,
        typer.Option("--replica", metavar="R", min=0, max=31, help="Of a shard: which of its replicas this is."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", min=1, help="How many there are, if nobody has said yet.")
    ] = None,
    bind: Annotated[str, typer.Option("--bind", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")] = 0,
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of what this role keeps.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", metavar="FILE", help="The cluster's secret, in a file.")
    ] = None,
    grpc: Annotated[
        int | None,
        typer.Option("--grpc", metavar="PORT", help="Of a gateway: a port for gomsg's gRPC clients."),
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say where it listens as JSON.")] = False,
) -> None:
    """Run one role of a cluster; who its peers are, it learns from the registry."""
    if name not in ROLES:
        raise ConfigError(f"there is no role {name!r}; there are: {', '.join(ROLES)}")
    if grpc is not None:
        if name != "gateway":
            raise ConfigError(f"--grpc is for gateways, not for the role {name}")
        assignments = [*(assignments or ()), f"gateway.grpc_port={grpc}"]
    if name != "shard" and (shard is not None or replica is not None):
        raise ConfigError(f"--shard and --replica are for the role shard, not for the role {name}")
    if name == "shard" and (shard or partition):
        raise ConfigError(f"--shard {shard or partition}: a cluster has one shard, number 0, until shards can be added")
    orders = RoleOrders(
        name, _find_registry(name, registry, list(assignments or ())), shard or partition, partitions, bind, port, data,
        secret_file, tuple(assignments or ()), as_json, replica,
    )  # fmt: skip
    raise typer.Exit(ROLES[name](orders))


def _find_registry(role: str, option: str | None, assignments: list[str]) -> RegistryAddress:
    """Where the option or the settings say. What a role would not heed is refused."""
    from pixiu.cli.serve import read_settings

    settings = read_settings(None, {}, assignments)
    engines = settings.engines
    if settings.door.redis:
        raise ConfigError("roles have no door to a Redis stream: leave door.redis out, or take pixiu serve")
    if settings.gateway.processes:
        raise ConfigError(
            f"a role is one process: leave gateway.processes={settings.gateway.processes} out, and start more gateways"
        )
    for key in ("log", "store", "timelines"):
        if role != "shard" and getattr(engines, key) != EMBEDDED:
            raise ConfigError(f"of a cluster's roles only shards have a log and stores: leave engines.{key} out")
    place = option or engines.registry
    if not place:
        raise ConfigError("name the cluster's registry: --registry zk://HOST:PORT/PATH, or engines.registry")
    return RegistryAddress.parse(place)
