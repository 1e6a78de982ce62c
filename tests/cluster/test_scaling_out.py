"""P02 in full: three gateways, two proxies, two relays, a shard of three; one of each is added and one is removed.

A thousand people are spread over the gateways. They are sent a hundred pushes, which the shard keeps, and some of them
hear a hundred reliable words in a room, which go over proxies and relays. Nobody misses any of either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest

import pixiu
from pixiu.model.errors import PixiuError
from tests.cluster.processes import Cluster
from tests.cluster.scenario import QUICK, Doors
from tests.cluster.test_durable_faults import Extra, _push, audit, doors_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.serial, pytest.mark.long]

LINKS = '"links.drain_ms" = 1000, "links.reliable_ms" = 60000'
EVERY_ROLE = f"""
name = "everyone"
zookeeper = {{ nodes = 1 }}

[roles.shard]
replicas = 3
settings = {{ "messaging.sends_per_second" = 0, "gateway.lease_ms" = 10000 }}

[roles.router]
settings = {{ {LINKS} }}

[roles.broker]
replicas = 2
settings = {{ {LINKS}, "links.room_path" = "relay" }}

[roles.relay]
replicas = 2
settings = {{ {LINKS} }}

[roles.proxy]
replicas = 2
settings = {{ {LINKS} }}

[roles.gateway]
replicas = 3
settings = {{ {LINKS}, "gateway.lease_ms" = 10000 }}
"""
PEOPLE = int(os.environ.get("PIXIU_P02_PEOPLE", "1000"))
PUSHES = 100
LISTENERS = 60
"""How many of them are in the room: as many over every gateway."""
AT_A_TIME = 25
ROOM = "hall"


class People:
    """Everyone, each at some gateway; whoever is sent away comes back by another one."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.pushed: dict[str, list[str]] = {f"p{number}": [] for number in range(PEOPLE)}
        self.said: dict[str, list[str]] = {f"p{number}": [] for number in range(LISTENERS)}
        self.moves = 0
        self._gate = asyncio.Semaphore(AT_A_TIME)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Until all are there. On loopback whoever comes first is made then."""
        ready = {user: asyncio.Event() for user in self.pushed}
        for number, user in enumerate(self.pushed):
            self._tasks.append(asyncio.ensure_future(self._live(number, user, ready[user])))
        async with asyncio.timeout(300):
            await asyncio.gather(*(each.wait() for each in ready.values()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, number: int, user: str, ready: asyncio.Event) -> None:
        cursor, turn = "", 0
        while True:
            url = self.doors.urls[(number + turn) % len(self.doors.urls)]
            client = pixiu.connect(
                url.replace("http://", "ws://"), self.doors.token(user), rules=QUICK, cursor=cursor, patience_seconds=60
            )
            try:
                async with self._gate:
                    await client.__aenter__()
                try:
                    if user in self.said:
                        await client.enter(ROOM)
                    ready.set()
                    await self._listen(client, user)
                finally:
                    await client.__aexit__(None, None, None)
            except PixiuError:
                await asyncio.sleep(0.3)
            cursor = client.cursor if client.cursor != "0" else ""
            turn += 1
            self.moves += 1

    async def _listen(self, client: pixiu.Client, user: str) -> None:
        while True:
            try:
                message = await client.next_message(5)
            except TimeoutError:
                if not client.is_online:
                    return
                continue
            if message.text.startswith("push "):
                self.pushed[user].append(message.text)
            elif message.text.startswith("word "):
                self.said[user].append(message.text)


async def until(condition: object, seconds: float) -> None:
    """Wait for it; who asks looks again afterwards."""
    assert callable(condition)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.2)


@pytest.mark.timeout(1800)
@pytest.mark.feature("P02")
async def test_one_of_each_role_more_and_one_less_and_nobody_misses_anything(tmp_path: Path) -> None:
    extras: list[Extra] = []
    with Cluster(tmp_path, EVERY_ROLE) as cluster:
        doors = await asyncio.to_thread(doors_of, cluster)
        secret = (cluster.folder / "secret").read_text(encoding="utf-8").strip()
        people = People(doors)
        await people.start()
        headers = {"Authorization": f"Bearer {doors.token('root', is_admin=True)}"}
        began_s = time.monotonic()
        try:
            async with pixiu.Publisher(registry=cluster.registry, secret=secret) as publisher:
                words = asyncio.ensure_future(_speak(publisher))
                for number in range(PUSHES):
                    if number == 20:
                        for role, more in (("shard", ["--replica", "9"]), ("proxy", []), ("relay", [])):
                            extras.append(await asyncio.to_thread(Extra, cluster, role, *more))
                        extras.append(await asyncio.to_thread(Extra, cluster, "gateway"))
                        doors.urls.append(f"http://127.0.0.1:{extras[-1].said['port']}")
                    elif number in (40, 50, 60):
                        name = await asyncio.to_thread(cluster.leader)
                        if number < 60:
                            name = {40: "proxy-0-0", 50: "relay-0-0"}[number]
                        await asyncio.to_thread(cluster.ask, "drain", name)
                    elif number == 75:
                        doors.urls.pop(1)
                        await asyncio.to_thread(cluster.ask, "drain", "gateway-0-1")
                    await _push(doors, headers, number, list(people.pushed))
                accepted = await words
                took_s = time.monotonic() - began_s
            await until(lambda: all(len(set(heard)) == PUSHES for heard in people.pushed.values()), 180)
            everything = {f"push {number}" for number in range(PUSHES)}
            missed = {
                user: everything - set(heard) for user, heard in people.pushed.items() if set(heard) != everything
            }
            assert not missed, (len(missed), next(iter(missed.items())))
            assert all(len(heard) == PUSHES for heard in people.pushed.values()), "shown once"
            # Whoever was at the gateway that went was not in the room throughout: the others were.
            stayed = [heard for number, heard in enumerate(people.said.values()) if number % 3 != 1]
            assert len(accepted) == PUSHES
            assert all(heard == accepted for heard in stayed)
            assert people.moves >= PEOPLE // 5, "those of the gateway that went came by another one"
            report = await asyncio.to_thread(audit, cluster)
            assert report["balanced"], report
            print(f"{PEOPLE} people, {PUSHES} pushes and {len(accepted)} words in {took_s:.0f} s; {people.moves} moves")
        finally:
            await people.stop()
            assert [await asyncio.to_thread(extra.stop) for extra in extras[::-1]] == [0] * len(extras)


async def _speak(publisher: pixiu.Publisher) -> list[str]:
    """A hundred words, each until everyone has it."""
    said: list[str] = []
    for number in range(PUSHES):
        await publisher.publish(ROOM, f"word {number}", sender="stage", reliable=True)
        said.append(f"word {number}")
        await asyncio.sleep(0.1)
    return said
