"""The carrier: takes the log's records in order, writes the stores, then wakes whoever listens.

Each lane has its own position in the log. In good times they move together, and a record is parsed once for all of
them. A lane whose store is down stays where it is and is tried again; the others go on, and what it misses is read from
the log once more when it returns: nothing piles up in memory, and a store that is down makes no dead letters.

The stores have a message before anyone is woken for it. They become durable a little later, with the positions they
were brought to; whatever a crash undoes is applied again. The carrier never waits for a client.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.machines.traces import TraceRows
from pixiu.model.errors import CorruptData, PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import Task, Undecodable
from pixiu.ports.log import MAIN
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.appliers import Appliers, parse
from pixiu.roles.carrier.arrivals import may_tell, receipt_of, still_waiting, wakes_of
from pixiu.roles.carrier.commits import Commits
from pixiu.roles.carrier.courtesy import Courtesy
from pixiu.roles.carrier.cut import Cutting
from pixiu.roles.carrier.dead_letters import DeadLetters
from pixiu.roles.carrier.flush_times import FlushTimes
from pixiu.roles.carrier.lane_state import LaneState
from pixiu.roles.carrier.metrics import CarrierCounters
from pixiu.roles.carrier.tasks import TOPICS, Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pixiu.config.messaging import CarrierSettings
    from pixiu.model.wake import Wake
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log, LogRecord
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.apply_rosters import Removed
    from pixiu.roles.carrier.apply_timelines import Said
    from pixiu.roles.carrier.reached import Limits
    from pixiu.roles.carrier.tasks import Performer, SchedulePerformer

__all__ = ["Carrier"]

log = logging.getLogger(__name__)

_POLL_MS = 1
_FAR = 2**63
_UNWOKEN_MAX = 1024
"""The newest wakes of one that does not serve: it does them when it has to. Of older ones notifications may be lost."""


class Carrier:
    """One follower of one log, for one set of stores."""

    def __init__(
        self,
        stores: Stores,
        queue: Log,
        clock: Clock,
        scheduler: Scheduler,
        settings: CarrierSettings,
        *,
        wake: Callable[[list[Wake]], object],
        tell: Callable[[int, dict[str, object]], object],
        limits: Limits | None = None,
        say: Callable[[list[Said]], object] | None = None,
        remove: Callable[[list[Removed]], object] | None = None,
        end_users: Callable[[list[int]], object] | None = None,
        notify: Performer | None = None,
        general: Performer | None = None,
        schedule: SchedulePerformer | None = None,
        is_writer_busy: Callable[[], bool] = lambda: False,
        is_present: Callable[[int], bool] = lambda _user: True,
        traces: TraceRows | None = None,
        is_serving: Callable[[], bool] = lambda: True,
    ) -> None:
        """``say`` gets messages of large groups, ``remove`` members who left, ``end_users`` erased and banned users.

        ``notify``, ``general`` and ``schedule`` perform tasks, if given. Of several replicas that apply the same log,
        only the one for which ``is_serving()`` is true wakes, performs tasks and writes dead letters.
        """
        self.counters = CarrierCounters()
        self.dead = DeadLetters(queue, clock, scheduler, self.counters, retry_ms=settings.lane_retry_ms)
        self.tasks: Tasks | None = None
        if notify is not None and general is not None and schedule is not None:
            self.tasks = Tasks(
                queue, clock, scheduler, settings, self.dead, self.counters,
                notify=notify, general=general, schedule=schedule,
            )  # fmt: skip
        self._stores = stores
        self._log = queue
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._wake = wake
        self._tell = tell
        self._say = say
        self._remove = remove
        self._end_users = end_users
        self._is_writer_busy = is_writer_busy
        self._is_present = is_present
        self._is_serving = is_serving
        self._appliers = Appliers(stores, limits)
        self._lanes = [LaneState(lane, apply, stores.applied(lane)) for lane, apply in self._appliers.lanes]
        self._by_lane = {state.lane: state for state in self._lanes}
        self._waiters: list[tuple[int, int, Callable[[], object]]] = []
        self._waiter_count = 0
        self._is_running = False
        self._unwoken: deque[Wake] = deque(maxlen=_UNWOKEN_MAX)
        self._is_turn_due = False
        self._has_tasks = False
        self._buried = 0
        self._quiet_through = 0
        """Lanes that went back have nothing to tell before this event."""
        self._courtesy = Courtesy(settings)
        self._times = FlushTimes(clock, self.counters.apply_seconds.observe, traces or TraceRows())
        self._commits = Commits(
            stores, clock, scheduler, settings, self.counters,
            applied=self._applied_now, is_behind=lambda: self.is_behind, ended=self._receive,
        )  # fmt: skip
        self._touch = self._commits.touch
        if self.tasks is not None:
            self.tasks.changed = self._touch
        self._bug = self._log_problem = ""
        self._cuttings: list[Cutting] = []

    # Life.

    def start(self) -> None:
        """Follow the log from where the stores are."""
        self._is_running = self._commits.is_running = True
        self._times.begin_after(self._log.committed)
        self._log.follow(min(state.position for state in self._lanes), self._flushed)
        if self._is_serving():
            self.serve(0)
        self._receive()

    def serve(self, tasks_after: int) -> None:
        """Wake, and perform what the log asks for, from behind the last task that is known to be finished.

        What the one before may not have got round to is done here: whoever repeats it finds that by its key.
        """
        if self.tasks is not None:
            self.tasks.start(max(tasks_after, self._stores.applied(Lane.TASKS)))
        unwoken, self._unwoken = list(self._unwoken), deque(maxlen=0)
        if unwoken:
            self._wake(still_waiting(unwoken, self._stores.inboxes))

    def stop(self) -> None:
        """Apply no more, and make durable what was applied."""
        if not self._is_running:
            return
        self._is_running = self._commits.is_running = False
        if self.tasks is not None:
            self.tasks.stop()
        self._waiters.clear()
        self.commit()

    # What others ask.

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has reached: visible, perhaps not yet durable."""
        if lane is Lane.TASKS:
            return self.tasks.finished_through if self.tasks is not None else 0
        return self._by_lane[lane].position

    def position_of(self, lane: Lane) -> Callable[[], int]:
        """``applied`` of one lane, for who asks at every send."""
        state = self._by_lane[lane]
        return lambda: state.position

    @property
    def limits(self) -> Limits:
        """What holds now for those who are away."""
        return self._appliers.inboxes.limits

    @property
    def applied_all(self) -> int:
        """The event id that all lanes have reached."""
        return min([state.position for state in self._lanes])

    @property
    def behind(self) -> int:
        """How many events the slowest lane has before it."""
        return max(self._log.committed - self.applied_all, 0)

    @property
    def is_behind(self) -> bool:
        """Is there more before the slowest lane than one turn takes?"""
        return self.behind > self._settings.batch_count

    def when_applied(self, event_id: int, call: Callable[[], object]) -> None:
        """Call soon after every lane has applied this event."""
        if self.applied_all >= event_id:
            self._scheduler.soon(call)
            return
        self._waiter_count += 1
        heappush(self._waiters, (event_id, self._waiter_count, call))

    @contextmanager
    def cutting(self) -> Iterator[Cutting]:
        """A cut of what waits now, to be read in slices between turns. Raises ``Unavailable`` where it cannot be."""
        appliers = self._appliers
        if appliers.inboxes.is_midway or self._by_lane[Lane.INBOXES].problem or self._bug:
            raise Unavailable("a record is applied by half, as a store is down: ask again when it is back")
        cutting = Cutting(self._stores, self.applied(Lane.INBOXES))
        self._cuttings.append(cutting)
        appliers.inboxes.watch(cutting.before)
        try:
            yield cutting
        finally:
            self._cuttings.remove(cutting)
            appliers.inboxes.unwatch(cutting.before)

    @property
    def is_cutting(self) -> bool:
        """Is a cut under way? Then nobody but the carrier may change inboxes."""
        return bool(self._cuttings)

    def problems(self) -> list[str]:
        """Why this node should get no traffic; empty if all is well."""
        problems = [f"{state.lane.value}: {state.problem}" for state in self._lanes if state.problem]
        if self._log_problem:
            problems.append(f"log: {self._log_problem}")
        if self._commits.problem:
            problems.append(f"commit: {self._commits.problem}")
        for problem in self._stores.problems():
            if not any(problem in known for known in problems):
                problems.append(f"stores: {problem}")
        return [*problems, self._bug] if self._bug else problems

    def go_back(self, done: Callable[[], object]) -> None:
        """A store has lost what it had: lanes go on from what it has; ``done`` when they do.

        Nobody is told again of what they were told before. Nor are tasks done again: that is known here.
        """
        if not self._is_running:
            return
        self._quiet_through = max(self._quiet_through, self.applied_all)
        self._commits.forget()
        for cutting in self._cuttings:
            cutting.fail(Unavailable("the stores have gone back to an earlier event: ask again"))
        try:
            self._stores.begin_again()
            self._appliers = Appliers(self._stores)
        except PixiuError as error:
            self._commits.problem = str(error)
            self._scheduler.after(self._settings.lane_retry_ms, lambda: self.go_back(done))
            return
        for state, (lane, apply) in zip(self._lanes, self._appliers.lanes, strict=True):
            state.go_back(apply, self._stores.applied(lane))
        log.warning("lanes went back", extra={"after": self.applied_all, "committed": self._log.committed})
        self._receive()
        done()

    # Turns.

    def _flushed(self) -> None:
        """The log has more."""
        self._times.flushed(self._log.committed)
        self._receive()

    def _receive(self) -> None:
        if self._is_running and not self._is_turn_due:
            self._is_turn_due = True
            self._scheduler.soon(self._turn)

    def _turn(self) -> None:
        """A batch for every lane that can go on; lanes at one position go together."""
        self._is_turn_due = False
        if not self._is_running or self._commits.is_under_way or self._let_the_writer_go_first():
            return
        try:
            self._go_on()
        except Unavailable as error:  # a log that cannot be read now can be later
            if not self._log_problem:
                log.warning("the log is not read", extra={"reason": str(error)})
            self._log_problem = str(error)
            self._is_turn_due = True
            self._scheduler.after(self._settings.lane_retry_ms, self._turn)
        except Exception as error:  # a role's boundary: a bug must neither spin nor take the process down
            log.exception("carrier stopped by a bug, will try again")
            self._bug = f"{type(error).__name__}: {error}"
            self._is_turn_due = True
            self._scheduler.after(self._settings.lane_retry_ms, self._turn)

    def _go_on(self) -> None:
        lanes, quiet = self._lanes, self._quiet_through
        is_quiet = self.applied_all < quiet
        waiting = [state for state in lanes if not state.is_held]
        if len({state.position for state in waiting}) == 1 and len(waiting) == len(lanes):  # good times
            self._advance(lanes, lanes[0].position, quiet if is_quiet else _FAR)
            waiting = []
        while waiting and not self._commits.is_under_way:
            after = min(state.position for state in waiting)
            together = [state for state in waiting if state.position == after]
            far = quiet if after < quiet else _FAR
            bound = min((state.position for state in waiting if after < state.position < far), default=far)
            going = self._advance(together, after, bound)
            has_joined = bool(going) and going[0].position == bound
            waiting = [state for state in waiting if state not in together or (has_joined and state in going)]
        if is_quiet:
            self._appliers.forget_news()
        self._deliver()
        self._bug = self._log_problem = ""
        committed = self._log.committed
        if any(state.position < committed for state in lanes if not state.is_held):
            self._receive()
        else:
            self._courtesy.caught_up()

    def _let_the_writer_go_first(self) -> bool:
        """Does it, it looks again in a moment."""
        is_busy, behind = self._is_writer_busy(), self.behind
        if not self._courtesy.yields(self._clock.monotonic_us(), behind, is_writer_busy=is_busy):
            return False
        self._is_turn_due = True
        self._scheduler.after(_POLL_MS, self._turn)
        return True

    def _advance(self, states: list[LaneState], after: int, bound: int) -> list[LaneState]:
        """Apply a batch behind ``after``, not beyond ``bound``, where other lanes wait. Returns those that go on."""
        records = self._log.read(after, self._settings.batch_count)
        # Only now: a log over the network knows no more than this lane when it has to fetch what comes next.
        committed = min(self._log.committed, bound)
        if not records:
            last = max(committed, after)
        elif records[-1].event_id > bound:
            records = [record for record in records if record.event_id <= bound]
            last = bound
        else:
            last = records[-1].event_id
        numbered = next((each.event_id for each in reversed(records) if each.message_id), 0)
        self._times.seen(numbered)
        states, applied = self._apply(states, records, after)
        if records and applied < records[-1].event_id:
            last = applied
        for state in states:
            state.position = last
            if state.problem:  # it is well again when it has caught up, and not before
                left = self._log.committed - last
                state.problem = f"{left} events behind the log" if left > self._settings.batch_count else ""
        if last > after:
            if self.tasks is not None and not self._has_tasks:
                self.tasks.pass_over(after, last)
            self._touch(last - after)
        return states

    def _apply(self, states: list[LaneState], records: Sequence[LogRecord], after: int) -> tuple[list[LaneState], int]:
        """Apply records in these lanes until the turn is over. Returns the lanes that got through, and how far."""
        applies = [state.apply for state in states]
        monotonic_us = self._clock.monotonic_us
        until_us = monotonic_us() + self._courtesy.turn_us
        for record in records:
            if record.topic == MAIN:
                is_any_held = False
                try:
                    parsed = parse(record)
                    for apply in applies:
                        apply(record, parsed)
                except (DecodeError, ValueError, Unavailable, CorruptData):
                    is_any_held = self._apply_apart(states, record, after)
                if is_any_held:
                    states = [state for state in states if not state.is_held]
                    applies = [state.apply for state in states]
                    if not states:
                        return [], after
                self.counters.records += 1
            elif record.topic in TOPICS:
                self._has_tasks = True
            after = record.event_id
            if monotonic_us() > until_us:
                break
        return states, after

    def _apply_apart(self, states: list[LaneState], record: LogRecord, after: int) -> bool:
        """Some lane has trouble with this record: see which. What another one has done already is not done twice."""
        try:
            parsed = parse(record)
        except (DecodeError, ValueError) as error:
            self._bury(record, error, [state.lane for state in states])
            return False
        for state in states:
            try:
                state.apply(record, parsed)
            except (Unavailable, CorruptData) as error:
                self._hold(state, after, error)
            except ValueError as error:
                self._bury(record, error, [state.lane])
        return any(state.is_held for state in states)

    def _hold(self, state: LaneState, position: int, error: PixiuError) -> None:
        """A lane's store is down: it stays before this record and tries again later."""
        self.counters.lane_failures += 1
        if not state.problem:
            log.warning("lane stopped", extra={"lane": state.lane.value, "after": position, "reason": str(error)})
        state.problem = str(error) or type(error).__name__
        state.position = position
        state.is_held = True

        def resume() -> None:
            state.is_held = False
            self._receive()

        self._scheduler.after(self._settings.lane_retry_ms, resume)

    def _bury(self, record: LogRecord, error: Exception, lanes: list[Lane]) -> None:
        """A record that cannot be read, or makes no sense, is kept aside, and skipped."""
        for lane in lanes:
            self._appliers.skip(lane, record.event_id)
        if record.event_id == self._buried:
            return
        self._buried = record.event_id
        self.counters.undecodable += 1
        if not self._is_serving():
            return
        undecodable = Undecodable(event_id=record.event_id, payload=record.payload)
        self.dead.bury(record.event_id, Task(reason=str(error), undecodable=undecodable), self._touch)

    def _deliver(self) -> None:
        """Tell everyone what the stores have now."""
        appliers, counters = self._appliers, self.counters
        arrivals = appliers.inboxes.take_arrivals()
        if arrivals:
            wakes = wakes_of(arrivals, self._is_present)
            counters.entries += sum(len(arrival.inboxes) for arrival in arrivals)
            if wakes and self._is_serving():
                self._wake(wakes)
            else:
                self._unwoken.extend(wakes)
        for eviction in appliers.inboxes.take_evictions():
            counters.evicted += len(eviction.useqs)
        for marked in appliers.timelines.take_marked():
            if may_tell(marked, self._stores.contacts):
                self._tell(marked.from_user, receipt_of(marked, self._stores.users))
        removed = appliers.rosters.take_removed()
        if removed and self._remove is not None:
            self._remove(removed)
        gone = appliers.rosters.take_gone()
        if gone and self._end_users is not None:
            self._end_users(gone)
        said = appliers.timelines.take_said()
        if said and self._say is not None:
            self._say(said)
        if self._has_tasks and self.tasks is not None:
            self._has_tasks = False
            self.tasks.pump()
        applied = self.applied_all
        self._times.applied(applied)
        while self._waiters and self._waiters[0][0] <= applied:
            self._scheduler.soon(heappop(self._waiters)[2])

    # Commits.

    def commit(self, *, has_more: bool = False) -> bool:
        """Make the stores durable with their positions, with ``has_more`` even if none has moved. False: later."""
        return self._commits.commit(has_more=has_more)

    def _applied_now(self) -> dict[Lane, int] | None:
        """Where the lanes are. None while no commit may say so.

        What was skipped must be among the dead letters first, and half a record would not be applied again right.
        """
        if self.dead.waiting or self._appliers.inboxes.is_midway or self._appliers.timelines.is_midway:
            return None
        applied = {state.lane: state.position for state in self._lanes}
        if self.tasks is not None and self.tasks.has_begun:
            applied[Lane.TASKS] = self.tasks.finished_through
        return applied
