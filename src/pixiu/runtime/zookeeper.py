"""A ZooKeeper ensemble on this machine, from the jars that PySpark's wheel carries.

For tests and for a cluster on one machine, which then needs nothing but Java and that package. Where an ensemble runs
already, use that.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.runtime.java import HOW_TO_INSTALL_JAVA, find_java
from pixiu.runtime.ports import free_ports

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "Ensemble",
    "configure_server",
    "is_serving",
    "server_command",
    "server_environment",
    "what_zookeeper_needs",
]

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
ELECTION_MS = 1_000
"""A server that stands still holds an election up for this long, and not for ZooKeeper's minute."""
HEAP = "-Xmx128m"
STOP_SECONDS = 5


def what_zookeeper_needs() -> str:
    """What is missing to start ZooKeeper here, in a sentence; empty if nothing is."""
    if find_java() is None:
        return f"Java 17 is not installed; {HOW_TO_INSTALL_JAVA}"
    if find_spec("pyspark") is None:
        how = how_to_install("pipeline")
        return f"ZooKeeper's jars come with the package pyspark, which is not installed; install it with: {how}"
    return ""


class Ensemble:
    """One server, or three that agree. Each is a process of its own that can be killed and started again."""

    def __init__(self, folder: Path, *, servers: int = 1) -> None:
        """Raises ``ConfigError`` if this machine cannot run it."""
        missing = what_zookeeper_needs()
        if missing:
            raise ConfigError(missing)
        self._folder = folder
        ports = free_ports(3 * servers)
        self.client_ports = ports[:servers]
        self._peers = [(ports[servers + 2 * index], ports[servers + 2 * index + 1]) for index in range(servers)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * servers
        for index in range(servers):
            configure_server(folder / str(index), index + 1, self.client_ports[index], self._peers)

    def __enter__(self) -> Ensemble:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """Where clients connect."""
        return ",".join(f"127.0.0.1:{port}" for port in self.client_ports)

    def start(self, timeout_seconds: float = 60) -> None:
        """Start what is not running, and wait until it serves."""
        for index, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                self.start_one(index)
        until = time.monotonic() + timeout_seconds
        for index in range(len(self._processes)):
            while not self.is_serving(index):
                process = self._processes[index]
                if process is None or process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    raise Unavailable(f"ZooKeeper did not start; see {self._folder / str(index) / 'out.txt'}")
                time.sleep(0.05)

    def start_one(self, index: int) -> None:
        """Start one server, without waiting."""
        home = self._folder / str(index)
        with (home / "out.txt").open("ab") as out:
            self._processes[index] = subprocess.Popen(
                server_command(home), stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=server_environment(),
                start_new_session=True,
            )  # fmt: skip

    def kill(self, index: int) -> None:
        """Kill one server."""
        process = self._processes[index]
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self, index: int) -> None:
        """Let one server stand still."""
        self._signal(index, signal.SIGSTOP)

    def thaw(self, index: int) -> None:
        """Let it go on."""
        self._signal(index, signal.SIGCONT)

    def stop(self) -> None:
        """Stop all."""
        running = [process for process in self._processes if process is not None and process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def is_serving(self, index: int) -> bool:
        """Does a server take part, and answer clients?"""
        return is_serving(self.client_ports[index])

    def _signal(self, index: int, number: signal.Signals) -> None:
        process = self._processes[index]
        if process is not None and process.poll() is None:
            process.send_signal(number)


def configure_server(home: Path, number: int, client_port: int, peers: list[tuple[int, int]]) -> None:
    """Write what one server reads at its start. ``peers`` are the ports of all, for data and for votes, in order."""
    lines = [
        f"tickTime={TICK_MS}", "initLimit=10", "syncLimit=6", f"dataDir={home / 'data'}",
        "clientPortAddress=127.0.0.1", f"clientPort={client_port}", "maxClientCnxns=0",
        "minSessionTimeout=1000", "standaloneEnabled=true",
    ]  # fmt: skip
    if len(peers) > 1:
        lines += [f"server.{peer}=127.0.0.1:{data}:{vote}" for peer, (data, vote) in enumerate(peers, 1)]
    (home / "data").mkdir(parents=True, exist_ok=True)
    (home / "data" / "myid").write_text(f"{number}\n")
    (home / "zoo.cfg").write_text("\n".join(lines) + "\n")


def server_command(home: Path) -> list[str]:
    """How to start a server that was configured."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations is not None
    jars = Path(spec.submodule_search_locations[0]) / "jars" / "*"
    return [
        "java", HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.4lw.commands.whitelist=srvr", f"-Dzookeeper.cnxTimeout={ELECTION_MS}",
        f"-Dzookeeper.fastleader.maxNotificationInterval={ELECTION_MS}", "-cp", str(jars), MAIN, str(home / "zoo.cfg"),
    ]  # fmt: skip


def server_environment() -> dict[str, str]:
    """What a server is started with: whatever is here, without options for other Java programs."""
    return {**os.environ, "JAVA_TOOL_OPTIONS": ""}


def is_serving(port: int) -> bool:
    """Does a server on this machine take part, and answer clients?"""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.settimeout(1)
            link.sendall(b"srvr")
            answer = b""
            while piece := link.recv(4096):
                answer += piece
    except OSError:
        return False
    return b"Mode:" in answer
