"""A leader and a follower, as they run, on one simulated machine: what they say to each other, and when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, ReplicationSettings, Settings
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.follow import FollowReader, FramesSent
from pixiu.machines.queue_wire.messages import Message
from pixiu.queue.engine import Engine
from pixiu.queue.replication.copies import SHOW_MS
from pixiu.queue.replication.driver import Replication
from pixiu.queue.replication.follow_stream import TELL_MS
from pixiu.queue.replication.replica_stream import SEND_BYTES
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Publisher, Request, Wire
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.ports.transport import Links, Receiver


WAY_MS = 1
"""From one to the other."""


class Line(Wire):
    """The connection of a follower, at the leader's end."""

    def __init__(self, pair: Pair, receiver: Receiver) -> None:
        self._pair = pair
        self._receiver = receiver
        self._reader = FollowReader()
        self.sent: list[FramesSent] = []
        super().__init__(pair.leader.server, pair.scheduler)
        self.connection.is_node = True

    def write(self, data: bytes) -> None:
        """What the leader says, kept and passed on."""
        self.sent += [event for event in self._reader.receive(data) if isinstance(event, FramesSent)]
        self._pair.scheduler.after(WAY_MS, lambda: self._receiver.received(data))


class FollowersEnd:
    """What the follower writes to."""

    def __init__(self, pair: Pair, line: Line) -> None:
        self._pair = pair
        self._line = line

    def write(self, data: bytes) -> None:
        """What the follower says, with how far it is."""
        engine = self._pair.follower.engine
        self._pair.said.append((engine.journal.flushed_through, engine.commit_event_id))
        if self._pair.is_heard:
            self._pair.scheduler.after(WAY_MS, lambda: self._line.send(data))

    def close(self) -> None:
        """Hang up."""
        self._line.hang_up()


