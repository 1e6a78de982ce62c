"""Doubling a role of a supervised cluster: the new half is started, and the count flips when all of it runs.

What does not become ready in time is stopped again, and nothing has changed: until the flip nobody asks the new half.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from pixiu.config import LinkSettings
from pixiu.config.cluster import NODE_ROLE
from pixiu.links.bigrooms import big_rooms_path
from pixiu.links.splitting import SPLITTABLE, Stand, check_split, flip, stand_of
from pixiu.machines.bigrooms import BigMap
from pixiu.model.errors import Conflict, NotFound, PixiuError, RequestError, Unavailable
from pixiu.ports.registry import Write
from pixiu.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pixiu.config.cluster import ClusterFile
    from pixiu.config.registry import RegistryAddress
    from pixiu.node.cluster.child import Child
    from pixiu.node.cluster.plans import SplitPlan
    from pixiu.node.cluster.supervisor import Supervisor
    from pixiu.ports.registry import Folder, Registry

__all__ = ["apply_plan", "flip_by_hand", "propose_room", "split_role"]

T = TypeVar("T")


class Unfinished(Unavailable):
    """It is not known whether the count has doubled."""


READY_SECONDS = 120.0
"""How long the new half may take to load what it must know."""
LOOK_SECONDS = 0.1
REGISTRY_SECONDS = 10.0
TRIES = 10


async def split_role(supervisor: Supervisor, registry: Registry, role: str, to: int | None) -> dict[str, Any]:
    """Double a role. Returns what was done; raises with the reason why nothing was."""
    check_role(role)
    layout, clock = supervisor.layout, SystemClock()
    root, plan = layout.registry.root, layout.role(role)
    stand = await read_stand(registry, root, role)
    check_split(stand, clock.now_ms(), to=to)
    half = layout.half(role, stand.partitions)
    fresh = [supervisor.add(child) for child in half if child.name not in supervisor.children]
    supervisor.say(f"{role:<14} splits: {stand.partitions} more start, from partition {stand.partitions} on")
    try:
        await _wait_for_half(registry, root, role, stand.partitions, plan.replicas, fresh)
        lasts_ms = lasts_of(layout.cluster)
        await _flip_surely(registry, root, stand, replicas=plan.replicas, to=to, lasts_ms=lasts_ms)
    except Unfinished as error:  # others may ask the new half already
        supervisor.keep_partitions(role, 2 * stand.partitions)
        supervisor.say(f"{role:<14} {error}")
        raise
    except PixiuError as error:
        supervisor.say(f"{role:<14} does not split: {error}")
        for child in fresh:
            await supervisor.remove(child)
        raise
    supervisor.keep_partitions(role, 2 * stand.partitions)
    supervisor.say(
        f"{role:<14} has {2 * stand.partitions} partitions; what has moved is kept for {lasts_ms / 1000:g} s"
    )
    return report(stand, clock.now_ms() + lasts_ms)


async def apply_plan(supervisor: Supervisor, registry: Registry, plan: SplitPlan) -> dict[str, Any]:
    """Do what a plan asks for and what is not so already: rooms first, for they may be why a role is hot."""
    root, lines = supervisor.layout.registry.root, []
    for room in plan.rooms:
        try:
            await propose_room(registry, root, room)
            lines.append(f"room {room!r} becomes big")
        except Conflict as error:
            lines.append(f"left as it is: {error}")
    clean_at = 0
    for role, before, after in plan.doublings:
        if role not in SPLITTABLE:
            lines.append(f"left as it is: {role} is not split here")
            continue
        try:
            stand = await read_stand(registry, root, role)
        except NotFound as error:
            lines.append(f"left as it is: {error}")
            continue
        if stand.partitions >= after:
            lines.append(f"left as it is: {role} has {stand.partitions} partitions")
        elif stand.partitions != before:
            raise Conflict(f"the plan was made for {before} partitions of {role}, and there are {stand.partitions}")
        else:
            done = await split_role(supervisor, registry, role, after)
            lines.append(done["done"])
            clean_at = max(clean_at, done["clean_at"])
    return {"done": "\n".join(lines) or "the plan asks for nothing", "lines": lines, "clean_at": clean_at}


async def propose_room(registry: Registry, root: str, room: str) -> None:
    """Let a room become big. Raises ``Conflict`` if it is already."""
    for _ in range(TRIES):
        read: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        registry.read(big_rooms_path(root), lambda found: None if read.done() else read.set_result(found))  # noqa: B023
        found = await _answered(read)
        if isinstance(found, PixiuError):
            raise found
        entry = found.get("")
        record = BigMap(None if entry is None else entry.data, -1 if entry is None else entry.version)
        data = record.joined(room)
        written: asyncio.Future[int | PixiuError] = asyncio.get_running_loop().create_future()
        write = Write(big_rooms_path(root), data, record.version)
        registry.write(write, lambda result: None if written.done() else written.set_result(result))  # noqa: B023
        result = await _answered(written)
        if not isinstance(result, PixiuError):
            return
        if not isinstance(result, Conflict):
            raise result
    raise Unavailable("others change the big rooms all the time; try again")


async def flip_by_hand(address: RegistryAddress, role: str, *, replicas: int, to: int | None) -> dict[str, Any]:
    """Flip the count where somebody else has started the new half, on whatever machines."""
    from pixiu.backends.zookeeper.registry import ZooKeeperRegistry

    check_role(role, SPLITTABLE)
    loop = asyncio.get_running_loop()
    registry = ZooKeeperRegistry(address.hosts, loop)
    await loop.run_in_executor(None, registry.connect)
    settings = LinkSettings()
    lasts_ms = settings.grace_ms + settings.poll_ms
    try:
        stand = await flip_role(registry, address.root, role, replicas=replicas, to=to, lasts_ms=lasts_ms)
    finally:
        await loop.run_in_executor(None, registry.close)
    return report(stand, SystemClock().now_ms() + lasts_ms)


def check_role(role: str, roles: tuple[str, ...] = SPLITTABLE) -> None:
    """Raise ``RequestError`` for a role that has no partitions to double."""
    if role not in roles:
        raise RequestError(f"{role} is not split; these are: {', '.join(roles)}")


def lasts_of(cluster: ClusterFile) -> int:
    """How long a doubling lasts: until the slowest has read the new count, and its grace is over."""
    default = LinkSettings()
    found = [default.grace_ms + default.poll_ms]
    linked = [plan.settings for plan in cluster.roles if plan.role not in ("shard", NODE_ROLE)]
    if linked:
        found = [
            int(str(each.get("links.grace_ms", default.grace_ms)))
            + int(str(each.get("links.poll_ms", default.poll_ms)))
            for each in linked
        ]
    return max(found)


def report(stand: Stand, clean_at_ms: int) -> dict[str, Any]:
    """What was done, for people and programs."""
    left = (clean_at_ms - SystemClock().now_ms()) / 1000
    grace = f"; the grace is over in {left:.0f} s" if left >= 1 else ""
    return {
        "done": f"{stand.role} has {2 * stand.partitions} partitions{grace}",
        "role": stand.role, "from": stand.partitions, "to": 2 * stand.partitions, "clean_at": clean_at_ms,
    }  # fmt: skip


async def read_stand(registry: Registry, root: str, role: str) -> Stand:
    """The role as the registry has it now."""
    answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
    registry.read(f"{root}/{role}", lambda found: None if answer.done() else answer.set_result(found))
    found = await _answered(answer)
    if isinstance(found, PixiuError):
        raise found
    return stand_of(role, found)


async def flip_role(registry: Registry, root: str, role: str, *, replicas: int, to: int | None, lasts_ms: int) -> Stand:
    """Double the count, or raise why not."""
    answer: asyncio.Future[Stand | PixiuError] = asyncio.get_running_loop().create_future()
    flip(
        registry, root, role, lambda result: None if answer.done() else answer.set_result(result),
        replicas=replicas, now_ms=SystemClock().now_ms(), lasts_ms=lasts_ms, to=to,
    )  # fmt: skip
    found = await _answered(answer)
    if isinstance(found, PixiuError):
        raise found
    return found


async def _flip_surely(
    registry: Registry, root: str, stand: Stand, *, replicas: int, to: int | None, lasts_ms: int
) -> None:
    """Flip, and find out whether it was done if the answer is lost. Raises ``Unfinished`` where nobody says."""
    try:
        await flip_role(registry, root, stand.role, replicas=replicas, to=to, lasts_ms=lasts_ms)
    except Unavailable as error:
        try:
            now = await read_stand(registry, root, stand.role)
        except PixiuError:
            raise Unfinished(f"it is not known whether {stand.role} has doubled ({error}): do it again") from error
        if now.partitions == stand.partitions:
            raise


async def _answered(answer: asyncio.Future[T]) -> T:
    try:
        async with asyncio.timeout(REGISTRY_SECONDS):
            return await answer
    except TimeoutError:
        raise Unavailable("the registry does not answer") from None


async def _wait_for_half(
    registry: Registry, root: str, role: str, count: int, replicas: int, fresh: list[Child]
) -> None:
    """Until every partition of the new half has its replicas Running."""
    loop = asyncio.get_running_loop()
    until = loop.time() + READY_SECONDS
    while True:
        stand = await read_stand(registry, root, role)
        late = [each for each in range(count, 2 * count) if stand.running.get(each, 0) < replicas]
        if not late and not any(stand.starting.get(each) for each in range(count, 2 * count)):
            return
        if loop.time() > until:
            words = "; ".join(f"{child.plan.name}: {child.last_words()}" for child in fresh)
            raise Conflict(f"partition {late[0] if late else count} is not ready after {READY_SECONDS:g} s; {words}")
        await asyncio.sleep(LOOK_SECONDS)
