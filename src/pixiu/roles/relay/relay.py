"""Sessions and deliveries of the users that this relay has.

The two orders that lose nothing (T6, B19): the carrier stores first, then wakes, and only then it is asked who is
there; a login marks itself online first, then loads. Whichever comes second sees the other.

Several sessions of a platform get the same pushes. The newest one's acks move the inbox; when it goes, the next newest
takes over, as if it had just logged in. The others are told to resync when they lag.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pixiu.machines.delivery import Delivery
from pixiu.machines.traces import TraceRows
from pixiu.model.cursor import Cursors
from pixiu.model.errors import Unavailable
from pixiu.model.ids import first_id_of
from pixiu.model.inbox import NEED_NOTIFICATION, NEED_OFFLINE
from pixiu.model.session import LogoutCause, Session
from pixiu.roles.relay.deliveries import RESYNC, Deliveries
from pixiu.roles.relay.leaving import Leaving
from pixiu.roles.relay.live import LiveInbox, LiveSession
from pixiu.roles.relay.metrics import RelayCounters
from pixiu.roles.relay.policy import SessionPolicy
from pixiu.roles.relay.resuming import Resuming
from pixiu.roles.relay.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pixiu.config import InboxSettings
    from pixiu.machines.delivery import Command
    from pixiu.model.inbox import Entry
    from pixiu.model.wake import Wake
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.clock import Clock
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.sessions import Sessions
    from pixiu.roles.relay.sink import Sink

__all__ = ["Away", "Relay"]

log = logging.getLogger(__name__)

RESYNC_BATCH = 500
"""Sessions that are told to resync in one turn."""
TIMED_ONE_IN = 16
"""Inboxes whose delivery is timed: the first of each batch of wakes, and of every so many behind it."""


class Away(Protocol):
    """Told once per ``wake`` and user who was not there: the entries that ask for a notification, by platform."""

    def __call__(self, user: int, entries_by_platform: Mapping[str, Sequence[Entry]]) -> object:
        """Notify them."""
        ...


class Relay:
    """Who is connected, and what is on its way to them."""

    def __init__(
        self,
        *,
        inboxes: Inboxes,
        bodies: Bodies,
        sessions: Sessions,
        clock: Clock,
        scheduler: Scheduler,
        settings: InboxSettings,
        gateway: str,
        write_ledger: Callable[[bytes], object],
        new_session_id: Callable[[], int],
        away: Away | None = None,
        kick_elsewhere: Callable[[Session, str], object] | None = None,
        liveness_ms: int = 10_000,
        resync_share: float = 0.25,
        make_delivery: Callable[[InboxSettings], Delivery] = Delivery,
        traces: TraceRows | None = None,
        cursors: Cursors | None = None,
    ) -> None:
        """``write_ledger`` never raises; what it cannot write now it writes later, or drops: that costs a resend.

        ``kick_elsewhere`` is asked to close sessions of other gateways.
        A node that stood still for ``liveness_ms`` may have been taken for dead: it closes ``resync_share`` of its
        sessions, and tells the others to resync.
        """
        self.counters = RelayCounters()
        self._cursors = cursors or Cursors()
        self.gateway = gateway
        self.epoch = sessions.begin_epoch(gateway)
        self._epochs = {gateway: self.epoch}  # of the gateways whose sessions are here
        self._sessions = sessions
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._policy = SessionPolicy(settings)
        self._new_session_id = new_session_id
        self._away = away
        self._kick_elsewhere = kick_elsewhere
        self._liveness_ms = liveness_ms
        self._resync_share = resync_share
        self._make_delivery = make_delivery
        self._traces = traces
        self._users: dict[int, list[LiveInbox]] = {}
        self.is_present = self._users.__contains__
        """Is any session of this user here? Asked for every entry: the dictionary's own method."""
        self._live: dict[int, LiveSession] = {}
        self._resuming = Resuming()
        self._deliveries = Deliveries(
            inboxes=inboxes,
            bodies=bodies,
            clock=clock,
            scheduler=scheduler,
            settings=settings,
            counters=self.counters,
            write_ledger=write_ledger,
            kick=lambda inbox, session_id, reason: self.kick(inbox.key[0], session_id, reason),
            traces=traces or TraceRows(),
            cursors=self._cursors,
        )
        self._sweep = Sweep(inboxes, self._deliveries, clock, scheduler, settings, self.counters)
        self._leaving = Leaving(
            sessions, clock, scheduler,
            remaining=self._live.__len__, renew=self._renew_epoch, end=self._end_epochs,
        )  # fmt: skip
        self._seen_ms = clock.monotonic_us() // 1000
        self._watch: Timer | None = None

    # Life.

    def start(self) -> None:
        """Begin to sweep, and to watch for a freeze."""
        self._sweep.start()
        self._watch_freeze()

    def stop(self) -> None:
        """Close every session, and write what is known. Nothing is left in the table of sessions."""
        self._sweep.stop()
        if self._watch is not None:
            self._watch.cancel()
        for session_id in list(self._live):
            live = self._live.pop(session_id)
            self._trace(live.session, is_open=False)
            live.inbox.sessions.clear()
            self._unlist(live.session.user, session_id)
            live.sink.close(session_id, "shutdown")
        self._leaving.stop()
        self._users.clear()
        self.counters.sessions = 0
        self._deliveries.close()

    # Gateways beside the one of this process.

    def gateway_came(self, gateway: str) -> int:
        """Another gateway begins to live: sessions of an earlier life of it are over. Returns its epoch."""
        self.gateway_gone(gateway)
        epoch = self._epochs[gateway] = self._sessions.begin_epoch(gateway)
        return epoch

    def gateway_gone(self, gateway: str) -> int:
        """A gateway is dead, and all its sessions with it: one epoch ends, nothing is written per session (P15).

        Their sinks hear nothing more. Returns how many there were.
        """
        if self._epochs.pop(gateway, None) is None:
            return 0
        try:
            self._sessions.end_epoch(gateway)
        except Unavailable:  # the next epoch will end this one
            log.warning("epoch not ended", extra={"gateway": gateway})
        gone = [live for live in self._live.values() if live.session.gateway == gateway]
        inboxes: dict[LiveInbox, LiveSession] = {}
        for live in gone:
            inboxes.setdefault(live.inbox, live.inbox.sessions[0])
            self._take_out(live)
        for inbox, newest in inboxes.items():
            self._go_on(inbox, newest)
        return len(gone)

    # Sessions.

    def connect(
        self, user: int, platform: str, device: str, sink: Sink, *, cursor: int = 0, gateway: str | None = None
    ) -> Session:
        """A client has logged in; its inbox is open. ``cursor``: it holds everything through there.

        One of another epoch says nothing: all that waits is delivered.
        ``gateway`` is one that came, if it is not this process's own. Older sessions that the platform has no room for
        are kicked. The backlog comes in a later turn.
        """
        gateway = self.gateway if gateway is None else gateway
        epoch = self._epochs.get(gateway)
        if epoch is None:
            raise Unavailable(f"gateway {gateway} is not here")
        present = self._sessions.of(user)
        number = self._sessions.next_number(user)
        session = Session(self._new_session_id(), user, platform, device, number, gateway, epoch)
        self._sessions.add(session)
        inbox = self._find(user, platform) or self._open(user, platform)
        live = LiveSession(session, sink, inbox, first_id_of(self._clock.now_ms()))
        live.resumed = self._resuming.came(inbox, device, self._cursors.useq(cursor) or 0)
        inbox.sessions.insert(0, live)
        self._live[session.session_id] = live
        self.counters.logins += 1
        self.counters.sessions += 1
        self._trace(session, is_open=True)
        for old in self._policy.excess(present, platform, device):
            self.kick(user, old.session_id, "new_session")
        self._scheduler.soon(lambda: self._load(live))
        return session

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> bool:
        """A connection is gone. True if its session was here; one that is told twice counts once (X41)."""
        live = self._live.get(session_id)
        if live is None:
            return False
        self.counters.ended(cause)
        self._forget(live)
        return True

    def heartbeat(self, session_id: int) -> bool:
        """A client lives. False: its session is not known here, it must connect again."""
        live = self._live.get(session_id)
        if live is None:
            return False
        self._perform(live.inbox, live.inbox.delivery.heartbeat(live.session))
        return True

    def kick(self, user: int, session_id: int, reason: str) -> bool:
        """Close a session. One that is not here any more leaves nothing behind (P17). True if it was here."""
        live = self._live.get(session_id)
        if live is None or live.session.user != user:
            self._repair(user, session_id, reason)
            return False
        self._forget(live)
        self.counters.kicks += 1
        self.counters.ended("server")
        log.info("session kicked", extra={"session_id": session_id, "user": user, "reason": reason})
        live.sink.close(session_id, reason)
        return True

    def sessions_of(self, user: int) -> list[Session]:
        """Who of this user is connected here, newest first."""
        found = [live.session for inbox in self._users.get(user, ()) for live in inbox.sessions]
        return sorted(found, key=lambda session: -session.number)

    def sessions(self, before: int, limit: int) -> list[Session]:
        """Who is connected here, newest first, from behind the session ``before``; 0 is the newest."""
        found: list[Session] = []
        for session_id in reversed(self._live):  # ids rise, so they are in order
            if len(found) == limit:
                break
            if not before or session_id < before:
                found.append(self._live[session_id].session)
        return found

    # Messages.

    def wake(self, wakes: Iterable[Wake]) -> None:
        """Inboxes have grown, and the stores have it. Those who are away are told to ``away``, once per user."""
        missed: dict[int, dict[str, list[Entry]]] = {}
        perform = self._deliveries.perform
        now_us, untimed = self._clock.monotonic_us(), TIMED_ONE_IN - 1
        for wake in wakes:
            user, platform, latest, entries, bodies = wake
            inbox = self._find(user, platform)
            if inbox is not None:
                untimed += 1
                if untimed >= TIMED_ONE_IN and not inbox.timed_push and not inbox.timed_ack:
                    untimed = 0
                    inbox.timed_push, inbox.timed_us = latest, now_us
                commands = inbox.delivery.woken(latest, entries, bodies)
                if commands:
                    perform(inbox, commands)
            elif not self._is_elsewhere(user, platform):
                self._miss(wake, missed)
        self._deliveries.flush_soon()
        if self._away is not None:
            for user, entries_by_platform in missed.items():
                self._away(user, entries_by_platform)

    def ack(self, session_id: int, cursor: int) -> bool:
        """A client holds everything through this cursor. False: its session is not known here."""
        live, through = self._live.get(session_id), self._cursors.useq(cursor)
        if live is None or through is None:  # of another epoch: nothing that was handed to this session
            return live is not None
        if live.unacked:
            live.acked(through)
            if live.is_lagging and not live.unacked:
                live.is_lagging = False
                live.sink.event(session_id, RESYNC)
        commands = live.inbox.delivery.acked(session_id, through)
        if commands:
            self._deliveries.perform(live.inbox, commands)
            self._deliveries.flush_soon()
        return True

    def writing(self, session_id: int) -> None:
        """A gateway has not brought to the client yet what it was handed: the time for an ack begins again."""
        live = self._live.get(session_id)
        if live is not None:
            self._perform(live.inbox, live.inbox.delivery.writing(session_id))

    def holds(self, session_id: int, useq: int) -> int:
        """How far a session holds everything that names this entry: there, and what it has sent right behind it."""
        live = self._live.get(session_id)
        return useq if live is None else self._resuming.holds(live, useq)

    def flush(self, user: int, platform: str) -> bool:
        """Read an inbox again, in case something was missed. False if nobody is there for it."""
        inbox = self._find(user, platform)
        if inbox is None:
            return False
        self._perform(inbox, inbox.delivery.doubted())
        return True

    def kick_all(self, reason: str) -> None:
        """End every session: its client comes back, and begins behind what it holds."""
        for live in list(self._live.values()):
            self.kick(live.session.user, live.session.session_id, reason)

    def write_rows(self) -> None:
        """Write what is known of entries to the log, now: someone wants to count."""
        self._deliveries.flush()

    def tell(self, user: int, event: Mapping[str, object]) -> int:
        """Something live and not stored, for all sessions of a user. Returns how many there are."""
        told = 0
        for inbox in self._users.get(user, ()):
            for live in inbox.sessions:
                live.sink.event(live.session.session_id, event)
                told += 1
        return told

    # A false death (B18, C9, T7).

    def check_freeze(self, now_ms: int) -> bool:
        """Has this node stood still for so long that others may think it dead? Asked before each heartbeat of its own.

        ``now_ms`` is the steady clock. True: it has, and a resync has begun.
        """
        is_frozen = now_ms - self._seen_ms > self._liveness_ms
        self._seen_ms = now_ms
        if is_frozen:
            self.resync()
        return is_frozen

    def resync(self) -> None:
        """Sessions count again, under a new epoch if the old one is over; every inbox is read again."""
        self.counters.resyncs += 1
        for gateway, epoch in self._epochs.items():
            if self._sessions.epoch_of(gateway) != epoch:
                self._epochs[gateway] = self._sessions.begin_epoch(gateway)
        self.epoch = self._epochs[self.gateway]
        live = list(self._live.values())
        log.warning("resync", extra={"sessions": len(live), "epoch": self.epoch})
        self._resync_batch(live, 0)

    def _resync_batch(self, sessions: list[LiveSession], first: int) -> None:
        share = self._resync_share
        for index, live in enumerate(sessions[first : first + RESYNC_BATCH], first):
            session = live.session
            if self._live.get(session.session_id) is not live:
                continue
            if int((index + 1) * share) > int(index * share):
                self.kick(session.user, session.session_id, "resync")
                continue
            live.session = session._replace(epoch=self._epochs[session.gateway])
            self._sessions.add(live.session)
            live.sink.event(session.session_id, RESYNC)
            self._perform(live.inbox, live.inbox.delivery.doubted())
        if first + RESYNC_BATCH < len(sessions):
            self._scheduler.after(0, lambda: self._resync_batch(sessions, first + RESYNC_BATCH))

    def _watch_freeze(self) -> None:
        self.check_freeze(self._clock.monotonic_us() // 1000)
        self._watch = self._scheduler.after(self._liveness_ms / 4, self._watch_freeze)

    # Steps.

    def _find(self, user: int, platform: str) -> LiveInbox | None:
        for inbox in self._users.get(user, ()):
            if inbox.platform == platform:
                return inbox
        return None

    def _open(self, user: int, platform: str) -> LiveInbox:
        inbox = LiveInbox(user, platform, self._make_delivery(self._settings))
        self._resuming.opened(inbox)
        self._users.setdefault(user, []).append(inbox)
        return inbox

    def _perform(self, inbox: LiveInbox, commands: Sequence[Command]) -> None:
        if commands:
            self._deliveries.perform(inbox, commands)
            self._deliveries.flush_soon()

    def _load(self, live: LiveSession) -> None:
        """Begin the delivery of a login, unless it is gone or an even newer one has come."""
        if live.inbox.sessions and live.inbox.sessions[0] is live:
            told, held = live.resumed
            self._begin(live.inbox, held, told)

    def _begin(self, inbox: LiveInbox, cursor: int = 0, told: int = 0) -> None:
        """Deliver to the newest session. It begins with all that is not acked, so that others may have copies of it."""
        inbox.timed_push = inbox.timed_ack = 0
        for live in inbox.sessions:
            live.is_loaded = True
        self._perform(inbox, inbox.delivery.logged_in(inbox.sessions[0].session, cursor, told))

    def _forget(self, live: LiveSession) -> None:
        """A session is gone. The next newest of its platform takes over."""
        inbox, newest = live.inbox, live.inbox.sessions[0]
        self._take_out(live)
        self._unlist(live.session.user, live.session.session_id)
        self._go_on(inbox, newest)

    def _take_out(self, live: LiveSession) -> None:
        session_id, inbox = live.session.session_id, live.inbox
        self._resuming.leaves(live)
        del self._live[session_id]
        self._trace(live.session, is_open=False)
        inbox.sessions.remove(live)
        self.counters.sessions -= 1
        self._perform(inbox, inbox.delivery.logged_out(session_id))
        self._deliveries.flush_in_turn()

    def _trace(self, session: Session, *, is_open: bool) -> None:
        if self._traces is not None:
            session_id, user, platform, _, _, gateway, _ = session
            self._traces.session(session_id, user, platform, gateway, self._clock.now_ms(), is_open=is_open)

    def _go_on(self, inbox: LiveInbox, newest: LiveSession) -> None:
        """With the sessions that an inbox has left; ``newest`` was the newest one before."""
        if not inbox.sessions:
            self._drop(inbox)
        elif inbox.sessions[0] is not newest:
            self._begin(inbox)

    def _unlist(self, user: int, session_id: int) -> None:
        """Take a session from the table. If that fails, it is repaired when it is met."""
        self._leaving.remove(user, session_id)

    def _renew_epoch(self) -> None:
        """Nearly all sessions ended at once: new epochs end their rows, and the few that live are listed again."""
        for gateway in self._epochs:
            self._epochs[gateway] = self._sessions.begin_epoch(gateway)
        self.epoch = self._epochs[self.gateway]
        self.counters.epochs += 1
        for live in self._live.values():
            live.session = live.session._replace(epoch=self._epochs[live.session.gateway])
            self._sessions.add(live.session)

    def _end_epochs(self) -> None:
        """Nothing of this node is left in the table of sessions."""
        for gateway in self._epochs:
            self._sessions.end_epoch(gateway)

    def _drop(self, inbox: LiveInbox) -> None:
        """Nobody is there for an inbox: keep nothing of it but what was acked."""
        inbox.due = 0
        self._resuming.dropped(inbox)
        of_user = self._users[inbox.key[0]]
        of_user.remove(inbox)
        if not of_user:
            del self._users[inbox.key[0]]

    def _repair(self, user: int, session_id: int, reason: str) -> None:
        """A session that the table has and this relay does not."""
        for session in self._sessions.of(user):
            if session.session_id != session_id:
                continue
            if session.gateway in self._epochs:
                self._unlist(user, session_id)
            elif self._kick_elsewhere is not None:
                self._kick_elsewhere(session, reason)

    def _is_elsewhere(self, user: int, platform: str) -> bool:
        """Is the user on this platform through another gateway? Sessions that are not real are removed (P15, P16)."""
        is_elsewhere = False
        try:
            present = self._sessions.of(user)
        except Unavailable:
            return False  # better one notification too many
        for session in present:
            if session.gateway not in self._epochs:
                is_elsewhere |= session.platform == platform
            elif session.session_id not in self._live:
                self._unlist(user, session.session_id)
        return is_elsewhere

    def _miss(self, wake: Wake, missed: dict[int, dict[str, list[Entry]]]) -> None:
        """Nobody is there: what is not kept for later is dead, what asks for it is notified."""
        self.counters.away += 1
        key = (wake.user, wake.platform)
        for entry in wake.entries:
            if not entry.options & NEED_OFFLINE:
                self.counters.dead += 1
                self._deliveries.rows.dead.add(key, entry.useq, entry.useq)
        asking = [entry for entry in wake.entries if entry.options & NEED_NOTIFICATION]
        if asking:
            missed.setdefault(wake.user, {}).setdefault(wake.platform, []).extend(asking)
