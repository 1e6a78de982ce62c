"""A cluster whose log is in Kafka, while its owner, its carriers and Kafka itself are hurt.

People write to each other all the time. Whatever was accepted is delivered once and in order, stands in both histories,
and the books of all partitions balance.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

pytest.importorskip("confluent_kafka")

from tests.cluster.processes import Cluster
from tests.cluster.talkers import Talkers
from tests.cluster.test_durable_faults import DURABLE, Extra, audit, doors_of, serves
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


def text_of(kafka: KafkaServer, *, queues: int = 2, replicas: int = 2, log: str = "") -> str:
    plain = DURABLE.format(queues=queues, min_isr=1, partitions=1, replicas=replicas, gateways=2)
    return f'{plain}\n[engines]\nlog = "{log or log_of(kafka)}"\n'


def log_of(kafka: KafkaServer) -> str:
    return f"kafka://{kafka.hosts}?prefix={new_prefix()}"


def owner(cluster: Cluster) -> str:
    """Who owns the log."""
    rows = cluster.nodes()
    found = [name for name in rows if rows[name]["role"] == "queue" and "serves" in rows[name]["detail"]]
    assert len(found) == 1, rows
    return found[0]


async def at(call: Any, *arguments: Any, **options: Any) -> Any:
    """Beside the loop."""
    return await asyncio.to_thread(call, *arguments, **options)


@pytest.mark.feature("X48", "X62", "X69", "X73", "X74", "X75")
async def test_the_owner_of_the_log_is_killed_frozen_and_drained_during_traffic(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    with Cluster(tmp_path, text_of(kafka)) as cluster:
        doors = await at(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more()
            for blow in ("kill", "freeze", "kill"):
                name = await at(owner, cluster)
                await at(cluster.ask, blow, name)
                if blow == "freeze":
                    await asyncio.sleep(5)  # longer than the lease: another owns it when this one wakes
                    assert await at(owner, cluster) != name
                    await at(cluster.ask, "thaw", name)
                await talkers.more(seconds=PATIENCE_S)
            print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
            name = await at(owner, cluster)
            await at(cluster.ask, "drain", name)
            await talkers.more(seconds=PATIENCE_S)
            assert await at(owner, cluster) != name
            await at(cluster.ask, "kill", await at(serves, cluster, 0))
            await talkers.more(seconds=PATIENCE_S)
            await talkers.check(seconds=PATIENCE_S)
            print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
        report = await at(audit, cluster)
        assert report["balanced"] and report["accepted"] >= len(talkers.times), report


@pytest.mark.feature("X48", "X62", "X73", "X75")
async def test_an_owner_that_is_killed_and_stays_dead_is_followed_by_the_one_that_stands_by(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """One that nobody starts again: it is not the supervisor's."""
    log = log_of(kafka)
    with Cluster(tmp_path, text_of(kafka, queues=1, replicas=1, log=log)) as cluster:
        doors = await at(doors_of, cluster)
        more = ("--set", f"log={log}", "--set", "replication.name=shard-0-9", "--set", "queue.node_id=9")
        extra = await at(Extra, cluster, "queue", *more)
        admin = str(extra.said["admin"])

        def is_owner() -> bool:
            return "\npixiu_kafka_is_owner 1" in httpx.get(f"{admin}/metrics", timeout=10).text

        try:
            async with Talkers(doors) as talkers:
                await talkers.more()
                assert not await at(is_owner)
                await at(cluster.ask, "freeze", "shard-0-0")
                await at(wait_for, is_owner, what="the other one to own the log", timeout_s=30)
                await at(cluster.ask, "thaw", "shard-0-0")
                await talkers.more(seconds=PATIENCE_S)
                extra.process.kill()
                await talkers.more(seconds=PATIENCE_S)
                assert await at(owner, cluster) == "shard-0-0"
                await talkers.check(seconds=PATIENCE_S)
                print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
        finally:
            code = await at(extra.stop)
        assert code == -9
        report = await at(audit, cluster)
        assert report["balanced"] and report["accepted"] >= len(talkers.times), report


@pytest.mark.feature("X62", "X73", "X75")
async def test_a_carrier_that_is_new_or_was_killed_catches_up_from_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    with Cluster(tmp_path, text_of(kafka, queues=1, replicas=1)) as cluster:
        doors = await at(doors_of, cluster)
        async with Talkers(doors) as talkers:
            await talkers.more(20)
            await at(cluster.ask, "kill", "shard-0-0")  # its next life has nothing of this in memory
            await talkers.more(seconds=PATIENCE_S)
            extra = await at(Extra, cluster, "carrier", "--partition", "0", "--set", "replication.name=carrier-0-9")

            def state(key: str) -> Any:
                return httpx.get(f"{extra.said['admin']}/carrier", timeout=10).json()[key]

            try:
                said = 20 * len(talkers.users)  # one that has not begun is not behind either
                is_there = lambda: state("applied") > said and state("behind") == 0  # noqa: E731
                await at(wait_for, is_there, what="the new replica to catch up", timeout_s=60)
                await at(cluster.kill_until, "carrier-0-0", lambda: state("serving"), what="the new replica to serve")
                await talkers.more(seconds=PATIENCE_S)
                await talkers.check(seconds=PATIENCE_S)
                rows = await at(cluster.nodes)
                assert "stands by" in rows["carrier-0-0"]["detail"], "the killed one has come back"
                report = await at(audit, cluster)
                assert report["balanced"] and report["accepted"] >= len(talkers.times), report
            finally:
                assert await at(extra.stop) == 0


@pytest.mark.feature("X73", "X75")
async def test_kafka_is_killed_and_stands_still_during_traffic(kafka: KafkaServer, tmp_path: Path) -> None:
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
            await at(cluster.ask, "kill", await at(owner, cluster))  # whoever is next finds no Kafka
            await asyncio.sleep(5)
            await at(kafka.start)
            await talkers.more(seconds=PATIENCE_S)
            await talkers.check(seconds=PATIENCE_S)
            print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
        report = await at(audit, cluster)
        assert report["balanced"] and report["accepted"] >= len(talkers.times), report
