"""One broker: the audience of rooms, and what is said in them, on its way to the gateways.

Nothing here is stored: a room is who listens now. Live talk is sent once and forgotten. Reliable talk is sent until
every gateway with someone in the room has acked it, or its time is over. Both travel in frames: what is said within a
few milliseconds, in all rooms of a gateway, goes there together.

The machines decide (``Rooms`` who gets what, ``Outgoing`` what goes again); here are names, rights, time and counts.
Callers are the verbs of sessions in this process, and, in a cluster, the routers with news from elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pixiu.im.content import plain_text
from pixiu.machines.room_link import Outgoing
from pixiu.machines.rooms import Rooms, room_number, sized
from pixiu.model.errors import Conflict, NotAllowed, PixiuError
from pixiu.model.ids import NODE_ID_MAX, Snowflakes
from pixiu.ports.routes import Route
from pixiu.roles.broker.pushes import gap_body, message_body, presence_body, removed_body
from pixiu.roles.broker.rights import RoomRates, check_member, group_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.config.rooms import RoomSettings
    from pixiu.im.draft import Actor, Answer
    from pixiu.machines.room_link import Ack, Frame
    from pixiu.ports.clock import Clock
    from pixiu.ports.groups import Groups
    from pixiu.ports.routes import Routes
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Broker", "Caller", "Push", "RoomRow", "TalkClass"]

log = logging.getLogger(__name__)

FEW = 32
"""What is said to so many sessions is not held back for more."""

TalkClass = Literal["live", "reliable"]

Push = Callable[[str, "list[Frame]"], object]
"""Hand frames to a gateway. Returns at once and never raises; acks come back by ``Broker.acked``."""


class Caller(Protocol):
    """A session and its user: an ``Actor`` or a ``Session``."""

    @property
    def user(self) -> int: ...
    @property
    def session_id(self) -> int: ...


class RoomRow(NamedTuple):
    """What happened in one room since its last row, about a second ago."""

    room: str
    at: int
    messages: int
    deliveries: int
    """Messages times the sessions that were there to hear them."""
    bytes: int
    """Of bodies, each message once."""
    members: int
    """Sessions at most: those that are there now, or that were there for one of the messages."""
    users: int
    number: int = 0
    """Of the room, or of the slice of it that this row is about."""


class _OpenRoom:
    """What a broker knows of a room beside its audience."""

    __slots__ = (
        "bytes",
        "deliveries",
        "group",
        "has_new_audience",
        "key",
        "members",
        "messages",
        "name",
        "number",
        "users",
    )

    def __init__(self, key: str, name: str, number: int, group: int) -> None:
        self.key = key
        self.name = name
        self.number = number
        self.group = group
        self.messages = 0
        self.deliveries = 0
        self.bytes = 0
        self.members = 0
        self.users = 0
        self.has_new_audience = False


class BrokerCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.messages = {"live": 0, "reliable": 0}
        self.deliveries = 0
        self.frames = 0
        self.resends = 0
        self.lost = 0


class Broker:
    """Rooms of one process. ``report`` gets a row per active room and second; ``user_name`` is a user's public id.

    ``node_id`` is inside the message ids that it gives: no log that numbers messages may have the same.
    """

    def __init__(
        self,
        routes: Routes,
        clock: Clock,
        scheduler: Scheduler,
        settings: RoomSettings,
        push: Push,
        *,
        groups: Groups | None = None,
        user_name: Callable[[int], str] = str,
        gateway_of: Callable[[int], str] = lambda session_id: "local",
        report: Callable[[RoomRow], object] = lambda row: None,
        node_id: int = NODE_ID_MAX,
        frame_bytes_max: int = 0,
        lists_sessions: bool = False,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """``frame_bytes_max``: frames stay below this where fans allow it, so that they fit datagrams; 0: no bound.

        ``lists_sessions``: fans name their sessions, for relays. ``is_full``: the way to all gateways takes no more
        for now; messages wait here, within the bounds of ``Rooms``, until ``freed``.
        """
        self.when_settled: Callable[[list[tuple[int, int]]], object] = lambda _messages: None
        """Told of reliable messages that every gateway has: rooms and ids."""
        self._frame_bytes_max = frame_bytes_max
        self._routes = routes
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._push = push
        self._groups = groups
        self._user_name = user_name
        self._gateway_of = gateway_of
        self._report = report
        self._is_full = is_full
        self._freed_last = ""
        """The gateway whose messages left last after the way was full."""
        self._ids = Snowflakes(node_id)
        self._versions = Snowflakes(node_id)
        self._rates = RoomRates(clock, per_second=settings.says_per_second, burst=settings.say_burst)
        self._links: dict[str, Outgoing] = {}
        self._open: dict[str, _OpenRoom] = {}
        self._by_number: dict[int, _OpenRoom] = {}
        self._by_group: dict[int, _OpenRoom] = {}
        self._active: dict[_OpenRoom, None] = {}
        self._batch_timer: Timer | None = None
        self._is_near = False  # all is flushed at the end of this turn
        self._flushed_us = 0
        self._resend_timer: Timer | None = None
        self._tick_timer: Timer | None = None
        self._is_stopped = False
        self.rooms = Rooms(
            settings, lambda room, missed: gap_body(self._by_number[room].name, missed), lists_sessions=lists_sessions
        )
        self.counters = BrokerCounters()

    def stop(self) -> None:
        """Send what has gathered, report what was said since the last tick, and nothing more."""
        self._flush_all()
        for room in self._active:
            self._tell_row(room, self._clock.now_ms())
        self._is_stopped = True
        for timer in (self._batch_timer, self._resend_timer, self._tick_timer):
            if timer is not None:
                timer.cancel()

    # What sessions do.

    def enter(self, caller: Caller, room: str) -> int:
        """A session listens from now on. Returns how many sessions do."""
        self._rates.take(caller.user)
        entered = self._opened(room)
        if entered.group:
            check_member(self._groups, entered.group, caller.user, is_talking=False)
        self.rooms.check_enter(entered.number, caller.session_id)
        gateway = self._gateway_of(caller.session_id)
        self._enter(entered, Route(caller.user, caller.session_id, gateway, self._next_version()))
        return self.rooms.members(entered.number)

    def leave(self, caller: Caller, room: str) -> int:
        """A session stops listening. Returns how many still listen; of a group's room only to those who may know."""
        opened = self._opened(room)
        if self.rooms.seat(opened.number, caller.session_id) is not None:
            self._leave(opened.number, caller.session_id, self._next_version())
        elif opened.group:
            check_member(self._groups, opened.group, caller.user, is_talking=False)
        return self.rooms.members(opened.number)

    def say(
        self,
        actor: Actor,
        room: str,
        text: str,
        talk_class: TalkClass,
        done: Callable[[Answer | PixiuError], object],
        *,
        send_id: str = "",
    ) -> None:
        """Say something to everyone in a room, oneself included. A publisher may talk in rooms without entering."""
        try:
            answer = self.said(actor, room, text, talk_class, send_id=send_id)
        except PixiuError as error:
            done(error)
        else:
            done(answer)

    def said(
        self,
        actor: Actor,
        room: str,
        text: str,
        talk_class: TalkClass,
        *,
        send_id: str = "",
        priority: str = "normal",
    ) -> Answer:
        """As ``say``; returns the answer or raises the error."""
        plain_text(text, self._settings.message_bytes_max)
        is_publisher = actor.is_admin and not actor.session_id
        if not is_publisher:
            self._rates.take(actor.user)
        to = self._open.get(room) or self._opened(room)
        number, rooms = to.number, self.rooms
        if not is_publisher:
            if rooms.seat(number, actor.session_id) is None:
                raise NotAllowed(f"enter room {room!r} before you talk in it")
            if to.group:
                check_member(self._groups, to.group, actor.user, is_talking=True)
        at, members = self._clock.now_ms(), rooms.members(number)
        message_id = self._ids.next(at)
        body = message_body(message_id, self._user_name(actor.user), room, at, text, send_id, priority)
        sender = 0 if is_publisher else actor.session_id
        full = rooms.said(number, message_id, sender, body, is_reliable=talk_class == "reliable")
        self.counters.messages[talk_class] += 1
        self._count(to, members, body)
        self._send(full, members)
        return {"room": room, "message_id": str(message_id), "at": at, "members": members}

    def group_said(self, group: int, message_id: int, body: bytes) -> None:
        """A message that a group has stored, for those of its members who listen now. ``body`` is the encoded push."""
        room = self._by_group.get(group)
        if room is not None:
            members = self.rooms.members(room.number)
            full = self.rooms.said(room.number, message_id, 0, body, is_reliable=False)
            self._count(room, members, body)
            self._send(full, members)

    def passed_on(self, number: int, message_id: int, body: bytes, *, is_reliable: bool) -> bool:
        """Something said elsewhere, for everyone in a room of this broker. False if nobody is in it.

        Raises ``Overloaded`` where reliable talk would have to wait too long.
        """
        room = self._by_number.get(number)
        if room is None or number not in self.rooms:
            return False
        members = self.rooms.members(number)
        full = self.rooms.said(number, message_id, 0, body, is_reliable=is_reliable)
        self.counters.messages["reliable" if is_reliable else "live"] += 1
        self._count(room, members, body)
        self._send(full, members)
        return True

    def session_gone(self, session_id: int) -> None:
        """A connection is gone: it leaves every room."""
        version = self._next_version()
        for number in self.rooms.session_gone(session_id, version):
            self._routes.leave(number, session_id, version)
            self._audience_changed(number)

    def removed(self, group: int, user: int) -> None:
        """A user is no member of a group any more, and hears no more of its room."""
        room = self._by_group.get(group)
        if room is None:
            return
        for session_id in self.rooms.sessions_of(room.number, user):
            version, message_id = self._next_version(), self._ids.next(self._clock.now_ms())
            self.rooms.expelled(room.number, session_id, version, message_id, removed_body(room.name))
            self._routes.leave(room.number, session_id, version)
            self._audience_changed(room.number)
        self._send(())

    # What gateways and routers tell.

    def entered(self, room: str, route: Route, *, piece: int = 0) -> bool:
        """News of a session elsewhere: it is in a room, or in one slice of it. False if newer news is known."""
        return self._enter(self._opened(room, piece), route)

    def left(self, room: str, session_id: int, version: int, *, piece: int = 0) -> bool:
        """News of a session elsewhere: it is not in a room any more. False if it has entered again since."""
        return self._leave(piece or room_number(room), session_id, version)

    def gateway_gone(self, gateway: str) -> None:
        """A gateway is dead, with all its sessions and what was on its way to them."""
        self._routes.drop_gateway(gateway)
        for number in self.rooms.gateway_gone(gateway):
            self._audience_changed(number)
        link = self._links.pop(gateway, None)
        if link is not None:
            self.when_settled(self.rooms.settled(gateway, link.close()))

    def acked(self, gateway: str, ack: Ack) -> None:
        """A gateway has everything through there."""
        link = self._links.get(gateway)
        if link is not None:
            settled = self.rooms.settled(gateway, link.acked(ack))
            if settled:
                self.when_settled(settled)

    def pause(self, gateway: str) -> None:
        """The way to a gateway is full: send nothing until ``resume``."""
        self.rooms.paused(gateway)

    def resume(self, gateway: str) -> None:
        """The way is free again."""
        self.rooms.resumed(gateway)
        self._flush(gateway)

    def freed(self) -> None:
        """The way to all gateways is free again: send what waits, one gateway per turn while the way stays free."""
        ready = sorted(self.rooms.ready())
        if ready and not self._is_full() and not self._is_stopped:
            self._freed_last = next((name for name in ready if name > self._freed_last), ready[0])
            self._flush(self._freed_last)
            self._scheduler.soon(self.freed)

    # The audience.

    def _opened(self, name: str, piece: int = 0) -> _OpenRoom:
        """A room by its name: the one that is open, or else a new one with those whom the routes know.

        ``piece``: the number of a slice, which is a room of its own under the same name.
        """
        key = f"{name}\0{piece}" if piece else name
        room = self._open.get(key)
        if room is not None:
            return room
        group, number = group_of(name, self._groups), piece or room_number(name)
        other = self._by_number.get(number)
        if other is not None:
            raise Conflict(f"room {name!r} has the number of a room that is in use; take another name")
        room = self._open[key] = self._by_number[number] = _OpenRoom(key, name, number, group)
        if group:
            self._by_group[group] = room
        for route in self._routes.of(number):
            self.rooms.entered(number, route.session_id, route.user, route.gateway, route.version)
        self._has_acted(room)  # it is closed at the next tick unless someone is in it by then
        return room

    def _enter(self, room: _OpenRoom, route: Route) -> bool:
        user, session_id, gateway, version = route
        if not self.rooms.entered(room.number, session_id, user, gateway, version):
            return False
        try:
            self._routes.enter(room.number, route)
        except PixiuError:
            self.rooms.left(room.number, session_id, version)
            raise
        finally:
            self._audience_changed(room.number)
        return True

    def _leave(self, number: int, session_id: int, version: int) -> bool:
        if not self.rooms.left(number, session_id, version):
            return False
        self._audience_changed(number)
        self._routes.leave(number, session_id, version)
        return True

    def _audience_changed(self, number: int) -> None:
        room = self._by_number.get(number)
        if room is not None:
            room.has_new_audience = True
            self._has_acted(room)

    def _next_version(self) -> int:
        return self._versions.next(self._clock.now_ms())

    # Once a second, while anything happens.

    def _has_acted(self, room: _OpenRoom) -> None:
        self._active[room] = None
        if self._tick_timer is None and not self._is_stopped:
            self._tick_timer = self._scheduler.after(self._settings.presence_ms, self._tick)

    def _count(self, room: _OpenRoom, members: int, body: bytes) -> None:
        room.messages += 1
        room.deliveries += members
        self.counters.deliveries += members
        room.bytes += len(body)
        if members > room.members:
            room.members, room.users = members, self.rooms.users(room.number)
        self._has_acted(room)

    def _tick(self) -> None:
        """Tell counts that have changed, report what was said, close rooms that nobody is in."""
        self._tick_timer = None
        active, self._active = self._active, {}
        at = self._clock.now_ms()
        full: set[str] = set()
        for room in active:
            members, users = self.rooms.members(room.number), self.rooms.users(room.number)
            self._tell_row(room, at)
            if not members:
                self._close(room)
            elif room.has_new_audience:
                room.has_new_audience = False
                full.update(self.rooms.told(room.number, presence_body(room.name, members, users)))
        self._send(sorted(full))

    def _tell_row(self, room: _OpenRoom, at: int) -> None:
        if room.messages or room.has_new_audience:
            members = max(self.rooms.members(room.number), room.members)
            users = max(self.rooms.users(room.number), room.users)
            row = RoomRow(room.name, at, room.messages, room.deliveries, room.bytes, members, users, room.number)
            room.messages = room.deliveries = room.bytes = room.members = room.users = 0
            self._report(row)

    def _close(self, room: _OpenRoom) -> None:
        del self._open[room.key], self._by_number[room.number]
        if room.group:
            del self._by_group[room.group]

    # On their way to the gateways.

    def _send(self, full: Sequence[str], members: int = 0) -> None:
        """Send full batches now, the others at the end of this turn; or a little later, if many would be written to.

        Whoever talks to a few is heard at once: waiting saves nothing there. A large room waits only for what is said
        soon after something else; a busy loop gathers by itself.
        """
        for gateway in full:
            self._flush(gateway)
        if self._is_near or self._is_stopped:
            return
        wait_ms = 0.0
        if members > FEW:
            wait_ms = self._settings.batch_ms - (self._clock.monotonic_us() - self._flushed_us) / 1000
        if wait_ms <= 0:
            if self._batch_timer is not None:
                self._batch_timer.cancel()
            self._is_near = True
            self._scheduler.soon(self._flush_all)
        elif self._batch_timer is None:
            self._batch_timer = self._scheduler.after(wait_ms, self._flush_all)

    def _flush_all(self) -> None:
        self._batch_timer = None
        self._is_near = False
        self._flushed_us = self._clock.monotonic_us()
        for gateway in self.rooms.ready():
            self._flush(gateway)

    def _flush(self, gateway: str) -> None:
        if self._is_full():
            return
        batches = self.rooms.take(gateway)
        if not batches or self._is_stopped:
            return
        now_ms = self._clock.monotonic_us() // 1000
        link = self._links.get(gateway)
        if link is None:
            # Each link has a life of its own: a gateway that was declared dead and is not takes it for a new broker.
            life = self._next_version()
            settings = self._settings
            link = Outgoing(life, resend_ms=settings.resend_ms, reliable_ms=settings.reliable_ms)
            self._links[gateway] = link
        if self._frame_bytes_max:
            batches = [part for fans in batches for part in sized(fans, self._frame_bytes_max)]
        frames = [link.seal(fans, now_ms) for fans in batches]
        self.counters.frames += len(frames)
        self._push(gateway, frames)
        if self._resend_timer is None and link.unacked:
            self._resend_timer = self._scheduler.after(self._settings.resend_ms, self._resend)

    def _resend(self) -> None:
        """Send again what was not acked; give up what has waited too long."""
        self._resend_timer = None
        now_ms = self._clock.monotonic_us() // 1000
        for gateway, link in list(self._links.items()):
            frames, lost = link.due(now_ms)
            if lost:
                self.counters.lost += len(lost)
                log.warning("reliable room messages given up", extra={"gateway": gateway, "count": len(lost)})
                self.rooms.settled(gateway, lost, is_lost=True)
            if frames:
                self.counters.resends += len(frames)
                self._push(gateway, frames)
        if any(link.unacked for link in self._links.values()) and not self._is_stopped:
            self._resend_timer = self._scheduler.after(self._settings.resend_ms, self._resend)
