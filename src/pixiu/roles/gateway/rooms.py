"""The gateway's part in rooms: it lets its connections listen, and writes to each what a broker sends to all of them.

What is said in a room at a time is encoded once for all listeners, and is one piece of each one's next write.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from pixiu.machines.listeners import Listeners
from pixiu.machines.rooms import room_number
from pixiu.model.errors import PixiuError
from pixiu.model.partitions import is_slice
from pixiu.roles.gateway.outlet import Talk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.config.rooms import RoomSettings
    from pixiu.im.draft import Actor, Answer, Params
    from pixiu.machines.room_link import Ack, Frame
    from pixiu.ports.clock import Clock
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway
    from pixiu.roles.gateway.needs import Done

__all__ = ["RoomListening"]

SESSIONS_PER_TURN = 256
"""Sessions of big rooms that are written to in one turn of the loop, at most."""
TURN_US = 100
"""So long big rooms may hold the loop in one turn. What is said in a small room passes through some five turns of its
gateway: in, to the proxy, from the broker, to the connection, to the socket."""
SESSIONS_AT_ONCE = 8
"""Sessions that are written to between two looks at the clock."""
LARGE_MAX = 4_096
"""Deliveries of big rooms that wait; beyond it all of them are written at once."""


class RoomListening:
    """``enter``, ``leave`` and ``say`` of one gateway, and the way back."""

    def __init__(
        self,
        gateway: Gateway,
        settings: RoomSettings,
        clock: Clock,
        *,
        act: Callable[[Actor, str, Params, Done], object],
        session_gone: Callable[[int], object],
        soon: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        """``act`` does these actions at the broker; ``session_gone`` tells it of a connection that ended.

        ``soon``: what is for many is written in parts, with a turn of the loop between them; None: all at once.
        """
        self.listeners = Listeners(settings)
        self._clock = clock
        self._act = act
        self._session_gone = session_gone
        self._connections: dict[int, Connection] = {}
        self._names: dict[int, str] = {}
        for action in ("enter", "leave", "say"):
            gateway.actions[action] = partial(self._perform, action)
        gateway.when_left.append(self._left)
        gateway.when_rejoined.append(self._rejoined)
        self._large: deque[tuple[Talk, tuple[int, ...], int]] = deque()
        self._is_near = False
        self._soon = soon
        self._write_now = gateway.tick.write_now

    def receive(self, source: str, frame: Frame) -> Ack | None:
        """What the broker called ``source`` sends. Returns what to answer it, if it wants an answer."""
        deliveries, ack = self.listeners.receive(source, frame, self._clock.monotonic_us() // 1000)
        for delivery in deliveries:
            room = self._names.get(delivery.room, str(delivery.room))
            talk = Talk(room, delivery.bodies, is_reliable=delivery.is_reliable)
            if self._soon is None or not (is_slice(delivery.room) or self.listeners.is_big(delivery.room)):
                self._write(talk, delivery.sessions)
            else:
                self._write_later(talk, delivery.sessions)
        return ack

    def join(self, room: int, piece: int, name: str, session_id: int, overlaps: bool) -> None:
        """A session of a big room listens in its slice, too."""
        self._names[piece] = name
        self.listeners.join(room, piece, session_id, overlaps=overlaps)

    def _write(self, talk: Talk, sessions: Sequence[int]) -> None:
        for session_id in sessions:
            connection = self._connections.get(session_id)
            if connection is not None and not connection.is_closed:
                connection.outlet.talk(talk)

    def _write_later(self, talk: Talk, sessions: tuple[int, ...]) -> None:
        """Of big rooms some in each turn: what is said in small ones does not wait for all of them (X24)."""
        self._large.append((talk, sessions, 0))
        if not self._is_near and self._soon is not None:
            self._is_near = True
            self._soon(self._write_some)

    def _write_some(self) -> None:
        """Sockets are written within the turn, since that takes most of its time."""
        if len(self._large) > LARGE_MAX:
            self._write_large(sum(len(each[1]) for each in self._large))
        until_us, left = self._clock.monotonic_us() + TURN_US, SESSIONS_PER_TURN
        while self._large and left > 0:
            self._write_large(SESSIONS_AT_ONCE)
            self._write_now()
            left = left - SESSIONS_AT_ONCE if self._clock.monotonic_us() < until_us else 0
        self._is_near = bool(self._large)
        if self._is_near and self._soon is not None:
            self._soon(self._write_some)

    def _write_large(self, left: int) -> None:
        """To so many sessions of those that wait."""
        while self._large and left > 0:
            talk, sessions, begin = self._large.popleft()
            some = sessions[begin : begin + left]
            self._write(talk, some)
            left -= len(some)
            if begin + len(some) < len(sessions):
                self._large.appendleft((talk, sessions, begin + len(some)))

    def _perform(self, action: str, connection: Connection, params: Params, done: Done) -> None:
        self._act(connection.actor, action, params, partial(self._performed, action, connection, done))

    def _performed(self, action: str, connection: Connection, done: Done, answer: Answer | PixiuError) -> None:
        if not isinstance(answer, PixiuError) and not connection.is_closed:
            name, session_id = str(answer["room"]), connection.actor.session_id
            if action == "enter":
                self._names[room_number(name)] = name
                self._connections[session_id] = connection
                self.listeners.enter(room_number(name), session_id)
            elif action == "leave":
                rooms = [room_number(name), self.listeners.piece(room_number(name), session_id)]
                self.listeners.leave(room_number(name), session_id)
                self._forget(rooms)
        done(answer)

    def _left(self, connection: Connection) -> None:
        session_id = connection.actor.session_id
        if self._connections.pop(session_id, None) is not None:
            self._forget(self.listeners.session_gone(session_id))
            self._session_gone(session_id)

    def _rejoined(self, connection: Connection, before: int) -> None:
        """It has another session: let that one enter the rooms of the one before, and say so where it may not."""
        if self._connections.pop(before, None) is None:
            return
        rooms = self.listeners.session_gone(before)
        self._session_gone(before)
        names = list(dict.fromkeys(self._names[room] for room in rooms if room in self._names))
        self._forget(rooms)
        for name in names:
            self._perform("enter", connection, {"room": name}, partial(self._reentered, connection, name))

    @staticmethod
    def _reentered(connection: Connection, room: str, answer: Answer | PixiuError) -> None:
        if isinstance(answer, PixiuError):
            gone = {"push": "presence", "room": room, "is_in": False, "reason": answer.code}
            connection.event(connection.actor.session_id, gone)

    def _forget(self, rooms: list[int]) -> None:
        for room in rooms:
            if not self.listeners.sessions(room):
                self._names.pop(room, None)
