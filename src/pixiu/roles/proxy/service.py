"""One proxy: every action of every user, over callbacks.

``send``, ``gsend`` and ``push`` are answered when they are committed; every other change when it is committed and
applied, so that whoever made it reads it. Reading is answered at once; what is unknown only because the stores are a
little behind the log is looked up again. ``done`` is called exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.im import VERBS
from pixiu.im.context import Context
from pixiu.im.costs import ROWS_PER_TOKEN, cost_of, due_cost
from pixiu.im.directory import Banned
from pixiu.im.draft import (
    Accepted,
    Actor,
    Answer,
    Arriving,
    Draft,
    Erasing,
    Params,
    Scheduling,
    Searching,
    UnknownMessage,
    UnknownUsers,
    Unscheduling,
    Verb,
    drafted,
)
from pixiu.im.schedules import fired, scheduling
from pixiu.im.turns import Turns
from pixiu.im.users import new_user, user_key
from pixiu.model.cursor import Cursors
from pixiu.model.errors import (
    NotFound,
    Overloaded,
    PixiuError,
    RateLimited,
    RequestError,
    Unauthenticated,
    Unavailable,
)
from pixiu.model.hints import nearest
from pixiu.model.names import check_platform, check_public_id, new_public_id, normalized
from pixiu.model.pixiu_pb2 import InboxOpened, Record
from pixiu.ports.log import MAIN, SCHEDULE, Scheduled
from pixiu.ports.scheduler import raise_apart
from pixiu.roles.proxy.appends import Appends
from pixiu.roles.proxy.catching_up import CatchingUp
from pixiu.roles.proxy.rates import Rates
from pixiu.roles.proxy.schedules import Schedules

if TYPE_CHECKING:
    from pixiu.config.gateway import Presence
    from pixiu.config.messaging import MessagingSettings
    from pixiu.machines.traces import TraceRows
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Log
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.search import Found, Searches
    from pixiu.ports.stores import Stores

__all__ = ["IN_FLIGHT_MAX", "Done", "Proxy"]

IN_FLIGHT_MAX = 10_000
"""Appends on their way, and likewise changes that wait to be applied; more are refused as busy."""

READ_RATE, READ_BURST = 4, 10
"""Reading actions have a bucket of their own, larger than that of changes by these factors."""

DELAYED_SHARE = 2
"""Scheduled sends over their author's rate get one part in so many of it, so that the author can go on sending."""

SAYING = frozenset({"send", "gsend", "system", "broadcast", "push"})
"""Actions that do not wait for a later turn: each is a bounded amount of work."""

ROUNDS_MAX = 3
"""How often an action may name users who have to be created first."""

Done = Callable[[Answer | PixiuError], object]
"""Told the answer, or the error."""


