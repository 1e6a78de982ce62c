"""Who may lead, and for how long: the rules of ``machines.replication.lease``, one step at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pixiu.machines import replication as r
from tests.machines.replica_steps import (
    ALONE,
    BOTH,
    JOURNAL,
    REGISTRY,
    follow,
    follower,
    granted,
    has,
    leader,
    only,
    seen,
)


def wait(
    replica: r.Replica, version: int, in_sync: frozenset[str], *, until: int, live: str = "ab", damaged: str = ""
) -> list[r.Command]:
    """Node a leads in epoch 2, and its record is read again and again without a renewal."""
    commands: list[r.Command] = []
    for now in range(0, until + 1, REGISTRY.control_poll_ms // 2):
        commands += replica.receive(now, seen(version, 2, "a", in_sync, live=live, asked=now, damaged=damaged))
    return commands


def test_in_sync_follower_claims_after_hearing_nothing_for_takeover_ms() -> None:
    replica = follower()  # heard at 1 ms
    assert not has(wait(replica, 1, BOTH, until=REGISTRY.takeover_ms - 500), r.ChangeControl)
    late = REGISTRY.takeover_ms + 1
    commands = replica.receive(late, r.Ticked())
    assert only(commands, r.ChangeControl) == r.ChangeControl(1, r.Control(3, "b", frozenset("b")), late, is_claim=True)
    assert has(commands, r.Unfollow), "a replica does not follow a leader while it claims"
    commands = replica.receive(late + 10, granted(2, 3, "b", frozenset("b"), asked=late))
    assert commands == [r.AppendEpoch(3, 1)]


def test_change_of_the_record_begins_the_silence_again() -> None:
    replica = follower()
    wait(replica, 1, BOTH, until=REGISTRY.takeover_ms - 500)
    changed = REGISTRY.takeover_ms - 200
    replica.receive(changed, seen(2, 2, "a", BOTH, asked=changed - 5))
    assert not has(replica.receive(REGISTRY.takeover_ms + 100, r.Ticked()), r.ChangeControl)


def test_nothing_is_claimed_while_the_registry_does_not_answer() -> None:
    replica = follower()
    late = 2 * REGISTRY.takeover_ms
    assert not has(replica.receive(late, r.Ticked()), r.ChangeControl)
    assert has(replica.receive(late + 10, seen(1, 2, "a", BOTH, asked=late)), r.ChangeControl)


# --- Promises --------------------------------------------------------------------------------------------------


def test_follower_echoes_a_stamp_at_once_and_again_with_what_is_flushed() -> None:
    replica = follower()
    assert only(replica.receive(5, r.StateHeard(1, 2, 9, True, "a", 700)), r.SendDurable).stamp_ms == 700
    frames = r.FramesArrived(1, 10, 12, (r.EpochStart(2, 10),), 9, 710)
    assert replica.receive(6, frames) == [r.Append(10, 12)], "an echo of a moment ago is enough"
    assert only(replica.receive(7, r.Flushed(12)), r.SendDurable) == r.SendDurable(1, 12, 2, 710)
    late = 710 + REGISTRY.heartbeat_ms
    commands = replica.receive(8, r.FramesArrived(1, 13, 14, (), 9, late))
    assert commands == [r.SendDurable(1, 12, 2, late), r.Append(13, 14)], "an echo does not wait for a flush"


def test_echo_is_a_promise_not_to_claim_for_takeover_ms() -> None:
    for stamp, is_claimed in ((-1, True), (700, False)):
        replica = follower()
        replica.receive(1_000, r.StateHeard(1, 2, 9, True, "a", stamp))
        replica._heard_ms = 0  # as if only the promise counted
        at = REGISTRY.takeover_ms + 500
        assert has(replica.receive(at, seen(1, 2, "a", BOTH, asked=at)), r.ChangeControl) is is_claimed


def test_own_reports_without_a_new_stamp_renew_no_promise() -> None:
    replica = follower()
    replica.receive(10, r.StateHeard(1, 2, 9, True, "a", 700))
    made = replica._promise.made_ms
    assert has(replica.receive(10 + REGISTRY.heartbeat_ms, r.Ticked()), r.SendDurable)
    assert replica._promise.made_ms == made == 10


def test_restarted_replica_takes_over_from_nobody_for_takeover_ms() -> None:
    replica = r.Replica("b", REGISTRY, JOURNAL)
    replica.receive(1_000, r.Started())
    replica._seen_ms = 0
    at = 999 + REGISTRY.takeover_ms
    assert not has(replica.receive(at, replace(seen(1, 2, "a", BOTH, asked=at))), r.ChangeControl)
    replica._seen_ms = 0
    assert has(replica.receive(at + 1, seen(1, 2, "a", BOTH, asked=at + 1)), r.ChangeControl)


def test_replica_promises_nothing_until_its_claim_is_decided() -> None:
    replica = follower()
    late = REGISTRY.takeover_ms + 1
    assert has(replica.receive(late, seen(1, 2, "a", BOTH, asked=late)), r.ChangeControl)
    for event in (
        r.Ticked(),
        r.StateHeard(1, 2, 9, True, "a", 700),
        r.SessionLost(),
        seen(1, 2, "a", BOTH, asked=late),
    ):
        commands = replica.receive(late + 1, event)
        assert not has(commands, r.Follow) and not has(commands, r.SendDurable)
    refused = replica.receive(late + 2, r.ControlRefused(1))
    assert not has(refused, r.Follow), "an earlier attempt of the same claim may have been granted"
    assert only(replica.receive(late + 3, seen(2, 2, "a", ALONE, asked=late + 2)), r.Follow).leader == "a"


def test_undecided_claim_is_asked_again_as_it_was() -> None:
    replica = follower()
    late = REGISTRY.takeover_ms + 1
    replica.receive(late, seen(1, 2, "a", BOTH, asked=late))
    again = late + REGISTRY.control_retry_ms
    claim = only(replica.receive(again, r.Ticked()), r.ChangeControl)
    assert (claim.expected_version, claim.control) == (1, r.Control(3, "b", frozenset("b")))


def test_claim_from_before_a_restart_keeps_the_replica_from_promising() -> None:
    replica = r.Replica("b", REGISTRY, JOURNAL)
    replica.receive(0, r.Started(last_leader="a", known_epoch=2, claimed_version=1))
    assert not has(replica.receive(5, r.Ticked()), r.Follow)
    assert not has(replica.receive(6, seen(1, 2, "a", BOTH)), r.Follow)
    assert has(replica.receive(7, seen(2, 2, "a", frozenset("ac"))), r.Follow), "the claim cannot be granted any more"


def test_leader_that_the_registry_replaced_before_a_restart_is_not_followed_after_it() -> None:
    """The first reading after a restart may be of an old record."""
    replica = r.Replica("b", REGISTRY, JOURNAL)
    replica.receive(0, r.Started(known_epoch=3))
    assert not has(replica.receive(5, seen(1, 2, "a", BOTH)), r.SendDurable)
    assert not has(replica.receive(6, r.StateHeard(1, 2, 9, True, "a", 700)), r.SendDurable)


def test_restarted_leader_waits_for_its_own_promise_before_it_leads_again() -> None:
    replica = follower()
    replica.receive(10, r.StateHeard(1, 2, 9, True, "a", 700))
    late_grant = seen(2, 3, "b", BOTH, asked=20)  # of a claim that an earlier process of this replica made
    assert not has(replica.receive(20, late_grant), r.ChangeControl)
    over = 10 + REGISTRY.takeover_ms
    assert has(replica.receive(over, r.Ticked()), r.ChangeControl)


# --- Grants ----------------------------------------------------------------------------------------------------


def granted_by(replica: r.Replica, session: int, stamp: int, *, at: int) -> list[r.Command]:
    return replica.receive(at, r.FollowerDurable(session, 20, 2, stamp))


def test_leader_acknowledges_only_with_a_grant_of_every_in_sync_member() -> None:
    replica = leader(in_sync=frozenset("abc"))
    follow(replica, 7, "b", 9, 1)
    follow(replica, 8, "c", 9, 1)
    replica.receive(11, r.Flushed(20))
    assert not replica.acknowledges(12)
    assert not has(granted_by(replica, 7, 10, at=12), r.AcceptWrites)
    assert has(granted_by(replica, 8, 10, at=13), r.Committed)
    assert replica.acknowledges(13)


def test_lease_counts_from_when_the_stamp_was_sent_by_the_slowest() -> None:
    replica = leader(in_sync=frozenset("abc"))
    follow(replica, 7, "b", 9, 1)
    follow(replica, 8, "c", 9, 1)
    granted_by(replica, 7, 500, at=1_000)
    granted_by(replica, 8, 900, at=1_000)
    assert replica.acknowledges(499 + REGISTRY.lease_ms)
    assert not replica.acknowledges(500 + REGISTRY.lease_ms)


def test_stamp_from_the_future_or_of_another_session_grants_nothing() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    granted_by(replica, 7, 5_000, at=1_000)
    granted_by(replica, 9, 900, at=1_000)
    assert not replica.acknowledges(1_000)


def test_follower_that_grants_nothing_is_not_taken_into_the_in_sync_set() -> None:
    replica = leader(in_sync=ALONE)
    follow(replica, 7, "b", 9, 1)
    assert not has(replica.receive(11, r.FollowerDurable(7, 10, 2)), r.ChangeControl)
    assert has(replica.receive(12, r.FollowerDurable(7, 10, 2, 10)), r.ChangeControl)


def test_member_that_is_let_go_must_grant_until_the_registry_has_let_it_go() -> None:
    replica = leader(in_sync=frozenset("abc"))
    follow(replica, 7, "b", 9, 1)
    late = REGISTRY.in_sync_timeout_ms + 1
    granted_by(replica, 7, late - 1, at=late)
    change = only(replica.receive(late, r.Ticked()), r.ChangeControl)
    assert change.control.in_sync == BOTH
    assert not replica.acknowledges(late)
    replica.receive(late + 1, granted(3, 2, "a", BOTH, asked=late))
    assert replica.acknowledges(late + 1)


def test_leader_with_followers_does_not_write_the_record_and_needs_no_answer_of_the_registry() -> None:
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    for now in range(100, 20 * REGISTRY.lease_ms, 500):
        assert not has(replica.receive(now, r.Ticked()), r.ChangeControl)
        granted_by(replica, 7, now - 50, at=now)
        replica.receive(now, r.SessionLost())
        assert replica.acknowledges(now)


def test_replica_configured_alone_needs_no_lease() -> None:
    for replicas, is_acknowledged in ((0, False), (3, False), (1, True)):
        replica = leader(replace(REGISTRY, replicas=replicas), in_sync=ALONE)
        assert replica.acknowledges(2 * REGISTRY.lease_ms) is is_acknowledged
        assert has(replica.receive(REGISTRY.control_poll_ms, r.Ticked()), r.ChangeControl) is not is_acknowledged


def test_follower_with_a_higher_epoch_does_not_stop_a_leader_that_holds_the_lease() -> None:
    """It may be a replica of another cluster. Only the control record replaces a leader."""
    replica = leader()
    follow(replica, 7, "b", 9, 1)
    granted_by(replica, 7, 10, at=11)
    commands = follow(replica, 8, "stranger", 9, 1, highest=5)
    assert has(commands, r.RefuseFollower) and has(commands, r.ReadControl)
    assert not has(replica.receive(12, r.FollowerDurable(7, 9, 5)), r.StopLeading)
    assert replica.acknowledges(13)


def test_forced_promotion_waits_for_the_end_of_the_promise() -> None:
    replica = follower()
    replica.receive(10, r.StateHeard(1, 2, 9, True, "a", 700))
    assert has(replica.receive(11, r.PromoteAsked(force=True)), r.Unfollow)
    assert not has(replica.receive(9 + REGISTRY.takeover_ms, r.Ticked()), r.ChangeControl)
    claim = only(replica.receive(10 + REGISTRY.takeover_ms, r.Ticked()), r.ChangeControl)
    assert claim.control == r.Control(3, "b", frozenset("b"))


# --- Without the registry --------------------------------------------------------------------------------------


def test_replica_follows_its_last_leader_until_the_registry_answers() -> None:
    replica = r.Replica("b", REGISTRY, JOURNAL)
    replica.receive(0, r.Started(last_leader="a"))
    assert only(replica.receive(5, r.Ticked()), r.Follow).leader == "a"
    assert only(replica.receive(6, r.StateHeard(1, 2, 9, True, "a", 700)), r.SendDurable).stamp_ms == 700
    assert not has(replica.receive(7, seen(1, 2, "a", BOTH)), r.Follow), "the stream goes on"
    assert replica.state is r.State.IN_SYNC


def test_address_that_belongs_to_another_replica_now_gets_no_promise() -> None:
    replica = r.Replica("b", REGISTRY, JOURNAL)
    replica.receive(0, r.Started(last_leader="a"))
    replica.receive(5, r.Ticked())
    commands = replica.receive(6, r.StateHeard(1, 2, 9, True, "c", 700))
    assert not has(commands, r.SendDurable) and has(commands, r.Unfollow)


def test_in_sync_member_keeps_its_journal_until_the_leader_has_let_it_go() -> None:
    """A new leader does not know yet how much is committed, and its snapshot may have less than this journal."""
    for in_sync, is_fetched in ((BOTH, False), (ALONE, True)):
        replica = r.Replica("b", REGISTRY, replace(JOURNAL, shown_event_id=8))
        replica.receive(0, r.Started())
        replica.receive(0, seen(5, 4, "a", in_sync))
        commands = replica.receive(1, r.TruncateTold(1, 6, 1))
        assert has(commands, r.FetchSnapshot) is is_fetched
        assert has(commands, r.Unfollow) is not is_fetched, "it connects again, until it is let go"


# --- Leaving, and the lease of the registry --------------------------------------------------------------------


def test_a_leader_that_is_gone_from_the_registry_but_whose_lease_may_run_is_not_replaced() -> None:
    replica = follower()
    assert not has(replica.receive(20, seen(1, 2, "a", BOTH, live="b")), r.ChangeControl)


def test_a_record_that_was_given_up_is_claimed_at_once() -> None:
    replica = follower()
    commands = replica.receive(20, seen(2, 2, "", frozenset("b"), asked=15))
    assert only(commands, r.ChangeControl).control == r.Control(3, "b", frozenset("b"))


def test_a_leader_that_leaves_stops_first_and_then_gives_the_record_up() -> None:
    replica = leader()
    assert has(replica.receive(5, r.LeaveAsked()), r.StopLeading)
    change = only(replica.receive(6, r.LeadingStopped(replica.log)), r.ChangeControl)
    assert change.control == r.Control(2, "", frozenset("b"))
    assert replica.receive(7, granted(3, 2, "", frozenset("b"), asked=6)) == [r.Left()]
    assert not has(replica.receive(9_000, r.Ticked()), r.Follow)


def test_a_leader_alone_that_leaves_stays_the_one_that_may_lead() -> None:
    replica = leader(in_sync=ALONE)
    replica.receive(5, r.LeaveAsked())
    assert only(replica.receive(6, r.LeadingStopped(replica.log)), r.ChangeControl).control == r.Control(2, "", ALONE)


def test_a_follower_that_leaves_has_nothing_to_hand_over() -> None:
    assert has(follower().receive(5, r.LeaveAsked()), r.Left)


def test_leader_alone_renews_its_lease_by_writing_the_record_again() -> None:
    replica = leader(in_sync=ALONE)
    poll = REGISTRY.control_poll_ms
    renewal = only(replica.receive(poll, r.Ticked()), r.ChangeControl)
    assert renewal == r.ChangeControl(2, r.Control(2, "a", ALONE), poll)
    assert not has(replica.receive(poll + 100, r.Ticked()), r.ChangeControl)


@pytest.mark.feature("X50")
def test_of_two_in_sync_followers_the_smaller_claims_first_and_the_other_a_little_later() -> None:
    everyone = frozenset("abc")
    late = REGISTRY.takeover_ms
    for name, claims_at in (("b", late), ("c", late + REGISTRY.stagger_ms)):
        replica = r.Replica(name, REGISTRY, JOURNAL)
        replica.receive(0, r.Started())
        wait(replica, 1, everyone, until=late - 500, live="abc")
        assert not has(replica.receive(claims_at - 1, r.Ticked()), r.ChangeControl)
        assert has(replica.receive(claims_at, r.Ticked()), r.ChangeControl)


def test_without_an_answer_of_the_registry_nothing_is_acknowledged_after_the_lease() -> None:
    replica = leader(in_sync=ALONE)
    lease = REGISTRY.lease_ms
    assert has(replica.receive(lease - 1, r.Flushed(11)), r.Committed)
    commands = replica.receive(lease, r.Flushed(12))
    assert not has(commands, r.Committed)
    assert has(commands, r.RefuseWrites)
    assert not has(replica.receive(lease + 1, seen(2, 2, "a", ALONE, asked=None)), r.Committed), (
        "a watch proves nothing"
    )
    assert not has(replica.receive(lease + 2, seen(2, 2, "a", ALONE, asked=lease)), r.Committed), "nor does a reading"
    commands = replica.receive(lease + 3, granted(3, 2, "a", ALONE, asked=lease))
    assert only(commands, r.Committed).through == 12
    assert has(commands, r.AcceptWrites)


EVERYONE = frozenset("abc")
LATE = REGISTRY.takeover_ms


def claims_at(name: str, damaged: str, *, leader: str = "a", in_sync: frozenset[str] = EVERYONE) -> int:
    """When this node asks to lead, as time passes over a record that nobody renews."""
    replica = r.Replica(name, REGISTRY, JOURNAL)
    replica.receive(0, r.Started())
    live = "".join(sorted(in_sync | {name}))
    for now in range(0, 10 * LATE, 100):
        if has(
            replica.receive(now, seen(1, 2, leader, in_sync, live=live, asked=now, damaged=damaged)), r.ChangeControl
        ):
            return now
    return -1


def test_one_whose_journal_is_damaged_lets_the_sound_ones_go_first() -> None:
    """It would be the first by its name."""
    assert claims_at("c", damaged="b") == LATE, "who is sound is not held up"
    assert claims_at("b", damaged="b") >= 2 * LATE
    assert claims_at("b", damaged="b", leader="", in_sync=frozenset("bc")) >= LATE, (
        "nor does it take at once what was given up"
    )
    assert claims_at("c", damaged="b", leader="", in_sync=frozenset("bc")) == 0


def test_one_whose_journal_is_damaged_leads_where_nobody_is_sound() -> None:
    assert claims_at("b", damaged="b", in_sync=BOTH) == LATE, "the leader that is gone counts for nothing"
    assert claims_at("b", damaged="bc") == LATE
    assert claims_at("c", damaged="bc") == LATE + REGISTRY.stagger_ms


def test_a_leader_that_comes_back_with_damage_waits_for_the_others() -> None:
    assert claims_at("a", damaged="") == 0
    assert claims_at("a", damaged="abc") == 0
    assert claims_at("a", damaged="a") == 2 * LATE, "longer than a sound one needs"


def stepped_down() -> r.Replica:
    """Node a, which led and has handed over to b."""
    replica = leader()
    assert has(replica.receive(5, r.LeaveAsked(stays=True)), r.StopLeading)
    change = only(replica.receive(6, r.LeadingStopped(replica.log)), r.ChangeControl)
    assert change.control == r.Control(2, "", BOTH), "it holds everything committed, as before"
    given_up = replace(granted(3, 2, "", BOTH, asked=6), damaged=ALONE)
    assert not has(replica.receive(7, given_up), r.ChangeControl)
    return replica


def test_a_leader_that_finds_damage_hands_over_and_follows() -> None:
    replica = stepped_down()
    assert only(replica.receive(20, seen(4, 3, "b", BOTH, asked=15, damaged="a")), r.Follow).leader == "b"
    assert replica.state is r.State.IN_SYNC


def test_a_leader_that_steps_down_waits_for_others_though_its_name_is_the_smallest() -> None:
    """Its journal is sound: an engine of its stores is down."""
    replica = leader()
    replica.receive(5, r.LeaveAsked(stays=True))
    replica.receive(6, r.LeadingStopped(replica.log))
    replica.receive(7, granted(3, 2, "", BOTH, asked=6))
    for now in range(10, LATE, 100):
        assert not has(replica.receive(now, seen(3, 2, "", BOTH, asked=now)), r.ChangeControl)
    assert only(replica.receive(LATE, seen(4, 3, "b", BOTH, asked=LATE)), r.Follow).leader == "b"


def test_a_leader_that_handed_over_leads_again_if_nobody_takes_it() -> None:
    """The other one may die at that very moment; or it is there, and does nothing."""
    replica = stepped_down()
    claim = only(replica.receive(20, seen(3, 2, "", BOTH, live="a", asked=15, damaged="a")), r.ChangeControl)
    assert claim.control == r.Control(3, "a", ALONE)
    replica = stepped_down()
    claims: list[tuple[int, r.Control]] = []
    for now in range(10, 3 * LATE, 100):
        commands = replica.receive(now, seen(3, 2, "", BOTH, asked=now, damaged="a"))
        claims += [(now, each.control) for each in commands if isinstance(each, r.ChangeControl)]
    assert claims[0][0] >= LATE and claims[0][1] == r.Control(3, "a", BOTH)


def test_a_leader_with_damage_does_not_hand_over_to_one_that_is_gone() -> None:
    replica = leader()
    replica.receive(5, seen(2, 2, "a", BOTH, live="a", damaged="a"))
    assert replica.receive(6, r.LeaveAsked(stays=True)) == []
    assert replica.state is r.State.LEADING


def test_a_leader_with_damage_and_nobody_sound_in_sync_goes_on() -> None:
    replica = leader(in_sync=ALONE)
    assert replica.receive(5, r.LeaveAsked(stays=True)) == []
    assert replica.state is r.State.LEADING
    replica = leader()
    replica.receive(5, seen(2, 2, "a", BOTH, damaged="ab"))
    assert replica.receive(6, r.LeaveAsked(stays=True)) == []
    assert replica.state is r.State.LEADING


def test_a_follower_has_nothing_to_hand_over_when_it_finds_damage() -> None:
    replica = follower()
    assert replica.receive(5, r.LeaveAsked(stays=True)) == []
    assert replica.state is r.State.IN_SYNC


@pytest.mark.parametrize("log", [JOURNAL, r.LogState()])
def test_a_record_without_an_in_sync_set_is_of_a_log_in_kafka_and_no_journal_takes_its_place(log: r.LogState) -> None:
    """Not even that of the name that owned it last: carriers would take its events for known."""
    replica = r.Replica("a", REGISTRY, log)
    replica.receive(0, r.Started())
    commands = wait(replica, 1, frozenset(), until=3 * REGISTRY.takeover_ms)
    assert not has(commands, r.ChangeControl) and not has(commands, r.Follow)
