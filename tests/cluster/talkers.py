"""People who never stop writing to each other, through the doors of a cluster, and what they were promised."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from types import TracebackType

    from pixiu.sdk import Client
    from tests.cluster.scenario import Doors

__all__ = ["Talkers"]

PAUSE_S = 0.03
PATIENCE_S = 60.0


class Talkers:
    """Each writes to the next one, message after message, each until it is accepted; and reads what comes."""

    def __init__(self, doors: Doors, count: int = 6) -> None:
        """Half of them have public ids that are their own numbers."""
        self.users = [str(5001 + n) if n % 2 else f"talker-{n}" for n in range(count)]
        self.accepted: dict[str, list[tuple[int, str]]] = {user: [] for user in self.users}
        self.heard: dict[str, list[str]] = {user: [] for user in self.users}
        self.times: list[float] = []
        self.errors: list[str] = []
        self._doors = doors
        self._clients: dict[str, Client] = {}
        self._exits = AsyncExitStack()
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for number, user in enumerate(self.users):
            await self._doors.act("root", "create_user", is_admin=True, user=user)
            client = self._doors.connect(user, turn=number, patience_seconds=30)
            self._clients[user] = await self._exits.enter_async_context(client)
        for user in self.users:
            self._tasks.append(asyncio.ensure_future(self._read(user)))
        self._writers = [asyncio.ensure_future(self._write(user)) for user in self.users]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        for task in [*self._tasks, *self._writers]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._writers, return_exceptions=True)
        await self._exits.aclose()

    def peer_of(self, user: str) -> str:
        """Whom someone writes to."""
        return self.users[(self.users.index(user) + 1) % len(self.users)]

    async def _write(self, user: str) -> None:
        number = 0
        while not self._is_over:
            text = f"{user} {number}"
            try:
                sent = await self._clients[user].send(
                    self.peer_of(user), text, send_id=text, timeout_seconds=PATIENCE_S
                )  # fmt: skip
            except PixiuError as error:
                self.errors.append(f"{text}: {error.code} {error}")
                await asyncio.sleep(0.5)
                continue
            self.accepted[user].append((sent.message_id, text))
            self.times.append(time.monotonic())
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _read(self, user: str) -> None:
        async for message in self._clients[user].messages():
            if message.text:
                self.heard[user].append(message.text)

    async def more(self, count: int = 5, *, seconds: float = 60) -> None:
        """Until everyone was promised some more."""
        wanted = {user: len(accepted) + count for user, accepted in self.accepted.items()}
        async with asyncio.timeout(seconds):
            while any(len(self.accepted[user]) < least for user, least in wanted.items()):
                await asyncio.sleep(0.05)

    def longest_gap_s(self) -> float:
        """The longest time in which nothing was accepted from anybody."""
        return max(after - before for before, after in pairwise(sorted(self.times)))

    async def check(self, *, seconds: float = 60) -> None:
        """Everything accepted is delivered once, in the order of its sender, and stands in both histories."""
        self._is_over = True
        await asyncio.gather(*self._writers)
        assert not self.errors, self.errors
        for user in self.users:
            to, texts = self.peer_of(user), [text for _, text in self.accepted[user]]
            try:
                async with asyncio.timeout(seconds):
                    while self.heard[to] != texts:
                        assert len(self.heard[to]) <= len(texts), f"{to} heard something twice"
                        await asyncio.sleep(0.1)
            except TimeoutError:
                missing = [text for text in texts if text not in set(self.heard[to])]
                raise AssertionError(f"{to} has not heard {len(missing)} of {len(texts)}: {missing[:5]} …") from None
            for owner, peer in ((user, to), (to, user)):
                assert await self._history(owner, peer) == self.accepted[user], f"history of {owner} with {peer}"

    async def _history(self, owner: str, peer: str) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        before: int | None = None
        while True:
            page = await self._clients[owner].history(peer, before=before, limit=500)
            found += [(each.message_id, each.text) for each in page.messages]
            if not page.has_more:
                return found[::-1]
            before = page.messages[-1].message_id
