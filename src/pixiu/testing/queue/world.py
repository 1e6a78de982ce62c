"""A whole queue in one seed: the real engine and connections on a simulated disk, store, clock and loop.

Clients publish, delay, append, create, delete and subscribe; lives end within disk operations, between them, by kill,
by power cut or in order; and after every start the oracle compares what the disk holds and what the queue serves with
what the clients were told. The same seed gives the same run: ``trace`` says so.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.commands import START_STORED
from pixiu.model.errors import CorruptData
from pixiu.queue.engine import Engine
from pixiu.queue.replication.driver import Replication
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage.journal import FOLDER
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Publisher, Request, Subscriber, Wire
from pixiu.testing.queue.oracle import Model, Violation, check_requests, check_subscriber, journal_frames
from pixiu.testing.queue.requests import RequestMaker
from pixiu.testing.queue.weather import draw_queue_weather
from pixiu.testing.scheduler import Power, PowerCut, SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import Link, Receiver
    from pixiu.queue.storage.record import Frame
    from pixiu.testing.queue.weather import QueueWeather

__all__ = ["QueueWorld", "Report", "run_queue_world"]

SETTLE_MS = 20_000


class NoLinks:
    """There is nobody else in this world."""

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> Link:
        """Nobody is there to connect to."""
        raise AssertionError(f"nobody follows {address} here")


@dataclass(slots=True)
class Report:
    """What a run came to."""

    seed: int
    trace: int = 0
    requests: int = 0
    answered: int = 0
    lost: int = 0
    events: int = 0
    pushed: int = 0
    crashes: dict[str, int] = field(default_factory=dict)


class QueueWorld:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.weather: QueueWeather = draw_queue_weather(self.rng)
        self.clock = SimulatedClock()
        self.power = Power()
        self.disk = SimulatedDisk(
            self.rng, block_bytes=self.weather.block_bytes, power=self.power, now_ms=self.clock.now_ms
        )
        self.content = StoreContent()
        self.report = Report(seed)
        self.requests: list[Request] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.retired: list[Subscriber] = []
        self.frames: list[Frame] = []
        self.may_lose = False
        self._is_checked = True
        self.crashed_us = 0
        self._senders = 0
        self._ends: dict[tuple[int, bytes], int] = {}
        self.names = [b"topic-%d" % number for number in range(self.weather.topics)]
        self.make = RequestMaker(self.rng, self.names, self.clock.now_ms, self.requests)
        self.scheduler = self._new_scheduler()
        self.store = SimulatedKeyValue(self.content)
        self.engine: Engine
        self.server: QueueServer

    def note(self, *words: object) -> None:
        """Add a step to the trace."""
        self.report.trace = zlib.crc32(f"{self.clock.now_us} {words}".encode(), self.report.trace)

    def _new_scheduler(self) -> SimulatedScheduler:
        scheduler = SimulatedScheduler(
            self.clock, self.rng, slow_us=self.weather.slow_us, pause_chance=self.weather.pause_chance
        )
        self.disk.disk_time = scheduler.disk_time
        return scheduler

    # One life of the process.

    def boot(self) -> None:
        """Start a process on what is there, as ``pixiu.node`` does."""
        settings = self.weather.settings
        self.scheduler = self._new_scheduler()
        self.store = store = SimulatedKeyValue(self.content, self.power, self.scheduler.disk_time)
        self.engine = engine = Engine(settings, self.disk, store, self.clock, self.scheduler, key="0" * 64)
        engine.recover()
        self.server = QueueServer(engine, HANDLERS, connections_max=1000)
        replication = Replication(engine, name="alone", follow=None, links=NoLinks(), restart=_never)
        engine.replication = replication
        engine.start()
        self.server.start()
        replication.start()
        self.publishers.clear()
        self.retired += self.subscribers
        self.subscribers.clear()

    def stop(self) -> None:
        """End in order, as ``pixiu.node`` does."""
        engine = self.engine
        assert engine.replication is not None
        engine.replication.stop()
        engine.background.log_positions()
        drained: list[bool] = []
        engine.writer.when_flushed(lambda: drained.append(True))
        self._run_until(lambda: bool(drained), "the writer to drain")
        self.server.close_all()
        self.scheduler.run_ready()
        engine.background.stop()
        self.scheduler.finish_work()
        engine.stop()
        for path in self.disk.files(FOLDER):
            if path.endswith(".log") and self.disk.content(path).endswith(b"\0"):
                raise Violation(f"{path} was closed with zeros at its end")

    def crash(self, kind: str) -> None:
        """The process is gone; with ``machine``, so is what was not flushed."""
        self.power.cut_after = None
        self.take_answers()
        self.scheduler.close()
        if self._is_checked:  # else a start was cut short: compare with what was before it
            self.frames = journal_frames(self.disk)
            self.crashed_us = self.clock.now_us
            self.may_lose = self._is_checked = False
        if kind == "machine" and self.weather.flush != "always":
            self.may_lose = True
        self.report.crashes[kind] = self.report.crashes.get(kind, 0) + 1
        self._calm()
        if kind == "machine":
            self.disk.crash()
            self.content.crash(self.rng)
        self.note("crash", kind)

    def _calm(self) -> None:
        self.disk.capacity = None
        self.store.fail_write = lambda: False
        self.disk.fail_write = self.disk.fail_flush = lambda path: False

    # What clients do.

    def act(self) -> None:
        """One client does one thing."""
        rng = self.rng
        if rng.random() < 0.12 and self.weather.subscribers:
            self._subscribe()
            return
        asked: list[tuple[Request, bytes]] = []
        for _ in range(rng.choice([1, 1, 1, 4])):
            asked += self.make.some()
        publisher = self._publisher()
        for request, _ in asked:
            request.sender = publisher.number
            self.note("ask", request.kind, request.topic, request.bodies)
        self.requests += [request for request, _ in asked]
        publisher.send(asked)

    def _publisher(self) -> Publisher:
        """One of the connections; a new one where there are too few, or one was closed."""
        live = [each for each in self.publishers if not each.wire.is_closed]
        if len(live) < self.weather.publishers:
            self._senders += 1
            publisher = Publisher(Wire(self.server, self.scheduler), self.rng, self.clock.monotonic_us, self._senders)
            self.publishers.append(publisher)
            return publisher
        return self.rng.choice(live)

    def _subscribe(self) -> None:
        rng = self.rng
        live = [each for each in self.subscribers if not each.has_ended and not each.wire.is_closed]
        if len(live) >= self.weather.subscribers:
            rng.choice(live).wire.hang_up()
            return
        topic = rng.choice(self.names)
        batch = rng.choice([1, 3, 255])
        remembers = rng.random() < 0.4
        name = b"memory" if remembers else b"s%d" % rng.randint(0, 3)
        subscriber = Subscriber(Wire(self.server, self.scheduler), topic, name, remembers=remembers)
        self.subscribers.append(subscriber)
        if remembers:
            data = wire.encode_subscribe(
                topic, name, start=START_STORED, batch=batch, ack_timeout_ms=600_000, remember=True, take_over=True
            )
        else:
            data = wire.encode_sub(topic, name, after=0, batch=batch, ack_timeout_ns=600 * 10**9)
        subscriber.wire.send(data)

    def take_answers(self) -> None:
        """Clients read what they were sent."""
        for publisher in self.publishers:
            for request in publisher.take_answers():
                self.note("answer", request.bodies, request.outcome, request.event_id, request.text)
        for subscriber in self.subscribers:
            subscriber.take_pushes()

    def _ack(self) -> None:
        for subscriber in self.subscribers:
            if subscriber.unacked and not subscriber.has_ended and not subscriber.wire.is_closed:
                if subscriber.remembers:
                    self._check_memory(subscriber)
                subscriber.ack(is_last=self.rng.random() < 0.03)

    def _check_memory(self, subscriber: Subscriber) -> None:
        """A remembered subscriber may get something twice; it never skips."""
        model = Model(journal_frames(self.disk))
        topic, start = model.places[subscriber.items[0].event_id]
        end = model.places[subscriber.items[-1].event_id][1]
        memory = topic.create_event_id, subscriber.name
        if start > self._ends.get(memory, -1) + 1:
            raise Violation(f"{subscriber.topic!r}: a remembered subscriber goes on with message {start}")
        self._ends[memory] = max(end, self._ends.get(memory, -1))

    def _run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until it is so; clients read and ack meanwhile."""
        for _ in range(SETTLE_MS):
            if condition():
                return
            self.scheduler.run_for(1)
            self.take_answers()
        raise Violation(f"waited {SETTLE_MS} ms for {what}")

    def settle(self) -> None:
        """Everyone who asked is answered."""

        def is_answered() -> bool:
            engine = self.engine
            is_shown = engine.commit_event_id == engine.journal.last_event_id or engine.writer.poisoned is not None
            return is_shown and all(not each.open or each.wire.is_closed for each in self.publishers)

        self.take_answers()
        self._run_until(is_answered, "answers")

    # Checks.

    def check_recovered(self) -> None:
        """After a start: is what must be there there, once, in order?"""
        frames = journal_frames(self.disk)
        if len(frames) > len(self.frames) or frames != self.frames[: len(frames)]:
            at = next((n for n, pair in enumerate(zip(frames, self.frames, strict=False)) if pair[0] != pair[1]), -1)
            raise Violation(f"the journal is not a first part of what it was: {len(frames)} records, differs at {at}")
        model = Model(frames)
        slack_us = self.weather.settings.journal.flush_interval_ms * 1000 + 40 * self.weather.slow_us + 2_000_000
        is_timely = self.weather.flush == "interval" and self.weather.trouble != "flush"
        safe_us = self.crashed_us - slack_us if is_timely else 0
        self.report.lost += check_requests(self.requests, model, may_lose=self.may_lose, safe_before_us=safe_us)
        for subscriber in self.retired:
            check_subscriber(subscriber, model, may_lose=self.may_lose)
            self.report.pushed += len(subscriber.items)
        self.retired.clear()
        self._is_checked = True
        for memory in [each for each in self._ends if each[0] > model.last_event_id]:
            del self._ends[memory]
        if self.may_lose:
            self._ends = {memory: end for memory, end in self._ends.items() if self._is_still_there(memory, end, model)}
        self.check_served(model, is_all=self.rng.random() < 0.5)

    def _is_still_there(self, memory: tuple[int, bytes], end: int, model: Model) -> bool:
        return any(topic.create_event_id == memory[0] and len(topic.log) > end for topic in model.topics.values())

    def check_served(self, model: Model, *, is_all: bool = True) -> None:
        """Everything that the journal holds is served, and nothing else."""
        listed = self._ask_json(wire.encode_list())
        names = [] if not listed else sorted(row["name"].encode() for row in json.loads(listed))
        if names != sorted(model.topics):
            raise Violation(f"topics {names} are listed, where the journal has {sorted(model.topics)}")
        delays = [row["event_id"] for row in json.loads(self._ask_json(wire.encode_delays()))]
        if delays != sorted(model.delays):
            raise Violation(f"delays {delays} are listed, where the journal has {sorted(model.delays)}")
        for name, topic in model.topics.items():
            if 0 < topic.expires_at <= self.clock.now_ms() or (not is_all and self.rng.random() < 0.5):
                continue
            self._check_log(name, 0, topic.log)
            if topic.log and self.rng.random() < 0.5:
                at = self.rng.randrange(len(topic.log))
                self._check_log(name, topic.log[at][0], topic.log[at + 1 :])
        self._check_index(model)

    def _ask_json(self, data: bytes) -> str:
        publisher = Publisher(Wire(self.server, self.scheduler), self.rng, self.clock.monotonic_us)
        request = Request("json")
        publisher.send([(request, data)])
        self.scheduler.run_ready()
        publisher.take_answers()
        publisher.wire.hang_up()
        if request.outcome != "ok":
            raise Violation(f"asked for a list, got {request}")
        return request.text

    def _check_log(self, name: bytes, after: int, expected: list[tuple[int, int, bytes]]) -> None:
        """A subscriber from here on gets exactly this."""
        subscriber = Subscriber(Wire(self.server, self.scheduler), name, b"check")
        data = wire.encode_sub(name, b"check", after=after, batch=255, ack_timeout_ns=600 * 10**9)
        subscriber.wire.send(data)
        self.scheduler.run_ready()
        subscriber.take_pushes()
        while subscriber.unacked:
            subscriber.ack()
            self.scheduler.run_ready()
            subscriber.take_pushes()
        subscriber.wire.hang_up()
        self.scheduler.run_ready()
        if subscriber.text:
            raise Violation(f"{name!r} after {after}: {subscriber.text}")
        got = [(item.event_id, item.time_ms, item.message) for item in subscriber.items]
        if got != expected:
            raise Violation(
                f"{name!r} after {after} serves events {[each[0] for each in got]}, "
                f"where the journal has {[each[0] for each in expected]}"
            )

    def _check_index(self, model: Model) -> None:
        """The sidecar finds every message."""
        for event_id in self.rng.sample(sorted(model.places), min(len(model.places), 20)):
            topic, at = model.places[event_id]
            entry = self.engine.journal.entry(event_id)
            data = self.engine.journal.segment_of(event_id).log.read(entry.position, entry.length)
            if data != topic.log[at][2] or entry.topic not in (topic.create_event_id, 0):
                raise Violation(f"the index has event {event_id} at {entry}")

    # The run.

    def _live(self) -> None:
        """Clients at work, until the script or the power ends."""
        rng = self.rng
        if not self.requests:
            first = self.make.first()
            self.requests += [request for request, _ in first]
            self._publisher().send(first)
        for _ in range(rng.randint(1, self.weather.actions)):
            self.act()
            if rng.random() < 0.6:
                self.scheduler.run_for(rng.random() * self.weather.quiet_ms)
            self.take_answers()
            if rng.random() < 0.7:
                self._ack()
            self._make_trouble()

    def _make_trouble(self) -> None:
        rng, disk = self.rng, self.disk
        trouble = self.weather.trouble
        if not trouble or rng.random() > 0.15:
            return
        if trouble == "full":
            disk.capacity = None if disk.capacity is not None else disk.used() + rng.randint(0, 3000)
        elif trouble == "clock":
            self.clock.stepped_ms += rng.choice([-3_600_000, -500, 500, 60_000])
        elif trouble == "write":
            chance = rng.choice([0.0, 0.3])
            disk.fail_write = lambda path: "journal" in path and rng.random() < chance
        elif trouble == "topic":
            chance = rng.choice([0.0, 0.3])
            disk.fail_write = lambda path: "topics" in path and rng.random() < chance
        elif trouble == "store":
            chance = rng.choice([0.0, 0.2])
            self.store.fail_write = lambda: rng.random() < chance
        elif trouble == "flush":
            chance = rng.choice([0.0, 0.1])
            disk.fail_flush = lambda path: "journal" in path and path.endswith(".log") and rng.random() < chance

    def _one_life(self) -> None:
        rng = self.rng
        try:
            if rng.random() < 0.1:
                self.power.cut_after = rng.randint(0, 40)
            self.boot()
            self.power.cut_after = None
            self.check_recovered()
            if rng.random() < 0.5:
                self.power.cut_after = rng.randint(0, self.weather.cut_operations)
            self._live()
            if rng.random() < self.weather.stop_chance and self.engine.writer.poisoned is None:
                self._calm()
                self.settle()
                self.stop()
        except PowerCut:
            self.note("power cut")
        except OSError as error:  # an end that could not be made durable says so
            if self.weather.trouble != "flush":
                raise
            self.note("stopped badly", error)
        self.crash("kill" if rng.random() < self.weather.kill_chance else "machine")

    def run(self) -> Report:
        """All lives, then a last one in which everything comes to rest."""
        try:
            for _ in range(self.weather.lives):
                self._one_life()
            self.boot()
            self.check_recovered()
            self.settle()
            self.scheduler.run_for(12_000)
            self.settle()
            frames = journal_frames(self.disk)
            model = Model(frames)
            now_ms = self.engine.background.steady.now_ms()
            late = [event_id for event_id, due_ms in model.delays.items() if due_ms < now_ms - 3000]
            if late:
                raise Violation(f"delays {late} did not come")
            self.check_served(model)
            self.report.events = model.last_event_id
        except CorruptData as error:
            raise Violation(f"sound data was called damaged: {error}") from error
        finally:
            self.power.cut_after = None
            self.scheduler.close()
        self.report.requests = len(self.requests)
        self.report.answered = sum(request.outcome == "ok" for request in self.requests)
        self.note("end", self.report.events, [frame.block for frame in frames])
        return self.report


def run_queue_world(seed: int) -> Report:
    """Run one seed; raises what it found."""
    return QueueWorld(seed).run()


def _never() -> None:
    raise AssertionError("nobody sends snapshots here")
