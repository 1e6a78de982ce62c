"""One simulated node: the driver that the real queue has, over a simulated disk, network and registry.

It is written as the real driver is: the machine decides, this only performs. So the mistakes a driver can make
are here as switches too (``Faults``), and each must be caught.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.machines import replication as r
from pixiu.testing.replication.messages import (
    CutThere,
    DurableReport,
    End,
    FollowRequest,
    Frames,
    HangUp,
    Heartbeat,
    SnapshotReply,
    SnapshotRequest,
    TooFar,
)
from pixiu.testing.simulated_log import Record, SimulatedLog, Snapshot
from pixiu.testing.simulated_registry import RegistryAnswer, RegistryRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.replication.world import World

__all__ = ["Faults", "SimulatedNode"]

FRAMES_PER_MESSAGE = 6
FENCE_SESSION = 1 << 23
"""Session numbers of fencing attempts start here."""


@dataclass(frozen=True, slots=True)
class Faults:
    """A driver's literal errors, each off unless a mutant switches it on."""

    durable_before_flush: bool = False
    lookup_by_record_start: bool = False  # QE1
    append_error_advances: bool = False  # QE2
    snapshot_without_epochs: bool = False
    snapshot_beyond_commit: bool = False
    clock_stops_in_suspend: bool = False


