"""Who owns a cluster's log in Kafka: a lease in the registry, then Kafka's own fence. With a real Kafka."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka import topics as topics_module
from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.backends.queue_log import RemoteLog
from pixiu.cli.engine_checks import engine_checks
from pixiu.config import EngineSettings, QueueSettings, Settings
from pixiu.config.process import HttpSettings
from pixiu.config.queue import ReplicationSettings
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.node.logs import stopped_kafka
from pixiu.node.processes import kafka_queue
from pixiu.node.processes.kafka_queue import KafkaQueue
from pixiu.ports.log import MAIN, SCHEDULE
from pixiu.ports.registry import Write
from pixiu.queue.client import Client
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.http_client import get
from pixiu.runtime.log_note import NOTE, has_log
from pixiu.runtime.scheduler import LoopScheduler
from tests.kafka import Driven, new_prefix, require_kafka

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

FOLDER = "/pubsub/shard/partition0"
KEY = "the secret of this cluster"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def leads(queue: KafkaQueue) -> bool:
    return queue.served.is_leader


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Processes:
    """Processes of the role, in one loop, with one registry."""

    def __init__(self, folder: Path, hosts: str) -> None:
        self.hosts, self.prefix = hosts, new_prefix()
        self._folder = folder
        self.scheduler = LoopScheduler(asyncio.get_running_loop())
        self.registry = MemoryRegistry(self.scheduler)
        self._exits = AsyncExitStack()
        self._running: list[KafkaQueue] = []
        self.addresses: dict[str, str] = {}
        self.admins: dict[str, str] = {}

    async def start(self, name: str, hosts: str = "") -> KafkaQueue:
        place = f"kafka://{hosts or self.hosts}?prefix={self.prefix}"
        settings = Settings(
            engines=EngineSettings(log=place), queue=QueueSettings(port=0), http=HttpSettings(port=0),
            replication=ReplicationSettings(name=name),
        )  # fmt: skip
        directory = self._exits.enter_context(DataDirectory.open(self._folder / name))
        queue = KafkaQueue(settings, directory, self.registry.open(), FOLDER, (KEY,))
        running = await queue.start()
        self._running.append(queue)
        self.addresses[name], self.admins[name] = running.queue_address, str(running.http_address)
        return queue

    async def stop(self, queue: KafkaQueue) -> None:
        self._running.remove(queue)
        await queue.stop()

    async def close(self) -> None:
        for queue in list(self._running):
            await self.stop(queue)
        await self._exits.aclose()
        self.scheduler.close()

    def client(self, **more: Any) -> Client:
        return Client(registry=self.registry.open(), key=KEY, patience_s=30, **more)

    def states(self) -> dict[str, str]:
        places = [entry.data for name, entry in self.registry.read(FOLDER).items() if name.isdecimal()]
        return {str(place["name"]): str(place["state"]) for place in places}

    def leader(self) -> str:
        entry = self.registry.read(FOLDER).get("leader")
        return "" if entry is None else str(entry.data["name"])


@pytest.fixture
async def processes(tmp_path: Path, kafka: KafkaServer) -> AsyncIterator[Processes]:
    made = Processes(tmp_path, kafka.hosts)
    yield made
    await made.close()


@pytest.mark.feature("X43", "X48")
async def test_one_owns_the_log_the_other_stands_by_and_takes_over(processes: Processes) -> None:
    one = await processes.start("one")
    await until(lambda: leads(one))
    two = await processes.start("two")
    async with processes.client() as client:
        first = await client.append(MAIN, b"said", key="k")
        await asyncio.sleep(1)
        assert not leads(two) and processes.leader() == "one"
        async with Client(processes.addresses["two"], key=KEY, patience_s=0) as other:
            with pytest.raises(Unavailable, match="just the leader"):
                await other.append(MAIN, b"said", key="k")
            assert (await other.hello()).role == "follower"
        await processes.stop(one)
        again = await client.append(MAIN, b"said", key="k")
        assert (again.event_id, again.repeat) == (first.event_id, True), "the new owner has read the keys back"
        assert leads(two) and processes.leader() == "two"
        assert (await client.append(MAIN, b"more", key="l")).message_id > first.message_id
    status, _ = await get(f"http://{processes.admins['two']}/readyz", timeout_seconds=10)
    assert status == 200


@pytest.mark.feature("X43")
async def test_an_owner_whose_lease_is_over_takes_nothing_and_its_late_claim_takes_it_from_nobody(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await processes.start("one")
    await until(lambda: leads(one))
    two = await processes.start("two")
    control, claimed = one._control, one._claimed
    assert control is not None and claimed is not None
    control.change = lambda *_: None  # type: ignore[method-assign]  # it reaches the registry no more
    await until(lambda: leads(two))
    assert not leads(one) and one.served.log is None and not claimed.is_owner
    event_id = two.served.commit_event_id
    with monkeypatch.context() as while_it_was_held:
        while_it_was_held.setattr(type(one._lease), "is_held", True)
        one._claim()
    one._release()  # it was about to claim when its lease was over
    await asyncio.sleep(2)
    async with processes.client() as client:
        assert await client.publish(MAIN, b"said") == event_id + 1
    assert leads(two), "nobody has taken it from the owner"


@pytest.mark.feature("X43")
async def test_who_holds_the_lease_claims_the_log_again_from_one_who_does_not(processes: Processes) -> None:
    one = await processes.start("one")
    await until(lambda: leads(one))
    async with processes.client() as client:
        await client.publish(MAIN, b"before")

        def outsider() -> None:
            driven = Driven(processes.hosts, processes.prefix, name="outsider")
            driven.open()
            driven.close()

        await asyncio.to_thread(outsider)
        appended = await client.append(MAIN, b"after", key="k")
        assert leads(one) and appended.event_id > 3


async def test_what_is_due_when_another_takes_over_comes_to_those_who_follow(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fires before the new owner is told by the registry that it may serve."""
    one = await processes.start("one")
    await until(lambda: leads(one))
    two = await processes.start("two")
    read = two._registry.read

    def late(path: str, done: Callable[[Any], object]) -> None:
        claimed = two._claimed
        if path == f"{FOLDER}/log" and claimed is not None and (claimed.waiting or claimed.is_busy):
            processes.scheduler.after(10, lambda: late(path, done))
        else:
            read(path, done)

    monkeypatch.setattr(two._registry, "read", late)
    async with processes.client() as client:
        log = RemoteLog(client)
        await log.open()
        log.follow(0, lambda: None)
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.schedule(SCHEDULE, b"due", SystemClock().now_ms() + 4_000, asked.set_result)
        assert isinstance(await asked, int)
        await processes.stop(one)
        assert two.served.log is None or two.served.log.waiting == 1, "it was not due yet"
        await until(lambda: leads(two) and log.committed >= two.served.commit_event_id)
        assert two.served.log is not None and two.served.log.waiting == 0
        assert [record.payload for record in log.read(0, 100)] == [b"due"]
        await log.close()


