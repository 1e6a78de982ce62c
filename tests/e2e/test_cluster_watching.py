"""Probes and meta as processes: every path is measured, and one page knows the whole cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pixiu.runtime.zookeeper import Ensemble
from tests.e2e.cluster import FAST, Roles
from tests.engines import require_zookeeper
from tests.servers import wait_for

pytestmark = [pytest.mark.long, pytest.mark.serial]


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    require_zookeeper()
    with Ensemble(tmp_path / "zookeeper") as ensemble:
        started = Roles(tmp_path, f"zk://{ensemble.hosts}/{tmp_path.name}")
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.timeout(300)
@pytest.mark.feature("X29", "X31")
def test_a_probe_names_the_broker_that_stands_still_and_meta_shows_everyone(roles: Roles) -> None:
    for name in ("router", "broker", "broker", "proxy", "gateway", "probe", "meta"):
        roles.start(name)
    _, broker, _, _, _, probe, meta = roles.runs
    roles.wait_ready()
    wait_for(
        lambda: [row["success"] for row in probe.get("/paths.json").json()["paths"]] == [1.0, 1.0],
        timeout_s=60, what="both replicas to be probed",
    )  # fmt: skip
    command = [sys.executable, "-m", "pixiu", "probe", "--registry", roles.registry, "--seconds", "3", "--json"]
    command += ["--secret-file", str(roles.secret)]
    for setting in FAST:
        command += ["--set", setting]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    rows = json.loads(shown.stdout)["paths"]
    assert len({row["broker"] for row in rows}) == 2
    assert all(row["p50_ms"] > 0 and row["success"] >= 0.99 for row in rows)

    def cluster() -> dict[str, object]:
        found: dict[str, object] = httpx.get(f"{meta.said['admin']}/cluster.json", timeout=5).json()
        return found

    def answering() -> set[str]:
        return {node["role"] for node in cluster()["nodes"] if node["answers"]}  # type: ignore[attr-defined]

    wait_for(
        lambda: answering() == {"router", "broker", "proxy", "gateway", "probe", "meta"}, timeout_s=30,
        what="everyone to be on the map",
    )  # fmt: skip
    assert cluster()["links"]
    assert "pixiu_cluster_nodes" in meta.get("/metrics").text
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: bool(cluster()["alarms"]), timeout_s=60, what="an alarm")
        assert "no probe comes back" in cluster()["alarms"][0]  # type: ignore[index]
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
