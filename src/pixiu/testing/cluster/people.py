"""People of a simulated cluster who write to each other, through whatever gateway is there.

A message is sent again under its send_id until it is answered; what comes is acked, and must come once and in order.
"""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any

from pixiu.links.leaders import Leaders
from pixiu.machines.session.framing import LengthPrefixed
from pixiu.ports.authentication import Identity
from pixiu.roles.gateway import CarrierLinks, ClusterLive, Gateway, RoomSessions
from pixiu.testing.cluster.carriers import ROOT, CarrierNode, settings_of
from pixiu.testing.cluster.streams import dial

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pixiu.links.leaders import Leader
    from pixiu.model.errors import PixiuError
    from pixiu.ports.transport import WatchedReceiver
    from pixiu.roles.gateway import NodeLink
    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster, GatewayNode

__all__ = ["Door", "Person"]

AGAIN_MS = 1_500
COME_BACK_MS = 400
READ_MS, READ_TIMES = 4_000, 3
"""How soon, and how often, people look whether what they have said is there."""
FRAME_BYTES_MAX = 2**20


class Door:
    """What is stored, as one gateway has it: links to all partitions."""

    def __init__(self, cluster: Cluster, node: GatewayNode) -> None:
        self.node = node
        self._cluster = cluster
        self._count = 0
        settings = settings_of().gateway
        self.leaders = Leaders(node.registry, node.scheduler, ROOT, "carrier")
        self.carriers = CarrierLinks(
            f"gateway-{node.boot:x}", self.leaders, self._dial, node.clock, node.scheduler, settings,
            alone=RoomSessions(node.boot, self._new_session_id),
        )  # fmt: skip
        self.gateway = Gateway(
            self.carriers, _authenticate, node.clock, node.scheduler, settings, names=self.carriers.names
        )
        ClusterLive(self.gateway, self.carriers)
        self.gateway.start()
        self.carriers.start(self.gateway)
        self.carriers.open()

    def _new_session_id(self) -> int:
        self._count += 1
        return 2**60 + self.node.boot + self._count

    def _dial(self, _partition: int, leader: Leader, link: NodeLink) -> Any:
        return dial(self._cluster, self.node, leader.address, leader.boot, link, _accept)


def _accept(target: Process) -> WatchedReceiver | None:
    hub = target.life.hub() if isinstance(target, CarrierNode) else None
    return None if hub is None else hub.accept()


