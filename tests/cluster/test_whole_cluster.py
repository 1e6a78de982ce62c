"""A whole cluster of real processes: what it shares with a node, and what clients see when ZooKeeper is away."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pixiu.config.registry import RegistryAddress
from pixiu.model.pixiu_pb2 import Record, Traces
from pixiu.ports.log import MAIN
from pixiu.queue.client import BlockingClient
from tests.backends.phones.google import Google, google_server
from tests.cluster.processes import BlockingRegistry, Cluster
from tests.cluster.raw_client import RawClient
from tests.cluster.scenario import Doors
from tests.cluster.test_durable_faults import Extra
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.serial

TEXT = """
name = "registry"
zookeeper = {{ nodes = 1 }}
[roles.shard]
replicas = 2
settings = {{ "gateway.lease_ms" = 1000, "horn.provider" = "phones", "horn.collapse_ms" = 10, {phones} }}
[roles.router]
settings = {{ "links.drain_ms" = 100 }}
[roles.broker]
settings = {{ "links.drain_ms" = 100 }}
[roles.proxy]
settings = {{ "links.drain_ms" = 100 }}
[roles.gateway]
settings = {{ "gateway.lease_ms" = 1000, "gateway.resync_percent" = 25, "links.drain_ms" = 100 }}
"""
ROOM = "lobby"
FAR = "gateway-far"


class Cable:
    """A TCP proxy in front of ZooKeeper. While it is cut, it passes nothing and closes nothing."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._whole = asyncio.Event()
        self._whole.set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, inner_writer), self._pump(inner_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


class World:
    """A cluster with a second gateway whose way to ZooKeeper can be cut, and a client at each gateway."""

    def __init__(self, cluster: Cluster, cable: Cable, alice: RawClient, bob: RawClient, doors: Doors) -> None:
        self.cluster, self.cable, self.alice, self.bob, self.doors = cluster, cable, alice, bob, doors
        self._said = 0

    def check_open(self) -> None:
        for client in (self.alice, self.bob):
            assert client.closed is None, f"{client.user} was closed: {client.closed}"

    async def talk(self) -> None:
        """Each receives the other's room messages."""
        self._said += 1
        for speaker, listener in ((self.alice, self.bob), (self.bob, self.alice)):
            text = f"{speaker.user} says {self._said}"
            answer = await speaker.ask("say", room=ROOM, text=text)
            assert "result" in answer, answer
            await listener.wait_for_text(text, room=ROOM, seconds=5)
        self.check_open()

    async def write(self, name: str) -> None:
        """Each gets a stored message of the other."""
        for sender, receiver in ((self.alice, self.bob), (self.bob, self.alice)):
            text = f"{sender.user} writes {name}"
            await sender.send_until_accepted(receiver.user, text)
            await receiver.wait_for_text(text)
        self.check_open()

    def check_once(self) -> None:
        for client in (self.alice, self.bob):
            texts = client.texts()
            assert len(texts) == len(set(texts)), f"{client.user} got something twice: {texts}"


@asynccontextmanager
async def world_of(cluster: Cluster, *settings: str) -> AsyncIterator[World]:
    address = RegistryAddress.parse(cluster.registry)
    cable = Cable(int(address.hosts.rpartition(":")[2]))
    port = await cable.start()
    more = ["--registry", f"zk://127.0.0.1:{port}{address.root}", "--set", f"replication.name={FAR}"]
    more += [part for each in settings for part in ("--set", each)]
    far = await asyncio.to_thread(Extra, cluster, "gateway", *more)
    try:
        near = next(row["address"] for row in cluster.nodes().values() if row["role"] == "gateway")
        doors = Doors([f"http://{near}", f"http://127.0.0.1:{far.said['port']}"], cluster.folder / "nodes" / "gateway")
        await asyncio.to_thread(wait_for, lambda: all(map(is_ready, doors.urls)), timeout_s=60, what="the gateways")
        for user in ("alice", "bob"):
            await doors.act("root", "create_user", is_admin=True, user=user)
        async with RawClient(doors, "alice", doors.urls[1]) as alice, RawClient(doors, "bob", doors.urls[0]) as bob:
            world = World(cluster, cable, alice, bob, doors)
            for client in (alice, bob):
                assert "result" in await client.ask("enter", room=ROOM)
            await world.bob.wait_for(
                lambda: any(each.get("members") == 2 for each in bob.pushed("presence")), "two members of the room"
            )
            await world.talk()
            await world.write("before")
            yield world
    finally:
        cable.heal()
        assert await asyncio.to_thread(far.stop) == 0
        cable.close()


def is_ready(url: str) -> bool:
    try:
        found = httpx.get(f"{url}/readyz", timeout=5).json()
    except (httpx.HTTPError, ValueError):
        return False
    return bool(found["ready"]) and not found["notes"]


def far_is_registered(world: World) -> bool:
    return FAR in BlockingRegistry(world.cluster.registry).places("gateway/partition0")


async def sessions(world: World) -> set[str]:
    headers = {"Authorization": f"Bearer {world.doors.token('root', is_admin=True)}"}
    async with httpx.AsyncClient(base_url=world.doors.urls[0], headers=headers, timeout=30) as http:
        found: dict[str, Any] = (await http.get("/v1/admin/sessions")).json()
    return {row["user"] for row in found["sessions"]}


async def cut_one_gateway(world: World, seconds: float) -> None:
    """T7: its registration is over, its clients are not."""
    world.cable.cut()
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until or await asyncio.to_thread(far_is_registered, world):
        assert time.monotonic() < until + 60, "the registration of a gateway that is cut off ends"
        count += 1
        await world.talk()
        await world.write(f"during the cut {count}")
        await asyncio.sleep(0.3)
    await world.talk()
    await world.write("after its registration is gone")
    world.cable.heal()
    await asyncio.to_thread(wait_for, lambda: far_is_registered(world), timeout_s=30, what="its new registration")
    await world.talk()
    await world.write("after the cut")
    assert await sessions(world) == {"alice", "bob"}
    world.check_once()


async def pause_zookeeper(world: World, seconds: float) -> None:
    """Replicas grant each other's lease: pausing ZooKeeper refuses no request and disconnects no client."""
    await asyncio.to_thread(world.cluster.ask, "freeze", "zookeeper-1")
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        await world.talk()
        text = f"meanwhile {number}"
        answer = await world.alice.ask("send", to="bob", text=text, send_id=text)
        assert "result" in answer, answer
        await world.bob.wait_for_text(text)
        await asyncio.sleep(0.3)
    async with RawClient(world.doors, "carol", world.doors.urls[0]) as carol:
        assert carol.closed is None
        assert "result" in await carol.ask("send", to="bob", text="carol comes during the pause")
    await world.bob.wait_for_text("carol comes during the pause")
    assert "result" in await world.bob.ask("enter", room="another")
    await asyncio.to_thread(world.cluster.ask, "thaw", "zookeeper-1")
    for _ in range(3):
        await world.talk()
    await world.write("after the pause")
    assert not world.alice.pushed("resync"), "the sessions went on"
    world.check_once()


class GoogleThread:
    """The provider FCM on loopback, in a thread, so that it outlives the event loop of a test."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = google_server(folder)
        self.google = self._loop.run_until_complete(self._server.__aenter__())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._server.__aexit__(None, None, None))
        self._loop.close()


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    thread = GoogleThread(tmp_path_factory.mktemp("google"))
    yield thread.google
    thread.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, google: Google) -> Iterator[Cluster]:
    phones = f'"phones.fcm_account_file" = "{google.account_file}", "phones.fcm_url" = "{google.url}"'
    with Cluster(tmp_path_factory.mktemp("whole"), TEXT.format(phones=phones)) as started:
        yield started


def room_rows(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    """Messages, deliveries and members of every room, by the records of the log."""
    key = (cluster.folder / "secret").read_text(encoding="utf-8").strip()
    found: dict[str, tuple[int, int, int]] = {}
    with BlockingClient(cluster.registry, key=key) as client:
        last = client.publish(MAIN, Record(traces=Traces()).SerializeToString())
        for delivery in client.subscribe(MAIN, batch=255):
            rows = Record.FromString(delivery.body).traces.rooms
            for row in zip(rows.room, rows.messages, rows.deliveries, rows.members, strict=True):
                found[row[0]] = row[1:]
            if delivery.event_id >= last:
                break
    return found


@pytest.mark.timeout(180)
@pytest.mark.feature("T2")
async def test_a_cluster_notifies_phones_and_writes_what_happens_in_rooms_to_the_log(
    cluster: Cluster, google: Google
) -> None:
    near = next(row["address"] for row in cluster.nodes().values() if row["role"] == "gateway")
    doors = Doors([f"http://{near}"], cluster.folder / "nodes" / "gateway")
    await asyncio.to_thread(wait_for, lambda: is_ready(doors.urls[0]), timeout_s=60, what="the gateway")
    for user in ("dora", "emil"):
        await doors.act("root", "create_user", is_admin=True, user=user)
    async with RawClient(doors, "emil", doors.urls[0]) as emil:
        registered = await emil.ask("register_push", provider="fcm", token="t:1")
        assert "result" in registered, registered
    async with RawClient(doors, "dora", doors.urls[0]) as dora:
        await dora.send_until_accepted("emil", "are you there?")
        await dora.wait_for(lambda: google.messages, "the notification")
        assert "are you there?" in str(google.messages[0])
        assert "result" in await dora.ask("create_group", group="club", members=["emil"])
        for room in ("counted", "g:club"):
            assert "result" in await dora.ask("enter", room=room)
            for number in range(3):
                answer = await dora.ask("say", room=room, text=f"{number}")
                assert "result" in answer, answer
                await dora.wait_for_text(f"{number}", room=room)
        told = await asyncio.to_thread(BlockingRegistry(cluster.registry).told, "shard/partition0")
        leader = await asyncio.to_thread(cluster.leader)
        metrics = httpx.get(f"http://{told[leader]['admin']}/metrics", timeout=5).text
        assert "pixiu_broker_rooms 1" in metrics, "the rooms of groups are at the shard"
        for name in ("broker-0-0", leader):  # each writes its rows once a minute, and when it stops
            done = await asyncio.to_thread(cluster.call, "drain", name, "--force")
            assert done.returncode == 0, done.stderr
            await asyncio.to_thread(cluster.ask, "start", name)
        assert dora.closed is None
    rows = await asyncio.to_thread(room_rows, cluster)
    assert rows["counted"] == (3, 3, 1), "messages, deliveries, members"
    assert rows["g:club"] == (3, 3, 1)
    await asyncio.to_thread(wait_for, lambda: is_ready(doors.urls[0]), timeout_s=60, what="the cluster")


@pytest.mark.timeout(180)
@pytest.mark.feature("T7", "C9")
async def test_clients_and_rooms_outlive_a_cut_and_a_pause_of_the_registry(cluster: Cluster) -> None:
    async with world_of(cluster, "gateway.lease_ms=1000", "links.session_ms=1000") as world:
        await cut_one_gateway(world, 2)
        await pause_zookeeper(world, 3)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.feature("T7", "C9")
async def test_clients_and_rooms_outlive_a_cut_of_30_and_a_pause_of_35_seconds(cluster: Cluster) -> None:
    """Longer than every lease and session by default."""
    async with world_of(cluster) as world:
        await cut_one_gateway(world, 30)
        await pause_zookeeper(world, 35)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_the_plan_of_the_pipeline_sees_the_rooms_of_a_cluster(cluster: Cluster) -> None:
    log = str(cluster.folder / "nodes" / "shard-0-0")

    def pipeline(*words: str) -> str:
        command = [sys.executable, "-m", "pixiu", "pipeline", *words, "--data", log]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    near = next(row["address"] for row in cluster.nodes().values() if row["role"] == "gateway")
    doors = Doors([f"http://{near}"], cluster.folder / "nodes" / "gateway")
    await asyncio.to_thread(wait_for, lambda: is_ready(doors.urls[0]), timeout_s=60, what="the gateway")
    for user in ("fred", "gina"):
        await doors.act("root", "create_user", is_admin=True, user=user)
    async with RawClient(doors, "fred", doors.urls[0]) as fred, RawClient(doors, "gina", doors.urls[0]) as gina:
        for client in (fred, gina):
            assert "result" in await client.ask("enter", room="planned")
        assert "result" in await fred.ask("say", room="planned", text="hi")
        await gina.wait_for_text("hi", room="planned")
        done = await asyncio.to_thread(cluster.call, "drain", "broker-0-0", "--force")
        assert done.returncode == 0, done.stderr
        await asyncio.to_thread(cluster.ask, "start", "broker-0-0")
    await asyncio.to_thread(pipeline, "run", "archive", "heat", "--once")
    plan = json.loads(await asyncio.to_thread(pipeline, "plan", "--room-members", "1", "--json"))
    assert "planned" in {row["room"] for row in plan["virtual_rooms"]}


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.feature("X31")
def test_the_map_shows_a_killed_process_as_gone_and_its_replacement_once(cluster: Cluster) -> None:
    def names(part: str) -> list[str]:
        found = httpx.get(f"{meta.said['admin']}/cluster.json", timeout=5).json()
        return [node["name"] for node in found[part]]

    meta = Extra(cluster, "meta", "--set", "replication.name=map")
    proxy = Extra(cluster, "proxy", "--set", "replication.name=proxy-extra", "--set", "links.session_ms=20000")
    try:
        wait_for(lambda: "proxy-extra" in names("nodes"), timeout_s=30, what="the proxy on the map")
        proxy.kill()
        wait_for(lambda: "proxy-extra" in names("gone"), timeout_s=8, what="the map to miss it")
        assert "proxy-extra" not in names("nodes")
        assert "proxy-extra" in BlockingRegistry(cluster.registry).places("proxy/partition0"), "its session lasts"
        again = Extra(cluster, "proxy", "--set", "replication.name=proxy-extra")
        try:
            wait_for(lambda: "proxy-extra" in names("nodes"), timeout_s=30, what="its replacement")
            until = time.monotonic() + 22  # beyond the end of the first session
            while time.monotonic() < until:
                assert names("nodes").count("proxy-extra") == 1
                assert "proxy-extra" not in names("gone")
                time.sleep(0.5)
        finally:
            assert again.stop() == 0
    finally:
        assert meta.stop() == 0
