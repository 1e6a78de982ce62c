"""The file that describes a cluster on one machine: ``pixiu cluster up FILE``.

::

    name = "demo"
    zookeeper = { nodes = 3 }                 # or "zk://10.0.0.1:2181,10.0.0.2:2181/pubsub"

    [roles.queue]
    replicas = 3
    port = 12311                              # the first one's; the others take the next ones
    settings = { "replication.min_isr" = 2 }

    [engines]                                 # docs/engines.md
    store = "redis://127.0.0.1:6379"          # of the carriers
    timelines = "cassandra://127.0.0.1/chatdata"
    log = "kafka://127.0.0.1:9092"            # of the queue: its processes own it in turn

What is unknown, of the wrong type or out of bounds is refused with a line that names the key.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pixiu.config import load_settings
from pixiu.config.engines import EMBEDDED, EngineSettings
from pixiu.config.registry import ROOT, RegistryAddress
from pixiu.model.errors import ConfigError
from pixiu.model.hints import nearest

__all__ = ["NODE_ROLE", "PORT_KEYS", "ROLE_NAMES", "ClusterFile", "RolePlan", "read_cluster_file"]

NODE_ROLE = "node"
"""Not a role of its own: the whole of Pixiu in one process (``pixiu serve``), with the console."""

SHARD = "shard"
RETIRED = ("queue", "carrier")
"""Roles of earlier versions. A shard does what they did."""
ROLE_NAMES = (SHARD, "proxy", "broker", "router", "relay", "gateway", "probe", "meta", NODE_ROLE)
"""What a file may ask for."""
PARTITIONS_MAX = 256
REPLICAS_MAX = 32
SHARD_REPLICAS_MAX = 9
PROCESSES_MAX = 512
ZOOKEEPER_MAX = 9
ENGINES = ("store", "timelines", "log")
"""Engines that the shards of a cluster may have; its registry is ZooKeeper."""
PORT_KEYS = ("links.admin_port", "links.hub_port", "gateway.tcp_port", "gateway.grpc_port")
"""Settings that name one port, which only one process of a machine can have; 0 picks a free one."""
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How many processes of one role there are, and with which settings."""

    role: str
    partitions: int = 1
    replicas: int = 1
    port: int = 0
    """The first one's; 0 picks free ones, which then stay."""
    bind: str = "127.0.0.1"
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster as its file describes it."""

    name: str
    roles: tuple[RolePlan, ...]
    zookeeper_nodes: int
    """How many servers to start; 0: there is an ensemble already."""
    registry: RegistryAddress | None
    """Where that is."""
    root: str = ROOT
    data: str = ""
    """Folder of everything; empty: as the command line says."""
    secret: str = ""
    """Empty: one is made and kept in the folder."""
    engines: EngineSettings = field(default_factory=EngineSettings)
    """Where shards have their stores and their log."""

    def log_of(self, plan: RolePlan) -> str:
        """Where the processes of a role would have the log: what the role itself says counts."""
        return str(plan.settings.get("engines.log", self.engines.log))


def read_cluster_file(path: Path) -> ClusterFile:
    """Read and check a file. Raises ``ConfigError``."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        return _cluster(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _cluster(content: dict[str, Any]) -> ClusterFile:
    _only(content, {"name", "secret", "data", "zookeeper", "roles", "engines"}, "")
    name = _text(content, "name", "pixiu")
    if not NAME.fullmatch(name):
        raise ConfigError(f"name must be small letters, digits, - and _, not {name!r}")
    secret = _text(content, "secret", "")
    if secret and len(secret) < 16:
        raise ConfigError("secret must have at least 16 characters")
    if secret.startswith("#") or len(secret.splitlines()) > 1 or secret != secret.strip():
        raise ConfigError("secret must be one line, without spaces around it, that does not begin with #")
    nodes, registry, root = _zookeeper(content.get("zookeeper", {"nodes": 1}))
    roles = content.get("roles", {})
    if not isinstance(roles, dict) or not roles:
        raise ConfigError("there are no roles: write, for example, [roles.shard] with replicas = 3")
    plans = tuple(_role(role, table) for role, table in roles.items())
    count = nodes + sum(plan.partitions * plan.replicas for plan in plans)
    if count > PROCESSES_MAX:
        raise ConfigError(f"these are {count} processes, at most {PROCESSES_MAX} are started on one machine")
    engines = _engines(content.get("engines", {}), {plan.role for plan in plans})
    _check_ports(plans)
    cluster = ClusterFile(name, plans, nodes, registry, root, _text(content, "data", ""), secret, engines)
    if nodes:
        _check_whole(cluster)
    return cluster


def _engines(value: object, roles: set[str]) -> EngineSettings:
    """The engines of shards; each replica has rows of its own there."""
    if not isinstance(value, dict):
        raise ConfigError('engines is a table: [engines] with store = "redis://HOST:PORT"')
    _only(value, set(ENGINES), "engines.")
    if value and SHARD not in roles:
        raise ConfigError(f"engines.{next(iter(value))} is for shards, and there is no [roles.{SHARD}]")
    return EngineSettings(**{key: _text(value, key, EMBEDDED, "engines.") for key in value})


