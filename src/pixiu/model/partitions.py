"""Which partition has a key, and which replica of it.

A role has ``count`` partitions, a power of two, so that it can double: partition ``p`` of ``count`` becomes ``p`` and
``p + count`` of ``2 * count``, and no key moves anywhere else. While the new half is starting, both twins get every
write (``owners``), and reads stay with the old count until the flip.

A replica is chosen by rendezvous: each (key, replica) has a score and the highest wins. All replicas of every partition
get their share, whatever the counts (E3), and when one comes or goes only its own keys move (E4). Weights shift shares
slowly without moving the others.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "PARTITIONS_MAX",
    "PROBE_ROOMS_BEGIN",
    "SLICES",
    "SLICE_ROOMS_BEGIN",
    "SLICE_ROOMS_END",
    "check_count",
    "is_slice",
    "owners",
    "owns",
    "partition_of",
    "ranked",
    "replica_of",
    "router_partitions",
    "slice_of",
    "slices",
]

PARTITIONS_MAX = 256
"""A partition fits one byte wherever it is part of an id."""

SLICES = 64
"""A big room is so many virtual rooms."""
SLICE_ROOMS_BEGIN = 2**63
SLICE_ROOMS_END = 2**63 + 2**62
"""Rooms of these numbers are slices of big rooms; the numbers that names have are all smaller."""
PROBE_ROOMS_BEGIN = SLICE_ROOMS_END
"""Rooms of this number and above are for probes: no name leads there, so no user can be in one (X30)."""

_ODD = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def check_count(count: int, before: int = 0) -> None:
    """Raise ``ValueError`` unless ``count`` partitions may be: a power of two, and twice what was before."""
    if count < 1 or count & (count - 1) or count > PARTITIONS_MAX:
        raise ValueError(f"a partition count is a power of two up to {PARTITIONS_MAX}, not {count}")
    if before and count != 2 * before:
        raise ValueError(f"{before} partitions double to {2 * before}, not to {count}")


def partition_of(key: int, count: int) -> int:
    """The partition that answers for a key."""
    return key % count


def owns(partition: int, key: int, count: int) -> bool:
    """Does a write for this key concern this partition? True also for the new twin of its partition (M7, E18)."""
    return key % count == partition % count


def owners(key: int, count: int, registered: Iterable[int]) -> list[int]:
    """All partitions that a write for this key goes to: one, or two while the count doubles (M8)."""
    return [partition for partition in sorted(registered) if owns(partition, key, count)]


def replica_of(key: int, replicas: Sequence[int], weights: Mapping[int, float] | None = None) -> int:
    """The replica that handles a key: an element of ``replicas``, the same on every node that sees the same ones."""
    if not replicas:
        raise ValueError("no replica to choose from")
    if weights is None:
        return max(replicas, key=lambda replica: (_mixed(key, replica), replica))
    return max(replicas, key=lambda replica: (_weighted(key, replica, weights.get(replica, 1.0)), replica))


def ranked(key: int, replicas: Iterable[int]) -> list[int]:
    """All replicas in the order in which a key prefers them: for copies that must take different ways."""
    return sorted(replicas, key=lambda replica: (_mixed(key, replica), replica), reverse=True)


def router_partitions(broker_partition: int, broker_count: int, router_count: int) -> list[int]:
    """The router partitions that carry a broker partition's rooms, whichever of the two counts is larger (E17)."""
    shared = min(broker_count, router_count)
    return [partition for partition in range(router_count) if partition % shared == broker_partition % shared]


def slice_of(big_room: int, user: int) -> int:
    """The virtual room of a user of a big room. Publishing and entering use the same rule (E7)."""
    return slices(big_room)[user % SLICES]


def slices(big_room: int) -> range:
    """The virtual rooms of a big room, by its index among big rooms."""
    begin = SLICE_ROOMS_BEGIN + big_room * SLICES
    if not SLICE_ROOMS_BEGIN <= begin <= SLICE_ROOMS_END - SLICES:
        raise ValueError(f"not the index of a big room: {big_room}")
    return range(begin, begin + SLICES)


def is_slice(room: int) -> bool:
    """Is this a slice of a big room?"""
    return SLICE_ROOMS_BEGIN <= room < SLICE_ROOMS_END


def _mixed(key: int, replica: int) -> int:
    """64 bits that look random and are the same everywhere (splitmix64's finish)."""
    value = (key * _ODD + replica * 0xD1B54A32D192ED03 + _ODD) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def _weighted(key: int, replica: int, weight: float) -> float:
    """Highest for a share of keys that is in proportion to the weight."""
    if weight <= 0:
        return float("-inf")
    return -weight / log((_mixed(key, replica) + 1) / (_MASK + 2))
