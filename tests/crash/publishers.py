"""Clients for a server that is killed again and again: they note what they sent and what was answered.

Each publisher runs in its own thread on its own socket, connects anew whenever the server is back, and never sends a
body twice. What was sent and not answered may or may not be there; what was answered must be.
"""

import random
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from tests.wire.bytes_by_hand import ACK_GO_ON, Item, delay, message, pub, sub
from tests.wire.raw import Closed, Raw

CONNECT_PAUSE_S = 0.02


@dataclass
class Ledger:
    """What one publisher knows. Bodies are ``name-number``, and numbers only rise."""

    name: bytes
    topic: bytes
    sent: int = 0
    answered: set[int] = field(default_factory=set)
    event_ids: dict[int, int] = field(default_factory=dict)
    """Of answered messages whose event id was asked for."""
    numbers: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Of answered appends by key."""
    delayed: set[int] = field(default_factory=set)
    groups: list[list[int]] = field(default_factory=list)
    """Numbers that went out in one request of several messages."""

    def next(self, count: int = 1) -> list[int]:
        """Numbers that were never used."""
        first = self.sent
        self.sent += count
        return list(range(first, self.sent))

    def body(self, number: int) -> bytes:
        """The body of that number."""
        return b"%s-%08d" % (self.name, number)


class Publisher(threading.Thread, ABC):
    """Works until it is told to stop, over any number of deaths of the server."""

    def __init__(self, port: int, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True, name=ledger.name.decode())
        self._port = port
        self.ledger = ledger
        self._rng = random.Random(seed)
        self._is_over = threading.Event()
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Let it end, and say what went wrong."""
        self._is_over.set()
        self.join(30.0)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"{self.name} hangs"

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    with Raw("127.0.0.1", self._port, timeout_s=20.0) as raw:
                        raw.socket.settimeout(20.0)
                        while not self._is_over.is_set():
                            self.work(raw)
                except (Closed, ConnectionError, socket.gaierror):
                    time.sleep(CONNECT_PAUSE_S)
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.error = error

    @abstractmethod
    def work(self, raw: Raw) -> None:
        """One round of requests and answers."""


class OneByOne(Publisher):
    """Publishes, waits, publishes; asks for the event id now and then."""

    def work(self, raw: Raw) -> None:
        ledger = self.ledger
        (number,) = ledger.next()
        wants_id = self._rng.random() < 0.3
        raw.send(pub(ledger.topic, message(ledger.body(number)), wants_id=wants_id))
        if wants_id:
            ledger.event_ids[number] = raw.ok_with_id()
        else:
            raw.ok()
        ledger.answered.add(number)


class Pipelined(Publisher):
    """Keeps many requests of one size in flight."""

    def work(self, raw: Raw) -> None:
        ledger = self.ledger
        numbers = ledger.next(self._rng.randint(2, 40))
        raw.send(b"".join(pub(ledger.topic, message(ledger.body(number))) for number in numbers))
        for number in numbers:
            raw.ok()
            ledger.answered.add(number)
        self._is_over.wait(0.005)


class Many(Publisher):
    """Several messages in one request: all or none."""

    def work(self, raw: Raw) -> None:
        ledger = self.ledger
        numbers = ledger.next(self._rng.randint(2, 20))
        ledger.groups.append(numbers)
        raw.send(pub(ledger.topic, b"".join(message(ledger.body(n)) for n in numbers), wants_id=True))
        first = raw.ok_with_id()
        for offset, number in enumerate(numbers):
            ledger.event_ids[number] = first + offset
            ledger.answered.add(number)
        self._is_over.wait(0.005)


class Appender(Publisher):
    """Appends under keys, and repeats the last few: a repeat must give the same numbers."""

    def __init__(self, port: int, ledger: Ledger, seed: int) -> None:
        super().__init__(port, ledger, seed)
        self._recent: deque[int] = deque(maxlen=5)
        self._stored: deque[int] = deque([0], maxlen=20)

    def work(self, raw: Raw) -> None:
        ledger = self.ledger
        if self._recent and self._rng.random() < 0.3:
            number = self._rng.choice(self._recent)
        else:
            (number,) = ledger.next()
            self._recent.append(number)
        body = ledger.body(number)
        event_id, message_id, is_repeat = raw.append(ledger.topic, body, message(body), unless_after=self._stored[0])
        known = ledger.numbers.setdefault(body, (event_id, message_id))
        assert known == (event_id, message_id), f"{body!r} was {known}, and is {event_id, message_id}"
        assert is_repeat or number not in ledger.answered, f"{body!r} was stored twice"
        if number not in ledger.answered:
            self._stored.append(event_id)
        ledger.answered.add(number)
        ledger.event_ids[number] = event_id


class Delayer(Publisher):
    """Sends messages for a second later."""

    def work(self, raw: Raw) -> None:
        ledger = self.ledger
        (number,) = ledger.next()
        raw.send(delay(ledger.topic, 1000, message(ledger.body(number))))
        raw.ok()
        ledger.delayed.add(number)
        self._is_over.wait(0.01)


class Reader(Publisher):
    """A subscriber that runs through: after each death it goes on behind the last message that it saw."""

    def __init__(self, port: int, topic: bytes, seed: int) -> None:
        super().__init__(port, Ledger(b"reader-of-" + topic, topic), seed)
        self.items: list[Item] = []

    def work(self, raw: Raw) -> None:
        after = self.items[-1].event_id if self.items else 0
        raw.send(sub(self.ledger.topic, after, self.ledger.name, batch=self._rng.choice([1, 50, 255])))
        while not self._is_over.is_set():
            try:
                raw.socket.settimeout(0.3)
                items = raw.push(0.3)
            except TimeoutError:
                continue
            self.items += items
            raw.send(ACK_GO_ON)
