"""When history ends: finds what is older than ``messaging.history_ms``, and says so in the log.

Nothing is removed here. What is too old is written down as a record, which every reader of the log applies at the same
place: the carrier, its replicas, audits, rebuilds. ``TrimPlan`` decides what comes next, ``Trimming`` asks it every now
and then, and waits for each record to be applied before the next one: what a record is about to remove is not found.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import PixiuError
from pixiu.model.ids import first_id_of
from pixiu.model.pixiu_pb2 import HistoryTrimmed, Record
from pixiu.ports.log import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.config.messaging import MessagingSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.stores import Stores

__all__ = ["KEY_BYTES_MAX", "OWNERS_PER_TURN", "ROWS_MAX", "TrimPlan", "Trimming"]

log = logging.getLogger(__name__)

ROWS_MAX = 1_000
"""Rows of timelines, and send keys, that one record removes."""
KEY_BYTES_MAX = 32 * 1024
"""Bytes of the send keys that one record names."""
OWNERS_PER_TURN = 20
"""Users and groups that are looked at before others get their turn."""
FIRST_LOOK_MS = 60_000
"""The first look comes after this at most: a node that is often restarted looks, too."""
_KEYS_PER_PAGE = 100


class _Found(NamedTuple):
    """Something that is old enough, of one owner."""

    through: int
    size: int
    """Rows, or keys."""
    user: int = 0
    group: int = 0
    keys: tuple[bytes, ...] = ()


class TrimPlan:
    """One walk over all timelines and send keys: what is to go, record by record."""

    def __init__(self, stores: Stores, through: int) -> None:
        self._stores = stores
        self._through = through
        self._walk = self._look()
        self._left_over: _Found | None = None
        self.is_done = False

    def step(self) -> HistoryTrimmed | None:
        """What the next record is to say, None if nothing was found this time. Go on when it is applied."""
        change = HistoryTrimmed(through=self._through)
        count = key_bytes = owners = 0
        while owners < OWNERS_PER_TURN:
            found = self._next()
            if self.is_done:
                break
            if found is None:
                owners += 1
                continue
            new_bytes = sum(map(len, found.keys))
            if count and (
                found.through != self._through or count + found.size > ROWS_MAX or key_bytes + new_bytes > KEY_BYTES_MAX
            ):
                self._left_over = found
                break
            _add(change, found)
            count += found.size
            key_bytes += new_bytes
            if found.through != self._through:  # a part of a long timeline: a record of its own
                change.through = found.through
                break
        return change if count else None

    def _next(self) -> _Found | None:
        found, self._left_over = self._left_over, None
        if found is not None:
            return found
        try:
            return next(self._walk)
        except StopIteration:
            self.is_done = True
            return None

    def _look(self) -> Iterator[_Found | None]:
        """Whatever is found, and None behind each owner. User 0 has sent what the system and publishers said."""
        seen: set[int] = set()
        stores = self._stores
        for user in (0, *stores.users.all()):
            yield from self._in_private(user)
            yield from self._sent(user)
            yield None
            for group in (*stores.groups.groups_of(user), *stores.groups.past_groups_of(user)):
                if group not in seen:
                    seen.add(group)
                    yield from self._in_group(group)
                    yield None

    def _in_private(self, user: int) -> Iterator[_Found]:
        while True:
            rows = self._stores.timelines.private_forward(user, through=self._through, limit=ROWS_MAX + 1)
            if len(rows) <= ROWS_MAX:
                if rows:
                    yield _Found(self._through, len(rows), user=user)
                return
            yield _Found(rows[ROWS_MAX - 1].message_id, ROWS_MAX, user=user)

    def _in_group(self, group: int) -> Iterator[_Found]:
        while True:
            page = self._stores.timelines.group_forward(group, limit=ROWS_MAX + 1)
            rows = [row for row in page if row.message_id <= self._through]
            if len(rows) <= ROWS_MAX:
                if rows:
                    yield _Found(self._through, len(rows), group=group)
                return
            yield _Found(rows[ROWS_MAX - 1].message_id, ROWS_MAX, group=group)

    def _sent(self, user: int) -> Iterator[_Found | None]:
        after: bytes | None = b""
        while after is not None:
            page = self._stores.keys.page(user, after, _KEYS_PER_PAGE)
            old = tuple(key for key, sent in page.sent if sent.message_id <= self._through)
            for at in range(0, len(old), _KEYS_PER_PAGE):
                some = old[at : at + _KEYS_PER_PAGE]
                yield _Found(self._through, len(some), keys=some)
            after = page.after
            if after is not None:
                yield None


def _add(change: HistoryTrimmed, found: _Found) -> None:
    if found.user:
        change.users.append(found.user)
    if found.group:
        change.groups.append(found.group)
    change.keys.extend(found.keys)


class Trimming:
    """Looks every ``history_sweep_ms``, if history has an end; of several replicas, only the one that serves does."""

    def __init__(
        self,
        stores: Stores,
        queue: Log,
        clock: Clock,
        scheduler: Scheduler,
        settings: MessagingSettings,
        *,
        is_serving: Callable[[], bool],
        when_applied: Callable[[int, Callable[[], object]], object],
    ) -> None:
        self._stores = stores
        self._log = queue
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._is_serving = is_serving
        self._when_applied = when_applied
        self._plan: TrimPlan | None = None
        self._at = 0
        """When it was judged what is old."""
        self._timer: Timer | None = None
        self._is_running = False

    def start(self) -> None:
        """Look from now on."""
        if self._settings.history_ms and not self._is_running:
            self._is_running = True
            self._later(min(self._settings.history_sweep_ms, FIRST_LOOK_MS))

    def stop(self) -> None:
        """Look no more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, ms: int) -> None:
        if self._is_running:
            self._timer = self._scheduler.after(ms, self._turn)

    def _turn(self) -> None:
        if not self._is_running:
            return
        try:
            change = self._step() if self._is_serving() else None
        except PixiuError as error:
            self._give_up(error)
            return
        if change is not None:
            record = Record(at=self._at, trimmed=change)
            self._log.publish(MAIN, record.SerializeToString(), self._written)
        elif self._plan is not None and self._is_serving():
            self._later(1)
        else:
            self._plan = None
            self._later(self._settings.history_sweep_ms)

    def _step(self) -> HistoryTrimmed | None:
        plan = self._plan
        if plan is None:
            self._at = self._clock.now_ms()
            oldest = first_id_of(self._at - self._settings.history_ms)
            plan = self._plan = TrimPlan(self._stores, oldest - 1)
        change = plan.step()
        if plan.is_done:
            self._plan = None
        return change

    def _written(self, result: int | PixiuError) -> None:
        if isinstance(result, PixiuError):
            self._give_up(result)
        else:
            self._when_applied(result, lambda: self._later(1 if self._plan is not None else self._sweep_ms))

    @property
    def _sweep_ms(self) -> int:
        return self._settings.history_sweep_ms

    def _give_up(self, error: PixiuError) -> None:
        """A store or the log is down: what is old does not get younger."""
        log.warning("history is trimmed later", extra={"reason": str(error)})
        self._plan = None
        self._later(self._sweep_ms)
