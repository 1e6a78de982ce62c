"""Work that the log asks for: notifications, kicks and flushes, scheduled sends whose time has come.

Tasks finish in any order and out of order: a table of what is under way stands between the log and the performers, and
the position that is kept is that of the lowest unfinished one (C28). Nothing sleeps here: a task that failed goes back
to the log with the time at which it is due again, naming only what is still to be done, and counts as finished when the
log has it. After too many attempts it becomes a dead letter.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.failure import Failure
from pixiu.model.pixiu_pb2 import Record, RefusedSchedule, Task, Undecodable
from pixiu.ports.log import NOTIFY, SCHEDULE, TASKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.messaging import CarrierSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log, LogRecord
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.carrier.dead_letters import DeadLetters
    from pixiu.roles.carrier.metrics import CarrierCounters

    Done = Callable[[Failure | None], None]
    Performer = Callable[[Task, Done], object]
    SchedulePerformer = Callable[[LogRecord, Record, Done], object]

__all__ = ["TOPICS", "GeneralTasks", "Tasks"]

log = logging.getLogger(__name__)

TOPICS = (NOTIFY, TASKS, SCHEDULE)

_BACKOFF_MS_MAX = 600_000


class Tasks:
    """The TASKS lane: takes records of its topics, hands them to performers, sees each one through."""

    def __init__(
        self,
        queue: Log,
        clock: Clock,
        scheduler: Scheduler,
        settings: CarrierSettings,
        dead: DeadLetters,
        counters: CarrierCounters,
        *,
        notify: Performer,
        general: Performer,
        schedule: SchedulePerformer,
    ) -> None:
        self._log = queue
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._dead = dead
        self._counters = counters
        self._performers: dict[str, Performer] = {NOTIFY: notify, TASKS: general}
        self._schedule = schedule
        self._read_through = dict.fromkeys(TOPICS, 0)
        self._under_way: dict[int, LogRecord] = {}
        self._sends = 0
        """Scheduled sends among them. They have a bound of their own: phones that ring slowly do not hold them up."""
        self._is_running = self._is_pump_due = False
        self.has_begun = False
        """Has it ever taken anything? Before that it knows of nothing that it is finished."""
        self.changed: Callable[[], object] = lambda: None
        """Called when a task is finished: the position may have moved."""

    def start(self, after: int) -> None:
        """Begin behind this event."""
        self._read_through = dict.fromkeys(TOPICS, after)
        self._is_running = self.has_begun = True
        self.pump()

    def stop(self) -> None:
        """Take no more. What is under way is done again by whoever comes next."""
        self._is_running = False

    @property
    def finished_through(self) -> int:
        """Everything up to here is finished."""
        through = min(self._read_through.values())
        return min(through, min(self._under_way) - 1) if self._under_way else through

    @property
    def under_way(self) -> int:
        """How many tasks are being performed."""
        return len(self._under_way)

    def pump(self) -> None:
        """Take what the log has, as far as there is room. More waits in the log."""
        if not self._is_running:
            return
        committed = self._log.committed
        for topic in TOPICS:
            while self._read_through[topic] < committed:
                room = self._room(topic)
                if room <= 0:
                    break
                try:
                    records = self._log.topic(topic, self._read_through[topic], room)
                except Unavailable:  # it can be read later
                    self._pump_later()
                    break
                for record in records:
                    if record.event_id > committed:
                        break
                    self._read_through[topic] = record.event_id
                    self._under_way[record.event_id] = record
                    self._sends += topic == SCHEDULE
                    self._begin(record, 0)
                if len(records) < room or records[-1].event_id > committed:
                    self._read_through[topic] = max(self._read_through[topic], committed)
        self.changed()

    def _pump_later(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._scheduler.after(self._settings.lane_retry_ms, self._pump_again)

    def _pump_again(self) -> None:
        self._is_pump_due = False
        self.pump()

    def _room(self, topic: str) -> int:
        busy = self._sends if topic == SCHEDULE else len(self._under_way) - self._sends
        return self._settings.tasks_in_flight_max - busy

    def pass_over(self, after: int, through: int) -> None:
        """The log has no tasks between these: if nothing was left behind, the position moves over them."""
        for topic, position in self._read_through.items():
            if after <= position < through:
                self._read_through[topic] = through

    # One task.

    def _begin(self, record: LogRecord, tries: int) -> None:
        if not self._is_running:
            return
        is_answered = False

        def done(failure: Failure | None) -> None:
            nonlocal is_answered
            if is_answered or not self._is_running:
                return
            is_answered = True
            if failure is None:
                self._counters.tasks += 1
                self._finish(record)
            elif record.topic == SCHEDULE:
                self._schedule_failed(record, tries, failure)
            else:
                self._failed(record, Task.FromString(record.payload), failure)

        try:
            if record.topic == SCHEDULE:
                self._schedule(record, Record.FromString(record.payload), done)
            else:
                self._performers[record.topic](Task.FromString(record.payload), done)
        except DecodeError as error:
            self._counters.undecodable += 1
            undecodable = Undecodable(event_id=record.event_id, payload=record.payload)
            self._bury(record, Task(reason=f"{record.topic}: {error}", undecodable=undecodable))
        except Exception as error:  # a task's boundary: one that breaks its performer must not stop the rest
            log.warning("task failed", extra={"event_id": record.event_id, "topic": record.topic}, exc_info=error)
            done(Failure(f"{type(error).__name__}: {error}"))

    def _finish(self, record: LogRecord) -> None:
        was_full = self._room(record.topic) <= 0
        if self._under_way.pop(record.event_id, None) is not None:
            self._sends -= record.topic == SCHEDULE
        self.changed()
        if was_full:
            self._scheduler.soon(self.pump)

    def _bury(self, record: LogRecord, task: Task) -> None:
        self._dead.bury(record.event_id, task, lambda: self._finish(record))

    def _delay_ms(self, attempt: int) -> int:
        # The shift is bounded: nobody waits for more doublings than reach the bound.
        return min(self._settings.task_retry_ms << min(attempt, 32), max(_BACKOFF_MS_MAX, self._settings.task_retry_ms))

    def _failed(self, record: LogRecord, task: Task, failure: Failure) -> None:
        """Try again later, only what is left of it; or give up."""
        now = self._clock.now_ms()
        task.reason = failure.reason
        task.last_attempt_at = now
        if failure.platforms and task.WhichOneof("what") == "notify":
            del task.notify.platforms[:]
            task.notify.platforms.extend(failure.platforms)
            del task.notify.devices[:]
            task.notify.devices.extend(failure.devices)
        if failure.is_final or task.attempt >= self._settings.task_retries_max:
            self._bury(record, task)
            return
        due = now + self._delay_ms(task.attempt)
        task.attempt += 1
        payload = task.SerializeToString()
        self._counters.task_retries += 1

        def schedule() -> None:
            if self._is_running:
                self._log.schedule(record.topic, payload, due, scheduled)

        def scheduled(result: int | PixiuError) -> None:
            if isinstance(result, PixiuError):
                self._scheduler.after(self._settings.lane_retry_ms, schedule)
            else:
                self._finish(record)

        schedule()

    def _schedule_failed(self, record: LogRecord, tries: int, failure: Failure) -> None:
        """A scheduled send has no room for a count of attempts: it stays under way until it is done or refused."""
        if failure.is_final or tries >= self._settings.task_retries_max:
            refused = RefusedSchedule(record=record.payload, code=failure.code)
            self._bury(record, Task(reason=failure.reason, attempt=tries, refused=refused))
            return
        self._counters.task_retries += 1
        self._scheduler.after(self._delay_ms(tries), lambda: self._begin(record, tries + 1))


class GeneralTasks:
    """The performer of ``pixiu.tasks``: kicks and flushes (P17). A session that is gone is no failure."""

    def __init__(self, *, kick: Callable[[int, int, str], object], flush: Callable[[int, str], object]) -> None:
        self._kick = kick
        self._flush = flush

    def perform(self, task: Task, done: Done) -> None:
        """Do it, and say so."""
        match task.WhichOneof("what"):
            case "kick":
                self._kick(task.kick.user, task.kick.session, task.kick.reason)
            case "flush":
                self._flush(task.flush.user, task.flush.platform)
            case what:
                done(Failure(f"nobody knows how to do {what!r}", code="bad_request", is_final=True))
                return
        done(None)
