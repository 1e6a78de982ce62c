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
from pixiu.machines.view import PeerState
from pixiu.node.processes.cluster_end import ClusterEnd, read_secrets, secrets_of
from pixiu.node.processes.gateway.known_leaders import leader_file
from pixiu.node.processes.gateway.process import GatewayPart
from pixiu.node.processes.room_rows import RoomRowsLog
from pixiu.node.processes.running import run_until_stopped
from pixiu.node.processes.watching import MetaPart, ProbePart
from pixiu.roles.broker.cluster import ClusterBroker
from pixiu.roles.broker.hot import HotRooms
from pixiu.roles.broker.metrics import METRICS as BROKER
from pixiu.roles.broker.metrics import snapshot as broker_snapshot
from pixiu.roles.proxy.rooms import RoomProxy
from pixiu.roles.relay.room_metrics import METRICS as RELAY
from pixiu.roles.relay.room_metrics import snapshot as relay_snapshot
from pixiu.roles.relay.rooms import ClusterRelay
from pixiu.roles.router.router import Router
from pixiu.runtime.admin import AdminServer, Response, standard_routes
from pixiu.runtime.collector import spare_the_collector
from pixiu.runtime.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.node.processes.options import RoleOptions
    from pixiu.roles.broker.broker import RoomRow

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
        self.part: RolePart = PARTS[options.role](self)
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


class _Proxy:
    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._proxy = RoomProxy(end.endpoint, end.directory, end.scheduler, end.bigs)
        self._proxy.when_ready = self._ready

    async def start(self) -> None:
        self._process.end.bigs.start()
        self._proxy.start()
        self._process.end.scheduler.after(START_MS, self._look)

    async def drain(self) -> None:
        self._process.say(PeerState.DRAINING)
        await self._process.wait_drained()

    async def stop(self) -> None:
        pass

    def reasons(self) -> dict[str, str]:
        return {} if self._proxy.is_complete else {"brokers": "a partition of the brokers has nobody"}

    def notes(self) -> dict[str, str]:
        return {}

    def says(self) -> dict[str, object]:
        return {}

    def _ready(self) -> None:
        self._process.say(PeerState.RUNNING)
        self._process.member.register()

    def _look(self) -> None:
        if not self._process.member.path:
            log.warning("a partition of the brokers has nobody; this proxy waits for it")


class _Router:
    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._router = Router(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler,
            new_life=end.new_life, patience_ms=end.settings.dead_ms,
        )  # fmt: skip

    async def start(self) -> None:
        self._router.start()

    async def drain(self) -> None:
        self._router.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        self._router.replica.stop()

    def reasons(self) -> dict[str, str]:
        life = self._router.replica.life
        return {} if life.takes_work else {"router": life.phase.value}

    def notes(self) -> dict[str, str]:
        return {}

    def says(self) -> dict[str, object]:
        return {}


class _Broker:
    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._hot = HotRooms(end.clock)
        process.routes["/hot.json"] = lambda _request: Response.json(
            200, [room._asdict() for room in self._hot.top(HOT_ROOMS)]
        )
        options = process.options
        self._rows = RoomRowsLog(end, options, read_secrets(options.secret_file))
        end.when_secrets_changed.append(self._rows.change_key)
        self._broker = ClusterBroker(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler, options.settings.rooms,
            node_id=end.boot & 1023, bigs=end.bigs, lasts_ms=end.settings.grace_ms + end.settings.poll_ms,
            by_relay=end.settings.room_path == "relay", report=self._report,
        )  # fmt: skip
        process.metrics.add(BROKER, lambda: broker_snapshot(self._broker.broker))

    async def start(self) -> None:
        self._process.end.bigs.start()
        self._broker.start()

    async def drain(self) -> None:
        self._broker.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        self._broker.stop()
        self._broker.replica.stop()
        await self._rows.stop()

    def _report(self, row: RoomRow) -> None:
        self._hot.report(row)
        self._rows.report(row)

    def reasons(self) -> dict[str, str]:
        life = self._broker.replica.life
        return {} if life.takes_work else {"broker": life.phase.value}

    def notes(self) -> dict[str, str]:
        return {}

    def says(self) -> dict[str, object]:
        return {}


class _Relay:
    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._relay = ClusterRelay(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler, process.options.settings.rooms,
            new_life=end.new_life, patience_ms=end.settings.dead_ms,
        )  # fmt: skip
        process.metrics.add(RELAY, lambda: relay_snapshot(self._relay))

    async def start(self) -> None:
        self._relay.start()

    async def drain(self) -> None:
        self._relay.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        self._relay.stop()
        self._relay.replica.stop()

    def reasons(self) -> dict[str, str]:
        life = self._relay.replica.life
        return {} if life.takes_work else {"relay": life.phase.value}

    def notes(self) -> dict[str, str]:
        return {}

    def says(self) -> dict[str, object]:
        return {}


PARTS: dict[str, Callable[[RoleProcess], RolePart]] = {
    "proxy": _Proxy,
    "router": _Router,
    "broker": _Broker,
    "relay": _Relay,
    "gateway": GatewayPart,
    "probe": ProbePart,
    "meta": MetaPart,
}
"""The roles that live on links alone."""


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
