"""``pixiu role gateway``: clients' connections in a cluster, with what is stored and what is live.

::

    apps ── WebSocket, TCP ──▶ Gateway ─┬─ ShardLinks ── one stream per shard ──▶ leaders of the shards
    programs ────── HTTP ──▶ HttpApi ───┘
                               Gateway ─── ClusterRooms ── datagrams ──▶ proxies, brokers, routers

A connection uses both. Actions in the room of a group (``g:<group>``) go to the shard, which knows the members.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from pixiu.api.app import HttpApi
from pixiu.api.metrics import METRICS as HTTP
from pixiu.api.server import HttpServer
from pixiu.console import console_pages
from pixiu.links.leaders import Leaders
from pixiu.links.member import Slot
from pixiu.links.publishing import Publishing, PublishingRules
from pixiu.machines.view import PeerState
from pixiu.model.errors import ConfigError
from pixiu.model.hosts import is_loopback
from pixiu.node.grpc_door import make_grpc
from pixiu.node.processes.gateway.administration import ClusterAdministration
from pixiu.node.processes.gateway.known_leaders import leader_file
from pixiu.node.processes.gateway.seen import keep_seen
from pixiu.queue.replication.control import SHARD
from pixiu.roles.gateway import (
    ClusterRooms,
    Gateway,
    Rechecks,
    RoomListening,
    RoomSessions,
    ShardLinks,
    WatchedPresence,
)
from pixiu.roles.gateway.cluster import GROUP_PREFIX
from pixiu.roles.gateway.metrics import METRICS as GATEWAY
from pixiu.roles.gateway.shards import METRICS as SHARDS
from pixiu.runtime import hub_streams
from pixiu.runtime.app_server import AppServer
from pixiu.runtime.authentication import make_authentication
from pixiu.runtime.binding import cannot_listen
from pixiu.runtime.certificates import certificates_from
from pixiu.runtime.descriptors import raise_descriptors
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.im.draft import Actor, Params
    from pixiu.links.leaders import Leader
    from pixiu.node.processes.rooms import RoleProcess
    from pixiu.ports.authentication import Authentication
    from pixiu.ports.clock import Clock
    from pixiu.roles.gateway import NodeLink
    from pixiu.roles.gateway.needs import Done

__all__ = ["GatewayPart"]

log = logging.getLogger(__name__)


DESCRIPTORS_KEPT_BACK = 64


class GatewayPart:
    """The gateway of a role process."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end, options = process.end, process.options
        settings = options.settings
        authentication = _authentication(options.data, settings, end.clock, is_local=is_loopback(options.bind))
        alone = RoomSessions(end.boot, lambda: int.from_bytes(os.urandom(8), "big") >> 1)
        self._leader_file = leader_file(options)
        leaders = Leaders(end.registry, end.scheduler, end.root, SHARD, memory=self._leader_file)
        self._shards = ShardLinks(
            f"gateway-{end.boot:x}", leaders, self._dial, end.clock, end.scheduler, settings.gateway, alone=alone
        )
        self._certificates = certificates_from(settings.security, options.data)
        descriptors = max(raise_descriptors() - DESCRIPTORS_KEPT_BACK, 64)
        http_max = min(settings.security.http_connections_max, descriptors // 8)
        self._gateway = Gateway(
            self._shards, authentication.authenticate, end.clock, end.scheduler, settings.gateway,
            names=self._shards.names, message_bytes_max=settings.messaging.message_bytes_max,
            connections_max=descriptors - http_max,
        )  # fmt: skip
        self._rechecks = Rechecks(self._gateway, authentication, end.clock, end.scheduler, settings.security)
        WatchedPresence(self._gateway, self._shards.act)
        links = settings.links
        self._publishing = Publishing(
            end.endpoint, end.directory, end.clock, end.scheduler,
            PublishingRules(pending_max=links.pending_max, reliable_ms=links.reliable_ms),
            node_id=end.boot & 1023, pick=_pick,
        )  # fmt: skip
        self._slot = Slot(end.registry, end.scheduler, end.root, self._publishing.renumber)
        self._rooms = ClusterRooms(
            end.endpoint, end.directory, self._publishing, end.clock, end.scheduler, settings.rooms,
            user_name=self._shards.name_of, new_life=end.new_life, reliable_mode=links.reliable_mode,
            bigs=end.bigs,
        )  # fmt: skip
        listening = RoomListening(
            self._gateway, settings.rooms, end.clock, act=self._act_in_room, session_gone=self._rooms.session_gone,
            soon=end.scheduler.soon,
        )  # fmt: skip
        self._rooms.receive = self._shards.receive_room = listening.receive
        self._rooms.sessions_in = listening.listeners.sessions
        self._seen = keep_seen(listening.listeners.seen, options, end.clock)
        self._rooms.join = listening.join
        self._rooms.overlaps_no_more = listening.listeners.overlaps_no_more
        self._rooms.joined = lambda version: process.member.tell(big=version)
        administration = ClusterAdministration(self._shards, options.registry, registry=end.registry, root=end.root)
        api = HttpApi(
            act=self._shards.call, find_user=self._shards.find_user, authentication=authentication,
            administration=administration, health=process.routes, settings=settings.security, clock=end.clock,
            pages=console_pages(is_dev=False, node=process.member.name, is_cluster=True),
        )  # fmt: skip
        self._http = HttpServer(
            api, connections_max=http_max, connections_per_address=settings.security.http_connections_per_address
        )
        self._grpc = make_grpc(api, self._gateway, options.data, settings, end.clock)
        self._grpc_port = -1
        tls = None if self._certificates is None else self._certificates.context
        self._server = AppServer(self._gateway, settings.gateway, http_upstream=self._http.connection, tls=tls)
        self._ports = (0, 0)
        process.metrics.add(GATEWAY, self._gateway.counters.snapshot)
        process.metrics.add(SHARDS, self._shards.snapshot)
        process.metrics.add(HTTP, api.counters.snapshot)

    async def start(self) -> None:
        """Listen. A client that connects while its shard is unreachable receives a time to retry after."""
        process = self._process
        options = process.options
        self._gateway.start()
        self._rechecks.start()
        self._shards.start(self._gateway)
        self._rooms.start()
        process.end.bigs.start()
        self._slot.claim()
        await self._http.start()
        tcp_port = options.settings.gateway.tcp_port
        try:
            self._ports = await self._server.start(options.bind, options.port, tcp_port=tcp_port)
        except OSError as error:
            if self._server.is_listening:
                raise cannot_listen(options.bind, tcp_port, error, port_setting="gateway.tcp_port") from error
            raise cannot_listen(options.bind, options.port, error) from error
        if self._grpc is not None:
            self._grpc_port = await self._grpc.start(options.bind, options.settings.gateway.grpc_port)
        if self._certificates is not None:
            self._certificates.watch(asyncio.get_running_loop(), interval_ms=options.settings.security.tls_reload_ms)
        self._shards.open()
        # Where clients connect.
        process.member.tell(node=f"{options.bind}:{self._ports[0]}", tls=self._certificates is not None)
        process.say(PeerState.RUNNING)
        process.member.register()

    async def drain(self) -> None:
        """Send all clients away; the shards end their sessions."""
        self._process.say(PeerState.DRAINING)
        self._shards.open(is_open=False)
        await self._server.stop()
        if self._grpc is not None:
            await self._grpc.stop()

    async def stop(self) -> None:
        """It is over."""
        await self._http.stop()
        self._shards.stop()
        self._rooms.stop()
        self._rechecks.stop()
        self._gateway.stop()
        if self._certificates is not None:
            self._certificates.close()
        if self._seen is not None:
            self._seen.close()
        if self._leader_file is not None:
            await self._leader_file.close()
        await asyncio.sleep(0.1)  # the last leaves are on their way

    def reasons(self) -> dict[str, str]:
        """Why no client can be served: no shard can be reached, or the cluster has rooms only and no proxy."""
        if not self._shards.is_useful:
            return self._shards.problems()
        return {} if self._shards.count else self._missing_proxies()

    def notes(self) -> dict[str, str]:
        """Shards and proxies that cannot be reached; whether the registry does not list this gateway."""
        registry = {} if self._process.member.path else {"registry": "not registered"}
        return {**registry, **self._shards.problems(), **self._missing_proxies()}

    def says(self) -> dict[str, object]:
        """Where clients are taken."""
        said: dict[str, object] = {"port": self._ports[0], "tcp_port": self._ports[1]}
        return said if self._grpc is None else {**said, "grpc_port": self._grpc_port}

    def _missing_proxies(self) -> dict[str, str]:
        return {} if self._publishing.proxies.usable() else {"proxies": "no proxy can be reached"}

    def _dial(self, _shard: int, leader: Leader, link: NodeLink) -> hub_streams.Dial:
        end = self._process.end
        return hub_streams.connect(
            asyncio.get_running_loop(), leader.address, end.secrets, link, boot=end.boot, to=leader.boot
        )

    def _act_in_room(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        room = params.get("room")
        if isinstance(room, str) and room.startswith(GROUP_PREFIX) and self._shards.count:
            self._shards.act(actor, action, params, done)
        else:
            self._rooms.act(actor, action, params, done)


def _authentication(data: Path, settings: Settings, clock: Clock, *, is_local: bool) -> Authentication:
    """Tokens are checked with the keys of the data directory. On loopback a key is made where there is none."""
    data.mkdir(parents=True, exist_ok=True)
    keys = Keyring(data, clock)
    if not keys.keys:
        if not is_local:
            raise ConfigError(f"{data} has no signing key; try: pixiu token USER --new-key --data {data}")
        keys.create(settings.security.token_algorithm)
        log.warning("made a signing key for tokens", extra={"path": str(data)})
    return make_authentication(Tokens(keys, clock, settings.security), clock, settings.security)


def _pick(count: int) -> int:
    """By chance, from 0 to ``count`` - 1."""
    return int.from_bytes(os.urandom(4), "big") % count
