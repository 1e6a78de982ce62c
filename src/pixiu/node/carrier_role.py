"""``pixiu role carrier --partition K``: one replica of a partition of the users, as a process.

It follows the log of the cluster's queue, applies what its users need, and stands ready. One replica of a partition
serves: it holds the lease on ``ctl`` of the partition's folder, and ``leader`` there says where gateways reach it::

    /pubsub/carrier/partition_num              {"count": 2}
    /pubsub/carrier/partition0/ctl             {"epoch": 3, "leader": "carrier-0-1", "in_sync": []}
    /pubsub/carrier/partition0/leader          {"epoch": 3, "name": "carrier-0-1", "address": "10.0.0.7:8500", …}
    /pubsub/carrier/partition0/0000000004      {"name": "carrier-0-1", "state": "Running", "admin": "…", …}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from pixiu.backends.queue_log import RemoteLog
from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.links.member import COUNT_KEY, Slot, count_path, ensure_count, folder_of
from pixiu.machines.replication import ControlRefused, ControlSeen
from pixiu.machines.serving import ChangeRecord, ReadRecord, Serve, Serving, ServingRules, ServingState, Stop
from pixiu.model.errors import ConfigError, PixiuError
from pixiu.model.partitions import Share, check_count
from pixiu.node.carrier_host import CarrierHost
from pixiu.node.cluster_end import is_loopback, new_boot, queue_key, read_secrets, secrets_of
from pixiu.node.hub_listener import HubListener
from pixiu.node.role_running import run_until_stopped
from pixiu.queue.client import Client
from pixiu.queue.control import RegistryControl
from pixiu.roles.carrier.metrics import METRICS as CARRIER
from pixiu.roles.carrier.metrics import snapshot as carrier_snapshot
from pixiu.roles.horn.metrics import METRICS as HORN
from pixiu.roles.proxy.metrics import METRICS as PROXY
from pixiu.roles.proxy.metrics import snapshot as proxy_snapshot
from pixiu.roles.relay.metrics import METRICS as RELAY
from pixiu.runtime.admin import AdminServer, Request, Response, standard_routes
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.metrics import Metrics
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from pixiu.config import Settings
    from pixiu.machines.replication import Event
    from pixiu.machines.serving import ServingCommand
    from pixiu.node.gateway_hub import GatewayHub
    from pixiu.node.role_options import RoleOptions
    from pixiu.ports.registry import Folder

__all__ = ["ROLE", "CarrierProcess", "run_carrier"]

log = logging.getLogger(__name__)

ROLE = "carrier"
TICKS_PER_RENEWAL = 5
RETRY_SECONDS = 0.5
LEAVE_SECONDS = 2.0
PATIENCE_SECONDS = 10.0


class CarrierProcess:
    """A carrier with everything around it."""

    def __init__(self, options: RoleOptions, registry: ZooKeeperRegistry, scheduler: LoopScheduler) -> None:
        self.options = options
        self.clock = SystemClock()
        self.boot = new_boot(self.clock)
        self.host: CarrierHost | None = None
        """Of this life; None between two."""
        self.share = Share(options.partition, options.partitions)
        self.partitions = options.partitions
        """As the registry said when it started; a flip is learnt from the log."""
        settings = options.settings.replication
        self.name = settings.name or f"{ROLE}-{options.partition}-{self.boot & 0xFFFF:04x}"
        rules = ServingRules(lease_ms=settings.lease_ms, renew_ms=settings.renew_ms)
        self.serving = Serving(self.name, rules)
        self._registry = registry
        self._scheduler = scheduler
        self._tick_ms = rules.renew_ms / TICKS_PER_RENEWAL
        text = read_secrets(options.secret_file)
        self._listener = HubListener(secrets_of(text, options.bind), self.boot, self._hub)
        self._client = Client(
            str(options.registry), key=queue_key(text, options.bind), pool=2, patience_s=PATIENCE_SECONDS
        )
        self._control: RegistryControl | None = None
        self._is_stopping = False
        self._lost = asyncio.Event()
        self._won = asyncio.Event()
        self._living: asyncio.Task[None] | None = None
        self._problem = "starting"
        self._audit: asyncio.Task[dict[str, object]] | None = None
        self._settings: Settings = options.settings
        self._metrics = Metrics()
        routes = standard_routes(
            reasons=self.reasons, metrics=lambda accept: self._metrics.render(accept), about=self._about
        )
        routes["/carrier"] = lambda _request: Response.json(200, self.status())
        routes["/audit"] = self._audited
        self._admin = AdminServer(routes)

    # Life.

    async def start(self) -> tuple[str, dict[str, object]]:
        """Listen, find the others, begin to follow. Returns what to tell whoever started the process."""
        options, root = self.options, self.options.registry.root
        count = await self._count(root)
        self.partitions = count
        if options.partition >= 2 * count:
            raise ConfigError(
                f"--partition {options.partition}: there are {count} carriers, and they double to {2 * count}"
            )
        self.share = Share(options.partition, count if options.partition < count else 2 * count)
        node_id = await self._slot(root)
        self._settings = replace(options.settings, queue=replace(options.settings.queue, node_id=node_id))
        host, port = await self._admin.start(options.bind, 0)
        address = await self._listener.start(options.bind, options.port)
        more = {
            "role": ROLE, "partition": options.partition, "boot": f"{self.boot:x}", "admin": f"{host}:{port}",
        }  # fmt: skip
        self._control = RegistryControl(
            self._registry, self._scheduler, folder=folder_of(root, ROLE, options.partition), name=self.name,
            address=address, more=more,
        )  # fmt: skip
        self._control.start(self._told)
        self._living = asyncio.get_running_loop().create_task(self._live())
        self._tick()
        return address, {"admin": f"http://{host}:{port}", "name": self.name, "pid": os.getpid()}

    async def stop(self) -> None:
        """Hand over, then leave."""
        self._is_stopping = True
        control = self._control
        if control is not None:
            control.stands("Draining")
        if self._living is not None:
            self._living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._living
        for command in self.serving.leave(self._now_ms()):
            self._perform(command)
        if control is not None:
            await asyncio.sleep(min(self._settings.replication.renew_ms / 1000, LEAVE_SECONDS))
            control.stop()
        await self._listener.close()
        await self._admin.close()
        await self._client.close()

    async def _count(self, root: str) -> int:
        """How many partitions there are: what the registry says, or what this one was told, if it is the first."""
        loop = asyncio.get_running_loop()
        known = asyncio.Event()
        ensure_count(self._registry, self._scheduler, root, ROLE, self.options.partitions, known.set)
        await known.wait()
        while True:
            answer: asyncio.Future[Folder | PixiuError] = loop.create_future()
            self._registry.read(count_path(root, ROLE), answer.set_result)
            found = await answer
            entry = None if isinstance(found, PixiuError) else found.get("")
            count = None if entry is None else entry.data.get(COUNT_KEY)
            if isinstance(count, int):
                check_count(count)
                return count
            await asyncio.sleep(RETRY_SECONDS)

    async def _slot(self, root: str) -> int:
        """A number for ids that nobody else of the cluster has."""
        claimed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        slot = Slot(
            self._registry, self._scheduler, root,
            lambda number: None if claimed.done() else claimed.set_result(number),
        )  # fmt: skip
        slot.claim()
        return await claimed

    async def _live(self) -> None:
        """One life after the other, until it is stopped."""
        while True:
            try:
                await self._one_life()
            except PixiuError as error:
                self._problem = str(error)
                log.warning("a life has ended", extra={"reason": str(error)})
            except Exception as error:  # a role's boundary: a bug must not leave a process that does nothing
                self._problem = f"{type(error).__name__}: {error}"
                log.exception("a life has ended by a bug, will try again")
            await asyncio.sleep(RETRY_SECONDS if self._problem else 0)

    async def _one_life(self) -> None:
        queue = RemoteLog(self._client)
        await queue.open()
        self._lost.clear()
        self.host = host = CarrierHost(
            self._client, queue, self.options.data, self.share, self.clock, self._scheduler, self._settings,
            partitions=self.partitions, may_serve=lambda: self.serving.is_serving(self._now_ms()),
            creates_users=is_loopback(self.options.bind),
        )  # fmt: skip
        self._problem = ""
        self._metrics = _metrics_of(host)
        try:
            host.follow()
            await self._won.wait()
            serve = asyncio.ensure_future(host.serve())
            lost = asyncio.ensure_future(self._lost.wait())
            try:
                await asyncio.wait({serve, lost}, return_when=asyncio.FIRST_COMPLETED)
                if serve.done():
                    serve.result()
                    log.info("serving", extra={"partition": self.share.partition, "epoch": self.serving.epoch})
                    if self._control is not None and not self._lost.is_set():
                        self._control.leads(self.serving.epoch)
                    await lost
            finally:
                for task in (serve, lost):
                    task.cancel()
        finally:
            self.host = None
            await host.close()
            await queue.close()

    # The lease.

    def _now_ms(self) -> int:
        return self.clock.monotonic_us() // 1000

    def _tick(self) -> None:
        if self._is_stopping:
            return
        host = self.host
        is_near = host is not None and host.is_near
        for command in self.serving.tick(self._now_ms(), is_ready=is_near):
            self._perform(command)
        if self._control is not None:
            self._control.stands("Running" if is_near else "Init")
        self._scheduler.after(self._tick_ms, self._tick)

    def _told(self, event: Event) -> None:
        if isinstance(event, ControlSeen):
            commands = self.serving.seen(self._now_ms(), event)
        elif isinstance(event, ControlRefused):
            commands = self.serving.refused(self._now_ms(), event)
        else:
            return  # a lost session: the lease does not depend on it
        for command in commands:
            self._perform(command)

    def _perform(self, command: ServingCommand) -> None:
        control = self._control
        if control is None:
            return
        match command:
            case ReadRecord(asked_ms):
                control.read(asked_ms)
            case ChangeRecord(expected_version, record, asked_ms):
                control.change(expected_version, record, asked_ms)
            case Serve(epoch):
                log.info("chosen", extra={"partition": self.share.partition, "epoch": epoch})
                self._lost.clear()
                self._won.set()
            case Stop(reason):
                log.warning("serving no more", extra={"partition": self.share.partition, "reason": reason})
                self._won.clear()
                self._lost.set()

    def _hub(self) -> GatewayHub | None:
        """Who takes gateways now."""
        host = self.host
        return host.hub if host is not None and host.is_serving and self.serving.is_serving(self._now_ms()) else None

    # What others ask.

    @property
    def is_serving(self) -> bool:
        """Does it take gateways?"""
        return self._hub() is not None

    def reasons(self) -> dict[str, str]:
        """Why it is not ready, by part. One that stands by is ready when it has applied what there is."""
        host = self.host
        if host is None:
            return {"carrier": self._problem or "starting"}
        problems = host.problems()
        if self.serving.state is ServingState.SERVING and not host.is_serving:
            problems.append("about to serve")
        elif not host.is_near:
            problems.append(f"{host.behind} events behind the log")
        return {"carrier": "; ".join(problems)} if problems else {}

    def status(self) -> dict[str, object]:
        """What ``/carrier`` shows."""
        host = self.host
        return {
            "name": self.name, "partition": self.share.partition,
            "partitions": self.partitions if host is None else host.messaging.partitions,
            "serving": self.is_serving, "epoch": self.serving.epoch, "served_by": self.serving.holder,
            "applied": 0 if host is None else host.messaging.carrier.applied_all,
            "behind": None if host is None else host.behind,
            "sessions": 0 if host is None else host.messaging.relay.counters.sessions,
        }  # fmt: skip

    def _about(self) -> str:
        return f"pixiu {self.name}: {self.serving.state.value}; see /readyz, /metrics, /carrier, /audit\n"

    def _audited(self, request: Request) -> Response:
        """The books of this partition: begun by who asks first, given to who asks when they are there."""
        query = parse_qs(request.query)
        try:
            at_least, before = (int(query[name][0]) if name in query else None for name in ("from", "to"))
        except ValueError:
            return Response.error(400, "bad_request", "from and to are milliseconds")
        host = self.host
        if host is None or not self.is_serving:
            return Response.error(503, "unavailable", f"{self.name} does not serve")
        running = self._audit
        if running is None:
            self._audit = asyncio.get_running_loop().create_task(self._report(host, at_least or 0, before))
            return Response.json(202, {"state": "running"})
        if not running.done():
            return Response.json(202, {"state": "running"})
        self._audit = None
        if running.cancelled() or (error := running.exception()) is not None:
            reason = "cancelled" if running.cancelled() else str(error)
            return Response.error(503, "unavailable", f"the audit did not end: {reason}")
        return Response.json(200, running.result())

    async def _report(self, host: CarrierHost, at_least: int, before: int | None) -> dict[str, object]:
        report = (await host.audit(at_least=at_least, before=before)).as_json()
        count = host.messaging.partitions
        return {**report, "partition": self.share.partition, "partitions": count, "name": self.name}


def _metrics_of(host: CarrierHost) -> Metrics:
    """Of one life; the numbers begin anew with the next, as with a new process."""
    metrics, messaging = Metrics(), host.messaging
    metrics.add(PROXY, lambda: proxy_snapshot(messaging.proxy))
    metrics.add(CARRIER, lambda: carrier_snapshot(messaging.carrier))
    metrics.add(RELAY, messaging.relay.counters.snapshot)
    metrics.add(HORN, messaging.horn.counters.snapshot)
    return metrics


def run_carrier(options: RoleOptions) -> int:
    """Run a carrier until SIGTERM or SIGINT. Returns the exit code."""
    return run_until_stopped(options, _run)


async def _run(options: RoleOptions, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    with DataDirectory.open(options.data):
        scheduler = LoopScheduler(loop)
        registry = ZooKeeperRegistry(options.registry.hosts, loop, session_ms=options.settings.links.session_ms)
        await loop.run_in_executor(None, registry.connect)
        try:
            process = CarrierProcess(options, registry, scheduler)
            address, more = await process.start()
            options.started(address, **more)
            await stop.wait()
            await process.stop()
        finally:
            scheduler.close()
            await loop.run_in_executor(None, registry.close)
