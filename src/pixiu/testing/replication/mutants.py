"""Literal errors of replication, each of which the simulated world must catch.

A simulator proves little until it has caught something. Every entry here puts one error back, in the machine
(a subclass that overrides one decision) or in the driver (a switch of ``Faults``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pixiu.machines import replication as r
from pixiu.machines.replication.election import Claim, FollowLeader, Wait
from pixiu.machines.replication.leadership import Leadership
from pixiu.testing.replication.process import Faults

if TYPE_CHECKING:
    from pixiu.machines.replication.history import Point

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One error: what it is, and the machine or driver that makes it."""

    what: str
    replica: type[r.Replica] = r.Replica
    faults: Faults = field(default_factory=Faults)


# --- Errors of a leader's accounts -----------------------------------------------------------------------------


class _OwnDiskIsEnough(Leadership):
    def committable(self, durable: int) -> int:
        return durable


class _DropsBeforeItIsDecided(Leadership):
    @property
    def required(self) -> frozenset[str]:
        return self._proposed if self.proposed_ms is not None else super().required


class _ForgetsProposals(Leadership):
    @property
    def required(self) -> frozenset[str]:
        return self.control.in_sync


class _AdmitsAnyone(Leadership):
    def _is_ready(self, name: str, now_ms: int) -> bool:
        return True

    def propose(self, *, now_ms: int, commit_event_id: int) -> frozenset[str] | None:
        return super().propose(now_ms=now_ms, commit_event_id=-1)


class _IgnoresMinIsr(Leadership):
    @property
    def has_enough_members(self) -> bool:
        return True


class _RemembersWhatWasCut(Leadership):
    def forget(self, name: str) -> None:
        pass

    def welcome(self, session: int, name: str, *, now_ms: int, durable: int) -> int | None:
        before = self.followers.get(name)
        replaced = super().welcome(session, name, now_ms=now_ms, durable=durable)
        if before is not None:
            self.followers[name].durable = before.durable
        return replaced


def _with_leadership(kind: type[Leadership]) -> type[r.Replica]:
    return type(f"Replica{kind.__name__}", (r.Replica,), {"leadership_type": kind})


# --- Errors of the machine -------------------------------------------------------------------------------------


class _SaysTheLeadersEpoch(r.Replica):
    def _open_stream(self, now_ms: int, leader: str) -> r.Command:
        command = super()._open_stream(now_ms, leader)
        assert isinstance(command, r.Follow)
        return replace(command, last_epoch=self.highest_epoch)


class _NeverTruncates(r.Replica):
    def _meeting_point(self, last: Point) -> Point:
        return last if last.event_id <= self.log.tail_event_id else super()._meeting_point(last)


class _CutsWhatWasSent(r.Replica):
    leadership_type = _RemembersWhatWasCut

    def _follow_asked(self, now_ms: int, event: r.FollowAsked) -> list[r.Command]:
        return super()._follow_asked(now_ms, replace(event, own_tail_event_id=0))


class _AnyoneMayLead(r.Replica):
    def _decide(self, now_ms: int) -> Claim | FollowLeader | Wait:
        if self.control is not None and self._silent_ms(now_ms) > self.settings.takeover_ms:
            self.control = replace(self.control, in_sync=self.control.in_sync | self._live)
        return super()._decide(now_ms)


class _TakesOverOnSilence(r.Replica):
    def _silent_ms(self, now_ms: int) -> int:
        return super()._silent_ms(now_ms) if self._stream is not None else 1 << 40


class _NeverFenced(r.Replica):
    def _still_leading(self, now_ms: int, *, is_new: bool) -> list[r.Command]:
        control = self.control
        if control is None or control.leader != self.name or control.epoch != self.epoch:
            return []
        return super()._still_leading(now_ms, is_new=is_new)

    def _is_lease_held(self, now_ms: int) -> bool:
        return True

    def _follow_asked(self, now_ms: int, event: r.FollowAsked) -> list[r.Command]:
        return super()._follow_asked(now_ms, replace(event, highest_epoch=0))


