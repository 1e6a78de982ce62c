"""Clients that find the leader through a registry, and leave one that stands still."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.ports.registry import Write
from pixiu.queue.client import Client, FateUnknown
from pixiu.queue.client.errors import error_of
from pixiu.runtime.scheduler import LoopScheduler
from tests.servers import QueueProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LEADER = "/pubsub/shard/partition0/leader"


@pytest.fixture
async def tree() -> AsyncIterator[MemoryRegistry]:
    scheduler = LoopScheduler(asyncio.get_running_loop())
    yield MemoryRegistry(scheduler)
    scheduler.close()


def name_leader(tree: MemoryRegistry, epoch: int, process: QueueProcess) -> None:
    tree.write([Write(LEADER, {"epoch": epoch, "name": f"q{epoch}", "address": process.address})])


@pytest.mark.feature("X43")
async def test_a_client_leaves_a_leader_that_stands_still_and_repeats_what_is_safe_to_repeat(
    tmp_path: Path, tree: MemoryRegistry
) -> None:
    with QueueProcess(tmp_path / "a") as old, QueueProcess(tmp_path / "b") as new:
        name_leader(tree, 1, old)
        async with Client(registry=tree.open(), patience_s=8) as client:
            await client.create_topic("t")
            assert client.address == old.address
            old.signal(signal.SIGSTOP)
            keyed = asyncio.create_task(client.append("u", "once", key="k"))
            plain = asyncio.create_task(client.publish("u", "twice?"))
            await asyncio.sleep(0.1)
            async with Client(new.address) as other:
                await other.create_topic("u")
            name_leader(tree, 2, new)
            assert not (await keyed).repeat
            with pytest.raises(FateUnknown):
                await plain
            assert client.address == new.address
            assert (await client.append("u", "once", key="k")).repeat
            assert (await client.publish("u", "hello")) > 0


async def test_without_anyone_registered_the_error_says_where_it_looked(tree: MemoryRegistry) -> None:
    async with Client(registry=tree.open(), partition=3, patience_s=0.2) as client:
        with pytest.raises(Unavailable, match="/pubsub/shard/partition3"):
            await client.alive()


def test_an_address_that_is_no_registry_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Client("zk://a:x/pubsub")


def test_what_a_leader_that_had_to_stop_says_is_an_unknown_fate() -> None:
    error = error_of("this node leads no more (the session is lost); whether this was kept is unknown", "appending")
    assert isinstance(error, FateUnknown)
