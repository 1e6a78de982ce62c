"""Durable messages through gateways, carriers and the log of a real cluster, while each of them dies or stands still.

Whatever was accepted is delivered once and in order, and stands in both histories, whoever was hurt meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.cluster.processes import Cluster
from tests.cluster.scenario import Doors
from tests.cluster.talkers import Talkers
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.serial, pytest.mark.long]

DURABLE = """
name = "durable"
zookeeper = {{ nodes = 1 }}

[roles.queue]
replicas = {queues}
settings = {{ "replication.min_isr" = {min_isr} }}

[roles.carrier]
partitions = {partitions}
replicas = {replicas}
settings = {{ "messaging.sends_per_second" = 0, "gateway.lease_ms" = 3000 }}

[roles.gateway]
replicas = {gateways}
settings = {{ "gateway.lease_ms" = 3000, "gateway.resync_percent" = 25 }}
"""


def doors_of(cluster: Cluster) -> Doors:
    """All gateways of a cluster, when they reach every partition."""
    rows = [row for row in cluster.nodes().values() if row["role"] == "gateway" and row["state"] == "running"]
    urls = [f"http://{row['address']}" for row in rows]

    def reach_all() -> bool:
        try:
            return all("carriers" not in httpx.get(f"{url}/readyz", timeout=5).json()["notes"] for url in urls)
        except httpx.HTTPError:
            return False

    wait_for(reach_all, what="the gateways to reach every partition", timeout_s=60)
    return Doors(urls, cluster.folder / "nodes" / "gateway")


def serves(cluster: Cluster, partition: int) -> str:
    """Who serves a partition."""
    rows = cluster.nodes()
    found = [name for name in rows if name.startswith(f"carrier-{partition}-") and "leads" in rows[name]["detail"]]
    assert len(found) == 1, rows
    return found[0]


def audit(cluster: Cluster) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", "audit", "--registry", cluster.registry, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three replicas of the log, two partitions of users with two replicas each, two gateways."""
    text = DURABLE.format(queues=3, min_isr=2, partitions=2, replicas=2, gateways=2)
    with Cluster(tmp_path_factory.mktemp("durable"), text) as started:
        started.wait_in_sync(3)
        yield started


@pytest.mark.timeout(400)
@pytest.mark.feature("X48", "X62", "X69", "X73", "X74", "P15", "B18", "T7")
async def test_kill_and_freeze_of_each_role_during_traffic(cluster: Cluster) -> None:
    doors = await asyncio.to_thread(doors_of, cluster)

    async def ask(action: str, name: str) -> None:
        await asyncio.to_thread(cluster.ask, action, name)

    async with Talkers(doors) as talkers:
        await talkers.more()
        for role in ("gateway", "carrier", "queue"):
            for blow in ("kill", "freeze"):
                if role == "gateway":
                    name = "gateway-0-0"
                elif role == "carrier":
                    name = await asyncio.to_thread(serves, cluster, 0)
                else:
                    name = await asyncio.to_thread(cluster.leader_of_queue)
                print(f"{blow} {name}")
                await ask(blow, name)
                if blow == "freeze":
                    await asyncio.sleep(5)  # longer than every lease
                    await ask("thaw", name)
                await talkers.more()
        await talkers.check()
        print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
    report = await asyncio.to_thread(audit, cluster)
    assert report["balanced"], report
