"""One client, from its token to its last word.

Life: the token is checked, the session is made, then in this order the client gets its contacts, what it missed, and
what is said from then on. The session is there before the contacts are read, and what the relay pushes meanwhile is
held, so nothing is lost between them and nothing comes first.

The acting user is the token's, whatever the params say.
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pixiu.im.draft import Actor
from pixiu.machines.session import Ack, BadFrame, FrameTooLarge, Malformed, Request
from pixiu.model.errors import (
    NotFound,
    Overloaded,
    PixiuError,
    RateLimited,
    RequestError,
    Unauthenticated,
    Unavailable,
)
from pixiu.ports.clients import CloseCode
from pixiu.roles.gateway.metrics import count
from pixiu.roles.gateway.outlet import Outlet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.im.draft import Answer
    from pixiu.machines.delivery import Push
    from pixiu.machines.session import Codec, Envelope
    from pixiu.model.session import LogoutCause, Session
    from pixiu.ports.authentication import Identity
    from pixiu.ports.clients import ClientTransport
    from pixiu.ports.scheduler import Timer
    from pixiu.roles.gateway.gateway import Gateway

__all__ = ["Connection"]

log = logging.getLogger(__name__)

FROM_INBOX = frozenset({"receive", "sync"})
"""Actions that may give a client what it missed of its inbox."""

LARGE_FRAME_BYTES = 16_384
"""Frames above this size are charged to the user's request rate before they are decoded."""

EARLY_MAX = 16
"""Frames that may be there before the token has been checked: those that came with it."""

# fmt: off
REASONS = frozenset({
    "bad_request", "banned", "erased", "expired", "idle", "new_session", "no_ack", "rate_limited", "resync", "shutdown",
    "slow", "too_large", "unauthenticated", "unavailable", "unknown_session",
})
# fmt: on
"""Why connections end, as they are counted; what else a kick says is counted as "other"."""
USER_GONE: Mapping[str, str] = {"banned": "this user is banned", "erased": "this user was erased"}
"""Reasons for which the relay ends the sessions of a user who may not log in again, and the text for the client."""
CAUSES: Mapping[str, LogoutCause] = {"idle": "timeout", "slow": "send_error"}
"""What that means for the session; everything else is a decision of the server's."""


class State(Enum):
    """Where a connection stands."""

    OPENING = "opening"
    LIVE = "live"
    CLOSED = "closed"


OPENING, LIVE, CLOSED = State.OPENING, State.LIVE, State.CLOSED


