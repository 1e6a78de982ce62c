"""A real node in this process, as ``pixiu serve --dev`` runs it, on its own port; it can be stopped and started."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pixiu
from pixiu.config import InboxSettings, LogSettings, MessagingSettings, QueueSettings, Settings
from pixiu.config.gateway import GatewaySettings
from pixiu.config.process import HttpSettings
from pixiu.machines.client_session import ClientRules
from pixiu.node.serving import Node
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pixiu.model.session import Session
    from pixiu.node.host import MessagingHost
    from pixiu.roles.gateway import Gateway
    from pixiu.sdk import Client, Message

__all__ = ["QUICK", "World", "cut", "eventually", "take", "told", "wanted", "world_at"]

QUICK = ClientRules(retry_ms=20, retry_ms_max=200)
SECONDS = 10.0


class World:
    """A node on a directory, and clients with real tokens."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = replace(
            settings,
            queue=replace(settings.queue, port=free_port()),
            http=HttpSettings(port=free_port()),
        )
        self._directory: DataDirectory | None = None
        self._node: Node | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.settings.http.port}"

    async def start(self) -> None:
        self._directory = DataDirectory.open(self.path)
        self._node = Node(self.settings, self._directory, http=True, follow=None, follow_event=0, is_dev=True)
        await self._node.start()

    async def stop(self) -> None:
        if self._node is not None and self._directory is not None:
            await self._node.stop()
            self._directory.close()
        self._node = self._directory = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def host(self) -> MessagingHost:
        assert self._node is not None and self._node._host is not None
        return self._node._host

    @property
    def gateway(self) -> Gateway:
        assert self._node is not None and self._node._surfaces is not None
        gateway = self._node._surfaces.gateway
        assert gateway is not None, "the connections are in this process"
        return gateway

    def token(self, user: str, *, platform: str = "web", device: str = "", lifetime_ms: int | None = None) -> str:
        clock = SystemClock()
        tokens = Tokens(Keyring(self.path, clock), clock, self.settings.security)
        return tokens.issue(Identity(user, platform, device or "d1"), lifetime_ms=lifetime_ms)

    def connect(self, user: str, *, platform: str = "web", device: str = "", **options: Any) -> Client:
        token = options.pop("token", None) or self.token(user, platform=platform, device=device)
        return pixiu.connect(self.url, token, **{"rules": QUICK, **options})

    def number(self, user: str) -> int:
        number = self.host.messaging.proxy.context.directory.find_user(user)
        assert number is not None
        return number

    def sessions(self, user: str) -> list[Session]:
        return self.host.messaging.relay.sessions_of(self.number(user))

    def waiting(self, user: str, platform: str = "web") -> int:
        state = self.host.stores.inboxes.state(self.number(user), platform)
        return state.waiting if state is not None else 0


@asynccontextmanager
async def world_at(
    path: Path, *, inbox: InboxSettings | None = None, messaging: dict[str, Any] | None = None, **gateway: Any
) -> AsyncIterator[World]:
    settings = Settings(
        queue=QueueSettings(),
        log=LogSettings(),
        inbox=inbox or InboxSettings(),
        messaging=MessagingSettings(**{"sends_per_second": 0, **(messaging or {})}),
        gateway=GatewaySettings(**{"drain_spread_ms": 50, **gateway}),
    )
    world = World(path / "data", settings)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()


def cut(client: Client) -> None:
    """The network fails: no goodbye."""
    assert client._socket is not None
    client._socket.cut()


async def take(client: Client, count: int, seconds: float = SECONDS) -> list[Message]:
    """The next messages."""
    async with asyncio.timeout(seconds):
        return [await client.next_message() for _ in range(count)]


async def wanted(client: Client, is_wanted: Callable[[Message], bool], seconds: float = SECONDS) -> Message:
    """The next message of a kind; others are passed over."""
    async with asyncio.timeout(seconds):
        while True:
            message = await client.next_message()
            if is_wanted(message):
                return message


E = TypeVar("E")


async def told(client: Client, kind: type[E], seconds: float = SECONDS) -> E:
    """The next event of a kind; others are passed over."""
    async with asyncio.timeout(seconds):
        while True:
            event = await client.next_event()
            if isinstance(event, kind):
                return event


async def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