async def test_tools_find_the_log_by_the_folder_of_one_who_has_owned_it(processes: Processes, tmp_path: Path) -> None:
    one = await processes.start("one")
    await until(lambda: leads(one))
    async with processes.client() as client:
        await client.publish(MAIN, b"said")
    folder = tmp_path / "one"
    assert has_log(folder) and not has_log(tmp_path)

    def look() -> tuple[list[bytes], dict[str, str]]:
        log = stopped_kafka(folder)
        said = [record.payload for batch in log.scan(log.committed, 10) for record in batch]
        log.close()
        return said, {check.name: check.state for check in engine_checks(Settings(), folder)}

    said, checks = await asyncio.to_thread(look)
    assert said == [b"said"]
    assert checks["kafka"] == "ok" and checks[f"kafka {processes.prefix}.state cleanup"] == "ok"


async def test_a_registry_whose_log_is_a_queues_own_is_refused(processes: Processes) -> None:
    processes.registry.write([Write(f"{FOLDER}/ctl", {"epoch": 3, "leader": "q", "in_sync": ["q"]})])
    with pytest.raises(ConfigError, match="its queue's own"):
        await processes.start("one")


async def test_another_log_than_before_is_refused_and_another_process_may_serve(
    processes: Processes, tmp_path: Path
) -> None:
    one = await processes.start("one")
    await until(lambda: leads(one))
    await processes.stop(one)
    note = tmp_path / "one" / NOTE
    noted = json.loads(note.read_text())
    with DataDirectory.open(tmp_path / "three"):
        (tmp_path / "three" / NOTE).write_text(json.dumps({**noted, "topic_id": "another"}))
    three = await processes.start("three")
    await until(lambda: "another topic" in three.reasons().get("queue", ""))
    assert not leads(three)
    status, body = await get(f"http://{processes.admins['three']}/readyz", timeout_seconds=10)
    assert status == 503 and b"another topic" in body
    two = await processes.start("two")
    await until(lambda: leads(two))


