"""Durable messages in a cluster of real processes: users in partitions, replicas that take over, books that balance."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import Conflict, NotOwner, PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.node.processes.carrier.doubling import double_carriers
from pixiu.node.stores import open_stores
from pixiu.pipeline.lake.local import fill_lake
from pixiu.ports.stores import Lane
from pixiu.queue.client import Client
from tests.cluster.hub_client import Partitions
from tests.cluster.processes import Cluster
from tests.pipeline.search_child import feed
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.hub_client import HubClient

pytestmark = pytest.mark.serial

CARRIERS = """
name = "test"
zookeeper = {{ nodes = 1 }}

[roles.queue]
replicas = {queues}
settings = {{ "replication.min_isr" = {min_isr} }}

[roles.carrier]
partitions = {partitions}
replicas = {replicas}
settings = {{ "messaging.sends_per_second" = 100000, "messaging.send_burst" = 100000 }}
"""
RESUMES_S = 4.0


def audit(cluster: Cluster, *, returncode: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", "audit", "--registry", cluster.registry, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == returncode, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def partitions(cluster: Cluster) -> Partitions:
    return Partitions(cluster.registry, (cluster.folder / "secret").read_text(encoding="utf-8"))


async def wait_standing_by(cluster: Cluster) -> None:
    """Until every replica has what there is."""
    await asyncio.to_thread(
        wait_for,
        lambda: all("Running" in row["detail"] for name, row in cluster.nodes().items() if "carrier" in name),
        timeout_s=20,
        what="carriers",
    )


async def conversation(found: Partitions) -> tuple[HubClient, HubClient, int, int]:
    """Two users in two partitions speak with each other; a third party is sent to where they belong."""
    even, odd = await found.connect(0), await found.connect(1)
    bob, alice = await even.log_in("2"), await odd.log_in("1")
    with pytest.raises(NotOwner) as elsewhere:
        await even.log_in("3")
    assert (elsewhere.value.partition, elsewhere.value.map_version) == (1, 2)
    sent = await odd.act(alice, "send", to="2", text="hello", send_id="a1")
    assert await even.pushed(bob, 1) == [int(sent["message_id"])]
    assert MsgChat.FromString(even.pushes[0][3]).data == b"hello"
    even.ack(bob, even.cursor(bob))
    back = await even.act(bob, "send", to="1", text="hi", send_id="b1")
    assert await odd.pushed(alice, 1) == [int(back["message_id"])], "what a session has sent is not pushed back to it"
    odd.ack(alice, odd.cursor(alice))
    for client, session, peer in ((even, bob, "1"), (odd, alice, "2")):
        history = await client.act(session, "history", with_=peer)
        assert [each["text"] for each in history["messages"]] == ["hi", "hello"]
    made = await odd.act(alice, "create_group", group="club", members=["2", "3", "4"])
    said = await even.act(bob, "gsend", group="club", text="all of you")
    assert int(said["message_id"]) in await odd.pushed(alice, 2), made
    return even, odd, bob, alice


async def find(even: HubClient, odd: HubClient, bob: int, alice: int, log: Path) -> None:
    """Both find what they may read in the index that a pipeline makes beside the log: no carrier has one of its own."""
    with pytest.raises(Unavailable, match="pixiu pipeline run archive search --once"):
        await odd.act(alice, "search", q="hello")
    await asyncio.to_thread(fill_lake, log)
    await asyncio.to_thread(feed, log)
    for carrier, user in ((even, bob), (odd, alice)):
        found = (await carrier.act(user, "search", q="hello"))["messages"]
        assert [each["text"] for each in found] == ["hello"]
    assert (await odd.act(alice, "search", q="nobody said this"))["messages"] == []


@pytest.mark.timeout(150)
@pytest.mark.feature("X42", "X43", "X48", "X62")
async def test_users_in_two_partitions_talk_and_a_killed_carrier_is_replaced_without_loss(tmp_path: Path) -> None:
    log = tmp_path / "cluster" / "nodes" / "queue-0-0"
    text = CARRIERS.format(queues=1, min_isr=1, partitions=2, replicas=2)
    text = text.replace('{ "messaging.', f'{{ "search.data" = "{log}", "messaging.', 1)
    with Cluster(tmp_path, text) as cluster:
        async with partitions(cluster) as found:
            even, odd, bob, alice = await conversation(found)
            await find(even, odd, bob, alice, log)
            await wait_standing_by(cluster)
            before = await found.server(0)
            killed_s = time.monotonic()
            await asyncio.to_thread(cluster.ask, "kill", before["name"])
            missed = [int((await odd.act(alice, "send", to="2", text=f"m{n}"))["message_id"]) for n in range(20)]
            with pytest.raises(PixiuError):
                await even.log_in("4")
            again = await found.connect(0, after_epoch=before["epoch"])
            bob = await again.log_in("2")
            resumed_s = time.monotonic() - killed_s
            print(f"partition 0 served again after {resumed_s:.2f} s")
            assert resumed_s < RESUMES_S
            after = await found.server(0)
            assert after["epoch"] == before["epoch"] + 1
            assert set(missed) <= set(await again.pushed(bob, 20))
            again.ack(bob, again.cursor(bob))
            repeat = await again.act(bob, "send", to="1", text="hi", send_id="b1")
            history = await again.act(bob, "history", with_="1", limit=100)
            first = [each for each in history["messages"] if each.get("send_id") == "b1"]
            assert [each["message_id"] for each in first] == [repeat["message_id"]], "whoever serves, it is one message"
        report = await asyncio.to_thread(audit, cluster)
        assert report["balanced"] and report["missing"] == []
        assert [row["partition"] for row in report["partitions"]] == [0, 1]
        assert report["accepted"] == 24, "two private ones, the group's notice and message, twenty that were missed"
        assert report["intended"] == 2 * 22 + 2 * 4
        assert report["acked"] >= 22


@pytest.mark.timeout(150)
async def test_a_partition_names_what_its_histories_lack(tmp_path: Path) -> None:
    """All was acked, so no inbox lacks anything. Whoever serves settles its doubts by the log of the cluster."""
    text = CARRIERS.format(queues=1, min_isr=1, partitions=2, replicas=1)
    with Cluster(tmp_path, text) as cluster:
        async with partitions(cluster) as found:
            even, odd, bob, alice = await conversation(found)
            for client, session in ((even, bob), (odd, alice)):
                client.ack(session, client.cursor(session))
        report = await asyncio.to_thread(audit, cluster)
        assert report["histories"] == 2 * 2 + 2 * 2, "two sides of two messages, two rows of a group in two partitions"
    _, stores = open_stores(cluster.folder / "nodes" / "carrier-1-0")
    lost = stores.timelines.drop_private(1, through=2**62)
    stores.commit({lane: stores.applied(lane) for lane in Lane})
    stores.close()
    assert len(lost) == 2
    with Cluster(tmp_path, text) as cluster:
        report = await asyncio.to_thread(audit, cluster, returncode=1)
    assert report["lost"] == [{"user": 1, "message_id": str(each), "reason": "not in the history"} for each in lost]
    assert [row["balanced"] for row in report["partitions"]] == [True, False]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("X43", "X48", "X50", "X51", "X62")
async def test_freeze_and_drain_of_carriers_and_death_of_the_logs_leader_under_load(tmp_path: Path) -> None:
    with Cluster(tmp_path, CARRIERS.format(queues=3, min_isr=2, partitions=2, replicas=2)) as cluster:
        await asyncio.to_thread(cluster.wait_in_sync, 3)
        async with partitions(cluster) as found:
            await conversation(found)
            await wait_standing_by(cluster)
            accepted: dict[str, str] = {}
            is_over = asyncio.Event()
            load = [asyncio.ensure_future(talk(found, user, accepted, is_over)) for user in ("1", "2")]
            for blow, role in (("freeze", 0), ("drain", 1), ("kill", -1)):
                await asyncio.sleep(2)
                if role < 0:
                    name = await asyncio.to_thread(cluster.leader_of_queue)
                    epoch = 0
                else:
                    row = await found.server(role)
                    name, epoch = row["name"], row["epoch"]
                await asyncio.to_thread(cluster.ask, blow, name)
                if role >= 0:
                    await found.connect(role, name="watcher", after_epoch=epoch)
                if blow == "freeze":
                    await asyncio.sleep(2)
                    await asyncio.to_thread(cluster.ask, "thaw", name)
                    await asyncio.sleep(1)
                    assert (await found.server(role))["name"] != name, "one that comes back stands by"
            await asyncio.sleep(3)
            is_over.set()
            await asyncio.gather(*load)
            assert len(accepted) > 50
        report = await asyncio.to_thread(audit, cluster)
        assert report["balanced"], report
        assert report["accepted"] == 4 + len(accepted), "every accepted one is there, and none twice"


async def talk(
    found: Partitions, user: str, accepted: dict[str, str], is_over: asyncio.Event, *, count: int = 2
) -> int:
    """Send again and again, each until it is accepted, with whoever serves. Returns the partition at the end."""
    partition, peer = int(user) % count, {"1": "2", "2": "1"}[user]
    client: HubClient | None = None
    session = number = 0
    while not is_over.is_set():
        try:
            if client is None:
                client = await found.connect(partition, name=f"g-{user}")
                session = await client.log_in(user, "ios")
            answer = await client.act(session, "send", to=peer, text=f"{user} {number}", send_id=f"{user}-{number}")
        except (Unavailable, TimeoutError) as error:
            if isinstance(error, NotOwner) and error.partition is not None:
                partition = error.partition
            if client is not None:
                client.close()
                client = None
            await asyncio.sleep(0.1)
            continue
        assert accepted.setdefault(f"{user}-{number}", answer["message_id"]) == answer["message_id"]
        number += 1
        await asyncio.sleep(0.01)
    return partition


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("X55", "X61")
async def test_carriers_double_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    text = CARRIERS.format(queues=1, min_isr=1, partitions=1, replicas=1)
    with Cluster(tmp_path, text) as cluster:
        async with partitions(cluster) as found:
            accepted: dict[str, str] = {}
            is_over = asyncio.Event()
            load = [asyncio.ensure_future(talk(found, user, accepted, is_over, count=1)) for user in ("1", "2")]
            await asyncio.sleep(2)
            secret = cluster.folder / "secret"
            command = [
                sys.executable, "-m", "pixiu", "role", "carrier", "--registry", cluster.registry, "--partition", "1",
                "--data", str(tmp_path / "second"), "--secret-file", str(secret), "--json",
                "--set", "replication.name=carrier-1-0", "--set", "messaging.sends_per_second=100000",
                "--set", "messaging.send_burst=100000",
            ]  # fmt: skip
            with (tmp_path / "second.log").open("wb") as said:
                second = subprocess.Popen(command, stdout=said, stderr=said)
            try:
                address = RegistryAddress.parse(cluster.registry)
                key = secret.read_text(encoding="utf-8").strip()
                async with Client(cluster.registry, key=key) as client, asyncio.timeout(60):
                    with pytest.raises(Conflict):
                        await double_carriers(found.registry, address.root, client, replicas=2)
                    while True:
                        try:
                            assert await double_carriers(found.registry, address.root, client, replicas=1) == 2
                            break
                        except Conflict:  # not Running yet
                            await asyncio.sleep(0.1)
                flipped = len(accepted)
                await asyncio.sleep(5)
                is_over.set()
                assert await asyncio.gather(*load) == [1, 0], "who has moved was told where to"
                assert len(accepted) > flipped + 20
                assert (await found.server(1))["name"] == "carrier-1-0"
                report = await asyncio.to_thread(audit, cluster)
            finally:
                second.terminate()
                assert await asyncio.to_thread(second.wait, 20) == 0
        assert report["balanced"], report
        assert [row["partition"] for row in report["partitions"]] == [0, 1]
        assert report["accepted"] == len(accepted)
