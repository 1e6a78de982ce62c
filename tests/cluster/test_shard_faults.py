"""A shard of real processes when what it depends on fails: ZooKeeper, the network.

People write to each other all the time. In the end everything accepted was delivered once and in order, is in both
histories, and the audit balances.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import pytest

from pixiu.config.registry import RegistryAddress
from tests.cluster.processes import Cluster
from tests.cluster.talkers import Talkers
from tests.cluster.test_durable_faults import Extra, audit, doors_of
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.serial, pytest.mark.long]

CLUSTER = """
name = "faults"
zookeeper = {{ nodes = {zookeepers} }}

[roles.shard]
replicas = {replicas}
{bind}
settings = {{ "replication.min_isr" = {min_isr}, "messaging.sends_per_second" = 0, "gateway.lease_ms" = 3000 }}

[roles.gateway]
replicas = 2
settings = {{ "gateway.lease_ms" = 3000, "gateway.resync_percent" = 25 }}
"""
PLAIN = {"zookeepers": 1, "replicas": 3, "min_isr": 2, "bind": ""}


def wait_running(cluster: Cluster, name: str) -> None:
    """Until a process is back."""
    wait_for(lambda: cluster.nodes()[name]["state"] == "running", timeout_s=60, what=name)


async def balanced(cluster: Cluster, talkers: Talkers, name: str) -> None:
    """Everything is where it belongs."""
    await talkers.check(seconds=120)
    print(f"{name}: accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
    report = await asyncio.to_thread(audit, cluster)
    assert report["balanced"], report


@pytest.mark.timeout(600)
@pytest.mark.feature("X48", "X62", "X69")
async def test_a_server_of_zookeeper_is_killed_and_frozen_under_a_shard(tmp_path: Path) -> None:
    text = CLUSTER.format(**{**PLAIN, "zookeepers": 3})
    with Cluster(tmp_path, text) as cluster:
        await asyncio.to_thread(cluster.wait_in_sync, 3)
        doors = await asyncio.to_thread(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more()
            for number in (1, 2, 3):
                name = f"zookeeper-{number}"
                await asyncio.to_thread(cluster.ask, "kill", name)
                await talkers.more(seconds=90)
                await asyncio.to_thread(wait_running, cluster, name)
            await asyncio.to_thread(cluster.ask, "freeze", "zookeeper-2")
            await asyncio.sleep(6)
            await asyncio.to_thread(cluster.ask, "thaw", "zookeeper-2")
            await talkers.more(seconds=90)
            await balanced(cluster, talkers, "zookeeper")


@pytest.mark.timeout(600)
@pytest.mark.feature("X48", "X62", "X73")
async def test_every_replica_is_frozen_for_longer_than_its_lease(tmp_path: Path) -> None:
    with Cluster(tmp_path, CLUSTER.format(**PLAIN)) as cluster:
        doors = await asyncio.to_thread(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more()
            for name in [name for name in cluster.nodes() if name.startswith("shard-")]:
                await asyncio.to_thread(cluster.ask, "freeze", name)
                await asyncio.sleep(5)  # its lease is 1.2 s
                await asyncio.to_thread(cluster.ask, "thaw", name)
                await talkers.more(seconds=90)
            await balanced(cluster, talkers, "SIGSTOP")


class Apart:
    """A network of its own for half of the processes, and a cable to it that can be pulled."""

    HERE, THERE, NAME, CABLE = "10.213.77.1", "10.213.77.2", "pixiu-apart", "pixiu-cable"

    def __enter__(self) -> Self:
        if shutil.which("ip") is None or os.geteuid() != 0:
            pytest.skip("network namespaces need ip and root")
        try:
            self._run("ip", "netns", "add", self.NAME)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr}")
        self._run("ip", "link", "add", self.CABLE, "type", "veth", "peer", "name", "cable", "netns", self.NAME)
        self._run("ip", "addr", "add", f"{self.HERE}/24", "dev", self.CABLE)
        self._inside("ip", "addr", "add", f"{self.THERE}/24", "dev", "cable")
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("ip", "link", "set", "cable", "up")
        self.plug()
        return self

    def __exit__(self, *_: object) -> None:
        self._run("ip", "link", "del", self.CABLE)
        self._run("ip", "netns", "del", self.NAME)

    def plug(self) -> None:
        self._run("ip", "link", "set", self.CABLE, "up")

    def pull(self) -> None:
        """Nothing passes; nobody is told."""
        self._run("ip", "link", "set", self.CABLE, "down")

    def _inside(self, *command: str) -> None:
        self._run("ip", "netns", "exec", self.NAME, *command)

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)


@pytest.fixture
def apart() -> Iterator[Apart]:
    with Apart() as made:
        yield made


async def forward(here: str, port: int) -> asyncio.Server:
    """ZooKeeper of the cluster listens on loopback: others reach it through this."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    return await asyncio.start_server(accept, here, port)


