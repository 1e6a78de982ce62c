"""The words that a replica and its driver speak: settings, events (what happened), commands (what to do).

``session`` numbers one Follow stream on the side that names it: the follower's machine counts its own, the
leader's driver numbers the connections it accepts. It is never on the wire. Times are milliseconds of the
node's own monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pixiu.machines.replication.history import EpochStart, LogState

# --- Nouns -----------------------------------------------------------------------------------------------------


class State(Enum):
    """What this node is at the moment; the table is in the package's docstring."""

    JOINING = "joining"
    FOLLOWING = "following"
    FULL_SYNC = "full-sync"
    IN_SYNC = "in-sync"
    PROMOTING = "promoting"
    LEADING = "leading"
    FENCED = "fenced"


class Election(Enum):
    """Who decides who leads."""

    REGISTRY = "registry"  # the shared control record, changed by compare-and-set
    MANUAL = "manual"  # the operator; each node keeps a control record of its own


class Acknowledge(Enum):
    """When a write counts as committed."""

    LOCAL = "local"  # flushed on the leader
    IN_SYNC = "in-sync"  # flushed on every in-sync member, of which there are at least min_isr


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """How one replica behaves. Bounds that belong together are checked at once."""

    election: Election = Election.MANUAL
    acknowledge: Acknowledge = Acknowledge.LOCAL
    min_isr: int = 1
    heartbeat_ms: int = 1_000  # leader to follower and back
    in_sync_timeout_ms: int = 5_000  # a member not caught up for so long is taken out of the in-sync set
    silence_ms: int = 5_000  # a leader not heard for so long: the follower connects anew
    reconnect_ms: int = 2_000
    control_poll_ms: int = 1_000  # registry: how often a leader alone renews, and a follower without its leader reads
    watch_polls: int = 4  # registry: with a leader that is there, the record is read this many times less often
    control_retry_ms: int = 2_000  # an unanswered change of the control record is tried again
    lease_ms: int = 6_000  # registry: how long a follower's echo of a stamp lets the leader acknowledge (``lease``)
    takeover_ms: int = 7_500  # registry: for so long after its echo a follower claims nothing
    replicas: int = 0  # registry: how many the shard is configured with; 0: unknown; 1: alone, it needs no lease
    stagger_ms: int = 500  # registry: each further candidate waits so much longer
    epoch_event_ids: int = 1_000  # event_ids that the record opening an epoch takes up, so that none is given twice
    reign_epochs: int = 1_000  # manual: a promotion opens the next multiple, a restart of the leader adds one
    epoch_step_max: int = 1_000_000  # a peer that claims an epoch further ahead than this is not believed

    def __post_init__(self) -> None:
        assert self.min_isr >= 1, "min_isr must be at least 1"
        assert self.epoch_event_ids >= 1 and 2 <= self.reign_epochs < self.epoch_step_max
        assert self.silence_ms >= 3 * self.heartbeat_ms, "a leader must be able to miss a heartbeat"
        assert self.in_sync_timeout_ms >= 5 * self.heartbeat_ms, "a member must be able to miss a heartbeat"
        assert self.control_poll_ms < self.lease_ms, "a lease must outlive the pause between two renewals"
        assert 4 * self.takeover_ms >= 5 * self.lease_ms, "clocks may differ by a quarter in speed"
        if self.election is Election.REGISTRY:
            # Otherwise a follower that the leader cannot reach replaces it before the leader can let the follower go.
            needed_ms = self.in_sync_timeout_ms + self.control_poll_ms
            assert needed_ms <= self.takeover_ms, "in_sync_timeout_ms and one change of the record exceed takeover_ms"


class FenceOutcome(Enum):
    """What a former leader answered to a fencing request."""

    FENCED = "fenced"  # it does not lead
    ABSENT = "absent"  # no process listens at its address: it cannot accept writes until it is started again
    UNKNOWN = "unknown"  # it may still accept writes


@dataclass(frozen=True, slots=True)
class Control:
    """The control record: who leads in which epoch, and who holds everything committed."""

    epoch: int
    leader: str
    in_sync: frozenset[str]
    unfenced: str = ""  # manual: the former leader's address, until that node has confirmed that it does not lead


