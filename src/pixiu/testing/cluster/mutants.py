"""Errors of a cluster, put back one at a time: those of the article, and those that a change could bring."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING
from unittest.mock import patch

from pixiu.backends.embedded.layout import INBOXES
from pixiu.links.bigrooms import BigRooms
from pixiu.machines.bigrooms import JOINING, BigRoom, SliceAcks
from pixiu.machines.dedup import Seen
from pixiu.machines.lifecycle import Command, Lifecycle, Phase, SetRunning
from pixiu.machines.listeners import Listeners
from pixiu.machines.replication import Control, ControlSeen
from pixiu.machines.room_relay import RoomRelay
from pixiu.machines.routes import RouteRow, RouteTable
from pixiu.machines.serving import Serving, ServingState
from pixiu.machines.snapshots import Pairs
from pixiu.machines.split import Counts, Flip
from pixiu.model.errors import PixiuError
from pixiu.model.partitions import Share
from pixiu.node.processes.carrier.host import CarrierHost
from pixiu.node.processes.carrier.snapshots import Giving, _Take
from pixiu.node.processes.carrier.stores import seal
from pixiu.ports.registry import Write
from pixiu.queue.replication.control import RegistryControl, _row
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.proxy.rooms import RoomProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from pixiu.machines.room_link import Ack, Frame
    from pixiu.machines.snapshots import Ask, Head, Said

    Mutate = Callable[[], AbstractContextManager[object]]

__all__ = ["MUTANTS", "MUTANTS_OF_CARRIERS", "mutated"]


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


def _lease_for_ever() -> AbstractContextManager[object]:
    return patch.object(Serving, "is_serving", lambda self, _now_ms: self.state is ServingState.SERVING)


def _swap_without_compare() -> AbstractContextManager[object]:
    def change(self: RegistryControl, expected_version: int, control: Control, asked_ms: int) -> None:
        def done(version: int | PixiuError) -> None:
            if not isinstance(version, PixiuError):
                self._tell(ControlSeen(version + 1, control, self._live, asked_ms, is_granted=True))

        self._registry.write(Write(f"{self._folder}/ctl", _row(control)), done)

    return patch.object(RegistryControl, "change", change)


def _serve_unapplied() -> AbstractContextManager[object]:
    async def at_once(_self: CarrierHost) -> None:
        return

    return patch.object(CarrierHost, "applied", at_once)


def _flip_before_running() -> AbstractContextManager[object]:
    return patch(
        "pixiu.node.processes.carrier.doubling.check_flip",
        lambda count, version, *_rest, **_named: Flip(2 * count, version),
    )


def _kept_by_the_old() -> AbstractContextManager[object]:
    return patch.object(CarrierHost, "_let_go", lambda _self, _users: None)


def _cleaned_unwritten() -> AbstractContextManager[object]:
    commit = Carrier.commit

    def without_more(self: Carrier, *, has_more: bool = False) -> bool:
        return commit(self) or has_more

    return patch.object(Carrier, "commit", without_more)


def _first_flip_counts() -> AbstractContextManager[object]:
    def by_its_count(users: Iterable[int], share: Share, count: int, *, is_wide: bool = False) -> list[int]:
        return [user for user in users if (is_wide or share(user)) and not Share(share.partition, count)(user)]

    return patch("pixiu.node.processes.carrier.host.moved_away", by_its_count)


def _snapshot_without_inboxes() -> AbstractContextManager[object]:
    begin = Giving._begin

    def partly(self: Giving, ask: Ask) -> tuple[Head, Iterator[tuple[bytes, bytes]]]:
        head, pairs = begin(self, ask)
        return head, (pair for pair in pairs if not pair[0].startswith(INBOXES))

    return patch.object(Giving, "_begin", partly)


def _snapshot_torn() -> AbstractContextManager[object]:
    take = _Take._take

    def soon(self: _Take, said: Said) -> None:
        take(self, said)
        if isinstance(said, Pairs) and not self.is_complete and self._store is not None:
            self._write()
            seal(self._store, None)
            self.is_complete = True

    return patch.object(_Take, "_take", soon)


MUTANTS: dict[str, tuple[str, Mutate]] = {
    "by-id-alone": ("E6: a repeat is known by its id alone, whomever it is for", _by_id_alone),
    "register-and-hope": ("E8: registered is noticed, so a broker runs at once", _register_and_hope),
    "drop-what-is-smaller": ("E11: a smaller number of a gateway is stale", _drop_what_is_smaller),
    "routers-as-written": ("E17: brokers find routers modulo their own count", _routers_as_written),
    "exact-partition": ("E18: a new partition keeps what has its number", _exact_partition),
    "clean-at-once": ("E19: what has moved is dropped on the flip", _clean_at_once),
    "leave-by-user": ("E43: who leaves at one gateway is out at all", _leave_by_user),
    "shown-again": ("a room that becomes big is heard both ways", _shown_again),
    "split-at-once": ("proxies send to slices alone, which nobody has joined yet", _split_at_once),
    "left-at-once": ("gateways tell of slices only as soon as a room is split", _left_at_once),
    "settled-by-any": ("one slice speaks for all of a big room", _settled_by_any),
    "lease-for-ever": ("a carrier that stood still goes on serving until it hears otherwise (E27)", _lease_for_ever),
    "swap-without-compare": ("the lease of carriers is written whatever its version (E27)", _swap_without_compare),
    "serve-unapplied": ("a carrier serves before it has applied what was accepted (E28)", _serve_unapplied),
    "flip-before-running": ("carriers flip before the new half has caught up (E33)", _flip_before_running),
    "kept-by-the-old": ("an old carrier keeps what has moved", _kept_by_the_old),
    "cleaned-unwritten": ("what has moved is forgotten in memory, and noted as gone on the disk", _cleaned_unwritten),
    "first-flip-counts": ("who is born by a second doubling goes by the count of the first one", _first_flip_counts),
    "snapshot-without-inboxes": ("a snapshot leaves the inboxes out", _snapshot_without_inboxes),
    "snapshot-torn": ("a snapshot counts as soon as a part of it is there", _snapshot_torn),
    "acked-on-receipt": ("a relay confirms what gateways do not have yet", _acked_on_receipt),
}


MUTANTS_OF_CARRIERS = frozenset({
    "lease-for-ever", "swap-without-compare", "serve-unapplied", "flip-before-running", "kept-by-the-old",
    "cleaned-unwritten", "first-flip-counts", "snapshot-without-inboxes", "snapshot-torn",
})  # fmt: skip
"""Those that need no rooms to be caught."""


def mutated(name: str) -> AbstractContextManager[object]:
    """The world with this error in it; without a name, as it is."""
    return MUTANTS[name][1]() if name else nullcontext()
