"""Devices of users: they connect, vanish, come back with their cursor, show what they are pushed, and ack it.

A device takes a push only if it holds the one that must come before it, and answers with the last useq it holds. What
it was shown it keeps by message_id, whatever becomes of its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.testing.messaging.wires import NODE
from pixiu.testing.queue.oracle import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.machines.delivery import Push
    from pixiu.testing.messaging.script import DevicePlan
    from pixiu.testing.messaging.world import World

__all__ = ["Device", "Taken"]

WELCOME_MS = 700
COMEBACKS_MAX = 2
"""How often a device that never acks comes back after it was kicked."""


class Taken(NamedTuple):
    """A push that a device accepted."""

    session_id: int
    useq: int
    message_id: int


class Device:
    """One device of one user."""

    def __init__(self, world: World, index: int, plan: DevicePlan) -> None:
        self._world = world
        self.index = index
        self.plan = plan
        self.name = plan.name
        self.user_name = world.script.names[plan.user]
        self.is_wanted = False
        """Does its owner want it to be online?"""
        self.connection = 0
        self.session_id = 0
        """0 until the node has welcomed it."""
        self.session_ids: list[int] = []
        self.last = 0
        """The newest useq it holds: its cursor."""
        self.began: dict[int, int] = {}
        """By session: the cursor that it was opened with."""
        self.taken: list[Taken] = []
        self.held: dict[int, MsgChat] = {}
        """What was shown, by message_id, in the order of the showing."""
        self._send_ids: dict[tuple[int, str], int] = {}
        self.shown_twice: list[tuple[str, int, int]] = []
        """Send ids that came with two messages. Right only if the first was forgotten, with its history."""
        self._abandoned: set[int] = set()
        self._deaf_until_ms = 0.0
        self._is_acking = False
        self._heard_ms = 0.0
        self._kicks = 0
        self.unanswered = 0

    @property
    def is_online(self) -> bool:
        """Does it think that it is connected?"""
        return self.session_id != 0

    @property
    def is_deaf(self) -> bool:
        """Does it ack nothing now?"""
        return self.plan.habit == "deaf" or self._world.now_ms < self._deaf_until_ms

    # What its owner does.

    def connect(self) -> None:
        """Go online, and stay there."""
        self.is_wanted = True
        if not self.connection:
            self._hello()

    def disconnect(self) -> None:
        """Log out in order."""
        self.is_wanted = False
        if self.connection:
            self._say_surely("bye")
            self._let_go()

    def vanish(self) -> None:
        """Go away without a word: the node learns it late, or never."""
        self.is_wanted = False
        self._let_go()

    def deafen(self, for_ms: int) -> None:
        """Ack nothing for a while."""
        self._deaf_until_ms = self._world.now_ms + for_ms
        self._world.outside.after(for_ms + 1, self._ack_soon)

    # Its connection.

    def _hello(self) -> None:
        world = self._world
        self._let_go()
        self.connection = world.next_connection()
        self._heard_ms = world.now_ms
        self.unanswered = 0
        self._say_surely("hello", self.user_name, self.plan.platform, self.name, self.last)
        self._world.outside.after(WELCOME_MS, self._check_welcome, self.connection)

    def _check_welcome(self, connection: int) -> None:
        if self.connection == connection and not self.session_id:
            self.reconnect()

    def reconnect(self) -> None:
        """The connection is dead as far as this device can tell: try another one."""
        if self.connection:
            self._abandoned.add(self.connection)
            self._let_go()
        if self.is_wanted:
            self._world.outside.after(self._world.rng.uniform(20, 400), self._come_back)

    def _come_back(self) -> None:
        if self.is_wanted and not self.connection:
            self._hello()

    def _let_go(self) -> None:
        self.connection = self.session_id = 0

    def _say(self, *message: object) -> None:
        self._world.wires.send(self.name, NODE, self.connection, message)

    def _say_surely(self, *message: object) -> None:
        self._world.wires.send_surely(self.name, NODE, self.connection, message)

    def ask(self, number: int, action: str, params: dict[str, object]) -> None:
        """Send a request."""
        self._say("ask", number, action, params)

    def _beat(self, connection: int) -> None:
        world = self._world
        if self.connection != connection:
            return
        beat_ms = world.weather.beat_ms
        if world.now_ms - self._heard_ms > 4 * beat_ms:
            self.reconnect()
            return
        self._say("beat")
        world.outside.after(beat_ms, self._beat, connection)

    # What the node says.

    def receive(self, connection: int, message: tuple[object, ...]) -> None:
        """One message of the node."""
        if connection != self.connection:
            if connection in self._abandoned:
                self._abandoned.discard(connection)
                self._world.wires.send_surely(self.name, NODE, connection, ("bye",))
            return
        self._heard_ms = self._world.now_ms
        match message:
            case ("welcome", int() as session_id, int() as number):
                self._welcomed(session_id, number)
            case ("push", list() as pushes):
                self._pushed(pushes)
            case ("answer", int() as number, answer):
                self.unanswered = 0
                self._world.clients.answered(number, answer)
            case ("close", str() as reason):
                self._closed(reason)
            case ("event", dict() as event):
                if event.get("push") == "resync":
                    self._world.clients.sync(self)
            case ("beat",):
                pass
            case _:
                raise AssertionError(message)

    def _welcomed(self, session_id: int, number: int) -> None:
        self.session_id = session_id
        self.session_ids.append(session_id)
        self.began[session_id] = self.last
        self._world.note(self.name, "is welcome", session_id, number, "holds", self.last)
        if self._world.weather.beat_ms:
            self._world.outside.after(self._world.weather.beat_ms, self._beat, self.connection)

    def _closed(self, reason: str) -> None:
        world = self._world
        world.note(self.name, "closed", reason)
        self._let_go()
        if reason == "new_session" and world.has_rival(self):
            self.is_wanted = False
        if reason == "no_ack" and self.plan.habit == "deaf":
            self._kicks += 1
            self.is_wanted = self.is_wanted and self._kicks <= COMEBACKS_MAX
        self.reconnect()

    # Messages.

    def _pushed(self, pushes: Sequence[Push]) -> None:
        for push in pushes:
            if not push.useq:  # an early copy says nothing about the cursor
                self._world.note(self.name, "takes early", push.message_id)
                continue
            if push.previous_useq > self.last or push.useq <= self.last:
                continue
            self.last = push.useq
            self.taken.append(Taken(self.session_id, push.useq, push.message_id))
            chat = MsgChat.FromString(push.body)
            if chat.msgId != push.message_id:
                raise Violation(f"{self.name} is pushed the body of {chat.msgId} as {push.message_id}")
            self.show(push.message_id, chat)
            self._world.note(self.name, "takes", push.useq, push.message_id)
        self._ack_soon()

    def show(self, message_id: int, chat: MsgChat) -> None:
        """Show a message, unless it was shown."""
        if message_id in self.held:
            return
        if chat.sendId:
            other = self._send_ids.setdefault((chat.fromId, chat.sendId), message_id)
            if other != message_id and chat.chatType:  # the bodies of one push share its send_id
                self.shown_twice.append((chat.sendId, other, message_id))
        self.held[message_id] = chat

    def _ack_soon(self) -> None:
        if self._is_acking or not self.session_id or self.is_deaf:
            return
        world = self._world
        longest = {
            "prompt": 5.0,
            "slow": 1.3 * world.weather.settings.inbox.ack_timeout_ms,
            "lazy": 120.0,
            "deaf": 5.0,
        }[self.plan.habit]
        self._is_acking = True
        world.outside.after(world.rng.uniform(0, longest), self._ack)

    def _ack(self) -> None:
        self._is_acking = False
        if self.session_id and not self.is_deaf:
            self._say("ack", self.last)
