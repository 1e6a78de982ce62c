"""Who may lead, and for how long: the lease from both sides, one step at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pixiu.machines import replication as r
from tests.machines.replica_steps import ALONE, BOTH, JOURNAL, REGISTRY, follower, granted, has, leader, only, seen


def wait(
    replica: r.Replica, version: int, in_sync: frozenset[str], *, until: int, live: str = "ab", damaged: str = ""
) -> list[r.Command]:
    """Node a leads in epoch 2, and its record is read again and again without a renewal."""
    commands: list[r.Command] = []
    for now in range(0, until + 1, REGISTRY.control_poll_ms // 2):
        commands += replica.receive(now, seen(version, 2, "a", in_sync, live=live, asked=now, damaged=damaged))
    return commands


def test_an_in_sync_follower_takes_over_when_the_lease_was_not_renewed() -> None:
    replica = follower()
    assert not has(wait(replica, 1, BOTH, until=REGISTRY.takeover_ms - 500), r.ChangeControl)
    late = REGISTRY.takeover_ms + 1
    claim = only(replica.receive(late, r.Ticked()), r.ChangeControl)
    assert claim == r.ChangeControl(1, r.Control(3, "b", frozenset("b")), late)
    commands = replica.receive(late + 10, granted(2, 3, "b", frozenset("b"), asked=late))
    assert commands == [r.AppendEpoch(3, 1)]


def test_a_renewal_starts_the_wait_anew() -> None:
    replica = follower()
    wait(replica, 1, BOTH, until=REGISTRY.takeover_ms - 500)
    renewed = REGISTRY.takeover_ms - 200
    replica.receive(renewed, seen(2, 2, "a", BOTH, asked=renewed - 5))
    assert not has(replica.receive(REGISTRY.takeover_ms + 100, r.Ticked()), r.ChangeControl)


def test_a_gap_in_the_registrys_answers_starts_the_wait_anew() -> None:
    replica = follower()
    late = 2 * REGISTRY.takeover_ms
    assert not has(replica.receive(late, seen(1, 2, "a", BOTH, asked=late - 5)), r.ChangeControl)
    assert not has(replica.receive(late + 500, r.Ticked()), r.ChangeControl)


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


def test_a_leader_renews_its_lease_by_writing_the_record_again() -> None:
    replica = leader()
    poll = REGISTRY.control_poll_ms
    renewal = only(replica.receive(poll, r.Ticked()), r.ChangeControl)
    assert renewal == r.ChangeControl(2, r.Control(2, "a", BOTH), poll)
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