class _NoLease(r.Replica):
    def _is_lease_held(self, now_ms: int) -> bool:
        return True


class _AllButOneGrant(Leadership):
    def is_granted(self, now_ms: int) -> bool:
        others = self.required - {self.name}
        return sum(self.grants.is_granted_by(member, now_ms) for member in others) >= len(others) - 1


class _CountsFromTheReceipt(Leadership):
    def granted(self, session: int, stamp_ms: int, *, now_ms: int) -> None:
        super().granted(session, now_ms, now_ms=now_ms)


class _ShrinksAlone(Leadership):
    def propose(self, *, now_ms: int, commit_event_id: int) -> frozenset[str] | None:
        wanted = super().propose(now_ms=now_ms, commit_event_id=commit_event_id)
        if wanted is not None and wanted < self.control.in_sync:
            self.control = replace(self.control, in_sync=wanted)
            self._proposed = wanted
        return wanted


class _ForgetsItsPromise(r.Replica):
    def receive(self, now_ms: int, event: r.Event) -> list[r.Command]:
        commands = super().receive(now_ms, event)
        self._started_ms = self._seen_ms = -(1 << 40)  # as if it had run, and seen the record, for ever
        return commands


class _ForgetsItsClaim(r.Replica):
    @property
    def _is_claiming(self) -> bool:
        self._orphan_version = -1
        return super()._is_claiming


class _ClaimsAnOldRecord(r.Replica):
    """What it decided on one version it asks for on the next one, too."""

    def _control_refused(self, now_ms: int, expected_version: int) -> list[r.Command]:
        if self._claim is None:
            return super()._control_refused(now_ms, expected_version)
        self._version = expected_version + 1
        return self._change_control(now_ms, self._claim.control, is_claim=True)


class _PromisesWhileClaiming(r.Replica):
    def _claim_again(self, now_ms: int) -> list[r.Command]:
        commands = super()._claim_again(now_ms)
        leader = self.control.leader if self.control is not None else ""
        if leader in ("", self.name):
            return commands
        return [*commands, *self._follow_leader(now_ms, leader, is_in_sync=True)]


class _WaitsTooShort(r.Replica):
    def _silent_ms(self, now_ms: int) -> int:
        return super()._silent_ms(now_ms) + self.settings.takeover_ms - self.settings.lease_ms


class _LeavesBeforeItStops(r.Replica):
    def _leave_asked(self) -> list[r.Command]:
        if self.leadership is None or self.control is None:
            return super()._leave_asked()
        others = self.control.in_sync - {self.name}
        return self._change_control(
            self._changed_at_ms, r.Control(self.control.epoch, "", others or self.control.in_sync)
        )

    def _still_leading(self, now_ms: int, *, is_new: bool) -> list[r.Command]:
        if self.control is not None and not self.control.leader:
            return []
        return super()._still_leading(now_ms, is_new=is_new)


class _KeepsItsEpoch(r.Replica):
    def _decide(self, now_ms: int) -> Claim | FollowLeader | Wait:
        decision = super()._decide(now_ms)
        if isinstance(decision, Claim) and self.control is not None and self.control.leader == self.name:
            return Claim(replace(decision.control, epoch=self.control.epoch))
        return decision


class _ShowsUncommitted(r.Replica):
    def _show(self, commit_event_id: int) -> list[r.Command]:
        return super()._show(self.log.durable_event_id)


class _PromotesAnyone(r.Replica):
    def _promote_asked(self, now_ms: int, *, force: bool) -> list[r.Command]:
        return super()._promote_asked(now_ms, force=True)


class _NoSilenceTimeout(r.Replica):
    def _follow_on(self, now_ms: int) -> list[r.Command]:
        if self._stream is not None:
            self._stream.heard_ms = now_ms
        return super()._follow_on(now_ms)


