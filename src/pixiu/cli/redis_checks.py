"""What ``pixiu doctor`` says of Redis: its version, and settings that lose data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.cli.finding import Check
from pixiu.cli.queue.output import bytes_text
from pixiu.config.extras import how_to_install
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.cli.finding import State

__all__ = ["redis_checks", "redis_findings"]

REDIS_NEEDED = (6, 2)
REDIS_GOOD = (7, 0)
_SETTINGS = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write")


def redis_checks(url: str) -> Iterator[Check]:
    """Look at every server that an address leads to."""
    try:
        from pixiu.backends.redis.address import RedisAddress
        from pixiu.backends.redis.connection import RedisClient
    except ImportError as error:
        yield Check("redis", "fail", f"cannot be asked: {error}", how_to_install("redis"))
        return
    try:
        address = RedisAddress.parse(url)
        client = RedisClient(address)
    except PixiuError as error:
        yield Check("redis", "fail", str(error), "start it, or correct store = in the settings")
        return
    try:
        for server in client.servers:
            name = f"redis {server.name}" if len(client.servers) > 1 else "redis"
            info = _words(server.ask("INFO"))
            found = {setting: _setting(server, setting) for setting in _SETTINGS}
            yield from redis_findings(name, info, found)
    finally:
        client.close()


def redis_findings(name: str, info: dict[str, str], found: dict[str, str]) -> Iterator[Check]:
    """What a server says of itself, judged. A setting that it does not show is empty."""
    version = info.get("valkey_version") or info.get("redis_version", "0")
    text = f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}, {info.get('role', 'master')}"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < REDIS_NEEDED:
        yield Check(name, "fail", text, "6.2 is the oldest that works, and 7.0 the oldest with functions: upgrade")
    elif numbers < REDIS_GOOD:
        yield Check(
            name, "warn", text, "it has no functions: scripts are used, which a restart forgets; 7.0 or newer is better"
        )
    else:
        yield Check(name, "ok", text, "")
    policy = found["maxmemory-policy"]
    if policy in ("noeviction", ""):
        yield Check(f"{name} eviction", "ok", policy or "not shown", "")
    else:
        advice = "CONFIG SET maxmemory-policy noeviction: any other one removes messages that nobody has got"
        yield Check(f"{name} eviction", "fail", policy, advice)
    yield _memory(name, info, found)
    if found["appendonly"] == "yes":
        state: State = "ok" if found["appendfsync"] != "no" else "warn"
        advice = "CONFIG SET appendfsync everysec: what is lost comes from the log, and that takes time"
        yield Check(
            f"{name} appendonly", state, f"yes, appendfsync {found['appendfsync']}", advice if state == "warn" else ""
        )
    else:
        advice = (
            "CONFIG SET appendonly yes: after a restart without it all stores are made again from the log, and not at "
            "all where retention has removed its beginning"
        )
        yield Check(f"{name} appendonly", "warn", found["appendonly"] or "not shown", advice)


def _memory(name: str, info: dict[str, str], found: dict[str, str]) -> Check:
    used, limit = int(info.get("used_memory", 0)), int(found["maxmemory"] or 0)
    text = f"{bytes_text(used)} used of {bytes_text(limit) if limit else 'all there is'}"
    if not limit:
        advice = "CONFIG SET maxmemory to what it may use: at a limit it refuses, without one the system kills it"
        return Check(f"{name} memory", "warn", text, advice)
    if used > 0.9 * limit:
        return Check(f"{name} memory", "warn", text, "at its limit commits are refused and lanes wait: raise maxmemory")
    return Check(f"{name} memory", "ok", text, "")


def _words(text: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _setting(server: Any, name: str) -> str:
    """One setting; a hosted server may not show it."""
    from valkey.exceptions import ValkeyError

    try:
        answer = server.ask("CONFIG", "GET", name)
    except ValkeyError:
        return ""
    return answer[1].decode() if len(answer) > 1 else ""
