"""The errors of ``mutants``, as changes of methods of the platform's classes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.im import groups, members, messages, schedules
from pixiu.machines.delivery import CancelTimer, Delivery, Kick
from pixiu.machines.delivery.commands import AckInbox, PushEarly
from pixiu.model.ids import Snowflakes
from pixiu.model.pixiu_pb2 import Record
from pixiu.model.wake import Wake
from pixiu.ports.log import MAIN
from pixiu.queue.appends import AppendRun
from pixiu.roles.carrier import trimming
from pixiu.roles.carrier.apply_inboxes import InboxApplier
from pixiu.roles.carrier.audience import Audience
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.carrier.reached import Limits
from pixiu.roles.carrier.releases import Releases
from pixiu.roles.proxy.appends import Appends
from pixiu.roles.proxy.service import Proxy
from pixiu.roles.relay.deliveries import Deliveries
from pixiu.roles.relay.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.machines.delivery import Push

__all__ = ["Patch"]

BODY_NUMBER_BYTES = 10
"""What a body has behind its chat."""


class Patch:
    """Attributes that were changed, and what they were."""

    def __init__(self) -> None:
        self._undo: list[tuple[object, str, object]] = []

    def set(self, target: object, name: str, value: object) -> None:
        """Change an attribute until ``undo``."""
        self._undo.append((target, name, vars(target)[name]))
        setattr(target, name, value)

    def undo(self) -> None:
        """Everything is as it was."""
        while self._undo:
            target, name, value = self._undo.pop()
            setattr(target, name, value)


# The delivery machine.


def reads_from_zero(patch: Patch) -> None:
    """E20."""

    def ack_rows(self: Delivery, items: list[Push]) -> list[object]:
        self.acked_through = items[-1].useq
        return []

    patch.set(Delivery, "_read_after", lambda self: 0)
    patch.set(Delivery, "_ack_rows", ack_rows)


def logout_settles_sent(patch: Patch) -> None:
    """E22."""

    def settled(self: Delivery) -> int:
        return self.items[self.sent - 1].useq if self.sent else self.acked_through

    patch.set(Delivery, "_settled_by_logout", settled)


def no_timers(patch: Patch) -> None:
    """E23."""
    patch.set(Deliveries, "_set_timer", lambda self, inbox, kind, attempt: None)


def logout_of_anyone(patch: Patch) -> None:
    """E43."""
    patch.set(Delivery, "_is_current", lambda self, session_id: True)


def ack_takes_all(patch: Patch) -> None:
    """Whatever was read counts as acked."""
    original = Delivery.acked

    def acked(self: Delivery, session_id: int, through: int) -> object:
        return original(self, session_id, max(through, self.items[-1].useq) if self.items else through)

    patch.set(Delivery, "acked", acked)


def early_copy_acks(patch: Patch) -> None:
    """An early copy counts as delivered, and everything before it with it."""
    original = Delivery._early

    def early(self: Delivery, entries: Any, bodies: Any) -> object:
        commands = list(original(self, entries, bodies))
        for command in commands:
            if isinstance(command, PushEarly) and self.session is not None:
                return [*commands, *self.acked(self.session.session_id, command.pushes[-1].useq)]
        return commands

    patch.set(Delivery, "_early", early)


def kick_settles(patch: Patch) -> None:
    """Too many tries: the window is given up with the session."""
    original = Delivery.ack_timed_out

    def timed_out(self: Delivery) -> object:
        first, through = self.acked_through + 1, self.items[self.sent - 1].useq if self.sent else 0
        commands = original(self)
        if any(isinstance(command, Kick) for command in commands) and through >= first:
            return [CancelTimer(), AckInbox(first, through), *commands]
        return commands

    patch.set(Delivery, "ack_timed_out", timed_out)


# The relay.


def no_next_newest(patch: Patch) -> None:
    """The delivery ends with its session, also where others are there."""
    original = Delivery.logged_in

    def forget(self: Relay, live: Any) -> None:
        patch_inside = Patch()
        patch_inside.set(Delivery, "logged_in", lambda self, session, cursor=0, told=0: ())
        try:
            forget_rightly(self, live)
        finally:
            patch_inside.undo()

    forget_rightly = Relay._forget
    assert original is Delivery.logged_in
    patch.set(Relay, "_forget", forget)


def presence_first(patch: Patch) -> None:
    """The race of seed 004: who is there is asked when the message is accepted, not when it is stored."""
    appended, woken = Appends.append, Relay.wake
    present: dict[bytes, set[tuple[int, str]]] = {}
    relays: list[Relay] = []

    def append(self: Appends, payload: bytes, *arguments: Any, **named: Any) -> None:
        if relays:
            here = {inbox.key for inboxes in relays[-1]._users.values() for inbox in inboxes}
            present.setdefault(Record.FromString(payload).chat, here)
        appended(self, payload, *arguments, **named)

    def wake(self: Relay, wakes: Iterable[Wake]) -> None:
        if not relays or relays[-1] is not self:
            relays.append(self)
        seen = [each for each in wakes if _was_there(each, present)]
        woken(self, seen)

    patch.set(Appends, "append", append)
    patch.set(Relay, "wake", wake)


def _was_there(wake: Wake, present: dict[bytes, set[tuple[int, str]]]) -> bool:
    bodies = wake.bodies or {}
    for entry in wake.entries:
        here = present.get(bodies[entry.message_id][:-BODY_NUMBER_BYTES])
        if here is None or (wake.user, wake.platform) in here:
            return True
    return False


# The carrier.


def wakes_early(patch: Patch) -> None:
    """E24."""
    apply, deliver = Carrier._apply, Carrier._deliver

    def early(self: Carrier, states: Any, records: Any, after: int) -> Any:
        for record in records:
            if record.topic == MAIN:
                parsed = Record.FromString(record.payload)
                users = {parsed.to, parsed.actor, *(m.user for m in self._stores.groups.members(parsed.group))} - {0}
                for user in sorted(users) if parsed.chat else ():
                    for platform in self._stores.inboxes.platforms(user):
                        state = self._stores.inboxes.state(user, platform)
                        assert state is not None
                        self._wake([Wake(user, platform, state.latest + 1, (), None)])
        return apply(self, states, records, after)

    def silent(self: Carrier) -> None:
        self._appliers.inboxes.take_arrivals()
        deliver(self)

    patch.set(Carrier, "_apply", early)
    patch.set(Carrier, "_deliver", silent)
    patch.set(Delivery, "_must_read_again", lambda self: False)


def forgets_acks(patch: Patch) -> None:
    """A node that starts on an empty store takes no notice of what the log says about acks of its past."""
    original = Carrier.start

    def start(self: Carrier) -> None:
        past = self._log.committed
        ledger = self._appliers.inboxes._changes["ledger"]
        self._appliers.inboxes._changes["ledger"] = lambda record, parsed: (
            None if record.event_id <= past else ledger(record, parsed)
        )
        original(self)

    patch.set(Carrier, "start", start)


def remembers_those_who_left(patch: Patch) -> None:
    """A lane's memory of members is not renewed."""
    patch.set(Audience, "forget", lambda self, group: None)


