"""How things went, on its way to the log: a record a second while there is anything, rooms once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.traces import TraceRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.broker.broker import RoomRow

__all__ = ["ROOMS_MS", "SESSIONS_MS", "WRITE_MS", "Tracing"]

WRITE_MS = 1_000
"""Rows wait this long for more."""
ROOMS_MS = 60_000
SESSIONS_MS = 3_600_000
"""How many sessions there are is said this often at least, while there are any."""


class Tracing:
    """The rows of one node, and the timers that write them."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        write: Callable[[bytes], object],
        *,
        node: int,
        hop_sample: int,
    ) -> None:
        """``write`` never raises; what it cannot write it drops: that costs a gap in a chart."""
        self.rows = TraceRows(node=node, hop_sample=hop_sample, added=self._added)
        self._clock = clock
        self._scheduler = scheduler
        self._write_record = write
        self._timer: Timer | None = None
        self._rooms_timer: Timer | None = None
        self._sessions_timer: Timer | None = None
        self._is_stopped = False

    def room(self, row: RoomRow) -> None:
        """What happened in a live room within about a second."""
        is_full = self.rows.room(
            row.room, row.at, row.messages, row.deliveries, row.bytes, row.members, row.users
        )  # fmt: skip
        if is_full:
            self._write_rooms()
        elif self._rooms_timer is None and not self._is_stopped:
            self._rooms_timer = self._scheduler.after(ROOMS_MS, self._write_rooms)

    def stop(self) -> None:
        """Write what is there, and set no timer any more."""
        self._is_stopped = True
        self._write_rooms()
        self.write()
        if self._sessions_timer is not None:
            self._sessions_timer.cancel()

    def _added(self, is_full: bool) -> None:
        if is_full:
            self.write()
        elif self._timer is None and not self._is_stopped:
            self._timer = self._scheduler.after(WRITE_MS, self.write)

    def write(self) -> None:
        """Write what is there now, but for rooms."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for record in self.rows.take(self._clock.now_ms()):
            self._write_record(record)
        if self.rows.sessions and self._sessions_timer is None and not self._is_stopped:
            self._sessions_timer = self._scheduler.after(SESSIONS_MS, self._write_sessions)

    def _write_sessions(self) -> None:
        self._sessions_timer = None
        for record in self.rows.take_sessions(self._clock.now_ms()):
            self._write_record(record)
            self._sessions_timer = self._scheduler.after(SESSIONS_MS, self._write_sessions)

    def _write_rooms(self) -> None:
        if self._rooms_timer is not None:
            self._rooms_timer.cancel()
            self._rooms_timer = None
        for record in self.rows.take_rooms(self._clock.now_ms()):
            self._write_record(record)
