"""Replicas of a shard with their stores in one Valkey or Cassandra, while the engines and the replicas are killed.

People write to each other all the time. Everything accepted is delivered once and in order, is in both histories, and
the audit balances.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.cluster.processes import Cluster
from tests.cluster.talkers import Talkers
from tests.cluster.test_durable_faults import DURABLE, Extra, audit, doors_of
from tests.engines import ValkeyProcess, require_cassandra
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.timeout(600)]

PATIENCE_S = 120
ENGINES = '\n[engines]\nstore = "{url}?timeout_ms=2000"\n'


def text_of(valkey: ValkeyProcess) -> str:
    plain = DURABLE.format(replicas=2, min_isr=1, gateways=2)
    return plain + ENGINES.format(url=valkey.url)


def owners(valkey: ValkeyProcess) -> set[str]:
    """The replicas whose stores are there."""
    found = {name.decode() for name in valkey.told("KEYS", "*")}
    assert all(name.startswith("pixiu-shard-") for name in found), found
    return {name.removesuffix(":pixiu:owner") for name in found if name.endswith(":pixiu:owner")}


@pytest.mark.feature("X62", "X73", "X75")
async def test_replicas_and_their_valkey_are_killed_during_traffic(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path / "valkey", "--appendonly", "yes") as valkey,
        Cluster(tmp_path, text_of(valkey)) as cluster,
    ):
        doors = await asyncio.to_thread(doors_of, cluster)

        def is_another(before: str) -> bool:
            rows = cluster.nodes()
            return any(n.startswith("shard-0-") and n != before and "leads" in rows[n]["detail"] for n in rows)

        async with Talkers(doors) as talkers:
            await talkers.more()
            assert owners(valkey) == {"pixiu-shard-0-0", "pixiu-shard-0-1"}
            served = await asyncio.to_thread(cluster.leader)
            await asyncio.to_thread(cluster.kill_until, served, lambda: is_another(served), what="the other to serve")
            await talkers.more(seconds=PATIENCE_S)
            valkey.stop()
            await asyncio.sleep(2)
            valkey.start()
            await talkers.more(seconds=PATIENCE_S)
            valkey.freeze()
            await asyncio.sleep(4)  # longer than the lease, and than an answer may take
            valkey.thaw()
            await talkers.more(seconds=PATIENCE_S)
            valkey.told("FLUSHALL")  # everything is made again from the log
            await talkers.more(seconds=PATIENCE_S)
            served = await asyncio.to_thread(cluster.leader)
            await asyncio.to_thread(cluster.ask, "kill", served)
            valkey.stop()
            valkey.start()
            await talkers.more(seconds=PATIENCE_S)
            await talkers.check(seconds=PATIENCE_S)
            print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
        report = await asyncio.to_thread(audit, cluster)
        assert report["balanced"] and report["accepted"] >= len(talkers.times), report


@pytest.mark.feature("X62", "X73", "X75")
async def test_replicas_and_their_cassandra_are_killed_during_traffic(tmp_path: Path) -> None:
    cassandra = require_cassandra(tmp_path / "cassandra")
    with ValkeyProcess(tmp_path / "valkey", "--appendonly", "yes") as valkey, cassandra:
        timelines = f'timelines = "cassandra://{cassandra.address}/talk?timeout_ms=5000"\n'
        with Cluster(tmp_path, text_of(valkey) + timelines) as cluster:
            doors = await asyncio.to_thread(doors_of, cluster)
            async with Talkers(doors) as talkers:
                await talkers.more()
                await asyncio.to_thread(cassandra.kill)
                await asyncio.to_thread(cluster.ask, "kill", await asyncio.to_thread(cluster.leader))
                await asyncio.to_thread(cassandra.start)
                await talkers.more(seconds=PATIENCE_S)
                await asyncio.to_thread(cluster.ask, "kill", await asyncio.to_thread(cluster.leader))
                await talkers.more(seconds=PATIENCE_S)
                await talkers.check(seconds=PATIENCE_S)
                print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
            report = await asyncio.to_thread(audit, cluster)
            assert report["balanced"], report


@pytest.mark.feature("X62", "X73", "X75")
async def test_of_replicas_with_different_engines_one_serves_whose_engine_is_there(tmp_path: Path) -> None:
    plain = DURABLE.format(replicas=1, min_isr=1, gateways=2)
    with ValkeyProcess(tmp_path / "valkey", "--appendonly", "yes") as valkey, Cluster(tmp_path, plain) as cluster:
        doors = await asyncio.to_thread(doors_of, cluster)
        more = ("--replica", "9", "--set", f"store={valkey.url}", "--set", "messaging.sends_per_second=0")
        extra = await asyncio.to_thread(Extra, cluster, "shard", *more)

        def state(key: str) -> Any:
            return httpx.get(f"{extra.said['admin']}/shard", timeout=10).json()[key]

        try:
            async with Talkers(doors) as talkers:
                await talkers.more()
                await asyncio.to_thread(wait_for, lambda: state("behind") == 0, what="the new replica", timeout_s=60)
                killed = "shard-0-0"
                await asyncio.to_thread(cluster.kill_until, killed, lambda: state("serving"), what="it to serve")
                await talkers.more(seconds=PATIENCE_S)
                valkey.stop()
                await asyncio.to_thread(wait_for, lambda: not state("serving"), what="it to stand back", timeout_s=30)
                await talkers.more(seconds=PATIENCE_S)
                assert await asyncio.to_thread(cluster.leader) == "shard-0-0"
                valkey.start()
                await asyncio.to_thread(wait_for, lambda: state("behind") == 0, what="its return", timeout_s=60)
                await asyncio.to_thread(cluster.kill_until, killed, lambda: state("serving"), what="it to serve again")
                await talkers.more(seconds=PATIENCE_S)
                await talkers.check(seconds=PATIENCE_S)
                print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
            report = await asyncio.to_thread(audit, cluster)
            assert report["balanced"], report
        finally:
            assert await asyncio.to_thread(extra.stop) == 0