def releases_twice(patch: Patch) -> None:
    """A wrong count of references."""
    original = Releases.release

    def release(self: Releases) -> None:
        self.ids += self.ids
        original(self)

    patch.set(Releases, "release", release)


def evicts_unasked(patch: Patch) -> None:
    """The bound of inboxes is too small."""
    original = InboxApplier._add

    def add(self: InboxApplier, *arguments: Any) -> None:
        self.limits = Limits(10)
        original(self, *arguments)

    patch.set(InboxApplier, "_add", add)


def trims_all(patch: Patch) -> None:
    """Whatever there is counts as old."""
    patch.set(trimming, "first_id_of", lambda now_ms: 2**62)


# Stores.


def positions_lag(patch: Patch) -> None:
    """A commit says how far the one before it was."""
    original = EmbeddedStores.commit

    def commit(self: EmbeddedStores, applied: Any) -> None:
        lagging = dict(self._applied)
        original(self, {lane: lagging[lane] for lane in applied})
        self._applied.update(applied)

    patch.set(EmbeddedStores, "commit", commit)


def positions_lead(patch: Patch) -> None:
    """A commit says how far it is before it is."""
    original = EmbeddedStores.commit

    def commit(self: EmbeddedStores, applied: Any) -> None:
        store, overlay = self._store, self._overlay
        tables, pending, overlay._tables, overlay._pending = overlay._tables, overlay._pending, [], {}
        try:
            original(self, applied)
        finally:
            overlay._tables, overlay._pending = tables, pending
            overlay._keys, overlay._new_keys = [], list(pending)
        assert store is self._store
        original(self, applied)

    patch.set(EmbeddedStores, "commit", commit)


# The proxy and the log.


def accepts_before_the_flush(patch: Patch) -> None:
    """E25."""
    original = AppendRun._number

    def number(self: Any, batch: Any) -> bytes:
        data = original(self, batch)
        dones, self._dones = self._dones, []
        results = iter(self._results)
        for count, done in dones:
            done(list(islice(results, count)))
        return data

    patch.set(AppendRun, "_number", number)


def forgets_send_ids(patch: Patch) -> None:
    """Nothing is a repeat."""
    original = Appends.append

    def append(self: Appends, payload: bytes, at: int, key: bytes, *arguments: Any, **named: Any) -> None:
        original(self, payload, at, b"", *arguments, **named)

    patch.set(Appends, "append", append)


def ids_fall(patch: Patch) -> None:
    """Numbers begin where the clock is."""
    patch.set(Snowflakes, "observe", lambda self, message_id: None)


def no_blocks(patch: Patch) -> None:
    """Whoever is blocked gets through."""
    for module in (messages, groups, members, schedules):
        patch.set(module, "check_may_send", lambda context, user, to: None)


def no_members(patch: Patch) -> None:
    """Whoever knows a group's name may speak there."""
    for module in (messages, schedules):
        patch.set(module, "check_may_say", lambda context, user, group: None)


def answers_unapplied(patch: Patch) -> None:
    """What was changed cannot be read yet."""
    original = Proxy._accepted

    def accepted(self: Proxy, draft: Any, result: Any, done: Any) -> None:
        draft.is_applied = False
        original(self, draft, result, done)

    patch.set(Proxy, "_accepted", accepted)
