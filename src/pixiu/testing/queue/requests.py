"""What the clients of a simulated queue ask for. Every message has a name that no other has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message
from pixiu.testing.queue.clients import Request

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["RequestMaker"]

BODY_SIZES = (24, 24, 24, 60, 300, 1200, 5000)


class RequestMaker:
    """Draws requests; ``asked`` is what was asked before, to cancel or repeat some of it."""

    def __init__(self, rng: random.Random, names: list[bytes], now_ms: Callable[[], int], asked: list[Request]) -> None:
        self._rng = rng
        self._names = names
        self._now_ms = now_ms
        self._asked = asked
        self._bodies = 0
        self._keys: list[bytes] = []

    def some(self) -> list[tuple[Request, bytes]]:
        """One thing to ask for, or a burst of the same."""
        choice = self._rng.random()
        if choice < 0.4:
            return [self.publish()]
        if choice < 0.6:
            return self.burst()
        if choice < 0.75:
            return [self.append()]
        if choice < 0.83:
            return [self.delay()]
        return [self.manage()]

    def first(self) -> list[tuple[Request, bytes]]:
        """Most topics are made before anything else."""
        names = [name for name in self._names if self._rng.random() < 0.8]
        return [
            (Request("create", name, asks=True), wire.encode_create_topic(name, want_event_id=True)) for name in names
        ]

    def body(self) -> tuple[bytes, bytes]:
        """A message that is like no other: its name, and its bytes."""
        rng = self._rng
        self._bodies += 1
        name = b"m%d" % self._bodies
        data = (name + b"|").ljust(rng.choice(BODY_SIZES), b"x")
        headers = ((b"h", b"v" * rng.randint(0, 9)),) if rng.random() < 0.1 else ()
        return name, Message(data, headers).encode()

    def publish(self) -> tuple[Request, bytes]:
        """One or more messages to one topic."""
        rng = self._rng
        made = [self.body() for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 6))]
        request = Request("publish", rng.choice(self._names), tuple(name for name, _ in made), asks=rng.random() < 0.4)
        payload = b"".join(message for _, message in made)
        return request, wire.encode_pub(request.topic, payload, want_event_id=request.asks)

    def burst(self) -> list[tuple[Request, bytes]]:
        """Publishes of one size to one topic: the way that takes several at once."""
        topic = self._rng.choice(self._names)
        made = []
        for _ in range(self._rng.randint(2, 12)):
            self._bodies += 1
            name = b"m%d" % self._bodies
            data = wire.encode_pub(topic, Message((name + b"|").ljust(40, b"y")).encode())
            made.append((Request("publish", topic, (name,)), data))
        return made

    def append(self) -> tuple[Request, bytes]:
        """A numbered message, sometimes with a key that came before."""
        rng = self._rng
        name, message = self.body()
        if self._keys and rng.random() < 0.5:
            key = rng.choice(self._keys[-6:])
        else:
            key = b"key-%d" % self._bodies if rng.random() < 0.9 else b""
        if key and key not in self._keys:
            self._keys.append(key)
        request = Request("append", rng.choice(self._names), (name,), key=key)
        return request, wire.encode_append(request.topic, message, key=key)

    def delay(self) -> tuple[Request, bytes]:
        """A message for later."""
        rng = self._rng
        made = [self.body() for _ in range(rng.choice([1, 1, 3]))]
        request = Request("delay", rng.choice(self._names), tuple(name for name, _ in made), asks=True)
        payload = b"".join(message for _, message in made)
        delay_ms = rng.choice([1000, 1001, 1500, 9000])
        return request, wire.encode_delay(request.topic, payload, delay_ms=delay_ms, want_event_id=True)

    def manage(self) -> tuple[Request, bytes]:
        """Create, delete, cancel, flush, ask."""
        rng = self._rng
        topic = rng.choice(self._names)
        choice = rng.random()
        if choice < 0.55:
            expires_at = self._now_ms() + 10_000 + rng.randint(0, 5000) if rng.random() < 0.15 else 0
            data = wire.encode_create_topic(topic, expires_at_ms=expires_at, want_event_id=True)
            return Request("create", topic, asks=True), data
        if choice < 0.7:
            return Request("delete", topic, asks=True), wire.encode_delete_topic(topic, want_event_id=True)
        if choice < 0.85:
            waiting = [each.event_id for each in self._asked[-60:] if each.kind == "delay" and each.outcome == "ok"]
            if waiting:
                event_id = rng.choice(waiting)
                return Request("cancel", event_id=event_id), wire.encode_cancel_delay(event_id)
        if choice < 0.95:
            return Request("flush"), wire.encode_flush()
        return Request("alive"), wire.encode_alive()
