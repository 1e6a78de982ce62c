"""What takes seconds to ripen, begun when the session starts, so that no test has to wait for it alone.

A lifetime is ten seconds at least, a stall must outlast five, and an ack may take three by default.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    SECOND_NS,
    alive,
    create,
    delay,
    list_topics,
    message,
    now_ms,
    pub,
    replica,
    sub,
)
from tests.wire.fixtures import SMSS_FOLLOWERS, unique_name, wait_for_topic
from tests.wire.raw import Raw

LIFETIME_MS = 10_150
TOPICS = [b"ends", b"ends-with-delay", b"ends-and-returns"]


@dataclass
class Ending:
    """Topics about to expire, all at one moment, and who watches them.

    Two leaders with a follower each. On the first pair topics are collected as they expire, seen from both.
    The second leader is killed before, so its follower, which may not collect, is left with a topic that is
    expired and still there.
    """

    leader: QueueProcess
    follower: QueueProcess
    orphan: QueueProcess
    expire_at: int
    last_event_id: int
    """Of the leader, before any topic expired."""
    replica: Raw
    """The leader's replica stream behind that event."""
    waiting: list[Raw] = field(default_factory=list)
    withholding: list[Raw] = field(default_factory=list)
    on_follower: list[Raw] = field(default_factory=list)
    returned: threading.Event = field(default_factory=threading.Event)
    """Set when the last of TOPICS has been created again."""

    def wait(self) -> None:
        """Return when the moment is past."""
        wait_for(lambda: now_ms() > self.expire_at + 20, timeout_s=15.0, what="the topics to expire")
        assert self.returned.wait(5.0)

    def create_again(self) -> None:
        """At the moment, create the last topic again as soon as it is gone."""
        wait_for(lambda: now_ms() >= self.expire_at, timeout_s=15.0)
        with Raw(self.leader.host, self.leader.port) as raw:
            wait_for(lambda: TOPICS[-1].decode() not in raw.topics(), what="the collection")
            raw.create(TOPICS[-1])
        self.returned.set()


def set_up_ending(folder: Path, stack: ExitStack) -> Ending:
    """Start the servers, make the topics, open the subscriptions."""
    numbers = itertools.count()

    def start(*args: str) -> QueueProcess:
        return stack.enter_context(QueueProcess(folder / str(next(numbers)) / "data", args=args, env=SMSS_FOLLOWERS))

    def connect(queue: QueueProcess) -> Raw:
        return stack.enter_context(Raw(queue.host, queue.port))

    leader, short_lived = start(), start()
    follower, orphan = start(*leader.follow_args), start(*short_lived.follow_args)
    raw, doomed = connect(leader), connect(short_lived)
    expire_at = now_ms() + LIFETIME_MS
    for name in TOPICS:
        raw.create(name, expire_at)
    doomed.create(b"orphaned", expire_at)
    raw.create(b"stays", expire_at + 3_600_000)
    raw.pub(b"ends", b"message")
    for name in TOPICS[1:]:
        due_in = expire_at + 1500 - now_ms()
        raw.send(delay(name, due_in, message(b"late for " + name))).ok()
    last_event_id = len(TOPICS) + 1 + 1 + 2
    ending = Ending(leader, follower, orphan, expire_at, last_event_id, connect(leader).send(replica(last_event_id)))
    for number in range(3):
        ending.waiting.append(connect(leader).send(sub(b"ends", 0, b"w%d" % number)))
        ending.waiting[-1].push()
        ending.waiting[-1].send(ACK_GO_ON)
    ending.withholding.append(connect(leader).send(sub(b"ends", 0, b"h", ack_timeout_ns=3600 * SECOND_NS)))
    ending.withholding[-1].push()
    wait_for_topic(connect(follower), b"stays")
    ending.on_follower.append(connect(follower).send(sub(b"ends", 0, b"f")))
    ending.on_follower[-1].push()
    ending.on_follower[-1].send(ACK_GO_ON)

    doomed.create(b"orphaned-stays")
    wait_for_topic(connect(orphan), b"orphaned-stays")
    short_lived.kill()
    assert now_ms() < expire_at - 1000, "the machine is too slow to set this up"
    return ending


