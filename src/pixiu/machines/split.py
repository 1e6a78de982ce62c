"""Doubling a role's partitions, step by step, while everything runs.

::

    Stable(P) ── new partitions appear ──▶ Splitting(P) ── all of them Running: swap ──▶ Flipped(2P)
        ▲                                      │ abort                                      │ grace
        │◀─────────────────────────────────────┘                                            ▼
        └──────────────────────────────────────────────────────────────────────────── Stable(2P), clean

The one who flips names every partition and how many replicas it expects, so that a partition that never came cannot
pass for one that is ready (E51), and names the version of the count that it replaces, so that two at once are one flip.
Who has keys that moved keeps them for a grace: some callers still use the old count (E19). Until then every message
carries the count's version, and who is asked for a foreign key answers with the count that it knows.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import Conflict, RequestError
from pixiu.model.partitions import check_count, owners, owns, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Counts", "Flip", "SplitPhase", "check_flip"]


class SplitPhase(Enum):
    """Where a role stands."""

    STABLE = "stable"
    SPLITTING = "splitting"
    FLIPPED = "flipped"


class Flip(NamedTuple):
    """What the registry is asked to swap."""

    partitions: int
    version: int
    """Of the count that is replaced."""


class Counts:
    """The partition count of a role, as one process sees it. Time is an argument."""

    def __init__(self, *, grace_ms: int) -> None:
        """``grace_ms``: at least two polls of the registry and the life of a message."""
        self.count = 1
        self.version = -1
        self._grace_ms = grace_ms
        self._registered: frozenset[int] = frozenset()
        self._is_splitting = False
        self._flipped_ms: int | None = None

    @property
    def phase(self) -> SplitPhase:
        """Where the role stands."""
        if self._flipped_ms is not None:
            return SplitPhase.FLIPPED
        return SplitPhase.SPLITTING if self._is_splitting else SplitPhase.STABLE

    def seen(self, count: int, version: int, registered: Iterable[int], now_ms: int, *, grace_left_ms: int = 0) -> bool:
        """What the registry says. True if the count is new. What is older than what is known is not taken.

        ``grace_left_ms``: how long its last doubling still lasts. A replica that starts meanwhile keeps as much as
        those who were there at the flip: some callers use the old count, whoever answers them.
        """
        if version < self.version:
            return False
        check_count(count)
        is_new = version > self.version and count != self.count
        if is_new and self.version >= 0:
            self._flipped_ms = now_ms
        elif self.version < 0 < grace_left_ms:
            self._flipped_ms = now_ms - self._grace_ms + min(grace_left_ms, self._grace_ms)
        self.count, self.version = count, version
        self._registered = frozenset(registered)
        self._is_splitting = any(each >= count for each in self._registered)  # asked often, told rarely
        return is_new

    def writes_to(self, key: int) -> list[int]:
        """Partitions that news of this key goes to: two of them while the count doubles (X14)."""
        return owners(key, self.count, self._registered)

    def reads_from(self, key: int) -> int:
        """The partition that answers for a key: by the old count until the flip."""
        return partition_of(key, self.count)

    def keeps(self, partition: int, key: int) -> bool:
        """Does a partition keep this key? Until the grace is over, also what has moved away from it (X17, E19)."""
        return owns(partition, key, self.kept_count)

    def answers(self, partition: int, key: int) -> bool:
        """Is this the partition to ask, by the newest count? If not, tell the caller count and version."""
        return partition_of(key, self.count) == partition

    @property
    def kept_count(self) -> int:
        """The count by which a partition's keys are its own: until the grace of a doubling is over, the one before."""
        return max(1, self.count // 2) if self.phase is SplitPhase.FLIPPED else self.count

    def cleans(self, now_ms: int) -> bool:
        """Is the grace over? True once: then what ``keeps`` does not name may go."""
        if self._flipped_ms is None or now_ms - self._flipped_ms < self._grace_ms:
            return False
        self._flipped_ms = None
        return True


def check_flip(
    count: int, version: int, running: Mapping[int, int], starting: Mapping[int, int], *, replicas: int, is_clean: bool
) -> Flip:
    """The flip that may be made now, or the reason why not (X16).

    ``running`` and ``starting`` count the replicas of each partition; ``replicas`` is how many each new one must have.
    ``is_clean``: the last doubling is over, grace included.
    """
    check_count(2 * count, before=count)
    if not is_clean:
        raise Conflict("the last doubling is not over; try again when its grace has passed")
    for partition in range(count, 2 * count):
        if starting.get(partition):
            raise Conflict(f"partition {partition} has {starting[partition]} replicas that are not Running yet")
        if running.get(partition, 0) < replicas:
            raise Conflict(f"partition {partition} has {running.get(partition, 0)} of {replicas} replicas Running")
    beyond = [partition for partition in running if partition >= 2 * count]
    if beyond:
        raise RequestError(f"partition {min(beyond)} is beyond {2 * count}, which {count} doubles to")
    return Flip(2 * count, version)
