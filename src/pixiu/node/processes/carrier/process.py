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
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from pixiu.backends.queue_log import RemoteLog
from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.config.engines import EMBEDDED
from pixiu.links.member import COUNT_KEY, Slot, count_path, ensure_count, folder_of
from pixiu.machines.links.sealing import Secrets
from pixiu.machines.serving import ServingRules
from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.model.hosts import is_loopback
from pixiu.model.partitions import Share, check_count
from pixiu.node.gateways.listener import HubListener
from pixiu.node.processes.carrier.engines import ALL_EMBEDDED, open_replica, replica_engines
from pixiu.node.processes.carrier.host import CarrierHost
from pixiu.node.processes.carrier.life import CarrierLife
from pixiu.node.processes.carrier.snapshots import BULK, givers_in, take_snapshot
from pixiu.node.processes.carrier.stores import DiskHome
from pixiu.node.processes.cluster_end import new_boot, queue_key, read_secrets, secrets_of
from pixiu.node.processes.cluster_secrets import SecretsFile
from pixiu.node.processes.running import run_until_stopped
from pixiu.queue.client import Client
from pixiu.queue.replication.control import RegistryControl
from pixiu.roles.broker.metrics import METRICS as BROKER
from pixiu.roles.broker.metrics import snapshot as broker_snapshot
from pixiu.roles.carrier.metrics import METRICS as CARRIER
from pixiu.roles.carrier.metrics import snapshot as carrier_snapshot
from pixiu.roles.horn.metrics import METRICS as HORN
from pixiu.roles.proxy.metrics import METRICS as PROXY
from pixiu.roles.proxy.metrics import snapshot as proxy_snapshot
from pixiu.roles.relay.metrics import METRICS as RELAY
from pixiu.runtime import hub_streams
from pixiu.runtime.admin import AdminServer, Request, Response, standard_routes
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.metrics import Metrics
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config import Settings
    from pixiu.node.processes.carrier.engines import ReplicaStores
    from pixiu.node.processes.options import RoleOptions
    from pixiu.ports.registry import Folder
    from pixiu.ports.transport import WatchedReceiver

__all__ = ["ROLE", "CarrierProcess", "run_carrier"]

log = logging.getLogger(__name__)

ROLE = "carrier"
RETRY_SECONDS = 0.5
LEAVE_SECONDS = 2.0
PATIENCE_SECONDS = 10.0
WATCH_SECONDS, HAND_OVER_SECONDS = 0.5, 3.0
"""How long an engine may be down before another replica serves, if one can."""
AUDIT_KEPT_SECONDS = 10.0
"""Books that nobody comes for within this time are old, and are made anew for who asks next."""


