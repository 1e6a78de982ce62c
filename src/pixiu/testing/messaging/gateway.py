"""The node's end of its connections: what a real gateway does with frames, done with tuples.

It holds the relay to what a sink is promised: nothing before a session is there, nothing after it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.draft import Actor
from pixiu.model.errors import PixiuError, Unauthenticated
from pixiu.model.message import is_urgent
from pixiu.testing.messaging.wires import HTTP, NODE
from pixiu.testing.queue.oracle import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.machines.delivery import Push
    from pixiu.model.session import Session
    from pixiu.node.messaging import Messaging
    from pixiu.testing.messaging.node import Node

__all__ = ["Connection", "Gateway"]

IDLE_LOOK_MS = 500
SAYING = ("send", "gsend", "push", "system")


class Connection:
    """One client's connection; the sink of its session."""

    def __init__(self, gateway: Gateway, number: int, client: str) -> None:
        self._gateway = gateway
        self.number = number
        self.client = client
        self.session: Session | None = None
        self.is_gone = False
        self.heard_us = gateway.now_us()
        self._pushed_ids: set[int] = set()
        self.pushed = 0
        """Pushes that went out here: a connection whose node goes on pushing for ever never rests."""

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Messages for the client."""
        self._check(session_id, "pushes")
        for push in pushes:
            if not push.useq:
                self._check_early(push)
            self._pushed_ids.add(push.message_id)
        self.pushed += len(pushes)
        self._gateway.say(self, "push", list(pushes))

    def _check_early(self, push: Push) -> None:
        """A session gets at most one early copy of a message, only if it is urgent, and never after the message."""
        if push.message_id in self._pushed_ids or not is_urgent(push.body):
            raise Violation(f"{self.client}: an early copy of {push.message_id} that is late, repeated or not urgent")

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Something that is not stored."""
        self._check(session_id, "an event")
        self._gateway.say(self, "event", dict(event))

    def close(self, session_id: int, reason: str) -> None:
        """The session is over."""
        self._check(session_id, "an end")
        self._gateway.end(self, reason)

    def _check(self, session_id: int, what: str) -> None:
        if self.session is not None and self.session.session_id != session_id:
            raise Violation(f"{self.client}: {what} for session {session_id}, where {self.session} is")
        if self.is_gone:
            raise Violation(f"{self.client}: {what} for session {session_id}, which is over")


class Gateway:
    """Connections of one life of a node."""

    def __init__(self, node: Node, messaging: Messaging) -> None:
        self._node = node
        self._messaging = messaging
        self.connections: dict[int, Connection] = {}
        self._unnamed: set[int] = set()
        self.has_started = False
        idle_ms = node.world.weather.idle_ms
        if idle_ms:
            node.scheduler.after(IDLE_LOOK_MS, self._look_for_idle)

    def now_us(self) -> int:
        """The steady clock."""
        return self._node.clock.monotonic_us()

    def receive(self, client: str, number: int, message: tuple[object, ...]) -> None:
        """One message of a client."""
        if self._is_copy(message):
            return
        match message:
            case ("hello", str() as user, str() as platform, str() as device, int() as cursor):
                self._hello(client, number, user, platform, device, cursor)
            case ("http", int() as request, str() as user, str() as action, dict() as params):
                self._http(number, request, user, action, params)
            case _:
                self._said(client, number, message)

    def _said(self, client: str, number: int, message: tuple[object, ...]) -> None:
        """Something on a connection that should be there."""
        connection = self.connections.get(number)
        if connection is None:
            if message[0] != "bye":
                self._node.world.wires.send_surely(NODE, client, number, ("close", "unknown"))
            return
        connection.heard_us = self.now_us()
        session = connection.session
        match message:
            case ("bye",):
                self._gone(connection)
            case _ if session is None:
                pass  # it says something before it was welcomed: too early
            case ("ack", int() as through):
                self._messaging.ack(session.session_id, through)
            case ("beat",):
                self._messaging.heartbeat(session.session_id)
                self.say(connection, "beat")
            case ("ask", int() as request, str() as action, dict() as params):
                actor = Actor(session.user, session.platform, session.device, session.session_id)
                self._messaging.act(actor, action, dict(params), self._answer(connection, request))
            case _:
                raise AssertionError(message)

    def _is_copy(self, message: tuple[object, ...]) -> bool:
        """A copy that the network made of a send that nothing can tell from the first: TCP would not make it."""
        if message[0] not in ("ask", "http"):
            return False
        request, action, params = message[1], message[-2], message[-1]
        assert isinstance(request, int) and isinstance(params, dict)
        if action not in SAYING or "send_id" in params:
            return False
        is_copy = request in self._unnamed
        self._unnamed.add(request)
        return is_copy

    def _hello(self, client: str, number: int, user: str, platform: str, device: str, cursor: int) -> None:
        connection = self.connections[number] = Connection(self, number, client)
        if not self.has_started:
            self.end(connection, "starting")
            return

        def done(session: Session | PixiuError) -> None:
            if isinstance(session, PixiuError):
                if not connection.is_gone:
                    self.end(connection, f"refused: {session.code}")
                return
            connection.session = session
            if connection.is_gone:  # it went away while its inbox was being opened
                self._messaging.disconnect(session.session_id)
                return
            self._node.world.logged_in(session, client)
            message = ("welcome", session.session_id, session.number)
            self._node.world.wires.send_surely(NODE, client, number, message)

        self._messaging.connect(user, platform, device, connection, done, cursor=cursor)

    def _http(self, number: int, request: int, user: str, action: str, params: dict[str, object]) -> None:
        def answer(result: object) -> None:
            self._node.world.wires.send(NODE, HTTP, number, ("answer", request, result))

        try:
            actor = self._actor(user)
        except PixiuError as error:
            answer(error)
            return
        self._messaging.act(actor, action, dict(params), answer)

    def _actor(self, user: str) -> Actor:
        if not user:
            return Actor(0, is_admin=True)
        number = self._node.stores.users.number_of(user)
        if number is None:
            raise Unauthenticated(f"there is no user {user!r}")
        return Actor(number)

    def _answer(self, connection: Connection, request: int) -> Callable[[object], object]:
        def answer(result: object) -> None:
            if not connection.is_gone:
                self.say(connection, "answer", request, result)

        return answer

    def say(self, connection: Connection, *message: object) -> None:
        """Send to a client, as the weather permits."""
        self._node.world.wires.send(NODE, connection.client, connection.number, message)

    def end(self, connection: Connection, reason: str) -> None:
        """Hang up, and say why."""
        connection.is_gone = True
        self.connections.pop(connection.number, None)
        self._node.world.wires.send_surely(NODE, connection.client, connection.number, ("close", reason))

    def _gone(self, connection: Connection) -> None:
        """The client hung up, or is given up."""
        if not connection.is_gone:
            connection.is_gone = True
            self.connections.pop(connection.number, None)
            if connection.session is not None:
                self._messaging.disconnect(connection.session.session_id)

    def _look_for_idle(self) -> None:
        limit_us = self.now_us() - self._node.world.weather.idle_ms * 1000
        for connection in [each for each in self.connections.values() if each.heard_us < limit_us]:
            self._node.world.note("idle", connection.client)
            self._gone(connection)
        self._node.scheduler.after(IDLE_LOOK_MS, self._look_for_idle)
