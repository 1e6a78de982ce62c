"""One of several programs reads, under a lock of Redis, ZooKeeper or the queue itself; its death leaves no gap."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey

from pixiu.machines.tenure import TenureRules
from pixiu.model.errors import ConfigError
from pixiu.queue import BlockingClient, LockedSubscriber
from pixiu.runtime.zookeeper import Ensemble
from tests.engines import ValkeyProcess, require_zookeeper
from tests.servers import QueueProcess, wait_for

RULES = TenureRules(expire_ms=3_000, renew_ms=1_000, retry_ms=300, again_ms=100, margin_ms=500)
KEY = "sub_lock@order@billing"


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as started:
        yield started


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_zookeeper()
    with Ensemble(tmp_path_factory.mktemp("zookeeper")) as started:
        yield f"zk://{started.hosts}/locks"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path / "data", args=["--flush", "none"]) as started:
        with BlockingClient(address(started)) as client:
            client.create_topic("order")
        yield started


def address(queue: QueueProcess) -> str:
    return f"{queue.host}:{queue.port}"


def publish(queue: QueueProcess, numbers: range) -> None:
    with BlockingClient(address(queue)) as client:
        for number in numbers:
            client.publish("order", str(number).encode())


class Reader:
    """A program of its own, and what it says it has handled."""

    def __init__(self, queue: QueueProcess, lock: str) -> None:
        program = str(Path(__file__).with_name("locked_child.py"))
        words = [address(queue), lock, *(str(each) for each in RULES)]
        self.process = subprocess.Popen([sys.executable, program, *words], stdout=subprocess.PIPE, text=True)
        self.handled: list[int] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.handled.append(int(line))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def check_a_killed_reader_is_replaced(queue: QueueProcess, lock: str) -> None:
    publish(queue, range(50))
    readers = [Reader(queue, lock)]
    try:
        wait_for(lambda: len(readers[0].handled) > 5, what="the first to read")
        readers.append(Reader(queue, lock))
        wait_for(lambda: len(readers[0].handled) > 20, what="the first to go on")
        assert readers[1].handled == []
        readers[0].kill()
        publish(queue, range(50, 80))
        wait_for(lambda: 79 in readers[1].handled, what="the second to go on", timeout_s=30)
    finally:
        for reader in readers:
            reader.kill()
    first, second = (reader.handled for reader in readers)
    assert first == list(range(len(first)))
    assert second == list(range(second[0], 80)), "in order, without a gap"
    assert second[0] <= len(first), "nothing was skipped"
    assert len(first) - second[0] <= 2 * 3, "what comes again is the batches that were not acked"


@pytest.mark.parametrize("kind", ["redis", "zookeeper", "server"])
def test_when_the_holder_is_killed_another_goes_on_without_a_gap(
    queue: QueueProcess, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "redis":
        lock = request.getfixturevalue("valkey").url
    else:
        lock = request.getfixturevalue("zookeeper") if kind == "zookeeper" else "server"
    check_a_killed_reader_is_replaced(queue, lock)


async def test_the_key_is_the_recipes_expires_and_is_freed_by_its_holder_only(
    queue: QueueProcess, valkey: ValkeyProcess
) -> None:
    store: Any = Valkey.from_url(valkey.url)
    publish(queue, range(1))
    async with LockedSubscriber(address(queue), "order", "billing", lock=valkey.url, rules=RULES) as orders:
        assert orders.key == KEY
        assert (await anext(orders)).text == "0"
        assert store.get(KEY) == orders.holder.encode()
        assert 0 < int(store.pttl(KEY)) <= RULES.expire_ms
        store.set(KEY, "somebody else")
        await until(lambda: not orders.is_reading)
    assert store.get(KEY) == b"somebody else"
    store.delete(KEY)
    store.close()


async def test_a_holder_whose_store_falls_silent_stops_reading_and_goes_on_when_it_is_back(
    queue: QueueProcess, valkey: ValkeyProcess
) -> None:
    publish(queue, range(2))
    async with LockedSubscriber(address(queue), "order", "billing", lock=valkey.url, rules=RULES, batch=1) as orders:
        assert (await anext(orders)).text == "0"
        valkey.freeze()
        try:
            await until(lambda: not orders.is_reading)
        finally:
            valkey.thaw()
        assert (await asyncio.wait_for(anext(orders), 20)).text == "0", "it was not followed by another"
        assert (await anext(orders)).text == "1"


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("etcd://127.0.0.1", "there are redis://…, zk://… and server"),
        ("redis://127.0.0.1:notaport", "is no address of a Redis server"),
        ("", "no lock is known"),
    ],
)
async def test_a_lock_that_nobody_knows_is_refused_with_what_there_is(lock: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LockedSubscriber("127.0.0.1:1", "order", "billing", lock=lock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)
