"""Perform what the delivery machines say: read stores, push to sinks, set timers, write ledger rows.

Stores are asked here and now. One that is down gives no answer, and the machine asks again when its timer fires. What
is noted within ``inbox.ledger_ms`` goes to the log as one record: nobody waits for it, and rows that adjoin are one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, assert_never

from pixiu.machines.delivery import (
    NOTHING,
    AckInbox,
    BodyLost,
    CancelTimer,
    Expire,
    FetchBodies,
    FetchIds,
    Kick,
    PushEarly,
    PushTo,
    Resend,
    SetTimer,
    TimerKind,
)
from pixiu.machines.ledger import LedgerRows
from pixiu.machines.traces import PUSH, TraceRows
from pixiu.model.errors import Unavailable
from pixiu.roles.relay.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.config import InboxSettings
    from pixiu.machines.delivery import Command, Push
    from pixiu.model.cursor import Cursors
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.clock import Clock
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.relay.live import LiveInbox, LiveSession
    from pixiu.roles.relay.metrics import RelayCounters

__all__ = ["Deliveries"]

log = logging.getLogger(__name__)

FETCHES_PER_TURN = 32
"""Reads of one inbox in one go, where nothing that was read had to be pushed; then others get their turn."""
BACKOFF_MAX = 6
"""A request is asked again after its timeout, then twice that, up to 2**6 times."""
EARLY_MAX = 16
"""Early copies per session of messages that were not pushed to it in their place yet. Further ones wait in order."""
RESYNC = {"push": "resync"}


class Deliveries:
    """The hands of all delivery machines of a relay."""

    def __init__(
        self,
        *,
        inboxes: Inboxes,
        bodies: Bodies,
        clock: Clock,
        scheduler: Scheduler,
        settings: InboxSettings,
        counters: RelayCounters,
        write_ledger: Callable[[bytes], object],
        kick: Callable[[LiveInbox, int, str], object],
        traces: TraceRows,
        cursors: Cursors,
    ) -> None:
        self._cursors = cursors
        self.rows = LedgerRows()
        self._traces = traces
        self._inboxes = inboxes
        self._bodies = bodies
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._counters = counters
        self._write_ledger = write_ledger
        self._kick = kick
        self._timers = Timers(clock, scheduler, self._timed_out)
        self._flush_timer: Timer | None = None
        self._is_flush_near = False
        self._others_max = settings.window + settings.read_limit

    def perform(self, inbox: LiveInbox, commands: Sequence[Command]) -> None:
        """Do what a machine says, and what it says to the answers."""
        fetches = 0
        while commands:
            answer = NOTHING
            for command in commands:
                match command:
                    case PushTo():
                        self._push(inbox, command)
                    case AckInbox():
                        first, through = command
                        self._counters.acks += 1
                        self._counters.acked += through - first + 1
                        if inbox.timed_ack and through >= inbox.timed_ack:
                            self._time_ack(inbox)
                        self.rows.acked.add(inbox.key, first, through)
                    case SetTimer():
                        self._set_timer(inbox, *command)
                    case CancelTimer():
                        inbox.due = 0
                    case FetchIds() | FetchBodies():
                        fetches += 1
                        if fetches > FETCHES_PER_TURN:
                            self._fetch_later(inbox, command)
                        else:
                            answer = self._fetch(inbox, command)
                    case PushEarly(pushes):
                        self._push_early(inbox, pushes)
                    case Resend(session_id, pushes):
                        self._resend(inbox, session_id, pushes)
                    case Expire(first, through):
                        self._counters.expired += through - first + 1
                        self.rows.expired.add(inbox.key, first, through)
                    case Kick(session_id, reason):
                        self._kick(inbox, session_id, reason)
                    case BodyLost(useq, message_id):
                        self._counters.bodies_lost += 1
                        log.error("body lost", extra={"user": inbox.key[0], "useq": useq, "message_id": message_id})
                    case _:
                        assert_never(command)
            commands = answer

    def flush_soon(self) -> None:
        """Rows may have been added: write them soon. What happens in that time is bounded, and so are they."""
        if self._flush_timer is None:
            self._flush_timer = self._scheduler.after(self._settings.ledger_ms, self.flush)

    def flush_in_turn(self) -> None:
        """Someone leaves, and may come back at once: write what they have acked at the end of this turn."""
        if self._flush_timer is not None and not self._is_flush_near:
            self._is_flush_near = True
            self._scheduler.soon(self.flush)

    def flush(self) -> None:
        """Write all rows to the log."""
        self._is_flush_near = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        for record in self.rows.take(self._clock.now_ms()):
            self._write_ledger(record)

    def close(self) -> None:
        """No timer fires any more, and no row is left behind."""
        self._timers.close()
        self.flush()

    # Stores.

    def _fetch(self, inbox: LiveInbox, command: FetchIds | FetchBodies) -> Sequence[Command]:
        try:
            if isinstance(command, FetchIds):
                self._counters.reads += 1
                page = self._inboxes.after(*inbox.key, command.after, command.limit)
                return inbox.delivery.ids_fetched(command.turn, page, self._clock.now_ms())
            return inbox.delivery.bodies_fetched(command.turn, self._bodies.get(command.message_ids))
        except Unavailable:
            return NOTHING  # the timer is set: it is asked again

    def _fetch_later(self, inbox: LiveInbox, command: FetchIds | FetchBodies) -> None:
        """A long backlog of nothing to push: go on in a later turn. The answer names its turn, should it be late."""

        def go_on() -> None:
            self.perform(inbox, [command])
            self.flush_soon()

        self._scheduler.after(0, go_on)

    # Sinks.

    def _push(self, inbox: LiveInbox, command: PushTo) -> None:
        session_id, pushes, others = command
        if inbox.timed_push and others and others[-1].useq >= inbox.timed_push:
            self._time_push(inbox, pushes)
        for live in inbox.sessions:
            if live.session.session_id != session_id:
                if live.is_loaded:
                    self._push_copy(live, others, is_linked=pushes is others)
            elif pushes:
                live.through = pushes[-1].useq
                live.sink.push(session_id, self._shown(pushes) if self._cursors.epoch else pushes)
                self._counters.pushes += len(pushes)
                first, last, gateway, since = pushes[0], pushes[-1], live.session.gateway, live.since
                if pushes is others:
                    self.rows.handed.add(
                        inbox.key, first.useq, last.useq, last.message_id, gateway, first.message_id < since
                    )
                    continue
                for push in pushes:  # there are others between them; what adjoins becomes one
                    number = push.message_id
                    self.rows.handed.add(inbox.key, push.useq, push.useq, number, gateway, number < since)

    def _push_copy(self, live: LiveSession, others: list[Push], *, is_linked: bool) -> None:
        """To a session that is not the newest: what it does not have yet, and did not send itself.

        ``is_linked``: each of them names the one before it as its ``previous_useq``.
        """
        session_id = live.session.session_id
        if not live.is_lagging and live.unacked > self._others_max:
            live.is_lagging = True
            live.sink.event(session_id, RESYNC)
        if live.is_lagging:
            live.previous = others[-1].useq  # so that it will see a hole
            return
        previous = max(live.through, live.previous)
        copies = [push for push in others if push.useq > live.through and push.origin != session_id]
        if not copies:
            return
        if not is_linked or copies[0].previous_useq != previous or len(copies) < len(others):
            before = [previous, *(push.useq for push in copies[:-1])]
            copies = [push._replace(previous_useq=useq) for push, useq in zip(copies, before, strict=True)]
        live.through = copies[-1].useq
        live.unacked += len(copies)
        self._counters.copies += len(copies)
        live.sink.push(session_id, self._shown(copies))

    def _push_early(self, inbox: LiveInbox, pushes: list[Push]) -> None:
        """Hand urgent messages to every session that still waits for them, each message once per session."""
        for live in inbox.sessions:
            session_id = live.session.session_id
            waiting = {useq for useq in live.early if useq > live.through}
            copies = [
                push
                for push in pushes
                if push.useq > live.through and push.useq not in waiting and push.origin != session_id
            ][: EARLY_MAX - len(waiting)]
            if copies:
                live.early = waiting.union(push.useq for push in copies)
                live.sink.push(session_id, [push._replace(useq=0) for push in copies])
                self._counters.early += len(copies)

    def _resend(self, inbox: LiveInbox, session_id: int, pushes: list[Push]) -> None:
        for live in inbox.sessions:
            if live.session.session_id == session_id:
                self._counters.resends += len(pushes)
                for push in pushes:
                    self.rows.resent.add(inbox.key, push.useq, push.useq)
                live.sink.push(session_id, self._shown(pushes))

    def _shown(self, pushes: list[Push]) -> list[Push]:
        """As clients know them: with cursors."""
        cursors = self._cursors
        if not cursors.epoch:
            return pushes
        of = cursors.of
        return [push._replace(useq=of(push.useq), previous_useq=of(push.previous_useq)) for push in pushes]

    # Time.

    def _time_push(self, inbox: LiveInbox, pushes: list[Push]) -> None:
        """The entry that is timed is handed to the gateway: from here on it is its ack that is timed.

        What the session sent itself is not pushed to it, and says nothing about either.
        """
        if pushes and pushes[-1].useq >= inbox.timed_push:
            now_us = self._clock.monotonic_us()
            self._counters.deliver_seconds.observe((now_us - inbox.timed_us) / 1e6)
            self._traces.timed(PUSH, inbox.platform, now_us - inbox.timed_us)
            inbox.timed_ack, inbox.timed_us = pushes[-1].useq, now_us
        inbox.timed_push = 0

    def _time_ack(self, inbox: LiveInbox) -> None:
        self._counters.ack_seconds.observe((self._clock.monotonic_us() - inbox.timed_us) / 1e6)
        inbox.timed_ack = 0

    def _set_timer(self, inbox: LiveInbox, kind: TimerKind, attempt: int) -> None:
        inbox.timer = kind
        if kind is TimerKind.ACK:
            self._timers.set(inbox, self._settings.ack_timeout_ms)
        else:
            self._timers.set(inbox, self._settings.request_timeout_ms << min(attempt, BACKOFF_MAX))

    def _timed_out(self, inbox: LiveInbox) -> None:
        delivery = inbox.delivery
        is_ack = inbox.timer is TimerKind.ACK
        self.perform(inbox, delivery.ack_timed_out() if is_ack else delivery.request_timed_out())
        self.flush_soon()
