"""What ``pixiu queue status`` shows of a node, and what the machine has to know of its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import EpochStart, LogState, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.machines.replication import Replica
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.follow_stream import FollowStream

__all__ = ["log_state_of", "problems_of", "status_of"]


def log_state_of(engine: Engine) -> LogState:
    """The journal as it is now."""
    journal = engine.journal
    is_always = engine.all_settings.journal.flush == "always"
    return LogState(
        oldest_event_id=journal.first_event_id,
        tail_event_id=journal.last_event_id,
        durable_event_id=journal.flushed_through if is_always else journal.last_event_id,
        shown_event_id=engine.commit_event_id,
        epochs=tuple(EpochStart(epoch, first) for epoch, first in engine.state.epochs),
    )


def problems_of(replica: Replica, engine: Engine, alarm: str) -> list[str]:
    """Why this node is not ready, as replication sees it."""
    if engine.refuse_writes:
        return [engine.refuse_writes]
    if replica.state in (State.JOINING, State.FENCED, State.FULL_SYNC, State.PROMOTING):
        return [alarm or f"replication is {replica.state.value}"]
    return []


def status_of(
    replica: Replica, engine: Engine, streams: Iterable[FollowStream], problems: list[str]
) -> dict[str, object]:
    """One row per thing that a person asks about."""
    control = replica.control
    last = engine.journal.last_event_id
    return {
        "name": replica.name,
        "role": "leader" if engine.is_leader else "follower",
        "state": replica.state.value,
        "epoch": replica.epoch if replica.state is State.LEADING else replica.log.tail_epoch,
        "leader": replica.leader,
        "in_sync": sorted(control.in_sync) if control is not None else [],
        "unfenced_leader": control.unfenced if control is not None and engine.is_leader else "",
        "acknowledge": engine.all_settings.replication.acknowledge,
        "last_event_id": last,
        "commit_event_id": engine.commit_event_id,
        "flushed_event_id": engine.journal.flushed_through,
        "first_event_id": engine.journal.first_event_id,
        "flush": engine.all_settings.journal.flush,
        "followers": [stream.status(last) for stream in streams],
        "journal_bytes": engine.journal.size,
        "problem": "; ".join(problems),
    }
