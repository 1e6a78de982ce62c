"""The lane of inboxes, bodies and send keys: who is to get what.

The body goes to xiu first, then its id into each inbox: whoever finds an id finds the body. A record whose port fails
in the middle is applied again from its beginning. What was added stays added, and what was removed has its references
released by the next attempt: ``Releases`` outlives the failed one. If the process dies instead, the stores go back
to their last commit, which is why there is none in between (``is_midway``).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.body import body_of, tombstone
from pixiu.model.inbox import FIRST, NEED_NOTIFICATION
from pixiu.model.pixiu_pb2 import LimitsChanged, MemberChanged, Push, Record
from pixiu.ports.sendkeys import Sent
from pixiu.roles.carrier.apply_trim import note_forgotten
from pixiu.roles.carrier.arrivals import Arrival
from pixiu.roles.carrier.audience import Audience, group_of
from pixiu.roles.carrier.cut import WatchedInboxes
from pixiu.roles.carrier.ledgers import check_ledger, ledger_rows
from pixiu.roles.carrier.reached import Limits
from pixiu.roles.carrier.releases import Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.reached import Reached

__all__ = ["Eviction", "InboxApplier"]

LIMITS = "limits"
"""The note that holds the limits."""

_CHECKS_MAX = 100_000
_new = tuple.__new__
"""Makes a named tuple in half the time."""


class Eviction(NamedTuple):
    """Entries that were dropped because their inbox was full: the audit counts them as expired."""

    user: int
    platform: str
    useqs: list[int]
    at: int
    """When the message was accepted that took their place."""


class _Choice:
    """Which platforms a push is for, and how it is delivered there."""

    __slots__ = ("only", "options", "without")

    def __init__(self, only: Iterable[str], without: Iterable[str], options: int) -> None:
        self.only = frozenset(only)
        self.without = frozenset(without)
        self.options = options


class InboxApplier:
    """Applies records to inboxes, bodies and send keys; gathers what entered where, and what was evicted."""

    def __init__(self, stores: Stores, limits: Limits, reached: Reached) -> None:
        self._inboxes: Inboxes = stores.inboxes
        self._bodies = stores.bodies
        self._keys = stores.keys
        self._stores = stores
        self._reached = reached
        self._notes = stores.notes
        noted = stores.notes.get(LIMITS)
        self.limits = limits if noted is None else Limits.from_record(LimitsChanged.FromString(noted))
        """What holds now; a record changes it."""
        self._audience = Audience(stores.groups, reached)
        self._releases = Releases(stores.bodies)
        self._arrivals: list[Arrival] = []
        self._evictions: list[Eviction] = []
        self._checks: dict[tuple[int, str], int] = {}
        self._watchers: list[Callable[[int], object]] = []
        self._changes: dict[str, Callable[[LogRecord, Record], None]] = {
            "user": self._user,
            "inbox": self._inbox,
            "contact": self._notice,
            "block": self._notice,
            "group_info": self._group_info,
            "member": self._member,
            "recalled": self._recalled,
            "push": self._push,
            "ledger": self._ledger,
            "limits": self._limits,
            "trimmed": self._trimmed,
        }

    def apply(self, record: LogRecord, parsed: Record) -> None:
        """Apply one record, once."""
        event_id = record.event_id
        if event_id <= self._reached.inboxes:
            return
        if self._releases.ids:
            self._releases.release()
        what = parsed.WhichOneof("what")
        if what is None:
            self._message(record, parsed)
        else:
            change = self._changes.get(what)
            if change is not None:
                change(record, parsed)
        if key := record.key:
            self._keys.put(key, _new(Sent, (record.message_id, event_id, parsed.at)))
        if self._releases.ids:
            self._releases.release()
        self._reached.inboxes = event_id

    @property
    def is_midway(self) -> bool:
        """Have entries left whose references are still counted? Then the stores hold half a record."""
        return bool(self._releases.ids)

    def watch(self, watcher: Callable[[int], object]) -> None:
        """Call ``watcher`` with a user before anything of their inboxes changes, until ``unwatch``."""
        self._watchers.append(watcher)
        self._inboxes = WatchedInboxes(self._stores.inboxes, self._watchers)

    def unwatch(self, watcher: Callable[[int], object]) -> None:
        """Tell it no more."""
        self._watchers.remove(watcher)
        if not self._watchers:
            self._inboxes = self._stores.inboxes

    def take_arrivals(self) -> list[Arrival]:
        """What has entered inboxes since the last time. The stores have all of it."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def take_evictions(self) -> list[Eviction]:
        """What was evicted since the last time."""
        evictions, self._evictions = self._evictions, []
        return evictions

    # Messages.

    def _message(self, record: LogRecord, parsed: Record) -> None:
        """A message, or the notice of a recall: to the inboxes of both sides, or of all members."""
        to = parsed.to
        if to:
            actor = parsed.actor
            users: Sequence[int] = (to,) if actor == to or not actor else (to, actor)
            self._deliver(record, parsed, users, len(users))
        elif group := parsed.group:
            # A large group's members read its timeline; nothing enters their inboxes.
            self._deliver(record, parsed, self._audience.of(group, record.event_id) or (), 1)

    def _deliver(self, record: LogRecord, parsed: Record, users: Sequence[int], row_count: int) -> None:
        """Store a message for every inbox of these users, and for that many rows of timelines."""
        platforms_of = self._inboxes.platforms
        inboxes = [(user, platform) for user in users for platform in platforms_of(user)]
        references = row_count + len(inboxes)
        if references:
            message_id = record.message_id
            body = body_of(parsed.chat, message_id)
            self._bodies.put(message_id, body, references)
            self._add(record, parsed, body, parsed.options, inboxes)

    def _add(
        self, record: LogRecord, parsed: Record, body: bytes, options: int, inboxes: Iterable[tuple[int, str]]
    ) -> None:
        """Put the id into inboxes, and note what has entered where."""
        event_id, message_id = record[:2]
        at, session, actor = parsed.at, parsed.session, parsed.actor
        entered: list[tuple[int, str, int]] = []
        self._arrivals.append(_new(Arrival, (message_id, event_id, at, options, actor, session, body, entered)))
        add, limits = self._inboxes.add, self.limits
        offline_max_of, offline_max = limits.offline_max_by_platform.get, limits.offline_max
        own = options & ~NEED_NOTIFICATION
        for user, platform in inboxes:
            useq = add(user, platform, message_id, event_id, at, options if user != actor else own, session)
            if useq:
                entered.append((user, platform, useq))
            limit = offline_max_of(platform, offline_max)
            if (useq > limit or not useq) and limit >= 0:
                self._trim(user, platform, useq, limit, at)

    def _trim(self, user: int, platform: str, useq: int, limit: int, at: int) -> None:
        """Drop the oldest entries beyond the limit.

        Counting what waits is a read, so its result is kept: an inbox with room for 50 more is not counted again
        before 50 more have come.
        """
        inbox = (user, platform)
        if 0 < useq < self._checks.get(inbox, 0):
            return
        state = self._inboxes.state(user, platform)
        if state is None:
            return
        excess = state.waiting - limit
        if excess > 0:
            oldest = self._inboxes.after(user, platform, 0, excess).entries
            gone = self._inboxes.remove(user, platform, oldest[0].useq, oldest[-1].useq)
            self._releases.ids.extend(entry.message_id for entry in gone)
            self._evictions.append(Eviction(user, platform, [entry.useq for entry in gone], at))
        if len(self._checks) >= _CHECKS_MAX:
            self._checks.clear()
        self._checks[inbox] = state.latest + max(-excess, 0) + 1

    # Changes that open inboxes, or tell someone.

    def _user(self, record: LogRecord, parsed: Record) -> None:
        user = parsed.user.user or record.message_id
        if not self._inboxes.platforms(user):
            self._inboxes.open(user, FIRST)

    def _inbox(self, _: LogRecord, parsed: Record) -> None:
        change = parsed.inbox
        if not change.user or not change.platform:
            raise ValueError(f"an inbox needs a user and a platform, not {change.user} and {change.platform!r}")
        self._inboxes.open(change.user, change.platform)

    def _notice(self, record: LogRecord, parsed: Record) -> None:
        """A notice to one user is seen at both sides, and stays in no timeline."""
        if parsed.chat:
            to = parsed.to or (parsed.contact.peer if parsed.HasField("contact") else parsed.block.peer)
            users = (to, parsed.actor) if parsed.actor and parsed.actor != to else (to,)
            self._deliver(record, parsed, users, 0)

    def _group_info(self, record: LogRecord, parsed: Record) -> None:
        self._audience.forget(parsed.group_info.group)
        self._group_notice(record, parsed, "group_info", 0)

    def _member(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.member
        self._audience.forget(change.group)
        self._group_notice(record, parsed, "member", change.user if change.op == MemberChanged.QUIT else 0)

    def _group_notice(self, record: LogRecord, parsed: Record, what: str, gone: int) -> None:
        """Tell all members, and the one who is gone."""
        group = group_of(record, parsed, what)
        if not group:
            if parsed.to and parsed.chat:
                self._notice(record, parsed)
            return
        members = self._audience.of(group, record.event_id)
        if members is None:
            members = []
        elif gone and gone not in members:
            members = [*members, gone]
        self._deliver(record, parsed, members, 1)

    def _recalled(self, record: LogRecord, parsed: Record) -> None:
        if parsed.chat:
            self._message(record, parsed)
        change = parsed.recalled
        body = tombstone(
            change.message_id,
            from_id=getattr(change, "from"),
            to_id=change.group or change.to,
            is_group=bool(change.group),
        )
        self._bodies.replace(change.message_id, body)

    # Pushes.

    def _push(self, record: LogRecord, parsed: Record) -> None:
        """One body for many users, on the platforms that each is to get it on."""
        by_options: dict[int, list[tuple[int, str]]] = {}
        for user, platforms, options in self._targets(parsed.push, parsed.options):
            by_options.setdefault(options, []).extend((user, platform) for platform in platforms)
        references = sum(map(len, by_options.values()))
        if references:
            body = body_of(parsed.chat, record.message_id)
            self._bodies.put(record.message_id, body, references)
            for options, inboxes in by_options.items():
                self._add(record, parsed, body, options, inboxes)

    def _targets(self, push: Push, options: int) -> Iterator[tuple[int, Sequence[str], int]]:
        """Each user once, with platforms and options. A platform that is named or declared is opened."""
        exclusive = dict(push.exclusive)
        opened = frozenset(push.opened)
        shared = _Choice(push.platforms, push.without_platforms, options)
        for user in dict.fromkeys(push.users):
            choice = shared
            own = exclusive.get(user)
            if own is not None:
                has_platforms = own.platforms or own.without_platforms
                choice = _Choice(
                    own.platforms if has_platforms else push.platforms,
                    own.without_platforms if has_platforms else push.without_platforms,
                    own.options if own.has_options else options,
                )
            platforms = self._inboxes.platforms(user)
            needed = choice.only or opened - choice.without
            if not needed <= set(platforms):
                for platform in sorted(needed):
                    self._inboxes.open(user, platform)
                platforms = self._inboxes.platforms(user)
            if choice.only:
                platforms = tuple(platform for platform in platforms if platform in choice.only)
            elif choice.without:
                platforms = tuple(platform for platform in platforms if platform not in choice.without)
            yield user, platforms, choice.options

    # Limits.

    def _limits(self, _: LogRecord, parsed: Record) -> None:
        """From here on other limits hold; what waits is cut when something is added to it."""
        self._notes.put(LIMITS, parsed.limits.SerializeToString())
        self.limits = Limits.from_record(parsed.limits)
        self._checks.clear()

    # History.

    def _trimmed(self, _: LogRecord, parsed: Record) -> None:
        """Sends that are too old are known no more; their rows go in the lane of timelines."""
        change = parsed.trimmed
        note_forgotten(self._stores, change)
        for key in change.keys:
            self._keys.drop(key, change.through)

    # Ledgers.

    def _ledger(self, _: LogRecord, parsed: Record) -> None:
        """Entries leave. Those that have expired or died go first: an ack may run over them."""
        ledger = parsed.ledger
        platforms = list(ledger.platforms)
        check_ledger(ledger)
        unreleased = self._releases.ids
        for user, index, first, through in chain(ledger_rows(ledger.expired), ledger_rows(ledger.dead)):
            for entry in self._inboxes.remove(user, platforms[index], first, through):
                unreleased.append(entry.message_id)
        ack = self._inboxes.ack
        for user, index, _first, through in ledger_rows(ledger.acked):
            for entry in ack(user, platforms[index], through):
                unreleased.append(entry.message_id)
