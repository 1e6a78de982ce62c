"""Ten thousand real connections that break at once (T5), while others talk."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pixiu.roles.relay.leaving import FEW
from tests.roles.gateway.world import World, eventually, on_the_loop_that_serves, world_at

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 10_000
BACK = 1_000
"""So many come back and are looked at; that all do is for the benchmark."""
SWARM = Path(__file__).with_name("swarm.py")


class Swarm:
    """The process with the clients."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, port: int) -> Swarm:
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(sys.executable, str(SWARM), str(port), stdin=pipe, stdout=pipe))

    async def tell(self, command: str, seconds: float = 120) -> tuple[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(seconds):
            word, _, number = (await self._process.stdout.readline()).decode().partition(" ")
        return word, int(number or -1)

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()


class Writes:
    """Counts what is written to the table of sessions."""

    def __init__(self, world: World) -> None:
        self.count = 0
        table = world.node.messaging.relay._sessions
        for name in ("add", "remove"):
            setattr(table, name, self._counted(getattr(table, name)))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            self.count += 1
            return call(*args)

        return counted


async def chat(world: World, until: asyncio.Event) -> tuple[int, float]:
    """Two who stay go on talking; how much they said, and the longest that a message took."""
    alice, bob = await world.connect("alice"), await world.connect("bob")
    number, slowest = 0, 0.0
    while not until.is_set():
        began = time.monotonic()
        assert "message_id" in await alice.ask("send", to="bob", text=str(number))
        number += 1
        await bob.until(lambda number=number: len(bob.texts) == number)  # type: ignore[misc]
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.02)
    assert bob.texts == [str(each) for each in range(number)]
    return number, slowest


@pytest.mark.serial
@pytest.mark.timeout(300)
@on_the_loop_that_serves
class TestStorm:
    @pytest.mark.feature("T5", "C8")
    async def test_ten_thousand_connections_that_break_at_once(self, tmp_path: Path) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < COUNT + 1_000:
            pytest.skip(f"a process may have {hard} files open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        async with world_at(tmp_path) as world:
            relay, gateway = world.node.messaging.relay, world.gateway
            swarm = await Swarm.start(world.port)
            world.at_end.append(swarm.stop)
            assert await swarm.tell(f"connect {COUNT}") == ("ready", COUNT)
            is_over = asyncio.Event()
            chatting = asyncio.create_task(chat(world, is_over))
            await eventually(lambda: relay.counters.sessions == COUNT + 2)
            writes, old_epoch = Writes(world), relay.epoch
            began = time.monotonic()
            assert await swarm.tell("cut") == ("cut", COUNT)
            await eventually(lambda: gateway.counters.connections == 2, 20)
            await eventually(lambda: all(not world.sessions(f"u{number}") for number in range(0, COUNT, 97)), 10)
            await asyncio.sleep(1.2)  # the end of the window
            assert time.monotonic() - began < 30
            assert relay.counters.sessions == 2 and relay.counters.epochs == 1 and relay.epoch > old_epoch
            assert writes.count <= 4 * FEW, "one new epoch, and no write for each"
            table = world.node.messaging.relay._sessions
            users = [world.node.messaging.proxy.context.directory.find_user(f"u{number}") for number in range(COUNT)]
            assert not any(table.of(user) for user in users if user is not None)
            for number in range(0, BACK, 10):
                await world.node.send("carol", to=f"u{number}", text="while you were away")
            assert await swarm.tell(f"connect {BACK}") == ("ready", BACK), "they come back"

            async def all_are_there() -> None:
                while await swarm.tell("texts") != ("texts", BACK // 10):
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(all_are_there(), 20)
            is_over.set()
            said, _ = await chatting
            assert said > 10
            await swarm.tell("cut")
            await eventually(lambda: gateway.counters.connections == 2, 20)
