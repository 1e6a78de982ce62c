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


class Line(Wire):
    """The connection of a follower, seen from both ends. Writes how far the follower was with each thing it said."""

    def __init__(self, pair: Pair, receiver: Receiver) -> None:
        self._pair = pair
        self._receiver = receiver
        self._reader = FollowReader()
        self.frames: list[FramesSent] = []
        super().__init__(pair.leader.server, pair.scheduler)

    def write(self, data: bytes) -> None:
        """What the leader or the follower says: each has its own end."""
        self.frames += [event for event in self._reader.receive(data) if isinstance(event, FramesSent)]
        self._pair.scheduler.soon(lambda: self._receiver.received(data))


class FollowersEnd:
    """What the follower writes to."""

    def __init__(self, pair: Pair, line: Line) -> None:
        self._pair = pair
        self._line = line

    def write(self, data: bytes) -> None:
        journal, engine = self._pair.follower.engine.journal, self._pair.follower.engine
        self._pair.said.append((journal.flushed_through, engine.commit_event_id))
        self._pair.scheduler.soon(lambda: self._line.send(data))

    def close(self) -> None:
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
            replication=ReplicationSettings(min_isr=1 if follow else 2),
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
        self.said: list[tuple[int, int]] = []
        """For each thing that the follower said: what it had on disk and what it had shown."""
        self.leader = Replica(self, "leader:1", ToLeader(self), follow=None)
        self.follower = Replica(self, "follower:1", ToLeader(self), follow="leader:1")
        self.publisher = Publisher(Wire(self.leader.server, self.scheduler), random.Random(4), self.clock.monotonic_us)
        self.scheduler.run_for(3000)
        self.ask(Request("create", b"t"), wire.encode_create_topic(b"t"))
        self.scheduler.run_for(100)

    def ask(self, request: Request, data: bytes, *, run_ms: float = 2) -> Request:
        self.publisher.send([(request, data)])
        self.scheduler.run_for(run_ms)
        self.publisher.take_answers()
        return request

    def publish(self, body: bytes) -> Request:
        return self.ask(Request("publish", b"t", (body,)), wire.encode_pub(b"t", Message(body + b"|").encode()))


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.scheduler.close()


def test_a_follower_says_what_is_on_disk_before_it_shows_what_was_committed(pair: Pair) -> None:
    first = pair.publish(b"first")
    pair.said.clear()
    second = pair.publish(b"second")
    assert (first.outcome, second.outcome) == ("ok", "ok")
    engine = pair.follower.engine
    flushed, shown = pair.said[0]
    assert flushed == engine.journal.last_event_id, "the leader waits for this"
    assert shown == flushed - 2, "and not for what nobody waits for"
    assert engine.commit_event_id == flushed - 1, "which comes in the same turn"


def test_while_records_come_they_bring_what_is_committed(pair: Pair) -> None:
    pair.line.frames.clear()
    for number in range(50):
        assert pair.publish(b"m%d" % number).outcome == "ok"
    assert len(pair.line.frames) == 50
    assert all(sent.frames for sent in pair.line.frames), "no word about commits alone"
    engine = pair.follower.engine
    assert engine.commit_event_id == engine.journal.last_event_id - 1


def test_when_no_more_records_come_a_follower_is_told_what_is_committed(pair: Pair) -> None:
    pair.publish(b"last")
    pair.line.frames.clear()
    pair.scheduler.run_for(2 * TELL_MS)
    assert [sent.frames for sent in pair.line.frames] == [b""]
    engine = pair.follower.engine
    assert engine.commit_event_id == engine.journal.last_event_id == pair.leader.engine.commit_event_id


def test_what_is_too_long_for_one_piece_comes_without_waiting(pair: Pair) -> None:
    pair.ask(Request("create", b"u"), wire.encode_create_topic(b"u"))
    large = Message(b"x" * (SEND_BYTES // 2)).encode()
    asked = [
        (Request("publish", b"tu"[n % 2 :][:1], (b"l%d" % n,)), wire.encode_pub(b"tu"[n % 2 :][:1], large))
        for n in range(6)
    ]
    pair.line.frames.clear()
    pair.publisher.send(asked)
    pair.scheduler.run_for(TELL_MS - 1)
    pair.publisher.take_answers()
    assert {request.outcome for request, _ in asked} == {"ok"}
    assert len(pair.line.frames) > 2, "in pieces"
