"""One node on Redis, Cassandra and Kafka at once, as a user runs it; each of them is hurt in turn while people write.

Whoever writes waits, or is told ``unavailable`` or ``busy``; readiness names the engine; what was accepted is in the
history once, under the number that was answered, and the books balance.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.gateways import Node
from tests.engines import ValkeyProcess, require_cassandra
from tests.kafka import new_prefix, require_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tools.cassandra_server import CassandraServer
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.timeout(900)]

PATIENCE_S = 120.0
WRITERS = 4
REFUSALS = {"unavailable", "busy"}


class Servers:
    """All three."""

    def __init__(self, folder: Path, exits: ExitStack) -> None:
        self.kafka: KafkaServer = require_kafka(folder / "kafka")
        self.cassandra: CassandraServer = require_cassandra(folder / "cassandra")
        self.valkey = exits.enter_context(ValkeyProcess(folder / "valkey", "--appendonly", "yes"))
        exits.enter_context(self.kafka)
        exits.enter_context(self.cassandra)

    def settings(self) -> tuple[str, ...]:
        return (
            f"store={self.valkey.url}?probe_ms=50",
            f"timelines=cassandra://{self.cassandra.address}/faults?timeout_ms=2000",
            f"log=kafka://{self.kafka.hosts}?prefix={new_prefix()}",
            "kafka.append_timeout_ms=3000",
            "carrier.lane_retry_ms=200",
        )


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as exits:
        yield Servers(tmp_path / "servers", exits)


class Load:
    """Some who write to Bob, each message again and again until it is accepted."""

    def __init__(self, node: Node) -> None:
        self.accepted: dict[str, str] = {}
        self.refused: list[str] = []
        self._node = node
        self._headers = {f"w{n}": {"Authorization": f"Bearer {node.token(f'w{n}')}"} for n in range(WRITERS)}
        self._bob = {"Authorization": f"Bearer {node.token('bob')}"}
        self._http = httpx.AsyncClient(base_url=node.url, timeout=30)
        self._is_over = False
        self._tasks = [asyncio.create_task(self._write(user)) for user in self._headers]

    async def act(self, headers: dict[str, str], action: str, **params: object) -> httpx.Response:
        return await self._http.post(f"/v1/actions/{action}", json=params, headers=headers)

    async def _write(self, user: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            text = f"{user} {number}"
            while text not in self.accepted:
                answer = await self.act(self._headers[user], "send", to="bob", text=text, send_id=text)
                if answer.status_code == 200:
                    self.accepted[text] = answer.json()["message_id"]
                else:
                    error = answer.json()["error"]
                    assert answer.status_code in (429, 503) and error["code"] in REFUSALS, answer.text
                    self.refused.append(error["message"])
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.02)

    async def more(self, count: int = 40) -> None:
        wanted = len(self.accepted) + count
        await until(lambda: len(self.accepted) >= wanted or self._failed(), "more accepted")
        assert not self._failed(), [task for task in self._tasks if task.done()]

    def _failed(self) -> bool:
        return any(task.done() for task in self._tasks)

    async def history_says(self) -> str:
        """Nothing if history answers, else the code that it is refused with."""
        answer = await self.act(self._bob, "history", **{"with": "w0", "limit": 1})
        return "" if answer.status_code == 200 else str(answer.json()["error"]["code"])

    async def end(self) -> None:
        self._is_over = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)

    async def check(self) -> None:
        """Audit first: it waits for the stores. Then Bob's history has all that was accepted, each once."""
        report = await self._node.audit()
        assert report["balanced"] and report["accepted"] == len(self.accepted), report
        found: list[tuple[str, str]] = []
        for user in self._headers:
            after = "0"
            while True:
                answer = await self.act(self._bob, "history", **{"with": user, "after": after, "limit": 100})
                assert answer.status_code == 200, answer.text
                page = answer.json()
                if not page["messages"]:
                    break
                found += [(each["text"], each["message_id"]) for each in page["messages"]]
                after = page["max"]
        assert len(found) == len(self.accepted)
        assert dict(found) == self.accepted

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()


async def until(is_so: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not is_so():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def readiness(node: Node) -> tuple[int, str]:
    try:
        answer = httpx.get(f"{node.url}/readyz", timeout=20)
    except httpx.HTTPError as error:
        return 0, str(error)
    return answer.status_code, answer.text


async def told(node: Node, word: str) -> None:
    """Not ready, and it says of whom that is."""

    def is_told() -> bool:
        status, text = readiness(node)
        return status == 503 and word in text

    await until(is_told, f"not ready, because of {word}")


async def ready(node: Node) -> None:
    await until(lambda: readiness(node)[0] == 200, f"ready again; {readiness(node)}")


@pytest.mark.feature("P28", "B08", "T1")
async def test_each_engine_of_a_node_is_killed_filled_and_held_up_under_load(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    node = Node(tmp_path / "node" / "data", gateways=0, settings=servers.settings())
    await asyncio.to_thread(node.start)
    load = Load(node)
    try:
        await load.more()

        servers.valkey.stop()
        await told(node, "Redis at")
        await asyncio.to_thread(servers.valkey.start)
        await ready(node)
        await load.more()

        servers.valkey.told("CONFIG", "SET", "maxmemory", "1mb")  # and it evicts nothing
        await told(node, "memory limit")
        servers.valkey.told("CONFIG", "SET", "maxmemory", "0")
        await ready(node)
        await load.more()

        servers.cassandra.freeze()  # every answer is late
        try:
            await told(node, "no answer in time")
            assert await load.history_says() == "unavailable"
            await load.more()
        finally:
            servers.cassandra.thaw()
        await ready(node)

        servers.cassandra.kill()
        await told(node, "cassandra at")
        await load.more()
        await asyncio.to_thread(servers.cassandra.start)
        await ready(node)

        refused = len(load.refused)
        servers.kafka.kill()
        await told(node, "afka")
        await until(lambda: len(load.refused) > refused, "sends refused without a log")
        await asyncio.to_thread(servers.kafka.start)
        await ready(node)
        await load.more()

        await load.end()
        await load.check()
        node.signal(signal.SIGKILL)
        node.wait()
        await asyncio.to_thread(node.start)
        await load.check()
    finally:
        await load.close()
        node.close()
