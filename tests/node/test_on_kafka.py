"""A node whose log is in Kafka: what an erasure can do there, and clients after a log that was made anew."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.config import EngineSettings, Settings
from pixiu.model.cursor import Cursors
from pixiu.model.errors import CorruptData
from pixiu.node import rebuild_stores
from pixiu.node.embedded import EmbeddedNode
from pixiu.runtime.datadir import DataDirectory
from tests.kafka import new_prefix, require_kafka
from tests.sdk.world import World, eventually, take
from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def settings(kafka: KafkaServer, prefix: str) -> Settings:
    return Settings(engines=EngineSettings(log=f"kafka://{kafka.hosts}?prefix={prefix}"))


def run(*words: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", *map(str, words), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.feature("R20")
def test_an_erasure_reaches_all_but_kafka_and_says_so(kafka: KafkaServer, tmp_path: Path) -> None:
    prefix, data = new_prefix(), tmp_path / "node"

    async def talk() -> None:
        async with EmbeddedNode(data, settings=settings(kafka, prefix), creates_users=True) as node:
            for number in range(3):
                await node.send("eve", to="bob", text=f"a secret of eve {number}")
            await node.send("bob", to="eve", text="an answer")

    asyncio.run(talk())
    report = run("pipeline", "erase", "eve", "--yes", "--data", data)
    places = {place["place"]: place for place in report["places"]}
    assert places["store bodies"]["remains"] == "" and places["store users"]["removed"] == 1
    main = places[f"topic {prefix}.main"]
    assert main["found"] >= 4 and main["removed"] == 0 and main["remains"] == "for ever", "messages, and the profile"
    assert places[f"topic {prefix}.ledger"]["remains"] == "7 days"
    again = run("queue", "redact", "--data", data)
    assert again["kept"] == main["found"] and again["log"].startswith("kafka://") and len(again["users"]) == 1
    files = [path for path in data.rglob("*") if path.is_file() and "pipeline" not in path.parts]
    assert files and not any(b"a secret of eve" in path.read_bytes() for path in files), "nor in the stores' files"
    with DataDirectory.open(data):
        rebuild_stores(data)  # the records are there as they were, and so is the erasure

    async def shown() -> list[Any]:
        async with EmbeddedNode(data, settings=settings(kafka, prefix)) as node:
            page = await node.act("bob", "history", **{"with": "eve"})
            assert (await node.audit())["balanced"]
            return [message.get("text") for message in page["messages"]]

    assert asyncio.run(shown()) == ["an answer", None, None, None]


@pytest.mark.feature("B07", "B06")
async def test_what_was_accepted_can_be_recalled_at_once(kafka: KafkaServer, tmp_path: Path) -> None:
    """The answer comes with the commit, the stores a moment later: a burst of sends keeps them busy meanwhile."""
    made = settings(kafka, new_prefix())
    made = replace(made, messaging=replace(made.messaging, sends_per_second=0))
    async with EmbeddedNode(tmp_path / "node", settings=made, creates_users=True) as node:
        await node.create_group("ada", "team", members=["bob"])

        async def said_and_recalled(number: int) -> None:
            sent = await node.send("ada", to="bob", text=f"oops {number}")
            told = await node.act("bob", "receipt", message_ids=[sent["message_id"]], kind="read")
            assert told == {"marked": 1}
            assert await node.act("ada", "recall", message_id=sent["message_id"]) == {}
            there = await node.gsend("bob", group="team", text=f"oops {number}")
            assert await node.act("bob", "recall", message_id=there["message_id"]) == {}

        carrier, turns = node.messaging.carrier, 0
        turn = carrier._turn

        def late() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_later(0.02, turn)  # as behind a Kafka that is read over a network

        carrier._turn = late  # type: ignore[method-assign]
        await asyncio.gather(*(said_and_recalled(number) for number in range(40)))
        assert turns and not node.messaging.proxy.refused.get("not_found")
        for place in ({"with": "ada"}, {"group": "team"}):
            page = await node.act("bob", "history", **place)
            assert not any("oops" in message.get("text", "") for message in page["messages"])
        assert (await node.audit())["balanced"]


@pytest.mark.feature("P06")
async def test_clients_of_a_log_that_was_made_anew_resync_and_lose_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    """The stores are made again from another log: numbers that a client holds are those of other messages."""
    before, after = new_prefix(), new_prefix()
    world, other = World(tmp_path / "a", settings(kafka, before)), World(tmp_path / "b", settings(kafka, after))
    await other.start()
    async with other.connect("alice") as alice:
        for number in range(6):
            await alice.send("bob", f"of the other log {number}")
    await other.stop()
    await world.start()
    try:
        async with world.connect("bob") as bob:
            async with world.connect("alice") as alice:
                for number in range(4):
                    await alice.send("bob", f"of the log before {number}")
            await take(bob, 4)
            await eventually(lambda: Cursors(world.host.log.epoch).useq(int(bob.cursor)) == 3)
            epoch = world.host.log.epoch
            await world.stop()
            noted = json.loads((tmp_path / "a" / "log.json").read_text())
            world.settings = replace(world.settings, engines=other.settings.engines)
            (tmp_path / "a" / "log.json").write_text(
                json.dumps(noted | {"log": f"kafka://{kafka.hosts}?prefix={after}"})
            )
            with pytest.raises(CorruptData, match="topic, made anew"):
                await world.start()
            await world.stop()
            with DataDirectory.open(tmp_path / "a"):
                await asyncio.to_thread(rebuild_stores, tmp_path / "a")
            await world.start()
            assert world.host.log.epoch != epoch
            texts = [message.text for message in await take(bob, 6, 30)]
            assert texts == [f"of the other log {number}" for number in range(6)]
            await eventually(lambda: Cursors(world.host.log.epoch).useq(int(bob.cursor)) == 5)
    finally:
        await world.stop()
        shutil.rmtree(tmp_path / "b")
