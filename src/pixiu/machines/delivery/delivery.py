"""The machine itself. The package's docstring tells its states."""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING

from pixiu.machines.delivery.commands import (
    NOTHING,
    AckInbox,
    BodyLost,
    CancelTimer,
    Command,
    Expire,
    FetchBodies,
    FetchIds,
    Kick,
    Push,
    PushEarly,
    PushTo,
    Resend,
    SetTimer,
    TimerKind,
)
from pixiu.machines.delivery.ranges import ranges
from pixiu.model.inbox import NEED_ACK
from pixiu.model.message import is_urgent
from pixiu.model.pixiu_pb2 import ChatMsgStatus, MsgChat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pixiu.config import InboxSettings
    from pixiu.model.inbox import Entry, Page
    from pixiu.model.session import Session

__all__ = ["BEATS_PER_READ", "Delivery", "State"]

BEATS_PER_READ = 10
"""Every so many heartbeats an idle delivery reads its inbox, in case a wake was lost (E24)."""


class State(Enum):
    """Where a delivery stands."""

    OFFLINE = "offline"
    IDLE = "idle"
    FETCHING_IDS = "fetching_ids"
    FETCHING_BODIES = "fetching_bodies"
    SENDING = "sending"


# Module names are found faster than members of an enum, and these are asked for with every message.
OFFLINE, IDLE, SENDING = State.OFFLINE, State.IDLE, State.SENDING
FETCHING_IDS, FETCHING_BODIES = State.FETCHING_IDS, State.FETCHING_BODIES
SET_ACK_TIMER = SetTimer(TimerKind.ACK, 0)
CANCEL_TIMER = CancelTimer()


