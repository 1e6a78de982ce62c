"""The log of a simulated cluster, as its carriers see it over the network.

How replicas of the log agree is the world ``log``'s matter. Here it is one that keeps its word, is out of reach for
a while now and then, answers late or not at all, and removes its beginning.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.queue.client.errors import FateUnknown
from pixiu.testing.memory_log import MemoryLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pixiu.ports.log import Appended, LogRecord, Scheduled
    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster

__all__ = ["LOG", "LogClient", "LogOverNetwork", "SharedLog"]

LOG = "log"
"""The log's place on the network."""
AGAIN_MS = 300
PATIENCE_MS = 10_000
LOOK_MS = 500
ANSWER_LOSS = 0.02
SCAN_RECORDS = 32
"""Of a scan at once, small as these logs are."""


class SharedLog(MemoryLog):
    """The log itself: several may follow it, and its beginning may go."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.clock, cluster.scheduler, node_id=1000, commit_ms=1)
        self.first = 1
        """What comes before this event is gone."""
        self.is_out = False
        """Nobody leads."""
        self.followers: list[LogOverNetwork] = []
        self.noted: dict[tuple[str, str], int] = {}
        self._receive = self._tell

    def _tell(self) -> None:
        for follower in self.followers:
            follower.poke()


class LogOverNetwork:
    """What ``RemoteLog`` is to a carrier."""

    def __init__(self, cluster: Cluster, process: Process, log: SharedLog) -> None:
        self.problem = "not followed yet"
        self.when_gone: Callable[[], object] = lambda: None
        self._cluster = cluster
        self._process = process
        self._log = log
        self._reached = 0
        self._told = 0
        self._receive: Callable[[], object] = lambda: None
        self._is_closed = False
        self._is_due = False
        self._outstanding = 0
        self._slow_until_us = 0

    # Life.

    async def open(self) -> None:
        """Is it there? Raises ``Unavailable``."""
        await asyncio.sleep(0.01)
        if self._is_out():
            raise Unavailable("the log is out of reach")

    async def learn_scheduled(self) -> None:
        """It is known."""
        await self.open()

    async def drained(self, seconds: float) -> None:
        """Until everything is answered."""
        for _ in range(int(seconds * 20)):
            if not self._outstanding:
                return
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Follow no more."""
        self._is_closed = True
        if self in self._log.followers:
            self._log.followers.remove(self)

    # Writing.

    def append(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[Appended | PixiuError], object],
        *,
        key: bytes = b"",
        unless_after: int = 0,
    ) -> None:
        """With a key it is asked again until it is answered."""
        self._ask(
            lambda told: self._log.append(topic, payload, told, key=key, unless_after=unless_after),
            done, may_repeat=bool(key),
        )  # fmt: skip

    def publish(self, topic: str, payload: bytes, done: Callable[[Any], object] | None = None) -> None:
        """Once, or nobody knows."""
        self._ask(lambda told: self._log.publish(topic, payload, told), done or (lambda _result: None))

    def schedule(self, topic: str, payload: bytes, due: int, done: Callable[[Any], object] | None = None) -> None:
        """Once, or nobody knows."""
        self._ask(lambda told: self._log.schedule(topic, payload, due, told), done or (lambda _result: None))

    def unschedule(self, schedule_id: int, done: Callable[[Any], object]) -> None:
        """Once, or nobody knows."""
        self._ask(lambda told: self._log.unschedule(schedule_id, told), done)

    def _is_out(self) -> bool:
        cuts = self._cluster.weather.cuts
        mine = self._process.address
        return self._log.is_out or (mine, LOG) in cuts or (LOG, mine) in cuts

    def _ask(
        self,
        work: Callable[[Callable[[Any], object]], object],
        done: Callable[[Any], object],
        *,
        may_repeat: bool = False,
        waited_ms: float = 0,
    ) -> None:
        cluster, process = self._cluster, self._process
        scheduler = cluster.scheduler
        if not waited_ms:
            self._outstanding += 1

        def finish(result: Any) -> None:
            self._outstanding -= 1
            done(result)

        def again(reason: str) -> None:
            if process.is_dead:
                return
            if waited_ms < PATIENCE_MS and may_repeat:
                self._ask(work, done, may_repeat=True, waited_ms=waited_ms + AGAIN_MS)
            else:
                process.hear(lambda: finish(FateUnknown(reason)))

        def answered(result: Any) -> None:
            if cluster.rng.random() < ANSWER_LOSS:
                scheduler.after(AGAIN_MS, lambda: again("the connection broke"))
            else:
                scheduler.after(cluster.delay_ms(), lambda: process.hear(lambda: finish(result)))

        def arrive() -> None:
            if not self._is_out():
                work(answered)
            elif may_repeat:
                scheduler.after(AGAIN_MS, lambda: again("the log is out of reach"))
            else:
                scheduler.after(AGAIN_MS, lambda: process.hear(lambda: finish(Unavailable("the log is out of reach"))))

        if not process.is_dead:
            scheduler.after(cluster.delay_ms(), arrive)

    # Reading.

    def lag(self, lasts_ms: float) -> None:
        """For a while records come one by one, while requests are answered as ever."""
        self._slow_until_us = self._cluster.clock.now_us + int(lasts_ms * 1000)

    @property
    def committed(self) -> int:
        """What has come here."""
        return self._reached

    @property
    def leader_committed(self) -> int:
        """What was said last."""
        return max(self._told, self._reached)

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Hear of what comes."""
        self._receive = receive
        self._reached = after
        self._log.followers.append(self)
        self.poke()
        self._look()

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """What has come."""
        return [record for record in self._log.read(after, limit) if record.event_id <= self._reached]

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """What has come."""
        return [record for record in self._log.topic(topic, after, limit) if record.event_id <= self._reached]

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits."""
        return self._log.scheduled(topic)

    async def scan(self, through: int, after: int = 0) -> AsyncIterator[list[LogRecord]]:
        """All of it between two events, also what retention has taken from everyone else: audits need it."""
        records = [record for record in self._log.records if after < record.event_id <= through]
        for begin in range(0, len(records), SCAN_RECORDS):
            await self.open()
            yield records[begin : begin + SCAN_RECORDS]

    def _look(self) -> None:
        """A connection that broke is made again."""
        if not self._is_closed and not self._process.is_dead:
            self.poke(is_look=True)
            self._cluster.scheduler.after(LOOK_MS, self._look)

    @property
    def _is_slow(self) -> bool:
        return self._cluster.clock.now_us < self._slow_until_us

    def poke(self, *, is_look: bool = False) -> None:
        """There is more."""
        if not self._is_due and not self._is_closed and (is_look or not self._is_slow):
            self._is_due = True
            self._cluster.scheduler.after(self._cluster.delay_ms(), lambda: self._process.hear(self._come))

    def _come(self) -> None:
        self._is_due = False
        log = self._log
        if self._is_closed:
            return
        if self._is_out():
            self.problem = "the log is out of reach"
        elif self._reached < log.first - 1:
            self.problem = f"the log begins behind: events up to {log.first - 1} are gone"
            self.when_gone()
        else:
            self.problem = ""
            self._told = log.committed
            if log.committed > self._reached:
                self._reached = self._reached + 1 if self._is_slow else log.committed
                self._receive()


class _Noted(NamedTuple):
    subscriber: str
    event_id: int


class LogClient:
    """What the queue's client is to a carrier, and to the operator's tool."""

    def __init__(self, view: LogOverNetwork, log: SharedLog) -> None:
        self._view = view
        self._log = log

    async def positions(self, topic: str) -> list[_Noted]:
        """What was noted."""
        await self._view.open()
        return [_Noted(name, at) for (noted, name), at in self._log.noted.items() if noted == topic]

    async def set_position(self, topic: str, name: str, event_id: int) -> None:
        """Note it."""
        await self._view.open()
        self._log.noted[topic, name] = event_id

    async def append(self, topic: str, payload: bytes) -> Appended:
        """One record. Raises ``PixiuError``."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._view.append(topic, payload, lambda result: None if waiting.done() else waiting.set_result(result))
        result: Appended | PixiuError = await waiting
        if isinstance(result, PixiuError):
            raise result
        return result
