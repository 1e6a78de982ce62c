"""Who listens in which room and through which gateway, and what is on its way to them.

Sans-IO: a broker tells ``Rooms`` what happened by calling the method of that name, and takes batches from it::

    entered, left, session_gone, gateway_gone      change who listens
    said                  ──▶ one Fan per gateway that has someone in the room
    take(gateway)         ──▶ batches of fans, each to become one frame
    settled               ◀── reliable fans that arrived, or were given up

A message costs the broker one step per gateway, however many sessions listen there: the gateway knows its sessions and
copies the message to each (X01). So the fan of a message is made once and shared by all gateways.

News of one session may arrive in any order: each carries a version, and the newest wins (the rules of the ``Routes``
port). Who has left is remembered with its version, in bounded memory.

Everything that waits is bounded. At the bound of a room or a gateway a live message is dropped: ``low`` priority before
``normal``, ``normal`` before ``high``, the oldest within a priority. The sessions get a ``gap`` with the number of
dropped messages. Reliable talk is refused before it is lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pixiu.machines.room_bodies import LINK_CLASSES, body_class
from pixiu.model.errors import NotAllowed, Overloaded, TooLarge
from pixiu.model.names import OWN_NUMBER_END, own_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pixiu.config.rooms import RoomSettings

__all__ = ["LEFT_MAX", "Fan", "Rooms", "Seat", "room_number", "sized"]

LEFT_MAX = 65_536
"""Leaves remembered."""

NO_GATEWAYS: Sequence[str] = ()
DROP_ORDER = sorted(LINK_CLASSES.values(), reverse=True)
"""The classes of live messages, the one that is dropped first in front."""
COMPACT_MIN = 1_000
"""A ``_DropQueue`` with fewer entries is not compacted."""

FRAME_BYTES, FAN_BYTES = 36, 21
"""What a frame and each of its fans need beside the bodies, in a datagram."""


def room_number(public_id: str) -> int:
    """The number of a room: its own, if it is called a small number, or else one made from its name.

    Rooms are not stored, so nobody gives them numbers: everyone who knows the name knows the number.
    """
    number = own_number(public_id)
    if number is None:
        digest = blake2b(public_id.encode(), digest_size=8).digest()
        number = (int.from_bytes(digest, "big") >> 1) | OWN_NUMBER_END
    return number


class Fan(NamedTuple):
    """One message for the sessions of one gateway in one room. Shared between gateways: read only."""

    room: int
    message_id: int
    """0: not something that was said, but counts or a gap."""
    body: bytes
    """The encoded push, ready for every session."""
    is_reliable: bool = False
    sessions: tuple[int, ...] | None = None
    """Only these; None is all that the gateway has in the room."""
    is_end: bool = False
    """These sessions are out of the room as soon as they have it."""


def sized(fans: list[Fan], bytes_max: int) -> list[list[Fan]]:
    """The same in parts that each fit a datagram; a fan that fits none is alone."""
    parts: list[list[Fan]] = []
    size = bytes_max + 1
    for fan in fans:
        needed = FAN_BYTES + len(fan.body) + (0 if fan.sessions is None else 4 + 8 * len(fan.sessions))
        if size + needed > bytes_max:
            parts.append([])
            size = FRAME_BYTES
        parts[-1].append(fan)
        size += needed
    return parts


class Seat(NamedTuple):
    """One session in one room."""

    user: int
    gateway: str
    version: int


class _Room:
    """One room with someone in it."""

    __slots__ = ("number", "places", "seats", "unsettled", "users")

    def __init__(self, number: int) -> None:
        self.number = number
        self.seats: dict[int, Seat] = {}
        self.users: dict[int, int] = {}  # sessions by user
        self.places: dict[str, _Place] = {}
        self.unsettled = 0


class _Place:
    """One room at one gateway: who is there, and what waits for them."""

    __slots__ = ("drops", "fans", "gateway", "live", "missed", "room", "sessions")

    def __init__(self, room: _Room, gateway: _Gateway) -> None:
        self.room = room
        self.gateway = gateway
        self.sessions: set[int] = set()
        self.fans: dict[int, Fan] = {}  # by their serial at the gateway, in this order
        self.live = 0  # how many of the fans are live
        self.missed = 0  # live messages that were dropped
        self.drops: _DropQueue | None = None  # while this room is at its bound

    def clear(self) -> None:
        """Nothing waits any more."""
        self.fans.clear()
        self.live = 0
        self.drops = None

    def drop(self, serial: int) -> int:
        """Drop a live fan. Returns how many messages are missed by it: counts of people are none."""
        missed = 1 if self.fans.pop(serial).message_id else 0
        self.live -= 1
        self.gateway.pending -= 1
        self.missed += missed
        return missed


class _Gateway:
    """All rooms of one gateway."""

    __slots__ = ("drops", "is_paused", "name", "orders", "pending", "places", "serial", "unsettled", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[int, _Place] = {}
        self.serial = 0  # of the last fan
        self.drops: _DropQueue | None = None  # while this gateway is at its bound
        self.waiting: dict[_Place, None] = {}  # places with fans, in the order of their first one
        self.orders: list[Fan] = []  # for single sessions, before all others
        self.pending = 0
        self.unsettled = 0
        self.is_paused = False


class _DropQueue:
    """The live fans of some places in the order in which they are dropped: by class, the oldest first.

    It exists only while a bound is exceeded, so that queuing a message costs nothing extra before that.
    """

    __slots__ = ("_compact_at", "_queues", "_size")

    def __init__(self, places: Iterable[_Place]) -> None:
        self._queues: dict[int, deque[tuple[int, _Place]]] = {link_class: deque() for link_class in DROP_ORDER}
        self._size, self._compact_at = 0, COMPACT_MIN
        waiting = [(serial, place) for place in places for serial, fan in place.fans.items() if not fan.is_reliable]
        for serial, place in sorted(waiting, key=itemgetter(0)):
            self.add(serial, place)

    def add(self, serial: int, place: _Place) -> None:
        """A live fan was queued."""
        self._queues[body_class(place.fans[serial].body)].append((serial, place))
        self._size += 1
        if self._size > self._compact_at:
            self._compact()

    def drop(self) -> int:
        """Drop the first live fan that still waits. Returns how many messages are missed by it."""
        for queue in self._queues.values():
            while queue:
                serial, place = queue.popleft()
                self._size -= 1
                if serial in place.fans:
                    return place.drop(serial)
        raise AssertionError("a bound of live fans is exceeded, and there is none")

    def _compact(self) -> None:
        """Remove the entries of fans that are gone by another way: the other bound, or an empty room."""
        for link_class, queue in self._queues.items():
            self._queues[link_class] = deque(entry for entry in queue if entry[0] in entry[1].fans)
        self._size = sum(map(len, self._queues.values()))
        self._compact_at = max(2 * self._size, COMPACT_MIN)


class _Unsettled:
    """A reliable message, and how many gateways it has not reached yet."""

    __slots__ = ("is_lost", "left", "room")

    def __init__(self, room: _Room | None, left: int) -> None:
        self.room = room
        self.left = left
        self.is_lost = False


class Rooms:
    """The audience of many rooms. ``gap_body(room, missed)`` encodes what a gateway's sessions are told of a gap."""

    def __init__(
        self, settings: RoomSettings, gap_body: Callable[[int, int], bytes], *, left_max: int = LEFT_MAX,
        lists_sessions: bool = False,
    ) -> None:  # fmt: skip
        """``lists_sessions``: what is taken names its sessions, for gateways that are relays and know no rooms."""
        self._lists_sessions = lists_sessions
        self._settings = settings
        self._gap_body = gap_body
        self._left_max = left_max
        self._rooms: dict[int, _Room] = {}
        self._gateways: dict[str, _Gateway] = {}
        self._rooms_of: dict[int, list[int]] = {}
        self._left: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._unsettled: dict[tuple[int, int], _Unsettled] = {}  # by room and message: slices share ids (E6)
        self.dropped = 0
        """Live messages that gave way, counted once per gateway."""

    # Who is there.

    def __len__(self) -> int:
        return len(self._rooms)

    def __contains__(self, room: int) -> bool:
        return room in self._rooms

    @property
    def sessions(self) -> int:
        """How many sessions are in at least one room."""
        return len(self._rooms_of)

    def members(self, room: int) -> int:
        """How many sessions are in it."""
        found = self._rooms.get(room)
        return len(found.seats) if found is not None else 0

    def users(self, room: int) -> int:
        """How many different users are in it."""
        found = self._rooms.get(room)
        return len(found.users) if found is not None else 0

    def seat(self, room: int, session_id: int) -> Seat | None:
        """A session's place in a room."""
        found = self._rooms.get(room)
        return found.seats.get(session_id) if found is not None else None

    def rooms_of(self, session_id: int) -> list[int]:
        """The rooms that a session is in."""
        return list(self._rooms_of.get(session_id, ()))

    def sessions_of(self, room: int, user: int) -> list[int]:
        """The sessions of one user in a room."""
        found = self._rooms.get(room)
        if found is None or user not in found.users:
            return []
        return [session_id for session_id, seat in found.seats.items() if seat.user == user]

    def audience(self, room: int) -> dict[str, frozenset[int]]:
        """The sessions in a room, by gateway."""
        found = self._rooms.get(room)
        places = found.places.values() if found is not None else ()
        return {place.gateway.name: frozenset(place.sessions) for place in places}

    def check_enter(self, room: int, session_id: int) -> None:
        """Raise ``TooLarge`` if a session that asks to enter would be one too many."""
        settings, found, rooms = self._settings, self._rooms.get(room), self._rooms_of.get(session_id, ())
        if room in rooms:
            return
        if found is not None and len(found.seats) >= settings.sessions_max:
            raise TooLarge(f"the room has {len(found.seats)} sessions; it may have {settings.sessions_max}")
        if len(rooms) >= settings.rooms_per_session_max:
            raise TooLarge(f"you are in {len(rooms)} rooms; you may be in {settings.rooms_per_session_max}")

    def entered(self, room: int, session_id: int, user: int, gateway: str, version: int) -> bool:
        """A session is in a room. False if newer news of it is known. No bound holds back what is so already."""
        found = self._rooms.get(room)
        before = found.seats.get(session_id) if found is not None else None
        newest = before.version if before is not None else self._left.get((room, session_id), -1)
        if newest > version:
            return False
        if before is None:
            self._left.pop((room, session_id), None)
            self._rooms_of.setdefault(session_id, []).append(room)
        elif found is not None:
            if before.gateway == gateway and before.user == user:  # it stays where it is, with what waits for it
                found.seats[session_id] = Seat(user, gateway, version)
                return True
            self._stand_up(found, session_id, before)
        found = self._rooms.setdefault(room, found or _Room(room))
        found.seats[session_id] = Seat(user, gateway, version)
        found.users[user] = found.users.get(user, 0) + 1
        self._place(found, gateway).sessions.add(session_id)
        return True

    def left(self, room: int, session_id: int, version: int) -> bool:
        """A session is not in a room any more. False if it has entered again since."""
        found = self._rooms.get(room)
        seat = found.seats.get(session_id) if found is not None else None
        if seat is not None and seat.version > version:
            return False
        self._remember_left(room, session_id, version)
        if found is not None and seat is not None:
            self._stand_up(found, session_id, seat)
            self._forget_room_of(session_id, room)
        return True

    def session_gone(self, session_id: int, version: int) -> list[int]:
        """A session is over: it leaves every room. Returns the rooms that it was in."""
        rooms = self._rooms_of.get(session_id, [])
        return [room for room in list(rooms) if self.left(room, session_id, version)]

    def gateway_gone(self, gateway: str) -> list[int]:
        """A gateway is gone, and so are all its sessions and what waits for them. Returns the rooms that it was in."""
        gone = self._gateways.get(gateway)
        if gone is None:
            return []
        rooms = list(gone.places)
        for place in list(gone.places.values()):
            room = place.room
            for session_id in list(place.sessions):
                self._stand_up(room, session_id, room.seats[session_id])
                self._forget_room_of(session_id, room.number)
        orders, gone.orders = gone.orders, []
        gone.pending -= len(orders)
        self.settled(gateway, orders)
        self._forget_idle(gone)
        return rooms

    # What is said.

    def said(self, room: int, message_id: int, sender: int, body: bytes, *, is_reliable: bool) -> Sequence[str]:
        """Queue a message for everyone in the room, and return the gateways whose batch is full.

        ``sender`` is the session that says it, which must be in the room, or 0. Raises ``Overloaded`` where reliable
        talk would have to wait too long; then nobody gets it. A reliable id that is under way already is not queued
        again.
        """
        found = self._rooms.get(room)
        if sender and (found is None or sender not in found.seats):
            raise NotAllowed("enter the room first")
        if found is None or (is_reliable and (room, message_id) in self._unsettled):
            return NO_GATEWAYS
        places = found.places
        if is_reliable:
            self._check_pending(found)
            found.unsettled += 1
            self._unsettled[room, message_id] = _Unsettled(found, len(places))
        return self._queue(places.values(), Fan(room, message_id, body, is_reliable))

    def told(self, room: int, body: bytes) -> Sequence[str]:
        """Queue counts, or other live news of the room itself."""
        found = self._rooms.get(room)
        return NO_GATEWAYS if found is None else self._queue(found.places.values(), Fan(room, 0, body))

    def expelled(self, room: int, session_id: int, version: int, message_id: int, body: bytes) -> bool:
        """A session must leave: it is told why, reliably, and its gateway lets it hear no more. False: it is not in."""
        seat = self.seat(room, session_id)
        if seat is None:
            return False
        gateway = self._gateway(seat.gateway)
        gateway.orders.append(Fan(room, message_id, body, is_reliable=True, sessions=(session_id,), is_end=True))
        gateway.pending += 1
        gateway.unsettled += 1
        self._unsettled[room, message_id] = _Unsettled(None, 1)
        return self.left(room, session_id, version)

    def settled(self, gateway: str, fans: Iterable[Fan], *, is_lost: bool = False) -> list[tuple[int, int]]:
        """These reliable fans have reached a gateway, or, if they are lost, were given up: they wait no more.

        Returns the messages that have reached every gateway by that: rooms and ids.
        """
        at = self._gateways.get(gateway)
        reached: list[tuple[int, int]] = []
        for fan in fans:
            if not fan.is_reliable:
                continue
            if at is not None:
                at.unsettled -= 1
            unsettled = self._unsettled[fan.room, fan.message_id]
            unsettled.left -= 1
            unsettled.is_lost |= is_lost
            if not unsettled.left:
                del self._unsettled[fan.room, fan.message_id]
                if not unsettled.is_lost:
                    reached.append((fan.room, fan.message_id))
                if unsettled.room is not None:
                    unsettled.room.unsettled -= 1
        if at is not None:
            self._forget_idle(at)
        return reached

    def paused(self, gateway: str) -> None:
        """The way to a gateway is full: what is said waits."""
        self._gateway(gateway).is_paused = True

    def resumed(self, gateway: str) -> None:
        """It flows again."""
        found = self._gateways.get(gateway)
        if found is not None:
            found.is_paused = False
            self._forget_idle(found)

    @property
    def unsettled(self) -> int:
        """Reliable messages that wait, or are on their way to some gateway."""
        return len(self._unsettled)

    # What goes out.

    def ready(self) -> list[str]:
        """Gateways for which something waits, but those that are paused."""
        return [name for name, gateway in self._gateways.items() if gateway.pending and not gateway.is_paused]

    def take(self, gateway: str) -> list[list[Fan]]:
        """Everything that waits for a gateway, room by room, in batches. Reliable fans are to be ``settled`` later."""
        found = self._gateways.get(gateway)
        if found is None or found.is_paused:
            return []
        fans = found.orders
        for place in found.waiting:
            if place.missed:
                here_only = tuple(place.sessions) if self._lists_sessions else None
                body = self._gap_body(place.room.number, place.missed)
                fans.append(Fan(place.room.number, 0, body, sessions=here_only))
                place.missed = 0
            if self._lists_sessions:
                here = tuple(place.sessions)
                waiting = place.fans.values()
                fans.extend(fan if fan.sessions is not None else fan._replace(sessions=here) for fan in waiting)
            else:
                fans.extend(place.fans.values())
            place.clear()
        found.orders = []
        found.drops = None
        found.waiting.clear()
        found.pending = 0
        self._forget_idle(found)
        size = self._settings.batch_count
        return [fans] if 0 < len(fans) <= size else [fans[i : i + size] for i in range(0, len(fans), size)]

    # Steps.

    def _check_pending(self, room: _Room) -> None:
        settings = self._settings
        if room.unsettled >= settings.pending_max:
            raise Overloaded(f"{room.unsettled} reliable messages of the room are on their way", retry_after_ms=100)
        for place in room.places.values():
            unsettled = place.gateway.unsettled
            if unsettled >= settings.gateway_pending_max:
                raise Overloaded(f"{unsettled} reliable messages wait for one gateway", retry_after_ms=100)

    def _queue(self, places: Iterable[_Place], fan: Fan) -> Sequence[str]:
        settings, is_reliable = self._settings, fan.is_reliable
        full = NO_GATEWAYS
        for place in places:
            gateway = place.gateway
            if not place.fans:
                gateway.waiting[place] = None
            serial = gateway.serial = gateway.serial + 1
            place.fans[serial] = fan
            gateway.pending += 1
            if is_reliable:
                gateway.unsettled += 1
            else:
                place.live += 1
                if place.drops is not None:
                    place.drops.add(serial, place)
                if gateway.drops is not None:
                    gateway.drops.add(serial, place)
                if place.live > settings.pending_max:
                    self._drop_of_room(place)
                elif gateway.pending > settings.gateway_pending_max:
                    self._drop_of_gateway(gateway)
            if gateway.pending >= settings.batch_count and not gateway.is_paused:
                full = [*full, gateway.name]
        return full

    def _drop_of_room(self, place: _Place) -> None:
        """Drop one of the live messages of a room at a gateway."""
        if place.drops is None:
            place.drops = _DropQueue([place])
        self.dropped += place.drops.drop()

    def _drop_of_gateway(self, gateway: _Gateway) -> None:
        """Drop one of the live messages of all rooms at a gateway."""
        if gateway.drops is None:
            gateway.drops = _DropQueue(gateway.waiting)
        self.dropped += gateway.drops.drop()

    def _gateway(self, name: str) -> _Gateway:
        gateway = self._gateways.get(name)
        if gateway is None:
            gateway = self._gateways[name] = _Gateway(name)
        return gateway

    def _place(self, room: _Room, gateway_name: str) -> _Place:
        place = room.places.get(gateway_name)
        if place is None:
            gateway = self._gateway(gateway_name)
            place = room.places[gateway_name] = gateway.places[room.number] = _Place(room, gateway)
        return place

    def _stand_up(self, room: _Room, session_id: int, seat: Seat) -> None:
        """Take a session out of a room. Whatever has become empty by that goes as well."""
        del room.seats[session_id]
        count = room.users[seat.user] - 1
        if count:
            room.users[seat.user] = count
        else:
            del room.users[seat.user]
        place = room.places[seat.gateway]
        place.sessions.remove(session_id)
        if not place.sessions:
            self._close_place(place)
        if not room.seats:
            del self._rooms[room.number]

    def _close_place(self, place: _Place) -> None:
        """Nobody is there any more, so what waits is for nobody."""
        gateway = place.gateway
        del place.room.places[gateway.name]
        del gateway.places[place.room.number]
        gateway.waiting.pop(place, None)
        gateway.pending -= len(place.fans)
        fans = list(place.fans.values())
        place.clear()
        self.settled(gateway.name, fans)
        self._forget_idle(gateway)

    def _forget_idle(self, gateway: _Gateway) -> None:
        if not (gateway.places or gateway.pending or gateway.unsettled or gateway.is_paused):
            self._gateways.pop(gateway.name, None)

    def _forget_room_of(self, session_id: int, room: int) -> None:
        rooms = self._rooms_of[session_id]
        rooms.remove(room)
        if not rooms:
            del self._rooms_of[session_id]

    def _remember_left(self, room: int, session_id: int, version: int) -> None:
        key = (room, session_id)
        known = self._left.pop(key, version)
        self._left[key] = max(known, version)
        if len(self._left) > self._left_max:
            self._left.popitem(last=False)
