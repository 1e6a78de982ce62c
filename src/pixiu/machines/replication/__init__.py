"""Replicate one journal: who leads, what is committed, what a follower must copy, cut or fetch.

Sans-IO: one ``Replica`` per node takes events and returns commands. It reads no clock, touches no file and never
sees a record: it knows event_ids, epochs and names. A driver performs the commands and reports what came of them::

    replica = Replica("10.0.0.1:12301", settings, log)          # log: LogState, as recovery found it
    commands = replica.receive(now_ms, Started())               # [ReadControl(asked_ms=...)]

The rules, in one paragraph. The control record {epoch, leader, in-sync set} changes only by compare-and-set. A leader
opens its epoch with a record of its own in the journal, and every record carries the epoch of its leader, so two
journals find where they part by comparing epochs (``history``). A record is committed when it is flushed on every
in-sync member (or, acknowledging ``local``, on the leader). Only an in-sync member may take over, so the new leader
has all that was committed; a follower that has more cuts it. A leader stops when the record names another. It
acknowledges nothing once its lease is over: the in-sync followers grant the lease by echoing the leader's stamps, and
each of them claims nothing for a longer time than the lease lasts (``lease``). Without a registry a leader also stops
when a follower names a higher epoch.

States, and what moves between them (table 2.5, corrected)::

                 record names me: claim epoch+1          granted             EpochAppended
      JOINING ---------------------------------> (claim) -------> PROMOTING --------------> LEADING
        |  ^                                        ^                 |                        |
        |  | LeadingStopped                         |                 +--- higher epoch, ------+
        |  +------------------------- FENCED <------+---- record names another ----------------+
        | record names another                      |
        v             leader takes me in            | leader silent, or record given up, and it is my turn
     FOLLOWING <--------------------------> IN_SYNC +  among the in-sync members; or PromoteAsked
        |    ^        leader lets me go
        |    | SnapshotInstalled / SnapshotFailed
        v    |
     FULL_SYNC   (too far behind, or what it showed is not in the leader's journal)

    state       reads shown through   writes                  may take over   answers Follow
    ----------  --------------------  ----------------------  --------------  ---------------------------
    JOINING     what was shown        NotLeader               no              not the leader
    FOLLOWING   commit it was told    NotLeader               no              not the leader
    FULL_SYNC   what was shown        NotLeader               no              not the leader
    IN_SYNC     commit it was told    NotLeader               yes             not the leader
    PROMOTING   what was shown        Unavailable             -               not the leader, or fenced
    LEADING     commit                accepted, or refused    -               stream, cut, too far, or fenced
                                      below min_isr or after
                                      the lease
    FENCED      what was shown        waiting ones: Unknown   no              not the leader

Why a leader that comes back takes a new epoch although nobody replaced it: its last records may have reached a
follower and not its own disk. Numbered again within one epoch, they would look the same and not be.

Why nothing is acknowledged with fewer members before the record says so: until then the member that is left out
could be elected. And while an answer is missing, every member of the old set and of the proposed one must have a
record before it counts (``leadership``).

How a driver uses it
    * Feed ``Ticked`` several times per heartbeat; events in the order in which they happened; perform commands in
      order. Journal commands (Append, AppendEpoch, Truncate, FetchSnapshot) are done one after the other, and their
      events fed in that order.
    * The hot path passes here once per group commit: on the leader ``Flushed`` and one ``FollowerDurable`` per report
      (answer: ``Committed``, which releases every waiting writer at once); on a follower ``FramesArrived`` per chunk
      and ``Flushed`` (answer: ``Append``, ``SendDurable``, ``Committed``). Between them look at ``accepts_writes``.
    * Appended records are stamped with ``epoch`` of ``Lead``. They may be sent before they are flushed.
    * ``stamp_ms`` of ``SendState`` is the leader's clock now; frames carry it as well. A follower's ``SendDurable``
      echoes the newest. Before a ``ChangeControl`` with ``is_claim`` keep its version on disk, and the highest epoch of
      each ``ControlSeen`` before feeding it: ``Started`` gets both after a restart.
    * After ``Committed`` tell it to the followers with the next frames (docs/protocol-queue.md, 4.1, kind 1; an empty
      one will do). ``SendState`` is kind 4, ``SendTruncate`` 2, ``SendTooFar`` 3; the follower's answers are
      ``SendDurable``. ``session`` is the connection; when it ends, feed ``StreamEnded`` or ``FollowerGone``.
    * Show readers only what ``Committed`` has named, and keep that event_id where a restart finds it
      (``LogState.shown_event_id``; a little old is fine). A snapshot is taken at the commit, never beyond it.
    * Registry: ``live`` is read after the record; the name's ephemeral node belongs to the session of this process.
      Who is live only orders the claims; whether the leader is gone is known from its silence alone. Manual: the
      control record is a small file of the node's own with a version, flushed before ``ControlSeen``.
    * The name must survive a restart. Retention removes only what is committed and not after ``needed_after``.
"""

from __future__ import annotations

from pixiu.machines.replication.events import (
    AcceptWrites,
    Acknowledge,
    Alarm,
    Append,
    AppendEpoch,
    AppendFailed,
    ChangeControl,
    CloseFollower,
    Command,
    Committed,
    Control,
    ControlRefused,
    ControlSeen,
    Election,
    EpochAppended,
    Event,
    Fence,
    FenceAnswered,
    FenceOutcome,
    FetchSnapshot,
    Flushed,
    Follow,
    FollowAsked,
    FollowerDurable,
    FollowerGone,
    FollowTold,
    FramesArrived,
    Joined,
    Lead,
    LeadingStopped,
    LeaveAsked,
    Left,
    PromoteAsked,
    Promoted,
    PromoteRefused,
    ReadControl,
    RefuseFollower,
    RefuseWrites,
    ReplicaSettings,
    SendDurable,
    SendState,
    SendTooFar,
    SendTruncate,
    SessionLost,
    SnapshotFailed,
    SnapshotInstalled,
    Started,
    State,
    StateHeard,
    StopLeading,
    StreamAfter,
    StreamEnded,
    Ticked,
    TooFarTold,
    Trimmed,
    Truncate,
    Truncated,
    TruncateTold,
    Unfollow,
)
from pixiu.machines.replication.history import EpochStart, LogState
from pixiu.machines.replication.replica import Replica

__all__ = [
    "AcceptWrites", "Acknowledge", "Alarm", "Append", "AppendEpoch", "AppendFailed", "ChangeControl",
    "CloseFollower", "Command", "Committed", "Control", "ControlRefused", "ControlSeen", "Election",
    "EpochAppended", "EpochStart", "Event", "Fence", "FenceAnswered", "FenceOutcome", "FetchSnapshot",
    "Flushed", "Follow", "FollowAsked", "FollowTold", "FollowerDurable", "FollowerGone", "FramesArrived",
    "Joined", "Lead", "LeadingStopped", "LeaveAsked", "Left", "LogState", "PromoteAsked", "PromoteRefused",
    "Promoted", "ReadControl", "RefuseFollower", "RefuseWrites", "Replica", "ReplicaSettings", "SendDurable",
    "SendState", "SendTooFar", "SendTruncate", "SessionLost", "SnapshotFailed", "SnapshotInstalled", "Started",
    "State", "StateHeard", "StopLeading", "StreamAfter", "StreamEnded", "Ticked", "TooFarTold", "Trimmed",
    "Truncate", "TruncateTold", "Truncated", "Unfollow",
]  # fmt: skip
