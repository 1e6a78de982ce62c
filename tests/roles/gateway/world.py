"""The real thing: a node's messaging, a gateway and its sockets, and clients that somebody else has written."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pixiu.config import InboxSettings, JournalSettings, MessagingSettings, Settings
from pixiu.config.gateway import GatewaySettings
from pixiu.config.rooms import RoomSettings
from pixiu.model.errors import PixiuError, Unauthenticated
from pixiu.node.embedded import EmbeddedNode
from pixiu.ports.authentication import Identity
from pixiu.roles.gateway import Gateway, LiveActions, RoomListening
from pixiu.runtime.app_server import AppServer
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pixiu.model.session import Session
    from pixiu.roles.gateway.needs import Authenticate

__all__ = ["Client", "TcpClient", "World", "world_at"]

SECONDS = 10.0


def identity_of(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
    """A token is ``USER[.PLATFORM[.DEVICE[.EXPIRES_AT]]]``."""
    parts = token.split(".")
    if parts[0] in ("", "bad"):
        done(Unauthenticated("the token is not good"))
        return
    user, platform, device, expires_at, *_ = [*parts, "", "", "", ""]
    done(Identity(user, platform or "web", device, expires_at=int(expires_at or 0)))


class Client:
    """A WebSocket client. Keeps what is pushed, and remembers its cursor."""

    def __init__(self, socket: ClientConnection, *, acks: bool) -> None:
        self.socket = socket
        self.acks = acks
        self.frames: list[dict[str, Any]] = []
        self.cursor = "0"
        self._number = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                frame = json.loads(text)
                self.frames.append(frame)
                if frame.get("push") == "message" and "cursor" in frame:
                    self.cursor = frame["cursor"]
                    if self.acks:
                        await self.ack(self.cursor)
                self._changed.set()
        except ConnectionClosed:
            pass
        self._changed.set()

    async def ack(self, cursor: str) -> None:
        await self.socket.send(json.dumps({"action": "ack", "params": {"cursor": cursor}}))

    async def until(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def ask(self, action: str, **params: object) -> dict[str, Any]:
        """A request and its answer."""
        self._number += 1
        number = self._number
        await self.socket.send(json.dumps({"id": number, "action": action, "params": params}))
        await self.until(lambda: any(frame.get("id") == number for frame in self.frames))
        answer = next(frame for frame in self.frames if frame.get("id") == number)
        return answer.get("result", answer)  # type: ignore[no-any-return]

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("push") == name]

    @property
    def texts(self) -> list[str]:
        """What a person is shown: everything that came, as often as it came."""
        return [frame["message"].get("text", "") for frame in self.pushed("message")]

    async def closed(self, seconds: float = SECONDS) -> int:
        """Wait for the end; the close code."""
        async with asyncio.timeout(seconds):
            await self._task
            await self.socket.wait_closed()
        return self.socket.close_code or 0

    async def leave(self) -> None:
        await self.socket.close()
        await self._task


class TcpClient:
    """A client over TCP, in JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, frame: object) -> None:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        self.writer.write(len(data).to_bytes(4) + data)

    async def payload(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            size = int.from_bytes(await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def frame(self) -> dict[str, Any]:
        return json.loads(await self.payload())  # type: ignore[no-any-return]

    async def rest(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.reader.read()

    async def leave(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class World:
    """A node with an open port."""

    def __init__(self, node: EmbeddedNode, gateway: Gateway, server: AppServer, ports: tuple[int, int]) -> None:
        self.node = node
        self.gateway = gateway
        self.server = server
        self.port, self.tcp_port = ports
        self._clients: list[Client] = []
        self.at_end: list[Callable[[], Awaitable[object]]] = []
        """Done before the clients leave, however the test ends."""

    def url(self, token: str, cursor: str = "") -> str:
        return f"ws://127.0.0.1:{self.port}/ws?token={token}" + (f"&cursor={cursor}" if cursor else "")

    async def connect(self, token: str, *, cursor: str = "", acks: bool = True, **options: Any) -> Client:
        return await self.connect_to(self.url(token, cursor), acks=acks, **options)

    async def connect_to(self, url: str, *, acks: bool = True, **options: Any) -> Client:
        client = Client(await connect(url, ping_interval=None, **options), acks=acks)
        self._clients.append(client)
        return client

    async def tcp(self) -> TcpClient:
        return TcpClient(*await asyncio.open_connection("127.0.0.1", self.tcp_port))

    def sessions(self, user: str) -> list[Session]:
        """What the table of sessions has."""
        number = self.node.messaging.proxy.context.directory.find_user(user)
        return self.node.messaging.relay.sessions_of(number) if number is not None else []

    async def leave(self) -> None:
        for call in self.at_end:
            await call()
        for client in self._clients:
            await client.leave()


@asynccontextmanager
async def world_at(
    path: Path,
    *,
    inbox: InboxSettings | None = None,
    messaging_settings: MessagingSettings | None = None,
    journal: JournalSettings | None = None,
    authenticate: Authenticate = identity_of,
    http_upstream: Callable[[], asyncio.BaseProtocol] | None = None,
    with_rooms: bool = False,
    rooms: RoomSettings | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """Everything on ports of its own, from start to drain."""
    all_settings = Settings(
        inbox=inbox or InboxSettings(),
        messaging=messaging_settings or MessagingSettings(sends_per_second=0),
        journal=journal or JournalSettings(),
    )
    chosen = GatewaySettings(**settings)
    async with EmbeddedNode(path, settings=all_settings, creates_users=True) as node:
        messaging = node.messaging
        scheduler, clock = LoopScheduler(asyncio.get_running_loop()), SystemClock()
        context = messaging.proxy.context
        gateway = Gateway(messaging, authenticate, clock, scheduler, chosen, names=context.directory)
        LiveActions(
            gateway, context, scheduler, tell=messaging.relay.tell, is_present=messaging.relay.is_present
        )  # fmt: skip
        if with_rooms:
            open_rooms(gateway, node, clock, scheduler, rooms or RoomSettings())
        gateway.start()
        server = AppServer(gateway, chosen, http_upstream=http_upstream, tls=tls)
        ports = await server.start("127.0.0.1", 0, tcp_port=0)
        world = World(node, gateway, server, ports)
        try:
            yield world
        finally:
            await world.leave()
            await server.stop()
            gateway.stop()
            scheduler.close()


def open_rooms(
    gateway: Gateway, node: EmbeddedNode, clock: SystemClock, scheduler: LoopScheduler, settings: RoomSettings
) -> None:
    """A broker in this process, wired to the gateway."""
    from pixiu.backends.memory.routes import MemoryRoutes
    from pixiu.roles.broker import Broker
    from pixiu.roles.broker.verbs import act

    listening: list[RoomListening] = []

    def push(_: str, frames: list[Any]) -> None:
        for frame in frames:
            ack = listening[0].receive("broker", frame)
            if ack is not None:
                scheduler.soon(lambda ack=ack: broker.acked("local", ack))  # type: ignore[misc]

    broker = Broker(
        MemoryRoutes(), clock, scheduler, settings, push, user_name=node.messaging.proxy.context.directory.user_name
    )
    made = RoomListening(
        gateway,
        settings,
        clock,
        act=lambda actor, action, params, done: act(broker, actor, action, params, done),
        session_gone=broker.session_gone,
    )
    listening.append(made)


T = TypeVar("T", bound=type)


def on_the_loop_that_serves(tests: T) -> T:
    """Run a class's tests on uvloop, as a server does."""

    def on_uvloop(test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **params: Any) -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(test(*args, **params))

        return run

    for name, test in list(vars(tests).items()):
        if inspect.iscoroutinefunction(test):
            setattr(tests, name, on_uvloop(test))
    return tests


async def get(port: int, request: bytes) -> bytes:
    """A raw HTTP exchange."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def say(world: World, count: int, *, first: int = 0, user: str = "alice", to: str = "bob") -> list[str]:
    texts = [f"m{number}" for number in range(first, first + count)]
    for text in texts:
        await world.node.send(user, to=to, text=text)
    return texts


def waiting(world: World, user: int) -> int:
    state = world.node.messaging.stores.inboxes.state(user, "web")
    return state.waiting if state is not None else 0


async def eventually(condition: Any, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
