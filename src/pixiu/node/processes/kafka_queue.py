"""``pixiu role queue`` where the log is in Kafka: one process owns the log and serves the cluster, others stand by.

Who owns it is a lease, as of carriers (``machines.serving``); whoever holds it claims the log, and Kafka then refuses
everything that an earlier owner still sends. Clients find the owner by ``leader`` in the registry, and speak the
queue's protocol to it (``backends.kafka.served``).

::

    standing by ── lease granted ──▶ claiming ── open ──▶ serving
        ▲                              │ Kafka does not answer      │ lease over: the log is let go
        └────── lease handed over ─────┘                            │ fenced while it holds the lease: claims again
        ▲                                                           │ Kafka silent for long: the lease is handed over
        └───────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import uvloop

from pixiu.machines.serving import ServingRules
from pixiu.model.errors import ConfigError, Conflict, PixiuError
from pixiu.node.listening import why_not_listening
from pixiu.node.logs import kafka_log, look_at_kafka, note_log
from pixiu.node.processes.cluster_end import needed_queue_keys, open_session
from pixiu.node.processes.cluster_secrets import SecretsFile, queue_keys
from pixiu.node.processes.lease import HeldLease
from pixiu.node.processes.running import run_with_signals
from pixiu.node.serving import Running, connections_max
from pixiu.ports.registry import Write
from pixiu.queue.replication.control import CONTROL, RegistryControl, partition_folder
from pixiu.queue.server.server import QueueServer
from pixiu.runtime.admin import AdminServer, standard_routes
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.log_note import read_note
from pixiu.runtime.logging import configure_logging
from pixiu.runtime.metrics import Metrics
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.server import address_of, end_writing, listen, peer_of, reset_on_close, watch_peer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.backends.kafka.log import KafkaLog
    from pixiu.config import Settings
    from pixiu.config.registry import RegistryAddress
    from pixiu.ports.registry import Entry, Folder, Registry

__all__ = ["KafkaQueue", "run_kafka_queue"]

log = logging.getLogger(__name__)

AGAIN_MS = 500
"""Who holds the lease and was fenced claims the log again after this."""
NAME_MS = 2_000
"""The owner looks so often whether the registry names it to clients: the first time may have failed."""
BEHIND_MS = 2_000
"""Whose last claim failed lets others go first for so long."""
SILENT_MS = 15_000
"""An owner whom Kafka has not answered for so long lets another try, if one stands by: it may be its own network."""
LOOK_MS = 2_000
"""Who could not and stands by looks so often whether it could now."""
LEAVE_SECONDS = 1.0
DRAIN_SECONDS = 5.0
LOG = "log"
"""In the registry: which log is the cluster's, noted by whoever owned it first."""
ANYTHING = 2**62
"""Behind every event: this process has no stores that would have to be brought up to date."""


