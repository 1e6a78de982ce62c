"""What clients and programs reach: WebSocket, TCP and HTTP, with rooms and presence behind them.

One port serves WebSockets and HTTP alike. The broker and the API are objects in this process, wired here; so is the
gateway, unless ``gateway.processes`` asks for processes of their own, which then have the port.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from pixiu.api.app import HttpApi
from pixiu.api.server import HttpServer
from pixiu.console import console_pages
from pixiu.model.errors import ConfigError
from pixiu.node.admin.administration import NodeAdministration
from pixiu.node.admin.lake_report import LakeReport
from pixiu.node.admin.stats import Doors
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.gateways.processes import GatewayProcesses
from pixiu.node.group_rooms import tell_large_groups
from pixiu.node.grpc_door import make_grpc
from pixiu.roles.broker.broker import Broker
from pixiu.roles.broker.hot import HotRooms
from pixiu.roles.broker.verbs import act as act_in_room
from pixiu.roles.gateway import Gateway, LiveActions, Rechecks, RoomListening
from pixiu.runtime.app_server import AppServer
from pixiu.runtime.authentication import make_authentication
from pixiu.runtime.certificates import certificates_from
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pixiu.api.grpc.server import GrpcServer
    from pixiu.config import Settings
    from pixiu.im.context import Context
    from pixiu.machines.room_link import Frame
    from pixiu.node.host import MessagingHost
    from pixiu.node.pipeline_child import PipelineChild
    from pixiu.ports.authentication import Authentication
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.broker.broker import RoomRow
    from pixiu.roles.gateway.metrics import GatewayCounters
    from pixiu.runtime.admin import Handler

__all__ = ["Surfaces"]

BROKER = "broker"


class Holder(Protocol):
    """Who holds the clients' connections."""

    broker: Broker

    @property
    def counters(self) -> GatewayCounters: ...

    async def start(self) -> tuple[int, int]: ...
    async def stop(self) -> None: ...
    def problems(self) -> list[str]: ...
    def certificate_problem(self) -> str | None: ...


class Surfaces:
    """The doors of one node."""

    def __init__(
        self,
        host: MessagingHost,
        root: Path,
        settings: Settings,
        clock: Clock,
        scheduler: Scheduler,
        *,
        is_dev: bool,
        health: Mapping[str, Handler],
        name: str = "",
        connections_max: int | None = None,
        pipeline: PipelineChild | None = None,
    ) -> None:
        """``is_dev`` makes a signing key where there is none, and tokens for whoever asks.

        ``name`` is the node's; ``connections_max`` is what the system allows here; ``pipeline`` runs beside it.
        """
        messaging = host.messaging
        self._keys = keys = Keyring(root, clock)
        if is_dev and not keys.keys:
            keys.create(settings.security.token_algorithm)
        tokens = Tokens(keys, clock, settings.security)
        authentication = make_authentication(tokens, clock, settings.security)
        self.hot_rooms = HotRooms(clock)
        self._tracing = messaging.tracing
        doors = Doors(hot_rooms=self.hot_rooms)
        self._scheduler = scheduler
        self._administration = administration = NodeAdministration(
            host, doors, pipeline=pipeline, lake_report=LakeReport(root, clock)
        )
        self.api = HttpApi(
            act=messaging.act, find_user=messaging.proxy.find_user, authentication=authentication,
            administration=administration, health=health, settings=settings.security, clock=clock,
            pages=console_pages(is_dev=is_dev, node=name), issue_token=tokens.issue if is_dev else None,
        )  # fmt: skip
        self._http = HttpServer(
            self.api,
            connections_max=settings.security.http_connections_max,
            connections_per_address=settings.security.http_connections_per_address,
        )
        self._holder: Holder
        if settings.gateway.processes:
            self._holder = _OtherProcesses(host, root, settings, clock, scheduler, self._http, self._report)
        else:
            self._holder = _ThisProcess(
                host, root, settings, clock, scheduler, self._http, self._report,
                authentication, connections_max,
            )  # fmt: skip
        self._settings = settings
        self.tcp_port = self.grpc_port = -1
        """Where frames without HTTP and gRPC are served; -1: nowhere."""
        self._grpc = None if settings.gateway.grpc_port < 0 else self._make_grpc(root, settings, clock)
        self.broker = self._holder.broker
        tell_large_groups(messaging, self.broker)
        doors.gateway, doors.broker, doors.http = self._holder.counters, self.broker, self.api.counters

    def _make_grpc(self, root: Path, settings: Settings, clock: Clock) -> GrpcServer | None:
        if self.gateway is None:
            raise ConfigError(
                "gateway.grpc_port needs the connections in the node's own process: gateway.processes = 0"
            )
        return make_grpc(self.api, self.gateway, root, settings, clock)

    @property
    def gateway(self) -> Gateway | None:
        """The gateway of this process; None if other processes hold the connections."""
        return self._holder.gateway if isinstance(self._holder, _ThisProcess) else None

    @property
    def gateway_counters(self) -> GatewayCounters:
        """What is counted of clients' connections."""
        return self._holder.counters

    async def start(self) -> tuple[int, int]:
        """Listen. Returns the port of HTTP and WebSockets, and that of TCP."""
        await self._http.start()
        ports = await self._holder.start()
        self.tcp_port = ports[1]
        self._administration.history.start(self._scheduler)
        if self._grpc is not None:
            self.grpc_port = await self._grpc.start(self._settings.http.host, self._settings.gateway.grpc_port)
        return ports

    def other_addresses(self) -> tuple[str | None, str | None]:
        """Where gRPC and TCP are served, on the host of HTTP; None: nowhere."""
        host = self._settings.http.host
        grpc, tcp = (None if port < 0 else f"{host}:{port}" for port in (self.grpc_port, self.tcp_port))
        return grpc, tcp

    async def stop(self) -> None:
        """Take nobody any more, and send everyone away in order."""
        self._administration.history.stop()
        await self._holder.stop()
        if self._grpc is not None:
            await self._grpc.stop()
        await self._http.stop()
        self.broker.stop()

    def problems(self) -> list[str]:
        """Why clients cannot come in."""
        return self._holder.problems()

    def key_problems(self) -> list[str]:
        """Why no token is accepted. With ``security.auth_url`` most tokens need no key of this node."""
        return [] if self._settings.security.auth_url else self._keys.problems()

    def notes(self) -> dict[str, str]:
        """Faults that keep no client out for now: single keys, and a renewed certificate that is not in use."""
        found = {"keys": "; ".join(self._keys.notes()), "certificate": self._holder.certificate_problem() or ""}
        return {part: note for part, note in found.items() if note}

    def _report(self, row: RoomRow) -> None:
        """What happened in a room: for those who look now, and for the log."""
        self.hot_rooms.report(row)
        self._tracing.room(row)


