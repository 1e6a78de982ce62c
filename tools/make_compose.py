"""Write ``deploy/compose.yaml`` from ``examples/cluster-3.toml``: each process of that cluster becomes a service.

The commands are the ones that ``pixiu cluster up`` runs; only addresses, ports and folders are a container's. A process
registers the address that it binds, so every service has a fixed one.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from pixiu.config.cluster import NODE_ROLE, ClusterFile, read_cluster_file
from pixiu.config.registry import RegistryAddress
from pixiu.node.cluster.layout import ChildPlan, Layout
from tools.generated import ROOT, write_or_check

CLUSTER = ROOT / "examples" / "cluster-3.toml"
COMPOSE = ROOT / "deploy" / "compose.yaml"

SUBNET = "172.30.84.0/24"
LOG, SEARCHED = "/var/lib/pixiu-log", "search.data="
"""A replica of the log, with the index that a pipeline makes there: where those who search see it."""
DATA = "/var/lib/pixiu"
SECRET = "/run/secrets/cluster"
PYTHON = "/opt/pixiu/bin/python"
LINKS_PORT, ADMIN_PORT, QUEUE_PORT, CLIENT_PORT, MAP_PORT = 7400, 8409, 12301, 8400, 8410
ZOOKEEPER_IMAGE = "zookeeper:3.9"
SHARED = {"gateway": "gateway-keys"}
"""Roles whose processes read one folder: gateways read the keys that sign tokens."""

HEAD = """\
# Pixiu over several processes, as containers: what `pixiu cluster up examples/cluster-3.toml` runs on one machine.
# Made by `make docs` (tools/make_compose.py); README.md beside it says how to start it.
"""

Service = dict[str, Any]


def services(cluster: ClusterFile) -> dict[str, Service]:
    """Every process, by name."""
    count = max(cluster.zookeeper_nodes, 1)
    hosts = [f"zookeeper-{number}" for number in range(1, count + 1)]
    registry = RegistryAddress(",".join(f"{host}:2181" for host in hosts), cluster.root)
    addresses = (str(each) for each in list(ip_network(SUBNET).hosts())[9:])
    found: dict[str, Service] = {host: _zookeeper(number, hosts) for number, host in enumerate(hosts, 1)}
    # With a registry that runs elsewhere a layout needs neither Java nor ZooKeeper's jars.
    elsewhere = replace(cluster, zookeeper_nodes=0, registry=registry, secret="0" * 32)
    with tempfile.TemporaryDirectory() as folder:
        plans = Layout(Path(folder), elsewhere).plans
    if any(plan.role in SHARED for plan in plans):
        found["keys"] = _keys()
    for plan, address in zip(plans, addresses, strict=False):
        found[plan.name] = _node(plan, address) if plan.role == NODE_ROLE else _role(plan, address, hosts)
    return found


def _zookeeper(number: int, hosts: list[str]) -> Service:
    members = " ".join(f"server.{peer}={host}:2888:3888;2181" for peer, host in enumerate(hosts, 1))
    return {
        "image": ZOOKEEPER_IMAGE,
        "restart": "unless-stopped",
        "environment": {
            "ZOO_MY_ID": str(number),
            "ZOO_SERVERS": members,
            "ZOO_4LW_COMMANDS_WHITELIST": "srvr",
            "ZOO_ADMINSERVER_ENABLED": "false",
        },
        "volumes": [f"{hosts[number - 1]}:/data", f"{hosts[number - 1]}-log:/datalog"],
        "networks": ["cluster"],
        "healthcheck": _health(["zkServer.sh", "status"], start_seconds=30),
    }


def _base(command: list[str], volume: str) -> Service:
    return {
        "image": "pixiu",
        "build": {"context": "..", "dockerfile": "deploy/Containerfile"},
        "restart": "unless-stopped",
        "command": command,
        "volumes": [f"{volume}:{DATA}"],
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": "60s",
    }


def _keys() -> Service:
    """Makes the key that signs tokens, once."""
    made = _base([f"test -d {DATA}/keys || exec pixiu token --new-key --data {DATA}"], "gateway-keys")
    return {**made, "restart": "no", "entrypoint": ["/bin/sh", "-c"], "networks": ["cluster"]}


def _without_admin_port(command: list[str]) -> list[str]:
    """The file's port is that of one machine; here each process has an address of its own."""
    given = {at for at, each in enumerate(command) if each.startswith("links.admin_port=")}
    return [each for at, each in enumerate(command) if at not in given and at + 1 not in given]


