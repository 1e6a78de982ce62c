"""A client's session over all its connections: what arrives is shown once and in order, what is asked is answered.

::

    session = ClientSession(rules, jitter=random.random, cursor=0)
    session.start(now)                  # [Connect(0, …)]
    session.received(b'{"push":…}', now)  # [Arrived([…])]: hold it, show it, then session.held(cursor, …)

**Order and repeats.** A push has a cursor. On one connection a server leaves none out; a new connection resumes behind
what was held for good, so what arrived and was not held comes again, and is dropped by its cursor; what comes by
another way (an answer to a sync) by its message_id, of which the last ``seen_max`` are known.

**A cursor that the server does not know** (another inbox, a backup that was restored) begins a new ``generation``: acks
of the old numbers count for nothing.

**Reconnecting** waits ``retry_ms``, then twice as long each time up to ``retry_ms_max``, less a random part; or as long
as the server says. A kick by ``new_session`` or by an administrator, and a token that is refused twice, end it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pixiu.machines.client_session.commands import (
    Arrived,
    Connect,
    Drop,
    Ended,
    Hurry,
    Incoming,
    Kicked,
    Tell,
    Write,
)
from pixiu.machines.client_session.requests import ONCE, Requests
from pixiu.machines.client_session.rules import ClientRules, State, error_of, why_refused
from pixiu.machines.client_session.values import (
    Closed,
    Gap,
    GapEvent,
    Message,
    Online,
    Place,
    RecallEvent,
    RoomPresence,
    event_of,
    number,
    text,
)
from pixiu.model.errors import PixiuError, RequestError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.client_session.commands import Answered, Command

__all__ = ["INBOX", "ClientSession"]

INBOX = ""
"""The name in a ``Gap``'s place ("with") when it is a gap of the inbox: its ends are cursors."""
GOES_ON = frozenset({"no_ack", "slow", "resync", "unknown_session", "idle", "shutdown", "expired", "unavailable"})
"""Reasons of a kick after which a client comes back by itself."""
PING_DEADLINE_MS = 15_000
OWN_DEADLINE_MS = 60_000
"""For what the session asks by itself: a sync, to enter rooms again."""
PAGE = 100
LASTS_MAX = 1_000

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError, AttributeError, KeyError)
"""What a frame of somebody else's server comes to: no JSON, or something else where a list or an object belongs."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ClientSession:
    """See the module. Methods are told the time, and return what is to be done, in order."""

    def __init__(self, rules: ClientRules, *, jitter: Callable[[], float], cursor: int = 0, last_id: int = 0) -> None:
        """``jitter`` gives numbers from 0 to 1; ``cursor`` and ``last_id`` are what an earlier session ended with."""
        self.state = State.IDLE
        self.cursor = cursor
        """Everything through here is held for good: where a new connection resumes."""
        self.last_id = last_id
        """The newest message that came through the inbox."""
        self.generation = 0
        self.user = ""
        """Whose session it is; what this user sent elsewhere is shown, what was sent here is not."""
        self.why_refused = why_refused("", was_live=False)
        """What the server had against the last token that it did not take."""
        self.rooms: dict[str, None] = {}
        self.watched: list[str] | None = None
        self.watches = False
        self._rules = rules
        self._jitter = jitter
        self._received = self._resumed = cursor
        self._is_first = False
        self._seen: dict[int, None] = {}
        self._own: dict[str, None] = {}
        self._lasts: dict[str, int] = {}
        self._missed: int | None = None
        self._out: list[Command] = []
        self._requests = Requests(self._write, self._answered)
        self._attempts = self._refusals = 0
        self._advice: int | None = None
        self._kick = ""
        self._since = self._heard = 0
        self._wake: int | None = None
        self._is_pinging = self._is_syncing = self._is_deaf = False

    # The life of a session.

    def start(self, now: int) -> list[Command]:
        """Begin."""
        if self.state is State.IDLE:
            self._connect(now, needs_token=False)
        return self._done()

    def opened(self, now: int) -> list[Command]:
        """The connection is there. It is good once the server has said its first push."""
        self._heard = now
        return self._done()

    def failed(self, error: PixiuError, now: int) -> list[Command]:
        """No connection could be made."""
        if self.state is State.CONNECTING:
            if isinstance(error, RequestError) and not isinstance(error, Unauthenticated):
                self._end(error, now)
            else:
                if isinstance(error, Unavailable) and error.retry_after_ms:
                    self._advice = error.retry_after_ms
                self._lost(str(error), now, is_refused=isinstance(error, Unauthenticated), error=error)
        return self._done()

    def closed(self, code: int, reason: str, now: int) -> list[Command]:
        """The connection is gone. ``code`` is the WebSocket's; 1006 if it was just cut."""
        if self.state not in (State.CONNECTING, State.LIVE):
            return self._done()
        was_live = self.state is State.LIVE
        if code == 4401:
            self.why_refused = why_refused(reason, was_live=was_live)
            error = Unauthenticated(self.why_refused)
            self._lost(reason or "unauthenticated", now, is_refused=True, error=error)
        elif code == 4403 and (self._kick or reason) not in GOES_ON:
            self._end(Kicked(self._kick or reason), now)
        elif code == 4400 and not was_live:
            self._end(RequestError(f"the server refuses this client: {reason}"), now)
        else:
            if code == 1009:
                self._requests.too_large("the server does not take a frame of this size", now)
            self._lost(self._kick or reason or "cut", now)
        return self._done()

    def leave(self, now: int) -> list[Command]:
        """The program has had enough. What was held is acked before."""
        if self.state in (State.CONNECTING, State.LIVE):
            self._out.append(Drop())
        self._end(None, now)
        return self._done()

    def tick(self, now: int) -> list[Command]:
        """Time has passed; call it when ``due`` says so, or whenever."""
        if self.state is State.WAITING and self._wake is not None and now >= self._wake:
            self._connect(now, needs_token=self._refusals > 0)
        elif self.state is State.CONNECTING and now >= self._since + self._rules.open_ms:
            self._out.append(Drop())
            self._lost("no answer", now)
        self._requests.expire(now)
        if self.state is State.LIVE:
            if not self._is_pinging and not self._is_deaf and now >= self._heard + self._rules.ping_ms:
                self._is_pinging = True
                self._requests.add(
                    "ping", {}, now + PING_DEADLINE_MS, repeats=False, then=self._ponged, is_first=True
                )  # fmt: skip
            self._requests.pump(now)
        return self._done()

    def due(self) -> int | None:
        """When to call ``tick`` next."""
        times = [self._requests.due(may_write=self.state is State.LIVE)]
        if self.state is State.WAITING:
            times.append(self._wake)
        elif self.state is State.CONNECTING:
            times.append(self._since + self._rules.open_ms)
        elif self.state is State.LIVE and not self._is_pinging and not self._is_deaf:
            times.append(self._heard + self._rules.ping_ms)
        return min((each for each in times if each is not None), default=None)

    def deaf(self, now: int, *, is_deaf: bool) -> None:
        """The program reads nothing from the connection for a while: silence means nothing then."""
        self._is_deaf = is_deaf
        self._heard = now

    # What the program asks.

    def request(self, action: str, params: dict[str, Any], deadline: int, now: int) -> tuple[int, list[Command]]:
        """Ask something; its number will be in an ``Answered``. Raises ``Overloaded``."""
        if self.state is State.ENDED:
            raise Unavailable("this session is over")
        if "send_id" in params:
            self._remember(self._own, str(params["send_id"]))
        asked = self._requests.add(action, params, deadline, repeats=action not in ONCE)
        if self.state is State.LIVE:
            self._requests.pump(now)
        return asked, self._done()

    def give_up(self, asked: int) -> None:
        """Nobody waits for this answer any more."""
        self._requests.give_up(asked)

    @property
    def is_refused(self) -> bool:
        """Was the last token not taken? Then there is one more try, with a fresh one."""
        return self._refusals > 0

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._requests)

    def held(self, cursor: int, generation: int) -> list[Command]:
        """Everything through this cursor is held for good: ack it."""
        if generation == self.generation and cursor > self.cursor:
            self.cursor = cursor
            if self.state is State.LIVE:
                self._ack()
        return self._done()

    def not_held(self, reason: str, now: int) -> list[Command]:
        """What arrived could not be kept: it must come again, over a new connection."""
        self._received = self.cursor
        self._seen.clear()
        if self.state in (State.CONNECTING, State.LIVE):
            self._out.append(Drop())
            self._lost(reason, now)
        return self._done()

    def sent(self, message_id: int) -> None:
        """This client has sent a message: it is not news when it comes back."""
        self._remember(self._seen, message_id)

    # What the server says.

    def received(self, payload: bytes | str, now: int) -> list[Command]:
        """One frame. One that cannot be read ends the connection, not the session."""
        self._heard = now
        if self.state not in (State.CONNECTING, State.LIVE):
            return self._done()
        try:
            self._heed(_decode(payload), now)
        except MALFORMED:
            self._received = self.cursor  # it comes again, and what was shown is known
            self._out.append(Drop())
            self._lost("the server does not speak as Pixiu does", now)
            return self._done()
        if self.state is State.LIVE:
            self._requests.pump(now)
        return self._done()

    def _heed(self, frame: dict[str, Any], now: int) -> None:
        push = frame.get("push")
        if push is None:
            self._answer(frame, now)
        elif push in ("message", "recall") and isinstance(frame.get("message"), dict):
            self._message(frame)
        elif push == "urgent" and isinstance(frame.get("message"), dict):
            self._urgent(frame["message"])
        else:
            self._pushed(str(push), frame, now)

    def _answer(self, frame: dict[str, Any], now: int) -> None:
        asked, error = frame.get("id"), frame.get("error")
        if not isinstance(asked, int):
            return  # about the connection; the close that follows says the rest
        result = frame.get("result")
        if isinstance(error, dict):
            self._requests.answer(asked, error_of(error), now)
        else:
            self._requests.answer(asked, result if isinstance(result, dict) else {}, now)

    def _pushed(self, push: str, frame: dict[str, Any], now: int) -> None:
        if push == "contacts" and self.state is State.CONNECTING:
            self._live(now)
        if push == "resync":
            self._sync(now)
        elif push == "reconnect":
            self._advice = number(frame.get("after_ms"))
        elif push == "ping":
            self._out.append(Write(b'{"action":"pong"}'))
        elif push == "gap" and "inbox" in frame:
            self._inbox_gap(number(frame.get("after")), number(frame.get("before")))
        else:
            if push == "kick":
                self._kick = text(frame.get("reason"))
            event = event_of(frame)
            if isinstance(event, RoomPresence) and not event.is_in:
                self.rooms.pop(event.room, None)
            if event is not None:
                self._out.append(Tell(event))

    def _message(self, frame: dict[str, Any]) -> None:
        message = frame["message"]
        if "cursor" not in frame:
            self._live_message(message)
            return
        cursor = number(frame["cursor"])
        if self._is_first:
            self._is_first = False
            if cursor <= self._resumed:  # of another inbox than our cursor
                self._renumber()
        if cursor <= self._received:
            if cursor <= self.cursor:
                self._ack()  # it was lost, or it would not come again
            return
        self._received = cursor
        self._take([(message, cursor)])

    def _urgent(self, message: dict[str, Any]) -> None:
        """An early copy. It is not remembered as seen: the message itself still has to be kept and acked."""
        if number(message.get("message_id")) not in self._seen and not self._is_own(message):
            self._out.append(Hurry(message))

    def _live_message(self, message: dict[str, Any]) -> None:
        """Of a room, or of a large group, which tells by ``prev`` whether one is missing."""
        message_id, group = number(message.get("message_id")), text(message.get("group"))
        if not self._is_new(message):
            return
        if group and "prev" in message:
            last, previous = self._lasts.get(group, 0), number(message["prev"])
            if last and last < previous:
                self._out.append(Tell(GapEvent(Gap(Place("group", group), last, message_id))))
            self._lasts.pop(group, None)
            self._lasts[group] = max(last, message_id)
            if len(self._lasts) > LASTS_MAX:
                del self._lasts[next(iter(self._lasts))]
        self._out.append(Arrived([Incoming(message, 0, self.generation, is_shown=not self._is_own(message))]))

    def _take(self, news: list[tuple[dict[str, Any], int]]) -> None:
        """Hand on messages in order, each once. A cursor goes on also where its message is not new."""
        items: list[Incoming] = []
        for message, cursor in news:
            self.last_id = max(self.last_id, number(message.get("message_id")))
            if not self._is_new(message):
                if cursor:
                    items.append(Incoming(None, cursor, self.generation, is_shown=False))
                continue
            is_recall = message.get("kind") == "delete" and "ref" in message
            if is_recall:
                self._out.append(Tell(RecallEvent(number(message["ref"]), Message.read(message))))
            is_shown = not is_recall and not self._is_own(message)
            items.append(Incoming(message, cursor, self.generation, is_shown=is_shown))
        if items:
            self._out.append(Arrived(items))

    def take_missed(self) -> int | None:
        """The last message before what the inbox has lost: where to catch up from. Asked once."""
        missed, self._missed = self._missed, None
        return missed

    def is_news(self, message: dict[str, Any]) -> bool:
        """Was this neither shown nor sent here? From now on it was."""
        return self._is_new(message) and not self._is_own(message)

    def _is_new(self, message: dict[str, Any]) -> bool:
        message_id = number(message.get("message_id"))
        if message_id in self._seen:
            return False
        self._remember(self._seen, message_id)
        return True

    def _is_own(self, message: dict[str, Any]) -> bool:
        return message.get("send_id") in self._own and (not self.user or message.get("from") == self.user)

    # Catching up.

    def _inbox_gap(self, after: int, before: int) -> None:
        """The inbox has lost what lies between; unless it is here already, waiting to be held."""
        if before - 1 > self._received:
            self._missed = self.last_id if self._missed is None else self._missed
            self._out.append(
                Tell(GapEvent(Gap(Place("with", INBOX), max(after, self._received), before, is_trimmed=True)))
            )
            self._received = before - 1

    def _sync(self, now: int) -> None:
        """The server says that the connection alone is not enough: read the inbox, page by page."""
        if not self._is_syncing:
            self._is_syncing = True
            self._ask("sync", {"cursor": str(self._received), "limit": PAGE}, self._synced, now)

    def _synced(self, answer: dict[str, Any] | PixiuError, now: int) -> None:
        self._is_syncing = False
        if isinstance(answer, PixiuError):
            if isinstance(answer, RequestError):
                is_first_time = self._received > 0
                self._renumber()
                if is_first_time:
                    self._is_syncing = True
                    self._ask("sync", {"limit": PAGE}, self._synced, now)
            elif isinstance(answer, Unavailable) and self.state is State.LIVE:
                self._out.append(Drop())  # a new connection begins with the same question
                self._lost("the inbox could not be read", now)
            return
        for gap in answer.get("gaps") or ():
            if "inbox" in gap:
                self._inbox_gap(number(gap.get("after")), number(gap.get("before")))
        cursor, messages = number(answer.get("cursor")), answer.get("messages") or []
        if cursor > self._received:
            self._received = cursor
            self._take([(message, 0) for message in messages])
            self._out.append(Arrived([Incoming(None, cursor, self.generation, is_shown=False)]))
        if answer.get("has_more"):
            self._sync(now)

    def _renumber(self) -> None:
        self.generation += 1
        self.cursor = self._received = 0

    # Inside.

    def _connect(self, now: int, *, needs_token: bool) -> None:
        self.state = State.CONNECTING
        self._since = now
        self._kick = ""
        self._advice = None
        self._resumed = self.cursor
        self._out.append(Connect(self.cursor, needs_token))

    def _live(self, now: int) -> None:
        self.state = State.LIVE
        self._since = self._heard = now
        self._refusals = 0
        self._is_first = self._resumed > 0
        self._is_syncing = self._is_pinging = False
        self._out.append(Tell(Online()))
        if self.cursor > self._resumed:
            self._ack()
        for room in self.rooms:
            self._ask("enter", {"room": room}, partial(self._entered, room), now)
        if self.watches:
            self._ask("presence", {} if self.watched is None else {"users": self.watched}, self._ignore, now)

    def _lost(self, reason: str, now: int, *, is_refused: bool = False, error: PixiuError | None = None) -> None:
        was_live = self.state is State.LIVE
        self.state = State.WAITING
        self._requests.cut(now)
        if is_refused:
            self._refusals += 1
            if self._refusals > 1 and not was_live:
                self._end(error, now)
                return
        if was_live and now - self._since >= self._rules.stable_ms:
            self._attempts = 0
        wait = min(self._rules.retry_ms << min(self._attempts, 20), self._rules.retry_ms_max)
        wait -= int(wait * 0.5 * self._jitter())
        self._attempts += 1
        if self._advice is not None:
            wait = min(self._advice, self._rules.retry_ms_max)
        elif is_refused:
            wait = 0  # a fresh token is all it needs
        self._wake = now + wait
        self._out.append(Tell(Closed(reason, wait)))

    def _end(self, error: PixiuError | None, now: int) -> None:
        if self.state is State.ENDED:
            return
        self.state = State.ENDED
        self._requests.fail(error or Unavailable("this session is over"), now)
        self._out += [Tell(Closed(str(error) if error else "left")), Ended(error)]

    def _ask(self, action: str, params: dict[str, Any], then: Any, now: int) -> None:
        """For the session itself: only of this connection, and before what the program asks."""
        self._requests.add(action, params, now + OWN_DEADLINE_MS, repeats=False, then=then, is_first=True)

    def _entered(self, room: str, answer: dict[str, Any] | PixiuError, now: int) -> None:
        if isinstance(answer, RequestError):
            self.rooms.pop(room, None)
            self._out.append(Tell(RoomPresence(room, is_in=False, reason=answer.code)))

    def _ignore(self, answer: dict[str, Any] | PixiuError, now: int) -> None:
        """Nobody waits for it."""

    def _ponged(self, answer: dict[str, Any] | PixiuError, now: int) -> None:
        self._is_pinging = False
        is_silent = now >= self._heard + self._rules.ping_ms
        if isinstance(answer, Unavailable) and self.state is State.LIVE and is_silent and not self._is_deaf:
            self._out.append(Drop())
            self._lost("no sign of life", now)

    def _write(self, payload: bytes) -> None:
        self._out.append(Write(payload))

    def _answered(self, answered: Answered) -> None:
        self._out.append(answered)

    def _ack(self) -> None:
        self._out.append(Write(b'{"action":"ack","params":{"cursor":"%d"}}' % self.cursor))

    def _remember(self, memory: dict[Any, None], key: object) -> None:
        memory[key] = None
        if len(memory) > self._rules.seen_max:
            del memory[next(iter(memory))]

    def _done(self) -> list[Command]:
        done, self._out = self._out, []
        return done