@pytest.fixture(scope="session")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ending]:
    """Topics about to expire; call `wait` to let them."""
    with ExitStack() as stack:
        ripening = set_up_ending(tmp_path_factory.mktemp("lifetimes"), stack)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        pool.submit(ripening.create_again)
        yield ripening


@dataclass
class Stalled:
    """Connections that stopped in the middle of a request, with the rest of it."""

    topic: bytes
    halves: dict[str, tuple[Raw, bytes]]
    since: float

    def wait(self) -> None:
        """Return six seconds after they stopped."""
        wait_for(lambda: time.monotonic() > self.since + 6.0, what="six seconds to pass")


@pytest.fixture(scope="session")
def stalled(server: QueueProcess) -> Iterator[Stalled]:
    """Half-sent requests of the past; call `wait`."""
    yield from half_sent(server)


@pytest.fixture
def paused(server: QueueProcess) -> Iterator[Stalled]:
    """Half-sent requests of this moment."""
    yield from half_sent(server)


def half_sent(server: QueueProcess) -> Iterator[Stalled]:
    """Requests cut in every part, each on a connection of its own."""
    with ExitStack() as stack:
        topic = unique_name()
        stack.enter_context(Raw(server.host, server.port)).create(topic)
        published = pub(topic, message(b"after a pause"), trace=b"trace")
        cuts = {
            "header, first byte": (alive(b"name", b"trace"), 1),
            "header, name length": (list_topics(name=b"name"), 2),
            "header": (published, 12),
            "header, last byte": (published, 19),
            "name": (published, 20 + 3),
            "trace id": (published, 20 + len(topic) + 2),
            "own part": (create(topic), 20 + len(topic) + 4),
            "payload": (published, len(published) - 5),
            "delay": (delay(topic, 999, message(b"m")), 20 + len(topic) + 3),
        }
        halves = {}
        for place, (asked, cut) in cuts.items():
            raw = stack.enter_context(Raw(server.host, server.port)).send(asked[:cut])
            halves[place] = (raw, asked[cut:])
        yield Stalled(topic, halves, time.monotonic())


UNTIMED: dict[str, dict[str, int | None]] = {
    "no field": {"timeout": None, "flag": 0},
    "zero": {"timeout": 0, "flag": 1},
    "negative": {"timeout": -5 * SECOND_NS, "flag": 1},
    "flag of 2, no field": {"timeout": None, "flag": 2},
}


@dataclass
class Unacked:
    """Subscribers that named no ack timeout and never ack: how long the server let each of them be."""

    topic: bytes
    seconds: dict[str, "Future[float]"]


def time_until_cut(raw: Raw) -> float:
    """Take a push, never ack it, and measure until the connection is closed without a frame."""
    raw.push()
    pushed = time.monotonic()
    raw.closed(10.0)
    return time.monotonic() - pushed


@pytest.fixture(scope="session")
def unacked(server: QueueProcess) -> Iterator[Unacked]:
    """Subscribers that wait to be cut."""
    with ExitStack() as stack:
        topic = unique_name()
        raw = stack.enter_context(Raw(server.host, server.port))
        raw.create(topic)
        raw.pub(topic, b"message")
        pool = stack.enter_context(ThreadPoolExecutor(len(UNTIMED)))
        seconds = {}
        for kind, options in UNTIMED.items():
            asked = sub(topic, 0, kind.encode(), ack_timeout_ns=options["timeout"], flag=options["flag"])
            subscriber = stack.enter_context(Raw(server.host, server.port)).send(asked)
            seconds[kind] = pool.submit(time_until_cut, subscriber)
        yield Unacked(topic, seconds)


@pytest.fixture(scope="session", autouse=True)
def _start_early(request: pytest.FixtureRequest) -> None:
    """Begin with the first test what a later one will want."""
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in ("ending", "stalled", "unacked"):
        if name in wanted:
            with suppress(Exception):  # It fails the tests that want it, when they ask.
                request.getfixturevalue(name)
