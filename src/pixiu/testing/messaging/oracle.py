"""What must hold in every world of the messaging platform.

Scenarios do not say what is correct; this does. It sees everything: the log, the stores, the roles' insides, and what
was shown on every device.

I1 every accepted message was taken by a device of each intended inbox, or waits there and can be read.
I2 shown once per device; one message_id per (user, send_id), however often and through whatever door.
I3 each session gets its inbox in order and without holes.
I4 every message_id is above those before it, also after a restart and with a clock that was set back.
I6 one delivery per inbox, for its newest session.
I8 a healed world comes to rest: what can be delivered is, and nothing moves any more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.ids import first_id_of, snowflake_time_ms
from pixiu.model.inbox import NEED_ACK, NEED_OFFLINE
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.rebuild import rebuild
from pixiu.testing.messaging.compare import describe_model, describe_stores, difference
from pixiu.testing.messaging.model import Model
from pixiu.testing.messaging.rights import check_own_writes, check_rights
from pixiu.testing.queue.oracle import Violation

if TYPE_CHECKING:
    from pixiu.ports.log import LogRecord
    from pixiu.testing.messaging.devices import Device
    from pixiu.testing.messaging.model import Gone
    from pixiu.testing.messaging.world import World

__all__ = ["Oracle"]

LATE_MS = 5_000
LANES = (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES, Lane.TASKS)


class Oracle:
    """Judges one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def records(self) -> list[LogRecord]:
        """The whole log, from the files."""
        log, found, after = self._world.node.log, [], 0
        while after < log.committed:
            records = log.read(after, 10_000)
            found += records
            after = records[-1].event_id if records else log.committed
        return found

    def model(self) -> Model:
        """What follows from the log, in which numbers always rise."""
        records = self.records()
        last = 0
        for record in records:
            if record.message_id:
                if record.message_id <= last:
                    raise Violation(f"I4: event {record.event_id} is given {record.message_id}, after {last}")
                last = record.message_id
        return Model.of(records)

    # At rest?

    def unsettled(self) -> str:
        """Why the healed world is not at rest, or the empty string."""
        world, node = self._world, self._world.node
        if node.state != "up":
            return f"the node is {node.state}"
        if world.clients.open_count:
            return f"{world.clients.open_count} requests are open"
        if problems := node.messaging.problems():
            return f"the node says: {problems}"
        carrier = node.messaging.carrier
        for lane in LANES:
            if carrier.applied(lane) < node.log.committed:
                return f"lane {lane.value} is at {carrier.applied(lane)} of {node.log.committed}"
            if node.stores.applied(lane) < node.log.committed:
                return f"lane {lane.value} has committed {node.stores.applied(lane)} of {node.log.committed}"
        for device in world.devices:
            if device.is_wanted and not device.is_online:
                return f"{device.name} is not connected"
            if reason := self._undelivered(device):
                return reason
        return ""

    def _undelivered(self, device: Device) -> str:
        """A device that can be delivered to has everything."""
        if not device.is_online or device.is_deaf:
            return ""
        relay = self._world.node.messaging.relay
        user = self._world.numbers.get(device.user_name, 0)
        sessions = [each for each in relay.sessions_of(user) if each.platform == device.plan.platform]
        if device.session_id not in [each.session_id for each in sessions]:
            return f"{device.name} thinks that it is connected, and the relay does not"
        if sessions[0].session_id != device.session_id:
            return ""
        state = self._world.node.stores.inboxes.state(user, device.plan.platform)
        if state is None or not state.waiting:
            return ""
        return f"I8: {device.name} is there, and {state.waiting} entries of {user}/{device.plan.platform} wait"

    def activity(self) -> tuple[object, ...]:
        """What must not change any more at rest."""
        node, world = self._world.node, self._world
        relay = node.messaging.relay.counters
        return (
            node.log.committed,
            relay.pushes,
            relay.resends,
            relay.copies,
            relay.kicks,
            relay.logins,
            len(world.clients.asked),
            node.log.engine.writer.pending_bytes,
        )

    # The promises.

    def check(self) -> Model:
        """Every promise, looked up in the log, the stores and the devices."""
        model = self.model()
        self._check_keys(model)
        self._check_accepted(model)
        self._check_inboxes(model)
        self._check_history(model)
        for device in self._world.devices:
            self._check_device(device, model)
        self._check_relay()
        self.check_stores(model)
        check_rights(self._world)
        check_own_writes(self._world)
        return model

    def check_stores(self, model: Model) -> None:
        """The stores hold what follows from the log; so do stores made anew from it."""
        node = self._world.node
        if count := node.messaging.carrier.counters.undecodable:
            raise Violation(f"{count} records made no sense to the carrier")
        expected = describe_model(model)
        if found := difference(describe_stores(node.stores, model), expected):
            raise Violation(f"the stores differ from the log, {found}")
        replayed = MemoryStores()
        rebuild(node.log, replayed)
        if found := difference(describe_stores(replayed, model), expected):
            raise Violation(f"a replay of the log differs from it, {found}")

    def _check_keys(self, model: Model) -> None:
        if model.doubled_keys:
            raise Violation(f"I2: {model.doubled_keys[0]!r} is in the log twice")
        said = Counter(
            (message.record.actor, chat.sendId)
            for message_id, message in model.messages.items()
            if (chat := MsgChat.FromString(message.record.chat)).sendId and not message.record.HasField("push")
            if message_id not in model.forgotten
        )
        for (user, send_id), count in said.items():
            if count > 1:
                raise Violation(f"I2: {send_id!r} of {user} was said {count} times")

    def _check_accepted(self, model: Model) -> None:
        """What a client was told is in the log, as it was told."""
        for asked in self._world.clients.asked:
            if asked.outcome != "ok" or asked.action not in ("send", "gsend", "push", "system"):
                continue
            for message_id in asked.message_ids:
                message = model.messages.get(message_id)
                if message is None:
                    raise Violation(f"I1: {asked.action} {asked.params} was accepted as {message_id}, and is lost")
                chat = MsgChat.FromString(message.record.chat)
                text = chat.data.decode()
                bodies = asked.params.get("msg_bodies", [asked.params.get("text")])
                assert isinstance(bodies, list)
                if text not in bodies or chat.sendId != asked.send_id:
                    raise Violation(f"{asked.action} {asked.params} was accepted as {message_id}, which says {text!r}")

    def _check_inboxes(self, model: Model) -> None:
        """I1: whatever has left an inbox has left it for a reason; whatever waits can be read."""
        world = self._world
        for user, inboxes in model.inboxes.items():
            for platform, inbox in inboxes.items():
                devices = [
                    device
                    for device in world.devices
                    if world.numbers.get(device.user_name) == user and device.plan.platform == platform
                ]
                for gone in inbox.gone.values():
                    if reason := self._unjustified(gone, devices):
                        raise Violation(f"I1: {user}/{platform} lost entry {gone.entry}: {reason}")
                for entry in inbox.entries.values():
                    if entry.message_id not in model.bodies:
                        raise Violation(f"I1: {entry} waits in {user}/{platform}, and its body is gone")

    def _check_history(self, model: Model) -> None:
        """History ends where the settings say, and nowhere else."""
        world = self._world
        history_ms = world.weather.settings.messaging.history_ms
        for at, through in model.trims:
            if snowflake_time_ms(through) > at - history_ms:
                raise Violation(f"history ended at {at} with {through}, and is to be kept for {history_ms} ms")
        if not history_ms:
            return
        # A clock that was set back, or a node that was down, makes it later; by now someone has looked.
        late = first_id_of(world.clock.now_ms() - history_ms - LATE_MS)
        for rows in (*model.private.values(), *(group.rows for group in model.groups.values())):
            if rows and min(rows) < late:
                raise Violation(f"{min(rows)} is older than {history_ms} ms, and still in history")

    def _unjustified(self, gone: Gone, devices: list[Device]) -> str:
        entry, settings = gone.entry, self._world.weather.settings.inbox
        if gone.why == "expired":
            waited = gone.at - entry.at
            return "" if waited >= settings.expire_ms else f"it expired after {waited} ms"
        if gone.why == "dead":
            return "" if not entry.options & NEED_OFFLINE else "it is dead, and was to be kept"
        if gone.why == "evicted":
            return "" if max(self._world.weather.offline_max) >= 0 else "it was evicted, and all were to be kept"
        if any(entry.message_id in device.held for device in devices):
            return ""
        if any(entry.session in device.session_ids for device in devices):
            return ""  # sent from there: shown when it was sent
        if entry.session in self._world.sessions_seen:
            user_devices = self._world.sessions_seen[entry.session]
            if any(device.name == user_devices for device in devices):
                return ""
        return "it was acked, and no device holds it" if entry.options & NEED_ACK else ""

    def _check_device(self, device: Device, model: Model) -> None:
        """I3, and nobody is shown what is not for them."""
        for send_id, other, message_id in device.shown_twice:
            if other not in model.forgotten:
                raise Violation(f"I2: {device.name} is shown {send_id!r} twice, as {other} and {message_id}")
        user = self._world.numbers.get(device.user_name, 0)
        inbox = model.inboxes.get(user, {}).get(device.plan.platform)
        before: dict[int, int] = dict(device.began)
        for session_id, useq, message_id in device.taken:
            message = model.messages.get(message_id)
            if message is None:
                raise Violation(f"{device.name} was shown {message_id}, which is not in the log")
            if user not in message.users:
                raise Violation(f"{device.name} of {user} was shown {message_id}, which is for {message.users}")
            if inbox is None:
                raise Violation(f"{device.name} was shown {message_id}, and has no inbox")
            entry = inbox.entries.get(useq) or (inbox.gone[useq].entry if useq in inbox.gone else None)
            if entry is None or entry.message_id != message_id:
                raise Violation(f"I3: {device.name} took {message_id} as {useq}, where {entry} is")
            last = before[session_id]
            for skipped in range(last + 1, useq):
                waits = inbox.entries.get(skipped)
                if waits is not None and (waits.session in device.session_ids or not waits.options & NEED_ACK):
                    continue
                if reason := self._skipped(device, inbox.gone.get(skipped)):
                    raise Violation(f"I3: {device.name} was given {useq} after {last}; {skipped} {reason}")
            before[session_id] = useq
        said = [each for each in device.held.values() if each.msgId]
        for conversation in {(each.chatType, each.toId, each.fromId) for each in said}:
            ids = [e.msgId for e in said if (e.chatType, e.toId, e.fromId) == conversation]
            if ids != sorted(ids):
                raise Violation(f"I3: {device.name} was shown {conversation} as {ids}")

    def _skipped(self, device: Device, gone: Gone | None) -> str:
        """Why an entry may be left out: it has left the inbox, this device sent it, or it asked for no ack."""
        if gone is None:
            return "still waits"
        entry = gone.entry
        if gone.why != "acked" or entry.message_id in device.held or not entry.options & NEED_ACK:
            return ""
        rivals = [each for each in self._world.devices if each is not device and each.plan.user == device.plan.user]
        holders = [each for each in [device, *rivals] if each.plan.platform == device.plan.platform]
        return self._unjustified(gone, holders)

    def _check_relay(self) -> None:
        """I6: one delivery per inbox, for its newest session."""
        world = self._world
        relay = world.node.messaging.relay
        numbers: dict[tuple[int, str], int] = {}
        for user, inboxes in relay._users.items():
            for inbox in inboxes:
                key = (user, inbox.platform)
                if key in numbers:
                    raise Violation(f"I6: {key} has two deliveries")
                if not inbox.sessions:
                    raise Violation(f"I6: {key} has a delivery and no session")
                ordered = [live.session.number for live in inbox.sessions]
                if ordered != sorted(ordered, reverse=True):
                    raise Violation(f"I6: the sessions of {key} are ordered {ordered}")
                numbers[key] = ordered[0]
                session = inbox.delivery.session
                if session is not None and session.number != ordered[0]:
                    raise Violation(f"I6: {key} is delivered to {session}, where {inbox.sessions[0].session} is newest")
                if session is None:
                    raise Violation(f"I6: {key} has sessions, and is delivered to none of them")
