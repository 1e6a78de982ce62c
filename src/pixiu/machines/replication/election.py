"""Who should lead, as one node reads it from the control record: claim, follow or wait.

Pure: the same view gives the same answer on every node. A claim is only a wish; the compare-and-set decides.

With the registry, a leader is replaced only when it has given the record up, or when an in-sync member has heard
nothing from it for ``takeover_ms`` and is bound by no promise (``lease``). Every in-sync member holds everything
committed. The one whose name is smallest claims first and each further one ``stagger_ms`` later, so that they do not
race and none waits for one that is gone too. A replica that knows of a damaged record in its journal claims behind the
sound ones, and gives them another ``takeover_ms``: it has all that was committed last, but could not serve that record.
A leader that was restarted also claims a **new** epoch: what it wrote last may have reached a follower and not its own
disk, so the old epoch's numbers must not be written a second time.

Without a registry the operator decides. A promotion opens the next thousand of epochs and a leader's restart
only adds one, so that a leader which died, was replaced and is started again by mistake has the smaller epoch
and is fenced by the first newer node it meets. The promoted node fences its former leader before it accepts writes
(``Replica._promote_asked``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pixiu.machines.replication.events import Control, Election, ReplicaSettings

if TYPE_CHECKING:
    from pixiu.machines.replication.history import LogState

__all__ = ["Claim", "Decision", "FollowLeader", "View", "Wait", "decide", "next_reign"]


@dataclass(frozen=True, slots=True)
class View:
    """All that the decision depends on."""

    name: str
    settings: ReplicaSettings
    log: LogState
    highest_epoch: int
    control: Control | None
    live: frozenset[str]
    unchanged_ms: int  # registry: for how long the record was seen with the same version
    silent_ms: int  # registry: for how long nothing kept this node from taking over (``Replica._silent_ms``)
    is_bound: bool  # registry: a promise to a leader still holds
    is_answering: bool  # registry: it answered a moment ago
    follow: str | None  # manual: whom the operator told this node to follow
    is_in_sync: bool  # manual: what the leader last said
    led_epoch: int = 0  # registry: the epoch in which this node led a log of its own; 0: it has none, or it was a copy
    founders: frozenset[str] = frozenset()  # registry: who else says so
    damaged: frozenset[str] = frozenset()  # registry: whose journal has a damaged record, as they say themselves


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask for this control record, which makes this node the leader."""

    control: Control


@dataclass(frozen=True, slots=True)
class FollowLeader:
    """Follow this node."""

    leader: str
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing; a reason is for the operator's eyes."""

    reason: str = ""


Decision: TypeAlias = Claim | FollowLeader | Wait


def decide(view: View) -> Decision:
    """Claim, follow or wait."""
    if view.settings.election is Election.REGISTRY:
        return _by_registry(view)
    return _by_operator(view)


def next_reign(epoch: int, settings: ReplicaSettings) -> int:
    """The epoch that a promotion opens after ``epoch``."""
    return (epoch // settings.reign_epochs + 1) * settings.reign_epochs


def _by_registry(view: View) -> Decision:
    control = view.control
    if control is None:
        return _found(view)
    if not control.in_sync:
        return Wait("the control record has no in-sync set: the log of this cluster is in Kafka (engines.log)")
    if view.led_epoch and control.in_sync != {view.name}:
        return Wait(
            f"this directory has a log of its own, through event {view.log.tail_event_id}, and the registry has "
            "another, which does not replace it: start this replica in an empty directory, or bring this log to a "
            "path of the registry that has none"
        )
    if control.leader != view.name:
        if not _may_take_over(view, control):
            is_in_sync = view.name in control.in_sync
            return FollowLeader(control.leader, is_in_sync) if control.leader else Wait()
    elif view.name not in view.live or view.is_bound:
        return Wait()
    elif view.unchanged_ms < _patience_ms(view, control):
        return Wait("this journal has a damaged record: another in-sync member is to lead")
    if view.highest_epoch > control.epoch:
        return Wait(f"epoch {view.highest_epoch} was seen, but the control record says {control.epoch}")
    if view.log.tail_event_id == 0 and control.in_sync - {view.name}:
        return Wait("the journal is empty although the control record says it was in sync")
    members = (control.in_sync & view.live) - {control.leader} | {view.name}
    return Claim(Control(control.epoch + 1, view.name, members))


def _may_take_over(view: View, control: Control) -> bool:
    """Whether it is this node's turn: in sync, registered, and everyone before it has had its time."""
    candidates = sorted((control.in_sync & view.live) - {control.leader}, key=lambda name: (name in view.damaged, name))
    if view.name not in candidates:
        return False
    wait_ms = _patience_ms(view, control) + candidates.index(view.name) * view.settings.stagger_ms
    if not control.leader:
        return not view.is_bound and view.unchanged_ms >= wait_ms
    # A claim that the registry does not decide soon would keep this node from following the leader (rule 6 of leases).
    return view.is_answering and view.silent_ms >= view.settings.takeover_ms + wait_ms


def _patience_ms(view: View, control: Control) -> int:
    """How much longer than others a damaged one waits for one that is sound; nothing where there is none."""
    has_sound = bool((control.in_sync & view.live) - view.damaged - {control.leader})
    if view.name not in view.damaged or not has_sound:
        return 0
    return view.settings.takeover_ms * (2 if control.leader == view.name else 1)


def _found(view: View) -> Decision:
    """No control record yet: a node that led a log of its own brings it; else the smallest live one begins a log.

    A journal that is a copy may lack the end of what was accepted, and waits for a person.
    """
    others = (view.founders & view.live) - {view.name}
    if view.highest_epoch > 0 or view.log.tail_event_id > 0:
        if not view.led_epoch:
            return Wait("there is no control record, but this journal has records: promote a node with --force")
        if others:
            return Wait(f"{min(others)} brings a log of its own, too: only one of them can be this cluster's")
        if view.name not in view.live:
            return Wait()
        return Claim(Control(max(view.highest_epoch, view.led_epoch) + 1, view.name, frozenset({view.name})))
    if others:
        return Wait()
    if view.live and view.name == min(view.live):
        return Claim(Control(1, view.name, frozenset({view.name})))
    return Wait()


def _by_operator(view: View) -> Decision:
    if view.follow is not None:
        return FollowLeader(view.follow, view.is_in_sync)
    control = view.control
    alone = frozenset({view.name})
    if control is None:
        is_new = view.highest_epoch == 0 and view.log.tail_event_id == 0
        return Claim(Control(1 if is_new else next_reign(view.highest_epoch, view.settings), view.name, alone))
    if control.leader == view.name:
        return Claim(Control(max(control.epoch, view.highest_epoch) + 1, view.name, alone, control.unfenced))
    remedy = "make it lead with: pixiu queue promote --force --data DIR, or start it with --follow HOST:PORT"
    if not control.leader:
        return Wait(f"fenced by epoch {control.epoch}: {remedy}")
    return Wait(f"this node last followed {control.leader}: {remedy}")
