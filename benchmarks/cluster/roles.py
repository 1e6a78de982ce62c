"""Role processes of a cluster on this machine: started, found, counted, stopped.

One ZooKeeper serves all clusters of a run, each under a path of its own. It is no role: its CPU time is not counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlopen

from benchmarks.queue.servers import ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_LIMITS", "Child", "Roles", "child_environment", "cpu_seconds"]

START_SECONDS = 180.0
STOP_SECONDS = 15.0
ROOT = Path(__file__).parent.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")

NO_LIMITS = {
    "rooms.says_per_second": 0,
    "gateway.requests_per_user": 0,
    "gateway.connects_per_user": 0,
    "gateway.requests_per_address": 0,
    "gateway.connects_per_address": 0,
    "gateway.requests_in_flight": 1024,
    "links.drain_ms": 0,
}
"""A generator is a few users who talk more than people do, and nobody waits for the end of a drain."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system, to a nanosecond where the system tells it."""
    try:
        # The first field counts nanoseconds on a CPU, of each thread.
        threads = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS


def child_environment() -> dict[str, str]:
    """So that a child finds these benchmarks, wherever it is started."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class Child:
    """A process that says one line of JSON when it is ready."""

    def __init__(self, words: list[str], log: Path, *, stdin: int = subprocess.DEVNULL) -> None:
        self.words = words
        self._log = log
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self._output, stdin=stdin, env=child_environment(), text=True
        )

    def line(self) -> dict[str, Any]:
        """Wait for the next line that it says. Raises ``ServerError`` if it ends instead."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith("{"):
                found: dict[str, Any] = json.loads(text)
                return found
        raise ServerError(f"{' '.join(self.words[1:6])} ended:\n{self.told()}")

    def told(self) -> str:
        """The end of what it has logged."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self.process.pid)

    def stop(self) -> None:
        """Ask it to end, and see to it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def wait(self) -> None:
        """Until it has ended."""
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._output.close()


class Role(Child):
    """One role process, and what it said of itself."""

    def __init__(self, role: str, words: list[str], log: Path) -> None:
        super().__init__(words, log)
        self.role = role
        self.about: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """Where its links are."""
        return str(self.about["address"])

    @property
    def boot(self) -> int:
        """This life of it."""
        return int(self.about["boot"], 16)

    def is_ready(self) -> bool:
        """Does it serve? One without an admin port does when it says where it listens."""
        if "admin" not in self.about:
            return True
        try:
            with urlopen(f"{self.about['admin']}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> dict[str, float]:
        """What /metrics says, by name and labels."""
        with urlopen(f"{self.about['admin']}/metrics", timeout=10) as answer:
            rows = (line.rpartition(" ") for line in answer.read().decode().splitlines() if line.startswith("pixiu_"))
            return {name: float(value) for name, _, value in rows}


class Roles:
    """Processes of one cluster. A context manager: all of them end with it."""

    _numbers = count(1)

    def __init__(self, hosts: str, folder: Path) -> None:
        self.registry = f"zk://{hosts}/bench{next(self._numbers)}"
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.all: list[Role] = []
        self._others: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def start(
        self,
        role: str,
        *,
        partition: int = 0,
        partitions: int = 1,
        settings: Mapping[str, object] | None = None,
        data: str = "",
        wrapper: list[str] | None = None,
    ) -> Role:
        """Start one; ``wait_ready`` waits for all. ``wrapper``: the words in place of ``python -m pixiu``."""
        name = f"{len(self.all)}-{role}"
        words = [*(wrapper or [sys.executable, "-m", "pixiu"]), "role", role, "--registry", self.registry, "--json"]
        if role in ("broker", "router", "relay"):
            words += ["--partition", str(partition), "--partitions", str(partitions)]
        if role == "gateway":
            words += ["--data", str(self.folder / (data or name))]
        for key, value in {**NO_LIMITS, **(settings or {})}.items():
            words += ["--set", f"{key}={value}"]
        started = Role(role, words, self.folder / f"{name}.log")
        self.all.append(started)
        return started

    def beside(self, words: list[str], *, stdin: int = subprocess.DEVNULL) -> Child:
        """Start a process of the benchmark that ends with the cluster, and whose CPU time is not counted."""
        child = Child(words, self.folder / f"beside-{len(self._others)}.log", stdin=stdin)
        self._others.append(child)
        return child

    def wait_ready(self) -> None:
        """Until every role serves. Raises ``ServerError``."""
        until = time.monotonic() + START_SECONDS
        for role in self.all:
            if not role.about:
                role.about = role.line()
        for role in self.all:
            while not role.is_ready():
                if role.process.poll() is not None or time.monotonic() > until:
                    raise ServerError(f"{role.role} is not ready: {role.told()}")
                time.sleep(0.05)

    def of(self, role: str) -> list[Role]:
        """Those of one role."""
        return [each for each in self.all if each.role == role]

    @property
    def pids(self) -> list[int]:
        """All roles."""
        return [role.process.pid for role in self.all]

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by role."""
        found: dict[str, float] = defaultdict(float)
        for role in self.all:
            found[role.role] += role.cpu
        return dict(found)

    def __exit__(self, *_: object) -> None:
        children = [*self._others, *self.all]
        for child in children:
            child.stop()
        for child in children:
            child.wait()


def used(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds between two readings, by role."""
    return {role: after[role] - before.get(role, 0.0) for role in after}
