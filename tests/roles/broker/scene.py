"""A broker with gateways around it in simulated time, and a network between them that may lose, repeat and delay."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from pixiu.backends.memory.groups import MemoryGroups
from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.config.rooms import RoomSettings
from pixiu.im.draft import Actor
from pixiu.machines.listeners import Listeners
from pixiu.machines.rooms import room_number
from pixiu.model.errors import PixiuError
from pixiu.roles.broker import Broker, RoomRow
from pixiu.roles.broker.verbs import act
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Answer
    from pixiu.machines.room_link import Frame

__all__ = ["Scene", "Session", "unlimited"]


def unlimited(**settings: int) -> RoomSettings:
    """Settings for tests that are not about rates."""
    return RoomSettings(**{"says_per_second": 0, **settings})


class Session:
    """One connection, and everything that was pushed to it."""

    def __init__(self, scene: Scene, user: int, gateway: str, session_id: int) -> None:
        self.scene = scene
        self.gateway = gateway
        self.actor = Actor(user, "web", "device", session_id=session_id)
        self.pushes: list[dict[str, object]] = []
        self.is_open = True

    @property
    def session_id(self) -> int:
        return self.actor.session_id

    def ask(self, action: str, **params: object) -> Answer:
        """Act, and let the gateway do its part."""
        answer = self.scene.ask(self.actor, action, **params)
        listeners, room = self.scene.gateways[self.gateway], room_number(str(answer["room"]))
        if action == "enter":
            listeners.enter(room, self.session_id)
        elif action == "leave":
            listeners.leave(room, self.session_id)
        return answer

    def close(self) -> None:
        self.is_open = False
        self.scene.gateways[self.gateway].session_gone(self.session_id)
        self.scene.broker.session_gone(self.session_id)

    def of(self, kind: str) -> list[dict[str, object]]:
        return [push for push in self.pushes if push["push"] == kind]

    @property
    def messages(self) -> list[dict[str, object]]:
        return [push["message"] for push in self.of("message")]  # type: ignore[misc]

    @property
    def texts(self) -> list[object]:
        return [message["text"] for message in self.messages]


class Scene:
    """Everything around one broker. ``loss`` is the chance that a frame or an ack is lost."""

    def __init__(self, settings: RoomSettings | None = None, *, gateways: int = 2, seed: int = 1) -> None:
        self.settings = settings or unlimited()
        self.rng = random.Random(seed)
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(seed), slow_us=0, pause_chance=0)
        self.routes = MemoryRoutes()
        self.groups = MemoryGroups()
        self.gateways = {f"gateway-{index}": Listeners(self.settings) for index in range(1, gateways + 1)}
        self.sessions: dict[int, Session] = {}
        self.rows: list[RoomRow] = []
        self.frames: list[tuple[str, Frame]] = []
        self.loss = 0.0
        self.delay_ms = 0
        self.broker = self.new_broker()

    def new_broker(self) -> Broker:
        """A broker that has just started: of an earlier one it knows what the routes know."""
        return Broker(
            self.routes,
            self.clock,
            self.scheduler,
            self.settings,
            self._push,
            groups=self.groups,
            user_name=lambda user: f"user{user}" if user else "0",
            gateway_of=lambda session_id: self.sessions[session_id].gateway,
            report=self.rows.append,
        )

    def connect(self, user: int, gateway: int = 1) -> Session:
        session = Session(self, user, f"gateway-{gateway}", len(self.sessions) + 1001)
        self.sessions[session.session_id] = session
        return session

    def in_room(self, room: str, count: int = 1, gateway: int = 1) -> list[Session]:
        """New sessions of new users, who are in a room."""
        sessions = [self.connect(len(self.sessions) + 1, gateway) for _ in range(count)]
        for session in sessions:
            session.ask("enter", room=room)
        return sessions

    def ask(self, actor: Actor, action: str, **params: object) -> Answer:
        answers: list[Answer | PixiuError] = []
        act(self.broker, actor, action, params, answers.append)
        (answer,) = answers
        if isinstance(answer, PixiuError):
            raise answer
        return answer

    def pass_time(self, milliseconds: float) -> None:
        self.scheduler.run_for(milliseconds)

    # The network.

    def _push(self, gateway: str, frames: list[Frame]) -> None:
        for frame in frames:
            self.frames.append((gateway, frame))
            self._travel(lambda frame=frame: self._arrive(gateway, frame))  # type: ignore[misc]

    def _travel(self, arrive: Callable[[], object]) -> None:
        copies = 2 if self.delay_ms and self.rng.random() < 0.1 else 1
        for _ in range(copies):
            if self.rng.random() >= self.loss:
                self.scheduler.after(self.rng.random() * self.delay_ms, arrive)

    def _arrive(self, gateway: str, frame: Frame) -> None:
        listeners = self.gateways.get(gateway)
        if listeners is None:
            return
        deliveries, ack = listeners.receive("broker", frame, self.clock.monotonic_us() // 1000)
        for delivery in deliveries:
            for body in delivery.bodies:
                push = json.loads(body)
                for session_id in delivery.sessions:
                    session = self.sessions[session_id]
                    assert session.is_open
                    assert session.gateway == gateway
                    session.pushes.append(push)
        if ack is not None:
            self._travel(lambda: self.broker.acked(gateway, ack))
