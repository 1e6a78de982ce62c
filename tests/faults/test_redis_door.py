"""The door through faults: the node is killed, Redis is killed or failed over. Each action counts once."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey as Client
from valkey.cluster import ValkeyCluster as ClusterClient
from valkey.exceptions import ValkeyError

import pixiu
from pixiu.config import CarrierSettings, DoorSettings, EngineSettings, MessagingSettings, Settings
from pixiu.node.embedded import EmbeddedNode
from tests.e2e.test_serve import serving
from tests.engines import ValkeyCluster, ValkeyProcess, sentinel_config
from tests.faults.test_redis import role, until
from tests.servers import wait_for

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.feature("R10")]

Valkey: Any = Client
VALKEY_CLUSTER: Any = ClusterClient


@asynccontextmanager
async def opened(root: Path, url: str) -> AsyncIterator[EmbeddedNode]:
    settings = Settings(
        engines=EngineSettings(store=url),
        messaging=MessagingSettings(sends_per_second=0),
        carrier=CarrierSettings(commit_ms=20, lane_retry_ms=50),
        door=DoorSettings(redis="store", claim_ms=500, window=32),
    )
    async with pixiu.Node.embedded(root, settings=settings) as node:
        yield node


class Adding:
    """A thread that adds sends of 1 to 2, and knows which of them a replica has, too."""

    def __init__(self, connect: Callable[[], Any], name: str = "", *, replicas: int = 0) -> None:
        self._connect = connect
        self._name = name
        self._replicas = replicas
        self.certain: list[str] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        redis, number = None, 0
        while not self._is_over:
            number += 1
            try:
                redis = redis or self._connect()
                text = f"{self._name}{number}"
                redis.xadd("g:all", {"action": "send", "uid": "1", "tuid": "2", "text": text})
                if not self._replicas or redis.execute_command("WAIT", self._replicas, 300) >= self._replicas:
                    self.certain.append(text)
            except (ValkeyError, OSError):
                redis = None
                threading.Event().wait(0.05)
            threading.Event().wait(0.002)

    async def grow(self, count: int = 100) -> None:
        goal = len(self.certain) + count
        await until(lambda: len(self.certain) >= goal, "more to be added")

    async def end(self) -> None:
        self._is_over = True
        await asyncio.to_thread(self._thread.join)


async def begin(node: EmbeddedNode) -> None:
    for user in "12":
        await node.create_user(user)


async def texts(node: EmbeddedNode) -> Counter[str]:
    """Everything that 2 got from 1, with how often."""
    found: Counter[str] = Counter()
    page = await node.history("2", with_="1", limit=100)
    while page["messages"]:
        found.update(message["text"] for message in page["messages"])
        page = await node.history("2", with_="1", limit=100, before=page["min"])
    return found


async def settled(node: EmbeddedNode, redis: Any, adding: Adding) -> None:
    """All that was added and is still there was done, each once."""
    await adding.end()
    await until(lambda: not node.host.problems() and not node.host.door_problems(), "ready again")
    await until(lambda: redis.xlen("g:all") == 0, "all done")
    await node.host.applied()
    got = await texts(node)
    assert [text for text in adding.certain if got[text] != 1] == []
    assert max(got.values()) == 1
    assert (await node.audit())["balanced"]


@pytest.mark.parametrize("appendonly", ["yes", "no"])
async def test_redis_is_killed_and_started_again(tmp_path: Path, appendonly: str) -> None:
    """With appendonly what was added stays; without, it is Redis that loses it, and nothing is done twice."""
    arguments = ("--appendonly", appendonly, *(("--appendfsync", "always") if appendonly == "yes" else ()))
    with ValkeyProcess(tmp_path / "valkey", *arguments) as server:
        async with opened(tmp_path / "data", f"{server.url}?probe_ms=20&timeout_ms=500") as node:
            await begin(node)
            adding = Adding(lambda: Valkey(port=server.port, decode_responses=True))
            for _ in range(2):
                await adding.grow()
                server.stop()
                if appendonly == "no":
                    adding.certain.clear()
                await until(node.host.door_problems, "told that it is down")
                await asyncio.to_thread(server.start)
                await until(lambda: not node.host.door_problems(), "the door is open again")
            await adding.grow()
            with Valkey(port=server.port, decode_responses=True) as redis:
                await settled(node, redis, adding)


async def test_a_sentinel_fails_over(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path / "a") as leader,
        ValkeyProcess(tmp_path / "b", "--replicaof", "127.0.0.1", str(leader.port)) as replica,
    ):
        config = sentinel_config(tmp_path, leader)
        with ValkeyProcess(tmp_path / "s", sentinel=config) as sentinel, Valkey(port=replica.port) as redis:
            await until(lambda: redis.info("replication")["master_link_status"] == "up", "synced")
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/pixiu?probe_ms=50&timeout_ms=500"
            async with opened(tmp_path / "data", url) as node:
                await begin(node)
                adding = Adding(lambda: Valkey(port=leader.port), replicas=1)
                await adding.grow()
                leader.stop()
                await adding.end()
                await until(node.host.door_problems, "told that it is down")
                await until(lambda: role(replica) == b"master", "failed over")
                after = Adding(lambda: Valkey(port=replica.port), "after ")
                await after.grow()
                await settled(node, redis, after)
                await settled(node, redis, adding)


@pytest.mark.feature("T1")
async def test_on_a_cluster_whose_leader_of_the_stream_fails_over(tmp_path: Path) -> None:
    with ValkeyCluster(tmp_path / "cluster", has_replica=True, replica_of=2) as cluster:
        port = cluster.leaders[0].port

        def connect() -> Any:
            return VALKEY_CLUSTER(host="127.0.0.1", port=port, decode_responses=True)

        async with opened(tmp_path / "data", f"{cluster.url}?probe_ms=50&timeout_ms=500") as node:
            await begin(node)
            redis = connect()
            group = json.dumps({"group": "9", "members": ["2"]})
            redis.xadd("g:all", {"action": "create_group", "uid": "1", "params": group})
            redis.xadd("g:all", {"action": "gsend", "uid": "2", "gid": "9", "text": "all"})
            malformed = redis.xadd("g:all", {"action": "sned"})
            for number in range(100):
                redis.xadd("g:all", {"action": "send", "uid": "1", "tuid": "2", "text": f"before {number}"})
            await until(lambda: redis.xlen("g:all") == 0, "all done")
            assert redis.xlen("{g:all}:answers") == 103
            assert redis.xrange("{g:all}:malformed")[0][1]["entry"] == malformed
            await node.host.settled()
            pointer = next(fields for _, fields in redis.xrange("s:{2}") if fields.get("FW") == "gs:{9}")
            assert redis.xrange(pointer["FW"], pointer["entry"], pointer["entry"])[0][1]["id"] == pointer["id"]
            assert cluster.leaders[2].told("WAIT", 1, 1000) is not None
            cluster.leaders[2].stop()
            await until(node.host.door_problems, "told that it is down")
            await until(lambda: cluster.replica and role(cluster.replica) == b"master", "failed over")
            await until(lambda: not node.host.problems() and not node.host.door_problems(), "ready again")
            redis = connect()
            adding = Adding(connect)
            await adding.grow()
            await settled(node, redis, adding)
            got = await texts(node)
            assert all(got[f"before {number}"] == 1 for number in range(100))
            for server in cluster.servers:
                with contextlib.suppress(OSError, ValkeyError):
                    assert b"CROSSSLOT" not in server.told("INFO", "errorstats")


def _has_more(redis: Any, than: int) -> bool:
    return bool(redis.xlen("g:answers") > than)


@pytest.mark.feature("R20")
def test_a_node_that_is_killed_again_and_again_does_each_action_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ["door.redis=store", "door.claim_ms=500", "messaging.sends_per_second=0"]
    with ValkeyProcess(tmp_path / "valkey") as server, Valkey(port=server.port, decode_responses=True) as redis:
        words = [part for option in (f"store={server.url}", *options) for part in ("--set", option)]
        entries = [redis.xadd("g:all", {"action": "create_user", "uid": user}) for user in "12"]
        for life in range(4):
            with serving(data, "--dev", *words, seconds_max=120) as served:
                for number in range(400):
                    send = {"action": "send", "uid": "1", "tuid": "2", "text": f"{life}:{number}"}
                    entries.append(redis.xadd("g:all", send))
                done = redis.xlen("g:answers")
                wait_for(partial(_has_more, redis, done + 50), what="some to be done")
                if life < 3:
                    served.process.send_signal(signal.SIGKILL)
                    served.process.wait(10)
                else:
                    wait_for(lambda: redis.xlen("g:all") == 0, timeout_s=30, what="all to be done")
                    assert served.get("/readyz")[0] == 200
        answered = Counter(fields["entry"] for _, fields in redis.xrange("g:answers"))
        assert answered == Counter(entries), "each once"
        results = [fields for _, fields in redis.xrange("g:answers")]
        assert not [fields for fields in results if "error" in fields]
        command = [sys.executable, "-m", "pixiu", "audit", "--data", str(data), "--json"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
        assert (report["balanced"], report["accepted"]) == (True, 1600)
