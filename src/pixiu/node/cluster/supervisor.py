"""All processes of a cluster on this machine: started in order, kept alive, looked at, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import ConfigError, Conflict, NotFound, PixiuError, RequestError, Unavailable
from pixiu.node.cluster.child import Child, ChildState
from pixiu.node.cluster.conversion import convert_old_cluster
from pixiu.node.cluster.door import ControlDoor
from pixiu.node.cluster.layout import HeldPlaces, Layout, read_state
from pixiu.node.cluster.plans import read_plan
from pixiu.node.cluster.splitting import apply_plan, split_role
from pixiu.ports.registry import sequence_of
from pixiu.runtime.leftovers import end_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
    from pixiu.config.cluster import ClusterFile
    from pixiu.node.cluster.layout import ChildPlan
    from pixiu.ports.registry import Folder

__all__ = ["Supervisor", "end_leftovers", "has_others", "take_lock"]

log = logging.getLogger(__name__)

START_SECONDS = 90.0
"""How long one group of processes may take to be ready."""
REGISTRY_SECONDS = 2.0
LOGS_SECONDS = 30.0
"""How often the logs are looked at: one that has grown too large begins anew."""


class Supervisor:
    """Keeps a cluster alive until it is told to take it down."""

    def __init__(self, folder: Path, cluster: ClusterFile, *, say: Callable[[str], object]) -> None:
        """``say`` is told, line by line, what happens. Raises ``ConfigError`` when something is missing here."""
        self.folder = folder
        self._say = say
        self._lock = take_lock(folder)
        self._held = HeldPlaces()
        try:
            for line in end_leftovers(folder):
                say(line)
            if converted := convert_old_cluster(folder, cluster):
                say(converted)
            self.layout = Layout(folder, cluster)
            for plan in self.layout.plans:
                self._held.hold(plan)
        except BaseException:
            self._held.release_all()
            os.close(self._lock)
            raise
        self.children = {
            plan.name: Child(plan, self.layout.log_path(plan.name), changed=self._changed) for plan in self.layout.plans
        }
        self._registry: ZooKeeperRegistry | None = None
        self._door = ControlDoor(folder / "run", self._asked)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_splitting = False
        self.is_up = False
        self.wants_down = asyncio.Event()

    async def up(self) -> None:
        """Start everything, what others need first. Raises ``Unavailable`` naming what does not start.

        Whoever wants it down meanwhile gets it so: nothing more is started.
        """
        await self._door.open()
        self._write_state()
        self._tasks.add(asyncio.create_task(self._turn_logs()))
        for role in dict.fromkeys(plan.role for plan in self.layout.plans):
            group = [child for child in self.children.values() if child.plan.role == role]
            for child in group:
                child.start()
            await self._wait_for(group)
            if self.wants_down.is_set():
                return
            if role == "zookeeper":
                await self._meet()
        if self._registry is None:
            await self._meet()
        self.is_up = True

    async def _wait_for(self, group: list[Child]) -> None:
        ready = asyncio.gather(*(child.has_settled.wait() for child in group))
        down = asyncio.ensure_future(self.wants_down.wait())
        waits: set[asyncio.Future[Any]] = {ready, down}
        await asyncio.wait(waits, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)  # or the loop complains of what nobody has looked at
        refused = [child for child in group if child.state is ChildState.REFUSED]
        if refused:
            raise ConfigError(f"{refused[0].plan.name} cannot be started: {refused[0].last_words()}")
        missing = [child for child in group if not child.has_settled.is_set()]
        if missing and not self.wants_down.is_set():
            reasons = "; ".join(f"{child.plan.name}: {child.last_words()}" for child in missing)
            raise Unavailable(f"not everything has started: {reasons}; more is in {self.folder / 'logs'}")

    async def _meet(self) -> None:
        """Open a session with the registry, to say in the status what the roles say there."""
        from pixiu.backends.zookeeper.registry import ZooKeeperRegistry

        loop = asyncio.get_running_loop()
        registry = ZooKeeperRegistry(self.layout.registry.hosts, loop)
        await loop.run_in_executor(None, registry.connect)
        self._registry = registry

    async def down(self) -> None:
        """Stop everything in the reverse order, and leave no process and no socket behind."""
        self.is_up = False
        for role in reversed(list(dict.fromkeys(child.plan.role for child in self.children.values()))):
            if role == "zookeeper" and self._registry is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._registry.close)
                self._registry = None
            await asyncio.gather(*(child.stop() for child in self.children.values() if child.plan.role == role))
        if self._registry is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.close)
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            self._write_state()
        await self._door.close()
        self._held.release_all()
        os.close(self._lock)

    # What other shells ask.

    async def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request.get("action")
        if action == "status":
            return await self.status()
        if action == "down":
            self.wants_down.set()
            return {"done": "going down"}
        if action == "split":
            return await self._split(request)
        child = self.children.get(str(request.get("name")))
        if child is None:
            raise NotFound(f"there is no {request.get('name')!r}; there are: {', '.join(self.children)}")
        match action:
            case "kill":
                pid = child.pid
                child.kill()
                return {"done": f"{child.plan.name} killed, pid {pid}"}
            case "freeze":
                child.freeze()
                return {"done": f"{child.plan.name} frozen; thaw it with: pixiu cluster thaw {child.plan.name}"}
            case "thaw":
                child.thaw()
                return {"done": f"{child.plan.name} goes on"}
            case "drain":
                self._check_drain(child)
                if request.get("force") is not True:
                    await self._check_others(child)
                await child.drain()
                return {
                    "done": f"{child.plan.name} has left; start it again with: pixiu cluster start {child.plan.name}"
                }
            case "start":
                child.start_again()
                return {"done": f"{child.plan.name} starts"}
            case _:
                raise NotFound(f"there is no action {action!r}")

    async def _split(self, request: dict[str, Any]) -> dict[str, Any]:
        plan = request.get("plan")
        role, to = request.get("role", ""), request.get("to")
        if not isinstance(role, str) or not (to is None or isinstance(to, int)):
            raise RequestError("a split names a role, and may name how many partitions there shall be")
        if self._registry is None or not self.is_up:
            raise Conflict("the cluster is not up yet")
        if self._is_splitting:
            raise Conflict("another split is under way; one at a time")
        self._is_splitting = True
        try:
            if plan is not None:
                return await apply_plan(self, self._registry, read_plan(Path(str(plan))))
            return await split_role(self, self._registry, role, to)
        finally:
            self._is_splitting = False

    def add(self, plan: ChildPlan) -> Child:
        """Start another process and keep it alive."""
        with contextlib.suppress(PixiuError):  # its port is in use: the process reports that itself
            self._held.hold(plan)
        child = self.children[plan.name] = Child(plan, self.layout.log_path(plan.name), changed=self._changed)
        child.start()
        return child

    async def remove(self, child: Child) -> None:
        """Stop a process, and know no more of it."""
        await child.stop()
        self._held.release(child.plan.name)
        del self.children[child.plan.name]

    def say(self, line: str) -> None:
        """For people."""
        self._say(line)

    def keep_partitions(self, role: str, count: int) -> None:
        """A role has doubled: the next start knows it."""
        self.layout.partitions[role] = count
        self._write_state()

    async def _check_others(self, child: Child) -> None:
        """Refuse to drain the last one of a partition: of those started here, or by others and registered."""
        plan = child.plan
        if any(
            each is not child and each.state is ChildState.RUNNING
            and (each.plan.role, each.plan.partition) == (plan.role, plan.partition)
            for each in self.children.values()
        ):  # fmt: skip
            return
        if has_others(await self._read_registry() or {}, plan):
            return
        raise Conflict(
            f"{plan.name} is the only {plan.role} of partition {plan.partition} that runs: nobody would do its work, "
            "so nothing was done. --force drains it all the same"
        )

    def _check_drain(self, child: Child) -> None:
        """Refuse what would stop the others."""
        away = (ChildState.DRAINED, ChildState.DRAINING, ChildState.REFUSED, ChildState.STOPPED)
        if child.state in away:
            raise Conflict(f"{child.plan.name} is {child.state.value} already")
        plan = child.plan
        others = [
            other for other in self.children.values()
            if other is not child and (other.plan.role, other.plan.partition) == (plan.role, plan.partition)
            and other.state is ChildState.RUNNING
        ]  # fmt: skip
        if len(others) < plan.min_others:
            raise Conflict(
                f"without {plan.name} {len(others)} of {plan.role} run, and {plan.min_others} must: nothing was done"
            )

    async def status(self) -> dict[str, Any]:
        """Everything, as ``pixiu cluster status --json`` prints it."""
        folder = await self._read_registry()
        rows = [self._row(child, folder) for child in self.children.values()]
        return {
            "name": self.layout.cluster.name, "running": True, "up": self.is_up, "pid": os.getpid(),
            "registry": str(self.layout.registry), "registry_answers": folder is not None, "nodes": rows,
        }  # fmt: skip

    def _row(self, child: Child, folder: Folder | None) -> dict[str, Any]:
        plan = child.plan
        state, detail = child.state.value, ""
        if folder is not None and child.state is ChildState.RUNNING and plan.role not in ("zookeeper", "node"):
            below = f"{plan.role}/partition{plan.partition}/"
            places = sorted(
                (sequence_of(name), entry.data) for name, entry in folder.items()
                if name.startswith(below) and name.rpartition("/")[2].isdecimal()
                and plan.address in (entry.data.get("address"), entry.data.get("node"))
            )  # fmt: skip
            detail = str(places[-1][1].get("state", "")) if places else "not registered"
            control = folder.get(f"{below}ctl")
            if control is not None and places:
                detail += _standing(plan.name, control.data)
        return {
            "name": plan.name, "role": plan.role, "partition": plan.partition, "replica": plan.replica,
            "state": state, "detail": detail, "pid": child.pid, "address": plan.address, "restarts": child.restarts,
        }  # fmt: skip

    async def _read_registry(self) -> Folder | None:
        if self._registry is None:
            return None
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self._registry.read(
            self.layout.registry.root, lambda found: None if answer.done() else answer.set_result(found)
        )
        try:
            async with asyncio.timeout(REGISTRY_SECONDS):
                found = await answer
        except TimeoutError:
            return None
        return None if isinstance(found, PixiuError) else found

    def _changed(self, child: Child, words: str) -> None:
        """Tell it. Where that fails (a full disk, a terminal that is gone), children are kept alive all the same."""
        with contextlib.suppress(OSError, ValueError):
            self._say(f"{child.plan.name:<14} {words}")
        if child.pid is not None or child.state is ChildState.WAITING:
            try:
                self._write_state()
            except OSError as error:
                log.warning("the state of the cluster cannot be written", extra={"reason": str(error)})

    async def _turn_logs(self) -> None:
        while True:
            await asyncio.sleep(LOGS_SECONDS)
            for child in tuple(self.children.values()):
                child.turn_log()

    def _write_state(self) -> None:
        rows = [{"name": name, "pid": child.pid, "state": child.state.value} for name, child in self.children.items()]
        self.layout.write_state(supervisor=os.getpid(), socket=str(self._door.path), nodes=rows)


def has_others(folder: Folder, plan: ChildPlan) -> bool:
    """Have others of its role and partition registered? A gateway has an address for peers, and one for clients."""
    below = f"{plan.role}/partition{plan.partition}/"
    return any(
        plan.address not in (entry.data.get("address"), entry.data.get("node"))
        for name, entry in folder.items()
        if name.startswith(below) and name.rpartition("/")[2].isdecimal()
    )


def _standing(name: str, control: Any) -> str:
    in_sync = control.get("in_sync")
    if control.get("leader") == name:
        return f", {'leads' if in_sync else 'serves'} in epoch {control.get('epoch')}"
    if not in_sync:
        return ", stands by"
    return ", in sync" if isinstance(in_sync, list) and name in in_sync else ", catching up"


def take_lock(folder: Path) -> int:
    """One supervisor per folder. Raises ``Conflict`` if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        pid = read_state(folder).get("supervisor")
        raise Conflict(f"a cluster runs in {folder} already (pid {pid}); pixiu cluster down ends it") from None
    return lock


def end_leftovers(folder: Path) -> list[str]:
    """End processes that a supervisor which was killed has left, in the order of ``down``. Returns what was done."""
    mark = str(folder.absolute())
    names: dict[str, dict[int, str]] = {}
    for row in read_state(folder).get("nodes", []):
        name, pid = str(row.get("name", "?")), row.get("pid")
        if isinstance(pid, int):
            names.setdefault(name.partition("-")[0], {})[pid] = name
    return [
        f"{group[pid]:<14} was left by a supervisor that is gone; ended, pid {pid}"
        for group in reversed(names.values())
        for pid in end_ours(group, mark)
    ]
