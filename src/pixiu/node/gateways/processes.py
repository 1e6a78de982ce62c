"""The gateway processes of a node: started, watched, replaced when they die, sent home when the node stops.

They all listen on the same port (SO_REUSEPORT), and the system spreads new connections over them. The port is this
process's: it is bound here, without listening, before the first of them starts and until the last has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError
from pixiu.node.gateways.process import Orders
from pixiu.runtime.http_passage import Arrival
from pixiu.runtime.local_links import LocalLink, LocalPlace, listen_local
from pixiu.runtime.process import own_command

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.runtime.http_passage import HandOver

__all__ = ["GatewayProcesses", "reserve_port"]

log = logging.getLogger(__name__)

START_SECONDS = 20.0
LOOK_SECONDS = 0.5
BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 10.0
SETTLED_SECONDS = 10.0
"""One that lived this long is started again at once when it dies; others wait, twice as long each time."""
STOP_SECONDS = 15.0
"""Beside the time that sending everyone away takes."""


class GatewayProcesses:
    """``count`` processes that hold the clients' connections."""

    def __init__(self, hub: GatewayHub, root: Path, settings: Settings, *, hand_over: HandOver) -> None:
        """``hand_over`` makes the HTTP server's end of a connection that a gateway process passes on."""
        self._hub = hub
        self._root = root
        self._settings = settings
        self._hand_over = hand_over
        self._place: LocalPlace | None = None
        self._listeners: list[asyncio.Server] = []
        self._ports: list[socket.socket] = []
        self._processes: dict[str, Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._watcher: asyncio.Task[None] | None = None
        self._opened: dict[str, asyncio.Event] = {}
        self._is_stopping = False
        self.restarts = 0
        """Processes that were started again."""

    async def start(self) -> tuple[int, int]:
        """Start all, and wait until each takes clients. Returns the port of HTTP and WebSockets, and that of TCP."""
        settings = self._settings
        host, tcp_port = settings.http.host, settings.gateway.tcp_port
        port = self._reserve(host, settings.http.port)
        if tcp_port >= 0:
            tcp_port = self._reserve(host, tcp_port)
        self._place = place = LocalPlace(self._root / "run")
        link, http = place.path("gateway.sock"), place.path("http.sock")
        self._listeners = [
            await listen_local(link, lambda: LocalLink(self._hub.accept())),
            await listen_local(http, lambda: Arrival(self._hand_over)),
        ]
        self._hub.when_open = self._has_opened
        self._hub.start()
        names = [f"gateway-{number}" for number in range(1, settings.gateway.processes + 1)]
        for name in names:
            self._opened[name] = asyncio.Event()
            orders = Orders(name, str(self._root.absolute()), str(link), str(http), port, tcp_port, settings)
            self._keepers.append(asyncio.create_task(self._keep(orders)))
        self._watcher = asyncio.create_task(self._watch())
        ready = asyncio.gather(*(event.wait() for event in self._opened.values()))
        waits: set[asyncio.Future[object]] = {ready, *self._keepers}  # type: ignore[arg-type]
        await asyncio.wait(waits, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            missing = [name for name, event in self._opened.items() if not event.is_set()]
            raise PixiuError(f"{', '.join(missing)} did not start; the lines before this say why")
        return port, tcp_port

    def problems(self) -> list[str]:
        """Why clients cannot come in."""
        return [] if self._hub.is_open else ["no gateway process takes clients"]

    async def stop(self) -> None:
        """Let each send its clients away; end those that take too long."""
        self._is_stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
        gateway = self._settings.gateway
        drain_seconds = STOP_SECONDS + self._hub.connections / gateway.drain_batch * 0.02
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=drain_seconds)
        for name, process in self._processes.items():
            log.warning("gateway process killed, it did not end", extra={"gateway": name})
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=STOP_SECONDS)
        self._hub.stop()
        for listener in self._listeners:
            listener.close()
        for port in self._ports:
            port.close()
        if self._place is not None:
            self._place.close()

    # One process.

    async def _keep(self, orders: Orders) -> None:
        """Start it, again and again."""
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_SECONDS
        has_been_here = False
        while True:
            began = loop.time()
            code = await self._run(orders)
            has_been_here |= self._opened[orders.name].is_set()
            if self._must_end() or not has_been_here:
                return
            if loop.time() - began > SETTLED_SECONDS:
                backoff = BACKOFF_SECONDS
            self.restarts += 1
            log.error("gateway process ended", extra={"gateway": orders.name, "code": code, "again_in_s": backoff})
            await asyncio.sleep(backoff)
            if self._must_end():
                return
            backoff = min(backoff * 2, BACKOFF_SECONDS_MAX)

    def _must_end(self) -> bool:
        return self._is_stopping

    async def _run(self, orders: Orders) -> int:
        """One life of it. Returns its exit code."""
        process = await asyncio.create_subprocess_exec(
            *own_command("gateway"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        self._processes[orders.name] = process
        assert process.stdin is not None
        log.info("gateway process started", extra={"gateway": orders.name, "pid": process.pid})
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(orders.as_line())
                await process.stdin.drain()
            if self._is_stopping:
                process.terminate()
            return await process.wait()
        finally:
            del self._processes[orders.name]
            process.stdin.close()

    def _has_opened(self, name: str) -> None:
        if name in self._opened:
            self._opened[name].set()

    async def _watch(self) -> None:
        """One that is silent for too long takes its share of new connections and answers none: replace it."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, process in list(self._processes.items()):
                if self._hub.silence_ms(name) > self._settings.gateway.frozen_ms:
                    log.error("gateway process killed, it is frozen", extra={"gateway": name, "pid": process.pid})
                    self._hub.forget(name)
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()

    def _reserve(self, host: str, port: int) -> int:
        held = reserve_port(host, port)
        self._ports.append(held)
        return int(held.getsockname()[1])


def reserve_port(host: str, port: int) -> socket.socket:
    """A port for several processes: bound, so that nobody else takes it, and not listened on, so that it gets nothing.

    Raises ``OSError`` if somebody listens there already, even somebody who would share it.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
    shared = socket.socket(family, kind, protocol)
    try:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(address)
    except BaseException:
        shared.close()
        raise
    return shared
