"""Where the leader is, for clients of a queue that elects it: asked of the registry, and watched.

The node ``leader`` in the partition's folder is a hint: who connects to the wrong server is told so by it, and asks
again. What the hint does is save time. A leader that stands still answers nothing, and its clients would wait for the
end of their patience; when the registry names another, they leave at once.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.queue.client.servers import Address, parse_addresses
from pixiu.queue.replication.control import LEADER, partition_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.registry import Folder, Registry

__all__ = ["LeaderFinder"]

POLL_S = 1.0
READ_TIMEOUT_S = 3.0
BACKENDS = {"zk": "pixiu.backends.zookeeper.registry"}
"""The module that speaks with a registry, by the scheme of its address. It is named, not imported: a client that has
addresses needs none of it."""


class LeaderFinder:
    """Keeps the addresses of one partition's replicas, the leader's first."""

    def __init__(
        self, where: str | Registry, *, partition: int, root: str = "", found: Callable[[tuple[Address, ...]], object]
    ) -> None:
        """``where``: ``zk://…``, or a session that is open already and stays open. ``found`` is told every change."""
        self._address: RegistryAddress | None = None
        self._registry: Registry | None = None
        if isinstance(where, str):
            self._address = RegistryAddress.parse(where)
            root = self._address.root
        else:
            self._registry = where
        self._folder = partition_folder(root or "/pubsub", partition)
        self._found = found
        self._known: tuple[Address, ...] = ()
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def ready(self) -> None:
        """Returns when the registry has been asked at least once. Raises ``Unavailable`` if nobody is registered."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        if not self._known:
            await self._look()
        if not self._known:
            raise Unavailable(f"cannot connect: no queue is registered under {self._folder}")

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._registry is None:
            assert self._address is not None
            backend = import_module(BACKENDS["zk"])
            registry = backend.ZooKeeperRegistry(self._address.hosts, loop)
            await loop.run_in_executor(None, registry.connect)
            self._registry = registry
        self._registry.watch(f"{self._folder}/{LEADER}", self._hint)
        await self._look()
        self._poll()

    async def _look(self) -> None:
        """Read who is there; what cannot be read stays as it was."""
        assert self._registry is not None
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()

        def done(folder: Folder | PixiuError) -> None:
            if not answer.done():
                answer.set_result(folder)

        self._registry.read(self._folder, done)
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                self._take(await answer)
        except TimeoutError:
            pass  # a registry that is silent costs time, not what is known

    def _hint(self) -> None:
        if self._registry is not None and not self._is_closed:
            self._registry.read(self._folder, self._take)

    def _poll(self) -> None:
        if not self._is_closed:
            self._hint()
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _take(self, folder: Folder | PixiuError) -> None:
        if isinstance(folder, PixiuError) or self._is_closed:
            return
        leader = folder.get(LEADER)
        names = [str(entry.data.get("address", "")) for name, entry in folder.items() if name.isdecimal()]
        if leader is not None:
            names.insert(0, str(leader.data.get("address", "")))
        try:
            addresses = tuple(dict.fromkeys(parse_addresses([name for name in names if name])))
        except ConfigError:
            return
        if addresses and addresses != self._known:
            self._known = addresses
            self._found(addresses)

    async def close(self) -> None:
        """Watch no more; a session of our own ends."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._address is not None and self._registry is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.close)