class ToLeader:
    """``Links`` with one place to go to."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> FollowersEnd:
        self._pair.line = line = Line(self._pair, receiver)
        end = FollowersEnd(self._pair, line)
        self._pair.scheduler.soon(lambda: receiver.opened(end))
        return end


class Replica:
    """One of the two."""

    def __init__(self, pair: Pair, name: str, links: Links, *, follow: str | None) -> None:
        rng = random.Random(name)
        settings = Settings(
            queue=QueueSettings(open_topics_max=8),
            journal=JournalSettings(free_bytes_min=0),
            replication=ReplicationSettings(acknowledge="in-sync", min_isr=2),
            log=LogSettings(sample=0),
        )
        disk = SimulatedDisk(rng, now_ms=pair.clock.now_ms)
        store = SimulatedKeyValue(StoreContent())
        self.engine = Engine(settings, disk, store, pair.clock, pair.scheduler)
        self.engine.recover(is_follower=follow is not None)
        self.server = QueueServer(self.engine, HANDLERS, connections_max=10)
        replication = Replication(self.engine, name=name, follow=follow, links=links, restart=lambda: None)
        self.engine.replication = replication
        self.engine.start()
        replication.start()


class Pair:
    """A leader that answers when its one follower has it on disk."""

    line: Line

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(3), slow_us=100, pause_chance=0)
        self.is_heard = True
        """Does the leader get what the follower says?"""
        self.said: list[tuple[int, int]] = []
        """For each thing that the follower said: what it had on disk and what it had shown."""
        self.leader = Replica(self, "leader:1", ToLeader(self), follow=None)
        self.follower = Replica(self, "follower:1", ToLeader(self), follow="leader:1")
        wires = [Wire(self.leader.server, self.scheduler) for _ in range(2)]
        self.publishers = [Publisher(each, random.Random(4), self.clock.monotonic_us) for each in wires]
        self.scheduler.run_for(3000)
        for topic in (b"t", b"u"):
            request = Request("create", topic)
            self.ask(0, [(request, wire.encode_create_topic(topic))], run_ms=10)
            assert request.outcome == "ok"
        self.said.clear()
        self.line.sent.clear()

    def ask(self, publisher: int, requests: list[tuple[Request, bytes]], *, run_ms: float) -> None:
        self.publishers[publisher].send(requests)
        self.scheduler.run_for(run_ms)
        for each in self.publishers:
            each.take_answers()

    def talk(self, count: int) -> None:
        """Two publishers in turn: there is always something under way."""
        asked = [publish(b"m%d" % number) for number in range(count)]
        for number, each in enumerate(asked):
            self.ask(number % 2, [each], run_ms=WAY_MS)
        self.scheduler.run_for(WAY_MS)
        self.ask(0, [], run_ms=0)
        assert {request.outcome for request, _ in asked} == {"ok"}


def publish(name: bytes, topic: bytes = b"t", body: bytes = b"") -> tuple[Request, bytes]:
    return Request("publish", topic, (name,)), wire.encode_pub(topic, Message(name + b"|" + body).encode())


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.scheduler.close()


def test_a_follower_says_what_is_on_disk_before_it_shows_what_was_committed(pair: Pair) -> None:
    before = pair.follower.engine.commit_event_id
    pair.talk(20)
    told = [sent.commit_event_id for sent in pair.line.sent if sent.frames]
    assert told[-1] > told[0] >= before
    for (flushed, shown), commit in zip(pair.said, told, strict=False):
        assert shown < commit <= flushed or shown == commit == before, "the leader waits, and nobody else"


def test_while_records_come_a_follower_shows_what_is_committed_together(pair: Pair) -> None:
    pair.talk(40)
    assert len({shown for _, shown in pair.said}) <= 40 * WAY_MS // SHOW_MS + 1


def test_who_subscribes_at_a_follower_gets_it_as_it_comes(pair: Pair) -> None:
    reader = Wire(pair.follower.server, pair.scheduler)
    reader.send(wire.encode_sub(b"t", b"reader", after=0))
    pair.talk(40)
    assert len({shown for _, shown in pair.said}) >= 35
    assert b"m0|" in reader.said


def test_while_records_come_they_bring_what_is_committed(pair: Pair) -> None:
    pair.talk(TELL_MS - 5)
    last = pair.leader.engine.journal.last_event_id
    assert pair.leader.engine.commit_event_id == last
    assert [sent.commit_event_id for sent in pair.line.sent if not sent.frames] == [last], "once, when all is committed"
    pair.scheduler.run_for(WAY_MS)
    assert pair.follower.engine.commit_event_id == last


class Eager(Wire):
    """A publisher that has its next request there when the loop looks at the sockets after the answer."""

    def __init__(self, pair: Pair, names: list[bytes]) -> None:
        self._pair = pair
        self._requests = [publish(name)[1] for name in names]
        super().__init__(pair.leader.server, pair.scheduler)
        self.connection.is_node = True

    def write(self, data: bytes) -> None:
        """An answer."""
        super().write(data)
        soon = self._pair.scheduler.soon
        soon(lambda: soon(self.ask))

    def ask(self) -> None:
        """The next request, if there is one."""
        if self._requests:
            self.send(self._requests.pop(0))


def test_what_an_answer_brings_tells_what_was_committed(pair: Pair) -> None:
    Eager(pair, [b"m%d" % number for number in range(10)]).ask()
    pair.scheduler.run_for(20 * WAY_MS + 1)
    assert len([event for event in pair.line.sent if event.frames]) == 10
    assert not [event for event in pair.line.sent[:-1] if not event.frames], "told alone before all was said"


def test_a_commit_is_told_before_long_even_if_what_follows_is_not_committed(pair: Pair) -> None:
    first, second = publish(b"first"), publish(b"second")
    pair.ask(0, [first], run_ms=WAY_MS)
    pair.ask(1, [second], run_ms=WAY_MS / 2)
    pair.is_heard = False
    pair.ask(0, [], run_ms=2 * WAY_MS)
    assert (first[0].outcome, second[0].outcome) == ("ok", "open")
    engine = pair.follower.engine
    assert engine.journal.flushed_through == engine.commit_event_id + 2, "nobody has told it"
    pair.ask(0, [], run_ms=TELL_MS)
    assert engine.journal.flushed_through == engine.commit_event_id + 1


def test_what_is_too_long_for_one_piece_comes_without_waiting(pair: Pair) -> None:
    body = b"x" * (SEND_BYTES // 2)
    asked = [publish(b"l%d" % number, b"tu"[number % 2 :][:1], body) for number in range(6)]
    pair.ask(0, asked, run_ms=2 * WAY_MS + 1)
    assert {request.outcome for request, _ in asked} == {"ok"}
    assert len([sent for sent in pair.line.sent if sent.frames]) > 2, "in pieces"
