"""The engines of others that a data directory's stores are in: opened, and remembered for when the node does not run.

A stopped node is audited, rebuilt and asked like one that keeps everything by itself: the data directory knows where
its stores are. The file is the owner's alone, since an address may hold a password.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pixiu.config.engines import EMBEDDED, EngineSettings
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, CorruptData
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import read_identity
from pixiu.runtime.files import write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.backends.redis.stores import RedisStores

__all__ = ["node_name", "open_redis", "remember", "remembered"]

ENGINES_FILE = "engines.json"


def remember(root: Path, engines: EngineSettings) -> None:
    """Note where the stores of a data directory are."""
    if remembered(root).store != engines.store:
        write_durably(root / ENGINES_FILE, json.dumps({"store": engines.store}) + "\n", mode=0o600)


def remembered(root: Path) -> EngineSettings:
    """Where the stores of a data directory are, as its node was last told."""
    path = root / ENGINES_FILE
    try:
        return EngineSettings(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return EngineSettings()
    except (OSError, ValueError, TypeError) as error:
        raise CorruptData(f"{path} cannot be read: {error}", path=str(path)) from error


def node_name(root: Path) -> str:
    """The name under which Redis and Cassandra keep the stores of a data directory."""
    return read_identity(root).engine_name


def open_redis(root: Path, url: str, *, prefix: str = "") -> RedisStores | None:
    """The stores that a setting names; None for embedded ones. Raises ``Unavailable`` if Redis is down.

    ``prefix`` stands before all keys, where several data directories have their stores in one database.
    """
    if url == EMBEDDED:
        return None
    if not url.startswith(("redis:", "rediss:", "redis+", "rediss+")):
        raise ConfigError(f"store must be {EMBEDDED}, or redis://HOST:PORT, not {url!r}")
    try:
        from pixiu.backends.redis.address import RedisAddress
        from pixiu.backends.redis.stores import RedisStores
    except ImportError as error:
        needed = f"store = {url!r} needs the package valkey ({error}); install it with: {how_to_install('redis')}"
        raise ConfigError(needed) from error
    return RedisStores(RedisAddress.parse(url), node_name(root), prefix=prefix, clock=SystemClock())
