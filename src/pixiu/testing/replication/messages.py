"""What simulated nodes say to each other within a Follow session (docs/protocol-queue.md, 4.1 and 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.testing.simulated_log import Record, Snapshot

__all__ = [
    "CutThere", "DurableReport", "End", "FollowRequest", "Frames", "HangUp", "Heartbeat", "SnapshotReply",
    "SnapshotRequest", "TooFar",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """Follower: where my journal ends."""

    name: str
    last_event_id: int
    last_epoch: int
    highest_epoch: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Leader: append these; all through the commit event_id is safe to show."""

    records: tuple[Record, ...]
    commit_event_id: int
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Leader: I am still here, and this is how things stand."""

    epoch: int
    commit_event_id: int
    in_sync: bool
    leader: str
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class CutThere:
    """Leader: your journal differs from mine after this."""

    event_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TooFar:
    """Leader: what you need is gone, fetch a snapshot."""

    oldest_event_id: int


@dataclass(frozen=True, slots=True)
class DurableReport:
    """Follower: this much is on my disk, and this is your newest stamp."""

    event_id: int
    epoch: int
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Follower: send me everything that is committed."""


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """Leader: here it is."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class End:
    """The stream is closed by the leader."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """The stream is closed by the follower."""
