"""Durable messages through gateways and a shard of a real cluster, while each process is killed and frozen.

Everything accepted is delivered once and in order, and is in both histories.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import pixiu
from pixiu.model.errors import PixiuError
from pixiu.model.inbox import NEED_ACK, NEED_OFFLINE
from tests.cluster.processes import Cluster
from tests.cluster.scenario import QUICK, Doors
from tests.cluster.talkers import Talkers
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.serial, pytest.mark.long]

DURABLE = """
name = "durable"
zookeeper = {{ nodes = 1 }}

[roles.shard]
replicas = {replicas}
settings = {{ "replication.min_isr" = {min_isr}, "messaging.sends_per_second" = 0, "gateway.lease_ms" = 3000 }}

[roles.gateway]
replicas = {gateways}
settings = {{ "gateway.lease_ms" = 3000, "gateway.resync_percent" = 25 }}
"""


def doors_of(cluster: Cluster) -> Doors:
    """All gateways of a cluster, when they reach the shard."""
    rows = [row for row in cluster.nodes().values() if row["role"] == "gateway" and row["state"] == "running"]
    urls = [f"http://{row['address']}" for row in rows]

    def reach_all() -> bool:
        try:
            return all("shards" not in httpx.get(f"{url}/readyz", timeout=5).json()["notes"] for url in urls)
        except httpx.HTTPError:
            return False

    wait_for(reach_all, what="the gateways to reach the shard", timeout_s=60)
    return Doors(urls, cluster.folder / "nodes" / "gateway")


def audit(cluster: Cluster) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", "audit", "--registry", cluster.registry, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A shard of three replicas, and two gateways."""
    text = DURABLE.format(replicas=3, min_isr=2, gateways=2)
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
        for role in ("gateway", "leader", "follower"):
            for fault in ("kill", "freeze"):
                name = "gateway-0-0"
                if role != "gateway":
                    name = await asyncio.to_thread(cluster.leader)
                if role == "follower":
                    name = min({"shard-0-0", "shard-0-1", "shard-0-2"} - {name})
                print(f"{fault} {name}")
                await ask(fault, name)
                if fault == "freeze":
                    await asyncio.sleep(5)  # longer than every lease
                    await ask("thaw", name)
                await talkers.more()
        await talkers.check()
        print(f"accepted {len(talkers.times)}, longest pause {talkers.longest_gap_s():.1f} s")
    report = await asyncio.to_thread(audit, cluster)
    assert report["balanced"], report


class Extra:
    """A process of the cluster that its file does not name, started as one does on another machine."""

    def __init__(self, cluster: Cluster, role: str, *more: str) -> None:
        secret = str(cluster.folder / "secret")
        before = len(list((cluster.folder / "nodes").glob("extra-*")))
        home = "gateway" if role == "gateway" else f"extra-{before}"
        command = [sys.executable, "-m", "pixiu", "role", role, "--registry", cluster.registry, "--json"]
        command += ["--data", str(cluster.folder / "nodes" / home), "--secret-file", secret, *more]
        self.start(command, cluster.folder / "logs" / f"extra-{role}.log")

    def start(self, command: list[str], errors: Path) -> None:
        """Run it, and read where it is."""
        with errors.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, errors.read_text()[-2000:]
        self.said: dict[str, Any] = json.loads(line)

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """In order."""
        self.process.terminate()
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


PEOPLE = 100
PUSHES = 100


class Crowd:
    """People who only listen. Who cannot come back to a door that is gone takes another, with the cursor."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.heard: dict[str, list[str]] = {f"p{number}": [] for number in range(PEOPLE)}
        self.place = {user: number for number, user in enumerate(self.heard)}
        self.moves: dict[str, int] = dict.fromkeys(self.heard, 0)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        ready = [asyncio.get_running_loop().create_future() for _ in self.heard]
        for user, future in zip(self.heard, ready, strict=True):
            self._tasks.append(asyncio.ensure_future(self._listen(user, future)))
        await asyncio.wait_for(asyncio.gather(*ready), 120)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, user: str, ready: asyncio.Future[None]) -> None:
        cursor = ""
        while True:
            url = self.doors.urls[(self.place[user] + self.moves[user]) % len(self.doors.urls)]
            token = self.doors.token(user)
            client = pixiu.connect(url.replace("http://", "ws://"), token, rules=QUICK, cursor=cursor)
            try:
                async with client:
                    if not ready.done():
                        ready.set_result(None)
                    while True:
                        try:
                            message = await client.next_message(3)
                        except TimeoutError:
                            if not client.is_online:
                                break
                            continue
                        if message.text.startswith("push "):
                            self.heard[user].append(message.text)
            except PixiuError:
                await asyncio.sleep(0.2)
            cursor = client.cursor if client.cursor != "0" else ""
            self.moves[user] += 1


@pytest.mark.timeout(400)
@pytest.mark.feature("P02")
async def test_a_gateway_and_a_replica_are_added_and_removed_during_pushes(tmp_path: Path) -> None:
    """Proxies and relays of the list are parts of the shard here."""
    text = DURABLE.format(replicas=3, min_isr=2, gateways=3)
    extras: list[Extra] = []
    with Cluster(tmp_path, text) as cluster:
        doors = await asyncio.to_thread(doors_of, cluster)
        crowd = Crowd(doors)
        for user in crowd.heard:
            await doors.act("root", "create_user", is_admin=True, user=user)
        await crowd.start()
        headers = {"Authorization": f"Bearer {doors.token('root', is_admin=True)}"}
        try:
            for number in range(PUSHES):
                if number == 20:
                    extras.append(await asyncio.to_thread(Extra, cluster, "shard", "--replica", "9"))
                    extras.append(await asyncio.to_thread(Extra, cluster, "gateway"))
                    doors.urls.append(f"http://127.0.0.1:{extras[-1].said['port']}")
                elif number == 40:
                    await asyncio.to_thread(cluster.ask, "drain", "gateway-0-1")
                    doors.urls.pop(1)
                elif number == 60:
                    await asyncio.to_thread(cluster.ask, "drain", await asyncio.to_thread(cluster.leader))
                await _push(doors, headers, number, list(crowd.heard))
            everything = sorted(f"push {number}" for number in range(PUSHES))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(60):
                    while any(len(set(heard)) < PUSHES for heard in crowd.heard.values()):
                        await asyncio.sleep(0.2)
            wrong = {user: set(everything) - set(heard) for user, heard in crowd.heard.items()}
            assert not any(wrong.values()), wrong
            assert max(crowd.moves.values()) > 0, "those of the drained gateway came by another one"
        finally:
            await crowd.stop()
            assert [await asyncio.to_thread(extra.stop) for extra in extras[::-1]] == [0] * len(extras)


async def _push(doors: Doors, headers: dict[str, str], number: int, users: list[str]) -> None:
    """Until it is accepted; a repeat has the same key."""
    body = {
        "uids": users, "msg_bodies": [{"text": f"push {number}"}], "send_id": f"push-{number}",
        "msg_options": NEED_ACK | NEED_OFFLINE,
    }  # fmt: skip
    async with asyncio.timeout(60):
        while True:
            try:
                async with httpx.AsyncClient(base_url=doors.urls[0], headers=headers, timeout=20) as http:
                    answer = await http.post("/v1/push", json=body)
                if answer.status_code == 200:
                    return
                assert answer.status_code in (429, 503), answer.text
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.2)
