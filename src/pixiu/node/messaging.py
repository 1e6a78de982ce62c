"""The messaging roles of one process, wired together.

Roles know ports and callables, never each other; here each gets what it needs of the others. There is no loop and no
socket in this file: time and turns come from the scheduler, so the simulated world runs exactly this.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pixiu.im.phones import retired
from pixiu.model.counted import counted
from pixiu.model.cursor import Cursors
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.failure import Failure
from pixiu.model.ids import first_id_of
from pixiu.model.pixiu_pb2 import Record
from pixiu.node.tracing import Tracing
from pixiu.ports.log import MAIN
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.apply_trim import forgotten_through
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.carrier.notify import Notifier
from pixiu.roles.carrier.reached import Limits
from pixiu.roles.carrier.tasks import GeneralTasks
from pixiu.roles.carrier.trimming import Trimming
from pixiu.roles.horn.horn import Horn
from pixiu.roles.proxy.service import Proxy
from pixiu.roles.relay.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pixiu.config import MessagingSettings, Settings
    from pixiu.im.draft import Actor, Answer, Params
    from pixiu.model.inbox import Entry
    from pixiu.model.pixiu_pb2 import Task
    from pixiu.model.push_token import PushToken
    from pixiu.model.session import LogoutCause, Session
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Appended, Log, LogRecord
    from pixiu.ports.notifications import Notifications
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.search import Searches
    from pixiu.ports.sessions import Sessions
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.apply_rosters import Removed
    from pixiu.roles.carrier.apply_timelines import Said
    from pixiu.roles.relay.sink import Sink

__all__ = ["Messaging", "Place"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")

BURST_MIN = 32
"""Sends on their way into the log at a time."""

STARTING_RETRY_MS = 500
LEDGER_RETRY_MS = 100
LEDGER_WAITING_MAX = 1000
"""Ledger records that wait for a log that refuses them. Beyond this the oldest go: that costs resends."""


@dataclass(frozen=True, slots=True)
class Place:
    """What messaging needs when it runs on one of several replicas that apply the same log."""

    may_serve: Callable[[], bool]
    """Asked before anything is pushed to a client or appended to the log: of all replicas, at most one may."""
    new_session_id: Callable[[], int]
    """Returns numbers that no other replica returns."""


class Messaging:
    """Proxy, carrier, relay and horn over one log and one set of stores."""

    def __init__(
        self,
        queue: Log,
        stores: Stores,
        sessions: Sessions,
        clock: Clock,
        scheduler: Scheduler,
        settings: Settings,
        *,
        notifications: Notifications,
        gateway: str = "local",
        creates_users: bool = False,
        is_writer_busy: Callable[[], bool] = lambda: False,
        searches: Searches | None = None,
        place: Place | None = None,
    ) -> None:
        """``place``: of a replica; None for a node alone."""
        self.log = queue
        self._place = place
        self.stores = stores
        self._limits = Limits.from_settings(settings.inbox)
        self._scheduler = scheduler
        self._session_count = 0
        self._clock = clock
        self._unwritten: list[bytes] = []
        self.when_said: list[Callable[[list[Said]], object]] = []
        """Called with what large groups say, for their live rooms."""
        self.when_removed: list[Callable[[list[Removed]], object]] = []
        """Called with members who have left a group, for its live room."""
        self._is_stopped = self._has_started = self._is_going_back = self._goes_on = False
        self._is_refused = False  # the log refuses ledger rows, and that has been told
        self._past = 0
        """What was committed when it began to serve."""
        self._stale_ms = settings.horn.stale_ms
        self.tracing = Tracing(
            clock, scheduler, self._write_ledger,
            node=settings.queue.node_id, hop_sample=settings.messaging.hop_sample,
        )  # fmt: skip
        traces = self.tracing.rows
        self.horn = Horn(stores.users, notifications, scheduler, settings.horn, stores.push_tokens, self._retire)
        self.cursors = Cursors()  # the log says which, when it is open
        self.relay = self._new_relay(sessions, settings, gateway)
        self._first_epoch = self.relay.epoch
        general = GeneralTasks(kick=self.relay.kick, flush=self.relay.flush)
        self.carrier = Carrier(
            stores, queue, clock, scheduler, settings.carrier,
            wake=self.relay.wake, tell=self.relay.tell, say=lambda said: _call_all(self.when_said, said),
            remove=lambda removed: _call_all(self.when_removed, removed), end_users=self._end_users,
            notify=self._notify, general=general.perform, schedule=self._fire,
            is_writer_busy=lambda: self._is_burst() and (is_writer_busy() or self.proxy.appends.is_gathering),
            is_present=self.relay.is_present,
            traces=traces, is_serving=self._is_serving,
        )  # fmt: skip
        self._notifier = Notifier(stores, queue, clock, self.carrier.counters, text_max=settings.horn.text_max)
        self.proxy = Proxy(
            stores, queue, clock, scheduler, settings.messaging, applied_all=lambda: self.carrier.applied_all,
            when_applied=self.carrier.when_applied, applied=self.carrier.position_of(Lane.INBOXES),
            creates_users=creates_users, node_id=settings.queue.node_id, searches=searches, traces=traces,
            holds=self.relay.holds, cursors=self.cursors,
            platforms=settings.gateway.platform_names, tell=self.relay.tell,
            presence=settings.gateway.presence,
        )  # fmt: skip
        self.trimming = self._new_trimming(settings.messaging)

    def _new_trimming(self, settings: MessagingSettings) -> Trimming:
        return Trimming(
            self.stores, self.log, self._clock, self._scheduler, settings,
            is_serving=self._is_serving, when_applied=self.carrier.when_applied,
        )  # fmt: skip

    def _new_relay(self, sessions: Sessions, settings: Settings, gateway: str) -> Relay:
        place = self._place
        return Relay(
            inboxes=self.stores.inboxes, bodies=self.stores.bodies, sessions=sessions,
            clock=self._clock, scheduler=self._scheduler, settings=settings.inbox,
            gateway=gateway, write_ledger=self._write_ledger,
            new_session_id=self._new_session_id if place is None else place.new_session_id,
            away=self._away,
            liveness_ms=settings.gateway.lease_ms,
            resync_share=settings.gateway.resync_percent / 100,
            traces=self.tracing.rows, cursors=self.cursors,
        )  # fmt: skip

    def _is_burst(self) -> bool:
        """Do so many sends wait for the log that the carrier had better let them go first?

        Fewer are not slowed down by a carrier's turn, and what they say is on its way that much sooner.
        """
        return self.proxy.appends.in_flight >= BURST_MIN

    # Life.

    def start(self, done: Callable[[], object]) -> None:
        """Begin to apply the log; ``done`` when the stores have what was committed before."""
        self.relay.start()
        self._has_started = True
        self._past = self.log.committed
        self.carrier.start()
        self.carrier.when_applied(self.log.committed, lambda: self._note_limits(done))
        self.trimming.start()

    def follow(self) -> None:
        """Begin to apply the log, for whoever may have to serve some day: nobody is told anything yet."""
        self.carrier.start()

    def serve(self, tasks_after: int, done: Callable[[], object]) -> None:
        """Serve from now on; the stores have everything that was committed before. ``follow`` came first."""
        self.relay.start()
        self._has_started = True
        self._past = self.log.committed
        self.carrier.serve(tasks_after)
        self.trimming.start()
        self._note_limits(done)

    def _may_serve(self) -> bool:
        return self._place is None or self._place.may_serve()

    def _is_serving(self) -> bool:
        return self._has_started and self._may_serve()

    def _note_limits(self, done: Callable[[], object]) -> None:
        """Settings that appliers depend on go into the log when they have changed."""
        if self.carrier.limits == self._limits or self._is_stopped:
            done()
            return

        def appended(result: Appended | PixiuError) -> None:
            if isinstance(result, PixiuError):
                log.warning("the old inbox limits stay for now", extra={"reason": str(result)})
                done()
            else:
                self.carrier.when_applied(result.event_id, done)

        record = Record(at=self._clock.now_ms(), limits=self._limits.as_record())
        self.log.append(MAIN, record.SerializeToString(), appended)

    def stop(self) -> None:
        """Close every session, and make the stores durable."""
        self._is_stopped = True
        self.proxy.appends.flush()
        self.relay.stop()
        self.trimming.stop()
        self.tracing.stop()
        self.horn.stop()
        self.carrier.stop()

    def problems(self) -> list[str]:
        """Why this node should get no traffic; none if all is well."""
        if self._is_going_back:
            return [
                *self.carrier.problems(),
                f"stores: {counted(self.carrier.behind, 'event')} behind the log, after a loss",
            ]
        return self.carrier.problems()

    @property
    def is_going_back(self) -> bool:
        """Is a store made again from the log, meanwhile?"""
        return self._is_going_back

    def go_back(self) -> None:
        """A store has lost what it had: nobody is answered from the past while it is made again from the log."""
        self._goes_on = self._has_started or (self._is_going_back and self._goes_on)
        self._is_going_back, self._has_started = True, False
        self.relay.kick_all("resync")

        def caught_up() -> None:  # whoever stood by still does, unless its turn has come meanwhile
            self._is_going_back, self._has_started = False, self._has_started or self._goes_on

        self.carrier.go_back(lambda: self.carrier.when_applied(self.log.committed, caught_up))

    # What clients and publishers do.

    def act(
        self,
        actor: Actor,
        action: str,
        params: Params,
        done: Callable[[Answer | PixiuError], object],
        *,
        key: bytes = b"",
    ) -> None:
        """Do what a user asks for; under a ``key`` it takes effect once."""
        if self._place is None and self._has_started:  # a node of its own that is up: the frequent case
            self.proxy.act(actor, action, params, done, key=key)
            return
        refusal = self._not_now()
        if refusal is None:
            self.proxy.act(actor, action, params, done, key=key)
        else:
            done(refusal)

    def _not_now(self) -> PixiuError | None:
        return None if self._is_serving() else _starting()

    def find_user(self, user: str, done: Callable[[int | PixiuError], object]) -> None:
        """The number behind a public id."""
        if self._is_serving():  # a former leader may not know the newest users
            self.proxy.find_user(user, done)
        else:
            done(_starting())

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
    ) -> None:
        """A client logs in: its inbox is there before its session, its session before anything is pushed."""

        def found(number: int | PixiuError) -> None:
            if isinstance(number, PixiuError):
                done(number)
                return
            refusal = self._not_now()
            if refusal is not None:
                done(refusal)
                return

            def opened(answer: Answer | PixiuError) -> None:
                if isinstance(answer, PixiuError):
                    done(answer)
                elif self._is_stopped:
                    done(Unavailable("the node is stopping"))
                else:
                    try:
                        self.proxy.check_user(number)  # the user may have been erased while the inbox was opened
                        session = self.relay.connect(number, platform, device, sink, cursor=cursor, gateway=gateway)
                    except PixiuError as error:
                        done(error)
                    else:
                        done(session)

            self.proxy.open_inbox(number, platform, opened)

        if self._is_serving():
            self.proxy.find_user(user, found)
        else:
            done(_starting())

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        """A connection is gone."""
        self.relay.disconnect(session_id, cause)

    def ack(self, session_id: int, cursor: int) -> bool:
        """A client holds everything through this cursor. False: its session is not known."""
        return self.relay.ack(session_id, cursor)

    def heartbeat(self, session_id: int) -> bool:
        """A client lives. False: its session is not known."""
        return self.relay.heartbeat(session_id)

    def writing(self, session_id: int) -> None:
        """Messages that were handed over have not reached the client yet."""
        self.relay.writing(session_id)

    # Gateways in other processes.

    def gateway_came(self, gateway: str) -> int:
        """A gateway begins to live. Returns its epoch."""
        return self.relay.gateway_came(gateway)

    def gateway_gone(self, gateway: str) -> int:
        """A gateway is dead, with all its sessions. Returns how many it had."""
        return self.relay.gateway_gone(gateway)

    # Between the roles.

    def _new_session_id(self) -> int:
        """Never one of an earlier life, whatever the clock does: epochs rise from life to life by far more."""
        self._session_count += 1
        return self._first_epoch + self._session_count

    def _away(self, user: int, entries_by_platform: Mapping[str, Sequence[Entry]]) -> None:
        self._notifier.away(user, entries_by_platform)

    def _notify(self, task: Task, done: Callable[[Failure | None], None]) -> None:
        """Tell the horn, unless it is too late: a store that was made anew finds every task of the past again."""
        if self._clock.now_ms() - task.at > self._stale_ms:
            done(None)
        else:
            self.horn.perform(task, done)

    def _retire(self, push_token: PushToken) -> None:
        """A provider knows a phone no more. If the log does not take it now, the next notification finds it again."""

        def appended(result: Appended | PixiuError) -> None:
            if isinstance(result, PixiuError):
                log.warning("a dead push token stays for now", extra={"reason": str(result)})

        if not self._is_stopped:
            record = retired(push_token, self._clock.now_ms())
            self.log.append(MAIN, record.SerializeToString(), appended)

    def _fire(self, record: LogRecord, _: Record, done: Callable[[Failure | None], None]) -> None:
        """A scheduled send is due.

        Stores that were made anew find those of the past again. One that was said is known by its key; where keys of
        its time are forgotten, it was said long ago.
        """

        def judge() -> None:
            try:
                is_said = first_id_of(record.at) <= forgotten_through(self.stores)
            except PixiuError as error:
                done(Failure(str(error), code=error.code))
                return
            if is_said:
                done(None)
            else:
                self._fire_now(record, done)

        if record.event_id > self._past:
            self._fire_now(record, done)
        else:
            self.carrier.when_applied(self._past, judge)

    def _fire_now(self, record: LogRecord, done: Callable[[Failure | None], None]) -> None:
        """What the proxy refuses for good becomes a dead letter."""

        def answered(answer: Answer | PixiuError) -> None:
            if isinstance(answer, PixiuError):
                is_final = answer.code not in ("unavailable", "busy", "rate_limited", "internal")
                done(Failure(str(answer), code=answer.code, is_final=is_final))
            else:
                done(None)

        self.proxy.fire(record.payload, record.event_id, answered)

    def _end_users(self, users: list[int]) -> None:
        """End the sessions of users who were erased or banned; they cannot log in again."""
        directory = self.proxy.context.directory
        for user in users:
            profile = self.stores.users.get(user)
            is_banned = profile is not None and not profile.is_erased
            if is_banned:
                directory.banned(user)
            else:
                directory.bar(user)
            for session in self.relay.sessions_of(user):
                self.relay.kick(user, session.session_id, "banned" if is_banned else "erased")

    def _write_ledger(self, payload: bytes) -> None:
        """Append what became of entries, or how it went, without waiting. A log that refuses gets it again later."""
        if self._may_serve():
            self.log.publish(MAIN, payload, lambda result: self._ledger_written(payload, result))

    def _ledger_written(self, payload: bytes, result: int | PixiuError) -> None:
        if isinstance(result, PixiuError) and not self._is_stopped:
            if not self._unwritten:
                if not self._is_refused:
                    log.warning("the log refuses ledger rows, will try again", extra={"reason": str(result)})
                self._is_refused = True
                self._scheduler.after(LEDGER_RETRY_MS, self._write_again)
            self._unwritten.append(payload)
            del self._unwritten[:-LEDGER_WAITING_MAX]
        else:
            self._is_refused = False

    def _write_again(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        if not self._is_stopped:
            for payload in unwritten:
                self._write_ledger(payload)


def _call_all(calls: list[Callable[[list[Item]], object]], items: list[Item]) -> None:
    for call in calls:
        call(items)


def _starting() -> Unavailable:
    """The log is not open: it has no topics yet, and nobody is to be told that they do not exist."""
    return Unavailable("the node is starting", retry_after_ms=STARTING_RETRY_MS)
