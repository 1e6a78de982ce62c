"""A node and its gateway processes in simulated time: real roles at both ends, and links made of queues between them.

Each process has turns of its own, so that one can stand still while time goes on.
"""

from __future__ import annotations

import json
import random
from collections import deque
from typing import TYPE_CHECKING, Any

from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.config import MessagingSettings, RoomSettings, Settings
from pixiu.config.gateway import GatewaySettings
from pixiu.im.draft import Actor
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.messaging import Messaging
from pixiu.ports.authentication import Identity
from pixiu.roles.broker.broker import Broker
from pixiu.roles.gateway import Gateway, LiveActions, NodeLink, RoomListening, WatchedPresence
from pixiu.roles.horn.providers import NoNotifications
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.roles.gateway.scene import FakeTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.errors import PixiuError
    from pixiu.ports.transport import WatchedReceiver

__all__ = ["Client", "Process", "World"]

HIGH_BYTES = 64 * 1024


class Pipe:
    """One direction of a link. Bytes wait until the other process has a turn."""

    def __init__(self, to: SimulatedScheduler, receiver: WatchedReceiver, writer: WatchedReceiver) -> None:
        self._to = to
        self._receiver = receiver
        self._writer = writer
        self._waiting: deque[bytes] = deque()
        self._is_near = False
        self._is_paused = False
        self.other: Pipe | None = None
        self.is_closed = False
        self.is_muted = False
        self.writes = 0
        self.is_stuck = False

    def write(self, data: bytes) -> None:
        if self.is_closed:
            return
        self.writes += 1
        self._waiting.append(data)
        if self.pending() > HIGH_BYTES and not self._is_paused:
            self._is_paused = True
            self._writer.paused()
        self._soon()

    def pending(self) -> int:
        return sum(map(len, self._waiting))

    def close(self) -> None:
        """This end hangs up: the other one hears of it when it has a turn."""
        assert self.other is not None
        self.other.is_muted = True
        if not self.is_closed:
            self.is_closed = self.other.is_closed = True
            self._soon()

    def _soon(self) -> None:
        if not self._is_near:
            self._is_near = True
            self._to.soon(self._deliver)

    def _deliver(self) -> None:
        self._is_near = False
        if self.is_stuck or self.is_muted:
            return
        while self._waiting:
            self._receiver.received(self._waiting.popleft())
        if self._is_paused:
            self._is_paused = False
            self._writer.resumed()
        if self.is_closed and not self.is_muted:
            self._receiver.lost("the peer hung up")


class Client:
    """A client of one process, over a transport that notes everything. Acks what it gets."""

    def __init__(self, process: Process, user: str, *, cursor: int = 0) -> None:
        self.transport = FakeTransport()
        self.connection: Any = process.gateway.open(
            self.transport, codec="json", is_websocket=True, token=user, cursor=cursor, address="10.0.0.1"
        )
        self._world = process.world
        self._acked = cursor
        self._seen = 0
        self._number = 0

    def look(self) -> None:
        """Ack what has come."""
        if self._seen == len(self.transport.writes):
            return
        self._seen = len(self.transport.writes)
        cursor = max((int(frame.get("cursor", 0)) for frame in self.pushed("message")), default=0)
        if cursor > self._acked and self.transport.closed is None:
            self._acked = cursor
            self.say({"action": "ack", "params": {"cursor": str(cursor)}})

    @property
    def cursor(self) -> int:
        return self._acked

    def say(self, frame: object) -> None:
        self.connection.received(json.dumps(frame).encode(), is_text=True)

    def ask(self, action: str, **params: object) -> dict[str, Any]:
        """A request, and its answer in a little while."""
        self._number += 1
        self.say({"id": self._number, "action": action, "params": params})
        self._world.run(50)
        return next(frame for frame in self.transport.frames if frame.get("id") == self._number)

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return self.transport.pushed(name)

    @property
    def texts(self) -> list[str]:
        return [frame["message"].get("text", "") for frame in self.pushed("message")]

    def ids(self) -> list[str]:
        return [frame["message"]["message_id"] for frame in self.pushed("message")]