class KafkaQueue:
    """One process of the role."""

    def __init__(
        self, settings: Settings, directory: DataDirectory, registry: Registry, folder: str, keys: tuple[str, ...]
    ) -> None:
        from pixiu.backends.kafka.address import client_options, parse_address
        from pixiu.backends.kafka.served.served import ServedLog

        loop = asyncio.get_running_loop()
        replication = settings.replication
        self._settings = settings
        self._directory = directory
        self._registry = registry
        self._folder = folder
        self.name = replication.name or directory.name
        self._clock = SystemClock()
        self._scheduler, self._reading = LoopScheduler(loop), LoopScheduler(loop)
        self._rules = ServingRules(lease_ms=replication.lease_ms, renew_ms=replication.renew_ms, behind_ms=BEHIND_MS)
        self._lease: HeldLease | None = None
        self.served = ServedLog(
            parse_address(settings.engines.log), client_options(settings.kafka.client), settings.queue, self._clock,
            self._scheduler, self._reading, keys=(directory.key, *keys),
            may_serve=lambda: self._is_compared and self._lease is not None and self._lease.is_held,
        )  # fmt: skip
        self._claimed: KafkaLog | None = None
        """The log of this tenure, open or about to be."""
        self._control: RegistryControl | None = None
        self._listener: asyncio.Server | None = None
        self._admin: AdminServer | None = None
        self._server: QueueServer | None = None
        self._problem = ""
        self._is_well = True
        """Whether the last claim worked, or Kafka has answered since: who could not lets others go first."""
        self._looked_ms = 0
        self._is_looking = False
        self._of_cluster: dict[str, str] | None = None
        """Which log is the cluster's, as far as it was looked up."""
        self._is_compared = False
        """Whether the log of this tenure is that one."""
        self._silent_since: int | None = None
        self._named_ms = 0
        """When clients were told last who owns the log."""
        self._is_stopping = False

    # Life.

    async def start(self) -> Running:
        """Listen, take a place among the others, and wait for the lease."""
        from pixiu.backends.kafka.served.commands import KAFKA_HANDLERS

        settings = self._settings
        await self._check_folder()
        most, _ = connections_max(settings, with_http=False)
        self.served.key_refusals.peer_of = peer_of
        self._server = server = QueueServer(
            self.served,
            KAFKA_HANDLERS,
            connections_max=most,
            watch_peer=watch_peer,
            reset_on_close=reset_on_close,
            end_writing=end_writing,
        )
        self._listener = await listen(server.connection, settings.queue.host, settings.queue.port)
        address = address_of(self._listener)
        self._admin = AdminServer(
            standard_routes(reasons=self.reasons, metrics=self._metrics().render, about=self._about)
        )
        host, port = await self._admin.start(settings.http.host, settings.http.port)
        server.http_address = f"{host}:{port}"
        self._control = control = RegistryControl(
            self._registry, self._scheduler, folder=self._folder, name=self.name, address=address,
            more={"admin": f"{host}:{port}"},
        )  # fmt: skip
        self._lease = lease = HeldLease(
            self.name, self._rules, control, self._clock, granted=self._granted, lost=self._lost
        )
        server.start()
        lease.start()
        self._tick(lease, control)
        self._directory.announce(address=address, http=f"{host}:{port}")
        return Running(address, f"{host}:{port}", None, self._directory.path)

    def change_secrets(self, text: str) -> None:
        """For whoever connects from now on."""
        self.served.node_keys = (self._directory.key, *queue_keys(text, self._settings.queue.host))

    async def _check_folder(self) -> None:
        """Refuse a registry whose log is a queue's own: its events have other numbers than Kafka's. Or which is it?"""
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self._registry.read(self._folder, lambda found: None if answer.done() else answer.set_result(found))
        found = await answer
        if isinstance(found, PixiuError):
            raise found
        control = found.get(CONTROL)
        if control is not None and control.data.get("in_sync"):
            raise ConfigError(
                f"the log of this cluster is its queue's own ({self._folder} names its replicas): carriers have "
                "applied it, and a log in Kafka has other events. Leave engines.log out, or take another path"
            )
        if LOG in found:
            self._of_cluster = _texts(found[LOG])

    async def stop(self) -> None:
        """Write what was taken, let another own the log, and leave."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        if self._control is not None:
            self._control.stands("Draining")
        self.served.end()
        if self._claimed is not None:
            flushed = asyncio.Event()
            self._claimed.when_flushed(flushed.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(flushed.wait(), DRAIN_SECONDS)
        self._release()
        if self._lease is not None:
            self._lease.leave()
        if self._control is not None:
            await asyncio.sleep(min(self._settings.replication.renew_ms / 1000, LEAVE_SECONDS))
            self._control.stop()
        if self._server is not None:
            self._server.close_all()
        if self._admin is not None:
            await self._admin.close()
        self.served.close()
        loop = asyncio.get_running_loop()
        for scheduler in (self._reading, self._scheduler):
            await loop.run_in_executor(None, scheduler.close)

    # The lease.

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def _tick(self, lease: HeldLease, control: RegistryControl) -> None:
        if self._is_stopping:
            return
        lease.tick(is_ready=self._is_well)
        control.stands("Running" if self._is_well else "Init")
        if self.served.is_leader and self._now_ms() - self._named_ms >= NAME_MS:
            self._name_owner()
        self._look_at_kafka()
        self._look_again(lease)
        self._scheduler.after(lease.tick_ms, lambda: self._tick(lease, control))

    def _name_owner(self) -> None:
        """Tell clients; once more does no harm."""
        self._named_ms = self._now_ms()
        if self._control is not None:
            self._control.leads(self.served.epoch)

    def _granted(self, epoch: int) -> None:
        log.info("chosen", extra={"replica": self.name, "epoch": epoch})
        self._claim()

    def _lost(self, reason: str) -> None:
        log.warning("owns the log no more", extra={"replica": self.name, "reason": reason})
        if self._is_well:
            self._problem = ""  # whoever has the lease sees to it
        self._release()

    def _look_at_kafka(self) -> None:
        """Is it silent for the owner, and has been for long?"""
        claimed, now_ms = self.served.log, self._now_ms()
        if claimed is None or not claimed.problems():
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now_ms
        elif now_ms - self._silent_since >= SILENT_MS:
            self._silent_since = None
            self._registry.read(self._folder, self._hand_over_if_another_is_well)

    def _hand_over_if_another_is_well(self, folder: Folder | PixiuError) -> None:
        claimed = self.served.log
        if isinstance(folder, PixiuError) or claimed is None or not (problems := claimed.problems()):
            return
        places = [entry.data for name, entry in folder.items() if name.isdecimal()]
        if any(place.get("state") == "Running" and place.get("name") != self.name for place in places):
            self._give_up("; ".join(problems))

    def _give_up(self, problem: str) -> None:
        """Let another process try, and this one later, if nobody else does."""
        log.warning("lets another own the log", extra={"reason": problem})
        self._problem, self._is_well = problem, False
        if self._lease is not None:
            self._lease.hand_over("Kafka does not answer it")

    def _look_again(self, lease: HeldLease) -> None:
        """Who could not own the log and stands by says so until it could: others count on it, and so do people."""
        if self._is_well or self._is_looking or lease.is_held or self._now_ms() - self._looked_ms < LOOK_MS:
            return
        self._is_looking = True
        found: list[dict[str, str] | None] = []

        def work() -> None:
            identity = look_at_kafka(self._settings, read_note(self._directory.path), lambda: self._is_stopping)
            found.append(None if identity is None else identity._asdict())

        def looked(error: BaseException | None) -> None:
            self._looked_ms, self._is_looking = self._now_ms(), False
            if error is None and self._of_cluster in (None, found[0]) and not self._is_well:
                log.info("could own the log now", extra={"replica": self.name})
                self._problem, self._is_well = "", True

        self._reading.offload(work, looked)

    # The log.

    def _claim(self) -> None:
        """Take the log, which fences whoever had it."""
        if self._is_stopping or self._lease is None or not self._lease.is_held or self._claimed is not None:
            return
        loop = asyncio.get_running_loop()
        try:
            noted = read_note(self._directory.path) or self._of_cluster
        except (PixiuError, OSError) as error:
            self._give_up(str(error))
            return
        thread = LoopScheduler(loop)
        self._claimed = claimed = kafka_log(
            self._settings, self._scheduler, thread, noted, name=self.name,
            closed=lambda: loop.run_in_executor(None, thread.close), is_followed=False,
        )  # fmt: skip
        claimed.when_fenced = lambda: self._fenced(claimed)
        claimed.open(lambda error: self._opened(claimed, error), applied=ANYTHING, finished=ANYTHING)

    def _opened(self, claimed: KafkaLog, error: PixiuError | None) -> None:
        if claimed is not self._claimed:
            return  # the lease was over before: it is closed, and takes nothing
        if error is not None:
            self._give_up(str(error))
            return
        assert self._lease is not None, "it was granted"
        self.served.begin(claimed, self._lease.serving.epoch)  # at once: what was due fires, and feeds are to have it
        self._look_up(claimed)

    def _look_up(self, claimed: KafkaLog) -> None:
        self._registry.read(f"{self._folder}/{LOG}", lambda found: self._compare(claimed, found))

    def _compare(self, claimed: KafkaLog, found: Folder | PixiuError) -> None:
        """Serve the cluster's log, and no other: one who stands by may be told another, and has noted nothing."""
        if claimed is not self._claimed or claimed.identity is None:
            return
        row, path = claimed.identity._asdict(), f"{self._folder}/{LOG}"
        if isinstance(found, PixiuError):
            self._scheduler.after(AGAIN_MS, lambda: self._look_up(claimed))
        elif "" not in found:
            self._registry.write(Write(path, row, -1), lambda result: self._noted(claimed, result))
        elif (known := _texts(found[""])) != row:
            self._of_cluster = known
            self._give_up(
                f"{claimed.address} is not the log of this cluster (topic id {row['topic_id']} in cluster "
                f"{row['cluster_id']}, and {path} says {known.get('topic_id')} in {known.get('cluster_id')}): "
                "carriers have applied that one"
            )
        else:
            self._of_cluster = known
            self._serve(claimed)

    def _noted(self, claimed: KafkaLog, result: int | PixiuError) -> None:
        """Whether by this one or by another: see what is there now."""
        is_done = isinstance(result, int | Conflict)
        self._scheduler.after(0 if is_done else AGAIN_MS, lambda: self._look_up(claimed))

    def _serve(self, claimed: KafkaLog) -> None:
        """It is the cluster's, and this process owns it."""
        try:
            note_log(claimed, self._directory.path, self._settings)
        except (PixiuError, OSError) as error:
            self._give_up(f"cannot note which log it is: {error}")
            return
        self._problem, self._is_well, self._is_compared = "", True, True
        self._name_owner()

    def _fenced(self, claimed: KafkaLog) -> None:
        """Somebody else claimed it, who has not the lease, or not any more: whoever has it claims it again."""
        if claimed is self._claimed:
            self._problem = "; ".join(claimed.problems())
            self._release()
            self._scheduler.after(AGAIN_MS, self._claim)

    def _release(self) -> None:
        claimed, self._claimed, self._is_compared = self._claimed, None, False
        self.served.end()
        if claimed is not None:
            claimed.close()

    # What others ask.

    def reasons(self) -> dict[str, str]:
        """Why it is not ready. One that stands by is ready to take over."""
        if self._is_stopping:
            return {"queue": "stopping"}
        claimed = self._claimed
        if claimed is None:
            return {"queue": self._problem} if self._problem else {}
        problems = claimed.problems() if self._is_compared else [self._problem or "about to own the log"]
        return {"queue": "; ".join(problems)} if problems else {}

    def _metrics(self) -> Metrics:
        from pixiu.backends.kafka.served.metrics import METRICS, snapshot

        metrics = Metrics()
        metrics.add(
            METRICS, lambda: snapshot(self.served, 0 if self._server is None else len(self._server.connections))
        )
        return metrics

    def _about(self) -> str:
        state = "starting" if self._lease is None else self._lease.serving.state.value
        return f"pixiu {self.name}: the log in Kafka, {state}; see /readyz, /metrics\n"


