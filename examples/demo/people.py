"""One simulated person: a client of the Python SDK that talks, listens, goes away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pixiu
from examples.demo.lines import line
from pixiu.model.errors import PixiuError
from pixiu.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from examples.demo.lines import Cast
    from examples.demo.tally import Tally
    from pixiu.sdk import Client, Message
    from pixiu.sdk.actions import Content

__all__ = ["Person", "World"]

TAG = "demo"
"""The field of a message that carries its number in the tally."""
CONNECTS_AT_ONCE = 16
RECENT = 8


@dataclass(slots=True)
class World:
    """State that all people share."""

    url: str
    token_of: Callable[[str], str]
    random: Random
    tally: Tally
    pace_seconds: float
    """Mean time between two actions of one person."""
    ends_at: float
    people: list[str]
    stores: Path
    """The folder of the devices' local stores."""
    groups: dict[str, set[str]] = field(default_factory=dict)
    rooms: list[str] = field(default_factory=list)
    online: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """People stop sending; everyone comes online and receives."""
    is_drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Every delivery has happened; everyone may disconnect."""
    clock: SystemClock = field(default_factory=SystemClock)
    connecting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTS_AT_ONCE))

    def now(self) -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time()


class Person:
    """One client. A restless one goes offline now and then."""

    def __init__(self, world: World, cast: Cast, *, is_restless: bool) -> None:
        self._world = world
        self._cast = cast
        self._is_restless = is_restless
        self._is_new = True
        self._unanswered: deque[Message] = deque(maxlen=RECENT)
        self._said: deque[tuple[int, int]] = deque(maxlen=RECENT)  # message ids, with their numbers in the tally

    @property
    def _groups(self) -> list[str]:
        return [group for group, members in self._world.groups.items() if self._cast.user in members]

    async def live(self) -> None:
        """Connect and disconnect until time is up; then stay connected until every delivery has happened."""
        world = self._world
        while not world.is_drained.is_set():
            await self._session()
            if not world.is_over.is_set():
                world.tally.counts["times offline"] += 1
                await _wait(world.is_over, world.random.uniform(1, 6))

    async def _session(self) -> None:
        world = self._world
        await world.connecting.acquire()
        store = world.stores / f"{world.people.index(self._cast.user)}.db"  # a device remembers what it has received
        client = pixiu.connect(world.url, self._token, store=store, patience_seconds=60)
        try:
            await client.__aenter__()
        finally:
            world.connecting.release()
        world.online += 1
        listening = asyncio.create_task(self._listen(client))
        try:
            await self._settle_in(client)
            await self._talk(client)
            if world.is_over.is_set():
                await world.is_drained.wait()
        finally:
            world.online -= 1
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            await client.__aexit__(None, None, None)

    def _token(self) -> str:
        return self._world.token_of(self._cast.user)

    async def _settle_in(self, me: Client) -> None:
        with _refusals_counted(self._world.tally):
            if self._is_new:
                self._is_new = False
                await me.create_user(name=self._cast.name)
            for room in self._world.rooms:
                await me.enter(room)

    async def _listen(self, me: Client) -> None:
        tally = self._world.tally
        async for message in me.messages():
            if message.room:
                tally.received_in_room(self._cast.user, message.room, message.message_id)
                continue
            tag = message.fields.get(TAG)
            tally.received(self._cast.user, message.message_id, int(tag) if tag else None)
            if message.sender and message.kind == "text":
                self._unanswered.append(message)

    async def _talk(self, me: Client) -> None:
        world, random = self._world, self._world.random
        leaves_at = world.now() + random.uniform(4, 15) if self._is_restless else float("inf")
        while not world.is_over.is_set() and world.now() < leaves_at:
            await _wait(world.is_over, random.expovariate(1 / world.pace_seconds))
            if world.is_over.is_set():
                return
            actions = [
                self._private,
                self._in_group,
                self._in_room,
                self._answer,
                self._read,
                self._recall,
                self._schedule,
            ]
            (action,) = random.choices(actions, weights=[30, 22, 18, 20, 10, 4, 3])
            with _refusals_counted(world.tally):
                await action(me)

    async def _private(self, me: Client) -> None:
        await self._send(me, to=self._someone())

    async def _in_group(self, me: Client) -> None:
        if self._groups:
            await self._send(me, group=self._world.random.choice(self._groups))

    async def _answer(self, me: Client) -> None:
        if not self._unanswered:
            return
        asked = self._unanswered.pop()
        if asked.group:
            await self._send(me, group=asked.group, ref=asked.message_id)
        elif asked.sender != self._cast.user:
            await self._send(me, to=asked.sender, ref=asked.message_id)

    async def _send(self, me: Client, *, to: str = "", group: str = "", ref: int = 0) -> None:
        tally = self._world.tally
        number = tally.sending({to} if to else self._world.groups[group] - {self._cast.user})
        text = line(self._cast.language, self._world.random)
        content: Content = {"fields": {TAG: str(number)}}
        if ref:
            content["ref"] = ref
        try:
            sent = await (me.send(to, text, **content) if to else me.gsend(group, text, **content))
        except BaseException:
            tally.withdraw(number)
            raise
        self._said.append((sent.message_id, number))
        tally.counts["private messages" if to else "group messages"] += 1

    async def _in_room(self, me: Client) -> None:
        if self._world.rooms:
            await me.say(self._world.random.choice(self._world.rooms), line(self._cast.language, self._world.random))
            self._world.tally.counts["room messages"] += 1

    async def _read(self, me: Client) -> None:
        if self._unanswered:
            message = self._unanswered[-1]
            if message.group:
                await me.read(group=message.group)
            elif message.sender != self._cast.user:
                await me.read(message.sender)
                await me.receipt([message.message_id])
            self._world.tally.counts["receipts"] += 1

    async def _recall(self, me: Client) -> None:
        if self._said:
            message_id, number = self._said.pop()
            self._world.tally.withdraw(number)  # a reader who was offline will not receive it
            await me.recall(message_id)
            self._world.tally.counts["recalls"] += 1

    async def _schedule(self, me: Client) -> None:
        world = self._world
        left = world.ends_at - world.now() - 1
        if left < 1:
            return
        to = self._someone()
        number = world.tally.sending({to})
        at = world.clock.now_ms() + int(world.random.uniform(1, min(left, 8)) * 1000)
        try:
            await me.schedule(at, line(self._cast.language, world.random), to=to, fields={TAG: str(number)})
        except BaseException:
            world.tally.withdraw(number)
            raise
        world.tally.counts["scheduled"] += 1

    def _someone(self) -> str:
        """A random person other than this one."""
        while True:
            found = self._world.random.choice(self._world.people)
            if found != self._cast.user:
                return found


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


@contextlib.contextmanager
def _refusals_counted(tally: Tally) -> Iterator[None]:
    """Count an action that the server refused, and continue."""
    try:
        yield
    except (PixiuError, TimeoutError) as error:
        tally.counts["refused"] += 1
        tally.refusals.add(str(error))
