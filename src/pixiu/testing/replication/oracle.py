"""What must hold in every world of a replicated journal, checked as it happens and once more at the end.

Scenarios do not say what is correct; this does. It sees everything, also the disks of nodes that are down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import Acknowledge, Control, State

if TYPE_CHECKING:
    from pixiu.testing.replication.journals import Record
    from pixiu.testing.replication.process import SimulatedProcess
    from pixiu.testing.replication.world import World

__all__ = ["Oracle", "Violation"]


class Violation(Exception):
    """An invariant does not hold; the message names it first."""


class Oracle:
    """Remembers what was promised, and to whom."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_strict = world.environment.settings.acknowledge is Acknowledge.IN_SYNC
        self.committed: dict[int, Record] = {}  # by first event_id: what some node has shown
        self._committed_through = 0
        self.acked: dict[str, Record] = {}
        self._ackers: dict[int, str] = {}
        self.leaders: dict[int, str] = {}
        self._shown: dict[str, tuple[int, int]] = {}  # node: incarnation, through
        self._control: Control | None = None
        self.control_changes = 0  # without renewals

    # --- As it happens -------------------------------------------------------------------------------------

    def shown(self, node: SimulatedProcess, through: int) -> None:
        """A node shows its readers everything through this event_id."""
        incarnation, before = self._shown.get(node.name, (0, 0))
        if incarnation != node.incarnation:
            before = 0  # a restart forgets how far it was; it may show again, but nothing else
        if through <= before:
            raise Violation(f"reads go back: {node.name} shows {through} after {before}")
        if through > node.log.durable_event_id:
            raise Violation(f"shown before durable: {node.name} shows {through} of {node.log.durable_event_id}")
        self._shown[node.name] = (node.incarnation, through)
        if not self._is_strict:
            return
        self._note_committed(node, before, through)

    def _note_committed(self, node: SimulatedProcess, after: int, through: int) -> None:
        for record in node.log.after(after, limit=1 << 30, through=through):
            known = self.committed.get(record.first_event_id)
            if known is None:
                if record.first_event_id != self._committed_through + 1:
                    raise Violation(f"a committed record is missing or doubled before {record} on {node.name}")
                self.committed[record.first_event_id] = record
                self._committed_through = record.through
            elif known != record:
                raise Violation(f"two records committed at one event_id: {known} and, on {node.name}, {record}")

    def leads(self, node: SimulatedProcess, epoch: int) -> None:
        """A node leads this epoch from now on."""
        leader = self.leaders.setdefault(epoch, node.name)
        if leader != node.name and not self._world.is_manual:
            raise Violation(f"epoch {epoch} is led by {leader} and {node.name}")

    def answered(self, node: SimulatedProcess, record: Record | None, event_id: int) -> None:
        """The answer has come to the writer, perhaps long after it was given."""
        if self._is_strict and (record is None or record.content not in self.acked):
            raise Violation(f"{node.name} answers for event {event_id}, which was not acknowledged: {record}")

    def acknowledged(self, node: SimulatedProcess, record: Record) -> None:
        """A writer is told that its record is safe."""
        self.acked[record.content] = record
        acker = self._ackers.setdefault(record.epoch, node.name)
        if acker != node.name:
            raise Violation(f"two leaders acknowledge in epoch {record.epoch}: {acker} and {node.name}")
        world = self._world
        if not world.is_manual:
            control = world.registry.control
            if control is None or control.epoch != record.epoch:
                raise Violation(f"{node.name} acknowledges in epoch {record.epoch}, the registry has {control}")
            if self._is_strict:
                self._require_on_all(control, record)

    def _require_on_all(self, control: Control, record: Record) -> None:
        """On every member, and on min_isr nodes: a set that shrank a moment ago may be smaller than that."""
        holders = {node.name for node in self._world.nodes.values() if _holds(node, record)}
        if len(holders) < self._world.environment.settings.min_isr:
            raise Violation(f"acknowledged below min_isr: {record} is only on {sorted(holders)}")
        if not control.in_sync <= holders:
            raise Violation(f"acknowledged but not on in-sync {sorted(control.in_sync - holders)}: {record}")

    def control_changed(self, control: Control) -> None:
        """The registry has a new record."""
        before, self._control = self._control, control
        self.control_changes += control != before
        if control.leader and control.leader not in control.in_sync:
            raise Violation(f"the leader is not in sync: {control}")
        if before is None:
            return
        has_other = control.leader not in ("", before.leader)
        if control.epoch < before.epoch or (control.epoch == before.epoch and has_other):
            raise Violation(f"an epoch was opened twice: {control} after {before}")
        for node in self._world.nodes.values():
            if control.epoch > before.epoch and node.is_up and node.replica.acknowledges(node.local_ms):
                raise Violation(f"{node.name} still acknowledges in epoch {node.replica.epoch}: {control}")
        if self._is_strict:
            for name in sorted(control.in_sync):
                log = self._world.nodes[name].log
                if log.durable_event_id < self._committed_through:
                    raise Violation(
                        f"{name} is made in-sync with {log.durable_event_id} of {self._committed_through} committed"
                    )

    def replaced(self, node: SimulatedProcess) -> None:
        """A snapshot took the place of a node's journal."""
        incarnation, before = self._shown.get(node.name, (0, 0))
        if incarnation != node.incarnation:
            before = 0
        tail = node.log.tail_event_id
        if self._is_strict:
            if tail < before:
                raise Violation(f"reads go back: {node.name} had shown {before}, its snapshot ends at {tail}")
            if tail > self._committed_through:
                raise Violation(f"shown before committed: {node.name} has a snapshot through {tail}")
            self._note_committed(node, before, tail)
        self._shown[node.name] = (node.incarnation, node.engine.commit_event_id)

    # --- At the end ----------------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """Why the healed world is not at rest yet, or the empty string."""
        nodes = list(self._world.nodes.values())
        if not all(node.is_up for node in nodes):
            return "a node is down"
        leaders = [node for node in nodes if node.replica.state is State.LEADING]
        if len(leaders) != 1:
            return f"{len(leaders)} leaders: {self._states()}"
        leader = leaders[0]
        leadership = leader.replica.leadership
        assert leadership is not None
        if leadership.control.in_sync != frozenset(self._world.nodes):
            return f"in sync are only {sorted(leadership.control.in_sync)}: {self._states()}"
        for node in nodes:
            if node is not leader and node.replica.state is not State.IN_SYNC:
                return f"{node.name} is {node.replica.state.value}"
            if node.replica.commit_event_id != leader.log.tail_event_id or node.log.has_unflushed:
                return f"{node.name} shows {node.replica.commit_event_id} of {leader.log.tail_event_id}"
        return ""

    def _states(self) -> str:
        return ", ".join(f"{n.name} {n.replica.state.value} {n.alarms[-1:]}" for n in self._world.nodes.values())

    def final(self) -> None:
        """Every promise, looked up in the journals."""
        nodes = list(self._world.nodes.values())
        leader = next(node for node in nodes if node.replica.state is State.LEADING)
        records = leader.log.records
        for node in nodes:
            if node.log.records != records:
                raise Violation(f"the journals of {leader.name} and {node.name} differ: {_difference(leader, node)}")
            if node.log.epochs() != leader.log.epochs():
                raise Violation(f"the epochs of {leader.name} and {node.name} differ")
        through, epoch = 0, 0
        for record in records:
            if record.first_event_id != through + 1 or record.epoch < epoch:
                raise Violation(f"the journal is not dense, or epochs go back, at {record}")
            through, epoch = record.through, record.epoch
        by_content = {record.content: record for record in records}
        if len(by_content) != len(records):
            raise Violation("a record is in the journal twice")
        for record in self.committed.values():
            if by_content.get(record.content) != record:
                raise Violation(f"lost after it was shown: {record}")
        for record in self.acked.values():
            if by_content.get(record.content) != record and not self._may_be_lost(record, records):
                raise Violation(f"lost after it was acknowledged: {record}")

    def _may_be_lost(self, record: Record, records: list[Record]) -> bool:
        """Local acknowledgement promises nothing once another node has taken over."""
        if self._is_strict:
            return False
        following = next((other for other in records if other.epoch > record.epoch), None)
        return following is not None and self.leaders.get(following.epoch) != self._ackers[record.epoch]


def _difference(left: SimulatedProcess, right: SimulatedProcess) -> str:
    for index, (ours, theirs) in enumerate(zip(left.log.records, right.log.records, strict=False)):
        if ours != theirs:
            return f"at {index}: {ours} / {theirs}"
    return f"{len(left.log.records)} / {len(right.log.records)} records"


def _holds(node: SimulatedProcess, record: Record) -> bool:
    log = node.log
    return log.after(record.first_event_id - 1, limit=1, through=log.durable_event_id) == (record,)
