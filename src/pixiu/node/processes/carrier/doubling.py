"""Doubling the carriers: when every new partition is there and has caught up, one record of the log flips.

What comes before: processes for the partitions from P to 2P - 1 are started (``pixiu role carrier --partition K``).
They apply the log from its beginning by the new count, and are Running when they have caught up. Behind the flip's
record the old partitions send away whoever is elsewhere now, the new ones serve them, and the count in the registry
follows. Said twice it is said once, so whoever was interrupted does it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from pixiu.links.member import COUNT_KEY, count_path
from pixiu.machines.split import check_flip
from pixiu.machines.view import PeerState
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import PartitionsChanged, Record
from pixiu.ports.log import MAIN
from pixiu.ports.registry import Write
from pixiu.roles.carrier.flips import CARRIER
from pixiu.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.registry import Folder, Registry
    from pixiu.queue.client import Client

__all__ = ["Unfinished", "double_carriers"]

T = TypeVar("T")

ASK_SECONDS = 5.0


class Unfinished(Unavailable):
    """A doubling was begun, and whether it was made is not known.

    The new half must stay, and whoever does it again ends it.
    """


async def double_carriers(registry: Registry, root: str, client: Client, *, replicas: int) -> int:
    """Flip now. Returns the new count. Raises ``Conflict`` with the reason why not: nothing was changed then.

    Raises ``Unfinished`` if the record of the flip may be in the log, and the registry does not have the new count.
    ``replicas``: how many of each new partition must be Running. ``client`` has shown the queue's key.
    """
    folder: Folder = await _told(lambda done: registry.read(f"{root}/{CARRIER}", done))
    entry = folder.get("partition_num")
    count = None if entry is None else entry.data.get(COUNT_KEY)
    if entry is None or not isinstance(count, int):
        raise NotFound("no carrier was ever registered in this cluster")
    running, starting = _replicas(folder)
    flip = check_flip(count, entry.version, running, starting, replicas=replicas, is_clean=True)
    change = PartitionsChanged(role=CARRIER, count=flip.partitions)
    record = Record(at=SystemClock().now_ms(), partitions=change)
    try:
        await client.append(MAIN, record.SerializeToString())
    except Unavailable as error:
        raise Unfinished(f"it is not known whether the carriers have doubled ({error}): do it again") from error
    write = Write(count_path(root, CARRIER), {COUNT_KEY: flip.partitions}, flip.version)
    try:
        _: int = await _told(lambda done: registry.write(write, done))
    except PixiuError as error:
        raise Unfinished(f"the carriers have doubled, and the registry was not told ({error}): do it again") from error
    return flip.partitions


async def _told(ask: Callable[[Callable[[T | PixiuError], object]], object]) -> T:
    """What the registry answers. Raises what it says, or ``Unavailable`` if it says nothing."""
    answer: asyncio.Future[T | PixiuError] = asyncio.get_running_loop().create_future()
    ask(lambda result: None if answer.done() else answer.set_result(result))
    try:
        async with asyncio.timeout(ASK_SECONDS):
            result = await answer
    except TimeoutError:
        raise Unavailable("the registry does not answer") from None
    if isinstance(result, PixiuError):
        raise result
    return result


def _replicas(folder: Folder) -> tuple[Counter[int], Counter[int]]:
    """How many replicas of each partition are Running, and how many are not yet."""
    running: Counter[int] = Counter()
    starting: Counter[int] = Counter()
    for name, entry in folder.items():
        place, _, number = name.partition("/")
        if number.isdecimal() and place.removeprefix("partition").isdecimal():
            state = entry.data.get("state")
            counted = running if state == PeerState.RUNNING.value else starting
            if state != PeerState.DRAINING.value:
                counted[int(place.removeprefix("partition"))] += 1
    return running, starting
