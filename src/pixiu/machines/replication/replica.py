"""One node of the replicated journal: the machine itself. The package's docstring has the table of states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, assert_never

from pixiu.machines.queue_wire.commands import LEASE_OVER
from pixiu.machines.replication import events as e
from pixiu.machines.replication.election import Claim, FollowLeader, View, Wait, decide, next_reign
from pixiu.machines.replication.events import Command, Control, Election, Event, State
from pixiu.machines.replication.following import NEVER_MS, Following
from pixiu.machines.replication.history import EpochStart, LogState, Point, common_point
from pixiu.machines.replication.leadership import Leadership
from pixiu.machines.replication.lease import Lease

__all__ = ["EPOCH_MAX", "Replica"]

EPOCH_MAX = 2**32 - 1
"""Records and messages carry an epoch as u32."""
FENCE_MS_MAX = 5_000
"""A promotion waits at most this long for the former leader: the client of the command waits 10 seconds."""


@dataclass(slots=True)
class Fencing:
    """One attempt to fence the former leader."""

    attempt: int
    leader: str
    epoch: int
    asked_ms: int
    force: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """A change of the record by which this node asked to lead. It is undecided until a later version is seen."""

    control: Control
    version: int
    asked_ms: int


class Replica(Following):
    """Decides for one node whom to follow, what to show, when to lead and when to stop."""

    leadership_type: ClassVar[type[Leadership]] = Leadership
    lease_type: ClassVar[type[Lease]] = Lease

    def __init__(self, name: str, settings: e.ReplicaSettings, log: LogState, *, led_epoch: int = 0) -> None:
        """``led_epoch``: in which this node led a log of its own before it came to the registry; 0: it did not."""
        super().__init__(name, settings, log)
        self._led_epoch = led_epoch
        self._founders: frozenset[str] = frozenset()
        self.epoch = 0  # of our own leading
        self.leadership: Leadership | None = None
        self.accepts_writes = False
        self._version = -1  # of the control record; -1: not seen yet, 0: there is none
        self._live: frozenset[str] = frozenset()
        self.lease = self.lease_type(settings)
        self._read_at_ms = NEVER_MS
        self._beat_at_ms = NEVER_MS
        self._claim: Claimed | None = None
        self._orphan_version = -1  # of a claim that was asked before a restart, and may still be granted
        self._started_ms: int | None = None
        self._seen_ms = NEVER_MS  # when the record's version was seen first
        self._answered_ms = NEVER_MS  # when the newest reading that was answered was asked for
        self._last_leader = ""
        self._is_forced = False
        self._follow: str | None = None  # manual: whom the operator named
        self._is_promotion_asked = False
        self._fencing: Fencing | None = None
        self._fence_attempts = 0
        self._fence_at_ms = NEVER_MS
        self._is_leaving = self._is_stepping_down = False
        self._stepped_down_ms = NEVER_MS
        self._damaged: frozenset[str] = frozenset()

    @property
    def leader(self) -> str:
        """The last known leader, or the empty string."""
        if self.leadership is not None:
            return self.name
        if self._stream is not None:
            return self._stream.leader
        if self._follow is not None:
            return self._follow
        if self.control is not None and self.control.leader != self.name:
            return self.control.leader
        return self._last_leader if self._version < 0 else ""

    @property
    def has_claim(self) -> bool:
        """Whether this node has asked to lead and does not yet know the outcome."""
        return self._claim is not None

    def acknowledges(self, now_ms: int) -> bool:
        """Whether this node, at this time of its clock, would acknowledge a write."""
        return self.leadership is not None and not self._why_not(now_ms, self.leadership)

    def holds_lease(self, now_ms: int) -> bool:
        """Whether this node leads at this time of its clock, so that no other does."""
        if self.settings.election is Election.MANUAL:
            return self.leadership is not None
        return self._is_lease_held(now_ms)

    @property
    def needed_after(self) -> int:
        """Retention must keep all records after this event_id, for the in-sync members."""
        durable = self.log.durable_event_id
        return durable if self.leadership is None else self.leadership.needed_after(durable)

    def receive(self, now_ms: int, event: Event) -> list[Command]:
        """Advance by one event. Return what to do, in order."""
        match event:
            case e.Ticked():
                return self._tick(now_ms)
            case e.Flushed(through):
                return self._flushed(now_ms, through)
            case e.FollowerDurable():
                return self._follower_durable(now_ms, event)
            case e.FramesArrived():
                return self._frames_arrived(now_ms, event)
            case e.StateHeard():
                return self._state_heard(now_ms, event)
            case e.Started():
                return self._start(now_ms, event)
            case e.ControlSeen():
                return self._control_seen(now_ms, event)
            case e.Joined():
                return self._joined(now_ms, event)
            case e.ControlRefused() if self._is_leaving and self.state is State.JOINING:
                return [e.Left()]
            case e.ControlRefused(expected_version):
                return self._control_refused(now_ms, expected_version)
            case e.SessionLost():
                return self._session_lost(now_ms)
            case e.PromoteAsked(force):
                return self._promote_asked(now_ms, force=force)
            case e.FenceAnswered():
                return self._fence_answered(now_ms, event)
            case e.LeaveAsked(stays):
                return self._step_down(now_ms) if stays else self._leave_asked()
            case e.FollowTold(leader):
                return self._follow_told(now_ms, leader)
            case e.Trimmed(oldest_event_id):
                self.log = replace(self.log, oldest_event_id=oldest_event_id)
                return []
            case e.EpochAppended():
                return self._epoch_appended(now_ms, event)
            case e.LeadingStopped(log):
                return self._leading_stopped(now_ms, log)
            case e.Truncated(log):
                self.log, self._is_cutting = log, False
                return self._settle(now_ms)
            case e.AppendFailed(log):
                self.log = log
                return self._restart_stream(now_ms, pause_ms=self.settings.reconnect_ms)
            case e.SnapshotInstalled(_, log):
                self.log, self.commit_event_id = log, log.shown_event_id
                self.highest_epoch = max(self.highest_epoch, log.tail_epoch)
                return self._snapshot_ended(now_ms, pause_ms=0)
            case e.SnapshotFailed():
                return self._snapshot_ended(now_ms, pause_ms=self.settings.reconnect_ms)
            case e.FollowAsked():
                return self._follow_asked(now_ms, event)
            case e.FollowerGone(session):
                if self.leadership is not None:
                    self.leadership.leave(session)
                return []
            case e.TruncateTold(session, event_id, epoch):
                return self._truncate_told(now_ms, session, Point(event_id, epoch))
            case e.TooFarTold(session):
                return self._full_sync(now_ms) if self._is_current(session) else []
            case e.StreamEnded(session):
                if self._is_current(session) and self.state is not State.FULL_SYNC:
                    return self._restart_stream(now_ms, pause_ms=self.settings.reconnect_ms)
                return []
            case _:
                assert_never(event)

    def _start(self, now_ms: int, event: e.Started) -> list[Command]:
        self._follow, self._started_ms = event.follow, now_ms
        self._last_leader = "" if event.last_leader == self.name else event.last_leader
        self._orphan_version = event.claimed_version
        # A first reading may be old: a leader that was replaced before the restart must not get a promise after it.
        self.highest_epoch = max(self.highest_epoch, event.known_epoch)
        return self._read_control(now_ms)

    # --- Time and the disk ---------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> list[Command]:
        commands = self._fence_on(now_ms)
        may_change = self._version < 0 or self.settings.election is Election.REGISTRY
        if self.leadership is not None:
            commands += self._lead_on(now_ms, self.leadership)
        if may_change and self._must_renew:
            commands += self._renew(now_ms)
        elif may_change and now_ms - self._read_at_ms >= self._read_every_ms(now_ms):
            commands += self._read_control(now_ms)
        return commands if self.leadership is not None else commands + self._follow_on(now_ms)

    def _flushed(self, now_ms: int, through: int) -> list[Command]:
        if self.leadership is not None:
            tail = max(through, self.log.tail_event_id)
            self.log = replace(self.log, tail_event_id=tail, durable_event_id=through)
            return self._advance(now_ms, self.leadership)
        return self._copied(now_ms, through)

    # --- The control record --------------------------------------------------------------------------------

    def _read_control(self, now_ms: int) -> list[Command]:
        self._read_at_ms = now_ms
        return [e.ReadControl(now_ms)]

    def _read_every_ms(self, now_ms: int) -> int:
        """A replica looks often as long as it misses its leader, and seldom while all is well."""
        settings, stream = self.settings, self._stream
        is_well = self.state is State.LEADING or (
            stream is not None
            and stream.epoch > 0
            and now_ms - stream.heard_ms <= 2 * settings.heartbeat_ms
            and self._is_told_in_sync == (self.state is State.IN_SYNC)
        )
        return settings.control_poll_ms * (settings.watch_polls if is_well else 1)

    def _control_refused(self, now_ms: int, expected_version: int) -> list[Command]:
        """The record has another version. Which one decides a claim: an earlier attempt of it may have been granted."""
        if self.settings.election is Election.MANUAL:
            self._claim = None
        elif self._claim is not None and self._claim.version != expected_version:
            return self._read_control(now_ms)
        return [*self._refuse_promotion("the control record changed: try again"), *self._read_control(now_ms)]

    def _control_seen(self, now_ms: int, event: e.ControlSeen) -> list[Command]:
        self._note_lease(now_ms, event)
        if event.version < self._version:
            return []
        is_new = event.version > self._version
        if is_new:
            self._seen_ms = now_ms
            if event.version > self._orphan_version:
                self._orphan_version = -1
        if self._version < 0 and event.control is not None and event.control.leader == self._follow:
            self._is_told_in_sync = self.name in event.control.in_sync
        self._version, self.control, self._live = event.version, event.control, event.live
        self._founders, self._damaged = event.founders, event.damaged
        if event.control is not None:
            self.highest_epoch = max(self.highest_epoch, event.control.epoch)
        if self.state in (State.LEADING, State.PROMOTING):
            return self._still_leading(now_ms, is_new=is_new)
        if self._is_leaving and event.is_granted:
            return [e.Left()]
        return self._settle(now_ms)

    def _joined(self, now_ms: int, event: e.Joined) -> list[Command]:
        """The registry decides from now on; whoever leads goes on leading, under its lease."""
        self.settings = settings = event.settings
        self.lease = self.lease_type(settings)
        self._version = -1
        leadership, control = self.leadership, event.seen.control
        if leadership is not None and control is not None:
            self.leadership = self.leadership_type(
                self.name, settings,
                epoch=self.epoch, control=control, now_ms=now_ms, durable=self.log.durable_event_id,
            )  # fmt: skip
        return self._control_seen(now_ms, event.seen)

    def _note_lease(self, now_ms: int, event: e.ControlSeen) -> None:
        """Only a change that was made renews the registry's lease: what is read may be old."""
        if event.asked_ms is None:
            return
        self._answered_ms = max(self._answered_ms, event.asked_ms)
        if event.is_granted and event.control and event.control.leader == self.name:
            self.lease.granted(event.asked_ms)

    @property
    def _must_renew(self) -> bool:
        """Whether this leader needs the lease of the registry, because no replica can grant it one."""
        leadership = self.leadership
        is_elected = self.settings.election is Election.REGISTRY
        return is_elected and leadership is not None and leadership.is_alone and self.settings.replicas != 1

    def _renew(self, now_ms: int) -> list[Command]:
        """Write the record again as it is. A proposal that is under way renews the lease as well."""
        if self.control is None or now_ms - self._changed_at_ms < self.settings.control_poll_ms:
            return []
        return self._change_control(now_ms, self.control)

    def _still_leading(self, now_ms: int, *, is_new: bool) -> list[Command]:
        control = self.control
        if control is None or control.leader != self.name or control.epoch != self.epoch:
            return self._fence("the control record names another leader or epoch")
        if self.leadership is None:
            return []
        if is_new:
            self.leadership.control_seen(control)
        return self._advance(now_ms, self.leadership)

    def _change_control(self, now_ms: int, control: Control, *, is_claim: bool = False) -> list[Command]:
        self._changed_at_ms = now_ms
        return [e.ChangeControl(max(self._version, 0), control, now_ms, is_claim)]

    def _session_lost(self, now_ms: int) -> list[Command]:
        """Who leads and who follows is not the session's matter; a claim may still have been made in it."""
        self._live -= {self.name}
        return self._read_control(now_ms)

    # --- Whom to follow, or to lead ------------------------------------------------------------------------

    def _silent_ms(self, now_ms: int) -> int:
        """For how long nothing has kept this node from taking over from another leader.

        That is: no promise, no sign of life of the leader, no change of the record, and no restart, before which it may
        have promised.
        """
        started_ms = now_ms if self._started_ms is None else self._started_ms
        return now_ms - max(self._promise.made_ms, self._heard_ms, self._seen_ms, started_ms)

    def _is_bound(self, now_ms: int) -> bool:
        """Whether this node promised, less than ``takeover_ms`` ago, not to claim."""
        if now_ms - self._promise.made_ms >= self.settings.takeover_ms:
            return False
        return self.control is None or not self._promise.is_void(self.control.leader, self.control.epoch)

    @property
    def _is_claiming(self) -> bool:
        """Whether the registry may still grant a claim of this node. Until then it neither follows nor promises."""
        if self._orphan_version >= 0:
            return True
        return self._claim is not None and self._version <= self._claim.version

    def _decide(self, now_ms: int) -> Claim | FollowLeader | Wait:
        has_stepped_down = now_ms - self._stepped_down_ms < 2 * self.settings.takeover_ms
        return decide(
            View(
                name=self.name, settings=self.settings, log=self.log, highest_epoch=self.highest_epoch,
                control=self.control, live=self._live, unchanged_ms=now_ms - self._seen_ms,
                silent_ms=self._silent_ms(now_ms), is_bound=self._is_bound(now_ms),
                is_answering=now_ms - self._answered_ms <= self.settings.control_retry_ms,
                follow=self._follow, is_in_sync=self._is_told_in_sync, led_epoch=self._led_epoch,
                founders=self._founders,
                damaged=self._damaged | {self.name} if has_stepped_down else self._damaged,
            )
        )  # fmt: skip

    def _settle(self, now_ms: int) -> list[Command]:
        """Do what the control record asks of a node that does not lead."""
        if self._is_leaving:
            return self._end_stream() if self.state is not State.FULL_SYNC else []
        if self._is_cutting or self.state in (State.FENCED, State.PROMOTING, State.LEADING):
            return []
        if self._version < 0:
            return self._follow_last(now_ms)
        if self.state is not State.FULL_SYNC and self._is_claim_granted():
            return self._promote()
        if self.settings.election is Election.REGISTRY:
            if self._is_claiming:
                return self._claim_again(now_ms)
            self._claim = None
        if self._is_forced and self.state is not State.FULL_SYNC:
            return self._force(now_ms)
        decision = self._decide(now_ms)
        match decision:
            case FollowLeader(leader, is_in_sync):
                return self._follow_leader(now_ms, leader, is_in_sync=is_in_sync)
            case _ if self.state is State.FULL_SYNC:
                return []
            case Claim(wanted):
                return self._claim_control(now_ms, wanted)
            case Wait(reason):
                self.state = State.JOINING
                return [*self._end_stream(), *self._sound(reason)]
            case _:
                assert_never(decision)

    def _follow_last(self, now_ms: int) -> list[Command]:
        """The registry has not answered yet: follow the last known leader, which may need this node's grant."""
        is_elected = self.settings.election is Election.REGISTRY
        if not is_elected or not self._last_leader or self._is_claiming or self._led_epoch:
            return []
        return self._follow_leader(now_ms, self._last_leader, is_in_sync=False)

    def _claim_control(self, now_ms: int, wanted: Control) -> list[Command]:
        """Claim the control record. Earlier promises and reports of this node do not count until the answer."""
        if self._claim is not None and now_ms - self._claim.asked_ms < self.settings.control_retry_ms:
            return []
        self._claim = Claimed(wanted, max(self._version, 0), now_ms)
        commands = self._end_stream()
        if self.settings.election is Election.REGISTRY:
            self.state = State.JOINING
        return [*commands, *self._change_control(now_ms, wanted, is_claim=True)]

    def _claim_again(self, now_ms: int) -> list[Command]:
        """Ask again until some claim or change on that version is seen to be made.

        A leader that is there makes one: it has no grant of this node, and takes it out of the in-sync set.
        """
        if self.state is State.FULL_SYNC:
            return []
        if self._claim is not None:
            return self._claim_control(now_ms, self._claim.control)
        decision = self._decide(now_ms)  # the claim was asked before a restart
        if isinstance(decision, Claim):
            return self._claim_control(now_ms, decision.control)
        self.state = State.JOINING
        return self._end_stream()

    def _force(self, now_ms: int) -> list[Command]:
        """Promote this node at the operator's request. It waits only for promises that it made, or may have made."""
        control = self.control
        started_ms = now_ms if self._started_ms is None else self._started_ms
        is_led = control is not None and control.leader not in ("", self.name)
        if self._is_bound(now_ms) or (is_led and now_ms - started_ms < self.settings.takeover_ms):
            return self._end_stream()
        known = max(self.highest_epoch, control.epoch if control else 0)
        return self._claim_control(now_ms, Control(known + 1, self.name, frozenset({self.name})))

    def _is_claim_granted(self) -> bool:
        control, claim = self.control, self._claim
        if claim is None or control is None:
            return False
        return (control.leader, control.epoch) == (self.name, claim.control.epoch)

    def _promote(self) -> list[Command]:
        assert self.control is not None
        commands = self._end_stream()
        self.state = State.PROMOTING
        self._led_epoch = 0  # from now on its log is the cluster's
        self.epoch = self.control.epoch
        self._claim = None
        self._is_forced = False
        self._follow = None
        return [*commands, e.AppendEpoch(self.epoch, self.settings.epoch_event_ids)]

    def _epoch_appended(self, now_ms: int, event: e.EpochAppended) -> list[Command]:
        if self.state is not State.PROMOTING or event.epoch != self.epoch:
            return []  # fenced meanwhile: LeadingStopped will tell the whole journal
        assert self.control is not None
        assert event.first_event_id == self.log.tail_event_id + 1, "the epoch's record must follow the tail"
        self.log = replace(
            self.log, tail_event_id=event.through, durable_event_id=event.through,
            epochs=(*self.log.epochs, EpochStart(event.epoch, event.first_event_id)),
        )  # fmt: skip
        self.state = State.LEADING
        self.leadership = self.leadership_type(
            self.name, self.settings,
            epoch=self.epoch, control=self.control, now_ms=now_ms, durable=event.through,
        )  # fmt: skip
        commands: list[Command] = [e.Lead(self.epoch)]
        if self._is_promotion_asked:
            self._is_promotion_asked = False
            commands.append(e.Promoted(self.epoch))
        return [*commands, *self._advance(now_ms, self.leadership)]

    def _promote_asked(self, now_ms: int, *, force: bool) -> list[Command]:
        if self.state is State.LEADING:
            return [e.Promoted(self.epoch)]
        is_manual = self.settings.election is Election.MANUAL
        if self.state in (State.PROMOTING, State.FENCED, State.FULL_SYNC) or self._is_cutting or self._version < 0:
            return [e.PromoteRefused(f"not now: this node is {self.state.value}")]
        if not force and not is_manual:
            return [e.PromoteRefused("the registry elects the leader; force takes over from whoever leads")]
        # A follower started without a leader to follow still knows whether it was in sync with its last one.
        was_in_sync = self._follow is None and self.control is not None and self.name in self.control.in_sync
        if not force and self.state is not State.IN_SYNC and not was_in_sync:
            return [e.PromoteRefused("this node is not in sync and may lack acknowledged records; force accepts that")]
        known = max(self.highest_epoch, self.control.epoch if self.control else 0)
        epoch = next_reign(known, self.settings) if is_manual else known + 1
        if epoch > EPOCH_MAX:
            return [e.PromoteRefused(f"epoch {epoch} is above {EPOCH_MAX}, the largest that records can carry")]
        self._is_promotion_asked = True
        if not is_manual:
            self._is_forced = True
            return self._settle(now_ms)
        self._claim = None
        former = self.leader
        if not former:
            return self._claim_control(now_ms, Control(epoch, self.name, frozenset({self.name})))
        if self._fencing is not None:
            self._fencing.force |= force
            return []
        return self._fence_former(now_ms, former, epoch, force=force)

    def _fence_former(self, now_ms: int, leader: str, epoch: int, *, force: bool) -> list[Command]:
        self._fence_attempts += 1
        self._fencing = Fencing(self._fence_attempts, leader, epoch, now_ms, force)
        return [e.Fence(self._fence_attempts, leader, self.log.tail_event_id, self.log.tail_epoch, epoch)]

    def _fence_on(self, now_ms: int) -> list[Command]:
        """Give up an attempt without an answer; as the leader, try again until the former leader is fenced."""
        fencing, control = self._fencing, self.control
        if fencing is not None:
            limit_ms = min(self.settings.silence_ms, FENCE_MS_MAX)
            if now_ms - fencing.asked_ms < limit_ms:
                return []
            reason = f"no answer within {limit_ms} ms"
            return self._fence_answered(now_ms, e.FenceAnswered(fencing.attempt, e.FenceOutcome.UNKNOWN, reason))
        if self.state is not State.LEADING or control is None or not control.unfenced or now_ms < self._fence_at_ms:
            return []
        return self._fence_former(now_ms, control.unfenced, self.epoch, force=True)

    def _fence_answered(self, now_ms: int, event: e.FenceAnswered) -> list[Command]:
        fencing, control = self._fencing, self.control
        if fencing is None or fencing.attempt != event.attempt:
            return []
        self._fencing = None
        self._fence_at_ms = now_ms + self.settings.reconnect_ms
        is_fenced = event.outcome is e.FenceOutcome.FENCED
        if self.state is State.LEADING and control is not None:
            if not is_fenced or control.unfenced != fencing.leader:
                return []
            return self._change_control(now_ms, replace(control, unfenced=""))
        if not self._is_promotion_asked:
            return []
        if event.outcome is e.FenceOutcome.UNKNOWN and not fencing.force:
            return self._refuse_promotion(
                f"cannot fence the old leader {fencing.leader} ({event.reason}), which may still accept messages: stop "
                "it and promote again, or promote with --force and lose what it accepts until it is fenced"
            )
        if self.state is State.FULL_SYNC or self._is_cutting:
            return self._refuse_promotion(f"not now: this node is {self.state.value}")
        if fencing.epoch <= max(self.highest_epoch, control.epoch if control else 0):
            return self._refuse_promotion(f"another node opened epoch {self.highest_epoch}: try again")
        # Only --follow gives an address to try again; the control record has the name of a former leader.
        unfenced = fencing.leader if not is_fenced and fencing.leader == self._follow else ""
        return self._claim_control(now_ms, Control(fencing.epoch, self.name, frozenset({self.name}), unfenced))

    def _refuse_promotion(self, reason: str) -> list[Command]:
        if not self._is_promotion_asked:
            return []
        self._is_promotion_asked = self._is_forced = False
        self._fencing = None
        return [e.PromoteRefused(reason)]

    def _leave_asked(self) -> list[Command]:
        """Hand over: stop first, then give the record up, so that another need not wait for the lease's end."""
        self._is_leaving = True
        if self.state in (State.LEADING, State.PROMOTING):
            return self._fence("this node leaves")
        return [] if self.state is State.FENCED else [e.Left()]

    def _step_down(self, now_ms: int) -> list[Command]:
        """Another in-sync member is to lead, if there is one that is not known to be damaged.

        For a while this node claims behind the others, as if its journal were damaged: its name may be the smallest.
        """
        control = self.control
        if self.state is not State.LEADING or self.settings.election is Election.MANUAL or control is None:
            return []
        if not (control.in_sync & self._live) - {self.name} - self._damaged:
            return []
        self._is_stepping_down = True
        self._stepped_down_ms = now_ms
        return self._fence("another in-sync member is to lead")

    def _hand_over(self, now_ms: int, *, stays: bool) -> list[Command]:
        """Name no leader. The others hold everything committed; alone, this node stays the one that does.

        One that stays holds it, too, and leads again if the others do not come.
        """
        control = self.control
        if control is None or control.leader != self.name or self.settings.election is Election.MANUAL:
            return [e.Left()]
        others = control.in_sync if stays else control.in_sync - {self.name}
        return self._change_control(now_ms, Control(control.epoch, "", others or control.in_sync))

    def _follow_told(self, now_ms: int, leader: str) -> list[Command]:
        refusals = self._refuse_promotion(f"told to follow {leader}")
        self._follow = leader
        self._is_told_in_sync = False
        if self.state in (State.LEADING, State.PROMOTING):
            return [*refusals, *self._fence(f"told to follow {leader}")]
        commands = [*refusals, *(self._end_stream() if self.state is not State.FULL_SYNC else [])]
        self._reconnect_at_ms = now_ms
        return commands + self._settle(now_ms)

    # --- Leading -------------------------------------------------------------------------------------------

    def _follow_asked(self, now_ms: int, event: e.FollowAsked) -> list[Command]:
        session = event.session
        if self.state in (State.LEADING, State.PROMOTING) and event.highest_epoch > self.epoch:
            if not self._is_epoch_credible(event.highest_epoch):
                return [e.RefuseFollower(session, self._incredible(event.highest_epoch))]
            if self._is_lease_held(now_ms):
                reason = f"this leader holds the lease of epoch {self.epoch}, and epoch {event.highest_epoch} is later"
                return [e.RefuseFollower(session, reason), *self._read_control(now_ms)]
            self._note_epoch(event.highest_epoch)
            refusal = e.RefuseFollower(session, f"fenced, epoch {event.highest_epoch}")
            return [refusal, *self._fence(f"{event.name} has seen epoch {event.highest_epoch}")]
        leadership = self.leadership
        if leadership is None or event.name == self.name:
            return [
                e.RefuseFollower(session, f"not the leader, ask {self.leader}" if self.leader else "not the leader")
            ]
        self.log = replace(self.log, tail_event_id=max(self.log.tail_event_id, event.own_tail_event_id))
        last = Point(event.last_event_id, event.last_epoch)
        point = self._meeting_point(last)
        if point.event_id < self.log.oldest_event_id - 1:
            leadership.forget(event.name)
            return [e.SendTooFar(session, self.log.oldest_event_id)]
        if point != last:
            leadership.forget(event.name)
            return [e.SendTruncate(session, point.event_id, point.epoch)]
        replaced = leadership.welcome(session, event.name, now_ms=now_ms, durable=self.log.durable_event_id)
        commands: list[Command] = [] if replaced in (None, session) else [e.CloseFollower(replaced)]
        return [*commands, self._state_for(now_ms, session, leadership), e.StreamAfter(session, last.event_id)]

    def _meeting_point(self, last: Point) -> Point:
        """How far a follower's journal that ends at ``last`` can be the same as ours."""
        return common_point(self.log, last)

    def _is_lease_held(self, now_ms: int) -> bool:
        """Registry: while this is so, the registry names no later leader, whatever a follower says."""
        is_elected, leadership = self.settings.election is Election.REGISTRY, self.leadership
        if not is_elected or leadership is None:
            return False
        if self._must_renew and not self.lease.is_held(now_ms):
            return False
        return leadership.is_granted(now_ms)

    def _note_epoch(self, epoch: int) -> None:
        """A follower names a later epoch. With a registry only the control record says whether there is one."""
        if self.settings.election is Election.MANUAL:
            self.highest_epoch = max(self.highest_epoch, epoch)

    def _follower_durable(self, now_ms: int, event: e.FollowerDurable) -> list[Command]:
        leadership, session, event_id, epoch = self.leadership, event.session, event.event_id, event.epoch
        if leadership is None or epoch < self.epoch:
            return []
        if epoch > self.epoch:
            if not self._is_epoch_credible(epoch):
                return [e.RefuseFollower(session, self._incredible(epoch))]
            if self._is_lease_held(now_ms):
                return [e.CloseFollower(session), *self._read_control(now_ms)]
            self._note_epoch(epoch)
            return self._fence(f"a follower is in epoch {epoch}")
        if event.stamp_ms >= 0:
            leadership.granted(session, event.stamp_ms, now_ms=now_ms)
        if not leadership.note_durable(session, event_id, now_ms=now_ms, durable=self.log.durable_event_id):
            return []
        commands = self._advance(now_ms, leadership)
        if leadership.sessions[session] not in leadership.control.in_sync:
            commands += self._propose(now_ms, leadership)
        return commands

    def _lead_on(self, now_ms: int, leadership: Leadership) -> list[Command]:
        """What a leader does as time passes."""
        commands: list[Command] = []
        for session in leadership.stuck(now_ms=now_ms, durable=self.log.durable_event_id):
            leadership.leave(session)
            commands.append(e.CloseFollower(session))
        commands += self._propose(now_ms, leadership)
        commands += self._advance(now_ms, leadership)
        if now_ms - self._beat_at_ms >= self.settings.heartbeat_ms:
            self._beat_at_ms = now_ms
            commands += [self._state_for(now_ms, session, leadership) for session in leadership.sessions]
        return commands

    def _propose(self, now_ms: int, leadership: Leadership) -> list[Command]:
        wanted = leadership.propose(now_ms=now_ms, commit_event_id=self.commit_event_id)
        if wanted is None:
            return []
        unfenced = self.control.unfenced if self.control is not None else ""
        return self._change_control(now_ms, Control(self.epoch, self.name, wanted, unfenced))

    def _advance(self, now_ms: int, leadership: Leadership) -> list[Command]:
        """Commit what may be committed, and say whether writes are welcome."""
        commands: list[Command] = []
        reason = self._why_not(now_ms, leadership)
        if not reason:
            through = leadership.committable(self.log.durable_event_id)
            if through > self.commit_event_id:
                self.commit_event_id = through
                commands.append(e.Committed(through))
        if self.accepts_writes == bool(reason):
            self.accepts_writes = not reason
            commands.append(e.RefuseWrites(reason) if reason else e.AcceptWrites())
        return commands

    def _why_not(self, now_ms: int, leadership: Leadership) -> str:
        """Why nothing may be acknowledged now, or the empty string."""
        if self.settings.election is Election.REGISTRY and not self._is_lease_held(now_ms):
            return LEASE_OVER
        if not leadership.has_enough_members:
            return f"{len(leadership.control.in_sync)} in-sync members, min_isr is {self.settings.min_isr}"
        return ""

    def _state_for(self, now_ms: int, session: int, leadership: Leadership) -> Command:
        is_in_sync = leadership.sessions[session] in leadership.control.in_sync
        return e.SendState(session, self.epoch, self.commit_event_id, is_in_sync, now_ms)

    def _fence(self, reason: str) -> list[Command]:
        """Stop at once. What was appended and not committed may or may not survive: its writers get Unknown."""
        self.state = State.FENCED
        self.leadership = None
        self.accepts_writes = False
        self._claim = self._fencing = None
        self.lease.give_up()
        return [e.StopLeading(reason)]

    def _leading_stopped(self, now_ms: int, log: LogState) -> list[Command]:
        self.log = log
        self.state = State.JOINING
        self._reconnect_at_ms = now_ms
        commands = self._refuse_promotion("another leader was faster")
        is_stepping_down, self._is_stepping_down = self._is_stepping_down, False
        if self._is_leaving or is_stepping_down:
            return commands + self._hand_over(now_ms, stays=not self._is_leaving)
        if self.settings.election is Election.REGISTRY:
            return [*commands, *self._read_control(now_ms)]
        if self.highest_epoch > self.epoch:  # manual: a restart must not lead again by itself
            return commands + self._change_control(now_ms, Control(self.highest_epoch, "", frozenset()))
        return commands + self._settle(now_ms)