class Proxy:
    """Checks actions, appends what they change, answers."""

    def __init__(
        self,
        stores: Stores,
        log: Log,
        clock: Clock,
        scheduler: Scheduler,
        settings: MessagingSettings,
        *,
        when_applied: Callable[[int, Callable[[], object]], object],
        applied: Callable[[], int],
        applied_all: Callable[[], int],
        creates_users: bool = False,
        node_id: int = 0,
        in_flight_max: int = IN_FLIGHT_MAX,
        searches: Searches | None = None,
        traces: TraceRows | None = None,
        holds: Callable[[int, int], int] = lambda _session_id, useq: useq,
        cursors: Cursors | None = None,
        platforms: tuple[str, ...] = (),
        tell: Callable[[int, Mapping[str, object]], int] = lambda _user, _event: 0,
        presence: Presence = "mutual",
    ) -> None:
        """``when_applied(event_id, call)`` calls when all lanes are there, ``applied_all()`` is where all of them are.

        ``applied()`` is where the keys' lane is.
        ``holds``, ``cursors``, ``platforms``, ``tell`` and ``presence`` are the context's.
        """
        self._stores = stores
        self._log = log
        self._when_applied = when_applied
        self._in_flight_max = in_flight_max
        self._searches = searches
        self._scheduler = scheduler
        self.turns = Turns(clock, scheduler)
        self._rates = Rates(clock, per_second=settings.sends_per_second, burst=settings.send_burst)
        self._read_rates = Rates(
            clock, per_second=READ_RATE * settings.sends_per_second, burst=READ_BURST * settings.send_burst
        )
        self._delayed_rates = Rates(
            clock, per_second=-(-settings.sends_per_second // DELAYED_SHARE), burst=settings.send_burst
        )
        """What the delayed scheduled sends of a user cost, and so when the next one can follow them."""
        self.schedules = Schedules(log)
        self.appends = Appends(
            log, stores.keys, clock, scheduler, applied=applied, when_applied=when_applied, in_flight_max=in_flight_max,
            traces=traces, link=str(node_id),
        )  # fmt: skip
        self.catching_up = CatchingUp(
            log, scheduler, applied_all=applied_all, when_applied=when_applied, waiting_max=in_flight_max
        )
        self.context = Context(
            stores, clock, settings, creates_users=creates_users, node_id=node_id, own_scheduled=self.schedules.of,
            scheduled_with=self.schedules.find,
            holds=holds, cursors=cursors or Cursors(), platforms=platforms, tell=tell, presence=presence,
            charge_rows=self._charge_rows,
        )  # fmt: skip
        self.unapplied = 0
        self.actions: dict[str, int] = dict.fromkeys(VERBS, 0)
        self.refused: dict[str, int] = {}

    def act(self, actor: Actor, action: str, params: Params, done: Done, *, key: bytes = b"") -> None:
        """Do what a user asks for. ``done`` may be called before this returns.

        ``key``: under which a change that has no key of its own takes effect once. A repeat is answered with the
        numbers of the first one.
        """
        verb = VERBS.get(action) if type(action) is str else None
        if verb is None:
            self._refuse(unknown_action(action), done)
            return
        self.actions[action] += 1
        if not actor.is_admin:
            try:
                (self._rates if verb.is_changing else self._read_rates).take(actor.user, cost_of(action, params))
            except PixiuError as error:
                self._refuse(error, done)
                return
        if key and verb.is_changing and self._is_repeat(key, done):
            return
        if action in SAYING:
            self._perform(verb, actor, params, done, ROUNDS_MAX, key)
        elif self.turns.is_free(actor.user):
            self.turns.run(partial(self._perform, verb, actor, params, done, ROUNDS_MAX, key))
        else:
            self.turns.wait(actor.user, partial(self._perform_later, verb, actor, params, done, key))

    def _perform_later(self, verb: Verb, actor: Actor, params: Params, done: Done, key: bytes) -> None:
        """Perform an action in a later turn. The caller of ``act`` is gone, so a bug is answered here."""
        try:
            self._perform(verb, actor, params, done, ROUNDS_MAX, key)
        except Exception as error:  # noqa: BLE001 - the loop notes it, and others have their turns
            raise_apart(self._scheduler.soon, error)
            done(PixiuError("something is wrong on this side; it has been noted"))

    def _is_repeat(self, key: bytes, done: Done) -> bool:
        """Was this done already? What it changed may be in its own way now, so it is not checked again."""
        try:
            sent = self._stores.keys.get(key)
        except PixiuError as error:
            self._refuse(error, done)
            return True
        if sent is not None:
            done({"message_id": str(sent.message_id), "at": sent.at, "is_repeat": True})
        return sent is not None

    def _charge_rows(self, actor: Actor, rows: int) -> None:
        """Charge what a list answer holds. It is answered; the next read waits until the rate allows it."""
        if not actor.is_admin:
            self._read_rates.charge(actor.user, rows // ROWS_PER_TOKEN)

    def check_user(self, user: int) -> None:
        """Raise ``Unauthenticated`` unless there is such a user, who is not banned."""
        directory = self.context.directory
        if not directory.knows_user(user):
            raise Unauthenticated(f"there is no user with the number {user}")
        if directory.is_banned(user):
            raise Banned(directory.user_name(user))

    def open_inbox(self, user: int, platform: str, done: Done) -> None:
        """A first login on a platform: from now on there is an inbox for it."""
        try:
            check_platform(platform)
            self.check_user(user)
            answer: Answer = {"platform": platform}
            if platform in self._stores.inboxes.platforms(user):
                done(answer)
                return
        except PixiuError as error:
            self._refuse(error, done)
            return
        opened = InboxOpened(user=user, platform=platform)
        record = Record(at=self.context.clock.now_ms(), actor=user, inbox=opened)
        self._append(drafted(record, lambda accepted: answer), done)

    def find_user(self, public_id: str, done: Callable[[int | PixiuError], object], *, creates: bool = False) -> None:
        """The number of the user whom a token names; ``creates`` (or ``--dev``) creates an unknown one.

        ``Banned`` if that user may not log in.
        """
        try:
            number = self.context.directory.exact_user(check_public_id(public_id, what="user"))
            if number is None and (normal := normalized(public_id)) != public_id:
                raise RequestError(f"user {public_id!r} is not in its normal form; use {normal!r}")
            if number is not None and self.context.directory.is_banned(number):
                raise Banned(public_id)
        except PixiuError as error:
            done(error)
            return
        if number is not None:
            done(number)
        elif not (creates or self.context.creates_users):
            done(UnknownUsers([public_id]))
        else:
            self._create_users(
                [public_id],
                lambda error: done(error) if error is not None else self.find_user(public_id, done),
            )

    def fire(self, record: bytes, event_id: int, done: Done) -> None:
        """A scheduled send is due, by this event. Rights are checked again; firing it twice says it once.

        It is charged to its author. Over the rate it is scheduled again, once, for the time at which its turn comes
        behind the others of the author that are delayed; ``done`` gets the answer to that.
        """
        try:
            scheduled = Record.FromString(record)
            self.schedules.fired(scheduled.actor, record)
            draft = fired(self.context, scheduled, event_id)
            is_free = scheduled.scheduled.is_exempt or self._stores.keys.get(draft.key) is not None
            cost = 0 if is_free else due_cost(self._stores.groups, scheduled)
        except DecodeError:
            self._refuse(RequestError(f"scheduled send {event_id} cannot be decoded"), done)
            return
        except PixiuError as error:
            self._refuse(error, done)
            return
        if not cost:
            self._append(draft, done)
        elif self._charge_due(scheduled, cost):
            self._append_due(scheduled.actor, draft, cost, done)
        else:
            self._delay(scheduled, event_id, cost, done)

    def _charge_due(self, scheduled: Record, cost: int) -> bool:
        """Charge a due send to its author. False: it is over the rate, or others are delayed before it."""
        user = scheduled.actor
        if scheduled.scheduled.fired:  # it has had its delay
            self._rates.charge(user, cost)
            return True
        if self._delayed_rates.wait_ms(user):
            return False
        try:
            self._rates.take(user, cost)
        except RateLimited:
            return False
        return True

    def _append_due(self, user: int, draft: Draft, cost: int, done: Done) -> None:
        answer = draft.answer

        def answered(accepted: Accepted) -> Answer:
            if accepted.is_repeat:  # the first send was not in the index yet
                self._rates.give_back(user, cost)
            return answer(accepted)

        def appended(outcome: Answer | PixiuError) -> object:
            if isinstance(outcome, PixiuError):  # it is fired again later, and charged then
                self._rates.give_back(user, cost)
            return done(outcome)

        draft.answer = answered
        self._append(draft, appended)

    def _delay(self, scheduled: Record, event_id: int, cost: int, done: Done) -> None:
        """Schedule a due send again for the time at which its share of its author's rate allows it."""
        user = scheduled.actor
        self._delayed_rates.charge(user, cost)
        due = self.context.clock.now_ms() + self._delayed_rates.wait_ms(user)
        scheduled.scheduled.fired = event_id

        def delayed(answer: Answer | PixiuError) -> object:
            if isinstance(answer, PixiuError):
                self._delayed_rates.give_back(user, cost)
            return done(answer)

        self._schedule(user, scheduling(scheduled, due), delayed)

    # An action, step by step.

    def _perform(
        self,
        verb: Verb,
        actor: Actor,
        params: Params,
        done: Done,
        rounds: int,
        key: bytes = b"",
        *,
        may_wait: bool = True,
    ) -> None:
        try:
            outcome = verb.run(self.context, actor, params)
        except UnknownUsers as unknown:
            is_actor = unknown.public_ids == [str(actor.user)]
            if self.context.creates_users and rounds > 1 and (verb.is_changing or is_actor):
                self._create_users(
                    unknown.public_ids,
                    lambda error: (
                        self._refuse(error, done)
                        if error is not None
                        else self._perform(verb, actor, params, done, rounds - 1, key)
                    ),
                )
            else:
                self._refuse(unknown, done)
            return
        except UnknownMessage as error:
            if may_wait and self.catching_up.is_behind:
                self.catching_up.wait(
                    lambda: self._perform(verb, actor, params, done, rounds, key, may_wait=False),
                    lambda refusal: self._refuse(refusal, done),
                )
            else:
                self._refuse(error, done)
            return
        except PixiuError as error:
            self._refuse(error, done)
            return
        if isinstance(outcome, Draft):
            outcome.key = outcome.key or key
            if outcome.fan_out_cost and not actor.is_admin:
                self._append_fan_out(verb, actor, params, outcome, done)
            else:
                self._append(outcome, done)
        elif isinstance(outcome, Scheduling):
            self._schedule(actor.user, outcome, done)
        elif isinstance(outcome, Unscheduling):
            self._unschedule(outcome.schedule_id, done)
        elif isinstance(outcome, Erasing):
            self._erase(outcome, done)
        elif isinstance(outcome, Searching):
            self._search(outcome, done)
        else:
            done(outcome)

    def _refuse(self, error: PixiuError, done: Done) -> None:
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        done(error)

    def _charge_fan_out(self, verb: Verb, actor: Actor, params: Params, fan_out_cost: int) -> None:
        """Charge the fan-out together with the request. Raises ``RateLimited``; then neither is charged.

        Two separate charges would refuse a client forever that retries exactly when ``retry_after_ms`` allows it.
        """
        cost = cost_of(verb.name, params)
        self._rates.give_back(actor.user, cost)
        self._rates.take(actor.user, cost + fan_out_cost)

    def _append_fan_out(self, verb: Verb, actor: Actor, params: Params, draft: Draft, done: Done) -> None:
        """Charge the fan-out, then append. A retry of an accepted send has no fan-out and is not charged for it."""
        fan_out_cost, answer = draft.fan_out_cost, draft.answer
        try:
            if not draft.key or self._stores.keys.get(draft.key) is None:
                self._charge_fan_out(verb, actor, params, fan_out_cost)

                def answered(accepted: Accepted) -> Answer:
                    if accepted.is_repeat:  # the first send was not in the index yet
                        self._rates.give_back(actor.user, fan_out_cost)
                    return answer(accepted)

                draft.answer = answered
        except PixiuError as error:
            self._refuse(error, done)
            return
        self._append(draft, done)

    def _append(self, draft: Draft, done: Done) -> None:
        if not draft.is_applied and not draft.then:  # what is said: the frequent case
            self.appends.append(draft.payload, draft.at, draft.key, partial(self._answer, draft, done))
            return
        if draft.is_applied and self.unapplied >= self._in_flight_max:
            self._refuse(Overloaded(f"{self.unapplied} changes wait to be applied", retry_after_ms=1000), done)
            return
        if draft.arriving is not None:
            done = self._arriving(draft.arriving, done)
        if draft.then:
            self._append_all(draft, draft.then, lambda accepted: self._accepted(draft, accepted, done))
            return
        if draft.after is not None:
            self.appends.append(draft.payload, draft.at, draft.key, partial(self._append_after, draft, done))
            return
        self.appends.append(draft.payload, draft.at, draft.key, lambda accepted: self._accepted(draft, accepted, done))

    def _arriving(self, arriving: Arriving, done: Done) -> Done:
        """Count users in, from now until the answer."""
        joining = self.context.joining
        joining.begin(arriving)

        def answered(answer: Answer | PixiuError) -> object:
            joining.end(arriving)
            return done(answer)

        return answered

    def _append_all(self, draft: Draft, then: list[Record], done: Callable[[Accepted | PixiuError], object]) -> None:
        """Several records back to back. The answer waits for all; an error of any is the error of all."""
        payloads = [draft.payload, *(record.SerializeToString() for record in then)]
        outcomes: list[Accepted | PixiuError | None] = [None] * len(payloads)
        left = len(payloads)

        def noted(index: int, outcome: Accepted | PixiuError) -> None:
            nonlocal left
            outcomes[index] = outcome
            left -= 1
            if left == 0:
                done(together(outcomes))

        for index, payload in enumerate(payloads):
            # No send_id has this byte: it is not UTF-8.
            key = draft.key + b"\xff%d" % index if draft.key and index else draft.key
            self.appends.append(payload, draft.at, key, partial(noted, index))

    def _append_after(self, draft: Draft, done: Done, accepted: Accepted | PixiuError) -> None:
        """The first record of a draft is committed: append those that needed its numbers."""
        if isinstance(accepted, PixiuError) or accepted.is_repeat or draft.after is None:
            self._accepted(draft, accepted, done)
            return
        records = draft.after(accepted)
        outcomes: list[Accepted | PixiuError | None] = [accepted]

        def noted(outcome: Accepted | PixiuError) -> None:
            outcomes.append(outcome)
            if len(outcomes) > len(records):
                self._accepted(draft, together(outcomes), done)

        for record in records:
            self.appends.append(record.SerializeToString(), record.at, b"", noted)

    def _accepted(self, draft: Draft, accepted: Accepted | PixiuError, done: Done) -> None:
        if isinstance(accepted, PixiuError) or not draft.is_applied:
            self._answer(draft, done, accepted)
            return
        self.unapplied += 1

        def applied() -> None:
            self.unapplied -= 1
            self._answer(draft, done, accepted)

        self._when_applied(accepted.event_id, applied)

    def _answer(self, draft: Draft, done: Done, accepted: Accepted | PixiuError) -> None:
        if isinstance(accepted, PixiuError):
            self._refuse(accepted, done)
            return
        try:
            answer = draft.answer(accepted)
        except PixiuError as error:
            self._refuse(error, done)
        else:
            done(answer)

    # Users who are erased.

    def _erase(self, erasing: Erasing, done: Done) -> None:
        """Nobody writes to or as this user from now on; then drop what waits, and append the rest."""
        directory = self.context.directory
        directory.bar(erasing.user)
        for schedule_id in erasing.schedules:
            self._unschedule(schedule_id, lambda _: None)
        *quits, erased = erasing.records
        if quits:
            first, *rest = quits
            self._append(drafted(first, lambda accepted: {}, is_applied=False, then=rest), lambda _: None)
        if erasing.given_up is not None:
            self.appends.flush()  # groups are left first
            self._log.publish(MAIN, erasing.given_up.SerializeToString())

        def answered(answer: Answer | PixiuError) -> object:
            if isinstance(answer, PixiuError):
                directory.unbar(erasing.user)
            return done(answer)

        self._append(drafted(erased, erasing.answer), answered)

    # Searches.

    def _search(self, searching: Searching, done: Done) -> None:
        """Ask the index, as often as the answer takes."""

        def found(hits: Found | PixiuError) -> None:
            try:
                answer = hits if isinstance(hits, PixiuError) else searching.answer(hits)
            except PixiuError as error:
                answer = error
            if isinstance(answer, PixiuError):
                self._refuse(answer, done)
            elif isinstance(answer, Searching):
                self._search(answer, done)
            else:
                done(answer)

        if self._searches is None:
            self._refuse(Unavailable("this node has no index of messages; search.data says where one is"), done)
        else:
            self._searches.find(searching.asked, found)

    # Users who are created on first use.

    def _create_users(self, public_ids: list[str], done: Callable[[PixiuError | None], object]) -> None:
        """Create those who do not exist. Whoever else creates one at this moment does it for us."""
        try:
            public_ids = [new_public_id(each, what="user") for each in public_ids]
        except PixiuError as error:
            done(error)
            return
        records = [(new_user(self.context, public_id), user_key(public_id)) for public_id in public_ids]
        outcomes: list[Accepted | PixiuError | None] = []

        def noted(outcome: Accepted | PixiuError) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(records):
                all_of_them = together(outcomes)
                if isinstance(all_of_them, PixiuError):
                    done(all_of_them)
                else:
                    self._when_applied(all_of_them.event_id, lambda: done(None))

        for record, key in records:
            self.appends.append(record.SerializeToString(), record.at, key, noted)

    # Later.

    def _schedule(self, user: int, scheduling: Scheduling, done: Done) -> None:
        payload, due = scheduling.record.SerializeToString(), scheduling.due

        def committed(schedule_id: int | PixiuError) -> None:
            if isinstance(schedule_id, PixiuError):
                self._refuse(schedule_id, done)
                return
            self.schedules.add(user, Scheduled(schedule_id, due, SCHEDULE, payload))
            done(scheduling.answer(schedule_id))

        self._log.schedule(SCHEDULE, payload, due, committed)

    def _unschedule(self, schedule_id: int, done: Done) -> None:
        def committed(was_waiting: bool | PixiuError) -> None:
            if isinstance(was_waiting, PixiuError):
                self._refuse(was_waiting, done)
                return
            self.schedules.remove(schedule_id)
            if was_waiting:
                done({"schedule_id": str(schedule_id)})
            else:
                self._refuse(NotFound(f"scheduled send {schedule_id} does not wait any more"), done)

        self._log.unschedule(schedule_id, committed)


def together(outcomes: list[Accepted | PixiuError | None]) -> Accepted | PixiuError:
    """The first record's numbers, those of the others behind it, and the last event id; or the first error."""
    accepted: list[Accepted] = []
    for outcome in outcomes:
        if isinstance(outcome, PixiuError):
            return outcome
        assert outcome is not None
        accepted.append(outcome)
    last = max(each.event_id for each in accepted)
    return accepted[0]._replace(event_id=last, then=tuple(each.message_id for each in accepted[1:]))


def unknown_action(action: object) -> RequestError:
    """Refuse it, with the nearest one that exists."""
    near = nearest(action, VERBS)
    hint = f"; did you mean {near!r}?" if near else ""
    return RequestError(f"there is no action {str(action)[:64]!r}{hint}")
