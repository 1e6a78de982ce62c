"""A lock as an ephemeral node of ZooKeeper, which goes with its holder's session.

ZooKeeper frees it when the session has been silent for its timeout, so that is set to the time after which the lock may
be gone; the ensemble's maxSessionTimeout must allow for it (by default it allows 40 seconds). Kazoo has threads of its
own; it is called from a thread, never from the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ZooKeeperLock"]

FOLDER = "/pixiu/locks"
CONNECT_SECONDS = 5.0

T = TypeVar("T")


class ZooKeeperLock:
    """``Lock`` with a session of its own, opened when it is first asked for."""

    def __init__(self, address: str) -> None:
        self._hosts, _, folder = address.partition("/")
        self._folder = f"/{folder.strip('/')}" if folder.strip("/") else FOLDER
        self._client: KazooClient | None = None
        self._turn = threading.Lock()  # a call that was given up may still run

    async def acquire(self, key: str, holder: str, expire_ms: int) -> bool:
        """Take it if it is free, or ours already."""
        return await self._call(lambda: self._acquire(key, holder, expire_ms))

    async def renew(self, key: str, holder: str, expire_ms: int) -> bool:
        """Is it still ours? The session's own heartbeats keep it."""
        return await self._call(lambda: self._is_ours(key, holder))

    async def release(self, key: str, holder: str) -> None:
        """Free it, if it is ours."""
        await self._call(lambda: self._release(key, holder))

    def is_sure(self) -> bool:
        """Not while the session has no connection: it may be ending."""
        client = self._client
        return client is not None and client.state == KazooState.CONNECTED

    async def close(self) -> None:
        """End the session, and its locks with it."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._turn:
            client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def _session(self, expire_ms: int) -> KazooClient:
        if self._client is None:
            client = KazooClient(hosts=self._hosts, timeout=expire_ms / 1000)
            try:
                client.start(timeout=CONNECT_SECONDS)
            except BaseException:
                client.stop()
                client.close()
                raise
            self._client = client
        return self._client

    def _path(self, key: str) -> str:
        return f"{self._folder}/{quote(key, safe='@')}"

    def _acquire(self, key: str, holder: str, expire_ms: int) -> bool:
        try:
            self._session(expire_ms).create(self._path(key), holder.encode(), ephemeral=True, makepath=True)
        except NodeExistsError:
            return self._is_ours(key, holder)
        return True

    def _is_ours(self, key: str, holder: str) -> bool:
        """By the session too: a node of our own dead session goes soon."""
        client = self._client
        if client is None or client.client_id is None:
            return False
        try:
            data, state = client.get(self._path(key))
        except NoNodeError:
            return False
        return bool(data == holder.encode() and state.ephemeralOwner == client.client_id[0])

    def _release(self, key: str, holder: str) -> None:
        if self._client is not None and self._is_ours(key, holder):
            self._client.delete(self._path(key))

    async def _call(self, work: Callable[[], T]) -> T:
        def in_turn() -> T:
            with self._turn:
                return work()

        try:
            return await asyncio.to_thread(in_turn)
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise Unavailable(f"the lock's ZooKeeper does not answer: {error or type(error).__name__}") from error