# --- Events: what happened -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The journal is open (the machine was given its state) and the world can be asked."""

    follow: str | None = None  # manual: the leader the operator named; None: lead, if this node is the leader
    last_leader: str = ""  # registry: whom this node followed last; it is followed until the registry answers
    known_epoch: int = 0  # registry: the highest epoch of the control record that this node saw before it was restarted
    claimed_version: int = (
        -1
    )  # registry: the version that an undecided claim of this node named before it was restarted


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed; feed it several times per heartbeat."""


@dataclass(frozen=True, slots=True)
class ControlSeen:
    """The control record as it is (an answer, or a watch).

    ``live`` names the nodes with a session, read after the record. ``asked_ms`` is echoed from the command that asked;
    None for a watch. ``is_granted``: it answers a ``ChangeControl`` that was made, which alone renews the lease.
    """

    version: int
    control: Control | None
    live: frozenset[str] = frozenset()
    asked_ms: int | None = None
    is_granted: bool = False
    founders: frozenset[str] = frozenset()  # who of them led a log of its own until now
    damaged: frozenset[str] = frozenset()  # who of them knows that its journal has a damaged record


@dataclass(frozen=True, slots=True)
class Joined:
    """A leader of its own log has put it under the registry: ``seen`` grants it the record, ``settings`` hold from now.

    It goes on in the epoch that it has. Nobody else can lead before it has taken someone into the in-sync set.
    """

    settings: ReplicaSettings
    seen: ControlSeen


@dataclass(frozen=True, slots=True)
class ControlRefused:
    """A compare-and-set found another version."""

    expected_version: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The registry has declared this node's session dead; the driver opens another. This ends no lease of replicas."""


@dataclass(frozen=True, slots=True)
class PromoteAsked:
    """The operator wants this node to lead. ``force`` accepts the loss of what it does not hold."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class FenceAnswered:
    """``Fence`` with this ``attempt`` number is done. ``reason`` explains every outcome but ``FENCED``."""

    attempt: int
    outcome: FenceOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """This node is to end in order: a leader hands over before it goes. Answered with ``Left``."""

    stays: bool = False  # it hands over to an in-sync member, if there is one, and follows; nothing is answered


@dataclass(frozen=True, slots=True)
class FollowTold:
    """Manual: the operator names the leader to follow from now on."""

    leader: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """The journal is on disk through this event_id: once per group commit, in either role."""

    through: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Retention removed what precedes ``oldest_event_id``."""

    oldest_event_id: int


@dataclass(frozen=True, slots=True)
class EpochAppended:
    """``AppendEpoch`` is done and on disk."""

    epoch: int
    first_event_id: int
    through: int


@dataclass(frozen=True, slots=True)
class LeadingStopped:
    """``StopLeading`` is done: nothing is being appended any more, and this is the journal."""

    log: LogState


@dataclass(frozen=True, slots=True)
class Truncated:
    """``Truncate`` is done and on disk."""

    log: LogState


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """``Append`` could not be done; the driver dropped what it still held, and this is the journal."""

    log: LogState


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """``FetchSnapshot`` is done, all of it, the history of epochs included: this is the journal now."""

    session: int
    log: LogState


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """``FetchSnapshot`` ended early and changed nothing."""

    session: int


@dataclass(frozen=True, slots=True)
class FollowAsked:
    """A follower connected, and says where its journal ends.

    ``own_tail_event_id`` is the end of this node's journal at the moment, flushed or not: a follower may have
    been sent more than we have on disk.
    """

    session: int
    name: str
    last_event_id: int
    last_epoch: int
    highest_epoch: int
    own_tail_event_id: int


@dataclass(frozen=True, slots=True)
class FollowerDurable:
    """A follower reports what it has on disk; ``epoch`` is that of the leader it follows.

    ``stamp_ms`` is the newest stamp that it echoes; -1: none.
    """

    session: int
    event_id: int
    epoch: int
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class FollowerGone:
    """A follower's connection ended."""

    session: int