def _zookeeper(value: object) -> tuple[int, RegistryAddress | None, str]:
    """The number of servers to start, or where they run."""
    if isinstance(value, str):
        address = RegistryAddress.parse(value if "://" in value else f"zk://{value}")
        return 0, address, address.root
    if not isinstance(value, dict):
        raise ConfigError('zookeeper is { nodes = 3 } or "zk://HOST:PORT/PATH"')
    _only(value, {"nodes", "path"}, "zookeeper.")
    nodes = _number(value, "nodes", 1, "zookeeper.", 1, ZOOKEEPER_MAX)
    if nodes % 2 == 0:
        raise ConfigError(f"zookeeper.nodes must be odd: {nodes} bear no more losses than {nodes - 1}")
    root = RegistryAddress.parse(f"zk://localhost/{_text(value, 'path', ROOT).strip('/')}").root
    return nodes, None, root


def _role(role: str, table: object) -> RolePlan:
    where = f"roles.{role}."
    if not NAME.fullmatch(role) or not isinstance(table, dict):
        raise ConfigError(f"roles.{role} must be a table: [roles.shard]")
    if role in RETIRED:
        raise ConfigError(
            f"there is no role {role!r} any more: a shard is a replica of the log with its stores. Write [roles.shard] "
            "with the replicas and settings of roles.queue, and remove roles.queue and roles.carrier"
        )
    if role not in ROLE_NAMES:
        near = nearest(role, ROLE_NAMES)
        guess = f"; did you mean [roles.{near}]?" if near else ""
        raise ConfigError(f"there is no role {role!r}; there are: {', '.join(ROLE_NAMES)}{guess}")
    _only(table, {"partitions", "replicas", "port", "bind", "settings"}, where)
    partitions = _number(table, "partitions", 1, where, 1, PARTITIONS_MAX)
    if partitions & (partitions - 1):
        raise ConfigError(f"{where}partitions must be a power of two, not {partitions}")
    if role in (SHARD, NODE_ROLE) and partitions != 1:
        raise ConfigError(f"{where}partitions must be 1: a cluster has one shard, until shards can be added")
    if role == SHARD and _number(table, "replicas", 1, where, 1, REPLICAS_MAX) > SHARD_REPLICAS_MAX:
        raise ConfigError(f"{where}replicas must be 1 to {SHARD_REPLICAS_MAX}")
    replicas = _number(table, "replicas", 1, where, 1, REPLICAS_MAX)
    port = _number(table, "port", 0, where, 0, 65535)
    if port and port + partitions * replicas > 65536:
        raise ConfigError(f"{where}port leaves no room for {partitions * replicas} ports")
    settings = table.get("settings", {})
    if not isinstance(settings, dict) or any(isinstance(value, dict | list) for value in settings.values()):
        raise ConfigError(f'{where}settings must be like {{ "replication.min_isr" = 2 }}')
    try:
        load_settings(overrides=settings)  # what is wrong is said here, before anything is started
    except ConfigError as error:
        raise ConfigError(f"{where}settings: {error}") from None
    return RolePlan(role, partitions, replicas, port, _text(table, "bind", "127.0.0.1", where), settings)


def _check_ports(plans: tuple[RolePlan, ...]) -> None:
    """Refuse ports that two processes of this machine would want: one of them would never start."""
    taken: dict[int, str] = {}
    for plan in plans:
        count = plan.partitions * plan.replicas
        wanted = list(range(plan.port, plan.port + count)) if plan.port else []
        for key in PORT_KEYS:
            port = plan.settings.get(key, 0)
            wanted += [port] * count if isinstance(port, int) and port > 0 else []
        for port in wanted:
            if port in taken:
                raise ConfigError(
                    f"port {port} is wanted by roles.{taken[port]} and by roles.{plan.role}: "
                    "each process takes one, counting up from `port`; "
                    f"{', '.join(PORT_KEYS)} are those of one process"
                )
            taken[port] = plan.role


def _check_whole(cluster: ClusterFile) -> None:
    """With a ZooKeeper of its own a cluster is all that there is: refuse one that could accept nothing."""
    roles = {plan.role: plan for plan in cluster.roles}
    shard = roles.get(SHARD)
    if shard is None or cluster.log_of(shard) != EMBEDDED:
        return
    min_isr = shard.settings.get("replication.min_isr", 1)
    if isinstance(min_isr, int) and min_isr > shard.replicas:
        raise ConfigError(
            f"roles.shard.settings: replication.min_isr is {min_isr}, and there are {shard.replicas} replicas: "
            "nothing would ever be accepted"
        )


def _only(table: Mapping[str, object], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(f"there is no {where}{unknown[0]}; there are: {', '.join(sorted(known))}")


def _text(table: Mapping[str, object], key: str, default: str, where: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"{where}{key} must be a text, not {value!r}")
    return value


def _number(table: Mapping[str, object], key: str, default: int, where: str, low: int, high: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{where}{key} must be {low} to {high}, not {value!r}")
    return value