class Process:
    """A gateway process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.scheduler = SimulatedScheduler(world.clock, random.Random(name), slow_us=0, pause_chance=0)
        self.pipe: Pipe | None = None
        self.link = NodeLink(name, self._dial, world.clock, self.scheduler, world.settings.gateway)
        self.gateway = Gateway(
            self.link, self._authenticate, world.clock, self.scheduler, world.settings.gateway, names=self.link.names
        )
        self.rooms = RoomListening(
            self.gateway, world.settings.rooms, world.clock, act=self.link.act, session_gone=lambda _session: None
        )
        WatchedPresence(self.gateway, self.link.act)
        self.link.receive_room = self.rooms.receive
        self.gateway.start()
        self.link.start(self.gateway)

    @staticmethod
    def _authenticate(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        user, _, device = token.partition(".")
        done(Identity(user, "web", device or user))

    def _dial(self, link: NodeLink) -> None:
        if self.world.is_unreachable:
            self.scheduler.soon(lambda: link.lost("nobody listens"))
            return
        end = self.world.hub.accept()
        up = Pipe(self.world.scheduler, end, link)
        down = Pipe(self.scheduler, link, end)
        up.other, down.other = down, up
        self.pipe = down
        end.opened(down)
        link.opened(up)

    def kill(self) -> None:
        """It is gone, and says nothing any more; the system closes its socket."""
        self.is_dead = True
        assert self.pipe is not None and self.pipe.other is not None
        self.pipe.other.close()

    def connect(self, user: str, *, cursor: int = 0) -> Client:
        client = Client(self, user, cursor=cursor)
        self.world.clients.append((self, client))
        self.world.run(50)
        return client


class CountedSessions(MemorySessions):
    """Notes what it is asked to change."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []
        self.removed: list[int] = []
        self._is_ending = False

    def end_epoch(self, gateway: str) -> None:
        self.ended.append(gateway)
        self._is_ending = True
        super().end_epoch(gateway)
        self._is_ending = False

    def remove(self, user: int, session_id: int) -> bool:
        if not self._is_ending:
            self.removed.append(session_id)
        return super().remove(user, session_id)


class World:
    """Everything."""

    def __init__(self, processes: int = 2, **gateway: Any) -> None:
        self.settings = Settings(
            gateway=GatewaySettings(**{"lease_ms": 1_000, "presence_delay_ms": 10, **gateway}),
            rooms=RoomSettings(says_per_second=0),
            messaging=MessagingSettings(sends_per_second=0),
        )
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.clients: list[tuple[Process, Client]] = []
        self.processes: list[Process] = []
        self.is_frozen = False
        self.is_unreachable = False
        self.sessions = CountedSessions()
        self.log = MemoryLog(self.clock, self.scheduler)
        self.messaging = Messaging(
            self.log, MemoryStores(), self.sessions, self.clock, self.scheduler, self.settings,
            notifications=NoNotifications(self.scheduler), creates_users=True,
        )  # fmt: skip
        context = self.messaging.proxy.context
        self.hub = GatewayHub(
            self.messaging, context.directory, self.clock, self.scheduler, self.settings.gateway
        )  # fmt: skip
        LiveActions(
            self.hub, context, self.scheduler, tell=self.messaging.relay.tell,
            is_present=self.messaging.relay.is_present,
        )  # fmt: skip
        self.broker = self.hub.broker = Broker(
            MemoryRoutes(), self.clock, self.scheduler, self.settings.rooms, self.hub.push_frames,
            groups=self.messaging.stores.groups, user_name=context.directory.user_name, gateway_of=self.hub.gateway_of,
        )  # fmt: skip
        self.messaging.start(lambda: None)
        self.hub.start()
        self.scheduler.run_ready()
        for number in range(1, processes + 1):
            self.processes.append(Process(self, f"gateway-{number}"))
        self.run(50)

    def run(self, milliseconds: int) -> None:
        """Let time pass, for those who do not stand still."""
        for _ in range(milliseconds):
            self.clock.now_us += 1000
            for _ in range(3):  # there and back
                if not self.is_frozen:
                    self.scheduler.run_for(0)
                for process in self.processes:
                    if not (process.is_frozen or process.is_dead):
                        process.scheduler.run_for(0)
            for process, client in self.clients:
                if not (process.is_frozen or process.is_dead):
                    client.look()

    def send(self, sender: str, to: str, text: str) -> None:
        """Over no connection."""
        self.messaging.proxy.find_user(sender, lambda user: self._send(user, to, text))
        self.run(5)

    def _send(self, user: object, to: str, text: str) -> None:
        assert isinstance(user, int), user
        answers: list[object] = []
        self.messaging.act(Actor(user), "send", {"to": to, "text": text}, answers.append)

    def number(self, user: str) -> int:
        return self.messaging.proxy.context.directory.user(user)

    def sessions_of(self, user: str) -> list[str]:
        """The gateways where a user is, as the table of sessions has it."""
        return [session.gateway for session in self.sessions.of(self.number(user))]