class CarrierProcess:
    """A carrier with everything around it."""

    def __init__(self, options: RoleOptions, registry: ZooKeeperRegistry, scheduler: LoopScheduler) -> None:
        self.options = options
        self.clock = SystemClock()
        self.boot = new_boot(self.clock)
        self.share = Share(options.partition, options.partitions)
        self.partitions = options.partitions
        """As the registry said when it started; a flip is learnt from the log."""
        settings = options.settings.replication
        self.name = settings.name or f"{ROLE}-{options.partition}-{self.boot & 0xFFFF:04x}"
        self._rules = ServingRules(lease_ms=settings.lease_ms, renew_ms=settings.renew_ms)
        self._home = DiskHome(options.data)
        self._engines = replica_engines(options.settings.engines, self.name)
        self._registry = registry
        self._scheduler = scheduler
        text = read_secrets(options.secret_file)
        self._secrets = secrets_of(text, options.bind)
        self._life: CarrierLife | None = None
        self._listener = HubListener(self._secrets, self.boot, lambda: None if self._life is None else self._life.hub())
        self._bulk: hub_streams.HubStreams | None = None
        self._secrets_text = text
        self._secrets_file: SecretsFile | None = None
        self._client = Client(
            str(options.registry), key=queue_key(text, options.bind), pool=2, patience_s=PATIENCE_SECONDS
        )
        self._control: RegistryControl | None = None
        self._watch: asyncio.Task[None] | None = None
        self._audit: asyncio.Task[dict[str, object]] | None = None
        self._audit_asked: tuple[int, int | None, float] = (0, None, 0.0)
        """Which stretch of time it is about, and when somebody asked for it last."""
        self._settings: Settings = options.settings
        self._metrics = Metrics()
        routes = standard_routes(
            reasons=self.reasons, metrics=lambda accept: self._metrics.render(accept), about=self._about
        )
        routes["/carrier"] = lambda _request: Response.json(200, self.status())
        routes["/audit"] = self._audited
        self._admin = AdminServer(routes)

    @property
    def host(self) -> CarrierHost | None:
        """Of this life; None between two."""
        return None if self._life is None else self._life.host

    # Life.

    async def start(self) -> tuple[str, dict[str, object]]:
        """Listen, find the others, begin to follow. Returns what to tell whoever started the process."""
        options, root = self.options, self.options.registry.root
        if options.secret_file is not None:
            loop = asyncio.get_running_loop()
            self._secrets_file = SecretsFile(options.secret_file, self._secrets_text, loop, self._change_secrets)
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
        self._bulk = await hub_streams.listen(options.bind, 0, lambda: self._secrets, self.boot, self._give)
        bulk = f"[{options.bind}]:{self._bulk.port}" if ":" in options.bind else f"{options.bind}:{self._bulk.port}"
        more = {
            "role": ROLE, "partition": options.partition, "boot": f"{self.boot:x}", "admin": f"{host}:{port}",
            BULK: bulk,
        }  # fmt: skip
        self._control = control = RegistryControl(
            self._registry, self._scheduler, folder=folder_of(root, ROLE, options.partition), name=self.name,
            address=address, more=more,
        )  # fmt: skip
        self._life = life = CarrierLife(
            self.name, self._rules, control, self.clock, self._scheduler, begin=self._begin, take_snapshot=self._take,
        )  # fmt: skip
        life.when_begun = self._begun
        life.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_engines(life))
        return address, {"admin": f"http://{host}:{port}", "name": self.name, "pid": os.getpid()}

    async def stop(self) -> None:
        """Hand over, then leave."""
        if self._watch is not None:
            self._watch.cancel()
        if self._secrets_file is not None:
            self._secrets_file.close()
        if self._life is not None:
            await self._life.stop()
        if self._control is not None:
            await asyncio.sleep(min(self._settings.replication.renew_ms / 1000, LEAVE_SECONDS))
            self._control.stop()
        await self._listener.close()
        if self._bulk is not None:
            self._bulk.close()
        await self._admin.close()
        await self._client.close()

    def _change_secrets(self, text: str) -> None:
        """For streams of gateways and replicas, and for the queue: whoever connects from now on."""
        self._secrets = Secrets.from_text(text)
        self._listener.change_secrets(self._secrets)
        self._client.change_key(queue_key(text, self.options.bind))

    async def _begin(self, may_serve: Callable[[], bool]) -> CarrierHost:
        queue = RemoteLog(self._client)
        await queue.open()
        stores = await self._opened_stores()
        try:
            return CarrierHost(
                self._client, queue, stores, self.clock, self._scheduler, self._settings,
                partitions=self.partitions, may_serve=may_serve, creates_users=is_loopback(self.options.bind),
            )  # fmt: skip
        except BaseException:
            stores.stores.close()
            raise

    async def _opened_stores(self) -> ReplicaStores:
        """Engines of others are asked in a thread: the lease and the registry do not wait for them."""
        home, share, engines, root = self._home, self.share, self._engines, self.options.data
        if engines == ALL_EMBEDDED:
            return open_replica(home, share, engines, root)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, open_replica, home, share, engines, root)

    def _begun(self, host: CarrierHost) -> None:
        self._metrics = _metrics_of(host)

    async def _watch_engines(self, life: CarrierLife) -> None:
        """Replicas may have different engines: whose own fails for a while lets one serve that is ready."""
        loop, since = asyncio.get_running_loop(), None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            host = life.host
            hindrance = "" if host is None or not life.is_serving else host.hindrance
            since = (since or loop.time()) if hindrance else None
            if since is not None and loop.time() - since >= HAND_OVER_SECONDS and await self._is_another_ready():
                log.warning("hands over", extra={"reason": hindrance})
                life.hand_over(hindrance)

    async def _is_another_ready(self) -> bool:
        """Who has an engine that is down is not Running."""
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self._registry.read(folder_of(self.options.registry.root, ROLE, self.options.partition), answer.set_result)
        found = await answer
        return not isinstance(found, PixiuError) and any(
            name.isdecimal() and entry.data.get("state") == "Running" and entry.data.get("name") != self.name
            for name, entry in found.items()
        )

    # Snapshots.

    def _give(self, _peer: int) -> WatchedReceiver | None:
        host = self.host
        return None if host is None else host.giving.accept()

    async def _take(self, applied: int) -> int:
        """From whoever has one: of this partition, or of the one that a new one comes of."""
        if self._engines.note:
            raise Unavailable(
                f"the log no longer has what follows event {applied}, and stores in {self._engines.note} are not made "
                "from another replica's: restore them from a backup of their own, or start this replica with embedded "
                "stores"
            )
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self._registry.read(f"{self.options.registry.root}/{ROLE}", answer.set_result)
        folder = await answer
        if isinstance(folder, PixiuError):
            raise folder
        wanted = list(dict.fromkeys([self.share.partition, self.share.partition % self.partitions]))
        problem: PixiuError = Unavailable("no other replica is there to give a snapshot")
        for address, boot in givers_in(folder, self.name, wanted):
            try:
                return await take_snapshot(
                    lambda receiver, address=address, boot=boot: hub_streams.connect(  # type: ignore[misc]
                        asyncio.get_running_loop(), address, self._secrets, receiver, boot=self.boot, to=boot
                    ),
                    self._home, self.share, applied=applied,
                )  # fmt: skip
            except PixiuError as error:
                problem = error
                log.warning("a snapshot was not taken", extra={"from": address, "reason": str(error)})
        raise problem

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

    # What others ask.

    @property
    def is_serving(self) -> bool:
        """Does it take gateways?"""
        return self._life is not None and self._life.is_serving

    def reasons(self) -> dict[str, str]:
        """Why it is not ready, by part."""
        problems = ["starting"] if self._life is None else self._life.problems()
        return {"carrier": "; ".join(problems)} if problems else {}

    def status(self) -> dict[str, object]:
        """What ``/carrier`` shows."""
        host, life = self.host, self._life
        return {
            "name": self.name, "partition": self.share.partition, "engines": self._engines.note or EMBEDDED,
            "partitions": self.partitions if host is None else host.messaging.partitions,
            "serving": self.is_serving, "epoch": 0 if life is None else life.serving.epoch,
            "served_by": "" if life is None else life.serving.holder,
            "applied": 0 if host is None else host.messaging.carrier.applied_all,
            "behind": None if host is None else host.behind,
            "sessions": 0 if host is None else host.messaging.relay.counters.sessions,
            "snapshots_taken": 0 if life is None else life.snapshots,
            "snapshots_given": 0 if host is None else host.giving.given,
        }  # fmt: skip

    def _about(self) -> str:
        state = "starting" if self._life is None else self._life.serving.state.value
        return f"pixiu {self.name}: {state}; see /readyz, /metrics, /carrier, /audit\n"

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
        now = asyncio.get_running_loop().time()
        running, (*asked, asked_at) = self._audit, self._audit_asked
        is_ours = asked == [at_least or 0, before]
        if running is not None and running.done() and (not is_ours or now - asked_at > AUDIT_KEPT_SECONDS):
            running = None  # whoever wanted those books has not come for them
        if running is None:
            self._audit = asyncio.get_running_loop().create_task(self._report(host, at_least or 0, before))
            self._audit_asked = (at_least or 0, before, now)
            return Response.json(202, {"state": "running"})
        if is_ours:
            self._audit_asked = (at_least or 0, before, now)
        if not running.done():
            return Response.json(202, {"state": "running"})
        self._audit = None
        if running.cancelled() or (error := running.exception()) is not None:
            reason = "cancelled" if running.cancelled() else str(error)
            return Response.error(500, "internal", f"the audit did not end: {reason}")
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
    metrics.add(BROKER, lambda: broker_snapshot(host.group_rooms.broker))
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