async def test_without_a_kafka_it_says_so_and_waits(processes: Processes, kafka: KafkaServer) -> None:
    one = await processes.start("one", hosts="127.0.0.1:9")
    await until(lambda: "127.0.0.1:9" in one.reasons().get("queue", ""))
    assert not leads(one)
    two = await processes.start("two", hosts=kafka.hosts)
    await until(lambda: leads(two))


async def test_an_owner_whom_kafka_does_not_answer_lets_another_try(
    processes: Processes, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_queue, "SILENT_MS", 500)
    monkeypatch.setattr(kafka_queue, "LOOK_MS", 100)
    one = await processes.start("one")
    await until(lambda: leads(one))
    two = await processes.start("two")
    async with processes.client() as client:
        await client.append(MAIN, b"before", key="before")
        kafka.freeze()
        try:
            meanwhile = asyncio.create_task(client.append(MAIN, b"meanwhile", key="meanwhile"))
            await until(lambda: two._claimed is not None)
            assert not leads(one) and not leads(two)
        finally:
            kafka.thaw()
        appended = await meanwhile
        assert leads(two) and appended.event_id > 2
        assert (await client.append(MAIN, b"meanwhile", key="meanwhile")).event_id == appended.event_id
    await until(lambda: not one.reasons())  # else nobody would ever be let try in its place
    assert leads(two) and not leads(one)
    await until(lambda: processes.states() == {"one": "Running", "two": "Running"})


@pytest.mark.parametrize(("is_known", "said"), [(True, "there is no topic"), (False, "not the log of this cluster")])
async def test_who_was_told_another_log_than_the_clusters_serves_nothing(
    processes: Processes, *, is_known: bool, said: str
) -> None:
    """It has only stood by, and noted nothing: the registry knows which one carriers have applied."""
    one = await processes.start("one")
    await until(lambda: leads(one))
    prefix, processes.prefix = processes.prefix, new_prefix()
    two = await processes.start("two")
    if not is_known:
        two._of_cluster = None  # as of one that was there before the first owner
    await processes.stop(one)
    await until(lambda: said in two.reasons().get("queue", ""))
    assert not leads(two)
    processes.prefix = prefix
    three = await processes.start("three")
    await until(lambda: leads(three))
    await asyncio.sleep(1)
    assert two.reasons() and not leads(two)


async def test_a_note_that_cannot_be_read_is_told_and_another_process_may_serve(
    processes: Processes, tmp_path: Path
) -> None:
    with DataDirectory.open(tmp_path / "one"):
        (tmp_path / "one" / NOTE).write_text("not a note")
    one = await processes.start("one")
    await until(lambda: "cannot be read" in one.reasons().get("queue", ""))
    two = await processes.start("two")
    await until(lambda: leads(two))


async def test_who_stands_by_and_looks_for_a_dead_kafka_is_stopped_soon(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_queue, "LOOK_MS", 100)
    monkeypatch.setattr(topics_module, "ADMIN_SECONDS", 1)
    one = await processes.start("one", hosts="127.0.0.1:1")
    await until(lambda: not one._is_well)
    monkeypatch.setattr(topics_module, "ADMIN_SECONDS", 1_000_000)
    await until(lambda: one._is_looking)
    async with asyncio.timeout(60):
        await processes.stop(one)


async def test_who_is_about_to_own_the_log_of_a_dead_kafka_is_stopped_soon(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "ADMIN_SECONDS", 1_000_000)
    one = await processes.start("one", hosts="127.0.0.1:1")
    await until(lambda: one._claimed is not None)
    claimed = one._claimed
    assert claimed is not None
    is_over: list[object] = []
    claimed._thread.offload(lambda: None, is_over.append)  # behind what it does
    await processes.stop(one)
    await until(lambda: bool(is_over))
