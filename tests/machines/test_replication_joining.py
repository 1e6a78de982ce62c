"""A log that was led alone comes under a registry: while it is led, or when its node is started there."""

from __future__ import annotations

from dataclasses import replace

from pixiu.machines import replication as r
from tests.machines.replica_steps import ALONE, BOTH, JOURNAL, MANUAL, REGISTRY, follow, granted, has, only, seen

LEASE_MS = REGISTRY.lease_ms


def alone() -> r.Replica:
    """Node a, leading a log of its own, in epoch 2."""
    replica = r.Replica("a", replace(MANUAL, acknowledge=r.Acknowledge.LOCAL), JOURNAL)
    replica.receive(0, r.Started())
    replica.receive(0, replace(seen(1, 1, "a", ALONE), live=frozenset()))
    replica.receive(0, granted(2, 2, "a", ALONE))
    assert has(replica.receive(0, r.EpochAppended(2, 10, 9)), r.Lead)
    return replica


def joined(replica: r.Replica, at_ms: int = 100) -> list[r.Command]:
    return replica.receive(at_ms + 5, r.Joined(REGISTRY, granted(1, 2, "a", ALONE, asked=at_ms)))


def test_a_leader_that_joins_leads_on_in_its_epoch_and_no_write_waits() -> None:
    replica = alone()
    commands = joined(replica)
    assert replica.state is r.State.LEADING and replica.epoch == 2
    assert not has(commands, r.StopLeading) and not has(commands, r.AppendEpoch) and not has(commands, r.RefuseWrites)
    assert only(replica.receive(120, r.Flushed(12)), r.Committed).through == 12


def test_from_then_on_it_leads_by_lease_alone() -> None:
    replica = alone()
    joined(replica)
    renewal = only(replica.receive(100 + REGISTRY.control_poll_ms, r.Ticked()), r.ChangeControl)
    assert (renewal.expected_version, renewal.control) == (1, r.Control(2, "a", ALONE))
    refused = only(replica.receive(100 + LEASE_MS, r.Ticked()), r.RefuseWrites)
    assert "lease" in refused.reason
    assert not has(replica.receive(101 + LEASE_MS, r.Flushed(12)), r.Committed)


def test_followers_that_come_are_waited_for() -> None:
    replica = alone()
    joined(replica)
    follow(replica, 1, "b", 9, 1)
    replica.receive(120, r.Flushed(11))
    wanted = only(replica.receive(130, r.FollowerDurable(1, 11, 2, 110)), r.ChangeControl)
    assert wanted.control == r.Control(2, "a", BOTH)
    replica.receive(140, replace(granted(2, 2, "a", BOTH, asked=130)))
    assert not has(replica.receive(150, r.Flushed(12)), r.Committed)
    assert only(replica.receive(160, r.FollowerDurable(1, 12, 2)), r.Committed).through == 12


def started(led_epoch: int, *, name: str = "a", log: r.LogState = JOURNAL, founders: str = "a") -> list[r.Command]:
    """What a node does that is started at a registry without a record, with b beside it."""
    replica = r.Replica(name, REGISTRY, log, led_epoch=led_epoch)
    replica.receive(0, r.Started())
    return replica.receive(0, r.ControlSeen(0, None, frozenset("ab"), 0, founders=frozenset(founders)))


def test_a_directory_that_led_alone_brings_its_log_and_opens_a_new_epoch() -> None:
    claim = only(started(7), r.ChangeControl)
    assert (claim.expected_version, claim.control) == (0, r.Control(8, "a", ALONE))


def test_a_copy_waits_for_a_person() -> None:
    commands = started(0, founders="")
    assert "--force" in only(commands, r.Alarm).text and not has(commands, r.ChangeControl)


def test_an_empty_node_leaves_it_to_the_one_that_brings_a_log() -> None:
    assert not has(started(0, log=r.LogState(), founders="b"), r.ChangeControl)
    assert has(started(0, log=r.LogState(), founders=""), r.ChangeControl)


def test_of_two_that_bring_a_log_neither_does() -> None:
    commands = started(7, founders="ab")
    assert "only one of them" in only(commands, r.Alarm).text and not has(commands, r.ChangeControl)


def comes_to(record: r.ControlSeen, *, led_epoch: int = 7) -> tuple[r.Replica, list[r.Command]]:
    """Node a, which led a log of its own, is started at a registry that has this record."""
    replica = r.Replica("a", REGISTRY, JOURNAL, led_epoch=led_epoch)
    commands = replica.receive(0, r.Started())
    return replica, [*commands, *replica.receive(0, record), *replica.receive(10 * LEASE_MS, r.Ticked())]


def test_a_log_of_its_own_is_not_given_up_for_the_one_that_the_registry_has() -> None:
    # It would be cut, or replaced by a snapshot; or its higher epoch would end the leader's reign for good.
    for members in (frozenset("b"), frozenset("bc"), frozenset("ab")):
        replica, commands = comes_to(seen(5, 3, "b", members))
        assert not any(has(commands, kind) for kind in (r.Follow, r.ChangeControl, r.FetchSnapshot))
        assert "log of its own" in only(commands, r.Alarm).text
        assert replica.state is r.State.JOINING
    assert has(comes_to(seen(5, 3, "b", frozenset("b")), led_epoch=0)[1], r.Follow), "a replica follows"


def test_whoever_has_brought_its_log_before_it_died_goes_on_with_it() -> None:
    _, commands = comes_to(seen(1, 8, "a", ALONE))
    assert {each.control for each in commands if isinstance(each, r.ChangeControl)} == {r.Control(9, "a", ALONE)}


def test_whoever_has_brought_its_log_follows_the_next_leader_as_others_do() -> None:
    replica = r.Replica("a", REGISTRY, JOURNAL, led_epoch=7)
    replica.receive(0, r.Started())
    replica.receive(0, r.ControlSeen(0, None, frozenset("ab"), 0, founders=frozenset("a")))
    replica.receive(1, granted(1, 8, "a", ALONE))
    assert has(replica.receive(2, r.EpochAppended(8, 10, 9)), r.Lead)
    replica.receive(3, r.SessionLost())
    replica.receive(4, r.LeadingStopped(replica.log))
    commands = replica.receive(5, seen(4, 9, "b", BOTH))
    assert only(commands, r.Follow).leader == "b"
