"""The cluster's scenario on the engines of others: embedded, all of them, mixed, and many processes with ZooKeeper.

One node has its log in Kafka, its stores in Redis and its history in Cassandra, or some of these. So has a cluster,
whose registry is in ZooKeeper: its shard owns the log in Kafka and has stores in Redis and Cassandra. All have to show
the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.cluster.scenario import Doors, play
from tests.cluster.test_scenario import compare, many_processes, one_process
from tests.engines import ValkeyCluster, ValkeyProcess, require_cassandra
from tests.kafka import new_prefix, require_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.timeout(600), pytest.mark.feature("X75", "T1")]

MIXES = {
    "redis": ("store",),
    "cassandra": ("timelines",),
    "redis and kafka": ("store", "log"),
    "redis, cassandra and kafka": ("store", "timelines", "log"),
}

CLUSTER_MIXES: dict[str, tuple[str, ...]] = {
    "embedded": (),
    "redis": ("store",),
    "redis cluster": ("clustered",),
    "cassandra": ("timelines",),
    "redis and cassandra": ("store", "timelines"),
    "kafka": ("log",),
    "redis and kafka": ("store", "log"),
    "redis, cassandra and kafka": ("store", "timelines", "log"),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[], str]]]:
    """A setting of each engine, with data that nobody else has."""
    folder = tmp_path_factory.mktemp("servers")
    kafka, cassandra = require_kafka(folder / "kafka"), require_cassandra(folder / "cassandra")
    with ExitStack() as exits:
        valkey = exits.enter_context(ValkeyProcess(folder / "valkey", "--appendonly", "yes"))
        three = exits.enter_context(ValkeyCluster(folder / "three"))
        exits.enter_context(kafka)
        exits.enter_context(cassandra)
        databases, keyspaces = iter(range(16)), iter(range(16))
        yield {
            "store": lambda: f"store={valkey.url}/{next(databases)}?timeout_ms=5000",
            "clustered": lambda: f"store={three.url}?timeout_ms=5000",
            "timelines": lambda: f"timelines=cassandra://{cassandra.address}/s{next(keyspaces)}?timeout_ms=10000",
            "log": lambda: f"log=kafka://{kafka.hosts}?prefix={new_prefix()}",
        }


async def played(doors: Doors) -> dict[str, Any]:
    """The transcript; then the books balance, and the node is as well as it says."""
    transcript = await play(doors)
    headers = {"Authorization": f"Bearer {doors.token('root', is_admin=True)}"}
    async with httpx.AsyncClient(base_url=doors.urls[0], headers=headers, timeout=60) as http:
        report = (await http.get("/v1/admin/audit")).json()
        assert report["balanced"] and report["accepted"] > 100, report
        assert (await http.get("/readyz")).status_code == 200
    return transcript


@pytest.fixture(scope="module")
def embedded() -> dict[str, Any]:
    """What the embedded default has shown, once it was played."""
    return {}


async def shown_by_default(embedded: dict[str, Any], folder: Path) -> dict[str, Any]:
    if not embedded:
        (folder / "embedded").mkdir()
        with one_process(folder / "embedded") as doors:
            embedded.update(await played(doors))
    return embedded


@pytest.mark.parametrize("mix", MIXES)
async def test_a_node_on_other_engines_shows_what_the_embedded_one_shows(
    mix: str, servers: dict[str, Callable[[], str]], embedded: dict[str, Any], tmp_path: Path
) -> None:
    one = await shown_by_default(embedded, tmp_path)
    (tmp_path / "node").mkdir()
    with one_process(tmp_path / "node", *(servers[setting]() for setting in MIXES[mix])) as doors:
        compare(one, await played(doors))


@pytest.mark.parametrize("mix", CLUSTER_MIXES)
async def test_a_cluster_with_zookeeper_shows_what_the_embedded_node_shows(
    mix: str, servers: dict[str, Callable[[], str]], embedded: dict[str, Any], tmp_path: Path
) -> None:
    one = await shown_by_default(embedded, tmp_path)
    (tmp_path / "cluster").mkdir()
    with many_processes(tmp_path / "cluster", *(servers[setting]() for setting in CLUSTER_MIXES[mix])) as doors:
        compare(one, await played(doors))
