"""A gateway's end of the link to a node in another process: ``Messaging`` by messages of ``machines.wire``.

What happens in a turn goes out in one write. The link may end at any time: because the node is gone, because either end
had more to say than the other took, or because this process stood still so long that the node took it for dead (B18).
Then every request under way is refused, the gateway is told that it is cut off, and the link is begun anew; with the
node's welcome the gateway learns that it may ask for new sessions.

Bounds: ``link_bytes_max`` of output, at a quarter of which new requests are refused as busy, and beyond which the link
is cut; names of users and groups, of which the oldest give way.

A node on another machine may stand still without anybody noticing, so a link may be told to end when the node has not
answered heartbeats for its lease.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.delivery import Push
from pixiu.machines.wire import (
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
    Refusal,
    Request,
    RoomAck,
    RoomFrame,
    Stream,
    Welcome,
    encode,
)
from pixiu.model.errors import Overloaded, PixiuError, RemoteProtocolError, Unavailable
from pixiu.roles.gateway.link_names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Actor, Params
    from pixiu.machines import room_link
    from pixiu.machines.wire import WireMessage
    from pixiu.model.session import LogoutCause, Session
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.transport import WatchedLink
    from pixiu.roles.gateway.needs import Done, LinkOwner, SessionSink

__all__ = ["NodeLink"]

log = logging.getLogger(__name__)

REDIAL_MS = 50
REDIAL_MS_MAX = 2_000
RETRY_MS = 1_000
BEATS_PER_LEASE = 4


class NodeLink:
    """Proxy, relay and broker of a node elsewhere."""

    def __init__(
        self,
        name: str,
        dial: Callable[[NodeLink], object],
        clock: Clock,
        scheduler: Scheduler,
        settings: GatewaySettings,
        *,
        names: LinkNames | None = None,
        notices_silence: bool = False,
    ) -> None:
        """``dial`` begins to connect, and tells this object what becomes of it.

        ``notices_silence``: a node that says nothing for its lease is left. Several links may share their ``names``.
        """
        self.names = names or LinkNames()
        self.receive_room: Callable[[str, room_link.Frame], room_link.Ack | None] = lambda _source, _frame: None
        """Takes what brokers send; returns what to answer."""
        self.when_up: Callable[[], object] = lambda: None
        """Told each time the node has welcomed this gateway."""
        self._name = name
        self._dial = dial
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._notices_silence = notices_silence
        self._heard_ms = 0
        self._owner: LinkOwner | None = None
        self._link: WatchedLink | None = None
        self._stream = Stream()
        self._epoch = 0
        self._lease_ms = settings.lease_ms
        self._redial_ms = REDIAL_MS
        self._cut_ms: int | None = None
        self.was_frozen = False
        """Whether the link ended because this process was frozen for longer than its lease."""
        self._beaten_ms = 0
        self._beat_timer: Timer | None = None
        self._dial_timer: Timer | None = None
        self._is_stopped = False
        self._is_open = False
        self._number = 0
        self._asked: dict[int, Done] = {}
        self._sought: dict[int, Callable[[int | PixiuError], object]] = {}
        self._logins: dict[int, tuple[SessionSink, Callable[[Session | PixiuError], object]]] = {}
        self._sinks: dict[int, SessionSink] = {}
        self._acks: dict[int, int] = {}
        self._lives: list[int] = []
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_near = False
        self._receivers: dict[type, Callable[..., object]] = {
            Welcome: self._welcomed,
            LoggedIn: self._logged_in,
            Answer: self._answered,
            Found: self._found,
            Alive: lambda _message: None,
            Refusal: self._refused,
            Pushes: self._pushed,
            Event: self._told,
            End: self._ended,
            RoomFrame: self._room,
        }

    # Life.

    @property
    def is_up(self) -> bool:
        """Does the node know this gateway?"""
        return self._epoch != 0

    @property
    def sessions(self) -> int:
        """Sessions of this link."""
        return len(self._sinks)

    def start(self, owner: LinkOwner) -> None:
        """Connect; the owner's clients wait for it."""
        self._owner = owner
        owner.cut_off()
        self._cut_ms = self._now_ms()
        self._beaten_ms = self._now_ms()
        self._redial()
        self._beat()

    def open(self, *, is_open: bool = True) -> None:
        """Clients may come from now on, or no more: tell the node."""
        self._is_open = is_open
        self._say_alive()

    def move(self, reason: str) -> None:
        """The node is elsewhere now: leave this one, and connect anew at once."""
        self._cut(reason)
        if self._dial_timer is not None:
            self._dial_timer.cancel()
        self._redial_ms = REDIAL_MS
        self._redial()

    def stop(self) -> None:
        """Say what is left to say, and hang up."""
        self._is_stopped = True
        self._flush()
        for timer in (self._beat_timer, self._dial_timer):
            if timer is not None:
                timer.cancel()
        link, self._link, self._epoch = self._link, None, 0
        if link is not None:
            link.close()
        self._refuse_all()

    # What the gateway asks for: ``Messaging``.

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Do what a user asks for."""
        error = self._refusal()
        if error is None and actor.session_id not in self._sinks:
            error = Unavailable("the session is over", retry_after_ms=RETRY_MS)
        if error is not None:
            done(error)
            return
        self._number += 1
        try:
            self._say(encode(Request(self._number, actor.session_id, actor.is_admin, action, params)))
        except PixiuError as refused:
            done(refused)
        else:
            self._asked[self._number] = done

    def call(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Perform an action for an actor without a session."""
        error = self._refusal()
        if error is not None:
            done(error)
            return
        self._number += 1
        user, platform, device, _, is_admin = actor
        try:
            self._say(encode(Call(self._number, user, is_admin, platform, device, action, params)))
        except PixiuError as refused:
            done(refused)
        else:
            self._asked[self._number] = done

    def find(self, user: str, done: Callable[[int | PixiuError], object]) -> None:
        """The number of a user; 0 if there is none."""
        error = self._refusal()
        if error is not None:
            done(error)
            return
        self._number += 1
        self._sought[self._number] = done
        self._say(encode(Find(self._number, user)))

    def connect(
        self,
        user: str,
        platform: str,
        device: str,
        sink: SessionSink,
        done: Callable[[Session | PixiuError], object],
        *,
        cursor: int = 0,
    ) -> None:
        """A client logs in."""
        error = self._refusal()
        if error is not None:
            done(error)
            return
        self._number += 1
        self._logins[self._number] = (sink, done)
        self._say(encode(LogIn(self._number, user, platform, device, cursor)))

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        """A connection is gone."""
        if self._sinks.pop(session_id, None) is not None:
            self._say(encode(LogOut(session_id, cause)))

    def ack(self, session_id: int, cursor: int) -> bool:
        """A client holds everything through this cursor. False: its session is not known."""
        if session_id not in self._sinks:
            return False
        self._acks[session_id] = cursor
        self._flush_soon()
        return True

    def heartbeat(self, session_id: int) -> bool:
        """A client lives. False: its session is not known."""
        if session_id not in self._sinks:
            return False
        self._lives.append(session_id)
        self._flush_soon()
        return True

    def _refusal(self) -> PixiuError | None:
        if not self.is_up:
            return Unavailable("the node cannot be reached", retry_after_ms=RETRY_MS)
        assert self._link is not None
        if self._link.pending() + self._out_bytes > self._settings.link_bytes_max // 4:
            return Overloaded("the node does not keep up", retry_after_ms=RETRY_MS)
        return None

    # What the link tells: ``WatchedReceiver``.

    def opened(self, link: WatchedLink) -> None:
        """The node is there."""
        self._link = link
        self._heard_ms = self._now_ms()
        self._stream = Stream()
        link.write(encode(Hello(VERSION, self._name)))

    def received(self, data: bytes) -> None:
        """Bytes of messages."""
        if self._look_at_time():
            return
        self._heard_ms = self._now_ms()
        try:
            messages = self._stream.feed(data)
        except PixiuError as error:
            self._cut(f"the node makes no sense: {error}")
            return
        for message in messages:
            if self._link is None:  # one of the messages was the last straw
                return
            self._take(message)

    def paused(self) -> None:
        """The node does not take what it is told: new requests are refused when it is too much."""

    def resumed(self) -> None:
        """It takes it again."""

    def lost(self, reason: str) -> None:
        """The link is over, or could not be made."""
        self._link = None
        if self._is_stopped or self._dial_timer is not None:  # it is known already, and the next one will be made
            return
        if self.is_up:
            log.warning("cut off from the node", extra={"reason": reason})
            self.was_frozen = self.was_frozen or self._has_been_frozen()
            self._epoch = 0
            self._cut_ms = self._now_ms()
            self._acks.clear()
            self._lives.clear()
            self._out.clear()
            self._out_bytes = 0
            self._sinks.clear()
            self._refuse_all()
            if self._owner is not None:
                self._owner.cut_off()
        self._dial_timer = self._scheduler.after(self._redial_ms, self._redial)
        self._redial_ms = min(self._redial_ms * 2, REDIAL_MS_MAX)

    def _redial(self) -> None:
        self._dial_timer = None
        if not self._is_stopped:
            self._dial(self)

    def _cut(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
            self.lost(reason)

    def _refuse_all(self) -> None:
        """What was asked may have been done; nobody will know here."""
        asked, self._asked = self._asked, {}
        logins, self._logins = self._logins, {}
        sought, self._sought = self._sought, {}
        for done in [*asked.values(), *(login[1] for login in logins.values()), *sought.values()]:
            done(Unavailable("the node was lost; what was asked may have been done", retry_after_ms=RETRY_MS))

    # Time.

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def _look_at_time(self) -> bool:
        """Has this process stood still for its lease? Then it is dead to the node, whatever the link says (B18)."""
        has_stood = self.is_up and self._has_been_frozen()
        if has_stood:
            self.was_frozen = True
            self._beaten_ms = self._now_ms()
            self._cut("this process stood still for longer than its lease")
        return has_stood

    def _has_been_frozen(self) -> bool:
        return self._now_ms() - self._beaten_ms > self._lease_ms

    def _beat(self) -> None:
        self._look_at_time()
        now_ms = self._beaten_ms = self._now_ms()
        owner = self._owner
        if self._link is not None and self._notices_silence and now_ms - self._heard_ms > self._lease_ms:
            self._cut(f"the node said nothing for {now_ms - self._heard_ms} ms")
        if self.is_up:
            self._say_alive()
        elif owner is not None and self._cut_ms is not None and now_ms - self._cut_ms > self._lease_ms:
            self._cut_ms = None  # once
            owner.send_all_away()
        self._beat_timer = self._scheduler.after(self._lease_ms / BEATS_PER_LEASE, self._beat)

    def _say_alive(self) -> None:
        connections, counts = (0, {}) if self._owner is None else self._owner.counted()
        self._say(encode(Heartbeat(connections, self._is_open, counts)))

    # What the node says.

    def _take(self, message: WireMessage) -> None:
        receive = self._receivers.get(type(message))
        try:
            if receive is None or (not self.is_up and type(message) is not Welcome):
                raise RemoteProtocolError(f"a node does not say {type(message).__name__} here")
            receive(message)
        except RemoteProtocolError as error:
            self._cut(str(error))
        except Exception:  # one client's trouble is not the others'
            log.exception("a message of the node could not be handled", extra={"what": type(message).__name__})

    def _welcomed(self, message: Welcome) -> None:
        self._epoch, self._lease_ms = message
        self._redial_ms = REDIAL_MS
        self._cut_ms = None
        self._beaten_ms = self._now_ms()
        log.info("the node knows this gateway", extra={"epoch": self._epoch})
        self._say_alive()
        self.when_up()
        if self._owner is not None:
            self._owner.reached()
        self.was_frozen = False

    def _logged_in(self, message: LoggedIn) -> None:
        request, session = message
        login = self._logins.pop(request, None)
        if login is not None:
            self._sinks[session.session_id] = login[0]
            login[1](session)

    def _answered(self, message: Answer) -> None:
        done = self._asked.pop(message.request, None)
        if done is not None:
            done(dict(message.result))

    def _found(self, message: Found) -> None:
        done = self._sought.pop(message.request, None)
        if done is not None:
            done(message.number)

    def _refused(self, message: Refusal) -> None:
        done = self._asked.pop(message.request, None) or self._sought.pop(message.request, None)
        login = self._logins.pop(message.request, None)
        if done is not None:
            done(message.error)
        elif login is not None:
            login[1](message.error)

    def _pushed(self, message: Pushes) -> None:
        bodies, rows, users, groups = message
        self.names.learn(users, groups)
        run: list[Push] = []
        of = 0
        for session_id, useq, previous, place, is_resend, needs_ack, origin, options in rows:
            if session_id != of:
                self._push(of, run)
                of, run = session_id, []
            message_id, body = bodies[place]
            run.append(Push(useq, previous, message_id, body, is_resend, needs_ack, origin, options))
        self._push(of, run)

    def _push(self, session_id: int, pushes: list[Push]) -> None:
        sink = self._sinks.get(session_id)
        if sink is not None and pushes:
            sink.push(session_id, pushes)

    def _told(self, message: Event) -> None:
        for session_id in message.session_ids:
            sink = self._sinks.get(session_id)
            if sink is not None:
                sink.event(session_id, message.event)

    def _ended(self, message: End) -> None:
        sink = self._sinks.pop(message.session_id, None)
        if sink is not None:
            sink.close(message.session_id, message.reason)

    def _room(self, message: RoomFrame) -> None:
        ack = self.receive_room(message.source, message.frame)
        if ack is not None:
            self._say(encode(RoomAck(message.source, ack)))

    # What goes out.

    def _say(self, frame: bytes) -> None:
        if self.is_up:
            self._out.append(frame)
            self._out_bytes += len(frame)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._flush)

    def _flush(self) -> None:
        self._is_near = False
        out, self._out, self._out_bytes = self._out, [], 0
        link = self._link
        if link is None or not self.is_up:
            return
        first: list[bytes] = []  # before anybody logs out
        if self._acks:
            first.append(encode(Acks(list(self._acks.items()))))
            self._acks.clear()
        if self._lives:
            first.append(encode(Lives(self._lives)))
            self._lives = []
        data = b"".join(first + out)
        waiting = link.pending()
        if waiting and waiting + len(data) > self._settings.link_bytes_max:
            self._cut("the node does not take what it is told")
        elif data:
            link.write(data)