class Far(Extra):
    """A replica on the other side of the cable."""

    def __init__(self, cluster: Cluster, apart: Apart, registry: str) -> None:
        folder = cluster.folder / "nodes" / "far"
        command = ["ip", "netns", "exec", apart.NAME, sys.executable, "-m", "pixiu", "role", "shard", "--json"]
        command += ["--registry", registry, "--bind", apart.THERE, "--data", str(folder)]
        command += ["--secret-file", str(cluster.folder / "secret"), "--set", "replication.name=far"]
        command += ["--set", "messaging.sends_per_second=0", "--set", "gateway.lease_ms=3000"]
        command += ["--set", "replication.min_isr=1"]
        self.start(command, cluster.folder / "logs" / "far.log")


async def served_by(cluster: Cluster, partition: int, wanted: str, *, seconds: float = 60) -> None:
    """Until the registry says so."""
    from kazoo.client import KazooClient

    address = RegistryAddress.parse(cluster.registry)

    def look() -> bool:
        client = KazooClient(hosts=address.hosts)
        client.start(timeout=10)
        try:
            data, _ = client.get(f"{address.root}/shard/partition{partition}/leader")
            return f'"{wanted}"' in data.decode()
        finally:
            client.stop()
            client.close()

    await asyncio.to_thread(wait_for, look, timeout_s=seconds, what=f"{wanted} to serve")


@pytest.mark.timeout(600)
@pytest.mark.feature("X48", "X62", "X74")
async def test_the_network_is_cut_while_the_far_replica_serves(tmp_path: Path, apart: Apart) -> None:
    """The near half has a replica, ZooKeeper and the gateways."""
    text = CLUSTER.format(**{**PLAIN, "replicas": 1, "min_isr": 1, "bind": f'bind = "{apart.HERE}"'})
    with Cluster(tmp_path, text) as cluster:
        address = RegistryAddress.parse(cluster.registry)
        port = int(address.hosts.rpartition(":")[2])
        server = await forward(apart.HERE, port)
        registry = f"zk://{apart.HERE}:{port}{address.root}"
        doors = await asyncio.to_thread(doors_of, cluster)
        far = await asyncio.to_thread(Far, cluster, apart, registry)
        try:
            async with Talkers(doors) as talkers:
                await talkers.more()
                for cuts in (1, 2):
                    await asyncio.to_thread(in_sync, cluster, 2)
                    await asyncio.to_thread(cluster.ask, "freeze", "shard-0-0")
                    await served_by(cluster, 0, "far")
                    await asyncio.to_thread(cluster.ask, "thaw", "shard-0-0")
                    await asyncio.to_thread(in_sync, cluster, 2)
                    await talkers.more(seconds=90)
                    await asyncio.to_thread(apart.pull)
                    cut_s = time.monotonic()
                    await served_by(cluster, 0, "shard-0-0")
                    await talkers.more(seconds=90)
                    print(f"cut {cuts}: everyone is served again after {time.monotonic() - cut_s:.1f} s")
                    await asyncio.to_thread(apart.plug)
                await talkers.more()
                await balanced(cluster, talkers, "cut")
        finally:
            await asyncio.to_thread(apart.plug)
            code = await asyncio.to_thread(far.stop)
            server.close()
        assert code == 0


def in_sync(cluster: Cluster, count: int) -> None:
    """Until the record of the registry has so many replicas in sync."""
    from kazoo.client import KazooClient

    address = RegistryAddress.parse(cluster.registry)

    def look() -> bool:
        client = KazooClient(hosts=address.hosts)
        client.start(timeout=10)
        try:
            data, _ = client.get(f"{address.root}/shard/partition0/ctl")
            return len(json.loads(data)["in_sync"]) == count
        finally:
            client.stop()
            client.close()

    wait_for(look, timeout_s=60, what=f"{count} replicas in sync")
