"""Where two copies of one journal stop being the same.

Every record carries the epoch of the leader that wrote it, and an epoch has one leader, which never
rewrites what it wrote. So a journal is told by its end and by the first event_id of each epoch in it, and
two journals that hold the same epoch at the same event_id are equal up to there::

    leader     epochs (1, 1) (3, 8)             1 1 1 1 1 1 1 3 3 3      tail 10
    follower   epochs (1, 1) (2, 6)             1 1 1 1 1 2 2 2 2        tail 9, epoch 2
                                                        ^ common: (5, 1)

The follower sends only its last event_id and that record's epoch. The leader answers with the largest point
that both can share; the follower cuts there, within its own epochs, and asks again. Two rounds are the rule,
one more for each change of leader that only one of the two has seen.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EpochStart", "LogState", "Point", "common_point", "epoch_at"]


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The first event_id that the leader of ``epoch`` wrote."""

    epoch: int
    first_event_id: int


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a journal: the last event_id of a record, and that record's epoch. (0, 0) is the beginning."""

    event_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LogState:
    """What the machine knows of its own journal.

    Event ids are dense: a record starts where the one before it ended. ``durable_event_id`` is flushed,
    ``shown_event_id`` is what readers of this node may have seen (kept across restarts, possibly a little
    behind), ``oldest_event_id`` the first one still in the journal (one past the tail when it is empty).
    """

    oldest_event_id: int = 1
    tail_event_id: int = 0
    durable_event_id: int = 0
    shown_event_id: int = 0
    epochs: tuple[EpochStart, ...] = ()

    @property
    def tail_epoch(self) -> int:
        """Epoch of the last record, 0 when there is none."""
        return self.epochs[-1].epoch if self.epochs else 0


def epoch_at(epochs: tuple[EpochStart, ...], event_id: int) -> int:
    """Epoch of the record that holds ``event_id``, 0 when it is older than all that is known."""
    for start in reversed(epochs):
        if start.first_event_id <= event_id:
            return start.epoch
    return 0


def common_point(log: LogState, limit: Point) -> Point:
    """The largest point of this journal at or before ``limit.event_id`` whose epoch is at most ``limit.epoch``.

    The leader asks it with a follower's end: the answer equals that end exactly if the follower's journal is a
    prefix of this one. The follower asks it with the leader's answer, to know where to cut.
    """
    end = log.tail_event_id
    for start in reversed(log.epochs):
        if start.epoch <= limit.epoch:
            break
        end = start.first_event_id - 1
    event_id = min(limit.event_id, end)
    return Point(event_id, epoch_at(log.epochs, event_id))
