"""What the benchmarks of whole clusters rely on: the cluster file, the roles, and a crowd that sees what goes wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from benchmarks.cluster import run as cluster_run
from benchmarks.cluster.bench import QUICK, Amounts
from benchmarks.cluster.one_to_one import FOLLOWER, LEADER, by_replica, shard_figures
from benchmarks.cluster.whole import SHARD, Node, cluster_file
from benchmarks.gateway import crowd
from benchmarks.queue.generator import compiled
from pixiu.config.cluster import read_cluster_file
from tests.needs import require_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from websockets.asyncio.server import ServerConnection

    from benchmarks.gateway.crowd import Talk

ROW = {
    "name": "n", "role": "r", "partition": 0, "replica": 0, "state": "running", "detail": "", "pid": 1,
    "address": "127.0.0.1:99", "restarts": 0,
}  # fmt: skip


def test_cluster_file_has_the_roles_of_the_example_without_its_ports(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(cluster_file())
    cluster = read_cluster_file(path)
    plans = {plan.role: plan for plan in cluster.roles}
    assert cluster.zookeeper_nodes == 3
    assert {SHARD, "gateway", "router", "broker", "proxy"} <= plans.keys()
    assert plans[SHARD].replicas == 3
    assert plans[SHARD].settings["replication.min_isr"] == 2
    assert {plan.port for plan in cluster.roles} == {0}
    assert not any("links.admin_port" in plan.settings for plan in cluster.roles)
    assert plans["gateway"].settings["messaging.sends_per_second"] == 0


def test_cluster_file_can_be_limited_to_some_roles(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(cluster_file((SHARD, "gateway")))
    plans = {plan.role: plan for plan in read_cluster_file(path).roles}
    assert plans.keys() == {SHARD, "gateway"}
    assert {plan.partitions for plan in plans.values()} == {1}


def test_shard_figures_are_per_core_of_the_leader_and_of_one_follower() -> None:
    processes = {7: SHARD, 8: SHARD, 9: SHARD, 10: "gateway"}
    labels = by_replica(processes, leader=8)
    assert labels == {7: FOLLOWER, 8: LEADER, 9: FOLLOWER, 10: "gateway"}
    nothing = dict.fromkeys((field.name for field in dataclasses.fields(crowd.Talk)), 0)
    talk = crowd.read(json.dumps(nothing | {"deliveries": 600, "watched": [0.1, 0.6, 0.2, 5.0]}))
    assert shard_figures(labels, talk) == pytest.approx((1_000, 4_000))


def test_replicas_are_not_told_apart_when_the_leader_changed() -> None:
    processes = {7: SHARD, 8: SHARD, 10: "gateway"}
    assert by_replica(processes, leader=None) == processes


@pytest.mark.parametrize(
    ("detail", "leads", "is_ready"),
    [
        ("Running, leads in epoch 3", True, True),
        ("Running, serves in epoch 1", True, True),
        ("Running, in sync", False, True),
        ("Running, stands by", False, True),
        ("Running, catching up", False, False),
        ("not registered", False, False),
    ],
)
def test_status_detail_says_who_leads_and_who_could(detail: str, leads: bool, is_ready: bool) -> None:
    node = Node.of({**ROW, "detail": detail})
    assert (node.leads, node.is_ready, node.port) == (leads, is_ready, 99)
    assert not Node.of({**ROW, "detail": detail, "state": "starting"}).is_ready


def test_options_replace_the_usual_and_the_quick_amounts(monkeypatch: pytest.MonkeyPatch) -> None:
    def amounts(*words: str) -> Amounts:
        monkeypatch.setattr(sys, "argv", ["bench", *words])
        return cluster_run._amounts(cluster_run._options())

    assert amounts() == Amounts()
    assert amounts("--quick") == QUICK
    assert amounts("--pairs", "7", "--durable-seconds", "3", "--pause-seconds", "9").pairs == 7
    assert amounts("--quick", "--idle-seconds", "1").idle_seconds == 1


class Gateway:
    """Answers and delivers durable messages, but for the faults that a test asks for, by the number of the message."""

    def __init__(self, faults: Mapping[int, str], delay: float) -> None:
        self.in_flight: Counter[str] = Counter()
        self.most = 0
        self.acks = 0
        self._faults = dict(faults)
        self._delay = delay
        self._clients: dict[str, ServerConnection] = {}
        self._cursors: Counter[str] = Counter()
        self._held: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def talk(self, client: ServerConnection) -> None:
        """Serve one client."""
        assert client.request is not None
        (user,) = parse_qs(urlsplit(client.request.path).query)["token"]
        self._clients[user] = client
        await _say(client, {"push": "contacts", "contacts": []})
        try:
            async for text in client:
                request = json.loads(text)
                self.acks += request["action"] == "ack"
                if request["action"] == "sync":
                    await self._sync(user, client, request["id"])
                if request["action"] == "send":
                    task = asyncio.create_task(self._send(user, client, request))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except ConnectionClosed:
            pass

    async def _send(self, user: str, client: ServerConnection, request: dict[str, Any]) -> None:
        fault = self._faults.pop(request["id"] - 2, "")
        self.in_flight[user] += 1
        self.most = max(self.most, self.in_flight[user])
        await asyncio.sleep(self._delay)
        self.in_flight[user] -= 1
        if client.state is not State.OPEN:
            return
        if fault == "refused":
            await _say(client, {"id": request["id"], "error": {"code": "unavailable", "message": "no"}})
        elif fault == "closed":
            await client.close()
        elif fault != "silent":
            await _say(client, {"id": request["id"], "result": {}})
            to = request["params"]["to"]
            if fault == "resync":
                self._held.append({"text": request["params"]["text"]})
                await _say(self._clients[to], {"push": "resync"})
                return
            for _ in range({"lost": 0, "repeated": 2}.get(fault, 1)):
                self._cursors[to] += 1
                message = {"text": request["params"]["text"]}
                await _say(self._clients[to], {"push": "message", "cursor": str(self._cursors[to]), "message": message})

    async def _sync(self, user: str, client: ServerConnection, number: int) -> None:
        """Answer with the message that was held back, and push it again afterwards."""
        self._cursors[user] += 1
        cursor = str(self._cursors[user])
        result = {"messages": self._held, "gaps": [], "has_more": False, "cursor": cursor}
        await _say(client, {"id": number, "result": result})
        await _say(client, {"push": "message", "cursor": cursor, "message": self._held[0]})


async def _say(client: ServerConnection, content: dict[str, Any]) -> None:
    await client.send(json.dumps(content, separators=(",", ":")))


@asynccontextmanager
async def gateway(faults: Mapping[int, str], delay: float = 0.0) -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway of one test, and its port."""
    served = Gateway(faults, delay)
    async with serve(served.talk, "127.0.0.1", 0) as server:
        yield served, next(iter(server.sockets)).getsockname()[1]


