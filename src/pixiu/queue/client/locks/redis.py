"""A lock as a key in Redis or Valkey: smss's recipe, with the check and the change in one script each."""

from __future__ import annotations

from valkey.asyncio import Valkey
from valkey.exceptions import ValkeyError

from pixiu.model.errors import ConfigError, Unavailable

__all__ = ["RedisLock"]

ANSWER_SECONDS = 2.0

ACQUIRE = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
"""Ours already is granted again: an answer may have been lost."""
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class RedisLock:
    """``Lock`` over one connection."""

    def __init__(self, url: str) -> None:
        try:
            self._client = Valkey.from_url(
                url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, max_connections=2
            )
        except ValueError as error:
            raise ConfigError(f"{url!r} is no address of a Redis server: {error}") from error

    async def acquire(self, key: str, holder: str, expire_ms: int) -> bool:
        """Take it if it is free, or ours already."""
        return await self._run(ACQUIRE, key, holder, str(expire_ms))

    async def renew(self, key: str, holder: str, expire_ms: int) -> bool:
        """More time, if it is still ours."""
        return await self._run(RENEW, key, holder, str(expire_ms))

    async def release(self, key: str, holder: str) -> None:
        """Free it, if it is ours."""
        await self._run(RELEASE, key, holder)

    def is_sure(self) -> bool:
        """Nothing is heard of a key unless one asks."""
        return True

    async def close(self) -> None:
        """End the connection."""
        await self._client.aclose()

    async def _run(self, script: str, key: str, *arguments: str) -> bool:
        try:
            return bool(await self._client.eval(script, 1, key, *arguments))
        except (ValkeyError, OSError) as error:
            raise Unavailable(f"the lock's Redis does not answer: {error}") from error