@dataclass(frozen=True, slots=True)
class FramesArrived:
    """Frames came from the leader. ``epochs`` are the changes of epoch inside them, against the record before.

    A message without frames, which only tells the commit, has ``through`` = ``first_event_id`` - 1. ``stamp_ms`` is
    the leader's clock when it sent them; -1: unknown.
    """

    session: int
    first_event_id: int
    through: int
    epochs: tuple[EpochStart, ...]
    commit_event_id: int
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class StateHeard:
    """The leader's heartbeat; the first one of a session says that the journals match.

    ``stamp_ms`` is the leader's clock when it sent it; -1: unknown.
    """

    session: int
    epoch: int
    commit_event_id: int
    in_sync: bool
    leader: str
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class TruncateTold:
    """The journals differ after this point."""

    session: int
    event_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TooFarTold:
    """The leader no longer has what this node needs."""

    session: int
    oldest_event_id: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The connection to the leader ended, was refused or could not be made."""

    session: int


Event: TypeAlias = (
    Started | Ticked | ControlSeen | Joined | ControlRefused | SessionLost | PromoteAsked | FenceAnswered
    | LeaveAsked | FollowTold
    | Flushed | Trimmed | EpochAppended | LeadingStopped | Truncated | AppendFailed | SnapshotInstalled
    | SnapshotFailed | FollowAsked | FollowerDurable | FollowerGone
    | FramesArrived | StateHeard | TruncateTold | TooFarTold | StreamEnded
)  # fmt: skip

# --- Commands: what the driver must do about it ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadControl:
    """Read the control record and who is live, then feed ``ControlSeen`` with the same ``asked_ms``."""

    asked_ms: int


@dataclass(frozen=True, slots=True)
class ChangeControl:
    """Set the control record if it still has this version (0: there is none), then feed ``ControlSeen``.

    Another version: ``ControlRefused``. No answer at all is allowed. ``is_claim``: this node asks to lead; keep
    ``expected_version`` on disk first, and give it to ``Started`` after a restart (``claimed_version``).
    """

    expected_version: int
    control: Control
    asked_ms: int
    is_claim: bool = False


@dataclass(frozen=True, slots=True)
class AppendEpoch:
    """Append the record that opens ``epoch``, ``event_ids`` long, flush it, then feed ``EpochAppended``."""

    epoch: int
    event_ids: int


@dataclass(frozen=True, slots=True)
class Lead:
    """This node leads: stamp appended records with ``epoch`` and take Follow requests."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Take no more writes, answer all that wait with Unknown, let the disk come to rest, feed ``LeadingStopped``."""

    reason: str


@dataclass(frozen=True, slots=True)
class AcceptWrites:
    """Writes may be appended from now on."""


@dataclass(frozen=True, slots=True)
class RefuseWrites:
    """Refuse new writes with Unavailable; those already appended keep waiting for their commit."""

    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything through this event_id is safe: show it to readers, and answer the writers that wait for it."""

    through: int


@dataclass(frozen=True, slots=True)
class StreamAfter:
    """Send this follower all frames after ``event_id``, and go on as they are appended."""

    session: int
    event_id: int


@dataclass(frozen=True, slots=True)
class SendState:
    """Heartbeat to a follower. ``stamp_ms``: this node's clock now, which a follower echoes."""

    session: int
    epoch: int
    commit_event_id: int
    in_sync: bool
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class SendTruncate:
    """Tell a follower where its journal leaves ours; the stream then ends."""

    session: int
    event_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SendTooFar:
    """Tell a follower to fetch a snapshot; the stream then ends."""

    session: int
    oldest_event_id: int


@dataclass(frozen=True, slots=True)
class RefuseFollower:
    """Answer a Follow request with an error, and end it."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class CloseFollower:
    """End a follower's stream, so that it connects anew."""

    session: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Connect to the leader and send this Follow request; its answers carry ``session``."""

    session: int
    leader: str
    last_event_id: int
    last_epoch: int
    highest_epoch: int


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Close the connection of this session, or abandon its snapshot."""

    session: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the frames that just arrived, as they are; feed ``Flushed`` when they are on disk."""

    first_event_id: int
    through: int


@dataclass(frozen=True, slots=True)
class SendDurable:
    """Tell the leader what is on disk here, and echo its newest stamp (-1: none)."""

    session: int
    event_id: int
    epoch: int
    stamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop every record that ends after ``through``, flush, then feed ``Truncated``."""

    through: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Fetch a snapshot from the leader, install it in one step, then feed ``SnapshotInstalled``."""

    session: int
    leader: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Manual: send the former leader a Follow request with ``epoch``, then feed ``FenceAnswered``.

    A later ``Fence`` or ``PromoteRefused`` cancels the attempt.
    """

    attempt: int
    leader: str
    last_event_id: int
    last_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Promoted:
    """Answer to ``PromoteAsked``: this node leads."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PromoteRefused:
    """Answer to ``PromoteAsked``: no, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """Answer to ``LeaveAsked``: nothing depends on this node any more; it takes part in nothing."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator must look at. Told once."""

    text: str


Command: TypeAlias = (
    ReadControl | ChangeControl | AppendEpoch | Lead | StopLeading | AcceptWrites | RefuseWrites
    | Committed | StreamAfter | SendState | SendTruncate | SendTooFar | RefuseFollower | CloseFollower
    | Follow | Unfollow | Append | SendDurable | Truncate | FetchSnapshot | Fence | Promoted | PromoteRefused
    | Left | Alarm
)  # fmt: skip
