"""A cluster of real processes for tests, made and handled with the commands that people use."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from kazoo.client import KazooClient

from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import PixiuError
from pixiu.node.cluster.door import ask_supervisor
from pixiu.queue.client import BlockingClient
from tests.engines import require_zookeeper
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from pixiu.queue.client import Appended

__all__ = ["SHARD_ONLY", "Cluster", "Load"]

SHARD_ONLY = """
name = "test"
zookeeper = {{ nodes = {zookeepers} }}

[roles.shard]
replicas = {replicas}
settings = {{ "replication.min_isr" = {min_isr} }}
"""


class Cluster:
    """``pixiu cluster`` on a folder."""

    def __init__(self, folder: Path, text: str) -> None:
        require_zookeeper()
        self.folder = folder / "cluster"
        self.file = folder / "cluster.toml"
        self.file.write_text(text, encoding="utf-8")

    def __enter__(self) -> Self:
        self.up = self.run("up", str(self.file), "--detach", "--json", timeout_s=120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call("down", timeout_s=60)

    def call(self, *arguments: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
        """One command, however it ends."""
        command = [sys.executable, "-m", "pixiu", "cluster", *arguments, "--data", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    def run(self, *arguments: str, timeout_s: float = 30) -> dict[str, Any]:
        """One command that works, and its JSON."""
        done = self.call(*arguments, timeout_s=timeout_s)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}{self._log()}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _log(self) -> str:
        path = self.folder / "supervisor.log"
        return path.read_text(encoding="utf-8")[-2000:] if path.exists() else ""

    def ask(self, action: str, name: str = "") -> dict[str, Any]:
        """As the commands do, without the time that starting one takes."""
        return ask_supervisor(self.folder, {"action": action, "name": name})

    def kill_until(self, name: str, condition: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
        """Kill a process until another does its work: one that is back before its lease is over goes on with it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(PixiuError):  # it is down already
                self.ask("kill", name)
            with contextlib.suppress(AssertionError):
                return wait_for(condition, timeout_s=5)
        raise AssertionError(f"waited {timeout_s} s for {what}")

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The status, by name."""
        return {row["name"]: row for row in self.ask("status")["nodes"]}

    def leader(self) -> str:
        """The replica that leads the shard."""
        found = [name for name, row in self.nodes().items() if row["role"] == "shard" and "leads" in row["detail"]]
        assert len(found) == 1, self.nodes()
        return found[0]

    def wait_in_sync(self, count: int) -> None:
        """Until so many replicas of the shard hold everything."""
        wait_for(
            lambda: sum(
                row["role"] == "shard" and ("leads" in row["detail"] or "in sync" in row["detail"])
                for row in self.nodes().values()
            )
            == count,
            timeout_s=20, what=f"{count} replicas in sync",
        )  # fmt: skip

    @property
    def registry(self) -> str:
        """Where clients look."""
        return str(self.up["registry"])


class BlockingRegistry:
    """What stands in ZooKeeper, read with its own client."""

    def __init__(self, address: str) -> None:
        self._address = RegistryAddress.parse(address)

    def places(self, folder: str) -> set[str]:
        """The names of those who are registered."""
        return set(self.told(folder))

    def told(self, folder: str) -> dict[str, dict[str, Any]]:
        """What those who are registered say of themselves, by name."""
        client = KazooClient(hosts=self._address.hosts)
        client.start(timeout=10)
        try:
            root = f"{self._address.root}/{folder}"
            paths = [f"{root}/{name}" for name in client.get_children(root) if name.isdecimal()]
            rows = [json.loads(client.get(path)[0]) for path in paths]
            return {row["name"]: row for row in rows}
        finally:
            client.stop()
            client.close()


class Load:
    """Writers that never stop, and what they were promised."""

    def __init__(self, registry: str, *, writers: int = 8) -> None:
        self.client = BlockingClient(registry, patience_s=60)
        self.client.create_topic("load")
        self.answers: list[tuple[float, str, Appended]] = []
        self.errors: list[str] = []
        self._is_over = False
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.client.close()

    def _write(self, writer: int) -> None:
        number = after = 0  # keys are looked for behind the writer's last record: the log remembers a bounded number
        while not self._is_over:
            text = f"{writer} {number}"
            try:
                answer = self.client.append("load", text, key=text, unless_after=after)
            except PixiuError as error:
                self.errors.append(str(error))
                continue
            self.answers.append((time.monotonic(), text, answer))
            number, after = number + 1, answer.event_id

    def wait_for_more(self, count: int = 20, *, timeout_s: float = 20) -> None:
        """Until some more are accepted."""
        so_far = len(self.answers)
        wait_for(lambda: len(self.answers) >= so_far + count, timeout_s=timeout_s, what="writes to be accepted")

    def stop(self) -> None:
        """No more writes."""
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def longest_gap_s(self) -> float:
        """The longest time in which nothing was accepted."""
        times = sorted(at for at, _, _ in self.answers)
        return max(after - before for before, after in pairwise(times))

    def check(self) -> None:
        """Everything accepted is there, once, where it was said to be, in the order of each writer."""
        accepted = {text: answer for _, text, answer in self.answers}
        found: dict[str, int] = {}
        for delivery in self.client.subscribe("load", batch=255):
            text = delivery.body.decode()
            assert text not in found, f"{text} is there twice"
            found[text] = delivery.event_id
            if len(found) >= len(accepted) and accepted.keys() <= found.keys():
                break
        assert {text: found.get(text) for text in accepted} == {
            text: answer.event_id for text, answer in accepted.items()
        }
        assert len({answer.message_id for answer in accepted.values()}) == len(accepted)
        last: dict[str, int] = {}
        for text in found:
            writer, number = text.split()
            assert int(number) == last.get(writer, -1) + 1, f"{text} after {last.get(writer)}"
            last[writer] = int(number)
