"""Errors of a cluster, put back one at a time: those of the specification, and those that a change may bring."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pixiu.backends.embedded.layout import INBOXES
from pixiu.links.bigrooms import BigRooms
from pixiu.machines.bigrooms import JOINING, BigRoom, SliceAcks
from pixiu.machines.dedup import Seen
from pixiu.machines.lifecycle import Command, Lifecycle, Phase, SetRunning
from pixiu.machines.listeners import Listeners
from pixiu.machines.queue_wire.follow import FileClosed, SnapshotEnded
from pixiu.machines.replication import Control, ControlSeen
from pixiu.machines.room_relay import RoomRelay
from pixiu.machines.routes import RouteRow, RouteTable
from pixiu.machines.split import Counts
from pixiu.model.errors import PixiuError
from pixiu.node.host import MessagingHost
from pixiu.node.messaging import Messaging
from pixiu.node.shard import Shard
from pixiu.ports.registry import Write
from pixiu.queue.background import Background
from pixiu.queue.log import EngineLog
from pixiu.queue.replication.control import RegistryControl, _row
from pixiu.queue.storage.snapshot import SnapshotFetch
from pixiu.roles.proxy.rooms import RoomProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pixiu.machines.room_link import Ack, Frame
    from pixiu.node.gateways.hub import GatewayHub

    Mutate = Callable[[], AbstractContextManager[object]]

__all__ = ["MUTANTS", "MUTANTS_OF_SHARDS", "mutated"]


def _by_id_alone() -> AbstractContextManager[object]:
    has, mark = Seen.has, Seen.mark
    return patch.multiple(
        Seen,
        has=lambda self, message_id, key, now_ms: has(self, message_id, 0, now_ms),
        mark=lambda self, message_id, key, now_ms: mark(self, message_id, 0, now_ms),
    )


def _register_and_hope() -> AbstractContextManager[object]:
    def registered(self: Lifecycle[object], replica: int) -> list[Command[object]]:
        self.replica, self.phase = replica, Phase.RUNNING
        return [SetRunning()]

    return patch.object(Lifecycle, "registered", registered)


def _drop_what_is_smaller() -> AbstractContextManager[object]:
    apply, largest = RouteTable.apply, {}  # type: ignore[var-annotated]

    def literal(self: RouteTable, row: RouteRow) -> list[RouteRow]:
        key = (id(self), row.gateway)
        if row.version < largest.get(key, 0):
            return []
        largest[key] = row.version
        return apply(self, row)

    return patch.object(RouteTable, "apply", literal)


def _routers_as_written() -> AbstractContextManager[object]:
    return patch(
        "pixiu.roles.broker.cluster.router_partitions",
        lambda broker, brokers, routers: [each for each in range(routers) if each % brokers == broker % brokers],
    )


def _exact_partition() -> AbstractContextManager[object]:
    return patch("pixiu.roles.broker.cluster.owns", lambda partition, key, count: key % count == partition)


def _clean_at_once() -> AbstractContextManager[object]:
    return patch.multiple(
        Counts, kept_count=property(lambda self: self.count), cleans=lambda self, _now_ms: self._flipped_ms is not None
    )


def _leave_by_user() -> AbstractContextManager[object]:
    apply = RouteTable.apply

    def literal(self: RouteTable, row: RouteRow) -> list[RouteRow]:
        before = self._rooms.get(row.room, {}).get(row.session_id)
        changed = apply(self, row)
        if before is not None and not row.is_in:
            for each in [each for each in self.of(row.room) if each.user == before.user]:
                self._remove(each)
                changed.append(each._replace(is_in=False))
        return changed

    return patch.object(RouteTable, "apply", literal)


def _shown_again() -> AbstractContextManager[object]:
    return patch.object(Listeners, "_once", lambda _self, fan, _now_ms: fan)


def _split_at_once() -> AbstractContextManager[object]:
    def changed(self: RoomProxy) -> None:
        assert self._bigs is not None
        self._split = dict(self._bigs.map.rooms)
        self._changed()

    stack = ExitStack()
    stack.enter_context(patch.object(RoomProxy, "_bigs_changed", changed))
    stack.enter_context(patch.object(BigRooms, "has_whole", lambda _self, _room: False))
    return stack


def _left_at_once() -> AbstractContextManager[object]:
    return patch.object(BigRoom, "has_whole", lambda self, _now_ms: self.phase == JOINING)


def _settled_by_any() -> AbstractContextManager[object]:
    return patch.object(
        SliceAcks, "settled",
        lambda self, publisher, message_id, _room: bool(self._left.pop((publisher, message_id), 0)),
    )  # fmt: skip


def _acked_on_receipt() -> AbstractContextManager[object]:
    receive = RoomRelay.receive

    def literal(self: RoomRelay, name: str, frame: Frame, now_ms: int) -> Ack | None:
        ack = receive(self, name, frame, now_ms)
        return None if ack is None else self._sources[name].incoming.ack

    return patch.object(RoomRelay, "receive", literal)


def _swap_without_compare() -> AbstractContextManager[object]:
    def change(self: RegistryControl, expected_version: int, control: Control, asked_ms: int) -> None:
        def done(version: int | PixiuError) -> None:
            if not isinstance(version, PixiuError):
                self._tell(ControlSeen(version + 1, control, self._live, asked_ms, is_granted=True))

        self._registry.write(Write(f"{self._folder}/ctl", _row(control)), done)

    return patch.object(RegistryControl, "change", change)


def _serve_unapplied() -> AbstractContextManager[object]:
    async def at_once(_self: MessagingHost) -> None:
        return

    return patch.object(MessagingHost, "_fence", at_once)


def _stale_leader() -> AbstractContextManager[object]:
    def hub(self: Shard) -> GatewayHub | None:
        return self.surface.hub if self.surface is not None and self.surface.is_open else None

    return patch.object(Shard, "_hub", hub)


def _pushes_on() -> AbstractContextManager[object]:
    def ended(self: Shard, _reason: str) -> None:
        self._leads.clear()
        if self.host is not None and self.host.messaging.carrier.tasks is not None:
            self.host.messaging.carrier.tasks.stop()  # pushes alone

    stack = ExitStack()
    stack.enter_context(patch.object(Shard, "_leading_ended", ended))
    stack.enter_context(patch.object(Messaging, "_is_serving", lambda self: self._has_started))
    return stack


def _tasks_again() -> AbstractContextManager[object]:
    return patch.object(EngineLog, "position", lambda _self, _topic, _name: 0)


def _delays_asleep() -> AbstractContextManager[object]:
    return patch.object(Background, "leads", lambda _self: None)


def _snapshot_without_inboxes() -> AbstractContextManager[object]:
    dump = MessagingHost._dump

    def partly(self: MessagingHost) -> Iterator[tuple[bytes, bytes]]:
        return (pair for pair in dump(self) if not pair[0].startswith(INBOXES))

    return patch.object(MessagingHost, "_dump", partly)


def _snapshot_torn() -> AbstractContextManager[object]:
    take = SnapshotFetch._take

    def soon(self: SnapshotFetch, event: object) -> None:
        take(self, event)
        if isinstance(event, FileClosed) and not self._is_over:
            take(self, SnapshotEnded(b""))

    return patch.object(SnapshotFetch, "_take", soon)


def _snapshot_without_stores() -> AbstractContextManager[object]:
    return patch("pixiu.queue.replication.driver.SnapshotFetch", partial(_fetch_without_stores, SnapshotFetch))


def _fetch_without_stores(fetch: type[SnapshotFetch], *arguments: Any, with_stores: bool) -> SnapshotFetch:
    del with_stores
    return fetch(*arguments, with_stores=False)


MUTANTS: dict[str, tuple[str, Mutate]] = {
    "by-id-alone": ("E6: a repeat is recognized by its id alone, whichever session it is for", _by_id_alone),
    "register-and-hope": ("E8: a broker runs as soon as it is registered", _register_and_hope),
    "drop-what-is-smaller": (
        "E11: a route with a smaller number of its gateway counts as stale",
        _drop_what_is_smaller,
    ),
    "routers-as-written": ("E17: brokers find routers modulo their own count", _routers_as_written),
    "exact-partition": ("E18: a new partition keeps only what has its number", _exact_partition),
    "clean-at-once": ("E19: rooms that have moved are dropped at the cutover", _clean_at_once),
    "leave-by-user": ("E43: a user who leaves at one gateway leaves at all gateways", _leave_by_user),
    "shown-again": ("messages of a room that becomes big are shown twice, through both kinds of routes", _shown_again),
    "split-at-once": ("proxies send to slices alone, before any gateway has joined them", _split_at_once),
    "left-at-once": ("gateways report slices only, as soon as a room is split", _left_at_once),
    "settled-by-any": ("an ack of one slice counts for all slices of a big room", _settled_by_any),
    "swap-without-compare": ("the control record is written whatever its version (E27)", _swap_without_compare),
    "serve-unapplied": ("a replica serves before its fence record is applied (E28)", _serve_unapplied),
    "stale-leader": ("a replica that does not hold the lease accepts gateways", _stale_leader),
    "pushes-on": ("a former leader goes on pushing to its sessions", _pushes_on),
    "tasks-again": ("a new leader ignores how far the former one has finished tasks", _tasks_again),
    "delays-asleep": ("a replica that leads again does not look for scheduled messages", _delays_asleep),
    "snapshot-without-inboxes": ("a snapshot leaves the inboxes out", _snapshot_without_inboxes),
    "snapshot-torn": ("a snapshot counts as soon as a part of it is there", _snapshot_torn),
    "snapshot-without-stores": ("a snapshot has the journal and no messaging stores", _snapshot_without_stores),
    "acked-on-receipt": ("a relay acks messages that gateways do not have yet", _acked_on_receipt),
}


MUTANTS_OF_SHARDS = frozenset({
    "swap-without-compare", "serve-unapplied", "stale-leader", "pushes-on", "tasks-again", "delays-asleep",
    "snapshot-without-inboxes",
    "snapshot-torn", "snapshot-without-stores",
})  # fmt: skip
"""Those that are caught without rooms."""


def mutated(name: str) -> AbstractContextManager[object]:
    """Put an error into the world; with an empty name, none."""
    return MUTANTS[name][1]() if name else nullcontext()
