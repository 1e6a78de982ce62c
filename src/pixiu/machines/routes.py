"""Who is in which room through which gateway, as routers and brokers know it: news in any order, the newest wins.

A gateway numbers what happens to its sessions (``version``), and every row of news says of one session in one room
whether it is in. Rows may come late, twice and overtaken: each is held against the newest that is known of the same
session and room, never against what the gateway said of others (E11). Who has left is remembered for a while, so that
a late row does not bring it back.

Two kinds of repair. A **snapshot** lists what is, and up to which version of each gateway it is complete: what it does
not list and is not newer goes. A **digest** is the number and a mix of all rows, kept for each of 256 parts of the
rooms, so that any partition's digest is a sum: two tables that differ are found without reading them.

``nobody`` is a row about a whole room at a gateway: whoever it said was there before is not (negative feedback, X39).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.partitions import PARTITIONS_MAX, owns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["GONE_MAX", "Digest", "RouteRow", "RouteTable", "nobody"]

GONE_MAX = 65_536
"""Leaves remembered; a row that is late by more than so many leaves could come back, until a digest finds it."""

_MASK = 2**64 - 1


class RouteRow(NamedTuple):
    """News of one session in one room."""

    room: int
    name: str
    user: int
    session_id: int
    """0: all sessions of this gateway in this room."""
    gateway: int
    """The gateway's boot id: its next life has another."""
    version: int
    is_in: bool


class Digest(NamedTuple):
    """What a set of rows comes to."""

    size: int
    mix: int


def nobody(room: int, name: str, gateway: int, version: int) -> RouteRow:
    """Nobody is in this room at this gateway."""
    return RouteRow(room, name, 0, 0, gateway, version, is_in=False)


class RouteTable:
    """Rows by room. ``apply`` tells what has changed, so that a broker can follow."""

    def __init__(self, *, gone_max: int = GONE_MAX) -> None:
        self._rooms: dict[int, dict[int, RouteRow]] = {}
        self._gateways: dict[int, dict[tuple[int, int], None]] = {}
        self._gone: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._gone_max = gone_max
        self._digests = [(0, 0)] * PARTITIONS_MAX
        self._digests_of: dict[int, tuple[int, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    # Questions.

    def of(self, room: int) -> list[RouteRow]:
        """Everyone in a room."""
        return list(self._rooms.get(room, {}).values())

    def count(self, room: int) -> int:
        """How many are in a room."""
        return len(self._rooms.get(room, ()))

    def has(self, room: int, session_id: int) -> bool:
        """Is a session in a room?"""
        return session_id in self._rooms.get(room, ())

    def gateways(self) -> list[int]:
        """All gateways that somebody is at."""
        return sorted(self._gateways)

    def rows(self, partition: int = 0, count: int = 1) -> Iterator[RouteRow]:
        """Everyone in the rooms of a partition, room by room."""
        for room, rows in self._rooms.items():
            if owns(partition, room, count):
                yield from rows.values()

    def digest(self, partition: int = 0, count: int = 1, *, of: tuple[int, int] = (0, 1)) -> Digest:
        """What the rows come to that two partitions share, each given as a number and a count."""
        total, mix = 0, 0
        for bucket, (each, mixed) in enumerate(self._digests[partition % count :: count]):
            if each and (of[1] == 1 or owns(of[0], bucket * count + partition % count, of[1])):
                total, mix = total + each, mix ^ mixed
        return Digest(total, mix)

    def digest_of(self, gateway: int) -> Digest:
        """What all rows of a gateway come to."""
        return Digest(*self._digests_of.get(gateway, (0, 0)))

    # Changes: each returns the rows by which the table is different now.

    def apply(self, row: RouteRow) -> list[RouteRow]:
        """News. Nothing changes if newer news is known; the same again is no news."""
        if not row.session_id:
            return self._nobody(row)
        rows = self._rooms.get(row.room)
        before = rows.get(row.session_id) if rows is not None else None
        key = (row.room, row.session_id)
        newest = before.version if before is not None else self._gone.get(key, -1)
        if newest >= row.version:
            return []
        if before is not None:
            self._remove(before)
        if row.is_in:
            self._gone.pop(key, None)
            self._add(row)
        else:
            self._remember(key, row.version)
        return [row] if row.is_in or before is not None else []

    def purge(self, gateway: int) -> list[RouteRow]:
        """A gateway is gone for good, and everyone who was there."""
        gone = [self._rooms[room][session_id] for room, session_id in self._gateways.get(gateway, ())]
        for row in gone:
            self._remove(row)
        return [row._replace(is_in=False) for row in gone]

    def snapshot(
        self, rows: Iterable[RouteRow], marks: Mapping[int, int], partition: int = 0, count: int = 1
    ) -> list[RouteRow]:
        """What another table holds of a partition; ``marks``: through which version of each gateway it is complete."""
        listed: set[tuple[int, int]] = set()
        changed: list[RouteRow] = []
        for row in rows:
            listed.add((row.room, row.session_id))
            changed += self.apply(row)
        for gateway, mark in marks.items():
            for key in list(self._gateways.get(gateway, ())):
                row = self._rooms[key[0]][key[1]]
                if key not in listed and row.version <= mark and owns(partition, row.room, count):
                    self._remove(row)
                    self._remember(key, mark)
                    changed.append(row._replace(version=mark, is_in=False))
        return changed

    def keep(self, partition: int, count: int) -> list[RouteRow]:
        """Only the rooms of this partition stay: the doubling is over (X17)."""
        gone = [row for rows in self._rooms.values() for row in rows.values() if not owns(partition, row.room, count)]
        for row in gone:
            self._remove(row)
        return [row._replace(is_in=False) for row in gone]

    # Steps.

    def _nobody(self, row: RouteRow) -> list[RouteRow]:
        stale = [
            each
            for each in self._rooms.get(row.room, {}).values()
            if each.gateway == row.gateway and each.version < row.version
        ]
        for each in stale:
            self._remove(each)
            self._remember((each.room, each.session_id), row.version)
        return [each._replace(version=row.version, is_in=False) for each in stale]

    def _add(self, row: RouteRow) -> None:
        self._rooms.setdefault(row.room, {})[row.session_id] = row
        self._gateways.setdefault(row.gateway, {})[row.room, row.session_id] = None
        self._count += 1
        self._mix(row, 1)

    def _remove(self, row: RouteRow) -> None:
        rows = self._rooms[row.room]
        del rows[row.session_id]
        if not rows:
            del self._rooms[row.room]
        keys = self._gateways[row.gateway]
        del keys[row.room, row.session_id]
        if not keys:
            del self._gateways[row.gateway]
        self._count -= 1
        self._mix(row, -1)

    def _mix(self, row: RouteRow, step: int) -> None:
        bucket = row.room % PARTITIONS_MAX
        mixed = _mixed(row)
        count, mix = self._digests[bucket]
        self._digests[bucket] = (count + step, mix ^ mixed)
        count, mix = self._digests_of.get(row.gateway, (0, 0))
        if count + step:
            self._digests_of[row.gateway] = (count + step, mix ^ mixed)
        else:
            del self._digests_of[row.gateway]

    def _remember(self, key: tuple[int, int], version: int) -> None:
        self._gone[key] = max(version, self._gone.pop(key, version))
        if len(self._gone) > self._gone_max:
            self._gone.popitem(last=False)


def _mixed(row: RouteRow) -> int:
    """64 bits of a row, the same everywhere."""
    value = (row.room * 0x9E3779B97F4A7C15 + row.session_id * 0xD1B54A32D192ED03 + row.version) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
