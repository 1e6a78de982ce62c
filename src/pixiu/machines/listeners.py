"""A gateway's side of rooms: which of its sessions listen where, and what they get.

The broker sends one frame per gateway; here it becomes one delivery per room, with everything that its sessions get at
once: they can be written the same bytes. Reliable messages may come in copies over the ways of several brokers, and are
delivered once (``Seen``).

::

    enter, leave, session_gone       the gateway's own sessions
    receive(source, frame)      ──▶  deliveries, and an ack for the source
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.machines.bigrooms import Overlap
from pixiu.machines.dedup import Seen
from pixiu.machines.room_link import Incoming, state_of

if TYPE_CHECKING:
    from pixiu.config.rooms import RoomSettings
    from pixiu.machines.room_link import Ack, Frame
    from pixiu.machines.rooms import Fan

__all__ = ["Listeners", "RoomDelivery"]


class RoomDelivery(NamedTuple):
    """Write these bodies, in this order, to each of these sessions."""

    room: int
    sessions: tuple[int, ...]
    bodies: list[bytes]
    is_reliable: bool = False
    """All of it must arrive; live talk and reliable talk are never in one delivery."""


class _Listening:
    """The sessions of one room, and the same as a tuple while nobody comes or goes."""

    __slots__ = ("all", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[int, None] = {}
        self.all: tuple[int, ...] | None = None


class Listeners:
    """The rooms of one gateway."""

    def __init__(self, settings: RoomSettings) -> None:
        self._rooms: dict[int, _Listening] = {}
        self._rooms_of: dict[int, dict[int, None]] = {}
        self._sources: dict[str, Incoming] = {}
        self._late_of_others = 0
        self.seen = Seen(window_ms=settings.dedup_ms, count_max=settings.dedup_count)
        self._wholes: dict[int, int] = {}  # the room of each slice
        self._both: set[int] = set()  # big rooms that are still told of themselves, too
        self._pieces: dict[int, dict[int, int]] = {}  # of a big room: the slice of each session
        self._overlap = Overlap()
        self.nobody = 0
        """Messages for rooms that nobody here listens in."""
        self.repeats = 0
        """Copies of reliable messages."""

    # Its own sessions.

    def enter(self, room: int, session_id: int) -> None:
        """A session listens from now on."""
        listening = self._rooms.get(room)
        if listening is None:
            listening = self._rooms[room] = _Listening()
        listening.sessions[session_id] = None
        listening.all = None
        self._rooms_of.setdefault(session_id, {})[room] = None

    def join(self, room: int, piece: int, session_id: int, *, overlaps: bool) -> None:
        """A session of a big room listens in its slice as well; ``overlaps``: it may hear of things both ways."""
        self.enter(piece, session_id)
        self._pieces.setdefault(room, {})[session_id] = piece
        self._wholes[piece] = room
        if overlaps:
            self._both.add(room)

    def piece(self, room: int, session_id: int) -> int:
        """The slice in which a session of a big room listens; 0 if it does not."""
        return self._pieces.get(room, {}).get(session_id, 0)

    def is_big(self, room: int) -> bool:
        """Does anyone of this room listen in a slice?"""
        return room in self._pieces

    def overlaps_no_more(self, room: int, pieces: range) -> None:
        """Nobody sends to the room itself any more."""
        self._both.discard(room)
        self._overlap.forget(pieces, room)

    def leave(self, room: int, session_id: int) -> bool:
        """A session listens no more. False if it did not."""
        pieces = self._pieces.get(room)
        if pieces is not None and session_id in pieces:
            self.leave(pieces.pop(session_id), session_id)
            if not pieces:
                del self._pieces[room]
        listening = self._rooms.get(room)
        if listening is None or session_id not in listening.sessions:
            return False
        del listening.sessions[session_id]
        listening.all = None
        if not listening.sessions:
            del self._rooms[room]
            self._wholes.pop(room, None)
        rooms = self._rooms_of[session_id]
        del rooms[room]
        if not rooms:
            del self._rooms_of[session_id]
        return True

    def session_gone(self, session_id: int) -> list[int]:
        """A session is over. Returns the rooms that it was in."""
        rooms = list(self._rooms_of.get(session_id, ()))
        for room in rooms:
            self.leave(room, session_id)
        return rooms

    def sessions(self, room: int) -> tuple[int, ...]:
        """Who listens in a room, in the order in which they came."""
        listening = self._rooms.get(room)
        if listening is None:
            return ()
        if listening.all is None:
            listening.all = tuple(listening.sessions)
        return listening.all

    # What a broker sends.

    def receive(self, source: str, frame: Frame, now_ms: int) -> tuple[list[RoomDelivery], Ack | None]:
        """What to write to whom, and how to answer the broker called ``source``."""
        incoming = state_of(self._sources, source, Incoming, forget=self._forget)
        deliveries: list[RoomDelivery] = []
        last: RoomDelivery | None = None
        for came in incoming.receive(frame):
            fan: Fan | None = came
            overlaps = bool(self._wholes) and self._overlaps(came)
            if came.sessions is not None and not came.is_end and (came.is_reliable or overlaps):
                fan = self._for_each(came, now_ms)
            elif came.is_reliable and self.seen.has(came.message_id, came.room, now_ms):
                fan = None
            elif overlaps:
                fan = self._once(came, now_ms)
            if came.is_reliable and (came.sessions is None or came.is_end):
                # Of the room as it came: some of its sessions may have had it over their slices.
                self.seen.mark(came.message_id, came.room, now_ms)
            if fan is None:
                self.repeats += 1
                continue
            if (
                fan.sessions is None
                and last is not None
                and last.room == fan.room
                and last.is_reliable == fan.is_reliable
            ):
                last.bodies.append(fan.body)
            else:
                last = self._deliver(fan, deliveries)
        return deliveries, incoming.ack if frame.number else None

    def source_gone(self, source: str) -> None:
        """A broker will not come back under this name."""
        incoming = self._sources.pop(source, None)
        if incoming is not None:
            self._forget(incoming)

    def _forget(self, incoming: Incoming) -> None:
        self._late_of_others += incoming.late

    @property
    def late(self) -> int:
        """Live messages that were overtaken on their way, and dropped."""
        return self._late_of_others + sum(incoming.late for incoming in self._sources.values())

    def _overlaps(self, fan: Fan) -> bool:
        """Could some of its sessions have had it another way? Live talk comes once, unless a room is becoming big."""
        if not fan.message_id:
            return False
        whole = fan.room if fan.room in self._pieces else self._wholes.get(fan.room)
        return whole is not None and (fan.is_reliable or whole in self._both)

    def _for_each(self, fan: Fan, now_ms: int) -> Fan | None:
        """What a relay sends is for some sessions; copies for others come apart, or again (E6): each by itself."""
        message_id, whole = fan.message_id, self._wholes.get(fan.room, fan.room)
        if fan.is_reliable:
            if self.seen.has(message_id, fan.room, now_ms):
                return None
            fresh = tuple(each for each in fan.sessions or () if self.seen.mark(message_id, (each,), now_ms))
        else:
            overlap = self._overlap
            fresh = tuple(each for each in fan.sessions or () if not overlap.is_late((whole, each), message_id))
            for each in fresh:
                overlap.shown((whole, each), message_id)
        return fan._replace(sessions=fresh) if fresh else None

    def _once(self, fan: Fan, now_ms: int) -> Fan | None:
        """What came over a big room, or over a slice of it, for those who have not had it the other way."""
        whole, message_id, overlap = self._wholes.get(fan.room), fan.message_id, self._overlap
        if whole is not None:
            if fan.is_reliable:
                is_known = self.seen.has(message_id, whole, now_ms)
            else:
                is_known = overlap.is_late(whole, message_id) or overlap.is_late(fan.room, message_id)
                overlap.shown(fan.room, message_id)
            return None if is_known else fan
        pieces = self._pieces[fan.room]
        if fan.is_reliable:
            late = {piece for piece in set(pieces.values()) if self.seen.has(message_id, piece, now_ms)}
        else:
            if overlap.is_late(fan.room, message_id):
                return None
            late = {piece for piece in set(pieces.values()) if overlap.is_late(piece, message_id)}
            overlap.shown(fan.room, message_id)
        if not late:
            return fan
        rest = tuple(each for each in self.sessions(fan.room) if pieces.get(each) not in late)
        return fan._replace(sessions=rest) if rest else None

    def _deliver(self, fan: Fan, deliveries: list[RoomDelivery]) -> RoomDelivery | None:
        """Begin a delivery. Returns it if later fans of the room may join it."""
        if fan.sessions is None:
            sessions = self.sessions(fan.room)
        else:
            listening = self._rooms.get(fan.room)
            present = listening.sessions if listening is not None else {}
            sessions = tuple(each for each in fan.sessions if each in present)
        if not sessions:
            self.nobody += 1
            return None
        delivery = RoomDelivery(fan.room, sessions, [fan.body], fan.is_reliable)
        deliveries.append(delivery)
        if fan.is_end:
            for session_id in sessions:
                self.leave(fan.room, session_id)
        return delivery if fan.sessions is None else None
