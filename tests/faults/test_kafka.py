"""Kafka is killed, frozen, loses a broker, is taken by another node: sends wait or are refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

import pixiu
from pixiu.config import KafkaSettings, MessagingSettings, Settings
from pixiu.config.engines import EngineSettings
from pixiu.model.errors import ConfigError, CorruptData, Overloaded, Unavailable
from pixiu.ports.log import MAIN
from tests.crash.test_messaging_kill import kill_again_and_again
from tests.e2e.gateways import Node, eventually
from tests.kafka import Driven, new_prefix, require_kafka
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.node.embedded import EmbeddedNode
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300), pytest.mark.feature("P06", "P28")]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("three"), nodes=3) as server:
        yield server


def settings_for(hosts: str, prefix: str, **more: Any) -> Settings:
    return Settings(
        engines=EngineSettings(log=f"kafka://{hosts}?prefix={prefix}"),
        kafka=KafkaSettings(**more),
        messaging=MessagingSettings(sends_per_second=0),
    )


class Load:
    """Alice tells Bob numbers, ten at a time, each again and again until it is accepted."""

    def __init__(self, node: EmbeddedNode) -> None:
        self._node = node
        self._is_over = False
        self.accepted: dict[str, str] = {}
        self.refused = 0
        self._tasks = [asyncio.create_task(self._talk(lane)) for lane in range(10)]

    async def _talk(self, lane: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            name = f"{lane}.{number}"
            while name not in self.accepted:
                try:
                    answer = await self._node.send("alice", to="bob", text=name, send_id=name)
                except (Unavailable, Overloaded):
                    self.refused += 1
                    await asyncio.sleep(0.1)
                else:
                    self.accepted[name] = answer["message_id"]
            await asyncio.sleep(0.002)

    async def more(self, count: int) -> None:
        """Wait until so many more were accepted."""
        wanted = len(self.accepted) + count
        async with asyncio.timeout(120):
            while len(self.accepted) < wanted:
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        self._is_over = True
        async with asyncio.timeout(120):
            await asyncio.gather(*self._tasks)


async def check_books(node: EmbeddedNode, accepted: dict[str, str]) -> None:
    """Everything that was accepted is in Bob's history, once, under the number that was answered."""
    await node.host.applied()
    found: dict[str, str] = {}
    before = None
    while True:
        page = await node.history("bob", with_="alice", limit=100, **({} if before is None else {"before": before}))
        for message in page["messages"]:
            assert message["text"] not in found, "told twice"
            found[message["text"]] = message["message_id"]
        if not page["has_more"]:
            break
        before = page["min"]
    assert found == accepted
    report = await node.audit()
    assert report["balanced"] and report["accepted"] == len(accepted)


async def begin(node: EmbeddedNode) -> Load:
    await node.create_user("alice")
    await node.create_user("bob")
    return Load(node)


async def test_a_broker_killed_under_load_and_started_again_loses_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    settings = settings_for(kafka.hosts, new_prefix(), append_timeout_ms=2_000)
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings) as node:
        load = await begin(node)
        for _ in range(2):
            await load.more(100)
            kafka.kill()
            await asyncio.sleep(4)
            assert node.host.log.problems(), "the node says that it is not well"
            await asyncio.to_thread(kafka.start)
        await load.more(100)
        await load.end()
        assert load.refused > 0 and node.host.log.problems() == []
        await check_books(node, load.accepted)
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings) as node:  # and from the log alone
        await check_books(node, load.accepted)


async def test_one_of_three_brokers_may_stop_two_may_not(three: KafkaServer, tmp_path: Path) -> None:
    settings = settings_for(three.hosts, new_prefix(), append_timeout_ms=3_000)
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings) as node:
        load = await begin(node)
        await load.more(100)
        three.kill(0)
        await load.more(200)
        three.kill(1)
        await asyncio.sleep(6)
        assert node.host.log.problems()
        with pytest.raises(Unavailable):
            await node.send("alice", to="bob", text="refused", send_id="never")
        await asyncio.to_thread(three.start)
        await load.more(200)
        await load.end()
        answer = await node.send("alice", to="bob", text="refused", send_id="never")
        load.accepted["refused"] = answer["message_id"]
        await check_books(node, load.accepted)


