"""The folder of a cluster, and the processes that its file asks for.

::

    pixiu-cluster/
    ├── LOCK               held by the supervisor
    ├── cluster.json       names, pids, ports, doubled roles, and where the control socket is; ports stay over restarts
    ├── secret             the cluster's secret, readable by the owner alone
    ├── logs/NAME.log      what each process says
    ├── nodes/NAME/        what each process keeps
    └── run/control.sock
"""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pixiu
from pixiu.backends.kafka.address import parse_address
from pixiu.config.cluster import ENGINES, NODE_ROLE, PORT_KEYS, SHARD
from pixiu.config.engines import EMBEDDED
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError, NotFound
from pixiu.node.engines import engines_of_replica
from pixiu.runtime.binding import cannot_listen, why_not_bind
from pixiu.runtime.files import write_durably
from pixiu.runtime.ports import free_ports, hold_port
from pixiu.runtime.zookeeper import configure_server, server_command, what_zookeeper_needs

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from pixiu.config.cluster import ClusterFile, RolePlan

__all__ = ["STATE", "ChildPlan", "HeldPlaces", "Layout", "read_state"]

STATE = "cluster.json"
ZOOKEEPER = "zookeeper"
GATEWAYS = "gateway"
ENGINE_KEYS = ("store", "timelines", "engines.store", "engines.timelines")
ORDER = (ZOOKEEPER, SHARD)
"""What others need comes first; the rest in the order of the file."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """One process to keep alive."""

    name: str
    role: str
    partition: int
    replica: int
    command: tuple[str, ...]
    address: str
    """Where it listens."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Where else, each with the setting that says so; empty where the port was chosen."""
    min_others: int = 0
    """So many of its siblings must stay when it is drained."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings that not everybody on the machine should see: an address may hold a password."""