async def talk(folder: Path, port: int, *words: str, pairs: int = 1) -> Talk:
    """Run pairs of durable messages against a gateway."""
    require_command("gcc")
    tokens = folder / "tokens"
    tokens.write_text("".join(f"user-{number} user-{number}\n" for number in range(2 * pairs)))
    command = [str(compiled(crowd.SOURCE)), "--mode", "pair", "--class", "durable", "--tokens", str(tokens)]
    command += ["--port", str(port), "--pairs", str(pairs), "--warmup", "0", "--settle", "0.3"]
    return await asyncio.to_thread(crowd.run, [*command, *words], "test")


async def test_closed_loop_keeps_the_window_of_each_pair_in_flight(tmp_path: Path) -> None:
    async with gateway({}, delay=0.01) as (served, port):
        found = await talk(tmp_path, port, "--window", "3", "--seconds", "0.4", pairs=2)
    assert served.most == 3
    assert found.accepted >= found.deliveries > 6
    assert found.faults == 0
    assert served.acks > 0


async def test_failed_lost_and_repeated_messages_are_counted_apart(tmp_path: Path) -> None:
    faults = {3: "refused", 5: "silent", 8: "lost", 10: "repeated"}
    async with gateway(faults) as (_, port):
        found = await talk(tmp_path, port, "--rate", "50", "--seconds", "0.6")
    assert (found.refused, found.failed, found.lost, found.repeats) == (1, 2, 1, 1)
    assert (found.closed, found.disorder) == (0, 0)
    assert found.accepted + found.failed == found.published


async def test_client_asks_for_missed_messages_after_resync(tmp_path: Path) -> None:
    async with gateway({4: "resync"}) as (_, port):
        found = await talk(tmp_path, port, "--rate", "50", "--seconds", "0.5")
    assert found.resyncs == 1
    assert found.faults == 0


async def test_closed_client_reconnects_and_its_sends_meanwhile_have_failed(tmp_path: Path) -> None:
    async with gateway({5: "closed"}) as (_, port):
        found = await talk(tmp_path, port, "--rate", "20", "--seconds", "2", "--stay")
    assert (found.closed, found.away, found.lost) == (1, 0, 0)
    assert 10 < found.failed < 30, "it is away for a second"
    assert found.accepted > 5
