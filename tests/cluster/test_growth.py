"""One node grows into a cluster while people write: its log joins a registry, others copy it, one takes over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest

from pixiu.node.joined import joined_of
from pixiu.queue.client import BlockingClient
from pixiu.runtime.datadir import find_server
from pixiu.runtime.zookeeper import Ensemble
from tests.engines import require_zookeeper
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

pytestmark = pytest.mark.serial


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    require_zookeeper()
    with Ensemble(tmp_path / "zookeeper") as started:
        yield f"zk://{started.hosts}/grown"


class Process:
    """A ``pixiu`` command that runs until it is stopped."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data = data
        self.log = data.with_name(f"{data.name}-{time.monotonic_ns()}.log")
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pixiu", *words, "--data", str(data)], stdout=out, stderr=out
            )

    def __enter__(self) -> Self:
        wait_for(self._is_there, timeout_s=40, what=f"{self.data.name} to listen")
        return self

    def _is_there(self) -> bool:
        assert self.process.poll() is None, self.said()
        return "listening" in self.said()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(20)


def pixiu(*words: str, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "pixiu", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words and code == 0 else done.stderr


class Writers:
    """People who never stop sending, each message until it is accepted."""

    def __init__(self, address: str, *, people: int = 3) -> None:
        self.accepted: dict[str, str] = {}
        self.refused: list[str] = []
        self._base = f"http://{address}"
        self._is_over = False
        self._threads = [threading.Thread(target=self._write, args=(f"user{n}",)) for n in range(people)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.more()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def more(self, count: int = 30) -> None:
        wanted = len(self.accepted) + count
        wait_for(lambda: len(self.accepted) >= wanted, timeout_s=30, what=f"sends; refused: {self.refused[:3]}")

    def _write(self, user: str) -> None:
        with httpx.Client(base_url=self._base, timeout=20) as client:
            token = client.post("/v1/dev/token", json={"user": user}).json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            number = 0
            while not self._is_over:
                send_id = f"{user}-{number}"
                answer = client.post("/v1/actions/send", json={"to": "bob", "text": send_id, "send_id": send_id})
                if answer.status_code != 200:
                    self.refused.append(answer.text)
                    continue
                self.accepted[send_id] = answer.json()["message_id"]
                number += 1


def control(registry: str) -> dict[str, Any]:
    from kazoo.client import KazooClient

    hosts, _, root = registry.removeprefix("zk://").partition("/")
    client = KazooClient(hosts=hosts)
    client.start(timeout=10)
    try:
        found: dict[str, Any] = json.loads(client.get(f"/{root}/shard/partition0/ctl")[0])
        return found
    finally:
        client.stop()
        client.close()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("X54")
def test_a_running_node_becomes_the_first_replica_while_people_write(tmp_path: Path, registry: str) -> None:
    alone, second = tmp_path / "alone", tmp_path / "second"
    ports = ["--port", "0", "--queue-port", "0", "--no-pipeline"]
    role = ["role", "shard", "--registry", registry]
    settings = ["--set", "messaging.sends_per_second=100000", "--set", "messaging.send_burst=100000"]
    with Process(alone, "serve", "--dev", *ports, *settings) as node:
        address = find_server(alone)
        assert address is not None and address.http is not None
        with Writers(address.http) as writers:
            joined = pixiu("cluster", "join", "--registry", registry, "--data", str(alone), "--json")
            writers.more()
            found = control(registry)
            assert found["epoch"] == joined["epoch"] and len(found["in_sync"]) == 1
            again = pixiu("cluster", "join", "--registry", registry, "--data", str(alone), code=1)
            assert "has joined a registry" in again
            with Process(second, *role, "--set", "replication.name=second"):
                wait_for(lambda: "second" in control(registry)["in_sync"], timeout_s=30, what="the copy")
                writers.more()
                writers.stop()
                assert writers.refused == [], "nobody was interrupted"
                assert pixiu("verify", str(alone), str(second), "--json")["equal"]
                assert node.stop() == 0
                wait_for(lambda: control(registry)["leader"] == "second", what="the second to lead")
                refusal = pixiu("serve", "--data", str(alone), *ports, code=2)
                assert "has joined the cluster" in refusal and "pixiu role shard" in refusal
                with Process(alone, *role):
                    wait_for(lambda: len(control(registry)["in_sync"]) == 2, timeout_s=30, what="both in sync")
                    report = audit_of(registry)
                    assert report["balanced"] and report["accepted"] == len(writers.accepted)
                    with BlockingClient(registry, patience_s=20) as client:
                        client.create_topic("later")
                        client.publish("later", b"still taken")
                    wait_for(lambda: pixiu("verify", str(alone), str(second), "--json")["equal"], what="equal copies")
    joined_now = joined_of(alone)
    assert joined_now is not None and not joined_now.is_founding


def audit_of(registry: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        done = subprocess.run(
            [sys.executable, "-m", "pixiu", "audit", "--registry", registry, "--json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.5)
