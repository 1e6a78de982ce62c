"""One gateway process, seen from the node: what it says becomes calls of the roles, what they say becomes frames.

What a gateway that reads slowly costs: above ``MARK_BYTES`` rooms wait for it, so that live talk gives way to newer
talk; above ``link_bytes_max`` the link is cut, and its sessions are dropped. They come back, and their messages wait.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pixiu.im.draft import Actor, UnknownUsers
from pixiu.machines.wire import (
    ADMIN_PREFIX,
    VERSION,
    Acks,
    Alive,
    Answer,
    Call,
    End,
    Event,
    Find,
    Found,
    Heartbeat,
    Hello,
    Lives,
    LoggedIn,
    LogIn,
    LogOut,
    Pushes,
    PushRow,
    Refusal,
    Request,
    RoomAck,
    Stream,
    Welcome,
    Writing,
    encode,
)
from pixiu.model.errors import NotAllowed, PixiuError, RemoteProtocolError, RequestError, Unavailable
from pixiu.model.message import numbers_in
from pixiu.roles.broker.verbs import ROOM_VERBS
from pixiu.roles.broker.verbs import act as act_in_room

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.im.draft import Answer as Result
    from pixiu.im.draft import Params
    from pixiu.machines.delivery import Push
    from pixiu.machines.wire import WireMessage
    from pixiu.model.message import PublicNames
    from pixiu.model.session import LogoutCause, Session
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.ports.transport import WatchedLink
    from pixiu.roles.gateway.needs import Done
    from pixiu.roles.relay.sink import Sink

__all__ = ["MARK_BYTES", "HubLink", "NodeMessaging", "RemoteSession"]

log = logging.getLogger(__name__)

MARK_BYTES = 2**20
"""While more than this waits for a gateway, rooms wait too."""
PUSHES_BYTES = 2**20
"""Bodies in one frame, so that no frame is near its bound."""
NUMBERS_END = 2**64


class NodeMessaging(Protocol):
    """What the hub needs of the roles: a ``node.messaging.Messaging``."""

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None: ...
    def find_user(self, user: str, done: Callable[[int | PixiuError], object]) -> None: ...
    def connect(
        self,
        user: str,
        platform: str,
        device: str,
        sink: Sink,
        done: Callable[[Session | PixiuError], object],
        *,
        cursor: int = 0,
        gateway: str | None = None,
    ) -> None: ...
    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None: ...
    def ack(self, session_id: int, cursor: int) -> bool: ...
    def heartbeat(self, session_id: int) -> bool: ...
    def writing(self, session_id: int) -> object: ...
    def gateway_came(self, gateway: str) -> int: ...
    def gateway_gone(self, gateway: str) -> int: ...


class RemoteSession:
    """A session whose connection another process holds: its sink, and what typing and presence know of it."""

    __slots__ = ("_link", "actor", "typed_us", "watched")

    def __init__(self, link: HubLink) -> None:
        self._link = link
        self.actor = Actor(0)
        self.typed_us = 0
        self.watched: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """Its own among all."""
        return self.actor.session_id

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Messages, in order."""
        self._link.push(session_id, pushes)

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Something live."""
        self._link.event(session_id, event)

    def close(self, session_id: int, reason: str) -> None:
        """The relay has ended the session."""
        self._link.end(session_id, reason)


class HubLink:
    """One gateway process, seen from the node. ``WatchedReceiver``: told by whoever accepts its connection."""

    def __init__(self, hub: GatewayHub) -> None:
        self._hub = hub
        self._link: WatchedLink | None = None
        self._is_over = False
        self._stream = Stream()
        self._sessions: dict[int, RemoteSession] = {}
        self._out: list[bytes] = []
        self._pushes: list[tuple[int, list[Push]]] = []
        self._event: tuple[Mapping[str, object], list[int]] | None = None
        self._is_near = False
        self.name = ""
        self.connections = 0
        self.counts: Mapping[str, object] = {}
        """What its gateway said last that it has counted."""
        self.is_open = False
        """Does it take clients?"""
        self.heard_ms = hub.now_ms()
        self._receivers: dict[type, Callable[..., object]] = {
            Heartbeat: self._beat,
            LogIn: self._log_in,
            LogOut: self._log_out,
            Request: self._request,
            Find: self._find,
            Call: self._call,
            Acks: self._acks,
            Lives: self._lives,
            Writing: self._writing,
            RoomAck: self._room_ack,
        }

    # What the connection tells.

    def opened(self, link: WatchedLink) -> None:
        """Somebody is there; nobody knows who."""
        self._link = link

    def received(self, data: bytes) -> None:
        """Bytes of messages."""
        self.heard_ms = self._hub.now_ms()
        try:
            for message in self._stream.feed(data):
                if not self._is_over:
                    self._take(message)
        except PixiuError as error:
            self.cut(str(error))

    def paused(self) -> None:
        """It reads too slowly: rooms wait."""
        if self.name and self._hub.broker is not None:
            self._hub.broker.pause(self.name)

    def resumed(self) -> None:
        """It reads again."""
        if self.name and self._hub.broker is not None:
            self._hub.broker.resume(self.name)

    def lost(self, reason: str) -> None:
        """It has hung up, or was cut."""
        if self._is_over:
            return
        self._is_over = True
        sessions, self._sessions = list(self._sessions.values()), {}
        self._out.clear()
        self._pushes.clear()
        self._event = None
        self._hub.lost(self, self.name, sessions, reason)

    def cut(self, reason: str) -> None:
        """Hang up on it."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self.lost(reason)

    # What the gateway says.

    def _take(self, message: WireMessage) -> None:
        if isinstance(message, Hello):
            self._greet(message)
            return
        receive = self._receivers.get(type(message))
        if receive is None or not self.name:
            raise RemoteProtocolError(f"a gateway does not say {type(message).__name__} here")
        self._hub.heard(self.name)
        receive(message)

    def _greet(self, message: Hello) -> None:
        if self.name or not message.name:
            raise RemoteProtocolError("a gateway says hello once, with its name")
        if message.version != VERSION:
            raise RemoteProtocolError(f"the gateway speaks version {message.version}, and this node {VERSION}")
        self.name = message.name
        epoch = self._hub.greeted(self, message.name)
        self.say(encode(Welcome(epoch, self._hub.settings.lease_ms)))

    def _beat(self, message: Heartbeat) -> None:
        self.connections = message.connections
        self._hub.counted(self, message.counts)
        if message.is_open and not self.is_open:
            self._hub.opened(self.name)
        self.is_open = message.is_open
        self.say(encode(Alive()))

    def _log_in(self, message: LogIn) -> None:
        request, user, platform, device, cursor = message
        remote = RemoteSession(self)
        done = partial(self._logged_in, request, remote)
        self._hub.messaging.connect(user, platform, device, remote, done, cursor=cursor, gateway=self.name)

    def _logged_in(self, request: int, remote: RemoteSession, session: Session | PixiuError) -> None:
        if isinstance(session, PixiuError):
            self.say(encode(Refusal(request, session)))
            return
        if self._is_over:  # the relay may know the gateway by a later link
            self._hub.messaging.disconnect(session.session_id)
            return
        remote.actor = Actor(session.user, session.platform, session.device, session.session_id)
        self._sessions[session.session_id] = remote
        self.say(encode(LoggedIn(request, session)))
        self._hub.joined(remote, self.name)

    def _log_out(self, message: LogOut) -> None:
        remote = self._sessions.pop(message.session_id, None)
        if remote is not None:
            self._hub.messaging.disconnect(message.session_id, message.cause)
            self._hub.left(remote)

    def _request(self, message: Request) -> None:
        request, session_id, is_admin, action, given = message
        done = partial(self._answer, request)
        remote = self._sessions.get(session_id)
        if remote is None:
            done(Unavailable("the session is over"))
        else:
            self._perform(remote, remote.actor._replace(is_admin=is_admin), action, dict(given), done)

    def _call(self, message: Call) -> None:
        request, user, is_admin, platform, device, action, given = message
        done, params = partial(self._answer, request), dict(given)
        if action.startswith(ADMIN_PREFIX):
            self._administer(action, params, done, is_admin=is_admin)
        else:
            self._perform(None, Actor(user, platform, device, 0, is_admin), action, params, done)

    def _administer(self, action: str, params: Params, done: Done, *, is_admin: bool) -> None:
        administer = self._hub.administer
        if administer is None or not is_admin:
            done(NotAllowed("only an admin may ask this, at a gateway of a cluster"))
        else:
            administer(action, params, done)

    def _perform(self, caller: RemoteSession | None, actor: Actor, action: str, params: Params, done: Done) -> None:
        live, broker = self._hub.actions.get(action), self._hub.broker
        try:
            if live is not None and caller is not None:
                live(caller, params, done)
            elif action in ROOM_VERBS and broker is not None and caller is not None:
                act_in_room(broker, actor, action, params, done)
            else:
                self._hub.messaging.act(actor, action, params, done)
        except PixiuError as error:
            done(error)
        except Exception:
            log.exception("an action failed", extra={"action": action})
            done(PixiuError("something is wrong on this side; it has been noted"))

    def _find(self, message: Find) -> None:
        def found(number: int | PixiuError) -> None:
            if isinstance(number, PixiuError) and not isinstance(number, UnknownUsers):
                self.say(encode(Refusal(message.request, number)))
            else:
                self.say(encode(Found(message.request, number if isinstance(number, int) else 0)))

        self._hub.messaging.find_user(message.user, found)

    def _answer(self, request: int, answer: Result | PixiuError) -> None:
        try:
            frame = encode(Refusal(request, answer) if isinstance(answer, PixiuError) else Answer(request, answer))
        except RequestError as error:  # too much for one frame
            log.error("an answer could not be passed on", extra={"reason": str(error)})
            frame = encode(Refusal(request, error))
        self.say(frame)

    def _acks(self, message: Acks) -> None:
        for session_id, cursor in message.acks:
            if session_id not in self._sessions or not self._hub.messaging.ack(session_id, cursor):
                self._unknown(session_id)

    def _lives(self, message: Lives) -> None:
        for session_id in message.session_ids:
            if session_id not in self._sessions or not self._hub.messaging.heartbeat(session_id):
                self._unknown(session_id)

    def _writing(self, message: Writing) -> None:
        for session_id in message.session_ids:
            if session_id in self._sessions:
                self._hub.messaging.writing(session_id)

    def _unknown(self, session_id: int) -> None:
        """The relay does not know it (any more): neither may the gateway."""
        remote = self._sessions.pop(session_id, None)
        if remote is not None:
            self._hub.left(remote)
        self.say(encode(End(session_id, "unknown_session")))

    def _room_ack(self, message: RoomAck) -> None:
        if self._hub.broker is not None:
            self._hub.broker.acked(self.name, message.ack)

    # What the roles say to its sessions.

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Messages: gathered, so that a body that many get goes once."""
        if not self._is_over:
            if self._event is not None:
                self._seal()
            self._pushes.append((session_id, pushes))
            self._flush_soon()

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Something live: the same for sessions that are told one after the other goes once."""
        if self._is_over:
            return
        if self._event is not None and self._event[0] is event:
            self._event[1].append(session_id)
            return
        self._seal()
        self._event = (event, [session_id])
        self._flush_soon()

    def end(self, session_id: int, reason: str) -> None:
        """The relay has ended a session."""
        remote = self._sessions.pop(session_id, None)
        if remote is not None:
            self._seal()
            self.say(encode(End(session_id, reason)))
            self._hub.left(remote)

    def say(self, frame: bytes) -> None:
        """Write a frame at the end of this turn."""
        if not self._is_over:
            self._out.append(frame)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_near:
            self._is_near = True
            self._hub.scheduler.soon(self._flush)

    def _flush(self) -> None:
        self._is_near = False
        link = self._link
        if link is None or self._is_over:
            return
        self._seal()
        data = b"".join(self._out)
        self._out.clear()
        waiting = link.pending()  # one that has taken everything may get any frame
        if waiting and waiting + len(data) > self._hub.settings.link_bytes_max:
            self.cut("it does not take what it is told")
        elif data:
            link.write(data)

    def _seal(self) -> None:
        """Make frames of what was gathered, so that what follows comes behind it."""
        if self._pushes:
            pushes, self._pushes = self._pushes, []
            self._out += [encode(frame) for frame in _gathered(pushes, self._hub.names)]
        if self._event is not None:
            (event, session_ids), self._event = self._event, None
            try:
                self._out.append(encode(Event(session_ids, event)))
            except RequestError as error:
                log.error("an event could not be passed on", extra={"reason": str(error)})