async def test_a_frozen_broker_holds_sends_up_and_no_message_is_lost(kafka: KafkaServer, tmp_path: Path) -> None:
    settings = settings_for(kafka.hosts, new_prefix(), append_timeout_ms=1_500)
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings) as node:
        load = await begin(node)
        await load.more(50)
        kafka.freeze()
        try:
            await asyncio.sleep(5)
            assert node.host.log.problems()
        finally:
            kafka.thaw()
        await load.more(50)
        await load.end()
        assert load.refused > 0
        await check_books(node, load.accepted)


def test_a_transaction_that_kafka_gave_up_is_decided_and_the_log_claimed_again(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen for longer than a transaction lives: Kafka takes the id away, though nobody else wants the log."""
    monkeypatch.setattr("pixiu.backends.kafka.owner.TRANSACTION_MS", 2_000)
    monkeypatch.setattr("pixiu.backends.kafka.driver.SOCKET_TIMEOUT_MS", 1_000)
    driven = Driven(kafka.hosts, new_prefix(), settings=KafkaSettings(append_timeout_ms=1_000))
    try:
        log = driven.open()
        answers: list[Any] = []
        log.append(MAIN, b"before", answers.append, key=b"before")
        driven.until(lambda: len(answers) == 1)
        log.append(MAIN, b"during", answers.append, key=b"during")
        kafka.freeze()
        driven.until(lambda: len(answers) == 2)
        driven.pass_ms(4_000)
        kafka.thaw()
        driven.until(lambda: not log.is_busy)
        again: list[Any] = []

        def repeat() -> bool:
            if not again or isinstance(again[-1], Unavailable):
                log.append(MAIN, b"during", again.append, key=b"during")
            driven.pass_ms(200)
            return bool(again) and not isinstance(again[-1], Unavailable)

        driven.until(repeat)
        payloads = [each.payload for batch in log.scan(log.committed, 100) for each in batch]
        assert payloads == [b"before", b"during"]
    finally:
        kafka.thaw()
        driven.close()


def test_a_node_killed_again_and_again_loses_doubles_and_reorders_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    log = f"kafka://{kafka.hosts}?prefix={new_prefix()}"
    result = kill_again_and_again(tmp_path, 5, seed=3, log=log)
    assert result["report"]["accepted"] > 20


def readiness(node: Node) -> tuple[int, str]:
    answer = httpx.get(f"{node.url}/readyz", timeout=5)
    return answer.status_code, answer.text


def audit(data: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "pixiu", "audit", "--data", str(data), "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


async def test_serve_is_killed_fenced_audited_and_rebuilt(kafka: KafkaServer, tmp_path: Path) -> None:
    """The whole way as a user goes it: ``pixiu serve --set log=kafka://…``."""
    url = f"log=kafka://{kafka.hosts}?prefix={new_prefix()}"
    first = Node(tmp_path / "first" / "data", gateways=0, settings=(url,))
    second = Node(tmp_path / "second" / "data", gateways=0, settings=(url,))
    try:
        for node in (first, second):
            node.data.parent.mkdir()
        first.start()
        accepted = {}
        for number in range(20):
            answer = await first.act("alice", "send", to="bob", text=str(number), send_id=str(number))
            accepted[str(number)] = answer["message_id"]
        first.signal(signal.SIGKILL)
        first.wait()
        assert audit(first.data)["balanced"]
        first.start()
        repeat = await first.act("alice", "send", to="bob", text="7", send_id="7")
        assert repeat["message_id"] == accepted["7"]
        body = httpx.get(f"{first.url}/metrics", timeout=5).text
        assert "pixiu_kafka_is_owner 1" in body and "pixiu_kafka_lag_events" in body

        second.start()  # empty: it reads the whole log, and owns it now
        page = await second.act("bob", "history", **{"with": "alice"})
        assert {each["text"]: each["message_id"] for each in page["messages"]} == accepted
        wait_for(lambda: readiness(first)[0] == 503, what="the first node to say that it was fenced", timeout_s=30)
        assert "has taken the log" in readiness(first)[1]
        assert readiness(second)[0] == 200
        accepted["20"] = (await second.act("alice", "send", to="bob", text="20", send_id="20"))["message_id"]
        first.stop()
        second.stop()

        rebuilt = [sys.executable, "-m", "pixiu", "rebuild", "--data", str(first.data)]
        subprocess.run(rebuilt, capture_output=True, text=True, timeout=60, check=True)
        for data in (first.data, second.data):
            report = audit(data)
            assert report["balanced"] and report["accepted"] == 21
    finally:
        first.close()
        second.close()


async def test_serve_starts_without_kafka_says_why_it_waits_and_is_ready_when_it_comes(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    node = Node(tmp_path / "data", gateways=0, settings=(f"log=kafka://{kafka.hosts}?prefix={new_prefix()}",))
    kafka.kill()
    starting = asyncio.create_task(asyncio.to_thread(node.start))

    def says_why() -> bool:
        try:
            status, text = readiness(node)
        except httpx.HTTPError:
            return False
        return status == 503 and kafka.hosts in text

    try:
        await eventually(says_why, 60)
        await asyncio.to_thread(kafka.start)
        await starting
        assert (await node.act("alice", "send", to="bob", text="at last"))["message_id"]
    finally:
        await asyncio.to_thread(kafka.start)
        node.close()


async def test_a_topic_made_anew_is_refused_until_the_stores_are_rebuilt(kafka: KafkaServer, tmp_path: Path) -> None:
    prefix, data = new_prefix(), tmp_path / "data"
    settings = settings_for(kafka.hosts, prefix)
    async with pixiu.Node.embedded(data, settings=settings) as node:
        await node.create_user("alice")
    with pytest.raises(ConfigError, match="were made from kafka"):
        async with pixiu.Node.embedded(data):
            pass
    admin = AdminClient({"bootstrap.servers": kafka.hosts})
    for done in admin.delete_topics([f"{prefix}.main", f"{prefix}.state"], operation_timeout=20).values():
        done.result(20)
    with pytest.raises(Unavailable, match="Bring it back"):
        async with pixiu.Node.embedded(data, settings=settings):
            pass
    fresh = tmp_path / "fresh"
    async with pixiu.Node.embedded(fresh, settings=settings) as node:  # makes the topics anew
        await node.create_user("bob")
    with pytest.raises(CorruptData, match="pixiu rebuild"):
        async with pixiu.Node.embedded(data, settings=settings):
            pass
    rebuilt = [sys.executable, "-m", "pixiu", "rebuild", "--data", str(data)]
    subprocess.run(rebuilt, capture_output=True, text=True, timeout=60, check=True, env=dict(os.environ))
    async with pixiu.Node.embedded(data, settings=settings) as node:
        assert (await node.act("bob", "user"))["user"] == "bob"
        assert (await node.audit())["balanced"]


async def test_a_node_stops_although_kafka_is_gone_and_whoever_waits_is_told(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    settings = settings_for(kafka.hosts, new_prefix(), append_timeout_ms=60_000)
    try:
        async with asyncio.timeout(60), pixiu.Node.embedded(tmp_path / "data", settings=settings) as node:
            await node.create_user("alice")
            kafka.kill()
            waiting = asyncio.ensure_future(node.send("alice", to="alice", text="into the void"))
            await asyncio.sleep(0.5)
        with pytest.raises(Unavailable):
            await waiting
    finally:
        await asyncio.to_thread(kafka.start)


async def test_stores_of_another_log_are_not_put_on_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path / "data") as node:
        await node.create_user("alice")
    with pytest.raises(ConfigError, match="other events"):
        async with pixiu.Node.embedded(tmp_path / "data", settings=settings_for(kafka.hosts, new_prefix())):
            pass


async def test_a_kafka_that_is_not_there_is_told_by_its_address(tmp_path: Path) -> None:
    settings = replace(settings_for("127.0.0.1:9", new_prefix()))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        async with pixiu.Node.embedded(tmp_path / "data", settings=settings):
            pass