def _texts(entry: Entry) -> dict[str, str]:
    return {key: str(value) for key, value in entry.data.items()}


def run_kafka_queue(
    settings: Settings,
    registry: RegistryAddress,
    *,
    partition: int,
    data: Path,
    secrets: str,
    secret_file: Path | None = None,
    on_ready: Callable[[Running], None],
) -> int:
    """Run one process of the role until SIGTERM or SIGINT. Returns the exit code."""
    keys = needed_queue_keys(secrets, settings.queue.host)
    configure_logging(settings.log)

    async def serve(stop: asyncio.Event) -> None:
        session = await open_session(registry)
        try:
            queue = KafkaQueue(settings, directory, session, partition_folder(registry.root, partition), keys)
            file = None
            if secret_file is not None:
                file = SecretsFile(secret_file, secrets, asyncio.get_running_loop(), queue.change_secrets)
            try:
                on_ready(await queue.start())
                await stop.wait()
            except OSError as error:
                raise PixiuError(f"cannot start: {why_not_listening(error, settings, http=True)}") from error
            finally:
                if file is not None:
                    file.close()
                await queue.stop()
        finally:
            await asyncio.get_running_loop().run_in_executor(None, session.close)

    with DataDirectory.open(data) as directory:
        return uvloop.run(run_with_signals(serve))