class SimulatedNode:
    """A process that can crash, freeze and be slow, with a disk that outlives it."""

    def __init__(self, world: World, index: int, name: str) -> None:
        self.world = world
        self.index = index
        self.name = name
        self.log = SimulatedLog()
        self.kept_control: r.Control | None = None  # manual: this node's own control record, on disk
        self.kept_version = 0
        self.kept_leader = ""  # registry: whom this node followed last, on disk
        self.kept_epoch = 0  # registry: the highest of the control record, on disk
        self.kept_claim = -1  # registry: the version of a claim that may be undecided, on disk
        self.incarnation = 0
        self.is_up = False
        self.is_frozen = False
        self.slow_ms = 0.0
        self.flush_factor = 1.0
        self.follow_count = 0
        self.clock_rate = 1.0
        self.clock_offset_ms = 0.0
        self.replica: r.Replica
        self.alarms: list[str] = []
        self.refusal = ""  # the last answer to a promotion
        self._mailbox: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()

    # --- Life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process on whatever the disk holds."""
        self.incarnation += 1
        self.is_up = True
        self.is_frozen = False
        self._mailbox.clear()
        self.refusal = ""
        self._registry_session = 0
        self._cursors: dict[int, int] = {}  # leader: how far each follower has been sent
        self._peers: dict[int, str] = {}
        self._waiting: list[tuple[int, Record]] = []  # writes not yet answered
        self._held: tuple[Record, ...] = ()
        self._due_ms: dict[int, float] = {}
        self._opening: tuple[int, int, int] | None = None
        self._cut: int | None = None
        self._fetching: int | None = None
        self._is_installing = False
        self._is_flushing = False
        self._is_cutting = False
        self._is_stopping = False
        self.replica = self.world.make_replica(self.name, self.log.state())
        self.world.note(self.name, "start", self.log.tail_event_id, self.log.tail_epoch)
        follow = self.world.leader_to_follow(self.name)
        self.feed(r.Started(follow, self.kept_leader, self.kept_epoch, self.kept_claim))
        self._plan_tick()

    def crash(self) -> None:
        """Lose the process, its memory and what the disk had not flushed."""
        self.is_up = False
        self.log.crash(self.world.rng, tear=self.world.weather.tear)
        self.world.note(self.name, "crash", self.log.tail_event_id)
        for session, peer in list(self._peers.items()):
            if self.world.rng.random() < 0.5:  # the other end may learn of it, or not
                self._send(peer, session, End() if session in self._cursors else HangUp())

    def freeze(self) -> None:
        """Stop running without dying: messages pile up."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Run on, as if nothing had happened."""
        self.is_frozen = False
        while self._mailbox and self.is_up and not self.is_frozen:
            action, arguments = self._mailbox.popleft()
            action(*arguments)

    def wake(self, slept_ms: float) -> None:
        """The machine was suspended for so long."""
        if self.world.faults.clock_stops_in_suspend and self.is_frozen:
            self.clock_offset_ms -= slept_ms * self.clock_rate
        self.thaw()

    def leave(self) -> None:
        """End in order."""
        if not self.is_frozen:
            self.feed(r.LeaveAsked())

    def reset_streams(self) -> None:
        """The connections that this node made are reset; the other end learns it later, or never."""
        for wire in list(self._peers):
            own = self._own(wire)
            if own is not None:
                self.post(self.feed, r.StreamEnded(own))

    def post(self, action: Callable[..., None], *arguments: object) -> None:
        """Something happened for this process as it is now: do it, or keep it while frozen."""
        if self.is_frozen:
            self._mailbox.append((action, arguments))
        else:
            action(*arguments)

    def _later(self, delay_ms: float, action: Callable[..., None], *arguments: object) -> None:
        self.world.simulation.after(delay_ms, self._if_same, self.incarnation, action, arguments)

    def _if_same(self, incarnation: int, action: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if self.is_up and self.incarnation == incarnation:
            self.post(action, *arguments)

    def _plan_tick(self) -> None:
        self.world.simulation.after(self.world.weather.tick_ms, self._tick, self.incarnation)

    def _tick(self, incarnation: int) -> None:
        if self.is_up and self.incarnation == incarnation:
            if not self.is_frozen:
                self.feed(r.Ticked())
            self._plan_tick()

    @property
    def local_ms(self) -> int:
        """This node's own clock."""
        return int(self.world.simulation.now_ms * self.clock_rate + self.clock_offset_ms)

    def set_clock_rate(self, rate: float) -> None:
        """Run faster or slower from now on."""
        self.clock_offset_ms += self.world.simulation.now_ms * (self.clock_rate - rate)
        self.clock_rate = rate

    def feed(self, event: r.Event) -> None:
        """One step of the machine, and all that follows from it."""
        if not self.is_up:
            return
        before = self.replica.state
        commands = self.replica.receive(self.local_ms, event)
        if commands or self.replica.state is not before:
            self.world.note(self.name, type(event).__name__, self.replica.state.value, self.replica.commit_event_id)
        for command in commands:
            self._perform(command)

    # --- Clients -------------------------------------------------------------------------------------------

    def submit(self, content: str, event_ids: int) -> bool:
        """A client appends. Return whether it was taken (not: acknowledged)."""
        if not self.is_up or self.is_frozen or not self.replica.accepts_writes or self._is_stopping:
            return False
        first = self.log.tail_event_id + 1
        record = Record(first, first + event_ids - 1, self.replica.epoch, content)
        self.log.append(record)
        self._waiting.append((record.through, record))
        self._flush()
        if self.world.weather.sends_before_flush:
            self._pump_all()
        return True

    def trim(self) -> None:
        """Retention runs."""
        if self.is_up and not self.is_frozen:
            replica = self.replica
            self.log.trim(min(replica.commit_event_id, replica.needed_after, self.log.durable_event_id))
            self.feed(r.Trimmed(self.log.oldest_event_id))

    # --- The machine's commands ----------------------------------------------------------------------------

    def _perform(self, command: r.Command) -> None:
        match command:
            case r.ReadControl() | r.ChangeControl():
                self._ask_control(command)
            case r.Committed(through):
                self._committed(through)
            case r.Append(first_event_id, through):
                self._append(first_event_id, through)
            case r.SendDurable():
                self._report(command)
            case r.StreamAfter(session, event_id):
                self._cursors[session] = event_id
                self._pump(session)
            case r.SendState(session, epoch, commit_event_id, in_sync, stamp_ms):
                self._send_to(session, Heartbeat(epoch, commit_event_id, in_sync, self.name, stamp_ms))
            case r.SendTruncate(session, event_id, epoch):
                self._send_to(session, CutThere(event_id, epoch))
            case r.SendTooFar(session, oldest_event_id):
                self._send_to(session, TooFar(oldest_event_id))
            case r.RefuseFollower(session) | r.CloseFollower(session):
                self._close(session)
            case r.Follow(session, leader, last_event_id, last_epoch, highest_epoch):
                self.follow_count += 1
                self.kept_leader = leader
                wire = self._wire(session)
                self._peers[wire] = leader
                self._send(leader, wire, FollowRequest(self.name, last_event_id, last_epoch, highest_epoch))
            case r.Unfollow(session):
                self._unfollow(session)
            case r.AppendEpoch(epoch, event_ids):
                self._append_epoch(epoch, event_ids)
            case r.Truncate(through):
                self._cut = through
                self._disk_next()
            case r.FetchSnapshot(session, leader):
                self._fetch(session, leader)
            case r.StopLeading():
                self._stop_leading()
            case r.Alarm(text):
                self.alarms.append(text)
                self.world.note(self.name, "alarm", text)
            case r.Fence():
                self._fence(command)
            case r.PromoteRefused(reason):
                self.refusal = reason
            case r.Lead() | r.AcceptWrites() | r.RefuseWrites() | r.Promoted() | r.Left():
                self.world.note(self.name, type(command).__name__)

    def _fence(self, command: r.Fence) -> None:
        if not self.world.nodes[command.leader].is_up:
            self._later(1.0, self.feed, r.FenceAnswered(command.attempt, r.FenceOutcome.ABSENT, "connection refused"))
            return
        wire = self._wire(FENCE_SESSION + command.attempt)
        request = FollowRequest(self.name, command.last_event_id, command.last_epoch, command.epoch)
        self._send(command.leader, wire, request)

    def _fence_answered(self, source: str, wire: int, message: object) -> None:
        outcome = r.FenceOutcome.FENCED if isinstance(message, End) else r.FenceOutcome.UNKNOWN
        if not isinstance(message, End):
            self._send(source, wire, HangUp())
        self.feed(r.FenceAnswered((wire & 0xFFFFFF) - FENCE_SESSION, outcome))

    def _committed(self, through: int) -> None:
        replica = self.replica
        is_leader = replica.leadership is not None
        self.world.oracle.shown(self, through)
        if self.world.rng.random() < 0.3:
            self.log.shown_event_id = through
        if not is_leader:
            return
        while self._waiting and self._waiting[0][0] <= through:
            self.world.oracle.acknowledged(self, self._waiting.pop(0)[1])
        for session in list(self._cursors):
            if self.world.rng.random() < 0.5:  # else the next frames or heartbeat tell it
                self._send_to(session, Frames((), through, self.local_ms))

    def _stop_leading(self) -> None:
        self._waiting.clear()  # answered with Unknown
        self._is_stopping = True
        for session in list(self._cursors):
            self._close(session)
        self._flush()
        self._disk_next()

    # --- The disk: one thing at a time ---------------------------------------------------------------------

    def _append_epoch(self, epoch: int, event_ids: int) -> None:
        first = self.log.tail_event_id + 1
        record = Record(first, first + event_ids - 1, epoch, f"epoch {epoch} of {self.name} {self.incarnation}")
        self.log.append(record)
        self._opening = (epoch, first, record.through)
        self._flush()

    def _append(self, first_event_id: int, through: int) -> None:
        records, self._held = self._held, ()
        assert records and records[0].first_event_id == first_event_id and records[-1].through == through
        if self.world.rng.random() < self.world.weather.append_error:
            if self.world.faults.append_error_advances:
                return
            self.feed(r.AppendFailed(self.log.state()))
            return
        for record in records:
            self.log.append(record)
        self._flush()

    def _flush(self) -> None:
        if self._is_flushing or self._is_cutting or not self.log.has_unflushed:
            return
        self._is_flushing = True
        self._later(self.world.flush_time_ms(self), self._flushed, self.log.tail_event_id)

    def _flushed(self, through: int) -> None:
        self._is_flushing = False
        self.log.flush(through)
        opening = self._opening
        if opening is not None and opening[2] <= through:
            self._opening = None
            self.feed(r.EpochAppended(*opening))
        else:
            self.feed(r.Flushed(through))
        self._flush()
        self._pump_all()
        self._disk_next()

    def _disk_next(self) -> None:
        """Do what waited for the disk to come to rest."""
        if self._is_flushing or self._is_cutting or not self.is_up:
            return
        if self._is_stopping:
            self._is_stopping = False
            self.feed(r.LeadingStopped(self.log.state()))
        elif self._cut is not None:
            self.log.cut(self._cut)
            self._cut = None
            self._is_cutting = True
            self._later(self.world.flush_time_ms(self), self._finish_cut)

    def _finish_cut(self) -> None:
        self._is_cutting = False
        self.log.finish_cut()
        self.feed(r.Truncated(self.log.state()))

    # --- Snapshots -----------------------------------------------------------------------------------------

    def _fetch(self, session: int, leader: str) -> None:
        self._fetching = session
        self._send(leader, self._wire(session), SnapshotRequest())
        self._later(self.world.weather.snapshot_timeout_ms, self._give_up, session)

    def _give_up(self, session: int) -> None:
        if self._fetching == session and not self._is_installing:
            self._fetching = None
            self.feed(r.SnapshotFailed(session))

    def _install(self, session: int, snapshot: Snapshot) -> None:
        if self._fetching == session and not self._is_installing:
            self._is_installing = True
            self._later(self.world.flush_time_ms(self) * 3, self._installed, session, snapshot)

    def _installed(self, session: int, snapshot: Snapshot) -> None:
        if self._is_flushing:  # let the disk come to rest first
            self._later(1.0, self._installed, session, snapshot)
            return
        self._is_installing, self._fetching = False, None
        if self.world.faults.snapshot_without_epochs:
            snapshot = Snapshot(snapshot.records, ())
        self.log.install(snapshot)
        self.world.oracle.replaced(self)
        self.feed(r.SnapshotInstalled(session, self.log.state()))

    # --- Streams -------------------------------------------------------------------------------------------

    def _wire(self, session: int) -> int:
        """A session's number as seen by the whole world."""
        return (self.index << 40) | (self.incarnation << 24) | session

    def _own(self, wire: int) -> int | None:
        """Our own session behind a number, unless it belongs to someone else or to an earlier life."""
        return wire & 0xFFFFFF if wire >> 24 == self._wire(0) >> 24 else None

    def _send(self, target: str, wire: int, message: object) -> None:
        self.world.network.send(self.name, target, wire, message)

    def _send_to(self, session: int, message: object) -> None:
        peer = self._peers.get(session)
        if peer is not None:
            self._send(peer, session, message)

    def _close(self, session: int) -> None:
        self._send_to(session, End())
        self._cursors.pop(session, None)
        self._peers.pop(session, None)

    def _unfollow(self, session: int) -> None:
        wire = self._wire(session)
        self._send_to(wire, HangUp())
        self._peers.pop(wire, None)
        if self._fetching == session:
            self._give_up(session)

    def _report(self, command: r.SendDurable) -> None:
        event_id = self.log.tail_event_id if self.world.faults.durable_before_flush else command.event_id
        self._send_to(self._wire(command.session), DurableReport(event_id, command.epoch, command.stamp_ms))

    def _pump_all(self) -> None:
        for session in list(self._cursors):
            self._pump(session)

    def _pump(self, session: int) -> None:
        """Send a follower what it has not been sent."""
        log, world = self.log, self.world
        limit = log.tail_event_id if world.weather.sends_before_flush else log.durable_event_id
        while self._cursors.get(session, limit) < limit:
            cursor = self._cursors[session]
            if cursor + 1 < log.oldest_event_id:
                self._close(session)
                self.feed(r.FollowerGone(session))
                return
            records = log.after(cursor, limit=FRAMES_PER_MESSAGE, through=limit)
            if world.faults.lookup_by_record_start and cursor:
                # Literal: the position is looked up among the first event_ids of records.
                start = next((i for i, x in enumerate(log.records) if x.first_event_id == cursor), None)
                records = () if start is None else tuple(log.records[start + 1 : start + 1 + FRAMES_PER_MESSAGE])
            if not records:
                return
            self._cursors[session] = records[-1].through
            self._send_to(session, Frames(records, self.replica.commit_event_id, self.local_ms))

    def deliver(self, source: str, wire: int, message: object) -> None:
        """A message arrives from another node, or from the registry."""
        if not self.is_up:
            return
        if self.slow_ms or wire in self._due_ms:
            # Each connection lags on its own, in order: what an old one held back comes out after a new one's.
            now_ms = self.world.simulation.now_ms
            due_ms = max(self._due_ms.get(wire, 0.0), now_ms + self.slow_ms * self.world.rng.random() ** 3)
            self._due_ms[wire] = due_ms
            self._later(due_ms - now_ms, self._handle, source, wire, message)
        else:
            self.post(self._handle, source, wire, message)

    def _handle(self, source: str, wire: int, message: object) -> None:
        own = self._own(wire)
        match message:
            case RegistryAnswer():
                self._registry_answered(message)
            case FollowRequest(name, last_event_id, last_epoch, highest_epoch):
                self._peers[wire] = source
                tail = self.log.tail_event_id
                self.feed(r.FollowAsked(wire, name, last_event_id, last_epoch, highest_epoch, tail))
            case DurableReport(event_id, epoch, stamp_ms):
                self.feed(r.FollowerDurable(wire, event_id, epoch, stamp_ms))
            case HangUp():
                self._cursors.pop(wire, None)
                self._peers.pop(wire, None)
                self.feed(r.FollowerGone(wire))
            case SnapshotRequest():
                if self.replica.leadership is not None:
                    through = self.replica.commit_event_id
                    if self.world.faults.snapshot_beyond_commit:
                        through = self.log.tail_event_id
                    self._send(source, wire, SnapshotReply(self.log.snapshot(through)))
            case _ if own is None:
                return
            case _ if own >= FENCE_SESSION:
                self._fence_answered(source, wire, message)
            case Frames():
                self._frames(own, message)
            case Heartbeat(epoch, commit_event_id, in_sync, leader, stamp_ms):
                self.feed(r.StateHeard(own, epoch, commit_event_id, in_sync, leader, stamp_ms))
            case CutThere(event_id, epoch):
                self.feed(r.TruncateTold(own, event_id, epoch))
            case TooFar(oldest_event_id):
                self.feed(r.TooFarTold(own, oldest_event_id))
            case SnapshotReply(snapshot):
                self._install(own, snapshot)
            case End():
                self.feed(r.StreamEnded(own))
            case _:
                raise AssertionError(message)

    def _frames(self, session: int, frames: Frames) -> None:
        records = frames.records
        first = records[0].first_event_id if records else self.log.tail_event_id + 1
        through = records[-1].through if records else first - 1
        starts: list[r.EpochStart] = []
        before = self.log.tail_epoch
        for record in records:
            if record.epoch != before:
                before = record.epoch
                starts.append(r.EpochStart(before, record.first_event_id))
        self._held = records
        self.feed(r.FramesArrived(session, first, through, tuple(starts), frames.commit_event_id, frames.stamp_ms))

    # --- The control record --------------------------------------------------------------------------------

    def _ask_control(self, command: r.ReadControl | r.ChangeControl) -> None:
        if not self.world.is_manual:
            if isinstance(command, r.ChangeControl) and command.is_claim:
                self.kept_claim = command.expected_version
            request = RegistryRequest(self.name, self.incarnation, self._registry_session, command)
            self.world.ask_registry(request)
        else:
            self._later(self.world.flush_time_ms(self), self._answer_control, command)

    def _answer_control(self, command: r.ReadControl | r.ChangeControl) -> None:
        """Manual: a small file of this node's own."""
        if isinstance(command, r.ChangeControl):
            if command.expected_version != self.kept_version:
                self.feed(r.ControlRefused(command.expected_version))
                return
            self.kept_version += 1
            self.kept_control = command.control
        self.feed(r.ControlSeen(self.kept_version, self.kept_control, frozenset(), command.asked_ms))

    def _registry_answered(self, answer: RegistryAnswer) -> None:
        if answer.incarnation != self.incarnation or answer.registry_session < self._registry_session:
            return
        if answer.event is None:
            if answer.registry_session == self._registry_session:
                self._registry_session = 0
                self.feed(r.SessionLost())
            return
        self._registry_session = answer.registry_session
        if isinstance(answer.event, r.ControlSeen):
            control = answer.event.control
            self.kept_epoch = max(self.kept_epoch, control.epoch if control else 0)
            if answer.event.version > self.kept_claim:
                self.kept_claim = -1
        self.feed(answer.event)
