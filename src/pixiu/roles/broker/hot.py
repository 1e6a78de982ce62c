"""Which rooms are hot now: those with the most deliveries per second, from the rows that a broker reports."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pixiu.ports.clock import Clock
    from pixiu.roles.broker.broker import RoomRow

__all__ = ["HotRoom", "HotRooms"]

SPAN_MS = 5000
"""Rates are means over one to two of these."""
ROOMS_MAX = 4096
"""Rooms remembered per span. At the bound the cooler half is forgotten."""


class HotRoom(NamedTuple):
    """One room and its rates per second."""

    room: str
    deliveries: float
    messages: float
    bytes: float
    members: int
    users: int


class _Sums:
    __slots__ = ("bytes", "deliveries", "members", "messages", "users")

    def __init__(self) -> None:
        self.deliveries = self.messages = self.bytes = self.members = self.users = 0

    def add(self, row: RoomRow) -> None:
        self.deliveries += row.deliveries
        self.messages += row.messages
        self.bytes += row.bytes
        self.members, self.users = row.members, row.users


class HotRooms:
    """Sums of the present span and the one before it, in bounded memory."""

    def __init__(self, clock: Clock, *, span_ms: int = SPAN_MS, rooms_max: int = ROOMS_MAX) -> None:
        self._clock = clock
        self._span_ms = span_ms
        self._rooms_max = rooms_max
        self._sums: dict[str, _Sums] = {}
        self._before: dict[str, _Sums] = {}
        self._began_ms = self._before_ms = self._now_ms()

    def report(self, row: RoomRow) -> None:
        """What happened in one room within about a second."""
        self._turn()
        sums = self._sums.get(row.room)
        if sums is None:
            if len(self._sums) >= self._rooms_max:
                kept = nlargest(self._rooms_max // 2, self._sums.items(), key=lambda pair: pair[1].deliveries)
                self._sums = dict(kept)
            sums = self._sums[row.room] = _Sums()
        sums.add(row)

    def top(self, limit: int) -> list[HotRoom]:
        """The hottest rooms, hottest first. Rooms that nobody talks in are not among them."""
        self._turn()
        seconds = max(self._now_ms() - self._before_ms, 1000) / 1000
        found: list[HotRoom] = []
        for room in self._before.keys() | self._sums.keys():
            parts = [sums for sums in (self._before.get(room), self._sums.get(room)) if sums is not None]
            if any(part.messages for part in parts):
                latest = parts[-1]
                found.append(
                    HotRoom(
                        room,
                        round(sum(part.deliveries for part in parts) / seconds, 3),
                        round(sum(part.messages for part in parts) / seconds, 3),
                        round(sum(part.bytes for part in parts) / seconds, 3),
                        latest.members,
                        latest.users,
                    )
                )
        return nlargest(limit, found, key=lambda each: (each.deliveries, each.messages, each.room))

    def _turn(self) -> None:
        """Begin a new span when the present one is over."""
        now_ms = self._now_ms()
        passed = now_ms - self._began_ms
        if passed >= self._span_ms:
            is_recent = passed < 2 * self._span_ms
            self._before, self._sums = (self._sums, {}) if is_recent else ({}, {})
            self._before_ms, self._began_ms = (self._began_ms if is_recent else now_ms), now_ms

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000
