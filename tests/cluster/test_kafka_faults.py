"""A shard whose log is in Kafka, while its owner, a standby and Kafka itself are killed and frozen.

People write to each other all the time. Everything accepted is delivered once and in order, is in both histories, and
the audit balances.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

pytest.importorskip("confluent_kafka")

from pixiu.model.errors import NotAllowed
from pixiu.model.pixiu_pb2 import Record, Traces
from pixiu.node.processes.cluster_secrets import queue_key
from pixiu.ports.log import MAIN
from pixiu.queue.client import Client
from pixiu.queue.client.errors import FateUnknown
from tests.cluster.processes import Cluster
from tests.cluster.talkers import Talkers
from tests.cluster.test_durable_faults import DURABLE, Extra, audit, doors_of
from tests.kafka import new_prefix, require_kafka
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.timeout(600)]

PATIENCE_S = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def text_of(kafka: KafkaServer, *, replicas: int = 2, log: str = "") -> str:
    plain = DURABLE.format(min_isr=1, replicas=replicas, gateways=2)
    return f'{plain}\n[engines]\nlog = "{log or log_of(kafka)}"\n'


def log_of(kafka: KafkaServer) -> str:
    return f"kafka://{kafka.hosts}?prefix={new_prefix()}"


def owner(cluster: Cluster) -> str:
    """The replica that serves."""
    rows = cluster.nodes()
    found = [name for name in rows if rows[name]["role"] == "shard" and "serves" in rows[name]["detail"]]
    assert len(found) == 1, rows
    return found[0]


def wait_ready(cluster: Cluster) -> None:
    """Until every replica could serve."""

    def are_ready() -> bool:
        rows = [row for row in cluster.nodes().values() if row["role"] == "shard"]
        return all(row["detail"].startswith("Running") for row in rows)

    wait_for(are_ready, what="all to be ready", timeout_s=60)


def state(admin: str) -> dict[str, Any]:
    """What a replica says of itself."""
    found: dict[str, Any] = httpx.get(f"{admin}/shard", timeout=10).json()
    return found


async def finish(cluster: Cluster, talkers: Talkers) -> None:
    """Everything is where it belongs."""
    await talkers.check(seconds=PATIENCE_S)
    print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
    report = await at(audit, cluster)
    assert report["balanced"] and report["accepted"] >= len(talkers.times), report


async def at(call: Any, *arguments: Any, **options: Any) -> Any:
    """Beside the loop."""
    return await asyncio.to_thread(call, *arguments, **options)


@pytest.mark.feature("X48", "X62", "X69", "X73", "X74", "X75")
async def test_owner_of_the_log_is_killed_frozen_and_drained_during_traffic(kafka: KafkaServer, tmp_path: Path) -> None:
    with Cluster(tmp_path, text_of(kafka)) as cluster:
        doors = await at(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more()
            for fault in ("kill", "freeze", "kill", "drain"):
                await at(wait_ready, cluster)
                await talkers.more(seconds=PATIENCE_S)
                name = await at(owner, cluster)
                await at(cluster.ask, fault, name)
                if fault == "freeze":
                    await asyncio.sleep(5)  # longer than the lease: another replica owns the log when this one resumes
                    assert await at(owner, cluster) != name
                    await at(cluster.ask, "thaw", name)
                await talkers.more(seconds=PATIENCE_S)
                print(f"{fault} {name}: longest pause so far {talkers.longest_gap_s():.1f} s")
                if fault == "drain":
                    assert await at(owner, cluster) != name
            await finish(cluster, talkers)


@pytest.mark.feature("X48", "X62", "X73", "X75")
async def test_new_replica_catches_up_from_kafka_and_serves_after_the_owner(kafka: KafkaServer, tmp_path: Path) -> None:
    """The supervisor did not start the new replica, so it does not restart it after the kill."""
    log = log_of(kafka)
    with Cluster(tmp_path, text_of(kafka, replicas=1, log=log)) as cluster:
        doors = await at(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more(20)
            await at(cluster.ask, "kill", "shard-0-0")  # restarted, it has nothing of this in memory
            await talkers.more(seconds=PATIENCE_S)
            more = ("--set", f"log={log}", "--set", "replication.name=shard-0-9", "--set", "queue.node_id=9")
            extra = await at(Extra, cluster, "shard", "--shard", "0", *more)
            admin = str(extra.said["admin"])
            accepted = 20 * len(talkers.users)
            is_warm = lambda: (found := state(admin))["applied"] > accepted and found["behind"] < 100  # noqa: E731
            await at(wait_for, is_warm, what="the new replica to catch up", timeout_s=60)
            assert not state(admin)["serving"]
            await at(cluster.ask, "freeze", "shard-0-0")
            await at(wait_for, lambda: state(admin)["serving"], what="the new replica to serve", timeout_s=30)
            await at(cluster.ask, "thaw", "shard-0-0")
            await talkers.more(seconds=PATIENCE_S)
            assert "stands by" in (await at(cluster.nodes))["shard-0-0"]["detail"]
            await at(extra.kill)
            await talkers.more(seconds=PATIENCE_S)
            assert await at(owner, cluster) == "shard-0-0"
            await finish(cluster, talkers)


@pytest.mark.feature("X73", "X75")
async def test_kafka_is_killed_and_frozen_during_traffic(kafka: KafkaServer, tmp_path: Path) -> None:
    with Cluster(tmp_path, text_of(kafka)) as cluster:
        doors = await at(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more()
            await at(kafka.kill)
            await asyncio.sleep(2)
            await at(kafka.start)
            await talkers.more(seconds=PATIENCE_S)
            kafka.freeze()
            await asyncio.sleep(4)
            kafka.thaw()
            await talkers.more(seconds=PATIENCE_S)
            await at(kafka.kill)
            await at(cluster.ask, "kill", await at(owner, cluster))  # the next owner finds no Kafka
            await asyncio.sleep(5)
            await at(kafka.start)
            await talkers.more(seconds=PATIENCE_S)
            await finish(cluster, talkers)


@pytest.mark.feature("X75")
def test_replica_with_another_log_never_serves(kafka: KafkaServer, tmp_path: Path) -> None:
    with Cluster(tmp_path, text_of(kafka, replicas=1)) as cluster:
        wait_for(lambda: owner(cluster) == "shard-0-0", what="the replica to serve")
        other = ("--set", f"log={log_of(kafka)}", "--set", "replication.name=shard-0-9", "--set", "queue.node_id=9")
        extra = Extra(cluster, "shard", "--shard", "0", *other)
        try:
            ready = f"{extra.said['admin']}/readyz"
            wait_for(lambda: "is not the log of this shard" in httpx.get(ready, timeout=10).text, what="the refusal")
            cluster.ask("freeze", "shard-0-0")
            with pytest.raises(AssertionError):
                wait_for(lambda: state(extra.said["admin"])["serving"], what="a second owner", timeout_s=6)
        finally:
            cluster.ask("thaw", "shard-0-0")
            assert extra.stop() == 0


@pytest.mark.feature("X75")
async def test_queue_port_appends_rows_of_rooms_and_nothing_else(kafka: KafkaServer, tmp_path: Path) -> None:
    with Cluster(tmp_path, text_of(kafka)) as cluster:
        await at(doors_of, cluster)
        secret = (cluster.folder / "secret").read_text()
        record = Record(at=1, traces=Traces()).SerializeToString()
        async with Client(cluster.registry, key=queue_key(secret, "127.0.0.1"), patience_s=20) as client:
            first = await client.publish(MAIN, record)
            assert await client.publish(MAIN, record) > first > 0
            with pytest.raises(NotAllowed, match="log of this cluster is in Kafka"):
                await client.publish("orders", b"one")
            with pytest.raises(NotAllowed, match="log of this cluster is in Kafka"):
                await client.create_topic("orders")
            await at(wait_ready, cluster)
            await at(cluster.ask, "kill", await at(owner, cluster))
            with contextlib.suppress(FateUnknown):
                await client.publish(MAIN, record)
            assert await client.publish(MAIN, record) > first
        async with Client(cluster.registry, patience_s=5) as stranger:
            with pytest.raises(NotAllowed, match="log of this cluster is in Kafka"):
                await stranger.publish(MAIN, record)
        report = await at(audit, cluster)
        assert report["balanced"], report
