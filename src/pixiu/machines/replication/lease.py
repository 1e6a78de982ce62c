r"""How long a leader may acknowledge writes, and how long the other replicas must wait before they claim.

**The lease of a leader comes from its replicas.** Everyone who could replace the leader has promised not to::

    leader     sends stamp 700 --------------- lease_ms by its own clock --------------> acknowledges nothing more
                         \                                  (counted from the sending)
    follower              \--> echoes 700 ------------ takeover_ms by its own clock ------------> may claim

Rules:

1. A stamp is the leader's clock when it *sent* the message. The follower echoes the newest one at once, before it
   flushes anything.
2. A follower that echoes a stamp promises: for ``takeover_ms`` from that moment, by its own clock, it claims nothing.
3. The lease ends ``lease_ms`` after the oldest of the stamps that the members of in-sync ∪ proposed ∪ admitting
   echoed last. The registry may hold any of these sets, and each member of the set that it holds may claim, so all of
   them must have promised (``Grants``).
4. ``takeover_ms`` is at least a quarter longer than ``lease_ms``. The follower echoes after the leader has sent, so the
   leader has stopped before the follower claims, as long as no clock runs more than 1.25 times as fast as another. The
   clock also counts the time for which a machine was suspended (CLOCK_BOOTTIME).
5. A replica that was restarted may have forgotten a promise: it takes over from no leader during its first
   ``takeover_ms``.
6. From asking the registry for a claim until the record has a later version, a replica does not follow and promises
   nothing: the claim may be granted at any moment, however late. Replicas keep the version of such a claim on disk, so
   that a restart does not forget it, and the highest epoch that the record had, below which they do not follow.
7. A claim is a compare-and-set on the version that the replica saw when the silence began, and any later version begins
   the silence again. So a claim fails if the leader has changed the in-sync set meanwhile.
8. A promise ends early if its leader gave the record up (names no leader): it stopped first.

No promise is needed in two cases. A leader alone in its in-sync set holds the **lease of the registry**: it
writes the control record again every ``control_poll_ms``, and the lease counts from when it asked (``Lease``). And a
shard that is configured with one replica needs no lease.

A replica that the control record names as leader, or that finds a record without a leader, claims at once: when that
record was made, no other replica held a lease, and none has got one since without changing the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Grants", "Lease", "Promise"]

NEVER_MS = -(1 << 62)


class LeaseSettings(Protocol):
    """Settings that contain the length of a lease."""

    @property
    def lease_ms(self) -> int:
        """How long the holder may go on without a renewal."""
        ...


class Grants:
    """The leader's side: which stamp each follower echoed last."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._stamps: dict[str, int] = {}

    def note(self, member: str, stamp_ms: int, *, now_ms: int) -> None:
        """A follower echoed this stamp. One that this leader cannot have sent yet is ignored."""
        if self._stamps.get(member, NEVER_MS) < stamp_ms <= now_ms:
            self._stamps[member] = stamp_ms

    def is_held(self, now_ms: int, members: Iterable[str]) -> bool:
        """Whether the promises of all these members still hold."""
        return all(self.is_granted_by(member, now_ms) for member in members)

    def is_granted_by(self, member: str, now_ms: int) -> bool:
        """Whether the promise of this member still holds."""
        return now_ms < self._stamps.get(member, NEVER_MS) + self._lease_ms


class Promise:
    """The follower's side: since when it may not claim, and in which epoch it promised."""

    def __init__(self) -> None:
        self.epoch = 0
        self.made_ms = NEVER_MS

    def make(self, now_ms: int, epoch: int) -> None:
        """This follower echoes a stamp of the leader of ``epoch``."""
        self.epoch, self.made_ms = epoch, now_ms

    def is_void(self, leader: str, epoch: int) -> bool:
        """Whether the control record shows that the leader gave up what was promised to it."""
        return not leader and epoch >= self.epoch


class Lease:
    """A lease that the registry gives: its holder renews it by writing the control record again.

    A candidate that saw one version of the record for ``takeover_ms`` may claim it, if all replicas go by this lease
    alone (``machines.serving``). One that heard nothing from the registry for a while waits again from the beginning:
    the holder could not renew either, and gets the time to do so.
    """

    def __init__(self, settings: LeaseSettings) -> None:
        self._lease_ms = settings.lease_ms
        self._gap_ms_max = settings.lease_ms // 2
        self._until_ms = NEVER_MS
        self._seen_version = -1
        self._seen_ms = NEVER_MS
        self._answered_ms = NEVER_MS

    # The holder's side.

    def granted(self, asked_ms: int) -> None:
        """The registry made a change that this node asked for then: it holds the lease from the asking on."""
        self._until_ms = max(self._until_ms, asked_ms + self._lease_ms)

    def give_up(self) -> None:
        """This node holds nothing any more."""
        self._until_ms = NEVER_MS

    def is_held(self, now_ms: int) -> bool:
        """Whether this node may go on as the holder."""
        return now_ms < self._until_ms

    # The candidate's side.

    def seen(self, now_ms: int, version: int, *, is_answer: bool) -> None:
        """The record has this version; ``is_answer``: the registry said so because it was asked."""
        has_gap = now_ms - self._answered_ms > self._gap_ms_max
        if version != self._seen_version or (is_answer and has_gap):
            self._seen_version, self._seen_ms = version, now_ms
        if is_answer:
            self._answered_ms = now_ms

    def unchanged_ms(self, now_ms: int) -> int:
        """How long this node has seen the record without a renewal."""
        return max(0, now_ms - self._seen_ms) if self._seen_version >= 0 else 0
