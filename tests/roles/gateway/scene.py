"""A gateway in simulated time: scripted messaging behind it, transports that note what is written in front."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from pixiu.config.gateway import GatewaySettings
from pixiu.machines.delivery import Push
from pixiu.machines.session import LengthPrefixed
from pixiu.model.errors import PixiuError, Unauthenticated
from pixiu.model.frames_pb2 import ServerFrame
from pixiu.model.pixiu_pb2 import P2P, MsgChat
from pixiu.model.session import LogoutCause, Session
from pixiu.ports.authentication import Identity
from pixiu.roles.gateway import Gateway
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.im.draft import Actor
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.needs import Done, SessionSink

__all__ = ["FakeMessaging", "FakeTransport", "Names", "Scene", "body", "pushes"]


class Names:
    """Users and groups that are called by their numbers."""

    def user_name(self, number: int) -> str:
        return f"u{number}"

    def group_name(self, number: int) -> str:
        return f"g{number}"


def body(message_id: int, text: str = "hi") -> bytes:
    """A stored body."""
    return MsgChat(fromId=1, toId=2, chatType=P2P, data=text.encode(), msgId=message_id).SerializeToString()


def pushes(*useqs: int, previous: int | None = None, text: str = "hi") -> list[Push]:
    """Pushes that follow on each other; the first names ``previous`` (else the one below it)."""
    found = []
    before = useqs[0] - 1 if previous is None else previous
    for useq in useqs:
        found.append(Push(useq, before, 100 + useq, body(100 + useq, text), False, True, 0))
        before = useq
    return found


class FakeTransport:
    """Notes everything. ``room``: how many bytes the system takes before the rest waits."""

    def __init__(self, *, room: int | None = None) -> None:
        self.writes: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.is_reading = True
        self.room = room
        self.waiting = 0
        self.on_its_way = 0

    def write(self, data: bytes) -> None:
        assert self.closed is None, "nothing is written to a closed connection"
        self.writes.append(data)
        if self.room is not None:
            taken = min(self.room, len(data))
            self.room -= taken
            self.waiting += len(data) - taken

    def drain(self) -> None:
        self.waiting, self.room = 0, None

    def close(self, code: int, reason: str) -> None:
        assert self.closed is None
        self.closed = (code, reason)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def pending(self) -> int:
        return self.waiting

    def outstanding(self) -> int:
        return self.waiting + self.on_its_way

    def is_open(self) -> bool:
        return self.closed is None

    def reads(self) -> bool:
        return self.is_reading

    # What a client would see.

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The JSON frames; over WebSocket, without pings."""
        found = []
        data = b"".join(self.writes)
        while data:
            size, start = data[1], 2
            if size == 126:
                size, start = int.from_bytes(data[2:4]), 4
            elif size == 127:
                size, start = int.from_bytes(data[2:10]), 10
            if data[0] == 0x81:
                found.append(json.loads(data[start : start + size]))
            data = data[start + size :]
        return found

    @property
    def tcp_frames(self) -> list[bytes]:
        return LengthPrefixed(10**7).feed(b"".join(self.writes))

    @property
    def proto_frames(self) -> list[ServerFrame]:
        return [ServerFrame.FromString(frame) for frame in self.tcp_frames]

    @property
    def pings(self) -> int:
        return sum(write.count(b"\x89\x00") for write in self.writes)

    @property
    def cursors(self) -> list[int]:
        return [int(frame["cursor"]) for frame in self.frames if frame.get("push") == "message"]

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("push") == name]


class FakeMessaging:
    """Answers as it is told to. ``act`` notes the request and leaves it open unless there is an answer for it."""

    def __init__(self) -> None:
        self.answers: dict[str, Mapping[str, object] | PixiuError] = {"contacts": {"contacts": [], "others": []}}
        self.asked: list[tuple[Actor, str, dict[str, object], Done]] = []
        self.logins: list[tuple[str, str, str, int, SessionSink, Callable[[Session | PixiuError], object]]] = []
        self.connects_at_once = True
        self.refusal: PixiuError | None = None
        self.acks: list[tuple[int, int]] = []
        self.beats: list[int] = []
        self.writings: list[int] = []
        self.gone: list[int] = []
        self.causes: list[LogoutCause] = []
        self.is_known = True

    def act(self, actor: Actor, action: str, params: dict[str, object], done: Done) -> None:
        self.asked.append((actor, action, params, done))
        answer = self.answers.get(action)
        if answer is not None:
            done(answer if isinstance(answer, PixiuError) else dict(answer))

    def connect(
        self,
        user: str,
        platform: str,
        device: str,
        sink: SessionSink,
        done: Callable[[Session | PixiuError], object],
        *,
        cursor: int = 0,
    ) -> None:
        self.logins.append((user, platform, device, cursor, sink, done))
        if self.connects_at_once:
            self.finish_login(len(self.logins) - 1)

    def finish_login(self, index: int = 0) -> None:
        user, platform, device, _, _, done = self.logins[index]
        if self.refusal is not None:
            done(self.refusal)
        else:
            done(Session(1000 + index, int(user.removeprefix("u")), platform, device, index + 1, "local", 1))

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        self.gone.append(session_id)
        self.causes.append(cause)

    def ack(self, session_id: int, cursor: int) -> bool:
        self.acks.append((session_id, cursor))
        return self.is_known

    def heartbeat(self, session_id: int) -> bool:
        self.beats.append(session_id)
        return self.is_known

    def writing(self, session_id: int) -> None:
        self.writings.append(session_id)


class Scene:
    """A gateway and its clients. A token is ``USER`` or ``USER:MILLISECONDS`` of life; others are bad."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.messaging = FakeMessaging()
        self.settings = GatewaySettings(**settings)
        self.late_tokens: list[tuple[str, Callable[[Identity | PixiuError], object]]] | None = None
        self.gateway = Gateway(
            self.messaging, self.authenticate, self.clock, self.scheduler, self.settings, names=Names()
        )
        self.gateway.start()

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        if self.late_tokens is not None:
            self.late_tokens.append((token, done))
        else:
            done(self.identity(token))

    def identity(self, token: str) -> Identity | PixiuError:
        user, _, life_ms = token.partition(":")
        if not user.removeprefix("u").isdigit():
            return Unauthenticated("the token is not good")
        return Identity(user, "web", "d1", expires_at=self.clock.now_ms() + int(life_ms) if life_ms else 0)

    def open(
        self,
        token: str = "u1",
        *,
        cursor: int = 0,
        codec: str = "json",
        is_websocket: bool = True,
        room: int | None = None,
        address: str = "10.0.0.1",
    ) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport(room=room)
        connection: Any = self.gateway.open(
            transport, codec=codec, is_websocket=is_websocket, token=token, cursor=cursor, address=address
        )
        self.run()
        return connection, transport

    def run(self, milliseconds: float = 1) -> None:
        self.scheduler.run_for(milliseconds)

    def say(self, connection: Connection, frame: object) -> None:
        """A client says something, in JSON."""
        connection.received(json.dumps(frame).encode(), is_text=True)
        self.run()

    def push(self, connection: Connection, found: list[Push]) -> None:
        """The relay pushes."""
        assert connection.session is not None
        connection.push(connection.session.session_id, found)
        self.run()
