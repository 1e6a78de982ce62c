"""What could not be done: kept on ``pixiu.dlq`` with the reason, until someone looks, and gives it back.

Burying is appending under a key made from the record's event id, so that a carrier that dies in the middle and its
successor bury it once. A dead letter is never removed; giving it back appends a mark.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import Conflict, NotFound, PixiuError
from pixiu.model.pixiu_pb2 import Replayed, Task
from pixiu.ports.log import DEAD, MAIN, NOTIFY, SCHEDULE, TASKS, Appended
from pixiu.roles.carrier.repeats import since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.carrier.metrics import CarrierCounters

__all__ = ["DeadLetter", "DeadLetters", "dead_letters"]

log = logging.getLogger(__name__)

_PAGE = 500


class DeadLetter(NamedTuple):
    """One record of ``pixiu.dlq`` that was not given back yet."""

    event_id: int
    at: int
    task: Task


class DeadLetters:
    """Buries what cannot be done, and gives it back on request."""

    def __init__(
        self, queue: Log, clock: Clock, scheduler: Scheduler, counters: CarrierCounters, *, retry_ms: int
    ) -> None:
        self._log = queue
        self._clock = clock
        self._scheduler = scheduler
        self._counters = counters
        self._retry_ms = retry_ms
        self.waiting = 0
        """Those that are on their way to the log. Nothing may count as finished before they are there."""

    def bury(self, event_id: int, task: Task, done: Callable[[], object]) -> None:
        """Keep the task of this record, or the record itself. Tries until the log has it."""
        task.at = self._clock.now_ms()
        log.error("dead letter", extra={"event_id": event_id, "what": task.WhichOneof("what"), "reason": task.reason})
        self.waiting += 1
        payload = task.SerializeToString()
        after = since(self._log, event_id)

        def append() -> None:
            self._log.append(DEAD, payload, answered, key=b"\xffdead:%d" % event_id, unless_after=after)

        def answered(result: Appended | PixiuError) -> None:
            nonlocal after
            if isinstance(result, PixiuError):
                if isinstance(result, Conflict):
                    # The writer's memory of keys does not reach back that far: buried twice is better than never.
                    after = self._log.committed
                self._scheduler.after(self._retry_ms, append)
                return
            self.waiting -= 1
            if not result.is_repeat:
                self._counters.dead_letters += 1
            done()

        append()

    def replay(self, event_id: int, done: Callable[[PixiuError | None], object]) -> None:
        """Give a dead letter back to the topic it came from, as if it had never been tried."""
        letter = next((letter for letter in dead_letters(self._log) if letter.event_id == event_id), None)
        if letter is None:
            is_there = any(record.event_id == event_id for record in self._log.topic(DEAD, event_id - 1, 1))
            error = (Conflict if is_there else NotFound)(
                f"dead letter {event_id} was given back already" if is_there else f"there is no dead letter {event_id}"
            )
            self._scheduler.soon(lambda: done(error))
            return
        topic, payload = self._origin(letter.task)

        def given(result: Appended | PixiuError) -> None:
            if isinstance(result, PixiuError):
                done(result)
                return
            mark = Task(at=self._clock.now_ms(), replayed=Replayed(event_id=event_id)).SerializeToString()
            self._log.append(
                DEAD, mark, marked, key=b"\xffreplayed:%d" % event_id, unless_after=since(self._log, event_id)
            )

        def marked(result: Appended | PixiuError) -> None:
            if isinstance(result, PixiuError):
                done(result)
                return
            self._counters.replayed += 1
            done(None)

        # The key makes a second attempt after a failed mark harmless.
        self._log.append(
            topic, payload, given, key=b"\xffreplay:%d" % event_id, unless_after=since(self._log, event_id)
        )

    def _origin(self, task: Task) -> tuple[str, bytes]:
        """Where it came from, and as what it goes back."""
        what = task.WhichOneof("what")
        if what == "refused":
            return SCHEDULE, task.refused.record
        if what == "undecodable":
            lost = task.undecodable
            found = self._log.read(lost.event_id - 1, 1)
            is_there = bool(found) and found[0].event_id == lost.event_id
            return found[0].topic if is_there else MAIN, lost.payload
        fresh = Task()
        fresh.CopyFrom(task)
        fresh.attempt = fresh.last_attempt_at = 0
        fresh.reason = ""
        return NOTIFY if what == "notify" else TASKS, fresh.SerializeToString()


def dead_letters(queue: Log) -> list[DeadLetter]:
    """Everything on ``pixiu.dlq`` that was not given back, oldest first."""
    letters: dict[int, DeadLetter] = {}
    for letter in _all(queue):
        if letter.task.WhichOneof("what") == "replayed":
            letters.pop(letter.task.replayed.event_id, None)
        else:
            letters[letter.event_id] = letter
    return list(letters.values())


def _all(queue: Log) -> Iterator[DeadLetter]:
    after = 0
    while records := queue.topic(DEAD, after, _PAGE):
        for record in records:
            yield DeadLetter(record.event_id, record.at, Task.FromString(record.payload))
        after = records[-1].event_id
