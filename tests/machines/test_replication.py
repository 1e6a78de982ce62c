"""The replication machine, one step at a time. Whole clusters are in tests/sim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pixiu.machines import replication as r
from tests.machines.replica_steps import (
    ALONE,
    BOTH,
    JOURNAL,
    MANUAL,
    REGISTRY,
    follow,
    follower,
    granted,
    has,
    leader,
    only,
    seen,
)

# --- Who leads -------------------------------------------------------------------------------------------------


def test_the_smallest_live_node_opens_the_first_epoch() -> None:
    for name, expected in (("a", True), ("b", False)):
        replica = r.Replica(name, REGISTRY, r.LogState())
        assert replica.receive(0, r.Started()) == [r.ReadControl(0)]
        commands = replica.receive(5, r.ControlSeen(0, None, frozenset("ab"), 0))
        assert has(commands, r.ChangeControl) is expected


def test_a_journal_with_records_is_not_led_by_anyone_when_the_control_record_is_gone() -> None:
    replica = r.Replica("a", REGISTRY, JOURNAL)
    replica.receive(0, r.Started())
    commands = replica.receive(0, r.ControlSeen(0, None, frozenset("a"), 0))
    assert "--force" in only(commands, r.Alarm).text
    assert has(replica.receive(0, r.PromoteAsked(force=True)), r.ChangeControl)


def test_a_leader_that_comes_back_takes_a_new_epoch() -> None:
    replica = leader()
    assert replica.state is r.State.LEADING
    assert replica.log.epochs == (r.EpochStart(1, 1), r.EpochStart(2, 10))


def test_leading_starts_only_when_the_epochs_record_is_durable() -> None:
    replica = r.Replica("a", REGISTRY, JOURNAL)
    replica.receive(0, r.Started())
    replica.receive(0, seen(1, 1, "a", ALONE))
    assert replica.receive(0, granted(2, 2, "a", ALONE)) == [r.AppendEpoch(2, 1)]
    assert not replica.accepts_writes
    assert "not the leader" in only(follow(replica, 7, "b", 9, 1), r.RefuseFollower).reason
    assert has(replica.receive(3, r.EpochAppended(2, 10, 10)), r.AcceptWrites)


def test_a_follower_that_is_not_in_sync_waits_instead() -> None:
    replica = follower(in_sync=False)
    assert not has(replica.receive(20, seen(1, 2, "a", ALONE, live="b")), r.ChangeControl)


def test_an_emptied_journal_does_not_lead_although_the_record_calls_it_in_sync() -> None:
    replica = r.Replica("b", REGISTRY, r.LogState())
    replica.receive(0, r.Started())
    replica.receive(0, seen(3, 2, "a", BOTH, live="b"))
    commands = replica.receive(5, seen(4, 2, "", BOTH, live="b"))
    assert not has(commands, r.ChangeControl)
    assert "empty" in only(commands, r.Alarm).text


def test_a_lost_answer_to_a_claim_is_made_up_for_by_reading() -> None:
    replica = follower()
    replica.receive(20, seen(1, 2, "", BOTH, live="b"))
    commands = replica.receive(2_000, r.Ticked())
    assert has(commands, r.ReadControl)
    commands = replica.receive(2_010, seen(2, 3, "b", frozenset("b"), live="b", asked=2_000))
    assert has(commands, r.AppendEpoch)


def test_an_older_version_of_the_record_is_ignored() -> None:
    replica = leader()
    assert replica.receive(5, seen(1, 1, "b", BOTH)) == []
    assert replica.state is r.State.LEADING


# --- What is committed -----------------------------------------------------------------------------------------


def test_a_record_is_committed_when_every_in_sync_member_has_flushed_it() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    assert not has(replica.receive(11, r.Flushed(15)), r.Committed)
    assert only(replica.receive(12, r.FollowerDurable(7, 12, 2, 10)), r.Committed).through == 12
    assert only(replica.receive(13, r.FollowerDurable(7, 20, 2)), r.Committed).through == 15


def test_local_acknowledgement_needs_only_the_own_disk() -> None:
    replica = leader(replace(REGISTRY, acknowledge=r.Acknowledge.LOCAL))
    follow(replica, 7, "b", 9, 1)
    replica.receive(10, r.FollowerDurable(7, 9, 2, 10))
    assert only(replica.receive(11, r.Flushed(15)), r.Committed).through == 15


def test_a_claim_of_another_epoch_or_session_counts_for_nothing() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    replica.receive(11, r.Flushed(15))
    assert replica.receive(12, r.FollowerDurable(7, 15, 1)) == []
    assert replica.receive(12, r.FollowerDurable(6, 15, 2)) == []


def test_end_of_a_followers_journal_counts_only_once_it_is_reported_as_flushed() -> None:
    replica = leader()
    replica.receive(9, r.Flushed(12))
    follow(replica, 7, "b", 12, 2)
    replica.receive(10, r.FollowerDurable(7, 9, 2, 10))
    assert not has(replica.receive(11, r.Flushed(13)), r.Committed)
    assert only(replica.receive(12, r.FollowerDurable(7, 12, 2, 10)), r.Committed).through == 12


def test_a_silent_member_is_let_go_before_anything_is_acknowledged_without_it() -> None:
    replica = leader()
    late = REGISTRY.in_sync_timeout_ms + 1
    replica.receive(late - 5, seen(2, 2, "a", BOTH, asked=late - 10))
    assert not has(replica.receive(late, r.Flushed(15)), r.Committed)
    change = only(replica.receive(late, r.Ticked()), r.ChangeControl)
    assert change.control.in_sync == ALONE
    assert not has(replica.receive(late + 1, r.Flushed(16)), r.Committed), "the change is not yet decided"
    assert only(replica.receive(late + 2, granted(3, 2, "a", ALONE, asked=late)), r.Committed).through == 16


def test_a_newcomer_must_have_a_record_from_the_moment_it_is_proposed() -> None:
    replica = leader(in_sync=ALONE)
    follow(replica, 7, "b", 9, 1)
    change = only(replica.receive(11, r.FollowerDurable(7, 10, 2, 10)), r.ChangeControl)
    assert change.control.in_sync == BOTH
    assert not has(replica.receive(12, r.Flushed(15)), r.Committed)
    assert only(replica.receive(13, r.FollowerDurable(7, 15, 2)), r.Committed).through == 15


def test_a_follower_that_lacks_committed_records_is_not_proposed() -> None:
    replica = leader(in_sync=ALONE)
    replica.receive(5, r.Flushed(15))
    follow(replica, 7, "b", 9, 1)
    assert not has(replica.receive(11, r.FollowerDurable(7, 12, 2, 10)), r.ChangeControl)


def test_below_min_isr_writes_are_refused_and_nothing_is_committed() -> None:
    replica = leader(replace(REGISTRY, min_isr=2), in_sync=ALONE)
    assert not replica.accepts_writes
    assert not has(replica.receive(1, r.Flushed(11)), r.Committed)
    follow(replica, 7, "b", 9, 1)
    replica.receive(12, r.FollowerDurable(7, 11, 2, 10))
    commands = replica.receive(13, seen(3, 2, "a", BOTH, asked=12))
    assert has(commands, r.AcceptWrites)
    assert only(commands, r.Committed).through == 11


# --- When a leader stops ---------------------------------------------------------------------------------------


def test_a_follower_with_a_higher_epoch_fences_the_leader() -> None:
    replica = leader()
    commands = follow(replica, 7, "b", 9, 1, highest=5)
    assert only(commands, r.RefuseFollower).reason == "fenced, epoch 5"
    assert has(commands, r.StopLeading)
    assert replica.state is r.State.FENCED
    assert not replica.accepts_writes


@pytest.mark.parametrize(
    "event",
    [seen(3, 3, "b", BOTH), r.FollowerDurable(7, 9, 3)],
    ids=["the record names another", "a follower reports a higher epoch and the lease is over"],
)
def test_a_leader_stops_when(event: r.Event) -> None:
    replica = leader()
    assert has(replica.receive(5, event), r.StopLeading)
    assert replica.receive(6, r.Flushed(20)) == []


def test_a_fenced_leader_follows_only_after_its_disk_has_come_to_rest() -> None:
    replica = leader()
    replica.receive(5, seen(3, 3, "b", BOTH))
    assert not has(replica.receive(6, r.Ticked()), r.Follow)
    longer = replace(replica.log, tail_event_id=14, durable_event_id=14)
    assert replica.receive(7, r.LeadingStopped(longer)) == [r.ReadControl(7)]
    assert only(replica.receive(8, seen(3, 3, "b", BOTH)), r.Follow) == r.Follow(1, "b", 14, 2, 3)


def test_a_refused_change_alone_does_not_depose_a_leader() -> None:
    replica = leader()
    assert replica.receive(5, r.ControlRefused(2)) == [r.ReadControl(5)]
    assert replica.state is r.State.LEADING


# --- What a follower is sent -----------------------------------------------------------------------------------


def test_a_follower_whose_journal_is_a_prefix_gets_what_follows() -> None:
    commands = follow(leader(), 7, "b", 6, 1)
    assert commands == [r.SendState(7, 2, 0, in_sync=True, stamp_ms=10), r.StreamAfter(7, 6)]


def test_a_diverging_follower_is_told_where_to_cut() -> None:
    assert follow(leader(), 7, "b", 12, 1) == [r.SendTruncate(7, 9, 1)]


@pytest.mark.feature("X53")
def test_a_follower_that_needs_what_retention_removed_gets_a_snapshot() -> None:
    replica = leader()
    replica.receive(1, r.Trimmed(5))
    assert follow(replica, 7, "b", 3, 1) == [r.SendTooFar(7, 5)]
    assert has(follow(replica, 8, "b", 4, 1), r.StreamAfter)


def test_a_follower_that_was_sent_more_than_is_flushed_here_is_not_told_to_cut_it() -> None:
    replica = leader()
    commands = replica.receive(9, r.FollowAsked(7, "b", 14, 2, 2, own_tail_event_id=20))
    assert only(commands, r.StreamAfter).event_id == 14


def test_a_follower_that_connects_again_replaces_its_old_connection() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    assert only(follow(replica, 8, "b", 9, 1), r.CloseFollower).session == 7


def test_a_follower_that_stands_still_is_disconnected() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    replica.receive(11, r.FollowerDurable(7, 9, 2))
    late = 12 + REGISTRY.in_sync_timeout_ms
    replica.receive(late, r.FollowerDurable(7, 9, 2))
    assert has(replica.receive(late, r.Ticked()), r.CloseFollower)


def test_retention_waits_for_in_sync_members() -> None:
    replica = leader()
    follow(replica, 7, "b", 4, 1)
    assert replica.needed_after == 0
    replica.receive(11, r.FollowerDurable(7, 6, 2))
    assert replica.needed_after == 6


# --- What a follower does --------------------------------------------------------------------------------------


def test_frames_are_appended_reported_when_flushed_and_shown_when_committed() -> None:
    replica = follower()
    frames = r.FramesArrived(1, 10, 12, (r.EpochStart(2, 10),), 11)
    assert replica.receive(5, frames) == [r.Append(10, 12)]
    assert replica.receive(6, r.Flushed(12)) == [r.SendDurable(1, 12, 2), r.Committed(11)]
    assert replica.receive(7, r.FramesArrived(1, 13, 12, (), 12)) == [r.Committed(12)]


def test_a_repeat_is_not_appended_again() -> None:
    replica = follower()
    frames = r.FramesArrived(1, 10, 12, (r.EpochStart(2, 10),), 9)
    replica.receive(5, frames)
    assert not has(replica.receive(6, frames), r.Append)


@pytest.mark.parametrize(
    "frames",
    [
        r.FramesArrived(1, 11, 12, (), 9),
        r.FramesArrived(1, 10, 12, (r.EpochStart(3, 10),), 9),
        r.FramesArrived(1, 10, 12, (r.EpochStart(1, 10),), 9),
    ],
    ids=["a hole", "an epoch above the leader's", "an epoch that goes back"],
)
def test_what_does_not_fit_starts_the_session_anew(frames: r.FramesArrived) -> None:
    commands = follower().receive(5, frames)
    assert commands == [r.Unfollow(1), r.Follow(2, "a", 9, 1, 2)]


def test_frames_of_another_session_or_before_the_journals_match_are_dropped() -> None:
    replica = follower()
    assert replica.receive(5, r.FramesArrived(9, 10, 12, (), 12)) == []
    replica.receive(6, r.FramesArrived(1, 99, 99, (), 9))  # a hole: session 2 begins
    assert replica.receive(7, r.FramesArrived(2, 10, 12, (), 12)) == []


def test_a_leader_of_a_lower_epoch_is_not_followed() -> None:
    replica = follower()
    replica.receive(5, seen(2, 3, "a", BOTH))  # the leader came back in epoch 3: session 2 begins
    commands = replica.receive(6, r.StateHeard(2, 2, 9, True, "a"))
    assert only(commands, r.Unfollow).session == 2
    assert not has(commands, r.SendDurable)


def test_a_silent_leader_is_connected_to_anew() -> None:
    commands = follower().receive(2 + REGISTRY.silence_ms, r.Ticked())
    assert only(commands, r.Follow).session == 2


def test_a_follower_cuts_where_it_is_told_and_asks_again() -> None:
    log = r.LogState(tail_event_id=14, durable_event_id=14, epochs=(r.EpochStart(1, 1), r.EpochStart(2, 10)))
    replica = r.Replica("b", REGISTRY, log)
    replica.receive(0, r.Started())
    assert only(replica.receive(0, seen(5, 4, "a", ALONE)), r.Follow) == r.Follow(1, "a", 14, 2, 4)
    assert replica.receive(1, r.TruncateTold(1, 12, 1)) == [r.Unfollow(1), r.Truncate(9)]
    assert not has(replica.receive(2, r.Ticked()), r.Follow), "not before the cut is on disk"
    assert only(replica.receive(3, r.Truncated(JOURNAL)), r.Follow) == r.Follow(2, "a", 9, 1, 4)


def test_what_was_shown_is_never_cut_but_replaced_by_a_snapshot() -> None:
    replica = r.Replica("b", REGISTRY, replace(JOURNAL, shown_event_id=8))
    replica.receive(0, r.Started())
    replica.receive(0, seen(5, 4, "a", ALONE))
    commands = replica.receive(1, r.TruncateTold(1, 6, 1))
    assert has(commands, r.Alarm)
    assert only(commands, r.FetchSnapshot) == r.FetchSnapshot(1, "a")
    assert replica.state is r.State.FULL_SYNC


def test_a_snapshot_takes_over_the_journal_and_its_epochs() -> None:
    replica = r.Replica("b", REGISTRY, r.LogState())
    replica.receive(0, r.Started())
    replica.receive(0, seen(5, 4, "a", ALONE))
    assert replica.receive(1, r.TooFarTold(1, 30)) == [r.FetchSnapshot(1, "a")]
    log = r.LogState(41, 40, 40, 40, (r.EpochStart(1, 1), r.EpochStart(4, 30)))
    assert only(replica.receive(9, r.SnapshotInstalled(1, log)), r.Follow) == r.Follow(2, "a", 40, 4, 4)
    assert replica.commit_event_id == 40


def test_what_retention_has_removed_was_committed() -> None:
    log = r.LogState(7, 9, 9, 3, (r.EpochStart(1, 1),))
    assert r.Replica("a", REGISTRY, log).commit_event_id == 6


def test_a_failed_append_does_not_advance() -> None:
    replica = follower()
    replica.receive(5, r.FramesArrived(1, 10, 12, (r.EpochStart(2, 10),), 9))
    assert replica.receive(6, r.AppendFailed(JOURNAL)) == [r.Unfollow(1)]
    assert only(replica.receive(6 + REGISTRY.reconnect_ms, r.Ticked()), r.Follow).last_event_id == 9


# --- Without a registry ----------------------------------------------------------------------------------------


def test_a_lone_node_leads_at_once() -> None:
    replica = r.Replica("a", replace(MANUAL, epoch_event_ids=1_000), r.LogState())
    assert replica.receive(0, r.Started()) == [r.ReadControl(0)]
    claim = only(replica.receive(0, r.ControlSeen(0, None)), r.ChangeControl)
    assert replica.receive(1, r.ControlSeen(1, claim.control)) == [r.AppendEpoch(1, 1_000)]
    commands = replica.receive(2, r.EpochAppended(1, 1, 1_000))
    assert commands == [r.Lead(1), r.Committed(1_000), r.AcceptWrites()]


def fence_and_claim(replica: r.Replica, outcome: r.FenceOutcome, *, force: bool = False) -> r.ChangeControl:
    """Promote node b; its former leader answers the fencing request with ``outcome``."""
    fence = only(replica.receive(5, r.PromoteAsked(force=force)), r.Fence)
    return only(replica.receive(6, r.FenceAnswered(fence.attempt, outcome)), r.ChangeControl)


def test_a_promotion_opens_the_next_thousand_of_epochs_and_a_restart_adds_one() -> None:
    replica = follower(MANUAL)
    claim = fence_and_claim(replica, r.FenceOutcome.FENCED)
    assert (claim.control.epoch, claim.control.in_sync) == (1_000, frozenset("b"))
    again = r.Replica("b", MANUAL, JOURNAL)
    again.receive(0, r.Started())
    assert only(again.receive(0, r.ControlSeen(3, claim.control)), r.ChangeControl).control.epoch == 1_001


def test_a_promotion_is_answered_when_the_node_leads() -> None:
    replica = follower(MANUAL)
    claim = fence_and_claim(replica, r.FenceOutcome.FENCED)
    replica.receive(6, r.ControlSeen(1, claim.control))
    assert only(replica.receive(7, r.EpochAppended(1_000, 10, 10)), r.Promoted).epoch == 1_000


def test_a_follower_that_is_not_in_sync_refuses_promotion_unless_forced() -> None:
    replica = follower(MANUAL, in_sync=False)
    assert "not in sync" in only(replica.receive(5, r.PromoteAsked()), r.PromoteRefused).reason
    assert fence_and_claim(replica, r.FenceOutcome.UNKNOWN, force=True).control.leader == "b"


def test_promotion_is_refused_while_the_old_leader_may_accept_writes() -> None:
    replica = follower(MANUAL)
    fence = only(replica.receive(5, r.PromoteAsked()), r.Fence)
    assert (fence.leader, fence.epoch) == ("a", 1_000)
    late = replica.receive(5 + MANUAL.silence_ms, r.Ticked())
    assert "cannot fence the old leader a (no answer" in only(late, r.PromoteRefused).reason
    assert not replica.receive(6_000, r.FenceAnswered(fence.attempt, r.FenceOutcome.FENCED)), "a late answer is ignored"
    assert not replica.has_claim


def test_leader_keeps_fencing_the_old_leader_also_after_a_restart() -> None:
    claim = fence_and_claim(follower(MANUAL), r.FenceOutcome.ABSENT)
    assert claim.control.unfenced == "a"
    again = r.Replica("b", MANUAL, JOURNAL)
    again.receive(0, r.Started())
    claim = only(again.receive(0, r.ControlSeen(3, claim.control)), r.ChangeControl)
    again.receive(1, r.ControlSeen(4, claim.control))
    again.receive(2, r.EpochAppended(1_001, 10, 10))
    first = only(again.receive(3, r.Ticked()), r.Fence)
    assert (first.leader, first.epoch) == ("a", 1_001)
    again.receive(4, r.FenceAnswered(first.attempt, r.FenceOutcome.ABSENT))
    assert not has(again.receive(5, r.Ticked()), r.Fence), "the next attempt waits for reconnect_ms"
    second = only(again.receive(4 + MANUAL.reconnect_ms, r.Ticked()), r.Fence)
    commands = again.receive(5_000, r.FenceAnswered(second.attempt, r.FenceOutcome.FENCED))
    assert only(commands, r.ChangeControl).control.unfenced == ""


def test_a_follower_writes_down_who_leads_and_that_it_is_in_sync() -> None:
    replica = follower(MANUAL)
    commands = replica.receive(5_000, r.StateHeard(1, 2, 9, True, "a"))
    assert only(commands, r.ChangeControl).control == r.Control(2, "a", BOTH)


def test_a_fenced_leader_waits_for_the_operator_also_after_a_restart() -> None:
    replica = r.Replica("a", MANUAL, JOURNAL)
    replica.receive(0, r.Started())
    claim = only(replica.receive(0, r.ControlSeen(1, r.Control(1, "a", ALONE))), r.ChangeControl)
    replica.receive(0, r.ControlSeen(2, claim.control))
    replica.receive(0, r.EpochAppended(2, 10, 10))
    follow(replica, 7, "b", 9, 1, highest=1_000)
    kept = only(replica.receive(11, r.LeadingStopped(replica.log)), r.ChangeControl).control
    assert (kept.epoch, kept.leader) == (1_000, "")
    again = r.Replica("a", MANUAL, replica.log)
    again.receive(0, r.Started())
    assert not has(again.receive(0, r.ControlSeen(3, kept)), r.ChangeControl)
    assert only(again.receive(1, r.FollowTold("b")), r.Follow).highest_epoch == 1_000


def test_two_leaders_of_one_epoch_are_noticed() -> None:
    replica = follower(MANUAL)
    replica.receive(2, r.ControlSeen(1, r.Control(2, "a", BOTH)))
    replica.receive(3, r.FollowTold("c"))
    commands = replica.receive(4, r.StateHeard(2, 2, 9, True, "c"))
    assert "another leader" in only(commands, r.Alarm).text
    assert not has(commands, r.SendDurable)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(AssertionError, match="heartbeat"):
        r.ReplicaSettings(heartbeat_ms=1_000, silence_ms=1_000)
    with pytest.raises(AssertionError, match="lease"):
        r.ReplicaSettings(control_poll_ms=2_000, lease_ms=1_000)