def _gathered(pushes: list[tuple[int, list[Push]]], names: PublicNames) -> list[Pushes]:
    """Pushes as frames, each body once, with the names that it takes to show them.

    Where the names cannot be had, a session gets no more for now: the relay will send it again.
    """
    frames: list[Pushes] = []
    bodies: list[tuple[int, bytes]] = []
    rows: list[PushRow] = []
    users: dict[int, str] = {}
    groups: dict[int, str] = {}
    places: dict[tuple[int, bytes], int] = {}
    size = 0
    for session_id, found in pushes:
        for useq, previous, message_id, body, is_resend, needs_ack, origin, options in found:
            place = places.get((message_id, body))
            if place is None:
                if size and size + len(body) > PUSHES_BYTES:
                    frames.append(Pushes(bodies, rows, users, groups))
                    bodies, rows, users, groups, places, size = [], [], {}, {}, {}, 0
                try:
                    _name(body, names, users, groups)
                except PixiuError:
                    break
                place = places[message_id, body] = len(bodies)
                bodies.append((message_id, body))
                size += len(body)
            rows.append(PushRow(session_id, useq, previous, place, is_resend, needs_ack, origin, options))
    if rows:
        frames.append(Pushes(bodies, rows, users, groups))
    return frames


def _name(body: bytes, names: PublicNames, users: dict[int, str], groups: dict[int, str]) -> None:
    for numbers, known, name in zip(
        numbers_in(body), (users, groups), (names.user_name, names.group_name), strict=True
    ):
        for number in numbers:
            if number not in known and 0 <= number < NUMBERS_END:
                known[number] = name(number)
