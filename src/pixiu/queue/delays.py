"""Delayed publishes: stored, due at a time, fired once.

A delay is a journal record; the store keeps its payload under its due time, so that thousands wait without memory.
Firing is a record too, and the entry goes in the same store batch that follows it: never twice, never lost. Due times
are compared with a clock that does not follow steps of the wall clock while this process runs, so that setting the
time neither fires early nor holds back.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.ports.clock import Clock
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.queue.storage.changes import Changes

FIRE_AT_ONCE_MAX = 512
READINGS = 5
"""Of the wall clock, when the steady one is set: enough that one of them is not interrupted."""

_DUE_PREFIX = b"d"
_ID_PREFIX = b"D"
_DUE = Struct(">qq")
_BIG = Struct(">q")
_NAME = Struct("<H")
HEAD = Struct("<qq")
"""What a Delay record and its firing begin with: due time, event id of the Delay record."""


class Delayed(NamedTuple):
    """One publish that waits."""

    due_ms: int
    event_id: int
    topic: bytes
    payload: bytes


class Delays:
    """All that waits, ordered by due time, then by event id."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store

    def add(self, delayed: Delayed, changes: Changes) -> None:
        """Keep it until it is due."""
        value = _NAME.pack(len(delayed.topic)) + delayed.topic + delayed.payload
        changes.put(_DUE_PREFIX + _DUE.pack(delayed.due_ms, delayed.event_id), value)
        changes.put(_ID_PREFIX + _BIG.pack(delayed.event_id), _BIG.pack(delayed.due_ms))

    def remove(self, due_ms: int, event_id: int, changes: Changes) -> None:
        """It was fired, dropped or cancelled."""
        changes.delete(_DUE_PREFIX + _DUE.pack(due_ms, event_id))
        changes.delete(_ID_PREFIX + _BIG.pack(event_id))

    def due_of(self, event_id: int) -> int | None:
        """When the delay of that event id is due; None if it does not wait."""
        value = self._store.get(_ID_PREFIX + _BIG.pack(event_id))
        return None if value is None else int(_BIG.unpack(value)[0])

    def get(self, due_ms: int, event_id: int) -> Delayed | None:
        """One that waits."""
        key = _DUE_PREFIX + _DUE.pack(due_ms, event_id)
        value = self._store.get(key)
        return None if value is None else _delayed(key, value)

    def next_due(self) -> int | None:
        """When the first one is due."""
        for key, _ in self._store.scan(_DUE_PREFIX, bytes([_DUE_PREFIX[0] + 1])):
            return int(_BIG.unpack_from(key, 1)[0])
        return None

    def due(self, now_ms: int) -> Iterator[Delayed]:
        """Those whose time has come, in order."""
        for key, value in self._store.scan(_DUE_PREFIX, _DUE_PREFIX + _BIG.pack(now_ms + 1)):
            yield _delayed(key, value)

    def rows(self) -> Iterator[tuple[bytes, Delayed, bytes]]:
        """Everything that waits, with its key, and what its value has before the payload."""
        for key, value in self._store.scan(_DUE_PREFIX, bytes([_DUE_PREFIX[0] + 1])):
            delayed = _delayed(key, value)
            yield key, delayed, value[: len(value) - len(delayed.payload)]

    def after(self, event_id: int) -> Iterator[Delayed]:
        """All that wait with a greater event id, by event id."""
        for key, due in self._store.scan(_ID_PREFIX + _BIG.pack(event_id + 1), bytes([_ID_PREFIX[0] + 1])):
            place = _DUE_PREFIX + due + key[1:]
            value = self._store.get(place)
            if value is not None:
                yield _delayed(place, value)


def _delayed(key: bytes, value: bytes) -> Delayed:
    due_ms, event_id = _DUE.unpack_from(key, 1)
    (size,) = _NAME.unpack_from(value)
    return Delayed(due_ms, event_id, value[2 : 2 + size], value[2 + size :])


class Alarm:
    """Calls ``ring`` at the earliest moment anyone asked for, and looks again at least every ``look_again_ms``.

    The look-again is what makes a clock that was set, or a machine that slept, harmless: lateness is bounded even when
    the timer itself was wrong.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ring: Callable[[], int | None],
        now_ms: Callable[[], int],
        *,
        look_again_ms: int,
    ) -> None:
        self._look_again_ms = look_again_ms
        self._scheduler = scheduler
        self._ring = ring
        self._now_ms = now_ms
        self._timer: Timer | None = None
        self._at_ms = 0

    def set(self, at_ms: int) -> None:
        """Ring at ``at_ms``, unless it rings earlier anyway."""
        if self._timer is not None:
            if self._at_ms <= at_ms:
                return
            self._timer.cancel()
        wait_ms = min(max(at_ms - self._now_ms(), 0), self._look_again_ms)
        self._at_ms = at_ms
        self._timer = self._scheduler.after(wait_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        at_ms = self._ring()
        if at_ms is not None:
            self.set(at_ms)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SteadyClock:
    """The wall clock of the moment it was made, carried on by a clock that does not step."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A reading is at most right: the wall clock shows whole milliseconds, and time passes between the two looks.
        self._base_us = max(clock.now_ms() * 1000 - clock.monotonic_us() for _ in range(READINGS))

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as far as this process knows."""
        return (self._base_us + self._clock.monotonic_us()) // 1000
