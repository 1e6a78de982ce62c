"""The secret of a cluster changes while everything runs: every role takes it over, and who restarts is let in."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pixiu.model.errors import PixiuError
from pixiu.node.processes import cluster_secrets
from pixiu.node.processes.cluster_secrets import SecretsFile
from pixiu.queue.client import BlockingClient
from tests.cluster.processes import Cluster
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "the secret of yesterday", "the secret of tomorrow"
TEXT = f"""
secret = "{OLD}"
zookeeper = {{ nodes = 1 }}
[roles.shard]
[roles.router]
[roles.broker]
[roles.proxy]
[roles.gateway]
"""


async def test_only_what_is_good_and_new_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_secrets, "LOOK_SECONDS", 0.01)
    path = tmp_path / "secret"
    path.write_text(f"{OLD}\n", encoding="utf-8")
    taken: list[str] = []
    file = SecretsFile(path, f"{OLD}\n", asyncio.get_running_loop(), taken.append)
    good = [f"{OLD}\n{NEW}\n", f"{NEW}\n"]
    for text in (f"{OLD}\n", "short\n", good[0], "# nothing\n", f"{OLD}\n{NEW}\n{OLD}{NEW}\n", good[1]):
        path.write_text(text, encoding="utf-8")
        async with asyncio.timeout(20):
            while text in good and text not in taken:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    path.unlink()
    await asyncio.sleep(0.1)
    file.close()
    path.write_text(f"{OLD}\n", encoding="utf-8")
    await asyncio.sleep(0.1)
    assert taken == good


@pytest.mark.long
@pytest.mark.timeout(240)
def test_after_a_change_of_the_secret_whoever_restarts_is_let_in(tmp_path: Path) -> None:
    with Cluster(tmp_path, TEXT) as cluster:
        for number, lines in enumerate(((OLD, NEW), (NEW, OLD), (NEW,)), 1):
            (cluster.folder / "secret").write_text("\n".join(lines) + "\n", encoding="utf-8")
            for name in ("shard-0-0", "gateway-0-0"):
                wait_for(partial(_has_said, cluster, name, "secrets have changed", number), timeout_s=20, what=name)
        assert _is_let_in(cluster, NEW) and not _is_let_in(cluster, OLD)
        for name in ("shard-0-0", "gateway-0-0"):
            pid = cluster.nodes()[name]["pid"]
            cluster.ask("kill", name)
            wait_for(partial(_runs_anew, cluster, name, pid), timeout_s=60, what=name)
        wait_for(partial(_has_said, cluster, "gateway-0-0", "the node knows this gateway", 2), timeout_s=60, what="it")


def _has_said(cluster: Cluster, name: str, words: str, times: int) -> bool:
    return (cluster.folder / "logs" / f"{name}.log").read_text(encoding="utf-8").count(words) >= times


def _is_let_in(cluster: Cluster, key: str) -> bool:
    try:
        with BlockingClient(cluster.registry, key=key) as client:
            client.topics()
    except PixiuError:
        return False
    return True


def _runs_anew(cluster: Cluster, name: str, before: int) -> bool:
    row = cluster.nodes()[name]
    return row["pid"] not in (None, before) and row["state"] == "running"
