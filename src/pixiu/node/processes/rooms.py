"""One role of a cluster's rooms as a process: ``pixiu role proxy|broker|router|relay|gateway|probe|meta``.

It listens, finds the registry, starts its role, which registers, loads and replays, and then serves until it is told to
stop: then it says so in the registry, serves a little longer, and leaves. Health, readiness, metrics and what it thinks
of its peers are on an admin port.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Protocol

from pixiu.links.member import Member, ensure_count
from pixiu.links.metrics import METRICS as LINKS
from pixiu.links.metrics import snapshot as links_snapshot
from pixiu.links.splitting import SPLITTABLE
from pixiu.node.processes.cluster_end import ClusterEnd, read_secrets, secrets_of
from pixiu.node.processes.gateway.known_leaders import leader_file
from pixiu.node.processes.running import run_until_stopped
from pixiu.runtime.admin import AdminServer, Response, standard_routes
from pixiu.runtime.collector import spare_the_collector
from pixiu.runtime.metrics import Metrics

if TYPE_CHECKING:
    from pixiu.machines.view import PeerState
    from pixiu.node.processes.options import RoleOptions

__all__ = ["RolePart", "RoleProcess", "run_role"]

log = logging.getLogger(__name__)

DESCRIPTORS_KEPT_BACK = 64
HOT_ROOMS = 50
START_MS = 30_000
"""How long a proxy waits for a broker in every partition before it says that one is missing, and goes on waiting."""


class RolePart(Protocol):
    """What a role is to its process."""

    async def start(self) -> None:
        """Begin; registering included."""
        ...

    async def drain(self) -> None:
        """Tell the others, and give them the time to see it."""
        ...

    async def stop(self) -> None:
        """It is over."""
        ...

    def reasons(self) -> dict[str, str]:
        """Why it does not serve, by part."""
        ...

    def notes(self) -> dict[str, str]:
        """What is missing, and does not keep it from serving."""
        ...

    def says(self) -> dict[str, object]:
        """What else to print when it starts."""
        ...


class RoleProcess:
    """A role with everything around it."""

    def __init__(self, options: RoleOptions, end: ClusterEnd) -> None:
        self.options = options
        self.end = end
        self.metrics = Metrics()
        self.metrics.add(LINKS, lambda: links_snapshot(end.endpoint, end.way, end.directory))
        self.member = Member(
            end.registry, end.scheduler, end.root,
            role=options.role, partition=options.partition, boot=end.boot, address=end.address,
            name=options.settings.replication.name,
        )  # fmt: skip
        self.routes = standard_routes(
            reasons=self._reasons, metrics=self.metrics.render, about=self._about, notes=lambda: self.part.notes()
        )
        """What its admin port answers."""
        self.routes["/peers"] = lambda _request: Response.json(200, end.directory.rows())
        self.part: RolePart = _part_of(options.role, self)
        self._admin = AdminServer(self.routes)
        self._admin_address = ""

    async def start(self) -> tuple[str, dict[str, object]]:
        """Start all of it. Returns what to tell whoever started the process: where it listens, and more."""
        options, end = self.options, self.end
        if options.role in SPLITTABLE:
            counted = asyncio.Event()
            ensure_count(end.registry, end.scheduler, end.root, options.role, options.partitions, counted.set)
            await counted.wait()
        host, port = await self._admin.start(options.bind, options.settings.links.admin_port)
        self._admin_address = f"{host}:{port}"
        self.member.tell(admin=self._admin_address)
        await self.part.start()
        end.directory.start()
        admin = f"http://{self._admin_address}"
        return end.address, {"admin": admin, "boot": f"{end.boot:x}", "pid": os.getpid(), **self.part.says()}

    async def stop(self) -> None:
        """Drain, then leave."""
        log.info("draining", extra={"role": self.options.role})
        await self.part.drain()
        await self.part.stop()
        left = asyncio.Event()
        self.member.leave(left.set)
        try:
            await asyncio.wait_for(left.wait(), 2)
        except TimeoutError:
            log.warning("the registry did not answer; the entry goes with the session")
        await self._admin.close()
        await self.end.close()

    def _reasons(self) -> dict[str, str]:
        reasons = self.part.reasons()
        if not self.member.path and self.options.role != "gateway":  # its clients find it without the registry
            reasons.setdefault("registry", "not registered")
        return reasons

    def _about(self) -> str:
        return f"pixiu {self.member.name}: {self.end.endpoint.state.value}; see /readyz, /metrics, /peers\n"

    async def wait_drained(self) -> None:
        """The time that others have to see that this one leaves."""
        await asyncio.sleep(self.options.settings.links.drain_ms / 1000)

    def say(self, state: PeerState) -> None:
        """A state, for the registry and for heartbeats."""
        self.end.endpoint.state = state
        self.member.set_state(state)


def _part_of(role: str, process: RoleProcess) -> RolePart:
    """A role of the process. A process loads the modules of its own role alone: that halves its memory."""
    if role == "gateway":
        from pixiu.node.processes.gateway.process import GatewayPart

        return GatewayPart(process)
    if role in ("probe", "meta"):
        from pixiu.node.processes import watching

        return watching.ProbePart(process) if role == "probe" else watching.MetaPart(process)
    if role == "broker":
        from pixiu.node.processes.room_parts.broker import BrokerPart

        return BrokerPart(process)
    if role == "relay":
        from pixiu.node.processes.room_parts.relay import RelayPart

        return RelayPart(process)
    if role == "router":
        from pixiu.node.processes.room_parts.router import RouterPart

        return RouterPart(process)
    from pixiu.node.processes.room_parts.proxy import ProxyPart

    return ProxyPart(process)


def run_role(options: RoleOptions) -> int:
    """Run a role until SIGTERM or SIGINT. Returns the exit code."""
    return run_until_stopped(options, _run)


async def _run(options: RoleOptions, stop: asyncio.Event) -> None:
    text = read_secrets(options.secret_file)
    secrets = secrets_of(text, options.bind)
    links_port = 0 if options.role == "gateway" else options.port
    memory = leader_file(options) if options.role == "gateway" else None
    end = await ClusterEnd.open(
        options.registry, secrets, options.settings.links, bind=options.bind, port=links_port,
        needs_registry=memory is None or memory.recall() is None,
    )  # fmt: skip
    if options.secret_file is not None:
        end.watch_secrets(options.secret_file, text)
    try:
        process = RoleProcess(options, end)
        address, more = await process.start()
    except BaseException:
        await end.close()
        raise
    options.started(address, **more)
    spare_the_collector()
    await stop.wait()
    await process.stop()
