"""Steps of the replication machine that its tests share: a leader, a follower, and what the registry says."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pixiu.machines import replication as r

__all__ = [
    "ALONE", "BOTH", "JOURNAL", "MANUAL", "REGISTRY", "follow", "follower", "granted", "has", "leader", "only", "seen",
]  # fmt: skip

C = TypeVar("C")

ALONE = frozenset({"a"})
BOTH = frozenset({"a", "b"})
REGISTRY = r.ReplicaSettings(election=r.Election.REGISTRY, acknowledge=r.Acknowledge.IN_SYNC, epoch_event_ids=1)
MANUAL = replace(REGISTRY, election=r.Election.MANUAL)
JOURNAL = r.LogState(tail_event_id=9, durable_event_id=9, epochs=(r.EpochStart(1, 1),))


def only(commands: list[r.Command], kind: type[C]) -> C:
    found = [command for command in commands if isinstance(command, kind)]
    assert len(found) == 1, commands
    return found[0]


def has(commands: list[r.Command], kind: type[object]) -> bool:
    return any(isinstance(command, kind) for command in commands)


def seen(
    version: int,
    epoch: int,
    leader: str,
    in_sync: frozenset[str],
    *,
    live: str = "ab",
    asked: int | None = 0,
    damaged: str = "",
) -> r.ControlSeen:
    control = r.Control(epoch, leader, in_sync)
    return r.ControlSeen(version, control, frozenset(live), asked, damaged=frozenset(damaged))


def granted(version: int, epoch: int, leader: str, in_sync: frozenset[str], *, asked: int = 0) -> r.ControlSeen:
    """The answer to a change that was made."""
    return replace(seen(version, epoch, leader, in_sync, asked=asked), is_granted=True)


def follower(settings: r.ReplicaSettings = REGISTRY, log: r.LogState = JOURNAL, *, in_sync: bool = True) -> r.Replica:
    """Node b, following a in epoch 2, matched, in session 1."""
    replica = r.Replica("b", settings, log)
    replica.receive(0, r.Started(follow="a"))
    if settings.election is r.Election.REGISTRY:
        replica.receive(0, seen(1, 2, "a", BOTH if in_sync else ALONE))
    else:
        replica.receive(0, r.ControlSeen(0, None))
    commands = replica.receive(1, r.StateHeard(1, 2, 9, in_sync, "a"))
    assert only(commands, r.SendDurable) == r.SendDurable(1, 9, 2)
    return replica


def leader(
    settings: r.ReplicaSettings = REGISTRY, log: r.LogState = JOURNAL, in_sync: frozenset[str] = BOTH
) -> r.Replica:
    """Node a, leading in epoch 2 since event_id 10."""
    replica = r.Replica("a", settings, log)
    replica.receive(0, r.Started())
    claim = only(replica.receive(0, seen(1, 1, "a", in_sync)), r.ChangeControl)
    assert claim.control.epoch == 2
    replica.receive(0, granted(2, 2, "a", in_sync))
    tail = log.tail_event_id
    commands = replica.receive(0, r.EpochAppended(2, tail + 1, tail + 1))
    assert has(commands, r.Lead)
    return replica


def follow(replica: r.Replica, session: int, name: str, last: int, epoch: int, highest: int = 2) -> list[r.Command]:
    return replica.receive(10, r.FollowAsked(session, name, last, epoch, highest, replica.log.tail_event_id))
