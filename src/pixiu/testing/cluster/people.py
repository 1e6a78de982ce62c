"""People of a simulated cluster who write to each other, through any gateway that is there.

A message is sent again under its send_id until it is answered. What is received is acked, and must come once and in
order. Some messages are scheduled, and must come once, too.
"""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any

from pixiu.machines.session.framing import LengthPrefixed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pixiu.testing.cluster.gateways import MessagingGateway
    from pixiu.testing.cluster.world import Cluster

__all__ = ["Person"]

AGAIN_MS = 1_500
COME_BACK_MS = 400
READ_MS, READ_TIMES = 4_000, 3
"""How soon, and how often, people look for what they have sent in the history."""
SCHEDULE_MS = 5_000
FRAME_BYTES_MAX = 2**20


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
        """The gateway closes the connection."""
        self._is_open = False
        self._person.closed(self._number, f"{code} {reason}")

    def pause_reading(self) -> None:
        """Ignored: clients here send little."""

    def resume_reading(self) -> None:
        """See ``pause_reading``."""

    def pending(self) -> int:
        """Clients here take everything at once."""
        return 0

    def outstanding(self) -> int:
        """It takes everything."""
        return 0

    def is_open(self) -> bool:
        """Whether the gateway has not closed it."""
        return self._is_open