def _role(plan: ChildPlan, address: str, hosts: list[str]) -> Service:
    """One process of a role. It waits for the registry alone: who else is there it learns from that."""
    port = {"shard": QUEUE_PORT, "gateway": CLIENT_PORT}.get(plan.role, LINKS_PORT)
    changes = {"--bind": address, "--port": str(port), "--data": DATA, "--secret-file": SECRET}
    command = list(_changed(_after_pixiu(plan), changes))
    searched = [each for each in command if each.startswith(SEARCHED)]
    command = [f"{SEARCHED}{LOG}" if each in searched else each for each in command]
    probe = f"import socket; socket.create_connection(('{address}', {port}), 3)"
    if plan.role != "shard":
        command = [*_without_admin_port(command), "--set", f"links.admin_port={ADMIN_PORT}"]
        probe = f"from urllib.request import urlopen; urlopen('http://{address}:{ADMIN_PORT}/readyz', timeout=3)"
    waits: dict[str, dict[str, str]] = {host: {"condition": "service_healthy"} for host in hosts}
    if plan.role in SHARED:
        waits["keys"] = {"condition": "service_completed_successfully"}
    service = {
        **_base(command, SHARED.get(plan.role, plan.name)),
        "secrets": ["cluster"],
        "networks": {"cluster": {"ipv4_address": address}},
        "depends_on": waits,
        "healthcheck": _health([PYTHON, "-c", probe]),
    }
    if plan.environment:
        service["environment"] = dict(plan.environment)
    service["volumes"] += [f"{each.rpartition('/')[2]}:{LOG}:ro" for each in searched]
    if plan.role == "gateway":
        service["ports"] = [f"{8401 + plan.replica}:{CLIENT_PORT}"]
        service["ulimits"] = {"nofile": 1048576}
    elif plan.role == "meta":
        service["ports"] = [f"127.0.0.1:{MAP_PORT}:{ADMIN_PORT}"]  # the map has no login
    return service


def _node(plan: ChildPlan, address: str) -> Service:
    """The whole of Pixiu in one process: not for one machine alone, so without ``--dev``."""
    changes = {"--port": str(CLIENT_PORT), "--queue-port": str(QUEUE_PORT), "--data": DATA}
    arguments = [each for each in _after_pixiu(plan) if each != "--dev"]
    command = [*_changed(arguments, changes), "--no-pipeline", "--set", f"http.host={address}"]
    probe = f"from urllib.request import urlopen; urlopen('http://{address}:{CLIENT_PORT}/readyz', timeout=3)"
    return {
        **_base(command, plan.name),
        "networks": {"cluster": {"ipv4_address": address}},
        "ports": [f"{8400 + 100 * plan.replica}:{CLIENT_PORT}"],
        "ulimits": {"nofile": 1048576},
        "healthcheck": _health([PYTHON, "-c", probe]),
    }


def _after_pixiu(plan: ChildPlan) -> list[str]:
    """The command without the Python that runs it here."""
    command = list(plan.command)
    return command[command.index("pixiu") + 1 :]


def _changed(arguments: list[str], changes: dict[str, str]) -> Iterator[str]:
    """The values of some options replaced."""
    before = ""
    for each in arguments:
        yield changes.get(before, each)
        before = each


def _health(test: list[str], start_seconds: int = 60) -> dict[str, Any]:
    return {
        "test": ["CMD", *test],
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        "start_period": f"{start_seconds}s",
    }


def compose(cluster: ClusterFile) -> dict[str, Any]:
    """The whole file."""
    found = services(cluster)
    volumes = sorted({volume.partition(":")[0] for each in found.values() for volume in each.get("volumes", ())})
    return {
        "name": f"pixiu-{cluster.name}",
        "services": found,
        "networks": {"cluster": {"ipam": {"config": [{"subnet": SUBNET}]}}},
        "volumes": {volume: {} for volume in volumes},
        "secrets": {"cluster": {"file": "./cluster.secret"}},
    }


def as_yaml(value: object, indent: int = 0) -> Iterator[str]:
    """Lines of YAML: mappings over several lines, everything else as JSON, which is YAML too."""
    assert isinstance(value, dict)
    for key, each in value.items():
        if isinstance(each, dict) and each:
            yield f"{' ' * indent}{key}:"
            yield from as_yaml(each, indent + 2)
            if not indent or (indent == 2 and "image" in each):
                yield ""
        else:
            yield f"{' ' * indent}{key}: {json.dumps(each, ensure_ascii=False)}"


def main(arguments: list[str]) -> int:
    """Write the file, or compare it."""
    lines = "\n".join(as_yaml(compose(read_cluster_file(CLUSTER))))
    return write_or_check({COMPOSE: f"{HEAD}\n{lines.rstrip()}\n"}, arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