MUTANTS: dict[str, Mutant] = {
    "": Mutant("the machine as it is"),
    "ack-on-own-disk": Mutant("acknowledges before the in-sync members have it", _with_leadership(_OwnDiskIsEnough)),
    "shrink-after-ack": Mutant(
        "acknowledges without a silent member before the control record lets it go",
        _with_leadership(_DropsBeforeItIsDecided),
    ),
    "forget-proposals": Mutant(
        "does not wait for a member whose admission is unanswered", _with_leadership(_ForgetsProposals)
    ),
    "admit-anyone": Mutant("takes a follower in that lacks committed records", _with_leadership(_AdmitsAnyone)),
    "ignore-min-isr": Mutant("acknowledges with fewer members than min_isr", _with_leadership(_IgnoresMinIsr)),
    "epoch-of-leader": Mutant(
        "a follower names the newest epoch it knows, not that of its last record", _SaysTheLeadersEpoch
    ),
    "no-truncation": Mutant("lets a diverging follower keep its tail", _NeverTruncates),
    "cut-what-was-sent": Mutant(
        "tells a follower to cut what is not flushed here, and still counts it as held", _CutsWhatWasSent
    ),
    "anyone-leads": Mutant("a follower that is not in sync may take over", _AnyoneMayLead),
    "take-over-on-silence": Mutant("takes over from a leader that is only silent (E27)", _TakesOverOnSilence),
    "no-fencing": Mutant("an old leader goes on after a higher epoch is known (E27)", _NeverFenced),
    "no-lease": Mutant("a leader cut off from its followers goes on acknowledging (E58)", _NoLease),
    "lease-without-one": Mutant(
        "holds a lease that one in-sync replica has not granted", _with_leadership(_AllButOneGrant)
    ),
    "lease-from-receipt": Mutant(
        "counts a grant from when the echo came, not from when the stamp was sent",
        _with_leadership(_CountsFromTheReceipt),
    ),
    "shrink-alone": Mutant(
        "takes a late replica out of the in-sync set before the registry has", _with_leadership(_ShrinksAlone)
    ),
    "forgotten-promise": Mutant("claims right after a restart, though it may have promised not to", _ForgetsItsPromise),
    "forgotten-claim": Mutant("promises after a restart, though a claim of its may still be granted", _ForgetsItsClaim),
    "claim-old-version": Mutant("claims a later version of the record than it decided on", _ClaimsAnOldRecord),
    "promise-while-claiming": Mutant(
        "follows, reports and promises between asking for the record and the answer", _PromisesWhileClaiming
    ),
    "clock-stops-in-suspend": Mutant(
        "measures the lease by a clock that is paused while the machine is suspended",
        faults=Faults(clock_stops_in_suspend=True),
    ),
    "no-clock-bound": Mutant("waits for the lease's length by its own clock, and no longer", _WaitsTooShort),
    "leave-then-stop": Mutant("gives the record up and serves on until it ends", _LeavesBeforeItStops),
    "keep-epoch": Mutant("a leader that comes back leads on in its old epoch", _KeepsItsEpoch),
    "show-uncommitted": Mutant("a follower shows what is not committed", _ShowsUncommitted),
    "promote-anyone": Mutant("an unforced promotion of a follower that is not in sync", _PromotesAnyone),
    "no-silence-timeout": Mutant("a follower waits for ever on a dead connection (QE3)", _NoSilenceTimeout),
    "durable-before-flush": Mutant(
        "a follower reports records as durable before it has flushed them", faults=Faults(durable_before_flush=True)
    ),
    "lookup-by-record-start": Mutant(
        "a resume position is looked up among first event_ids only (QE1)", faults=Faults(lookup_by_record_start=True)
    ),
    "append-error-advances": Mutant(
        "a failed append still advances the position (QE2)", faults=Faults(append_error_advances=True)
    ),
    "snapshot-without-epochs": Mutant(
        "a snapshot is installed without its history of epochs", faults=Faults(snapshot_without_epochs=True)
    ),
}
