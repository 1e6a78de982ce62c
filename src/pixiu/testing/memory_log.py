"""The log as the roles see it, in memory: numbers, keys, due times and commits, without files.

Appends of one turn are committed together a little later, as by the real writer: nobody can read a record, and nobody
is answered, before that. A schedule takes an event id of its own that no reader sees, as the real log's does. The log
outlives its followers: a role that dies leaves it as it is, and its successor follows it anew.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from pixiu.model.errors import NotFound
from pixiu.model.ids import Snowflakes
from pixiu.ports.log import TOPICS, Appended, LogRecord, Scheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.model.errors import PixiuError
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["MemoryLog"]


class MemoryLog:
    """``ports.log.Log`` in memory."""

    def __init__(self, clock: Clock, scheduler: Scheduler, *, node_id: int = 1, commit_ms: float = 0) -> None:
        self.refusal: PixiuError | None = None
        """While set, nothing is taken: every write is answered with this."""
        self.records: list[LogRecord] = []
        """Everything that was ever appended; the part through ``committed`` is visible."""
        self._clock = clock
        self._scheduler = scheduler
        self._commit_ms = commit_ms
        self._snowflakes = Snowflakes(node_id)
        self._last = 0
        self._committed = 0
        self._event_ids: list[int] = []
        self._by_topic: dict[str, list[LogRecord]] = {}
        self._keys: dict[bytes, Appended] = {}
        self._answers: list[Callable[[], object]] = []
        self._is_committing = False
        self._due: list[tuple[int, int]] = []
        self._waiting: dict[int, Scheduled] = {}
        self._receive: Callable[[], object] | None = None

    @property
    def committed(self) -> int:
        """The newest committed event id."""
        return self._committed

    def append(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[Appended | PixiuError], object],
        *,
        key: bytes = b"",
        unless_after: int = 0,
    ) -> None:
        """Append a numbered record, unless ``key`` was appended behind event ``unless_after``."""
        if self._refuse(done, topic):
            return
        first = self._keys.get(key) if key else None
        if first is not None and first.event_id > unless_after:
            self._answer(lambda: done(first._replace(is_repeat=True)))
            return
        message_id = self._snowflakes.next(self._clock.now_ms())
        appended = Appended(self._write(topic, payload, message_id, key), message_id, is_repeat=False)
        if key:
            self._keys[key] = appended
        self._answer(lambda: done(appended))

    def append_all(
        self,
        topic: str,
        payloads: Sequence[bytes],
        keys: Sequence[bytes],
        done: Callable[[Sequence[Appended | PixiuError]], object],
        *,
        unless_after: int = 0,
    ) -> None:
        """As ``append`` of each with its key; ``done`` is told all results at once."""
        results: list[Appended | PixiuError] = []

        def noted(result: Appended | PixiuError) -> None:
            results.append(result)
            if len(results) == len(payloads):
                done(results)

        for payload, key in zip(payloads, keys, strict=True):
            self.append(topic, payload, noted, key=key, unless_after=unless_after)

    def publish(self, topic: str, payload: bytes, done: Callable[[int | PixiuError], object] | None = None) -> None:
        """Append a record without a number."""
        if self._refuse(done, topic):
            return
        event_id = self._write(topic, payload, 0, b"")
        self._answer(lambda: done(event_id) if done is not None else None)

    def schedule(
        self, topic: str, payload: bytes, due: int, done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """Publish at ``due``."""
        if self._refuse(done, topic):
            return
        self._last += 1
        schedule_id = self._last
        self._waiting[schedule_id] = Scheduled(schedule_id, due, topic, payload)
        heappush(self._due, (due, schedule_id))
        self._scheduler.after(max(due - self._clock.now_ms(), 0), self._fire)
        self._answer(lambda: done(schedule_id) if done is not None else None)

    def unschedule(self, schedule_id: int, done: Callable[[bool | PixiuError], object]) -> None:
        """Drop a record that waits."""
        if self._refuse(done):
            return
        was_waiting = self._waiting.pop(schedule_id, None) is not None
        self._last += 1
        self._answer(lambda: done(was_waiting))

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits for a topic, by due time."""
        waiting = [scheduled for scheduled in self._waiting.values() if scheduled.topic == topic]
        return sorted(waiting, key=lambda scheduled: (scheduled.due, scheduled.schedule_id))

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Call ``receive`` whenever there may be more."""
        self._receive = receive
        if after < self._committed:
            self._scheduler.soon(receive)

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Committed records of Pixiu's topics behind ``after``."""
        found: list[LogRecord] = []
        records = self.records
        for index in range(bisect_right(self._event_ids, after), len(records)):
            record = records[index]
            if record.event_id > self._committed or len(found) == limit:
                break
            if record.topic.startswith("pixiu."):
                found.append(record)
        return found

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first."""
        records = self._by_topic.get(topic, [])
        first = bisect_right(records, after, key=lambda record: record.event_id)
        return [record for record in records[first : first + limit] if record.event_id <= self._committed]

    def move(self, scheduler: Scheduler) -> None:
        """The process that held this log has died: what was committed goes on in another one, with nobody following."""
        self._scheduler = scheduler
        self._receive = None
        self._answers.clear()
        self._is_committing = False
        self._committed = self._last
        if self._due:
            scheduler.after(max(self._due[0][0] - self._clock.now_ms(), 0), self._fire)

    def _refuse(self, done: Callable[[PixiuError], object] | None, topic: str = TOPICS[0]) -> bool:
        refusal = self.refusal if topic in TOPICS else NotFound(f"there is no topic {topic}")
        if refusal is None:
            return False
        if done is not None:
            self._scheduler.soon(lambda: done(refusal))
        return True

    def _write(self, topic: str, payload: bytes, message_id: int, key: bytes) -> int:
        self._last += 1
        record = LogRecord(self._last, message_id, topic, payload, key, self._clock.now_ms())
        self.records.append(record)
        self._event_ids.append(record.event_id)
        self._by_topic.setdefault(topic, []).append(record)
        return record.event_id

    def _answer(self, answer: Callable[[], object]) -> None:
        self._answers.append(answer)
        if not self._is_committing:
            self._is_committing = True
            if self._commit_ms:
                self._scheduler.after(self._commit_ms, self._commit)
            else:
                self._scheduler.soon(self._commit)

    def _commit(self) -> None:
        self._is_committing = False
        self._committed = self._last
        answers, self._answers = self._answers, []
        if self._receive is not None:
            self._scheduler.soon(self._receive)
        for answer in answers:
            answer()

    def _fire(self) -> None:
        """Publish what is due. A clock that was set back fires later, never early."""
        now = self._clock.now_ms()
        while self._due and self._due[0][0] <= now:
            _, schedule_id = heappop(self._due)
            scheduled = self._waiting.pop(schedule_id, None)
            if scheduled is not None:
                self._write(scheduled.topic, scheduled.payload, 0, b"")
                self._answer(lambda: None)
        if self._due:
            self._scheduler.after(max(self._due[0][0] - now, 1), self._fire)
