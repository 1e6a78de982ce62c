"""What clients and programs reach: WebSocket, TCP and HTTP, with rooms and presence behind them.

One port serves WebSockets and HTTP alike; the gateway, the broker and the API are objects in this process, wired here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.json import encode

from pixiu.api.app import HttpApi
from pixiu.api.server import HttpServer
from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.console import console_pages
from pixiu.model.message import message_view
from pixiu.node.administration import NodeAdministration
from pixiu.node.stats import Doors
from pixiu.roles.broker.broker import Broker
from pixiu.roles.broker.hot import HotRooms
from pixiu.roles.broker.verbs import act as act_in_room
from pixiu.roles.gateway import Gateway, LiveActions, RoomListening
from pixiu.runtime.app_server import AppServer
from pixiu.runtime.authentication import make_authentication
from pixiu.runtime.certificates import certificates_from
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.machines.room_link import Frame
    from pixiu.node.host import MessagingHost
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.carrier.apply_rosters import Removed
    from pixiu.roles.carrier.apply_timelines import Said
    from pixiu.runtime.admin import Handler

__all__ = ["Surfaces"]

BROKER = "broker"


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
    ) -> None:
        """``is_dev`` makes a signing key where there is none, and tokens for whoever asks. ``name`` is the node's."""
        messaging = host.messaging
        context = messaging.proxy.context
        keys = Keyring(root, clock)
        if is_dev and not keys.keys:
            keys.create(settings.security.token_algorithm)
        self._settings = settings
        self._certificates = certificates_from(settings.security, root)
        tokens = Tokens(keys, clock, settings.security)
        authentication = make_authentication(tokens, clock, settings.security)
        self.gateway = Gateway(
            messaging, authentication.authenticate, clock, scheduler, settings.gateway,
            names=context.directory, message_bytes_max=settings.messaging.message_bytes_max,
        )  # fmt: skip
        LiveActions(self.gateway, context, scheduler, tell=messaging.relay.tell, is_present=messaging.relay.is_present)
        self.hot_rooms = HotRooms(clock)
        self.broker = Broker(
            MemoryRoutes(), clock, scheduler, settings.rooms, self._push,
            groups=host.stores.groups, user_name=context.directory.user_name, report=self.hot_rooms.report,
        )  # fmt: skip
        self._names = context.directory
        messaging.when_said = self._said
        messaging.when_removed = self._removed
        self._rooms = RoomListening(
            self.gateway, settings.rooms, clock,
            act=lambda actor, action, params, done: act_in_room(self.broker, actor, action, params, done),
            session_gone=self.broker.session_gone,
        )  # fmt: skip
        doors = Doors(self.gateway.counters, self.broker, self.hot_rooms)
        self.api = HttpApi(
            act=messaging.act, find_user=messaging.proxy.find_user, authentication=authentication,
            administration=NodeAdministration(host, doors), health=health, settings=settings.security, clock=clock,
            pages=console_pages(is_dev=is_dev, node=name), issue_token=tokens.issue if is_dev else None,
        )  # fmt: skip
        doors.http = self.api.counters
        tls = None if self._certificates is None else self._certificates.context
        self._http = HttpServer(self.api, connections_max=settings.security.http_connections_max)
        self._server = AppServer(self.gateway, settings.gateway, http_upstream=self._http.connection, tls=tls)

    async def start(self) -> tuple[int, int]:
        """Listen. Returns the port of HTTP and WebSockets, and that of TCP."""
        self.gateway.start()
        await self._http.start()
        if self._certificates is not None:
            self._certificates.watch(asyncio.get_running_loop(), interval_ms=self._settings.security.tls_reload_ms)
        http = self._settings.http
        return await self._server.start(http.host, http.port, tcp_port=self._settings.gateway.tcp_port)

    async def stop(self) -> None:
        """Take nobody any more, and send everyone away in order."""
        await self._server.stop()
        await self._http.stop()
        self.broker.stop()
        self.gateway.stop()
        if self._certificates is not None:
            self._certificates.close()

    def _said(self, said: list[Said]) -> None:
        """What a large group says is pushed to those of its members who listen in its room."""
        for each in said:
            view = message_view(each.body, self._names)
            view["prev"] = str(each.previous)
            self.broker.group_said(each.group, each.message_id, encode({"push": "message", "message": view}))

    def _removed(self, removed: list[Removed]) -> None:
        """Who is no member of a group any more hears no more of its room."""
        for each in removed:
            self.broker.removed(each.group, each.user)

    def _push(self, gateway: str, frames: list[Frame]) -> None:
        """From the broker to the one gateway of this process, and its acks back."""
        for frame in frames:
            ack = self._rooms.receive(BROKER, frame)
            if ack is not None:
                self.broker.acked(gateway, ack)
