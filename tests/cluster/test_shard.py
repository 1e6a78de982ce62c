"""Durable messages in a shard of real processes: replicas that take over, and audits that balance."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.node.stores import open_stores
from pixiu.pipeline.lake.local import fill_lake
from pixiu.ports.stores import Lane
from tests.cluster.hub_client import Shards
from tests.cluster.processes import Cluster
from tests.pipeline.search_child import feed
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.hub_client import HubClient

pytestmark = pytest.mark.serial

SHARD = """
name = "test"
zookeeper = {{ nodes = 1 }}

[roles.shard]
replicas = {replicas}
settings = {{ "replication.min_isr" = {min_isr}, "messaging.sends_per_second" = 0{more} }}
"""
RESUMES_S = 4.0


def audit(cluster: Cluster, *, returncode: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", "audit", "--registry", cluster.registry, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == returncode, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shards(cluster: Cluster) -> Shards:
    return Shards(cluster.registry, (cluster.folder / "secret").read_text(encoding="utf-8"))


async def conversation(found: Shards) -> tuple[HubClient, HubClient, int, int]:
    """Two users at two gateways talk with each other, and in a group."""
    one, other = await found.connect(0), await found.connect(0, name="g2")
    bob, alice = await one.log_in("2"), await other.log_in("1")
    sent = await other.act(alice, "send", to="2", text="hello", send_id="a1")
    assert await one.pushed(bob, 1) == [int(sent["message_id"])]
    assert MsgChat.FromString(one.pushes[0][3]).data == b"hello"
    one.ack(bob, one.cursor(bob))
    back = await one.act(bob, "send", to="1", text="hi", send_id="b1")
    assert await other.pushed(alice, 1) == [int(back["message_id"])], "a session does not get back what it has sent"
    other.ack(alice, other.cursor(alice))
    for client, session, peer in ((one, bob, "1"), (other, alice, "2")):
        history = await client.act(session, "history", with_=peer)
        assert [each["text"] for each in history["messages"]] == ["hi", "hello"]
    made = await other.act(alice, "create_group", group="club", members=["2", "3", "4"])
    said = await one.act(bob, "gsend", group="club", text="all of you")
    assert int(said["message_id"]) in await other.pushed(alice, 2), made
    return one, other, bob, alice


async def find(client: HubClient, session: int, log: Path) -> None:
    """The user finds messages in the index that a pipeline makes beside the log."""
    with pytest.raises(Unavailable, match="pixiu pipeline run archive search --once"):
        await client.act(session, "search", q="hello")
    await asyncio.to_thread(fill_lake, log)
    await asyncio.to_thread(feed, log)
    found = (await client.act(session, "search", q="hello"))["messages"]
    assert [each["text"] for each in found] == ["hello"]
    assert (await client.act(session, "search", q="nobody said this"))["messages"] == []


@pytest.mark.timeout(150)
@pytest.mark.feature("X42", "X43", "X48", "X62")
async def test_a_killed_leader_is_replaced_without_loss_and_repeats_get_the_first_answer(tmp_path: Path) -> None:
    log = tmp_path / "cluster" / "nodes" / "shard-0-0"
    text = SHARD.format(replicas=3, min_isr=2, more=f', "search.data" = "{log}"')
    with Cluster(tmp_path, text) as cluster:
        await asyncio.to_thread(cluster.wait_in_sync, 3)
        async with shards(cluster) as found:
            one, other, bob, alice = await conversation(found)
            await find(other, alice, log)
            missed = [int((await other.act(alice, "send", to="2", text=f"m{n}"))["message_id"]) for n in range(20)]
            before = await found.server(0)
            killed_s = time.monotonic()
            await asyncio.to_thread(cluster.ask, "kill", before["name"])
            with pytest.raises(PixiuError):
                await one.log_in("4")
            again = await found.connect(0, after_epoch=before["epoch"])
            bob = await again.log_in("2")
            resumed_s = time.monotonic() - killed_s
            print(f"served again after {resumed_s:.2f} s")
            assert resumed_s < RESUMES_S
            assert (await found.server(0))["epoch"] > before["epoch"]
            assert set(missed) <= set(await again.pushed(bob, 20))
            again.ack(bob, again.cursor(bob))
            repeat = await again.act(bob, "send", to="1", text="hi", send_id="b1")
            history = await again.act(bob, "history", with_="1", limit=100)
            first = [each for each in history["messages"] if each.get("send_id") == "b1"]
            assert [each["message_id"] for each in first] == [repeat["message_id"]]
        report = await asyncio.to_thread(audit, cluster)
        assert report["balanced"]
        assert report["accepted"] == 24, "two private ones, the group's notice and message, twenty that were missed"
        assert report["intended"] == 2 * 22 + 2 * 4
        assert report["acked"] >= 22


@pytest.mark.timeout(150)
async def test_the_audit_of_a_cluster_names_rows_missing_from_a_history(tmp_path: Path) -> None:
    text = SHARD.format(replicas=1, min_isr=1, more="")
    with Cluster(tmp_path, text) as cluster:
        async with shards(cluster) as found:
            one, other, bob, alice = await conversation(found)
            for client, session in ((one, bob), (other, alice)):
                client.ack(session, client.cursor(session))
        report = await asyncio.to_thread(audit, cluster)
        assert report["histories"] == 2 * 2 + 2, "two sides of two messages, two rows of a group"
    _, stores = open_stores(cluster.folder / "nodes" / "shard-0-0")
    lost = stores.timelines.drop_private(1, through=2**62)
    stores.commit({lane: stores.applied(lane) for lane in Lane})
    stores.close()
    assert len(lost) == 2
    with Cluster(tmp_path, text) as cluster:
        report = await asyncio.to_thread(audit, cluster, returncode=1)
    assert report["lost"] == [{"user": 1, "message_id": str(each), "reason": "not in the history"} for each in lost]
    assert not report["balanced"]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("X43", "X48", "X50", "X51", "X62")
async def test_nothing_is_lost_while_leaders_are_frozen_drained_and_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, SHARD.format(replicas=3, min_isr=2, more="")) as cluster:
        await asyncio.to_thread(cluster.wait_in_sync, 3)
        async with shards(cluster) as found:
            await conversation(found)
            accepted: dict[str, str] = {}
            is_over = asyncio.Event()
            load = [asyncio.ensure_future(talk(found, user, accepted, is_over)) for user in ("1", "2")]
            for fault in ("freeze", "drain", "kill"):
                await asyncio.sleep(2)
                row = await found.server(0)
                await asyncio.to_thread(cluster.ask, fault, row["name"])
                await found.connect(0, name="watcher", after_epoch=row["epoch"])
                if fault == "freeze":
                    await asyncio.sleep(2)
                    await asyncio.to_thread(cluster.ask, "thaw", row["name"])
                    await asyncio.sleep(1)
                    assert (await found.server(0))["name"] != row["name"], "a replica that comes back follows"
                elif fault == "drain":
                    await asyncio.to_thread(cluster.ask, "start", row["name"])
            await asyncio.sleep(3)
            is_over.set()
            await asyncio.gather(*load)
            assert len(accepted) > 50
        report = await asyncio.to_thread(audit, cluster)
        assert report["balanced"], report
        assert report["accepted"] == 4 + len(accepted), "every accepted one is there, and none twice"


async def talk(found: Shards, user: str, accepted: dict[str, str], is_over: asyncio.Event) -> None:
    """Send again and again, each message until it is accepted, to the replica that serves."""
    peer = {"1": "2", "2": "1"}[user]
    client: HubClient | None = None
    session = number = 0
    while not is_over.is_set():
        try:
            if client is None:
                client = await found.connect(0, name=f"g-{user}")
                session = await client.log_in(user, "ios")
            answer = await client.act(session, "send", to=peer, text=f"{user} {number}", send_id=f"{user}-{number}")
        except (Unavailable, TimeoutError):
            if client is not None:
                client.close()
                client = None
            await asyncio.sleep(0.1)
            continue
        assert accepted.setdefault(f"{user}-{number}", answer["message_id"]) == answer["message_id"]
        number += 1
        await asyncio.sleep(0.01)


@pytest.mark.timeout(150)
@pytest.mark.feature("X53")
async def test_a_replica_behind_the_begin_of_the_log_copies_the_stores(tmp_path: Path) -> None:
    """Retention has removed the beginning of the log, so a new replica cannot make its stores from the log."""
    short = ', "journal.segment_bytes" = 65536, "journal.retention_bytes" = 131072'
    short += ', "topics.retention_interval_ms" = 500'
    with Cluster(tmp_path, SHARD.format(replicas=2, min_isr=1, more=short)) as cluster:
        async with shards(cluster) as found:
            one, other, _, alice = await conversation(found)
            follower = min({"shard-0-0", "shard-0-1"} - {await asyncio.to_thread(cluster.leader)})
            await asyncio.to_thread(cluster.ask, "drain", follower)
            for number in range(400):
                await other.act(alice, "send", to="2", text=f"{number} " + "x" * 1000)
            await asyncio.to_thread(wait_for, lambda: begins_late(cluster), timeout_s=30, what="the log to be cut")
            for path in ("queue", "stores"):
                await asyncio.to_thread(remove, cluster.folder / "nodes" / follower / path)
            await asyncio.to_thread(cluster.ask, "start", follower)
            await asyncio.to_thread(cluster.wait_in_sync, 2)
            before = await found.server(0)
            await asyncio.to_thread(cluster.ask, "drain", before["name"])
            again = await found.connect(0, after_epoch=before["epoch"])
            alice = await again.log_in("1")
            history = await again.act(alice, "history", with_="2", limit=100)
            assert [each["text"].split()[0] for each in history["messages"]][:3] == ["399", "398", "397"]
            first = await again.act(alice, "history", with_="2", after="0", limit=2)
            assert [each["text"] for each in first["messages"]][-2:] != [], "the beginning is there, too"
            one.close()


def begins_late(cluster: Cluster) -> bool:
    leader = cluster.leader()
    names = sorted((cluster.folder / "nodes" / leader / "queue" / "journal").glob("*.log"))
    return int(names[0].stem) > 1


def remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path)