def _authenticate(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
    done(Identity(token, "web", token))


class _Socket:
    """A client's connection, seen from the gateway."""

    def __init__(self, person: Person, number: int) -> None:
        self._person = person
        self._number = number
        self._frames = LengthPrefixed(FRAME_BYTES_MAX)
        self._is_open = True

    def write(self, data: bytes) -> None:
        """Frames for the client."""
        for frame in self._frames.feed(data):
            self._person.take(self._number, json.loads(frame))

    def close(self, code: int, reason: str) -> None:
        """The gateway hangs up."""
        self._is_open = False
        self._person.hung_up(self._number)

    def pause_reading(self) -> None:
        """As you like."""

    def resume_reading(self) -> None:
        """As you like."""

    def pending(self) -> int:
        """It takes everything."""
        return 0

    def outstanding(self) -> int:
        """It takes everything."""
        return 0

    def is_open(self) -> bool:
        """Until it is closed."""
        return self._is_open


class Person:
    """One user with one device."""

    def __init__(self, cluster: Cluster, rng: random.Random, user: str, doors: Callable[[], list[Door]]) -> None:
        self.user = user
        self.heard: list[tuple[str, str]] = []
        """(message_id, text), in the order shown."""
        self.accepted: dict[str, str] = {}
        """Text to message_id, as it was answered."""
        self.problem = ""
        self.when_missed: Callable[[Person, str, int], object] = lambda _person, _text, _accepted_us: None
        self.served_since: Callable[[str], float] = lambda _user: inf
        """Since when whoever would answer a user now has served."""
        """Told what was accepted at a time, and was not in the history later."""
        self.repeats = 0
        self._cluster = cluster
        self._rng = rng
        self._doors = doors
        self._door: Door | None = None
        self._connection: Any = None
        self._number = 0
        self._cursor = 0
        self._open: dict[str, str] = {}
        self._to: dict[str, str] = {}
        self._asked: dict[int, str] = {}
        self._sought: dict[int, tuple[str, float]] = {}
        self._accepted_us: dict[str, int] = {}
        self._asks = 0
        self._come()

    @property
    def open_count(self) -> int:
        """Messages without an answer."""
        return len(self._open)

    def send(self, to: str, text: str) -> None:
        """Say something, once, however often it takes."""
        self._open[text] = self._to[text] = to
        self._try(text)

    def sent_to(self, text: str) -> str:
        """For whom something was."""
        return self._to[text]

    def home(self) -> Door | None:
        """Where it is connected."""
        return self._door

    # Its connection.

    def _come(self) -> None:
        if self._door is not None:
            return
        doors = self._doors()
        if not doors:
            self._cluster.scheduler.after(COME_BACK_MS, self._come)
            return
        self._door = door = self._rng.choice(doors)
        self._number += 1
        number = self._number

        def open_it() -> None:
            if number == self._number:
                self._connection = door.gateway.open(
                    _Socket(self, number), codec="json", is_websocket=False, token=self.user, cursor=self._cursor,
                    address="10.0.0.1",
                )  # fmt: skip

        door.node.hear(open_it)
        self._watch(number)

    def _watch(self, number: int) -> None:
        """A gateway that is dead has closed its sockets."""
        if number != self._number or self._door is None:
            return
        if self._door.node.is_dead:
            self.hung_up(number)
        else:
            self._cluster.scheduler.after(200, lambda: self._watch(number))

    def hung_up(self, number: int) -> None:
        """The connection is over: come again, by some gateway."""
        if number == self._number:
            door, connection = self._door, self._connection
            self._door = self._connection = None
            self._number += 1
            if door is not None and connection is not None:
                door.node.hear(connection.lost)
            self._cluster.scheduler.after(COME_BACK_MS * (0.5 + self._rng.random()), self._come)

    def _say(self, frame: object) -> None:
        connection, door = self._connection, self._door
        if connection is not None and door is not None:
            payload = json.dumps(frame).encode()
            door.node.hear(lambda: connection.received(payload, is_text=True))

    # What it says and hears.

    def _try(self, text: str) -> None:
        if text not in self._open:
            return
        self._asks += 1
        self._asked[self._asks] = text
        params = {"to": self._open[text], "text": text, "send_id": text}
        self._say({"id": self._asks, "action": "send", "params": params})
        self._cluster.scheduler.after(AGAIN_MS * (1 + self._rng.random()), lambda: self._try(text))

    def take(self, number: int, frame: dict[str, Any]) -> None:
        """A frame of the gateway."""
        if number != self._number:
            return
        if frame.get("push") == "message":
            self._shown(int(frame.get("cursor", 0)), frame["message"])
        elif frame.get("id") in self._sought:
            self._found(*self._sought.pop(frame["id"]), frame)
        elif "id" in frame:
            self._answered(self._asked.get(frame["id"], ""), frame)

    def _shown(self, cursor: int, message: dict[str, Any]) -> None:
        if cursor <= self._cursor:
            self.repeats += 1  # it is known by its cursor, and is not shown again
        else:
            if message.get("text") and message.get("from") != self.user:  # its own come back to its later sessions
                self.heard.append((message["message_id"], message["text"]))
            self._cursor = cursor
        self._say({"action": "ack", "params": {"cursor": str(self._cursor)}})

    def _read_back(self, text: str, times: int) -> None:
        """Look for what was said, at whoever serves then, and again later."""
        if times > 1:
            self._cluster.scheduler.after(READ_MS * self._rng.random(), lambda: self._read_back(text, times - 1))
        self._asks += 1
        self._sought[self._asks] = text, self.served_since(self.user)
        self._say({"id": self._asks, "action": "history", "params": {"with": self._to[text], "limit": 100}})

    def _found(self, text: str, served_since: float, frame: dict[str, Any]) -> None:
        """Whoever served at the acceptance may have answered, though another one serves now: it owes nothing new."""
        result = frame.get("result")
        if isinstance(result, dict) and served_since > self._accepted_us[text]:
            ids = [each["message_id"] for each in result["messages"]]
            if self.accepted[text] not in ids:
                self.when_missed(self, text, self._accepted_us[text])

    def _answered(self, text: str, frame: dict[str, Any]) -> None:
        result = frame.get("result")
        if not text or not isinstance(result, dict):
            return
        self._cluster.scheduler.after(READ_MS * self._rng.random(), lambda: self._read_back(text, READ_TIMES))
        message_id = result["message_id"]
        self._accepted_us.setdefault(text, self._cluster.clock.now_us)
        if self.accepted.setdefault(text, message_id) != message_id:
            self.problem = f"I2: {text!r} of {self.user} is {self.accepted[text]} and {message_id}"
        self._open.pop(text, None)