class Layout:
    """What a cluster needs in its folder, made ready."""

    def __init__(self, folder: Path, cluster: ClusterFile) -> None:
        """None of its processes runs yet. Raises ``ConfigError`` when this machine lacks what the file asks for."""
        self.folder = folder.absolute()
        self.cluster = cluster
        if cluster.zookeeper_nodes and (missing := what_zookeeper_needs()):
            raise ConfigError(f"the file asks for ZooKeeper servers, and {missing}")
        for name in ("logs", "nodes"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        state = read_state(self.folder)
        # A stored port stays, unless another process uses it now or the file names it for another process.
        taken = _asked_for(cluster)
        self._ports: dict[str, int] = {}
        for name, port in state.get("ports", {}).items():
            if port not in taken and why_not_bind("127.0.0.1", port, udp=True) is None:
                taken.add(port)
                self._ports[name] = port
        self.partitions: dict[str, int] = state.get("partitions", {})
        """Of roles that were doubled: so many, whatever the file says."""
        self.secret_file = self._keep_secret()
        self.plans = sorted(self._plans(), key=lambda plan: _rank(plan.role))

    @property
    def registry(self) -> RegistryAddress:
        """Where the cluster's registry is."""
        if self.cluster.registry is not None:
            return self.cluster.registry
        ports = [self._ports[f"{ZOOKEEPER}-{number}"] for number in range(1, self.cluster.zookeeper_nodes + 1)]
        return RegistryAddress(",".join(f"127.0.0.1:{port}" for port in ports), self.cluster.root)

    def log_path(self, name: str) -> Path:
        """What a process says."""
        return self.folder / "logs" / f"{name}.log"

    def write_state(self, **more: object) -> None:
        """Keep what other shells, and the next start, must know."""
        row = {"name": self.cluster.name, "ports": self._ports, "partitions": self.partitions, **more}
        write_durably(self.folder / STATE, json.dumps(row, indent=1) + "\n", mode=0o600)

    def role(self, name: str) -> RolePlan:
        """A role of the file, with as many partitions as it has by now. Raises ``NotFound``."""
        for plan in self.cluster.roles:
            if plan.role == name:
                return replace(plan, partitions=max(plan.partitions, self.partitions.get(name, 1)))
        raise NotFound(f"the cluster has no {name}; it has: {', '.join(plan.role for plan in self.cluster.roles)}")

    def half(self, role: str, first: int) -> list[ChildPlan]:
        """The processes of the new half of a role: its partitions from ``first`` to twice that."""
        plan = replace(self.role(role), partitions=2 * first)
        return [child for child in self._children(plan) if child.partition >= first]

    def _keep_secret(self) -> Path:
        path = self.folder / "secret"
        wanted = self.cluster.secret
        if not path.exists() or (wanted and path.read_text(encoding="utf-8").strip() != wanted):
            write_durably(path, (wanted or secrets.token_hex(32)) + "\n", mode=0o600)
        return path

    def _port(self, name: str, wanted: int = 0) -> int:
        """The port of this name: as the file says, or as stored, or a free one, which is then stored."""
        if wanted:
            self._ports[name] = wanted
        elif name not in self._ports:
            # The processes do not listen yet, so a chosen port still looks free.
            (self._ports[name],) = free_ports(1, avoid={*self._ports.values(), *_asked_for(self.cluster)})
        return self._ports[name]

    def _plans(self) -> Iterator[ChildPlan]:
        yield from self._zookeepers()
        for plan in self.cluster.roles:
            yield from self._children(self.role(plan.role))

    def _children(self, plan: RolePlan) -> Iterator[ChildPlan]:
        in_file = next(each for each in self.cluster.roles if each.role == plan.role)
        for index in range(plan.partitions * plan.replicas):
            partition, replica = divmod(index, plan.replicas)
            name = f"{plan.role}-{partition}-{replica}"
            # Those that a doubling has added take free ports: the next ones may be another role's.
            is_counted = plan.port and partition < in_file.partitions
            port = self._port(name, plan.port + index if is_counted else 0)
            command = self._serve(plan, name, port) if plan.role == NODE_ROLE else self._role(
                plan, name, port, partition, replica
            )  # fmt: skip
            environment = self._engines(plan, name)
            yield ChildPlan(
                name, plan.role, partition, replica, command, f"{plan.bind}:{port}", self._also(plan, name),
                _needed(plan, self.cluster.log_of(plan)), environment,
            )  # fmt: skip

    def _also(self, plan: RolePlan, name: str) -> dict[str, str]:
        if plan.role == NODE_ROLE:
            return {f"127.0.0.1:{self._port(f'{name}-queue')}": ""}
        ports = {key: plan.settings.get(key) for key in PORT_KEYS}
        return {
            f"{plan.bind}:{port}": f'roles.{plan.role}.settings."{key}"'
            for key, port in ports.items()
            if isinstance(port, int) and port > 0
        }

    def _engines(self, plan: RolePlan, name: str) -> dict[str, str]:
        """What the file says of engines, for one process. Raises ``ConfigError`` for what it could not use."""
        engines = self.cluster.engines
        if plan.role != SHARD:
            return {}
        if engines.log != EMBEDDED:
            parse_address(engines.log)
        own = {key.removeprefix("engines."): str(value) for key, value in plan.settings.items() if key in ENGINE_KEYS}
        name = str(plan.settings.get("replication.name", name))
        engines_of_replica(replace(engines, **own), name)
        return {
            f"PIXIU_ENGINES__{key.upper()}": address
            for key in ENGINES
            if (address := getattr(engines, key)) != EMBEDDED
        }

    def _zookeepers(self) -> Iterator[ChildPlan]:
        count = self.cluster.zookeeper_nodes
        names = [f"{ZOOKEEPER}-{number}" for number in range(1, count + 1)]
        peers = [(self._port(f"{name}-data"), self._port(f"{name}-vote")) for name in names]
        for number, name in enumerate(names, 1):
            home = self.folder / "nodes" / name
            port = self._port(name)
            configure_server(home, number, port, peers)
            command = tuple(server_command(home))
            also = dict.fromkeys((f"127.0.0.1:{each}" for each in peers[number - 1]), "")
            yield ChildPlan(name, ZOOKEEPER, 0, number - 1, command, f"127.0.0.1:{port}", also, count // 2 + 1)

    def _role(self, plan: RolePlan, name: str, port: int, partition: int, replica: int) -> tuple[str, ...]:
        # Under this name the others know it, and the map, probes and logs show it, however often it is started.
        settings = {"replication.name": name, **plan.settings}
        place = ("--partition", str(partition), "--partitions", str(plan.partitions))
        if plan.role == SHARD:
            place = ("--shard", str(partition), "--replica", str(replica))
            settings = {"replication.replicas": plan.replicas, **settings}
        # Gateways read the keys that sign tokens, and nothing else: a token is good at each of them.
        home = self.folder / "nodes" / (GATEWAYS if plan.role == GATEWAYS else name)
        return (
            *_pixiu(), "role", plan.role, "--registry", str(self.registry), *place, "--bind", plan.bind,
            "--port", str(port),
            "--data", str(home), "--secret-file", str(self.secret_file), "--json",
            *_assignments(settings),
        )  # fmt: skip

    def _serve(self, plan: RolePlan, name: str, port: int) -> tuple[str, ...]:
        return (
            *_pixiu(), "serve", "--dev", "--port", str(port), "--queue-port", str(self._port(f"{name}-queue")),
            "--data", str(self.folder / "nodes" / name), *_assignments(plan.settings),
        )  # fmt: skip


class HeldPlaces:
    """The ports where processes of a cluster listen, held so that no outgoing connection can take one.

    A role that is killed leaves its port free for a moment, and any process of this machine might use it meanwhile.
    """

    def __init__(self) -> None:
        self._sockets: dict[str, list[socket.socket]] = {}

    def hold(self, plan: ChildPlan) -> None:
        """Hold every place of a process. Raises ``ConfigError`` or ``Unavailable`` if it could not listen there."""
        for place, setting in {plan.address: f"roles.{plan.role}.port", **plan.also}.items():
            host, _, port = place.rpartition(":")
            self._sockets.setdefault(plan.name, []).append(_hold(plan, host.strip("[]"), int(port), setting))

    def release(self, name: str) -> None:
        """Release what is held for a process."""
        for each in self._sockets.pop(name, ()):
            each.close()

    def release_all(self) -> None:
        """Release everything."""
        for name in list(self._sockets):
            self.release(name)


def _hold(plan: ChildPlan, host: str, port: int, setting: str) -> socket.socket:
    try:
        return hold_port(host, port)
    except OSError as error:
        wrong = cannot_listen(host, port, error, setting=f"roles.{plan.role}.bind", port_setting=setting)
        raise type(wrong)(f"{plan.name} {wrong}; nothing was started") from error


def read_state(folder: Path) -> dict[str, Any]:
    """What the last supervisor wrote; empty if there was none."""
    try:
        found = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _asked_for(cluster: ClusterFile) -> set[int]:
    """Ports that the file names: nobody else may pick them."""
    found: set[int] = set()
    for plan in cluster.roles:
        if plan.port:
            found.update(range(plan.port, plan.port + plan.partitions * plan.replicas))
        found.update(port for key in PORT_KEYS if isinstance(port := plan.settings.get(key), int))
    return found


def _rank(role: str) -> int:
    return ORDER.index(role) if role in ORDER else len(ORDER)


def _needed(plan: RolePlan, log: str) -> int:
    """How many replicas of a partition must stay. The copies of a log elsewhere are not counted by its processes."""
    if plan.role != SHARD or log != EMBEDDED:
        return 0
    min_isr = plan.settings.get("replication.min_isr", 1)
    return min_isr if isinstance(min_isr, int) else 1


def _assignments(settings: object) -> list[str]:
    assert isinstance(settings, dict)
    pairs = ((key, str(value).lower() if isinstance(value, bool) else value) for key, value in settings.items())
    return [part for key, value in pairs for part in ("--set", f"{key}={value}")]


def _pixiu() -> list[str]:
    """How to start another process of the very package that runs here, and of nothing else in this folder."""
    is_from_here = Path(pixiu.__file__).resolve().parent.parent == Path.cwd().resolve()
    return [sys.executable, *([] if is_from_here else ["-P"]), "-m", "pixiu"]
