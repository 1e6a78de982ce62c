"""Clients of a simulated queue: they speak the wire's bytes to real connections, without sockets.

A publisher knows what it asked for, in order, and takes each answer to the request it belongs to. A subscriber keeps
what it was pushed. Neither judges; ``oracle`` does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pixiu.queue.server.connection import Connection
    from pixiu.queue.server.server import QueueServer
    from pixiu.testing.scheduler import SimulatedScheduler

__all__ = ["Item", "Publisher", "Request", "Subscriber", "Wire"]

HEADER_BYTES = 10
_HEAD = Struct("<H")
_U16 = Struct("<H")
_U32 = Struct("<I")
_I64 = Struct("<q")
_NUMBERS = Struct("<qqB")
_ITEM = Struct("<qqqqI")


class Wire:
    """The transport of one connection, as the event loop would give it."""

    def __init__(self, server: QueueServer, scheduler: SimulatedScheduler) -> None:
        self._scheduler = scheduler
        self.said = bytearray()
        """What the server wrote and nobody has read yet."""
        self.is_closed = False
        self.is_paused = False
        self._held: deque[bytes] = deque()
        self.bytes_said = 0
        self.connection: Connection = server.connection()
        self.connection.connection_made(self)

    def write(self, data: bytes) -> None:
        """The server's answer. A closed socket takes nothing."""
        if not self.is_closed:
            self.said += data
            self.bytes_said += len(data)

    def close(self) -> None:
        """The server hangs up; the loop tells the connection so in the next turn."""
        if not self.is_closed:
            self.is_closed = True
            self._scheduler.soon(lambda: self.connection.connection_lost(None))

    abort = close

    def hang_up(self) -> None:
        """The client goes away."""
        self.close()

    def pause_reading(self) -> None:
        """The server wants no more for now."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """It wants more again."""
        self.is_paused = False
        self._scheduler.soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0

    def send(self, data: bytes) -> None:
        """Bytes of the client, as soon as the server reads."""
        self._held.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._held and not self.is_paused and not self.is_closed:
            self.connection.data_received(self._held.popleft())


@dataclass(slots=True, eq=False)
class Request:
    """One thing asked of the queue, and what came of it."""

    kind: str
    topic: bytes = b""
    bodies: tuple[bytes, ...] = ()
    """The names of the messages in it: each is unique in the whole run."""
    key: bytes = b""
    asks: bool = False
    sender: int = 0
    outcome: str = "open"
    """open, ok, refused (nothing was stored) or unknown (the queue said that it does not know)."""
    text: str = ""
    event_id: int = 0
    message_id: int = 0
    is_repeat: bool = False
    sent_us: int = 0
    answered_us: int = 0
    is_lost: bool = False
    """Answered, and gone in a crash that may take it."""


UNKNOWN = ("the disk failed", "this node leads no more", "the store failed")


class Publisher:
    """One connection that asks for things. The queue answers in order."""

    def __init__(self, wire: Wire, rng: random.Random, now_us: Callable[[], int], number: int = 0) -> None:
        self.wire = wire
        self.number = number
        self._rng = rng
        self._now_us = now_us
        self.open: deque[Request] = deque()

    def send(self, asked: list[tuple[Request, bytes]]) -> None:
        """Send requests back to back, in any pieces."""
        for request, _ in asked:
            request.sent_us = self._now_us()
            self.open.append(request)
        data = b"".join(part for _, part in asked)
        while data:
            size = len(data) if self._rng.random() < 0.7 else self._rng.randint(1, len(data))
            self.wire.send(data[:size])
            data = data[size:]

    def take_answers(self) -> list[Request]:
        """Match what the server said to the requests it belongs to."""
        said = self.wire.said
        answered = []
        while len(said) >= HEADER_BYTES and self.open:
            request = self.open[0]
            size = self._take(request, said)
            if size == 0:
                break
            del said[:size]
            request.answered_us = self._now_us()
            answered.append(self.open.popleft())
        assert not said or self.open, f"nobody asked for {bytes(said[:64])!r}"
        return answered

    def _take(self, request: Request, said: bytearray) -> int:
        """Read one answer; 0 if it is not whole."""
        (code,) = _HEAD.unpack_from(said)
        if code == 400:
            size = HEADER_BYTES + _U16.unpack_from(said, 2)[0]
            if len(said) >= size:
                request.text = said[HEADER_BYTES:size].decode()
                request.outcome = "unknown" if request.text.startswith(UNKNOWN) else "refused"
            return size if len(said) >= size else 0
        assert code == (201 if request.kind == "alive" else 200), f"{request} was answered {bytes(said[:64])!r}"
        body = 0
        if request.kind in ("append", "json"):
            (body,) = _U32.unpack_from(said, 2)
            if len(said) < HEADER_BYTES + body:
                return 0
        request.outcome = "ok"
        if request.kind == "append":
            request.event_id, request.message_id, repeat = _NUMBERS.unpack_from(said, HEADER_BYTES)
            request.is_repeat = bool(repeat)
        elif request.kind == "json":
            request.text = said[HEADER_BYTES : HEADER_BYTES + body].decode()
        elif request.asks:
            (request.event_id,) = _I64.unpack_from(said, 2)
        else:
            assert not any(said[2:HEADER_BYTES]), f"{request} was answered {bytes(said[:10])!r}"
        return HEADER_BYTES + body


@dataclass(frozen=True, slots=True)
class Item:
    """One message as a subscriber got it."""

    event_id: int
    time_ms: int
    message: bytes


@dataclass(slots=True, eq=False)
class Subscriber:
    """One stream of pushes."""

    wire: Wire
    topic: bytes
    name: bytes
    remembers: bool = False
    items: list[Item] = field(default_factory=list)
    acked: int = 0
    has_ended: bool = False
    text: str = ""
    unacked: int = 0

    def take_pushes(self) -> None:
        """Read every whole push."""
        said = self.wire.said
        while len(said) >= HEADER_BYTES and not self.has_ended:
            (code,) = _HEAD.unpack_from(said)
            size = HEADER_BYTES
            if code == 400:
                size += _U16.unpack_from(said, 2)[0]
            elif code == 200:
                size += _U32.unpack_from(said, 4)[0]
            if len(said) < size:
                return
            body = bytes(said[HEADER_BYTES:size])
            if code == 200:
                self._take_items(body, said[2])
                self.unacked += 1
            elif code != 201:
                self.has_ended = True
                self.text = body.decode() if code == 400 else "ended"
            del said[:size]

    def _take_items(self, body: bytes, count: int) -> None:
        at = 0
        for _ in range(count):
            time_ms, event_id, _, _, content = _ITEM.unpack_from(body, at)
            end = at + _ITEM.size + 4 + content
            assert end <= len(body), "a push that ends within an item"
            self.items.append(Item(event_id, time_ms, body[at + 32 : end]))
            at = end
        assert at == len(body), f"a push of {count} items has {len(body) - at} bytes more"

    def ack(self, *, is_last: bool = False) -> None:
        """Ack the push that is open."""
        assert self.unacked == 1, f"{self.unacked} pushes are open"
        self.unacked = 0
        self.acked = len(self.items)
        if is_last:
            self.has_ended = True
        self.wire.send(b"\x01\x00" if is_last else b"\x00\x00")
