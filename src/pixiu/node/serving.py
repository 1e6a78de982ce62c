"""A process that serves: which parts it hosts, on which backends, and how it starts and stops.

This is the composition root: read ``Node.start`` and you know what the process is made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.model.hosts import is_loopback
from pixiu.model.version import __version__
from pixiu.node.gateways.listener import HubListener
from pixiu.node.joined import Joined, check_alone, joined_of, note_joined
from pixiu.node.joining import Joining
from pixiu.node.listening import why_not_listening
from pixiu.node.logs import is_kafka
from pixiu.node.processes.cluster_secrets import queue_keys, read_secrets, secrets_of
from pixiu.node.registry_lease import RegistryLease
from pixiu.node.shard import Shard, Surface
from pixiu.node.shared_log import find_shared_log
from pixiu.node.stopped import open_store
from pixiu.queue.engine import Engine
from pixiu.queue.metrics import METRICS, snapshot
from pixiu.queue.replication.control import RegistryControl
from pixiu.queue.replication.driver import Replication
from pixiu.queue.replication.joining import led_alone
from pixiu.queue.replication.mending import Mending
from pixiu.queue.replication.smss_follower import SmssFollower
from pixiu.queue.server.commands import HANDLERS, HANDLERS_WITHOUT_JOURNAL
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage.journal_check import JournalCheck
from pixiu.runtime.admin import AdminServer, standard_routes
from pixiu.runtime.binding import is_no_address
from pixiu.runtime.boots import new_boot
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.collector import spare_the_collector
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.descriptors import raise_descriptors, share
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.links import TcpLinks
from pixiu.runtime.logging import configure_logging
from pixiu.runtime.metrics import Metrics
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.server import address_of, end_writing, listen, peer_of, reset_on_close, watch_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from pixiu.backends.kafka.topics import Identity
    from pixiu.config import Settings
    from pixiu.machines.links.sealing import Secrets
    from pixiu.model.metric import Snapshot
    from pixiu.node.embedded import EmbeddedNode
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.node.host import MessagingHost
    from pixiu.node.pipeline_child import PipelineChild
    from pixiu.node.processes.elected import Elected
    from pixiu.node.surfaces import Surfaces
    from pixiu.runtime.admin import Handler

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
LEAVE_SECONDS = 1.0
START_SECONDS = 10.0
"""How long a start waits for messaging; beyond that it goes on by itself, and the node is not ready."""
BALLAST_MS = 10_000
"""How often to keep as much room as a start after a crash would need."""
DESCRIPTORS_KEPT_BACK = 128
"""For RocksDB and log files: not for clients. Each open topic log has two more."""
HTTP_KEPT_BACK = 512
"""And for HTTP at most."""


@dataclass(frozen=True, slots=True)
class Running:
    """A node that is ready."""

    queue_address: str
    http_address: str | None
    grpc_address: str | None
    data: Path
    problems: tuple[str, ...] = ()
    """Why it runs and takes nothing all the same."""
    tcp_address: str | None = None


class Node:
    """The queue; where it leads, messaging with its doors; HTTP. All in one event loop."""

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        *,
        http: bool,
        follow: tuple[str, int] | None,
        follow_event: int,
        is_dev: bool = False,
        with_pipeline: bool = False,
        elected: Elected | None = None,
        follows_smss: bool = False,
    ) -> None:
        """``with_pipeline`` runs the pipeline in a process beside it, where the node leads and has HTTP.

        With ``elected`` the node is one of several that elect their leader through a registry. With ``follows_smss``
        the node that it follows is an smss master.
        """
        self._settings = settings
        self._follows_smss = follows_smss
        self._with_pipeline = with_pipeline
        self._pipeline: PipelineChild | None = None
        self._elected = elected
        self._is_dev = is_dev
        self._directory = directory
        self._with_http = http
        self._follow = follow
        self._follow_event = follow_event
        self._listener: asyncio.Server | None = None
        self._admin: AdminServer | None = None
        self._engine: Engine | None = None
        self._check: JournalCheck | None = None
        self._mending: Mending | None = None
        self._scheduler: LoopScheduler | None = None
        self._server: QueueServer | None = None
        self._replication: Replication | SmssFollower | None = None
        self._lease: RegistryLease | None = None
        """Of a replica whose log is in Kafka, in the place of replication."""
        self._links: TcpLinks | None = None
        self._host: MessagingHost | None = None
        self._surfaces: Surfaces | None = None
        self._starting: asyncio.Task[None] | None = None
        self._messaging_problem = ""
        self._gateway_max = 0
        self._is_stopping = False
        self._control: RegistryControl | None = None
        self._shard: Shard | None = None
        self._joined_surface: Surface | None = None
        self._listener_of_gateways: HubListener | None = None
        self._joining: Joining | None = None
        self.joined: Elected | None = None
        """Set when this node has joined a registry while it ran."""
        self.is_promoted = False
        """It followed, and now it leads: it starts anew as one that leads, with messaging."""
        self.wants_restart = asyncio.Event()
        """Set when the data was replaced as a whole, or this node leads now, and everything has to be opened anew."""

    @staticmethod
    def embedded(path: str | Path, *, settings: Settings | None = None, creates_users: bool = False) -> EmbeddedNode:
        """The whole of Pixiu in this program, without a network: ``async with Node.embedded(path) as node:``."""
        from pixiu.node.embedded import EmbeddedNode

        return EmbeddedNode(path, settings=settings, creates_users=creates_users)

    async def start(self) -> Running:
        """Recover, then listen. Nothing listens before everything acknowledged is there again."""
        settings, directory = self._settings, self._directory
        if self._elected is None:
            check_alone(directory.path)
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        files = SystemFiles(directory.path, no_cache=settings.queue.no_cache)
        store = open_store(directory.path)
        self._scheduler = scheduler = LoopScheduler(loop)
        self._engine = engine = Engine(settings, files, store, clock, scheduler, key=directory.key)
        engine.take_keys(self._follower_keys())
        if self._elected is not None:
            self._elected.keys_changed[:] = [engine.take_keys]  # of this engine: a restart makes another
        engine.key_refusals.peer_of = peer_of
        # What came from smss was committed there: all of it is shown at once.
        engine.recover(is_follower=not self._leads_alone and not self._follows_smss)
        queue_max, self._gateway_max = connections_max(settings, with_http=self._with_http and self._leads_alone)
        self._server = server = QueueServer(
            engine,
            HANDLERS_WITHOUT_JOURNAL if self._elected is not None and is_kafka(settings) else HANDLERS,
            connections_max=queue_max,
            watch_peer=watch_peer,
            reset_on_close=reset_on_close,
            end_writing=end_writing,
        )
        self._listener = await listen(server.connection, settings.queue.host, settings.queue.port)
        queue_address = address_of(self._listener)
        self._links = TcpLinks(loop)
        told = {} if self._elected is None else await self._listen_for_gateways(engine, self._elected)
        if self._elected is not None and is_kafka(settings):
            self._lease = self._new_lease(engine, self._elected, queue_address, told)
        else:
            self._replication = engine.replication = self._new_replication(engine, queue_address, told)
        replication = self._replication
        if self._follow is not None and self._with_http and replication is not None:
            replication.when_promoted = self._was_promoted
        if self._leads_alone and isinstance(replication, Replication):
            self._joining = joining = self._new_joining(engine, replication, queue_address)
            engine.join_asked = joining.asked
        if engine.journal.last_event_id < self._follow_event:
            log.warning(
                "this directory ends before --event; copying from where it ends, so that nothing is missing",
                extra={"last_event_id": engine.journal.last_event_id, "event": self._follow_event},
            )
        engine.start()
        self._keep_ballast()
        if replication is not None:
            rate = settings.journal.check_bytes_per_second
            self._check = JournalCheck(engine.journal, scheduler, engine.counters, bytes_per_second=rate)
            self._mending = Mending(engine, replication, self._links, self._check)
            self._check.start()
        server.start()
        leadership = self._lease or replication
        if self._shard is not None and isinstance(leadership, Replication | RegistryLease):
            self._shard.start(leadership)
        if leadership is not None:
            leadership.start()
        http_address = await self._start_http() if self._with_http else None
        server.http_address = http_address or ""
        has_tls = bool(settings.security.tls_certificate) and self._leads_alone
        directory.announce(
            address=queue_address, http=f"https://{http_address}" if http_address and has_tls else http_address
        )
        problems = tuple(self._engine.problems()) or tuple(self._late())
        grpc, tcp = (None, None) if self._surfaces is None else self._surfaces.other_addresses()
        return Running(queue_address, http_address, grpc, directory.path, problems, tcp)

    def _keep_ballast(self) -> None:
        assert self._scheduler is not None
        self._directory.keep_ballast()
        self._scheduler.after(BALLAST_MS, self._keep_ballast)

    def _late(self) -> list[str]:
        """What a start has waited for in vain."""
        if self._host is None or self._starting is None or self._starting.done():
            return []
        return self._host.log.problems() or [self._messaging_problem or "messaging has not begun yet; /readyz says why"]

    def why_not(self, error: OSError) -> str:
        """Why it could not start, for people."""
        return why_not_listening(error, self._settings, http=self._with_http)

    def _follower_keys(self) -> tuple[str, ...]:
        """The cluster's secrets, which other nodes may show in place of node.key. Raises ``ConfigError``."""
        if self._elected is not None:
            return self._elected.keys
        file = self._settings.replication.secret_file
        if file:
            return queue_keys(read_secrets(Path(file)), "")
        if self._follow is not None and not self._follows_smss:
            raise ConfigError(
                f"--follow {self._follow[0]}:{self._follow[1]} needs a key that the leader accepts. On the leader's "
                "machine: --secret-file LEADER-DATA/node.key. On another machine: put one secret of at least 16 "
                "characters into a file, and start both nodes with --secret-file FILE"
            )
        return ()

    async def _listen_for_gateways(self, engine: Engine, elected: Elected) -> dict[str, object]:
        """Make this node a replica of a shard. Returns what its entries in the registry say of it."""
        assert self._scheduler is not None
        bind, boot = self._settings.queue.host, new_boot(engine.clock)
        self._shard = shard = Shard(
            engine, self._scheduler, self._settings, self._directory.path, name=self._name(), boot=boot,
            secrets=secrets_of(elected.secrets, bind), creates_users=is_loopback(bind), shard=elected.shard,
        )  # fmt: skip
        elected.secrets_changed[:] = [shard.change_secrets]
        hub = await shard.listen(bind, elected.hub_port)
        return {"hub": hub, "boot": f"{boot:x}"}

    def _new_replication(self, engine: Engine, address: str, told: dict[str, object]) -> Replication | SmssFollower:
        elected, name, root = self._elected, self._name(), self._directory.path
        assert self._scheduler is not None and self._links is not None
        if self._follows_smss and self._follow is not None:
            host, port = self._follow
            return SmssFollower(engine, name=name, address=f"{host}:{port}", links=self._links)
        control = None
        led_epoch = 0
        if elected is not None:
            joined = joined_of(root)
            if joined is None or joined.is_founding:
                led_epoch = led_alone(engine, frozenset({name, self._own_name()}))
            more = {**told, **({"led": led_epoch} if led_epoch else {})}
            control = self._control = RegistryControl(
                elected.registry, self._scheduler, folder=elected.folder, name=name, address=address, more=more
            )

        def placed() -> None:
            if elected is not None:
                note_joined(root, Joined(elected.place))

        return Replication(
            engine, name=name, follow=None if self._follow is None else f"{self._follow[0]}:{self._follow[1]}",
            links=self._links, restart=self.wants_restart.set, control=control, led_epoch=led_epoch,
            when_placed=placed,
        )  # fmt: skip

    def _new_lease(self, engine: Engine, elected: Elected, address: str, told: dict[str, object]) -> RegistryLease:
        """The lease of a replica whose log is in Kafka. Its own queue holds nothing."""
        shard, name, root = self._shard, self._name(), self._directory.path
        assert shard is not None and self._scheduler is not None
        engine.is_leader, engine.publish_elsewhere = False, shard.publish
        control = self._control = RegistryControl(
            elected.registry, self._scheduler, folder=elected.folder, name=name, address=address, more=told
        )
        lease = RegistryLease(
            self._settings.replication, control, elected.registry, elected.folder, engine.clock, self._scheduler,
            name=name,
        )  # fmt: skip
        lease.why_not_ready = shard.problems

        async def find_log() -> Identity:
            found = await find_shared_log(
                elected.registry, elected.folder, self._settings, root, lambda: self._is_stopping
            )
            note_joined(root, Joined(elected.place))
            return found

        shard.find_log = find_log
        return lease

    def _new_joining(self, engine: Engine, replication: Replication, address: str) -> Joining:
        def joined(elected: Elected) -> None:
            self.joined = self._elected = elected
            if self._joined_surface is not None:
                self._joined_surface.open()

        async def listen_for_gateways(secrets: Secrets) -> dict[str, object]:
            """The host that serves this node's own clients serves the cluster's gateways, too."""
            assert self._scheduler is not None
            if self._host is None:
                raise Unavailable("this node has no messaging roles (it runs without HTTP), so it cannot be a shard")
            bind, boot = self._settings.queue.host, new_boot(engine.clock)
            if self._joined_surface is None:
                self._joined_surface = Surface(self._host, self._settings, self._scheduler, 0)
            if self._listener_of_gateways is not None:
                await self._listener_of_gateways.close()
            self._listener_of_gateways = HubListener(secrets, boot, self._hub_of_joined)
            return {"hub": await self._listener_of_gateways.start(bind, 0), "boot": f"{boot:x}"}

        return Joining(
            engine, replication, root=self._directory.path, name=self._name(), address=address,
            bind=self._settings.queue.host, listen=listen_for_gateways, joined=joined,
            overtaken=self.wants_restart.set,
        )  # fmt: skip

    def _hub_of_joined(self) -> GatewayHub | None:
        surface, replication = self._joined_surface, self._replication
        is_leading = isinstance(replication, Replication) and replication.holds_lease()
        return surface.hub if surface is not None and surface.is_open and is_leading else None

    def _notes(self) -> dict[str, str]:
        problem = "" if self._check is None else self._check.problem
        found = {"journal": problem} if problem else {}
        return found if self._surfaces is None else found | self._surfaces.notes()

    def _was_promoted(self) -> None:
        self.is_promoted = True
        self.wants_restart.set()

    @property
    def _leads_alone(self) -> bool:
        """Whether nobody else can be the leader: then what the journal holds is committed, and messaging is here."""
        return self._follow is None and self._elected is None

    def _name(self) -> str:
        """What others call this node: as its settings say, or after its data."""
        return self._settings.replication.name or self._own_name()

    def _own_name(self) -> str:
        return self._directory.name

    async def _start_http(self) -> str:
        """A follower has health and metrics; a leader has everything."""
        metrics = self._new_metrics()

        def render(accept: str) -> tuple[bytes, str]:
            if self._shard is None:
                return metrics.render(accept)
            present = self._new_metrics()  # a replica has other roles each time it follows or serves
            self._shard.add_metrics(present)
            return present.render(accept)

        health = standard_routes(reasons=self._problems, metrics=render, about=self._about, notes=self._notes)
        if self._leads_alone:
            return await self._start_messaging(health, metrics)
        if self._shard is not None:
            health = {**health, **self._shard.routes()}
        self._admin = AdminServer(health)
        host, port = await self._admin.start(self._settings.http.host, self._settings.http.port)
        if self._control is not None:
            self._control.tell_more({"admin": f"{host}:{port}"})
        return f"{host}:{port}"

    def _new_metrics(self) -> Metrics:
        metrics = Metrics()
        metrics.add(METRICS, self._metrics)
        return metrics

    async def _start_messaging(self, health: Mapping[str, Handler], metrics: Metrics) -> str:
        from pixiu.node.host import MessagingHost
        from pixiu.node.metrics import add_door, add_log, add_roles
        from pixiu.node.surfaces import Surfaces

        engine, scheduler, settings = self._engine, self._scheduler, self._settings
        assert engine is not None and scheduler is not None
        root = self._directory.path
        self._host = MessagingHost(engine, scheduler, settings, root, creates_users=self._is_dev, name=self._name())
        if self._with_pipeline:
            from pixiu.node.pipeline_child import PipelineChild

            log_end = self._host.log
            self._pipeline = PipelineChild(root, settings.pipeline, engine.clock, log_end=lambda: log_end.committed)
        self._surfaces = Surfaces(
            self._host, root, settings, engine.clock, scheduler, is_dev=self._is_dev, health=health,
            name=self._name(), connections_max=self._gateway_max, pipeline=self._pipeline,
        )  # fmt: skip
        add_roles(metrics, self._host.messaging, self._surfaces)
        add_log(metrics, self._host.log)
        add_door(metrics, self._host.door)
        port, _ = await self._surfaces.start()
        self._starting = asyncio.create_task(self._open_messaging(self._host))
        await asyncio.wait({self._starting}, timeout=START_SECONDS)
        if self._starting.done():
            self._starting.result()
        if self._pipeline is not None:
            self._pipeline.start()
        return f"{settings.http.host}:{port}"

    async def _open_messaging(self, host: MessagingHost) -> None:
        """A log that takes no writes yet (too few followers, no space) may take them later."""
        while True:
            try:
                await host.start()
            except Unavailable as error:
                self._messaging_problem = str(error)
                await asyncio.sleep(1)
            else:
                self._messaging_problem = ""
                return

    def _metrics(self) -> Snapshot:
        assert self._engine is not None and self._server is not None
        in_sync = 0 if self._replication is None else self._replication.in_sync_count
        return snapshot(self._engine, len(self._server.connections), in_sync)

    def _problems(self) -> dict[str, str]:
        """The needed parts that are down, and why."""
        assert self._engine is not None
        if self._is_stopping:
            return {"node": "stopping"}
        found = {"queue": self._engine.problems()}
        if self._replication is not None:
            found["queue"] = [*found["queue"], *self._replication.problems()]
        if self._host is not None:
            is_starting = self._starting is None or not self._starting.done()
            found["messaging"] = [self._messaging_problem or "starting"] if is_starting else []
            found["messaging"] += self._host.messaging.problems()
            found["log"] = self._host.log.problems()
            found["door"] = self._host.door_problems()
        if self._shard is not None:
            found["shard"] = self._shard.problems()
        if self._surfaces is not None:
            found["gateway"] = self._surfaces.problems()
            found["keys"] = self._surfaces.key_problems()
        return {part: "; ".join(reasons) for part, reasons in found.items() if reasons}

    def _about(self) -> str:
        more = "" if self._surfaces is None else "/ws  /v1/actions/<action>  /v1/push  /openapi.json  "
        return f"Pixiu {__version__}\n\n{more}/healthz  /readyz  /metrics\n"

    async def _leave(self, replication: Replication | RegistryLease) -> None:
        """Hand the lead over, if this node has it; whoever waits for a registry that is gone waits for the lease."""
        left = asyncio.Event()
        replication.leave(left.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(left.wait(), LEAVE_SECONDS)

    async def stop(self) -> None:
        """Stop taking requests, finish what was taken, make everything durable, let go."""
        self._is_stopping = True
        if self._joining is not None:
            await self._joining.close()
        if self._joined_surface is not None:
            self._joined_surface.stop()
        if self._listener_of_gateways is not None:
            await self._listener_of_gateways.close()
        if self._shard is not None:
            await self._shard.stop()
        leadership = self._lease or self._replication
        if self._elected is not None and isinstance(leadership, Replication | RegistryLease):
            await self._leave(leadership)
        if self._listener is not None:
            self._listener.close()
        ending = None if self._pipeline is None else asyncio.ensure_future(self._pipeline.stop())
        if self._surfaces is not None:
            await self._surfaces.stop()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._host is not None:
            await self._host.stop()
        if leadership is not None:
            leadership.stop()
        if self._links is not None:
            self._links.close()
        if self._engine is not None and self._server is not None:
            self._engine.background.log_positions()
            drained = asyncio.Event()
            self._engine.writer.when_flushed(drained.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drained.wait(), DRAIN_SECONDS)
            self._server.close_all()
            await asyncio.sleep(0)
        if self._admin is not None:
            await self._admin.close()
        if self._check is not None and self._mending is not None:
            self._check.stop()
            self._mending.stop()
        if self._engine is not None:
            self._engine.background.stop()
        if ending is not None:
            await ending
        if self._scheduler is not None:
            self._scheduler.close()
        if self._host is not None:
            self._host.close()
        if self._engine is not None:
            self._engine.stop()


def connections_max(settings: Settings, *, with_http: bool) -> tuple[int, int]:
    """How many connections the queue and the gateway of this process may have, with room for everything else."""
    left = max(raise_descriptors() - DESCRIPTORS_KEPT_BACK - 2 * settings.queue.open_topics_max, 8)
    wanted = [settings.queue.connections_max]
    if with_http:
        left = max(left - min(settings.security.http_connections_max, HTTP_KEPT_BACK), 8)
        if not settings.gateway.processes:
            wanted.append(settings.gateway.connections_max)
    queue, *gateway = share(left, wanted)
    return queue, gateway[0] if gateway else 0


def run_node(
    settings: Settings,
    *,
    data: Path,
    dev: bool,
    http: bool,
    follow: tuple[str, int] | None,
    follow_event: int,
    on_ready: Callable[[Running], None],
    meet: Callable[[], AbstractAsyncContextManager[Elected]] | None = None,
    follows_smss: bool = False,
) -> int:
    """Run a node in this process until SIGTERM or SIGINT. Returns the exit code.

    ``meet`` opens the session with a registry that the node elects its leader through.
    """
    configure_logging(settings.log)
    with DataDirectory.open(data) as directory:

        async def serve() -> int:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            ready, present = on_ready, settings
            joined: Elected | None = None
            followed = follow
            async with meet() if meet is not None else contextlib.nullcontext() as elected:
                while not stop.is_set():
                    node = Node(
                        present, directory, http=http, follow=followed, follow_event=follow_event, is_dev=dev,
                        with_pipeline=present.pipeline.enabled, elected=elected, follows_smss=follows_smss,
                    )  # fmt: skip
                    try:
                        running = await _run_once(node, stop, ready)
                    finally:
                        joined = joined or node.joined
                    if node.is_promoted:
                        followed = None
                    elected = joined or elected
                    ready, present = _say_nothing, _same_ports(present, running)
            if joined is not None and joined.close is not None:
                await loop.run_in_executor(None, joined.close)
            return 0

        return uvloop.run(serve())


async def _run_once(node: Node, stop: asyncio.Event, on_ready: Callable[[Running], None]) -> Running:
    """One life of a node, until it is told to stop or has to start anew from other data."""
    try:
        running = await node.start()
        spare_the_collector()
        on_ready(running)
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, node.wants_restart)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        log.info("stopping" if stop.is_set() else "starting anew")
    except OSError as error:
        kind = ConfigError if is_no_address(error) else PixiuError
        raise kind(f"cannot start: {node.why_not(error)}") from error
    finally:
        await node.stop()
    return running


def _say_nothing(_running: Running) -> None:
    """The addresses are the same as before."""


def _same_ports(settings: Settings, running: Running) -> Settings:
    """Settings with the ports that were picked, so that a restart listens where clients look."""
    queue = replace(settings.queue, port=int(running.queue_address.rpartition(":")[2]))
    if running.http_address is None:
        return replace(settings, queue=queue)
    return replace(
        settings, queue=queue, http=replace(settings.http, port=int(running.http_address.rpartition(":")[2]))
    )
