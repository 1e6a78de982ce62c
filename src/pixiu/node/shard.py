"""A replica of a shard: a node whose log is replicated, and whose gateways are other processes.

::

    gateways ══ sealed TCP, the hub's messages ══▶ shard-0-1 leads the log and serves ──▶ its log, its stores
                                                   shard-0-0 copies the log and applies it ──▶ its log, its stores

Every replica applies its own copy of the log. The replica that leads the log serves: one lease, one failover. A replica
that stops leading closes its messaging roles with their sessions, opens its stores again and follows.

Where the log is in Kafka there is one copy, which all replicas apply. The lease in the registry then decides which
replica owns the log and serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from pixiu.machines.links.sealing import Secrets
from pixiu.machines.queue_wire.commands import IN_KAFKA, LEADER_PUBLISHES
from pixiu.model.counted import counted
from pixiu.model.errors import NotAllowed, NotLeader, PixiuError, Unavailable
from pixiu.node.admin.remote import RemoteAdministration
from pixiu.node.admin.stats import Doors
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.gateways.listener import HubListener
from pixiu.node.group_rooms import GroupRooms
from pixiu.node.host import MessagingHost, Replica
from pixiu.node.metrics import add_log, add_messaging
from pixiu.ports.log import MAIN
from pixiu.queue.storage.messages import body_of
from pixiu.roles.broker.metrics import METRICS as BROKER
from pixiu.roles.broker.metrics import snapshot as broker_snapshot
from pixiu.roles.gateway import LiveActions
from pixiu.runtime.admin import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from pixiu.backends.kafka.topics import Identity
    from pixiu.config import Settings
    from pixiu.node.host import Opened
    from pixiu.node.registry_lease import RegistryLease
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.driver import Replication
    from pixiu.runtime.admin import Handler, Request
    from pixiu.runtime.metrics import Metrics

__all__ = ["Shard", "Surface"]

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
SERVE_RETRY_SECONDS = 0.2
REPEATED_WARNINGS = 60
"""One warning of so many with the same reason is written: one in half a minute."""
NEAR_EVENTS = 2_000
"""A replica with at most so many events to apply counts as caught up."""
WATCH_SECONDS, HAND_OVER_SECONDS = 0.5, 3.0
"""How long an engine of the serving replica may be down before another replica leads, if one can."""
AUDIT_KEPT_SECONDS = 10.0
"""An audit whose result is not fetched within this time is dropped."""


async def _no_log_elsewhere() -> None:
    return None


class Surface:
    """What gateways reach of one messaging host."""

    def __init__(self, host: MessagingHost, settings: Settings, scheduler: Scheduler, shard: int) -> None:
        messaging, clock = host.messaging, host.engine.clock
        context, relay = messaging.proxy.context, messaging.relay
        self.hub = GatewayHub(messaging, context.directory, clock, scheduler, settings.gateway)
        LiveActions(
            self.hub, context, scheduler, tell=relay.tell, is_present=relay.is_present, turns=messaging.proxy.turns
        )
        self.group_rooms = GroupRooms(self.hub, messaging, clock, scheduler, settings.rooms, shard)
        self.administration = RemoteAdministration(host, Doors(self.hub.counters, self.group_rooms.broker))
        self._scheduler = scheduler
        self.hub.administer = self.administration.ask
        self.is_open = False
        """Does the host serve?"""

    def open(self) -> None:
        """Take gateways."""
        self.is_open = True
        self.hub.start()
        self.administration.start(self._scheduler)

    def stop(self) -> None:
        """Disconnect every gateway."""
        self.is_open = False
        self.administration.stop()
        self.hub.stop()
        self.group_rooms.stop()

    def add_metrics(self, metrics: Metrics) -> None:
        """Export what is counted here."""
        metrics.add(BROKER, lambda: broker_snapshot(self.group_rooms.broker))


class Shard:
    """The messaging of one replica, whether it leads or not."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        settings: Settings,
        root: Path,
        *,
        name: str,
        boot: int,
        secrets: Secrets,
        creates_users: bool,
        shard: int = 0,
    ) -> None:
        """``boot`` tells this process from those before it under the same name."""
        self.name = name
        self.open_stores: Callable[[], Opened | None] = lambda: None
        """Opens the stores of a host; None: those of the data directory."""
        self.find_log: Callable[[], Awaitable[Identity | None]] = _no_log_elsewhere
        """Returns which log in Kafka is the shard's; None if the replicas copy the log themselves."""
        self.host: MessagingHost | None = None
        self.surface: Surface | None = None
        self.problem = "starting"
        """Why there is no host; empty while there is one."""
        self._engine = engine
        self._scheduler = scheduler
        self._settings = settings
        self._root = root
        self._shard = shard
        self._creates_users = creates_users
        self._listener = HubListener(secrets, boot, self._hub)
        self._replication: Replication | RegistryLease | None = None
        self._epoch = 0
        """The last one in which this replica led."""
        self._leads = asyncio.Event()
        self._ended = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._audit: asyncio.Task[dict[str, object]] | None = None
        self._audit_asked: tuple[int, int | None, float] = (0, None, 0.0)
        """The times the audit is about, and when somebody last asked for it."""

    # Start and stop.

    async def listen(self, bind: str, port: int) -> str:
        """Listen for gateways; they are refused until this replica serves. Returns the address."""
        return await self._listener.start(bind, port)

    def start(self, replication: Replication | RegistryLease) -> None:
        """Follow the log, and serve while ``replication`` leads it. Call it before ``replication`` starts."""
        self._replication = replication
        replication.when_leading = self._leading
        replication.when_leading_ended = self._leading_ended
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._run())
        self._watching = loop.create_task(self._watch_engines())

    async def stop(self) -> None:
        """Stop the roles, make durable what is applied, and close the stores."""
        for task in (self._running, self._watching, self._audit):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PixiuError):
                    await task
        await self._listener.close()

    def change_secrets(self, text: str) -> None:
        """Use other secrets for gateways that connect from now on."""
        self._listener.change_secrets(Secrets.from_text(text))

    # Following and serving.

    async def _run(self) -> None:
        """One host after the other: a replica that stopped leading begins again with what its stores have."""
        said, times = "", 0
        while True:
            try:
                await self._run_host()
            except PixiuError as error:
                self.problem = str(error)
                times = times + 1 if self.problem == said else 0
                said = self.problem
                if times % REPEATED_WARNINGS == 0:
                    log.warning("shard_host_ended", extra={"reason": said, "times": times + 1})
            except Exception as error:  # a bug must not leave a process that does nothing
                self.problem = f"{type(error).__name__}: {error}"
                log.exception("shard_host_failed")
            await asyncio.sleep(RETRY_SECONDS if self.problem else 0)

    async def _run_host(self) -> None:
        self._ended.clear()  # of the host before
        replica = Replica(self.name, self._holds_lease, await self.find_log())
        host = MessagingHost(
            self._engine, self._scheduler, self._settings, self._root,
            creates_users=self._creates_users, name=self.name, replica=replica,
            opened=self.open_stores(),
        )  # fmt: skip
        try:
            surface = Surface(host, self._settings, self._scheduler, self._shard)
        except BaseException:
            host.close()
            raise
        self.host, self.surface, self.problem = host, surface, ""
        try:
            host.follow()
            while not self._leads.is_set():
                await self._leads.wait()
            await self._serve(host, surface)
        finally:
            self.host = self.surface = None
            surface.stop()
            await host.stop()
            host.close()

    async def _serve(self, host: MessagingHost, surface: Surface) -> None:
        """Serve until this replica is no longer the leader."""
        serving = asyncio.ensure_future(self._begin_to_serve(host))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                surface.open()
                log.info("shard_serving", extra={"replica": self.name, "epoch": self._epoch})
                await ended
        finally:
            for task in (serving, ended):
                task.cancel()

    @staticmethod
    async def _begin_to_serve(host: MessagingHost) -> None:
        """A log that takes nothing yet, for want of followers in sync, takes it later."""
        while True:
            try:
                await host.serve()
            except Unavailable as error:
                log.warning("shard_not_serving_yet", extra={"reason": str(error)})
                await asyncio.sleep(SERVE_RETRY_SECONDS)
            else:
                return

    def _leading(self, epoch: int) -> None:
        self._epoch = epoch
        self._ended.clear()
        self._leads.set()

    def _leading_ended(self, _reason: str) -> None:
        self._leads.clear()
        self._ended.set()

    def _holds_lease(self) -> bool:
        return self._replication is not None and self._replication.holds_lease()

    def _hub(self) -> GatewayHub | None:
        surface = self.surface
        return surface.hub if surface is not None and surface.is_open and self._holds_lease() else None

    async def _watch_engines(self) -> None:
        """Replicas may have engines of their own: if one of the serving replica stays down, another replica leads."""
        loop, since = asyncio.get_running_loop(), None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self.host is not None and self.host.log.is_fenced:
                self._ended.set()  # a replica without the lease has opened the log: the next host opens it again
            problem = self._engine_problem() if self.is_serving else ""
            since = (since or loop.time()) if problem else None
            if since is not None and loop.time() - since >= HAND_OVER_SECONDS and self._replication is not None:
                log.warning("shard_hands_over", extra={"reason": problem})
                since = None
                self._replication.step_down()

    def _engine_problem(self) -> str:
        host = self.host
        if host is None:
            return ""
        if problems := host.stores.problems():
            return problems[0]
        return "its stores are being rebuilt from the log" if host.messaging.is_going_back else ""

    def publish(
        self, name: bytes, messages: list[bytes], is_node: bool, done: Callable[[int | PixiuError], object]
    ) -> None:
        """Publish to a log in Kafka what processes of the cluster send to the queue port: rows of live rooms."""
        if not is_node or name != MAIN.encode() or len(messages) > 1:
            refusal: PixiuError = NotAllowed(f"{IN_KAFKA}: use its own topics for your programs")
        elif self.host is None or not self.is_serving:
            refusal = NotLeader(LEADER_PUBLISHES)
        else:
            self.host.log.publish(MAIN, body_of(messages[0]), done)
            return
        self._scheduler.soon(lambda: done(refusal))

    # What others ask.

    @property
    def is_serving(self) -> bool:
        """Does this replica take gateways?"""
        return self._hub() is not None

    def problems(self) -> list[str]:
        """Why this replica is not ready. A follower is ready when it has applied what it has copied."""
        host, surface = self.host, self.surface
        if host is None or surface is None:
            return [self.problem or "starting"]
        problems = host.problems()
        if self._leads.is_set() and not surface.is_open:
            problems.append("about to serve")
        elif host.behind >= NEAR_EVENTS:
            problems.append(f"{counted(host.behind, 'event')} behind the log")
        return problems

    def status(self) -> dict[str, object]:
        """What ``/shard`` shows."""
        host = self.host
        return {
            "name": self.name, "shard": self._shard, "serving": self.is_serving,
            "epoch": self._epoch or self._engine.writer.epoch,
            "served_by": self.name if self.is_serving else self._leader_name(),
            "applied": 0 if host is None else host.messaging.carrier.applied_all,
            "behind": None if host is None else host.behind,
            "sessions": 0 if host is None else host.messaging.relay.counters.sessions,
        }  # fmt: skip

    def _leader_name(self) -> str:
        return "" if self._replication is None else self._replication.leader_name

    def add_metrics(self, metrics: Metrics) -> None:
        """Export what the host counts; the numbers begin again with every host, as with every process."""
        if self.host is not None and self.surface is not None:
            add_messaging(metrics, self.host.messaging)
            add_log(metrics, self.host.log)
            self.surface.add_metrics(metrics)

    def routes(self) -> Mapping[str, Handler]:
        """Paths of the administration port."""
        return {"/shard": lambda _request: Response.json(200, self.status()), "/audit": self._audited}

    def _audited(self, request: Request) -> Response:
        """An audit: started by the first request, and returned to a later request when it has finished."""
        query = parse_qs(request.query)
        try:
            at_least, before = (int(query[name][0]) if name in query else None for name in ("from", "to"))
        except ValueError:
            return Response.error(400, "bad_request", "from and to are milliseconds since the epoch")
        host = self.host
        if host is None or not self.is_serving:
            return Response.error(503, "unavailable", f"{self.name} does not serve")
        now = asyncio.get_running_loop().time()
        running, (*asked, asked_at) = self._audit, self._audit_asked
        is_ours = asked == [at_least or 0, before]
        if running is not None and running.done() and (not is_ours or now - asked_at > AUDIT_KEPT_SECONDS):
            running = None  # the result was not fetched
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

    async def _report(self, host: MessagingHost, at_least: int, before: int | None) -> dict[str, object]:
        report = (await host.audit(at_least=at_least, before=before)).as_json()
        return {**report, "name": self.name}