class Delivery:
    """One inbox's delivery, from login to logout and back. Each public method is an event, and returns commands."""

    __slots__ = (
        "_beats",
        "_body_tries",
        "_closed_number",
        "_cursor",
        "_must_read",
        "_pending",
        "_pending_through",
        "_settings",
        "_skips",
        "_tail",
        "_tries",
        "acked_through",
        "fetched_through",
        "held",
        "items",
        "latest",
        "sent",
        "session",
        "state",
        "told",
        "turn",
    )

    def __init__(self, settings: InboxSettings) -> None:
        self._settings = settings
        self.state = OFFLINE
        self.session: Session | None = None
        """The newest session: its acks count."""
        self.acked_through = 0
        self.fetched_through = 0
        self.latest = 0
        self.items: list[Push] = []
        """The window, then the queue: what exists in (acked_through, fetched_through]."""
        self.sent = 0
        """How many of the items are the window: handed over, not acked."""
        self.turn = 0
        """The request that is under way; answers to another are dropped."""
        self.told = 0
        """The cursor that the session itself knows of: what it has acked, or came with."""
        self.held = 0
        """How far it holds everything: ``told``, and what it has sent itself right behind that. Nobody tells it so."""
        self._skips = 0  # items that need no ack: the session's own, and live ones without NEED_ACK
        self._tail = 0  # the last useq that the session must hold before it takes the next one
        self._cursor = 0  # what a login said it holds, until the first answer
        self._pending: Sequence[Entry] = ()  # entries whose bodies are being fetched
        self._pending_through = 0
        self._body_tries = 0
        self._tries = 0
        self._beats = 0
        self._closed_number = 0
        self._must_read = False

    # Events: sessions.

    def logged_in(self, session: Session, cursor: int = 0, told: int = 0) -> Sequence[Command]:
        """A session is the newest now. ``cursor``: it holds everything through there; 0 if it does not say.

        ``told`` is the cursor as it knows it, if that is lower. An older one's login that comes late changes nothing,
        nor does a repeat.
        """
        current = self.session
        if current is not None and session.number <= current.number:
            return NOTHING
        self._reset(session)
        self._cursor = self.held = cursor
        self.told = told or cursor
        return self._read()

    def logged_out(self, session_id: int) -> Sequence[Command]:
        """A session is gone. Another one's logout changes nothing (E43)."""
        if self.session is None or not self._is_current(session_id):
            return NOTHING
        commands: list[Command] = [CANCEL_TIMER]
        through = self._settled_by_logout()
        if through > self.acked_through:
            commands.append(AckInbox(self.acked_through + 1, through))
            self.acked_through = through
        self._close()
        return commands

    def heartbeat(self, session: Session) -> Sequence[Command]:
        """A session lives. One that is newer than all we know counts as a login: its login was lost."""
        current = self.session
        if current is None:
            return self.logged_in(session) if session.number > self._closed_number else NOTHING
        if session.session_id != current.session_id:
            newest = max(current.number, self._closed_number)
            return self.logged_in(session) if session.number > newest else NOTHING
        self._beats += 1
        return self.doubted() if self._beats % BEATS_PER_READ == 0 else NOTHING

    def doubted(self) -> Sequence[Command]:
        """There may be more than we were told: read the inbox, now or when nothing is on its way."""
        if self.state is OFFLINE:
            return NOTHING
        if self.state is IDLE:
            return self._read()
        self._must_read = True
        return NOTHING

    # Events: messages.

    def woken(
        self, latest: int, entries: Sequence[Entry] = (), bodies: Mapping[int, bytes] | None = None
    ) -> Sequence[Command]:
        """The inbox has grown. Entries that follow what we have are taken as the answer to a read."""
        state = self.state
        if state is OFFLINE:
            return NOTHING
        if latest > self.latest:
            self.latest = latest
        if entries and bodies is not None and state is not FETCHING_BODIES and self._continues(entries):
            is_own = self.session is not None and entries[0][5] == self.session.session_id
            if is_own and state is IDLE and (commands := self._pass_over(entries, bodies)):
                return commands
            room = self._settings.window + self._settings.read_limit - len(self.items)
            if self._take(entries if len(entries) <= room else entries[:room], bodies, is_live=True):
                if state is FETCHING_IDS:
                    self.turn += 1
                    self._cursor = self._body_tries = 0
                commands = self._push([])
                if self.sent < len(self.items):
                    commands += self._early(entries, bodies)
                return commands
        if state is IDLE:
            return self._read() if self.latest > self.fetched_through else NOTHING
        return self._early(entries, bodies) if entries and bodies is not None else NOTHING

    def acked(self, session_id: int, through: int) -> Sequence[Command]:
        """A client holds everything through here. Only the newest session's word counts (E42)."""
        items = self.items
        if not items or through < items[0][0] or self.session is None or session_id != self.session.session_id:
            return NOTHING
        self._tries = 0
        self._beats = 0
        self.told = self.held = through
        if through >= items[-1][0]:
            commands = self._ack_rows(items)
            self.items = []
            self.sent = self._skips = 0
            return self._drained(commands)
        count = bisect_right(items, through, key=_useq)
        commands = self._ack_rows(items[:count])
        self._drop(count)
        if self._skips:
            self._settle(commands)
        if not self.items:
            return self._drained(commands)
        if self.sent:
            commands.append(SET_ACK_TIMER)
        return self._push(commands)

    def writing(self, session_id: int) -> Sequence[Command]:
        """What was handed over has not reached the client yet, so it cannot ack: its time for that begins again."""
        if self.state is not SENDING or self.session is None or session_id != self.session.session_id:
            return NOTHING
        self._tries = 0
        return [SET_ACK_TIMER]

    # Events: answers.

    def ids_fetched(self, turn: int, page: Page, now: int) -> Sequence[Command]:
        """The inbox was read. ``now``: milliseconds since the epoch, for what has waited too long."""
        if turn != self.turn or self.state is not FETCHING_IDS:
            return NOTHING
        entries, floor, latest = page
        if self._cursor > latest:  # a cursor of another inbox, or of before a restore: it says nothing about this one
            self._cursor = self.held = self.told = 0
            return self._read()
        self.latest = max(self.latest, latest)
        commands: list[Command] = []
        through = max(self.fetched_through, floor)
        if self._cursor > through:
            commands.append(AckInbox(through + 1, self._cursor))
            through = self._cursor
        self._cursor = 0
        self.acked_through = self.fetched_through = through
        kept = self._fresh(entries, now, commands)
        if kept:
            return self._fetch(kept, entries[-1].useq, commands)
        if entries:
            self.acked_through = self.fetched_through = entries[-1].useq
        elif latest > through:  # what was there between is gone
            self.acked_through = self.fetched_through = latest
        if not entries and self.latest > latest:
            return self._read_later(commands) if self._must_read_again() else self._rest(commands)
        return self._drained(commands)

    def bodies_fetched(self, turn: int, bodies: Mapping[int, bytes]) -> Sequence[Command]:
        """Bodies were read. What lies before the first that is missing goes out; the rest is asked for again."""
        if turn != self.turn or self.state is not FETCHING_BODIES:
            return NOTHING
        self.turn += 1
        entries = self._pending
        commands: list[Command] = []
        taken = self._take(entries, bodies, is_live=False)
        if taken == 0:
            self._body_tries += 1
            if self._body_tries <= self._settings.tries_max:
                return self._read_later(commands)
            lost = [entry for entry in entries if entry.message_id not in bodies]
            commands.extend(BodyLost(entry.useq, entry.message_id) for entry in lost)
            tombstones = {entry.message_id: _tombstone(entry.message_id) for entry in lost}
            taken = self._take(entries, {**bodies, **tombstones}, is_live=False)
        if taken == len(entries):
            self.fetched_through = self._pending_through
        self._pending = ()
        self._body_tries = 0
        return self._push(commands)

    # Events: time.

    def request_timed_out(self) -> Sequence[Command]:
        """No answer came: ask again (E23). An answer to the first question still counts."""
        if self.state is not FETCHING_IDS and self.state is not FETCHING_BODIES:
            return NOTHING
        self._tries += 1
        timer = SetTimer(TimerKind.REQUEST, self._tries)
        if self.state is FETCHING_IDS:
            return [timer, FetchIds(self.turn, self._read_after(), self._settings.read_limit)]
        return [timer, FetchBodies(self.turn, [entry.message_id for entry in self._pending])]

    def ack_timed_out(self) -> Sequence[Command]:
        """No ack came: send the window again (E23); too often, and the session is kicked. Its messages wait."""
        if self.state is not SENDING or self.session is None:
            return NOTHING
        session_id = self.session.session_id
        self._tries += 1
        if self._tries > self._settings.tries_max:
            self._close()
            return [CANCEL_TIMER, Kick(session_id, "no_ack")]
        window = [item for item in self.items[: self.sent] if item.needs_ack and item.origin != session_id]
        return [SetTimer(TimerKind.ACK, self._tries), Resend(session_id, [p._replace(is_resend=True) for p in window])]

    # Rules that were wrong in the seeds: a simulation puts each of them back to see that it notices.

    def _read_after(self) -> int:
        """Read behind what was fetched, never from the beginning again (E20)."""
        return max(self.fetched_through, self._cursor)

    def _settled_by_logout(self) -> int:
        """A logout settles what was acked, not what was sent (E22)."""
        return self.acked_through

    def _is_current(self, session_id: int) -> bool:
        """Only the logout of the current session ends a delivery (E43)."""
        return self.session is not None and self.session.session_id == session_id

    def _must_read_again(self) -> bool:
        """A wake that came during an empty read is not forgotten (E24, and the race of seed 004)."""
        return True

    # Steps.

    def _reset(self, session: Session | None) -> None:
        self.session = session
        self.turn += 1
        self.items = []
        self.sent = self._skips = self._tail = self._cursor = self.told = self.held = 0
        self._tries = self._body_tries = self._beats = 0
        self._pending = ()
        self._must_read = False
        self.fetched_through = self.acked_through

    def _close(self) -> None:
        assert self.session is not None
        self._closed_number = self.session.number
        self._reset(None)
        self.state = OFFLINE

    def _read(self) -> list[Command]:
        self.state = FETCHING_IDS
        self.turn += 1
        self._tries = 0
        self._must_read = False
        read = FetchIds(self.turn, self._read_after(), self._settings.read_limit)
        return [SetTimer(TimerKind.REQUEST, 0), read]

    def _read_later(self, commands: list[Command]) -> list[Command]:
        """The store is behind what we know: let it have some time."""
        self.state = FETCHING_IDS
        self.turn += 1
        self._pending = ()
        commands.append(SetTimer(TimerKind.REQUEST, 0))
        return commands

    def _fetch(self, entries: Sequence[Entry], through: int, commands: list[Command]) -> list[Command]:
        self.state = FETCHING_BODIES
        self.turn += 1
        self._tries = 0
        self._pending = entries
        self._pending_through = through
        commands.append(SetTimer(TimerKind.REQUEST, 0))
        commands.append(FetchBodies(self.turn, [entry.message_id for entry in entries]))
        return commands

    def _fresh(self, entries: list[Entry], now: int, commands: list[Command]) -> list[Entry]:
        """Leave out what has waited too long, and say so."""
        limit = now - self._settings.expire_ms
        kept = [entry for entry in entries if entry.at > limit]
        if len(kept) < len(entries):
            old = [entry.useq for entry in entries if entry.at <= limit]
            commands.extend(Expire(first, through) for first, through in ranges(old))
        return kept

    def _continues(self, entries: Sequence[Entry]) -> bool:
        """Do these entries, without a hole, follow what we have? Is there room?"""
        first = entries[0][0]
        return (
            first == self.fetched_through + 1
            and entries[-1][0] - first + 1 == len(entries)
            and len(self.items) < self._settings.window + self._settings.read_limit
        )

    def _pass_over(self, entries: Sequence[Entry], bodies: Mapping[int, bytes]) -> list[Command]:
        """If the session has sent all of these itself: others get them, and here they are acked at once."""
        assert self.session is not None
        mine, first, through = self.session.session_id, entries[0][0], entries[-1][0]
        copies: list[Push] = []
        for useq, message_id, _, _, options, origin in entries:
            body = bodies.get(message_id)
            if origin != mine or body is None or len(copies) == self._settings.window:
                return []
            copies.append(Push(useq, self._tail, message_id, body, False, options & NEED_ACK != 0, origin, options))
        self.acked_through = self.fetched_through = through
        if first == self.held + 1:
            self.held = through
        commands: list[Command] = [PushTo(mine, [], copies), AckInbox(first, through)]
        if self.latest > through or self._must_read:
            commands.extend(self._read())
        return commands

    def _take(self, entries: Sequence[Entry], bodies: Mapping[int, bytes], *, is_live: bool) -> int:
        """Queue entries up to the first without a body. Returns how many."""
        assert self.session is not None
        session_id = self.session.session_id
        items, tail, taken, new = self.items, self._tail, len(self.items), tuple.__new__
        for useq, message_id, _, _, options, origin in entries:
            body = bodies.get(message_id)
            if body is None:
                break
            needs_ack = not is_live or options & NEED_ACK != 0
            # The plain tuple constructor makes a Push in half the time.
            items.append(new(Push, (useq, tail, message_id, body, False, needs_ack, origin, options)))
            if needs_ack and origin != session_id:
                tail = useq
            else:
                self._skips += 1
        taken = len(items) - taken
        if taken:
            self._tail = tail
            self.fetched_through = items[-1][0]
        return taken

    def _early(self, entries: Sequence[Entry], bodies: Mapping[int, bytes]) -> Sequence[Command]:
        """Early copies of the urgent messages among these entries that have to wait. Nothing else changes."""
        through = self.items[self.sent - 1][0] if self.sent else max(self.fetched_through, self._cursor)
        urgent = [
            Push(useq, 0, message_id, body, False, False, origin, options)
            for useq, message_id, _, _, options, origin in entries
            if useq > through and (body := bodies.get(message_id)) is not None and is_urgent(body)
        ]
        return [PushEarly(urgent)] if urgent else NOTHING

    def _push(self, commands: list[Command]) -> list[Command]:
        """Move what fits from the queue to the window."""
        assert self.session is not None
        session_id, window = self.session.session_id, self._settings.window
        self.state = SENDING
        while others := self.items[self.sent : window]:
            if self.sent == 0:
                self._tries = 0
                commands.append(SET_ACK_TIMER)
            self.sent += len(others)
            if not self._skips:
                commands.append(PushTo(session_id, others, others))
                return commands
            commands.append(PushTo(session_id, [push for push in others if push.origin != session_id], others))
            self._settle(commands)
        return commands if self.items else self._drained(commands)

    def _settle(self, commands: list[Command]) -> None:
        """What needs no ack is acked when all before it is."""
        assert self.session is not None
        session_id = self.session.session_id
        count = 0
        for item in self.items[: self.sent]:
            if item.origin == session_id:
                if item.useq == self.held + 1:
                    self.held = item.useq
            elif item.needs_ack:
                break
            count += 1
        if count:
            commands.extend(self._ack_rows(self.items[:count]))
            self._drop(count)

    def _ack_rows(self, items: list[Push]) -> list[Command]:
        """These have arrived. One row, unless there are holes of what had expired."""
        first, through = items[0][0], items[-1][0]
        self.acked_through = through
        if through - first < len(items):
            return [AckInbox(first, through)]
        return [AckInbox(*row) for row in ranges([item.useq for item in items])]

    def _drop(self, count: int) -> None:
        if self._skips:
            assert self.session is not None
            mine = self.session.session_id
            self._skips -= sum(1 for item in self.items[:count] if not item.needs_ack or item.origin == mine)
        del self.items[:count]
        self.sent = max(self.sent - count, 0)

    def _drained(self, commands: list[Command]) -> list[Command]:
        """Nothing is on its way. Read on, or rest."""
        self.acked_through = self.fetched_through
        if self.latest > self.fetched_through or self._must_read:
            commands.extend(self._read())
            return commands
        return self._rest(commands)

    def _rest(self, commands: list[Command]) -> list[Command]:
        self.state = IDLE
        commands.append(CANCEL_TIMER)
        return commands

    # For tests and simulations.

    def check(self, existing: Iterable[int] | None = None) -> None:
        """Assert what must hold after every event. ``existing``: the useqs that are in the inbox."""
        useqs = [item.useq for item in self.items]
        assert self.acked_through <= self.fetched_through <= self.latest or self.state is OFFLINE, self
        assert useqs == sorted(set(useqs)), useqs
        assert not useqs or self.acked_through < useqs[0] <= useqs[-1] <= self.fetched_through, (self, useqs)
        assert 0 <= self.sent <= min(self._settings.window, len(useqs)), (self.sent, len(useqs))
        assert (self.state is SENDING) == bool(useqs), self.state
        assert useqs or self.acked_through == self.fetched_through, (self.acked_through, self.fetched_through)
        assert (self.state is OFFLINE) == (self.session is None), self.state
        if existing is not None and useqs:
            between = [useq for useq in existing if self.acked_through < useq <= self.fetched_through]
            assert useqs == sorted(between), (useqs, between)


def _useq(push: Push) -> int:
    return push[0]


def _tombstone(message_id: int) -> bytes:
    """What a client is shown in place of a body that is lost."""
    return MsgChat(msgId=message_id, status=ChatMsgStatus.DELETED).SerializeToString()
