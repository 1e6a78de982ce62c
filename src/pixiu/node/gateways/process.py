"""A gateway process: clients' sockets, frames, tokens and limits. Everything that is kept is the node's, over a link.

``pixiu serve --gateways N`` starts it (``gateway_processes.py``) and gives it one line on its standard input: who it
is, where the node is, and all settings. The end of that input is the end of the node: then, as on SIGTERM, the clients
are sent away in order, and the process ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from pixiu.config import Settings, load_settings
from pixiu.model.errors import PixiuError
from pixiu.roles.gateway import Gateway, NodeLink, Rechecks, RoomListening, WatchedPresence
from pixiu.runtime.app_server import AppServer
from pixiu.runtime.authentication import make_authentication
from pixiu.runtime.certificates import certificates_from
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.collector import spare_the_collector
from pixiu.runtime.descriptors import raise_descriptors
from pixiu.runtime.http_passage import Passages
from pixiu.runtime.keys import Keyring
from pixiu.runtime.local_links import dial_local
from pixiu.runtime.logging import configure_logging
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Orders", "run_gateway"]

log = logging.getLogger(__name__)

DESCRIPTORS_KEPT_BACK = 64
HTTP_SECONDS = 5.0
"""How long HTTP requests may take to end when the process does."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a gateway process is told when it starts."""

    name: str
    data: str
    link: str
    """Where the node accepts gateways."""
    http: str
    """Where the node accepts plain HTTP."""
    port: int
    tcp_port: int
    settings: Settings

    def as_line(self) -> bytes:
        """For the standard input."""
        told = asdict(self)
        return json.dumps(told).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Orders:
        """What was told. Raises ``PixiuError``: nobody starts this by hand."""
        try:
            told = json.loads(line)
            sections = told.pop("settings")
            values = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
            return cls(**told, settings=load_settings(overrides=values))
        except (ValueError, TypeError, AttributeError, KeyError):
            raise PixiuError("a gateway process is started by: pixiu serve --gateways N") from None


class GatewayProcess:
    """Everything in it."""

    def __init__(self, orders: Orders, loop: asyncio.AbstractEventLoop) -> None:
        settings, root, clock = orders.settings, Path(orders.data), SystemClock()
        self._orders = orders
        self._loop = loop
        self._dials: set[asyncio.Task[None]] = set()
        self._scheduler = LoopScheduler(loop)
        self._certificates = certificates_from(settings.security, root)
        # The keys are read here, not asked for: checking signatures is what connects cost most, and runs on every core.
        tokens = Tokens(Keyring(root, clock), clock, settings.security)
        authentication = make_authentication(tokens, clock, settings.security)
        self._link = NodeLink(orders.name, self._dial, clock, self._scheduler, settings.gateway)
        descriptors = max(raise_descriptors() - DESCRIPTORS_KEPT_BACK, 64)
        passages_max = min(settings.security.http_connections_max, descriptors // 8)
        self.gateway = Gateway(
            self._link, authentication.authenticate, clock, self._scheduler, settings.gateway,
            names=self._link.names, message_bytes_max=settings.messaging.message_bytes_max,
            connections_max=descriptors - 2 * passages_max,
        )  # fmt: skip
        self._rechecks = Rechecks(self.gateway, authentication, clock, self._scheduler, settings.security)
        rooms = RoomListening(
            self.gateway, settings.rooms, clock, act=self._link.act, session_gone=lambda _session: None
        )
        WatchedPresence(self.gateway, self._link.act)
        self._link.receive_room = rooms.receive
        self._passages = Passages(loop, orders.http, count_max=passages_max)
        tls = None if self._certificates is None else self._certificates.context
        self._server = AppServer(self.gateway, settings.gateway, http_upstream=self._passages.make, tls=tls)

    def _dial(self, link: NodeLink) -> None:
        task = dial_local(self._loop, self._orders.link, link)
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def start(self) -> None:
        """Find the node, then listen where the others listen."""
        orders = self._orders
        host = orders.settings.http.host
        self.gateway.start()
        self._rechecks.start()
        welcomed = asyncio.Event()
        self._link.when_up = welcomed.set
        self._link.start(self.gateway)
        await welcomed.wait()
        await self._server.start(host, orders.port, tcp_port=orders.tcp_port, reuse_port=True)
        if self._certificates is not None:
            self._certificates.watch(self._loop, interval_ms=orders.settings.security.tls_reload_ms)
        self._link.open()

    async def stop(self) -> None:
        """Take nobody any more, send everyone away, and tell the node who is gone."""
        self._link.open(is_open=False)
        await self._server.stop()
        await self._passages.end(HTTP_SECONDS)
        self._link.stop()
        self._rechecks.stop()
        self.gateway.stop()
        if self._certificates is not None:
            self._certificates.close()
        for task in self._dials:
            task.cancel()
        await asyncio.sleep(0)
        self._scheduler.close()


def run_gateway() -> int:
    """Run a gateway process by the orders on the standard input, until they end or SIGTERM. Returns the exit code."""
    orders = Orders.from_line(sys.stdin.buffer.readline())
    settings = orders.settings
    if settings.log.path not in ("stderr", "stdout"):  # two processes cannot rotate one file
        path = str(Path(settings.log.path) / orders.name)
        orders = replace(orders, settings=replace(settings, log=replace(settings.log, path=path)))
    configure_logging(orders.settings.log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, meant for the node, which tells us
    return uvloop.run(_serve(orders))


async def _serve(orders: Orders) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _watch_input(loop, stop.set)
    try:
        process = GatewayProcess(orders, loop)
        starting = asyncio.ensure_future(process.start())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return 0
        starting.result()
    except OSError as error:
        raise PixiuError(f"cannot start {orders.name}: {error.strerror or error}") from error
    spare_the_collector()
    await stopping
    log.info("stopping", extra={"gateway": orders.name})
    await process.stop()
    return 0


def _watch_input(loop: asyncio.AbstractEventLoop, ended: Callable[[], object]) -> None:
    """Its end is the end of the node, however that came."""
    number = sys.stdin.fileno()

    def readable() -> None:
        try:
            data = os.read(number, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(number)
            ended()

    os.set_blocking(number, False)
    loop.add_reader(number, readable)
