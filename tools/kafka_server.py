"""A real Kafka (KRaft) on this machine, from Maven Central's jars: for tests and benchmarks.

One node, or three that agree; each is broker and controller, a process of its own on free ports of loopback that can be
killed, frozen and started again on its data. ``python -m tools.kafka_server [NODES]`` runs one until it is interrupted.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pixiu.runtime.ports import free_ports
from tools.jars import JarsMissing, jars_of

__all__ = ["KafkaServer"]

CLUSTER_ID = "cGl4aXUta2Fma2EtdGVzdA"
"""Sixteen bytes in base64, as Kafka wants it."""
HEAP_MB = 320
START_SECONDS = 90
STOP_SECONDS = 10
PLAINTEXT = "PLAINTEXT"
_SCRAM = "SCRAM-SHA-512"


class KafkaServer:
    """One broker, or three."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        more: dict[str, str] | None = None,
        protocol: str = PLAINTEXT,
        users: dict[str, str] | None = None,
    ) -> None:
        """``more`` are further lines of the brokers' configuration. Raises ``JarsMissing``.

        ``protocol`` is what clients speak: with SSL or SASL_SSL, ``more`` names the keystore. ``users`` and their
        passwords may log in by SCRAM-SHA-512.
        """
        self._jars = jars_of("kafka")
        self._folder = folder
        ports = free_ports(3 * nodes)
        self.ports = ports[:nodes]
        self._controllers = ports[nodes : 2 * nodes]
        self._between = ports[2 * nodes :]
        """Where brokers speak to each other, if clients need more than that."""
        self._more = more or {}
        self._protocol = protocol
        self._users = users or {}
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        folder.mkdir(parents=True, exist_ok=True)
        formats = [self._format(index) for index in range(nodes)]
        for index, process in enumerate(formats):
            if process.wait(START_SECONDS):
                raise RuntimeError(f"Kafka's storage was not formatted; see {self._home(index) / 'out.txt'}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """Where clients connect."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, *, wait: bool = True) -> None:
        """Start what does not run, and wait until all take connections."""
        for index, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                self._start_one(index)
        if wait:
            for index in range(len(self._processes)):
                self.wait_for(index)

    def start_one(self, index: int, *, wait: bool = True) -> None:
        """Start one that was killed."""
        self._start_one(index)
        if wait:
            self.wait_for(index)

    def wait_for(self, index: int) -> None:
        """Until a node takes connections: brokers listen when they have joined."""
        until = time.monotonic() + START_SECONDS
        while not _listens(self.ports[index]):
            process = self._processes[index]
            if process is None or process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"Kafka did not start; see {self._home(index) / 'out.txt'}")
            time.sleep(0.05)

    def kill(self, index: int = 0) -> None:
        """As a power cut would end it."""
        process = self._processes[index]
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self, index: int = 0) -> None:
        """Let it hold its connections and answer nothing."""
        self._signal(index, signal.SIGSTOP)

    def thaw(self, index: int = 0) -> None:
        """Let it go on."""
        self._signal(index, signal.SIGCONT)

    def stop(self) -> None:
        """End all of them. Their data is thrown away by the test, so nobody waits for a clean end."""
        for index in range(len(self._processes)):
            self.kill(index)

    def _home(self, index: int) -> Path:
        return self._folder / str(index + 1)

    def _format(self, index: int) -> subprocess.Popen[bytes]:
        home = self._home(index)
        home.mkdir(parents=True, exist_ok=True)
        (home / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in self._properties(index).items()))
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(home / "server.properties"), "--ignore-formatted"]
        for name, password in self._users.items():
            arguments += ["--add-scram", f"{_SCRAM}=[name={name},password={password}]"]
        return self._java(home, "kafka.tools.StorageTool", *arguments)

    def _start_one(self, index: int) -> None:
        home = self._home(index)
        self._processes[index] = self._java(home, "kafka.Kafka", str(home / "server.properties"))

    def _java(self, home: Path, *words: str) -> subprocess.Popen[bytes]:
        options = [f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        with (home / "out.txt").open("ab") as out:
            return subprocess.Popen(
                ["java", *options, "-cp", f"{self._jars}/*", *words],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
                start_new_session=True,
            )  # fmt: skip

    def _properties(self, index: int) -> dict[str, str]:
        nodes = len(self.ports)
        copies = str(min(nodes, 3))
        voters = ",".join(f"{each + 1}@127.0.0.1:{port}" for each, port in enumerate(self._controllers))
        return {
            "process.roles": "broker,controller",
            "node.id": str(index + 1),
            "controller.quorum.voters": voters,
            "controller.quorum.election.timeout.ms": "1000",
            "controller.quorum.fetch.timeout.ms": "2000",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "listeners": f"BROKER://127.0.0.1:{self.ports[index]},CONTROLLER://127.0.0.1:{self._controllers[index]}",
            "advertised.listeners": f"BROKER://127.0.0.1:{self.ports[index]}",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "BROKER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._home(index) / "data"),
            "num.network.threads": "2",
            "num.io.threads": "2",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1" if nodes == 1 else "2",
            "replica.lag.time.max.ms": "4000",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            **self._doors(index),
            **self._more,
        }

    def _doors(self, index: int) -> dict[str, str]:
        """Another listener for clients, where they speak otherwise than brokers among themselves."""
        if self._protocol == PLAINTEXT:
            return {}
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        doors = f"CLIENT://127.0.0.1:{self.ports[index]},BROKER://127.0.0.1:{self._between[index]}"
        return {
            "listeners": f"{doors},CONTROLLER://127.0.0.1:{self._controllers[index]}",
            "advertised.listeners": doors,
            "listener.security.protocol.map": f"CLIENT:{self._protocol},BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": _SCRAM,
            f"listener.name.client.{_SCRAM.lower()}.sasl.jaas.config": login,
        }

    def _signal(self, index: int, number: signal.Signals) -> None:
        process = self._processes[index]
        if process is not None and process.poll() is None:
            process.send_signal(number)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def main(words: list[str]) -> int:
    """Run until interrupted."""
    if words not in ([], ["1"], ["3"]):
        print("usage: python -m tools.kafka_server [1|3]", file=sys.stderr)
        return 2
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaServer(Path(folder), nodes=int("".join(words) or 1)) as kafka,
        ):
            print(f"kafka://{kafka.hosts}", flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except JarsMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main(sys.argv[1:]))
