"""Replicas of a log, in this process; in one a record has rotted: another leads, and the record comes back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config import LogSettings, QueueSettings, ReplicationSettings, Settings
from pixiu.node.processes.elected import Elected
from pixiu.node.serving import Node
from pixiu.queue.client import Client
from pixiu.queue.replication import mending
from pixiu.queue.storage import journal_check
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.scheduler import LoopScheduler
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

FOLDER = "/pubsub/shard/partition0"
SECRET = "a secret of sixteen characters"
MESSAGES = 60
SECONDS = 20.0


class Replicas:
    """Nodes by name, over one registry."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._scheduler = LoopScheduler(asyncio.get_running_loop())
        self._tree = MemoryRegistry(self._scheduler)
        self._open: dict[str, tuple[DataDirectory, Node]] = {}
        self.ports = {name: free_port() for name in "abc"}

    async def start(self, name: str) -> None:
        settings = Settings(
            queue=QueueSettings(port=self.ports[name]),
            replication=ReplicationSettings(
                name=name, acknowledge="in-sync", heartbeat_ms=50, in_sync_timeout_ms=1_000, reconnect_ms=100,
                lease_ms=1_000, renew_ms=100,
            ),
            log=LogSettings(sample=0),
        )  # fmt: skip
        directory = DataDirectory.open(self._root / name)
        elected = Elected(self._tree.open(), FOLDER, (SECRET,))
        node = Node(settings, directory, http=False, follow=None, follow_event=0, elected=elected)
        self._open[name] = directory, node
        await node.start()

    async def stop(self, name: str) -> None:
        directory, node = self._open.pop(name)
        await node.stop()
        directory.close()

    async def close(self) -> None:
        for name in list(self._open):
            await self.stop(name)
        await asyncio.sleep(0.05)  # sockets are closed in the loop's next turns
        self._scheduler.close()

    def leader(self) -> str:
        return next((name for name, (_, node) in self._open.items() if node._engine and node._engine.is_leader), "")

    def in_sync(self) -> int:
        leader = self.leader()
        replication = self._open[leader][1]._replication if leader else None
        return replication.in_sync_count if replication is not None else 0

    def mended(self, name: str) -> int:
        engine = self._open[name][1]._engine
        return engine.counters.journal_mended if engine is not None else 0

    def damaged(self, name: str) -> int:
        engine = self._open[name][1]._engine
        return engine.counters.journal_damaged if engine is not None else 0

    def journal(self, name: str) -> Path:
        (path,) = (self._root / name / "queue" / "journal").glob("*.log")
        return path

    def rot(self, name: str, count: int = 1) -> bytes:
        """Some bytes in the middle of a stopped one's journal. Returns what the journal was."""
        path = self.journal(name)
        sound = path.read_bytes()
        at = sound.index(b"message 20")
        path.write_bytes(sound[:at] + b"M" * count + sound[at + count :])
        return sound


@pytest.fixture
async def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(journal_check, "START_MS", 300)
    monkeypatch.setattr(journal_check, "AGAIN_MS", 50)
    monkeypatch.setattr(mending, "FIRST_MS", 50)
    monkeypatch.setattr(mending, "AGAIN_MS", 200)
    found = Replicas(tmp_path)
    yield found
    await found.close()


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


async def filled(replicas: Replicas, names: str) -> None:
    for name in names:
        await replicas.start(name)
    await until(lambda: replicas.in_sync() == len(names), "everyone is in sync")
    async with Client(f"127.0.0.1:{replicas.ports[replicas.leader()]}") as client:
        await client.create_topic("t")
        for number in range(MESSAGES):
            await client.publish("t", b"message %d" % number)


async def test_a_follower_fetches_the_record_that_rotted(replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
    await filled(replicas, "ab")
    name = "b" if replicas.leader() == "a" else "a"
    await replicas.stop(name)
    sound = replicas.rot(name)
    with caplog.at_level(logging.WARNING):
        await replicas.start(name)
        await until(lambda: replicas.mended(name), "the record is mended")
    assert not replicas.damaged(name)
    assert replicas.journal(name).read_bytes()[: len(sound.rstrip(b"\0"))] == sound.rstrip(b"\0")
    assert any("mended" in record.message for record in caplog.records)


async def test_a_follower_fetches_all_records_of_a_block_that_rotted(replicas: Replicas) -> None:
    """With their heads: what proves the copies is what was made of the records."""
    await filled(replicas, "ab")
    name = "b" if replicas.leader() == "a" else "a"
    await replicas.stop(name)
    sound = replicas.rot(name, count=600)
    await replicas.start(name)
    await until(lambda: replicas.mended(name), "the records are mended")
    assert replicas.mended(name) >= 5 and not replicas.damaged(name)
    assert replicas.journal(name).read_bytes()[: len(sound.rstrip(b"\0"))] == sound.rstrip(b"\0")


async def test_a_leader_that_finds_damage_hands_over_and_is_mended(replicas: Replicas) -> None:
    """Without the others it leads; as soon as one is in sync, that one does."""
    await filled(replicas, "ab")
    await replicas.stop("b")
    await until(lambda: replicas.leader() == "a" and replicas.in_sync() == 1, "b is let go")
    await replicas.stop("a")
    replicas.rot("a")
    await replicas.start("a")
    await until(lambda: replicas.leader() == "a", "a leads again")
    await replicas.start("b")
    await until(lambda: replicas.leader() == "b", "b leads, as its journal is sound")
    await until(lambda: replicas.mended("a"), "a has it from b")
    await until(lambda: replicas.in_sync() == 2, "a is in sync")
    assert replicas.leader() == "b"


async def test_what_the_leader_has_not_either_is_not_mended(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once, and goes on."""
    await filled(replicas, "ab")
    for name in "ba":
        await replicas.stop(name)
    for name in "ab":
        replicas.rot(name)
    with caplog.at_level(logging.WARNING):
        for name in "ab":
            await replicas.start(name)
        await until(lambda: replicas.damaged("a") and replicas.damaged("b"), "both know")
        await until(lambda: "was not mended" in caplog.text, "it says so")
        await until(lambda: replicas.leader() and replicas.in_sync() == 2, "one leads all the same")
        await until(lambda: replicas.damaged("a") and replicas.damaged("b"), "nothing has changed")
    assert not replicas.mended("a") and not replicas.mended("b")
