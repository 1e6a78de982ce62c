"""Locks that let one of several programs subscribe, by address.

::

    redis://127.0.0.1:6379/0, rediss://…, unix://…    a key in Redis or Valkey
    zk://127.0.0.1:2181/pixiu/locks                   a node of ZooKeeper
    server                                            the queue itself, which knows one subscriber of a name
"""

from __future__ import annotations

from typing import Protocol

from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError

__all__ = ["Lock", "lock_of"]


class Lock(Protocol):
    """A lock in a store of others. Every method raises ``Unavailable`` when the store does not answer."""

    async def acquire(self, key: str, holder: str, expire_ms: int) -> bool:
        """Take it if it is free, or ours already."""
        ...

    async def renew(self, key: str, holder: str, expire_ms: int) -> bool:
        """More time, if it is still ours."""
        ...

    async def release(self, key: str, holder: str) -> None:
        """Free it, if it is ours."""
        ...

    def is_sure(self) -> bool:
        """False while the store has reason to think that it may be gone, unasked."""
        ...

    async def close(self) -> None:
        """Let go of the store."""
        ...


def lock_of(address: str) -> Lock:
    """The lock behind an address; raises ``ConfigError`` for one that nobody knows, or whose package is missing."""
    scheme, has_scheme, rest = address.partition("://")
    try:
        if scheme in ("redis", "rediss", "unix", "valkey", "valkeys") and has_scheme:
            from pixiu.queue.client.locks.redis import RedisLock

            return RedisLock(address)
        if scheme == "zk" and rest:
            from pixiu.queue.client.locks.zookeeper import ZooKeeperLock

            return ZooKeeperLock(rest)
    except ModuleNotFoundError as error:
        extra = "zookeeper" if scheme == "zk" else "redis"
        needed = f"{address!r} needs the package {error.name}; install it with: {how_to_install(extra)}"
        raise ConfigError(needed) from error
    raise ConfigError(f"no lock is known by {address!r}; there are redis://…, zk://… and server")
