"""A whole cluster, as a user starts it: ``pixiu cluster up`` with the roles of ``examples/cluster-3.toml``.

The role ``shard`` stores and delivers durable messages. Processes are found by ``pixiu cluster status --json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.cluster.path import tokens_file
from benchmarks.cluster.roles import NO_LIMITS, ROOT, child_environment, cpu_seconds
from benchmarks.queue.servers import ServerError, memory_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "SHARD",
    "ZOOKEEPER",
    "Node",
    "PixiuCluster",
    "cluster_file",
    "cpu_by_role",
    "pixiu_only",
    "resident_mb",
    "signal_all",
]

EXAMPLE = ROOT / "examples" / "cluster-3.toml"
SHARD = "shard"
"""Its replicas copy one log and apply it; the one that leads serves users."""
SUPERVISOR = "supervisor"
ZOOKEEPER = "zookeeper"
LEFT_OUT = {"links.admin_port", "search.data"}
"""Settings of the example that name one port or one directory of the machine."""
UNLIMITED = {**NO_LIMITS, "messaging.sends_per_second": 0}
READY_SECONDS = 120.0
COMMAND_SECONDS = 240.0
LOOK_SECONDS = 0.5


def cluster_file(roles: Iterable[str] = ()) -> str:
    """The example with free ports and without limits per user. ``roles``: only these of it."""
    plans: dict[str, dict[str, Any]] = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))["roles"]
    lines = ['name = "bench"', "zookeeper = { nodes = 3 }"]
    wanted = set(roles or plans)
    for role, plan in plans.items():
        if role not in wanted:
            continue
        counts = {key: plan[key] for key in ("partitions", "replicas") if key in plan}
        settings = {key: value for key, value in plan.get("settings", {}).items() if key not in LEFT_OUT} | UNLIMITED
        assignments = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
        lines += [f"[roles.{role}]", *(f"{key} = {value}" for key, value in counts.items())]
        lines.append(f"settings = {{ {assignments} }}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Node:
    """One process, as ``pixiu cluster status`` shows it."""

    name: str
    role: str
    state: str
    detail: str
    pid: int | None
    address: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """A row of ``pixiu cluster status --json``."""
        return cls(**{name: row[name] for name in cls.__slots__})

    @property
    def leads(self) -> bool:
        """Whether it leads its shard: it accepts writes and serves users."""
        return "leads" in self.detail or "serves" in self.detail

    @property
    def is_ready(self) -> bool:
        """Whether it leads, or could take over at once."""
        is_second = "in sync" in self.detail or "stands by" in self.detail
        return self.state == "running" and (self.leads or is_second)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rpartition(":")[2])


class PixiuCluster:
    """``pixiu cluster up`` in a folder of its own. A context manager: the cluster ends with it."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.registry = ""
        self._file = file
        self._supervisor = 0

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        file = self.folder / "cluster.toml"
        file.write_text(self._file, encoding="utf-8")
        try:
            started = self.ask("up", str(file), "--detach")
            self.registry = str(started["registry"])
            self._supervisor = int(started["pid"])
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def ask(self, *words: str) -> dict[str, Any]:
        """The answer of one ``pixiu cluster`` command. Raises ``ServerError``."""
        command = [sys.executable, "-m", "pixiu", "cluster", *words, "--json", "--data", str(self.data)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, env=child_environment()
        )
        if done.returncode != 0:
            raise ServerError(f"pixiu cluster {words[0]}: {done.stderr or done.stdout}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def nodes(self, *roles: str) -> list[Node]:
        """The processes of these roles; of all roles if none is named."""
        return [Node.of(row) for row in self.ask("status")["nodes"] if not roles or row["role"] in roles]

    def leader(self) -> Node:
        """The replica that leads the shard. Waits until there is one."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes(SHARD) if node.leads and node.pid]
            return bool(found)

        self._wait("a leader of the shard", look)
        return found[0]

    def wait_ready(self) -> None:
        """Wait until the shard has a leader, its other replicas could take over, and every other process runs."""

        def look() -> bool:
            nodes = self.nodes()
            replicas = [node for node in nodes if node.role == SHARD]
            return (
                all(node.state == "running" for node in nodes)
                and all(node.is_ready for node in replicas)
                and any(node.leads for node in replicas)
            )

        self._wait("all replicas", look)

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_SECONDS
        while not is_so():
            if time.monotonic() > until:
                raise ServerError(f"waited {READY_SECONDS:.0f} s for {what}: {self.nodes()}")
            time.sleep(LOOK_SECONDS)

    def processes(self) -> dict[int, str]:
        """The role of every process of the cluster, by its pid. Children of a process have its role."""
        found = {self._supervisor: SUPERVISOR} | {node.pid: node.role for node in self.nodes() if node.pid}
        for pid in list(found):
            if pid != self._supervisor:  # its children are the nodes
                found |= dict.fromkeys(_descendants(pid), found[pid])
        return found

    def tokens(self, users: range) -> Path:
        """A file of users and their tokens, one per line."""
        return tokens_file(self.data / "nodes" / "gateway", users)

    def stop(self) -> None:
        """Stop every process."""
        subprocess.run(
            [sys.executable, "-m", "pixiu", "cluster", "down", "--data", str(self.data)],
            capture_output=True, timeout=COMMAND_SECONDS, check=False, env=child_environment(),
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self.stop()


def pixiu_only(processes: dict[int, str]) -> dict[int, str]:
    """Without those of ZooKeeper."""
    return {pid: role for pid, role in processes.items() if role != ZOOKEEPER}


def cpu_by_role(processes: dict[int, str]) -> dict[str, float]:
    """CPU seconds so far, by role."""
    found: dict[str, float] = defaultdict(float)
    for pid, role in processes.items():
        found[role] += cpu_seconds(pid)
    return dict(found)


def resident_mb(pid: int) -> tuple[float, float]:
    """Memory of a process in MB of 1,000,000 bytes: resident, and with shared pages divided by those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return memory_mb(pid), int(line.split()[1]) * 1024 / 1e6
    raise ServerError(f"the system does not say how much memory process {pid} has")


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in children.read_text(encoding="ascii").split()]
    return found[1:]
