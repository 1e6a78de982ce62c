"""Rooms that are too big for one broker: each is 64 virtual rooms, its slices, and a user is in one of them.

Which rooms are big stands in one record of the registry, which changes by compare-and-set::

    {"next": 2, "rooms": {"stadium": {"index": 0, "phase": "split", "clean_at": 1760000180000},
                          "match": {"index": 1, "phase": "joining", "clean_at": 0}}}

A room becomes big while people talk in it, in three steps:

| phase | gateways tell routers of | proxies send to |
|---|---|---|
| joining | the room and the slice of each session | the room |
| split, until ``clean_at`` | both | the 64 slices and the room |
| split, afterwards | the slice | the slices |

Brokers may learn of a slice late, if the way from a gateway is cut: so the room itself is sent to as long as everyone
is told of there. Who hears of something both ways is shown it once (``Overlap``). A room that is big stays so, and an
index is never given twice.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.machines.rooms import room_number
from pixiu.model.errors import Conflict, TooLarge
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS
from pixiu.model.partitions import SLICES, is_slice, slice_of, slices

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BIG_ROOMS_MAX", "JOINING", "SPLIT", "BigMap", "BigRoom", "Overlap", "SliceAcks"]

JOINING, SPLIT = "joining", "split"
BIG_ROOMS_MAX = 4_096
"""The record must fit one node of the registry."""
ACKS_MAX = 100_000
"""Reliable messages of big rooms on their way; who was forgotten is sent again, and confirmed then."""
NEWEST_MAX = 65_536

Place = int | tuple[int, int]
"""A room, a slice, or one session in a room."""

_ALL = 2**SLICES - 1
_WHOLE = 1 << SLICES


class BigRoom(NamedTuple):
    """One big room."""

    name: str
    number: int
    """As an ordinary room."""
    place: int
    """Among big rooms: which slices it has."""
    phase: str
    clean_at_ms: int
    """Since 1970: then nobody sends to the room itself any more."""

    @property
    def rooms(self) -> range:
        """Its slices."""
        return slices(self.place)

    def slice(self, user: int) -> int:
        """The slice of one user."""
        return slice_of(self.place, user)

    def has_whole(self, now_ms: int) -> bool:
        """Do gateways still tell of the room itself?"""
        return self.phase == JOINING or now_ms < self.clean_at_ms


class BigMap:
    """The record, read."""

    def __init__(self, data: Mapping[str, Any] | None = None, version: int = -1) -> None:
        """What is damaged or unknown in the record is left out."""
        self.version = version
        self.rooms: dict[int, BigRoom] = {}
        given = data or {}
        rooms = given.get("rooms")
        for name, row in (rooms if isinstance(rooms, dict) else {}).items():
            room = _room(name, row)
            if room is not None:
                self.rooms[room.number] = room
        following = given.get("next")
        used = [room.place + 1 for room in self.rooms.values()]
        self.next = max([following if isinstance(following, int) else 0, *used])

    def joined(self, name: str) -> dict[str, object]:
        """The record with one more room. Raises ``Conflict`` if it is big already, ``TooLarge`` at the bound."""
        if room_number(name) in self.rooms:
            raise Conflict(f"room {name!r} is big already")
        if len(self.rooms) >= BIG_ROOMS_MAX:
            raise TooLarge(f"there are {len(self.rooms)} big rooms; more than {BIG_ROOMS_MAX} cannot be")
        room = BigRoom(name, room_number(name), self.next, JOINING, 0)
        return self._record([*self.rooms.values(), room], self.next + 1)

    def split(self, number: int, clean_at_ms: int) -> dict[str, object]:
        """The record with a room that is split from now on. Raises ``Conflict`` unless it is joining."""
        room = self.rooms.get(number)
        if room is None or room.phase != JOINING:
            raise Conflict("the room is not joining")
        after = room._replace(phase=SPLIT, clean_at_ms=clean_at_ms)
        return self._record([after if each is room else each for each in self.rooms.values()], self.next)

    @staticmethod
    def _record(rooms: list[BigRoom], following: int) -> dict[str, object]:
        rows = {room.name: {"index": room.place, "phase": room.phase, "clean_at": room.clean_at_ms} for room in rooms}
        return {"next": following, "rooms": rows}


def _room(name: object, row: object) -> BigRoom | None:
    if not isinstance(name, str) or not isinstance(row, dict):
        return None
    index, phase, clean_at = row.get("index"), row.get("phase"), row.get("clean_at")
    if not isinstance(index, int) or phase not in (JOINING, SPLIT) or not isinstance(clean_at, int):
        return None
    try:
        slices(index)
    except ValueError:
        return None
    return BigRoom(name, room_number(name), index, str(phase), clean_at)


class SliceAcks:
    """Which slices of a message are settled, at the proxy that has sent them. Bounded."""

    def __init__(self, count_max: int = ACKS_MAX) -> None:
        self._left: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._left)

    def sent(self, publisher: int, message_id: int, *, has_whole: bool = False) -> None:
        """All slices of a message are on their way, and ``has_whole``: so is the room itself.

        What was settled of it before stays so.
        """
        key = (publisher, message_id)
        left = self._left.get(key, _ALL | _WHOLE)
        self._left[key] = left if has_whole else left & _ALL or _ALL
        if len(self._left) > self._count_max:
            self._left.popitem(last=False)

    def has(self, publisher: int, message_id: int) -> bool:
        """Is it waited for?"""
        return (publisher, message_id) in self._left

    def settled(self, publisher: int, message_id: int, room: int) -> bool:
        """One slice is settled, or the room itself. True if it was the last one."""
        key = (publisher, message_id)
        left = self._left.get(key)
        if left is None:
            return False
        left &= ~(1 << room % SLICES if is_slice(room) else _WHOLE)
        if left:
            self._left[key] = left
        else:
            del self._left[key]
        return not left


class Overlap:
    """While a room becomes big, a session may be sent the same over the room and over its slice: it gets it once.

    And what one publisher said is not shown behind what it said later: its ids rise, so the newest of each publisher
    that a slice was shown is enough to know. Live talk alone needs that; reliable talk is sent one at a time.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[Place, int], int] = OrderedDict()

    def is_late(self, room: Place, message_id: int) -> bool:
        """Was this room, slice or session shown this, or something newer of the same publisher?"""
        return self._newest.get((room, _publisher(message_id)), 0) >= message_id

    def shown(self, room: Place, message_id: int) -> None:
        """A room, slice or session was shown this."""
        key = (room, _publisher(message_id))
        self._newest[key] = max(message_id, self._newest.pop(key, 0))
        if len(self._newest) > NEWEST_MAX:
            self._newest.popitem(last=False)

    def forget(self, rooms: range, room: int) -> None:
        """It is over."""
        gone = [key for key in self._newest if _room_of(key[0]) == room or _room_of(key[0]) in rooms]
        for key in gone:
            del self._newest[key]


def _room_of(place: Place) -> int:
    return place[0] if isinstance(place, tuple) else place


def _publisher(message_id: int) -> int:
    """The number of the one who gave an id."""
    return message_id >> SEQUENCE_BITS & (1 << NODE_BITS) - 1