class Connection:
    """A client's connection: the sink of its session, and the one who performs its requests."""

    __slots__ = (
        "_acked",
        "_codec",
        "_cursor",
        "_due",
        "_early",
        "_gateway",
        "_has_codes",
        "_held",
        "_in_flight",
        "_is_writing",
        "_state",
        "_timer",
        "_transport",
        "_waiting",
        "actor",
        "address",
        "identity",
        "is_heard",
        "misses",
        "number",
        "outlet",
        "session",
        "typed_us",
        "watched",
    )

    def __init__(
        self,
        gateway: Gateway,
        number: int,
        transport: ClientTransport,
        codec: Codec,
        envelope: Envelope,
        cursor: int,
        address: str,
    ) -> None:
        self._gateway = gateway
        self._transport = transport
        self._codec = codec
        self._has_codes = bool(envelope.ping)
        self._cursor = cursor
        self._state = OPENING
        self._early: list[tuple[bytes, bool]] | None = []
        self._timer: Timer | None = None
        self._held: list[Push] | None = []
        self._waiting: list[Request] | None = []
        self._in_flight = 0
        self._acked = 0
        self._due = False
        self._is_writing = False
        self.number = number
        self.address = address
        self.identity: Identity | None = None
        """Whose token it is, once that is known."""
        self.outlet = Outlet(gateway.rules, transport, codec, envelope, self._too_slow)
        self.session: Session | None = None
        self.actor = Actor(0)
        """Who acts here. Real as soon as the session is there."""
        self.is_heard = True
        self.misses = 0
        self.typed_us = 0
        self.watched: tuple[int, ...] = ()

    # Opening.

    def begin(self, token: str) -> None:
        """Check the token, then log in. Until it is known to be good, nothing that the client says is looked at."""
        try:
            self._gateway.authenticate(token, self._identified)
        except Exception:
            log.exception("a token could not be checked")
            self._identified(Unavailable("the token could not be checked"))
        if self.identity is None and self._state is OPENING:
            self._transport.pause_reading()
            timeout_ms = self._gateway.settings.hello_timeout_ms
            self._timer = self._gateway.scheduler.after(
                timeout_ms, lambda: self._identified(Unavailable(f"the token was not checked within {timeout_ms} ms"))
            )

    def _identified(self, identity: Identity | PixiuError) -> None:
        if self._state is CLOSED or self.identity is not None:
            return
        error = identity if isinstance(identity, PixiuError) else self._gateway.user_refusal(identity)
        if error is not None:
            count(self._gateway.counters.refused, error.code)
            self._refuse(error)
        elif not isinstance(identity, PixiuError):
            self._log_in(identity)

    def _log_in(self, identity: Identity) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._transport.resume_reading()
        self._gateway.accepted(self, identity)
        self.identity = identity
        early, self._early = self._early, None
        self._gateway.messaging.connect(
            identity.user, identity.platform, identity.device, self, self._connected, cursor=self._cursor
        )
        for payload, is_text in early or ():
            self.received(payload, is_text=is_text)

    def _connected(self, session: Session | PixiuError) -> None:
        if isinstance(session, PixiuError):
            if self._state is not CLOSED:
                self._refuse(session)
            return
        if self._state is CLOSED:  # it went away meanwhile
            self._gateway.messaging.disconnect(session.session_id)
            return
        self._take(session)
        self._gateway.joined(self)
        self._gateway.messaging.act(self.actor, "contacts", {}, self._show_contacts)

    def _take(self, session: Session) -> None:
        self.session = session
        is_admin = self.identity is not None and self.identity.is_admin
        self.actor = Actor(session.user, session.platform, session.device, session.session_id, is_admin=is_admin)

    def _refuse(self, error: PixiuError) -> None:
        """The login failed."""
        if isinstance(error, Unauthenticated | NotFound):
            self.end(CloseCode.UNAUTHENTICATED, "unauthenticated", error)
        elif isinstance(error, RequestError):
            self.end(CloseCode.BAD_REQUEST, "bad_request", error)
        elif isinstance(error, RateLimited):
            self.end(CloseCode.TOO_MANY, error.code, error)
        else:
            self._tell_when(error)
            self.end(CloseCode.TRY_LATER, "unavailable", error)

    def _tell_when(self, error: PixiuError) -> None:
        """Tell a client with close codes when to try again; others find it in the error."""
        after_ms = error.retry_after_ms if isinstance(error, Unavailable) else 0
        if after_ms and self._has_codes:
            self.outlet.event({"push": "reconnect", "after_ms": after_ms})

    def _show_contacts(self, answer: Answer | PixiuError) -> None:
        if self._state is CLOSED:
            return
        if isinstance(answer, PixiuError):
            self._refuse(answer)
            return
        self.outlet.event({"push": "contacts", **answer})
        if self._cursor:
            # One entry is enough to learn whether the cursor is of this inbox, and what lies before its floor.
            params: dict[str, object] = {"cursor": str(self._cursor), "limit": 1}
            self._gateway.messaging.act(self.actor, "sync", params, self._resume)
        else:
            self._go_live()

    def _resume(self, answer: Answer | PixiuError) -> None:
        """Tell what a client that was here before cannot get any more from its inbox."""
        if self._state is CLOSED:
            return
        if not isinstance(answer, PixiuError):
            self._acked = self._cursor
            self.outlet.held(self._cursor)
            gaps = answer.get("gaps")
            for gap in gaps if isinstance(gaps, list) else []:
                self.outlet.event({"push": "gap", **gap})
        elif isinstance(answer, RequestError):  # of another inbox, or of before a restore
            self.outlet.event({"push": "resync"})
        self._go_live()

    def _go_live(self) -> None:
        self._state = LIVE
        held, self._held = self._held, None
        waiting, self._waiting = self._waiting, None
        self.outlet.open()
        if held:
            self._push(held)
        for request in waiting or ():
            self._in_flight -= 1
            self._request(request)

    # A node that took this gateway for dead.

    def cut_off(self) -> None:
        """The session is over, and the connection is not: what the client says is refused until it has another."""
        if self._state is LIVE:
            self.session = None

    @property
    def is_cut_off(self) -> bool:
        """Does it live without a session?"""
        return self._state is LIVE and self.session is None

    def rejoin(self) -> None:
        """Begin another session over the same connection, from what the client holds."""
        identity = self.identity
        if self.is_cut_off and identity is not None:
            self._gateway.messaging.connect(
                identity.user, identity.platform, identity.device, self, self._rejoined, cursor=self._acked
            )

    def _rejoined(self, session: Session | PixiuError) -> None:
        if isinstance(session, Unavailable):
            if self.is_cut_off:
                self._gateway.when_not_rejoined(self)
            return
        if isinstance(session, PixiuError):
            if self._state is not CLOSED:
                self._refuse(session)
            return
        if not self.is_cut_off:
            self._gateway.messaging.disconnect(session.session_id)
            return
        before = self.actor.session_id
        self._take(session)
        self.outlet.event({"push": "resync"})
        self._gateway.rejoined(self, before)

    # What the relay says.

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Messages, in order."""
        if self._state is LIVE:
            self._push(pushes)
        elif self._held is not None and self._state is OPENING:
            through = max((push.useq for push in self._held), default=0)
            fresh = [push for push in pushes if push.useq > through or not push.useq]
            self._held.extend(fresh)  # the relay's window bounds them
            if len(fresh) < len(pushes):
                self._report_writing()

    def _push(self, pushes: list[Push]) -> None:
        if not self.outlet.push(pushes, self._acked):
            return
        if self.outlet.watch_delivery():
            self._report_writing()
        elif self._acked:
            self._ack_soon()  # the relay may have missed the client's last ack

    def _report_writing(self) -> None:
        """The relay waits for an ack of messages that the client does not have yet: report that when this turn ends."""
        self._is_writing = True
        self._ack_soon()

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Something live."""
        if self._state is not CLOSED:
            self.outlet.event(event)

    def close(self, session_id: int, reason: str) -> None:
        """The relay has ended the session."""
        self.session = None
        if reason in USER_GONE:
            self.end(CloseCode.UNAUTHENTICATED, reason, Unauthenticated(USER_GONE[reason]))
        elif reason == "shutdown":
            self.send_away(reason)
        else:
            self.kick(reason)

    # What the client says.

    def received(self, payload: bytes, *, is_text: bool) -> None:
        """One whole frame."""
        self.is_heard = True
        if self._state is CLOSED:
            return
        if self._early is not None:
            self._early.append((payload, is_text))
            if len(self._early) > EARLY_MAX:
                self.failed(BadFrame("wait until the token has been checked"))
            return
        if len(payload) > LARGE_FRAME_BYTES:
            wait_ms = self._gateway.frame_wait_ms(self, len(payload))
            if wait_ms:
                self._transport.pause_reading()
                self._gateway.scheduler.after(wait_ms, self._read_on)
        try:
            if is_text is not self._codec.is_text:
                raise BadFrame(f"this subprotocol has {'text' if self._codec.is_text else 'binary'} frames only")
            event = self._codec.decode(payload)
        except PixiuError as error:
            self.failed(error)
            return
        if isinstance(event, Ack):
            if event.cursor > self._acked:
                self._acked = event.cursor
            self._ack_soon()
        elif isinstance(event, Request):
            self._admit(event)
        elif isinstance(event, Malformed):
            self._gateway.counters.bad_frames += 1
            self.outlet.answer(event.id, self._gateway.request_refusal(self) or RequestError(event.reason))

    def _read_on(self) -> None:
        if self._state is not CLOSED:
            self._transport.resume_reading()

    def heard(self) -> None:
        """A sign of life."""
        self.is_heard = True

    def failed(self, error: PixiuError) -> None:
        """What the client sent is no frame: say so, and close."""
        if self._state is CLOSED:
            return
        self._gateway.counters.bad_frames += 1
        self.outlet.answer(None, error)
        is_large = isinstance(error, FrameTooLarge)
        self.end(CloseCode.TOO_LARGE if is_large else CloseCode.BAD_REQUEST, error.code)

    def _admit(self, request: Request) -> None:
        gateway = self._gateway
        error: PixiuError | None
        if self._in_flight >= gateway.settings.requests_in_flight:
            error = Overloaded(f"{self._in_flight} requests wait for their answers already")
        else:
            error = gateway.request_refusal(self, request.params)
        if error is not None:
            count(gateway.counters.refused_requests, error.code)
            self.outlet.answer(request.id, error)
        elif self._waiting is not None:
            self._in_flight += 1
            self._waiting.append(request)
        else:
            self._request(request)

    def _request(self, request: Request) -> None:
        self._in_flight += 1
        gateway = self._gateway
        gateway.counters.requests += 1
        done = partial(self._answer, request)
        local = gateway.actions.get(request.action)
        try:
            if local is not None:
                local(self, request.params, done)
            else:
                gateway.messaging.act(self.actor, request.action, request.params, done)
        except PixiuError as error:
            done(error)
        except Exception:
            log.exception("an action failed", extra={"action": request.action})
            done(PixiuError("something is wrong on this side; it has been noted"))

    def _answer(self, request: Request, answer: Answer | PixiuError) -> None:
        self._in_flight -= 1
        if self._state is CLOSED:
            return
        is_sent = self.outlet.answer(request.id, answer)
        if request.action in FROM_INBOX and is_sent and not isinstance(answer, PixiuError):
            cursor = answer.get("cursor")
            if isinstance(cursor, str) and not request.params.keys() & {"with", "group"}:
                self.outlet.held(int(cursor))

    def _ack_soon(self) -> None:
        if not self._due:
            self._due = True
            self._gateway.tick.will_ack(self)

    def pass_ack(self) -> None:
        """Tell the relay what the client holds; of several acks in a turn only the last counts."""
        if self._due:
            self._due = False
            is_writing, self._is_writing = self._is_writing, False
            if self.session is None:
                return
            if not self._gateway.messaging.ack(self.session.session_id, self._acked):
                self.kick("unknown_session")
            elif is_writing:
                self._gateway.messaging.writing(self.session.session_id)

    # Time.

    def visit(self, silence_max: int) -> None:
        """Look after the client, once per ping interval.

        One that still takes what was written to it may be silent: it is not read from while its socket is full, and a
        ping waits behind the rest. ``gateway.slow_timeout_ms`` is its bound.
        """
        if self.is_heard or self.outlet.is_blocked or self.outlet.watch_delivery():
            self.is_heard = False
            self.misses = 0
        else:
            self.misses += 1
            if self.misses >= silence_max:
                self.end(CloseCode.IDLE, "idle")
                return
            self.outlet.ping()
        if self.session is not None and not self._gateway.messaging.heartbeat(self.session.session_id):
            self.kick("unknown_session")

    def expire(self) -> None:
        """The token is too old."""
        self.end(CloseCode.UNAUTHENTICATED, "expired", Unauthenticated("the token has expired"))

    def revoke(self, error: PixiuError) -> None:
        """The token was valid when the client connected, and is not any more."""
        self.end(CloseCode.UNAUTHENTICATED, "unauthenticated", error)

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._state is not CLOSED:
            self.outlet.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again."""
        if self._state is not CLOSED:
            self.outlet.resume_writing()

    def _too_slow(self) -> None:
        self.kick("slow")

    # The end.

    def kick(self, reason: str) -> None:
        """Close it from here, with a reason that the client can read."""
        if self._state is not CLOSED:
            self.outlet.event({"push": "kick", "reason": reason})
            self.end(CloseCode.KICKED, reason)

    def send_away(self, reason: str = "shutdown") -> None:
        """This server stops: tell the client when to come back."""
        if self._state is not CLOSED:
            self.outlet.event({"push": "reconnect", "after_ms": self._gateway.return_after_ms(self.number)})
            self.end(CloseCode.GOING_AWAY, reason)

    def end(self, code: int, reason: str, error: PixiuError | None = None) -> None:
        """Close it. Where there are no close codes (TCP), ``error`` is told before."""
        if self._state is CLOSED:
            return
        self.pass_ack()
        if self._state is CLOSED:  # the ack may have ended it
            return
        if error is not None and not self._has_codes:
            self.outlet.answer(None, error)
        count(self._gateway.counters.closed, reason if reason in REASONS else "other")
        self._state = CLOSED
        self.outlet.close(code, reason)
        self._leave(CAUSES.get(reason, "server"))

    def lost(self, cause: LogoutCause = "quit") -> None:
        """The connection is gone: the client has closed it, or the network has."""
        self.pass_ack()
        if self._state is not CLOSED:
            self._state = CLOSED
            self.outlet.drop()
            self._leave(cause)

    @property
    def is_closed(self) -> bool:
        """Is it over?"""
        return self._state is CLOSED

    def _leave(self, cause: LogoutCause) -> None:
        if self._timer is not None:
            self._timer.cancel()
        session, self.session = self.session, None
        self._held = self._waiting = None
        if session is not None:
            self._gateway.messaging.disconnect(session.session_id, cause)
        self._gateway.left(self)
