"""The tool that doubles a role's partitions: it looks at the registry, and flips the count when the new half is ready.

The count's node also says until when the doubling lasts: ``clean_at``, in milliseconds since 1970. Until then replicas
keep what has moved away from them, and nobody may double again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pixiu.links.member import CLEAN_AT, COUNT_KEY, count_path
from pixiu.machines.split import check_flip
from pixiu.machines.view import PeerState
from pixiu.model.errors import Conflict, NotFound, PixiuError, RequestError
from pixiu.model.partitions import check_count
from pixiu.ports.registry import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.registry import Folder, Registry

__all__ = ["SPLITTABLE", "Stand", "check_split", "flip", "stand_of"]

SPLITTABLE = ("broker", "router", "relay")
"""Roles of rooms whose keys are divided. Of the others more replicas are started, or the log is replicated."""


class Stand(NamedTuple):
    """A role, as the registry has it."""

    role: str
    partitions: int
    version: int
    clean_at_ms: int
    """Since 1970: then the last doubling is over; 0 if there was none."""
    running: dict[int, int]
    starting: dict[int, int]
    """Replicas of each partition, by whether they are Running."""


def stand_of(role: str, folder: Folder) -> Stand:
    """What the registry says of a role, from what is below its path. Raises ``NotFound`` if it has no count."""
    entry = folder.get("partition_num")
    count = entry.data.get(COUNT_KEY) if entry is not None else None
    if entry is None or not isinstance(count, int):
        raise NotFound(f"the registry has no partition count of {role}; start one of it first")
    clean_at = entry.data.get(CLEAN_AT)
    found: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for path, each in folder.items():
        head, _, last = path.rpartition("/")
        number = head.removeprefix("partition")
        if last.isdecimal() and number.isdecimal() and "state" in each.data:
            found[each.data["state"] == PeerState.RUNNING.value][int(number)] += 1
    return Stand(
        role, count, entry.version, clean_at if isinstance(clean_at, int) else 0, dict(found[True]), dict(found[False])
    )


def check_split(stand: Stand, now_ms: int, *, to: int | None = None) -> None:
    """Raise with the reason if a doubling may not even begin: no double (X18), or the last one is not over (X16)."""
    try:
        check_count(2 * stand.partitions if to is None else to, before=stand.partitions)
    except ValueError as error:
        raise RequestError(str(error)) from None
    if now_ms < stand.clean_at_ms:
        left = -(-(stand.clean_at_ms - now_ms) // 1000)
        raise Conflict(f"the last doubling of {stand.role} is not over; try again in {left} s")


def flip(
    registry: Registry,
    root: str,
    role: str,
    done: Callable[[Stand | PixiuError], object],
    *,
    replicas: int,
    now_ms: int,
    lasts_ms: int,
    to: int | None = None,
) -> None:
    """Double the count of a role, if all of the new half runs and nobody else does it (X16).

    ``done`` gets the role as it was before, or why nothing was done. ``lasts_ms``: the grace, and the time in which
    everyone has read the new count.
    """

    def read(found: Folder | PixiuError) -> None:
        if isinstance(found, PixiuError):
            done(found)
            return
        try:
            stand = stand_of(role, found)
            check_split(stand, now_ms, to=to)
            flipped = check_flip(
                stand.partitions, stand.version, stand.running, stand.starting, replicas=replicas, is_clean=True
            )
        except PixiuError as error:
            done(error)
            return
        data = {COUNT_KEY: flipped.partitions, CLEAN_AT: now_ms + lasts_ms}
        registry.write(Write(count_path(root, role), data, flipped.version), lambda result: written(stand, result))

    def written(stand: Stand, result: int | PixiuError) -> None:
        if isinstance(result, Conflict):
            done(Conflict(f"somebody else has just changed the partition count of {role}; nothing was done"))
        else:
            done(result if isinstance(result, PixiuError) else stand)

    registry.read(f"{root}/{role}", read)