class Person:
    """One user with one device."""

    def __init__(
        self, cluster: Cluster, rng: random.Random, user: str, gateways: Callable[[], list[MessagingGateway]]
    ) -> None:
        self.user = user
        self.received: list[tuple[str, str]] = []
        """(message_id, text), in the order shown."""
        self.accepted: dict[str, str] = {}
        """Text to message_id, as it was answered."""
        self.scheduled: dict[str, str] = {}
        """Text to schedule_id, as it was answered."""
        self.problem = ""
        self.closings: list[str] = []
        """Why gateways have closed its connections."""
        self.when_closed: Callable[[MessagingGateway, str], object] = lambda _gateway, _reason: None
        """Called when a gateway closes a connection that had a session."""
        self.when_missed: Callable[[Person, str, int], object] = lambda _person, _text, _accepted_us: None
        """Called for a message that was accepted at a time, and is not in the history later."""
        self.served_since: Callable[[], float] = lambda: inf
        """Since when the replica that serves now has served."""
        self._cluster = cluster
        self._rng = rng
        self._gateways = gateways
        self._at: MessagingGateway | None = None
        self._connection: Any = None
        self._number = 0
        self._cursor = 0
        self._is_away = self._has_session = False
        self._open: dict[str, str] = {}
        self._to: dict[str, str] = {}
        self._due: dict[str, int] = {}
        self._asked: dict[int, str] = {}
        self._sought: dict[int, tuple[str, float]] = {}
        self._accepted_us: dict[str, int] = {}
        self._asks = 0
        self._come()

    @property
    def open_count(self) -> int:
        """Requests without an answer."""
        return len(self._open)

    @property
    def is_away(self) -> bool:
        """Whether it is not connected by its own choice."""
        return self._is_away

    def send(self, to: str, text: str) -> None:
        """Send a message once, however often it has to be tried."""
        self._open[text] = self._to[text] = to
        self._try(text)

    def schedule(self, to: str, text: str, *, in_ms: int = 0) -> None:
        """Have a message sent in a while, or ``in_ms`` from now."""
        in_ms = in_ms or 500 + int(SCHEDULE_MS * self._rng.random())
        self._due[text] = self._cluster.clock.now_ms() + in_ms
        self.send(to, text)

    def sent_to(self, text: str) -> str:
        """The receiver of a message."""
        return self._to[text]

    def go_away(self, lasts_ms: float) -> None:
        """Log out, and come back later."""
        if not self._is_away:
            self._is_away = True
            self._disconnect()
            self._cluster.scheduler.after(lasts_ms, self._come_back)

    # Its connection.

    def _come_back(self) -> None:
        self._is_away = False
        self._come()

    def _come(self) -> None:
        if self._at is not None or self._is_away:
            return
        gateways = self._gateways()
        if not gateways:
            self._cluster.scheduler.after(COME_BACK_MS, self._come)
            return
        self._at = at = self._rng.choice(gateways)
        self._number += 1
        self._has_session = False
        number = self._number

        def open_it() -> None:
            if number == self._number:
                self._connection = at.gateway.open(
                    _Socket(self, number), codec="json", is_websocket=False, token=self.user, cursor=self._cursor,
                    address="10.0.0.1",
                )  # fmt: skip

        at.node.hear(open_it)
        self._watch(number)

    def _watch(self, number: int) -> None:
        """Notice that a gateway has died: its sockets are closed then."""
        if number != self._number or self._at is None:
            return
        if self._at.node.is_dead:
            self._disconnect()
        else:
            self._cluster.scheduler.after(200, lambda: self._watch(number))

    def closed(self, number: int, reason: str) -> None:
        """The gateway has closed the connection."""
        if number == self._number:
            self.closings.append(reason)
            if self._at is not None and self._has_session:
                self.when_closed(self._at, reason)
            self._disconnect()

    def _disconnect(self) -> None:
        """The connection is over: come again, through any gateway."""
        at, connection = self._at, self._connection
        self._at = self._connection = None
        self._number += 1
        if at is not None and connection is not None:
            at.node.hear(connection.lost)
        self._cluster.scheduler.after(COME_BACK_MS * (0.5 + self._rng.random()), self._come)

    def _say(self, frame: object) -> None:
        connection, at = self._connection, self._at
        if connection is not None and at is not None:
            payload = json.dumps(frame).encode()
            at.node.hear(lambda: connection.received(payload, is_text=True))

    # What it sends and receives.

    def _try(self, text: str) -> None:
        if text not in self._open:
            return
        self._asks += 1
        self._asked[self._asks] = text
        params: dict[str, object] = {"to": self._open[text], "text": text, "send_id": text}
        action = "send"
        if text in self._due:  # the wall clocks of replicas differ
            at = max(self._due[text], self._cluster.clock.now_ms() + SCHEDULE_MS // 2)
            action, params = "schedule", {**params, "at": str(at)}
        self._say({"id": self._asks, "action": action, "params": params})
        self._cluster.scheduler.after(AGAIN_MS * (1 + self._rng.random()), lambda: self._try(text))

    def take(self, number: int, frame: dict[str, Any]) -> None:
        """A frame of the gateway."""
        if number != self._number:
            return
        self._has_session |= frame.get("push") == "contacts"  # the first push of a session
        if frame.get("push") == "message":
            self._shown(int(frame.get("cursor", 0)), frame["message"])
        elif frame.get("push") == "ping":
            self._say({"action": "pong"})
        elif frame.get("id") in self._sought:
            self._found(*self._sought.pop(frame["id"]), frame)
        elif "id" in frame:
            self._answered(self._asked.get(frame["id"], ""), frame)

    def _shown(self, cursor: int, message: dict[str, Any]) -> None:
        if cursor > self._cursor:  # a repeat is known by its cursor
            if message.get("text") and message.get("from") != self.user:  # its own come back to its later sessions
                self.received.append((message["message_id"], message["text"]))
            self._cursor = cursor
        self._say({"action": "ack", "params": {"cursor": str(self._cursor)}})

    def _read_back(self, text: str, times: int) -> None:
        """Look for a message in the history, and again later."""
        if times > 1:
            self._cluster.scheduler.after(READ_MS * self._rng.random(), lambda: self._read_back(text, times - 1))
        self._asks += 1
        self._sought[self._asks] = text, self.served_since()
        self._say({"id": self._asks, "action": "history", "params": {"with": self._to[text], "limit": 100}})

    def _found(self, text: str, served_since: float, frame: dict[str, Any]) -> None:
        """A replica that began to serve after the acceptance must have the message in its history."""
        result = frame.get("result")
        if isinstance(result, dict) and served_since > self._accepted_us[text]:
            ids = [each["message_id"] for each in result["messages"]]
            if self.accepted[text] not in ids:
                self.when_missed(self, text, self._accepted_us[text])

    def _answered(self, text: str, frame: dict[str, Any]) -> None:
        result = frame.get("result")
        if not text or not isinstance(result, dict):
            return
        self._open.pop(text, None)
        if text in self._due:
            self.scheduled.setdefault(text, result["schedule_id"])
            return
        message_id = result["message_id"]
        if text not in self.accepted:
            self._cluster.scheduler.after(READ_MS * self._rng.random(), lambda: self._read_back(text, READ_TIMES))
        self._accepted_us.setdefault(text, self._cluster.clock.now_us)
        if self.accepted.setdefault(text, message_id) != message_id:
            self.problem = f"I2: {text!r} of {self.user} is {self.accepted[text]} and {message_id}"
