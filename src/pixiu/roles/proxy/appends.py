"""Getting a record into the log once.

A repeat is found in the index of keys, as far as that has applied the log, or by the log itself behind that point. The
point is read before the index is asked: whatever is applied in between is then found twice, never missed.

One that comes alone goes its way at once. While others are on theirs, and the log takes many at a time, those of one
turn of the loop go together: one look at the index, one call of the log, one loop over the answers. What comes behind
one that waits for that waits, too, so that all of them keep their order.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from pixiu.im.draft import Accepted
from pixiu.machines.traces import ACCEPT, TraceRows
from pixiu.model.errors import Conflict, Overloaded, PixiuError, Unavailable
from pixiu.model.metric import HOP_SECONDS, Histogram
from pixiu.ports.log import MAIN, Appended, AppendsAll
from pixiu.ports.scheduler import raise_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.sendkeys import SendKeys, Sent

    Row = tuple[bytes, int, bytes, Callable[[Accepted | PixiuError], object], int]
    """Payload, time, key, who is told, how often it may be tried."""

__all__ = ["Appends"]

_new = tuple.__new__

TRIES_MAX = 3
"""The log may say that its memory of keys does not reach back to where the index is: how often to catch up."""

TIMED_ONE_IN = 16
"""Appends whose way into the log is timed while many are on it; one that is alone always is, and of those that go
together the first."""


class Appends:
    """Appends to ``pixiu.main``, a bounded number at a time."""

    def __init__(
        self,
        log: Log,
        keys: SendKeys,
        clock: Clock,
        scheduler: Scheduler,
        *,
        applied: Callable[[], int],
        when_applied: Callable[[int, Callable[[], object]], object],
        in_flight_max: int,
        traces: TraceRows | None = None,
        link: str = "",
    ) -> None:
        """``link`` is what ``traces`` are told that an append goes to: the node that has the log."""
        self._log = log
        self._takes_all = log if isinstance(log, AppendsAll) else None
        self._soon = scheduler.soon
        self._gathered: list[Row] = []
        """Those of this turn that go together; they are in flight."""
        self._is_answering = False
        """Are those who went together told? Whoever goes on at that is one of many, too."""
        self._submitted = self._completed = 0
        """Calls of the log, and those that it has answered, in order."""
        self._held: deque[tuple[int, Callable[[Accepted | PixiuError], object], Accepted]] = deque()
        """Repeats that the index knows, and the call that they came behind: whoever goes on when it is told, such as
        with a message to somebody who was just created, does not overtake. They are in flight."""
        self._keys = keys
        self._clock = clock
        self._applied = applied
        self._when_applied = when_applied
        self._in_flight_max = in_flight_max
        self.in_flight = 0
        self.waiting = 0
        """For the index to catch up; bounded likewise."""
        self.repeats = 0
        self.accepted = 0
        self.accept_seconds = Histogram(HOP_SECONDS)
        self._untimed = 0
        self._traces = traces or TraceRows()
        self._link = link

    def append(
        self,
        payload: bytes,
        at: int,
        key: bytes,
        done: Callable[[Accepted | PixiuError], object],
        tries: int = TRIES_MAX,
    ) -> None:
        """``done`` is told when it is committed, and at once or in the next turn if it was before."""
        row: Row = (payload, at, key, done, tries)
        is_one_of_many = (self.in_flight or self._is_answering) and self._takes_all is not None
        if is_one_of_many and self.in_flight < self._in_flight_max:
            self.in_flight += 1
            self._gathered.append(row)
            if len(self._gathered) == 1:
                self._soon(self.flush)
            return
        applied = 0
        if key:
            applied = self._applied()
            try:
                sent = self._keys.get(key)
            except PixiuError as error:
                done(error)
                return
            if sent is not None:
                self.repeats += 1
                done(Accepted(sent.message_id, sent.event_id, sent.at, is_repeat=True))
                return
        if self.in_flight >= self._in_flight_max:
            done(Overloaded(f"{self.in_flight} actions are on their way into the log already", retry_after_ms=100))
            return
        committed: Callable[[Appended | PixiuError], object] = partial(self._committed, row)
        self._untimed += 1
        if not self.in_flight or self._untimed >= TIMED_ONE_IN:
            self._untimed = 0
            committed = partial(self._timed, self._clock.monotonic_us(), committed)
        self.in_flight += 1
        self._submitted += 1
        self._log.append(MAIN, payload, committed, key=key, unless_after=applied)

    @property
    def is_gathering(self) -> bool:
        """Do some wait for the end of this turn?"""
        return bool(self._gathered)

    def flush(self) -> None:
        """Append what was gathered."""
        gathered, self._gathered = self._gathered, []
        if self._takes_all is None or not gathered:
            return
        applied = self._applied()
        try:
            known = self._keys.find([key for _, _, key, _, _ in gathered if key])
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            gathered = self._refused(gathered, error)
        else:
            if known:
                gathered = self._without_repeats(gathered, known)
        payloads, keys = [row[0] for row in gathered], [row[2] for row in gathered]
        if gathered:
            committed = partial(self._all_committed, self._clock.monotonic_us(), gathered)
            self._submitted += 1
            self._takes_all.append_all(MAIN, payloads, keys, committed, unless_after=applied)

    def _refused(self, gathered: list[Row], error: Exception) -> list[Row]:
        """The index gives no answer: those with keys cannot go. Returns the others."""
        if isinstance(error, PixiuError):
            refusal = error
        else:
            refusal = PixiuError("something is wrong on this side; it has been noted")
            raise_apart(self._soon, error)
        for _, _, key, done, _ in gathered:
            if key:
                self.in_flight -= 1
                self._tell(done, refusal)
        return [row for row in gathered if not row[2]]

    def _without_repeats(self, gathered: list[Row], known: dict[bytes, Sent]) -> list[Row]:
        """Answer those that the index knows. Returns the others."""
        for _, _, key, done, _ in gathered:
            if key in known:
                message_id, event_id, at = known[key]
                self._held.append((self._submitted, done, Accepted(message_id, event_id, at, is_repeat=True)))
        self._release()
        return [row for row in gathered if row[2] not in known]

    def _release(self) -> None:
        """Tell those who are held, if what they came behind is answered; behind those of it who wait for the index."""
        while self._held and self._held[0][0] <= self._completed:
            _, done, outcome = self._held.popleft()
            self.in_flight -= 1
            self.repeats += 1
            if self.waiting:
                self._wait(self._log.committed, partial(done, outcome), done)
            else:
                self._tell(done, outcome)

    def _all_committed(self, begun_us: int, gathered: list[Row], results: Sequence[Appended | PixiuError]) -> None:
        self._time(begun_us)
        self.in_flight -= len(gathered)
        self._is_answering = True
        for row, result in zip(gathered, results, strict=True):
            try:
                if type(result) is Appended and not result[2]:
                    self.accepted += 1
                    row[3](_new(Accepted, (result[1], result[0], row[1], False, ())))
                else:
                    self._answer(row, result)
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                raise_apart(self._soon, error)
        self._is_answering = False
        self._completed += 1
        self._release()

    def _tell(self, done: Callable[[Accepted | PixiuError], object], outcome: Accepted | PixiuError) -> None:
        """One who fails at that fails alone: it is noted in a turn of its own."""
        try:
            done(outcome)
        except Exception as error:  # noqa: BLE001 - the others are told all the same
            raise_apart(self._soon, error)

    def _timed(
        self,
        begun_us: int,
        committed: Callable[[Appended | PixiuError], object],
        appended: Appended | PixiuError,
    ) -> None:
        self._time(begun_us)
        committed(appended)

    def _time(self, begun_us: int) -> None:
        took_us = self._clock.monotonic_us() - begun_us
        self.accept_seconds.observe(took_us / 1e6)
        self._traces.timed(ACCEPT, self._link, took_us)

    def _committed(self, row: Row, appended: Appended | PixiuError) -> None:
        self.in_flight -= 1
        try:
            self._answer(row, appended)
        finally:
            self._completed += 1
            self._release()

    def _answer(self, row: Row, appended: Appended | PixiuError) -> None:
        _, at, _, done, _ = row
        if isinstance(appended, PixiuError):
            if isinstance(appended, Conflict):
                self._behind(row, appended)
            else:
                done(appended)
            return
        event_id, message_id, is_repeat = appended
        if is_repeat:
            self.repeats += 1
            self._wait(event_id, lambda: self._found(row, appended), done)
        else:
            self.accepted += 1
            done(_new(Accepted, (message_id, event_id, at, False, ())))

    def _behind(self, row: Row, refusal: PixiuError) -> None:
        """The index is too far behind for the log: wait until it has caught up, and look again."""
        payload, at, key, done, tries = row
        if tries <= 1:
            done(Unavailable(f"the index of sends is behind the log: {refusal}", retry_after_ms=1000))
            return
        self._wait(self._log.committed, lambda: self.append(payload, at, key, done, tries - 1), done)

    def _wait(self, event_id: int, call: Callable[[], object], done: Callable[[Accepted | PixiuError], object]) -> None:
        """Go on when the index is there; refuse when too many wait for that already."""
        if self.waiting >= self._in_flight_max:
            done(Unavailable(f"{self.waiting} actions wait for the index of sends already", retry_after_ms=1000))
            return
        self.waiting += 1

        def applied() -> None:
            self.waiting -= 1
            call()

        self._when_applied(event_id, applied)

    def _found(self, row: Row, appended: Appended) -> None:
        """The first one is applied now, so the index knows when it was."""
        _, at, key, done, _ = row
        try:
            sent = self._keys.get(key)
        except PixiuError:
            sent = None
        done(Accepted(appended.message_id, appended.event_id, sent.at if sent is not None else at, is_repeat=True))
