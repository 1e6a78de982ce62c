"""Embedded is distributed (X75): the same scenario in one process, and over a cluster of many with a real ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.keys import Keyring
from tests.cluster.processes import Cluster
from tests.cluster.scenario import Doors, play
from tests.servers import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.serial

READY = {"ready": True, "reasons": {}, "notes": {}}
MANY = """
name = "scenario"
zookeeper = { nodes = 1 }

[roles.shard]
replicas = 3
settings = { "replication.min_isr" = 2, SETTINGS }

[roles.router]

[roles.broker]
settings = { SETTINGS }

[roles.proxy]

[roles.gateway]
replicas = 2
settings = { SETTINGS }
"""
SETTINGS = (
    "messaging.sends_per_second=0",
    "messaging.group_inbox_limit=5",
    "rooms.says_per_second=0",
    "gateway.presence_delay_ms=50",
)


@contextmanager
def one_process(folder: Path, *more: str) -> Iterator[Doors]:
    """``pixiu serve``, with everything in it; ``more`` are further settings."""
    data, port = folder / "data", free_port()
    with DataDirectory.open(data):
        Keyring(data, SystemClock()).create("EdDSA")
    command = [
        sys.executable,
        "-m",
        "pixiu",
        "serve",
        "--dev",
        "--no-pipeline",
        "--data",
        str(data),
        "--port",
        str(port),
    ]
    command += ["--queue-port", "0", *(part for setting in (*SETTINGS, *more) for part in ("--set", setting))]
    with (folder / "errors.txt").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    url = f"http://127.0.0.1:{port}"
    try:

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "errors.txt").read_text()[-3000:]
            try:
                return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        wait_for(is_ready, what="the node to be ready", timeout_s=120)
        yield Doors([url], data)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def many_processes(folder: Path, *engines: str) -> Iterator[Doors]:
    """``pixiu cluster up``: ten processes, of which two have the users between them, and two take clients.

    ``engines`` are settings like ``store=redis://…``.
    """
    settings = ", ".join(f'"{name}" = {value}' for name, value in (each.split("=") for each in SETTINGS))
    text = MANY.replace("SETTINGS", settings)
    if engines:
        text += "\n[engines]\n" + "".join(
            f'{key} = "{url}"\n' for key, _, url in (each.partition("=") for each in engines)
        )
    with Cluster(folder, text) as cluster:
        gateways = [row["address"] for row in cluster.nodes().values() if row["role"] == "gateway"]
        urls = [f"http://{address}" for address in gateways]

        def are_ready() -> bool:
            return all(httpx.get(f"{url}/readyz", timeout=5).json() == READY for url in urls)

        wait_for(are_ready, what="the gateways to reach everyone", timeout_s=60)
        yield Doors(urls, cluster.folder / "nodes" / "gateway")


def compare(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two runs have shown the same, word by word."""
    for what, seen in one.items():
        assert other[what] == seen, what
    assert other.keys() == one.keys()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.feature("X75")
async def test_one_process_and_many_show_the_same(tmp_path: Path) -> None:
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    with one_process(tmp_path / "one") as doors:
        one = await play(doors)
    with many_processes(tmp_path / "many") as doors:
        many = await play(doors)
    assert one["dave"] == [f"for dave {number}" for number in range(20)]
    compare(one, many)
