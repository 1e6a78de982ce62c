"""A small gateway for tests: connects to the replica that serves a shard, and keeps what comes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.config.registry import RegistryAddress
from pixiu.machines.links.sealing import Secrets
from pixiu.machines.wire import (
    VERSION,
    Acks,
    Answer,
    End,
    Event,
    Heartbeat,
    Hello,
    LoggedIn,
    LogIn,
    Pushes,
    Refusal,
    Request,
    Stream,
    Welcome,
    encode,
)
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.runtime import hub_streams

if TYPE_CHECKING:
    from pixiu.machines.wire import WireMessage
    from pixiu.ports.registry import Folder
    from pixiu.ports.transport import WatchedLink

__all__ = ["HubClient", "Shards"]

BEAT_S = 0.5


class HubClient:
    """One link to one hub."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pushes: list[tuple[int, int, int, bytes]] = []
        """(session, useq, message_id, body)."""
        self.ended: dict[int, str] = {}
        self.events: list[dict[str, object]] = []
        self.epoch = 0
        self.lost_reason = ""
        self._link: WatchedLink | None = None
        self._stream = Stream()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._requests = 0
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beats: asyncio.Task[None] | None = None
        self._dial: hub_streams.Dial | None = None

    @classmethod
    async def connect(cls, name: str, address: str, secrets: Secrets, to: int) -> Self:
        client = cls(name)
        client._dial = hub_streams.connect(asyncio.get_running_loop(), address, secrets, client, boot=7, to=to)
        async with asyncio.timeout(5):
            await client._welcome
        client._beats = asyncio.get_running_loop().create_task(client._beat())
        return client

    # The link's receiver.

    def opened(self, link: WatchedLink) -> None:
        self._link = link
        link.write(encode(Hello(VERSION, self.name)))

    def received(self, data: bytes) -> None:
        for message in self._stream.feed(data):
            self._take(message)

    def paused(self) -> None: ...
    def resumed(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.lost_reason = reason
        self._link = None
        if not self._welcome.done():
            self._welcome.set_exception(Unavailable(reason))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unavailable(f"the link is lost: {reason}"))

    def _take(self, message: WireMessage) -> None:
        match message:
            case Welcome(epoch):
                self.epoch = epoch
                self._welcome.set_result(None)
            case LoggedIn(request, session):
                self._waiting.pop(request).set_result(session)
            case Answer(request, result):
                self._waiting.pop(request).set_result(result)
            case Refusal(request, error):
                self._waiting.pop(request).set_exception(error)
            case Pushes(bodies, rows):
                for row in rows:
                    message_id, body = bodies[row.body]
                    self.pushes.append((row.session_id, row.useq, message_id, body))
            case End(session_id, reason):
                self.ended[session_id] = reason
            case Event(_, event):
                self.events.append(dict(event))
            case _:
                pass

    async def _beat(self) -> None:
        while True:
            self._say(Heartbeat(is_open=True))
            await asyncio.sleep(BEAT_S)

    def _say(self, message: WireMessage) -> None:
        if self._link is not None:
            self._link.write(encode(message))

    # What a test does.

    async def _ask(self, make: Any) -> Any:
        if self._link is None:
            raise Unavailable(f"the link is lost: {self.lost_reason}")
        self._requests += 1
        waiting = self._waiting[self._requests] = asyncio.get_running_loop().create_future()
        self._say(make(self._requests))
        async with asyncio.timeout(10):
            return await waiting

    async def log_in(self, user: str, platform: str = "web", cursor: int = 0) -> int:
        """Returns the session's number."""
        session = await self._ask(lambda request: LogIn(request, user, platform, f"{user}-{platform}", cursor))
        return int(session.session_id)

    async def act(self, session: int, action: str, **params: object) -> dict[str, Any]:
        named = {key.removesuffix("_"): value for key, value in params.items()}
        return dict(await self._ask(lambda request: Request(request, session, False, action, named)))

    def ack(self, session: int, cursor: int) -> None:
        self._say(Acks([(session, cursor)]))

    async def pushed(self, session: int, count: int) -> list[int]:
        """Wait for so many messages of a session; returns their ids."""
        async with asyncio.timeout(10):
            while len(found := self.ids(session)) < count:
                await asyncio.sleep(0.005)
        return found

    def ids(self, session: int) -> list[int]:
        return list(dict.fromkeys(message_id for each, _, message_id, _ in self.pushes if each == session))

    def cursor(self, session: int) -> int:
        return max((useq for each, useq, _, _ in self.pushes if each == session), default=0)

    def close(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
        if self._link is not None:
            self._link.close()


class Shards:
    """Finds whoever serves a partition, as gateways do, and connects."""

    def __init__(self, registry: str, secret: str) -> None:
        address = RegistryAddress.parse(registry)
        self._root = address.root
        self._secrets = Secrets.from_text(secret)
        self.registry = ZooKeeperRegistry(address.hosts, asyncio.get_running_loop())
        self._clients: list[HubClient] = []

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().run_in_executor(None, self.registry.connect)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        await asyncio.get_running_loop().run_in_executor(None, self.registry.close)

    async def server(self, partition: int) -> dict[str, Any]:
        """What ``leader`` says."""
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self.registry.read(f"{self._root}/shard/partition{partition}/leader", answer.set_result)
        found = await answer
        entry = None if isinstance(found, PixiuError) else found.get("")
        return {} if entry is None else dict(entry.data)

    async def connect(self, partition: int, *, name: str = "g1", after_epoch: int = 0) -> HubClient:
        """Connect to whoever serves; ``after_epoch``: to one that came behind that."""
        async with asyncio.timeout(30):
            while True:
                row = await self.server(partition)
                if row and row["epoch"] > after_epoch:
                    with contextlib.suppress(Unavailable, TimeoutError):
                        client = await HubClient.connect(name, row["hub"], self._secrets, int(row["boot"], 16))
                        self._clients.append(client)
                        return client
                await asyncio.sleep(0.05)
