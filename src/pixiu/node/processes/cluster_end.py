"""A process's end of a cluster, with real sockets and ZooKeeper: what every role process and every publisher has.

::

    end = await ClusterEnd.open("zk://10.0.0.1:2181/pubsub", secrets, settings.links, bind="10.0.0.7")
    end.endpoint, end.directory, end.registry
    await end.close()
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.config.registry import RegistryAddress
from pixiu.links.bigrooms import BigRooms
from pixiu.links.bulk import Bulk
from pixiu.links.directory import Directory, DirectoryRules
from pixiu.links.endpoint import Endpoint
from pixiu.links.wire import WireWay
from pixiu.machines.links.handshake import CHALLENGE_BYTES
from pixiu.machines.links.sealing import Secrets
from pixiu.machines.view import ViewRules
from pixiu.node.processes.cluster_secrets import (
    SecretsFile,
    needed_queue_keys,
    queue_key,
    read_secrets,
    secrets_of,
)
from pixiu.runtime.binding import cannot_listen
from pixiu.runtime.boots import new_boot
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datagrams import UdpSocket
from pixiu.runtime.links import TcpLinks
from pixiu.runtime.local_links import LocalLink
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.config import LinkSettings

__all__ = [
    "ClusterEnd", "needed_queue_keys", "open_session", "queue_key", "read_secrets", "secrets_of",
]  # fmt: skip

log = logging.getLogger(__name__)

PORT_TRIES = 16
OPTIONAL_SECONDS = 3.0
"""How long a process that can start without the registry waits for it."""
QUEUE_SESSION_MS = 4_000
"""Of the queue. Longer than a lease: the session's end only tidies up. A server that stands still is left after two
thirds of it."""


async def open_session(address: RegistryAddress, *, session_ms: int = QUEUE_SESSION_MS) -> ZooKeeperRegistry:
    """A session with the registry. Raises ``Unavailable``."""
    loop = asyncio.get_running_loop()
    session = ZooKeeperRegistry(address.hosts, loop, session_ms=session_ms)
    try:
        await loop.run_in_executor(None, session.connect)
    except BaseException:
        await loop.run_in_executor(None, session.close)
        raise
    return session


class ClusterEnd:
    """Sockets, registry, endpoint and directory of one process."""

    def __init__(
        self, secrets: Secrets, settings: LinkSettings, address: RegistryAddress, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.clock = SystemClock()
        self.scheduler = LoopScheduler(loop)
        self.boot = new_boot(self.clock)
        self.address = ""
        self.root = address.root
        self.settings = settings
        self.registry = ZooKeeperRegistry(address.hosts, loop, session_ms=settings.session_ms)
        self._loop = loop
        self._lives = 0
        self._links = TcpLinks(loop)
        self._bulk = Bulk(
            secrets, self.boot, self._links, self.clock, self.scheduler, lambda: os.urandom(CHALLENGE_BYTES)
        )
        self.way = WireWay(secrets, self.boot, self.clock, self._bulk)
        self._udp = UdpSocket(loop, self.way.datagram)
        self.way.datagrams = self._udp
        self.endpoint = Endpoint(self.boot, self.way, self.clock, self.scheduler)
        self._udp.when_free = lambda: self.way.when_free()
        view = ViewRules(
            heartbeat_ms=settings.heartbeat_ms, suspect_ms=settings.suspect_ms, dead_ms=settings.dead_ms,
            grace_ms=settings.linger_ms,
        )  # fmt: skip
        rules = DirectoryRules(view, settings.poll_ms, settings.grace_ms)
        self.directory = Directory(self.registry, self.endpoint, self.clock, self.scheduler, self.root, rules)
        self.bigs = BigRooms(self.registry, self.clock, self.scheduler, self.root, settings.poll_ms)
        self.when_secrets_changed: list[Callable[[str], object]] = []
        """Called with the file's new text."""
        self._tcp: asyncio.Server | None = None
        self._secrets_file: SecretsFile | None = None

    @classmethod
    async def open(
        cls,
        registry: str | RegistryAddress,
        secrets: Secrets,
        settings: LinkSettings,
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        needs_registry: bool = True,
    ) -> ClusterEnd:
        """Listen, and find the registry. Raises ``ConfigError`` or ``Unavailable``.

        Without ``needs_registry`` a registry that does not answer within ``OPTIONAL_SECONDS`` is found later.
        """
        loop = asyncio.get_running_loop()
        address = RegistryAddress.parse(registry) if isinstance(registry, str) else registry
        end = cls(secrets, settings, address, loop)
        try:
            await end._listen(bind, port)
            if needs_registry:
                await loop.run_in_executor(None, end.registry.connect)
            elif not await loop.run_in_executor(None, end.registry.connect_later, OPTIONAL_SECONDS):
                log.warning("registry_unreachable", extra={"registry": str(address)})
        except BaseException:
            await end.close()
            raise
        return end

    @property
    def secrets(self) -> Secrets:
        """The cluster's secrets, as they are now."""
        return self._bulk.secrets

    def new_life(self) -> int:
        """A number above all earlier ones of this process and its earlier lives."""
        self._lives += 1
        return self.boot + self._lives

    def watch_secrets(self, path: Path, text: str) -> None:
        """Take over what is in the file whenever it is something else than this."""
        self._secrets_file = SecretsFile(path, text, self._loop, self._change_secrets)

    def _change_secrets(self, text: str) -> None:
        self.way.change_secrets(Secrets.from_text(text))
        for call in self.when_secrets_changed:
            call(text)

    async def close(self) -> None:
        """Leave: the registry forgets this process at once."""
        self.directory.stop()
        self.bigs.stop()
        self.endpoint.stop()
        if self._secrets_file is not None:
            self._secrets_file.close()
        await self._loop.run_in_executor(None, self.registry.close)
        self._bulk.close()
        self._links.close()
        if self._tcp is not None:
            self._tcp.close()
        self._udp.close()
        self.scheduler.close()

    async def _listen(self, bind: str, port: int) -> None:
        """One port for datagrams and streams."""
        for attempt in range(PORT_TRIES):
            try:
                tcp = await self._loop.create_server(lambda: LocalLink(self._bulk.accept()), bind, port)
                found = int(tcp.sockets[0].getsockname()[1])
                try:
                    self._udp.bind(bind, found)
                except OSError:
                    tcp.close()
                    if port or attempt == PORT_TRIES - 1:
                        raise
                    continue
            except OSError as error:
                raise cannot_listen(bind, port, error) from error
            self._tcp = tcp
            self.address = f"[{bind}]:{found}" if ":" in bind else f"{bind}:{found}"
            return
