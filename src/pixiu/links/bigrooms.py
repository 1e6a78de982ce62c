"""Which rooms are big, as the registry has it: watched, polled, and changed by compare-and-set.

Gateways and proxies follow it; brokers see to it that a room which is to become big does (``BigRoomKeeper``). Whoever
finds a room too hot for one broker proposes it: a person with a plan, or a broker that has counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.bigrooms import JOINING, BigMap
from pixiu.model.errors import Conflict, PixiuError
from pixiu.model.partitions import is_slice, partition_of
from pixiu.ports.registry import SessionState, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.directory import RoleView
    from pixiu.machines.bigrooms import BigRoom
    from pixiu.ports.clock import Clock
    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["BigRoomKeeper", "BigRooms", "big_rooms_path"]

log = logging.getLogger(__name__)

RETRY_MS = 500
LOOK_MS = 1_000
HOT_ROWS = 3
"""A room is proposed when so many reports in a row were above a bound: one shout is no reason."""
HOT_MAX = 1_024


def big_rooms_path(root: str) -> str:
    """Where the record is."""
    return f"{root}/rooms/big"


class BigRooms:
    """The record, as one process knows it."""

    def __init__(self, registry: Registry, clock: Clock, scheduler: Scheduler, root: str, poll_ms: int) -> None:
        self.map = BigMap()
        self._clock = clock
        self.is_read = False
        self.when_changed: list[Callable[[], object]] = []
        """Told after the first reading, too."""
        self._registry = registry
        self._scheduler = scheduler
        self._root = root
        self._poll_ms = poll_ms
        self._timer: Timer | None = None
        self._is_stopped = False
        registry.when_session(self._session)

    def start(self) -> None:
        """Read, watch and poll."""
        self._registry.watch(f"{self._root}/rooms", self.refresh)
        self._poll()

    def stop(self) -> None:
        """No more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def has_whole(self, room: BigRoom) -> bool:
        """Is a big room told of as a room, too?"""
        return room.has_whole(self._clock.now_ms())

    def refresh(self) -> None:
        """Read it again."""
        if not self._is_stopped:
            self._registry.read(big_rooms_path(self._root), self._found)

    def propose(self, name: str, done: Callable[[PixiuError | None], object]) -> None:
        """Let a room become big. ``Conflict``: it is already, or somebody else has just changed the record."""
        try:
            record = self.map.joined(name)
        except PixiuError as error:
            done(error)
        else:
            self._write(record, done)

    def split(self, number: int, clean_at_ms: int, done: Callable[[PixiuError | None], object]) -> None:
        """Everyone is in the slices: let proxies send there."""
        try:
            record = self.map.split(number, clean_at_ms)
        except PixiuError as error:
            done(error)
        else:
            self._write(record, done)

    # Steps.

    def _write(self, record: dict[str, object], done: Callable[[PixiuError | None], object]) -> None:
        def written(result: int | PixiuError) -> None:
            self.refresh()
            done(result if isinstance(result, PixiuError) else None)

        self._registry.write(Write(big_rooms_path(self._root), record, self.map.version), written)

    def _poll(self) -> None:
        if not self._is_stopped:
            self.refresh()
            self._timer = self._scheduler.after(self._poll_ms, self._poll)

    def _found(self, found: Folder | PixiuError) -> None:
        if self._is_stopped:
            return
        if isinstance(found, PixiuError):
            if not self.is_read:
                self._scheduler.after(RETRY_MS, self.refresh)
            return
        entry = found.get("")
        version = -1 if entry is None else entry.version
        if self.is_read and version <= self.map.version:
            return
        self.is_read = True
        self.map = BigMap(None if entry is None else entry.data, version)
        for call in self.when_changed:
            call()

    def _session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self.is_read:
            self.refresh()


class BigRoomKeeper:
    """A broker's part: it proposes rooms that are too hot, and lets them split when every gateway has joined."""

    def __init__(
        self,
        bigs: BigRooms,
        brokers: RoleView,
        gateways: RoleView,
        clock: Clock,
        scheduler: Scheduler,
        *,
        partition: int,
        settle_ms: int,
        lasts_ms: int,
        members_max: int,
        deliveries_max: int,
    ) -> None:
        """``settle_ms``: news of everyone has come everywhere by then. ``lasts_ms``: and everyone has read the record.

        A room with more than ``members_max`` sessions, or ``deliveries_max`` a second, is proposed; 0: never.
        """
        self.proposed = 0
        self._bigs = bigs
        self._brokers = brokers
        self._gateways = gateways
        self._clock = clock
        self._scheduler = scheduler
        self._partition = partition
        self._settle_ms = settle_ms
        self._lasts_ms = lasts_ms
        self._members_max = members_max
        self._deliveries_max = deliveries_max
        self._joined_ms: dict[int, int] = {}
        self._hot: dict[str, int] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look about once a second."""
        self._timer = self._scheduler.after(LOOK_MS, self._tick)

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def report(self, room: str, number: int, members: int, deliveries_per_second: float) -> None:
        """What a room has cost within about a second."""
        is_hot = bool(
            (self._members_max and members > self._members_max)
            or (self._deliveries_max and deliveries_per_second > self._deliveries_max)
        )
        if not is_hot or is_slice(number) or number in self._bigs.map.rooms:
            self._hot.pop(room, None)
            return
        rows = self._hot[room] = self._hot.pop(room, 0) + 1
        if len(self._hot) > HOT_MAX:
            del self._hot[next(iter(self._hot))]
        if rows == HOT_ROWS:
            self.proposed += 1
            log.warning("a room is too hot for one broker, and becomes big", extra={"room": room, "members": members})
            self._bigs.propose(room, lambda error: self._proposed(room, error))

    def _proposed(self, room: str, error: PixiuError | None) -> None:
        if error is not None:  # somebody else was first, or the registry is away: it is proposed again if it stays hot
            self._hot.pop(room, None)
            if not isinstance(error, Conflict):
                log.warning("a room could not become big", extra={"room": room, "reason": str(error)})

    def _tick(self) -> None:
        self._timer = self._scheduler.after(LOOK_MS, self._tick)
        counts, record = self._brokers.counts, self._bigs.map
        for room in record.rooms.values():
            if room.phase == JOINING and partition_of(room.number, counts.count) == self._partition:
                self._look(room, record.version)

    def _look(self, room: BigRoom, version: int) -> None:
        """Has every gateway told of the slices, long enough ago?"""
        now_ms = self._clock.monotonic_us() // 1000
        if any(info.big <= version for info in self._gateways.peers.values()):
            self._joined_ms.pop(room.number, None)
            return
        if now_ms - self._joined_ms.setdefault(room.number, now_ms) >= self._settle_ms:
            del self._joined_ms[room.number]
            log.info("a room is big from now on", extra={"room": room.name, "index": room.place})
            self._bigs.split(room.number, self._clock.now_ms() + self._lasts_ms, lambda _error: None)