def _make_broker(
    host: MessagingHost,
    settings: Settings,
    clock: Clock,
    scheduler: Scheduler,
    push: Callable[[str, list[Frame]], object],
    report: Callable[[RoomRow], object],
    gateway_of: Callable[[int], str] = lambda _session: "local",
) -> Broker:
    names = host.messaging.proxy.context.directory
    return Broker(
        host.routes, clock, scheduler, settings.rooms, push,
        groups=host.stores.groups, user_name=names.user_name, gateway_of=gateway_of, report=report,
    )  # fmt: skip


class _ThisProcess:
    """The connections are in the node's own process."""

    def __init__(
        self,
        host: MessagingHost,
        root: Path,
        settings: Settings,
        clock: Clock,
        scheduler: Scheduler,
        http: HttpServer,
        report: Callable[[RoomRow], object],
        authentication: Authentication,
        connections_max: int | None,
    ) -> None:
        messaging = host.messaging
        context: Context = messaging.proxy.context
        self._settings = settings
        self._certificates = certificates_from(settings.security, root)
        self.gateway = Gateway(
            messaging, authentication.authenticate, clock, scheduler, settings.gateway, names=context.directory,
            message_bytes_max=settings.messaging.message_bytes_max, connections_max=connections_max,
        )  # fmt: skip
        self._rechecks = Rechecks(self.gateway, authentication, clock, scheduler, settings.security)
        LiveActions(
            self.gateway, context, scheduler, tell=messaging.relay.tell, is_present=messaging.relay.is_present,
            turns=messaging.proxy.turns,
        )  # fmt: skip
        self.broker = _make_broker(host, settings, clock, scheduler, self._push, report)
        self._rooms = RoomListening(
            self.gateway, settings.rooms, clock,
            act=lambda actor, action, params, done: act_in_room(self.broker, actor, action, params, done),
            session_gone=self.broker.session_gone,
        )  # fmt: skip
        tls = None if self._certificates is None else self._certificates.context
        self._server = AppServer(self.gateway, settings.gateway, http_upstream=http.connection, tls=tls)

    @property
    def counters(self) -> GatewayCounters:
        return self.gateway.counters

    async def start(self) -> tuple[int, int]:
        self.gateway.start()
        self._rechecks.start()
        if self._certificates is not None:
            self._certificates.watch(asyncio.get_running_loop(), interval_ms=self._settings.security.tls_reload_ms)
        http = self._settings.http
        return await self._server.start(http.host, http.port, tcp_port=self._settings.gateway.tcp_port)

    async def stop(self) -> None:
        await self._server.stop()
        self._rechecks.stop()
        self.gateway.stop()
        if self._certificates is not None:
            self._certificates.close()

    def problems(self) -> list[str]:
        return []

    def certificate_problem(self) -> str | None:
        return None if self._certificates is None else self._certificates.problem

    def _push(self, gateway: str, frames: list[Frame]) -> None:
        """From the broker to the one gateway of this process, and its acks back."""
        for frame in frames:
            ack = self._rooms.receive(BROKER, frame)
            if ack is not None:
                self.broker.acked(gateway, ack)


class _OtherProcesses:
    """The connections are in processes that this one starts."""

    def __init__(
        self,
        host: MessagingHost,
        root: Path,
        settings: Settings,
        clock: Clock,
        scheduler: Scheduler,
        http: HttpServer,
        report: Callable[[RoomRow], object],
    ) -> None:
        messaging = host.messaging
        context: Context = messaging.proxy.context
        certificates_from(settings.security, root)  # what is wrong with them is said here, once
        self.hub = GatewayHub(messaging, context.directory, clock, scheduler, settings.gateway)
        LiveActions(
            self.hub, context, scheduler, tell=messaging.relay.tell, is_present=messaging.relay.is_present,
            turns=messaging.proxy.turns,
        )  # fmt: skip
        self.broker = self.hub.broker = _make_broker(
            host, settings, clock, scheduler, self.hub.push_frames, report, self.hub.gateway_of
        )
        self._http = http
        self._processes = GatewayProcesses(self.hub, root, settings, hand_over=http.connection)

    @property
    def counters(self) -> GatewayCounters:
        return self.hub.counters

    async def start(self) -> tuple[int, int]:
        return await self._processes.start()

    async def stop(self) -> None:
        await asyncio.gather(self._processes.stop(), self._http.stop())

    def problems(self) -> list[str]:
        return self._processes.problems()

    def certificate_problem(self) -> str | None:
        return None  # each gateway process logs its own
