"""Real queue processes for tests: start, stop, kill, restart.

The server under test is the one users run, as its own process, so that a test can kill it and start it
again on the same data and port::

    with QueueProcess(tmp_path / "data", args=["--flush", "none"]) as queue:
        connect(queue.host, queue.port)
        queue.kill()
        queue.restart()
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pixiu.runtime.datadir import read_node_key
from pixiu.runtime.ports import free_ports

__all__ = ["QueueProcess", "free_port", "wait_for"]

LISTENING = "queue listening on "


class QueueProcess:
    """One `pixiu queue serve` on a data directory. Its port stays the same over restarts."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        start_timeout_s: float = 30.0,
    ) -> None:
        self.data = data
        """The data directory."""
        self.host = "127.0.0.1"
        self.port = port or free_port()
        """Outside the ephemeral range, so that no connection of another test can take it during a restart."""
        self.args = list(args)
        """More arguments of `pixiu queue serve`; a change counts from the next start."""
        self.env = dict(env or {})
        """More environment variables, likewise."""
        self.lines: list[str] = []
        """What the latest process printed on stdout."""
        self._start_timeout_s = start_timeout_s
        self._stderr_path = data.parent / f"{data.name}.stderr"
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._decided = threading.Event()
        """The latest process listens, or has exited."""
        self._is_listening = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """``host:port`` as clients want it."""
        return f"{self.host}:{self.port}"

    @property
    def key(self) -> str:
        """The node's key, for commands that need one."""
        return read_node_key(self.data)

    @property
    def follow_args(self) -> list[str]:
        """The arguments of a follower of this server on this machine."""
        return ["--follow", self.address, "--secret-file", str(self.data / "node.key")]

    @property
    def pid(self) -> int:
        """The process id of the running (or latest) server."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def stderr(self) -> str:
        """Everything all starts of this server wrote to stderr."""
        if not self._stderr_path.exists():
            return ""
        return self._stderr_path.read_text(encoding="utf-8", errors="replace")

    def start(self) -> Self:
        """Start the server and wait until it listens."""
        assert not self.is_running, "already running"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self.lines = []
        self._decided.clear()
        self._is_listening = False
        command = [sys.executable, "-m", "pixiu", "queue", "serve"]
        command += ["--data", str(self.data), "--port", str(self.port), *self.args]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIXIU_")}
        with self._stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=inherited | self.env
            )
        self._reader = threading.Thread(target=self._read_lines, args=(self._process,), daemon=True)
        self._reader.start()
        if not self._decided.wait(self._start_timeout_s) or not self._is_listening:
            self.kill()
            raise AssertionError(
                f"the queue did not start within {self._start_timeout_s} s; "
                f"stdout: {self.lines}; stderr: {self.stderr[-4000:]}"
            )
        return self

    def _read_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(LISTENING):
                self.port = int(line.rsplit(":", 1)[1])
                self._is_listening = True
                self._decided.set()
        process.stdout.close()
        self._decided.set()  # It ended: let start() look at the reason instead of waiting.

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, e.g. SIGSTOP and SIGCONT to freeze and thaw the server."""
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    def stop(self, timeout_s: float = 15.0) -> int:
        """SIGTERM, wait, and return the exit code."""
        assert self._process is not None, "not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it. Safe to call on a process that has ended."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self.wait(15.0)

    def wait(self, timeout_s: float = 15.0) -> int:
        """Wait for the process to end by itself and return its exit code."""
        assert self._process is not None, "not started"
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the queue did not end within {timeout_s} s; stderr: {self.stderr[-4000:]}") from None
        if self._reader is not None:
            self._reader.join(5.0)
        return code

    def restart(self) -> Self:
        """Stop (unless it was killed already) and start again on the same data and port."""
        if self.is_running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """End the process however it takes; never raises because of how it ended."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                pass
        self.kill()


def free_port() -> int:
    """A free port that no outgoing connection of another test can take."""
    return free_ports(1)[0]


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 10.0, what: str = "the condition") -> None:
    """Poll until the condition holds; fail loudly when it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.005)
