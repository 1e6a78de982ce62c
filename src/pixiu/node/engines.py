"""The stores of a node, with the engines that its settings name.

What another engine keeps is derived from the log like everything else. So when timelines move from one engine to
another, or an engine is found empty, all stores are made again from the log: only then do counts, references and rows
agree. An engine that holds rows of another log, as far as can be seen, is refused; only ``pixiu rebuild`` empties one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pixiu.backends.cassandra.address import SCHEME, Address
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.config.engines import EMBEDDED
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, CorruptData
from pixiu.node.remembered import node_name, open_redis, remembered
from pixiu.node.stores import (
    note_timelines_engine,
    ready_stores,
    rebuild_stores,
    remade_stores,
    require_whole_log,
    timelines_engine,
)
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.backends.embedded.keyvalue import RocksKeyValue
    from pixiu.backends.redis.stores import RedisStores
    from pixiu.config.engines import EngineSettings
    from pixiu.node.logs import NodeLog
    from pixiu.node.stores import NodeStores

    Progress = Callable[[int, int], object] | None

__all__ = ["engines_of_replica", "open_timelines", "over", "ready_engines", "rebuild_engines", "timelines_address"]

CASSANDRA = "cassandra"
KEYSPACE_MAX = 48
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
FILLING = "cassandra, being filled"
"""Until all of it is there, a start begins anew."""


def ready_engines(
    settings: EngineSettings,
    root: Path,
    log: NodeLog,
    progress: Progress = None,
    *,
    redis: RedisStores | None = None,
) -> tuple[RocksKeyValue, NodeStores]:
    """The stores that a node runs on. Raises ``ConfigError``, ``Unavailable``, ``CorruptData`` or ``Gone``.

    ``redis`` has all but timelines; with it, these alone are in the data directory or in Cassandra.
    """
    address = timelines_address(settings)
    store, base = ready_stores(root, log, progress, redis=redis)
    try:
        if address is None:
            if timelines_engine(store) == EMBEDDED:
                return store, base
            require_whole_log(log, f"the timelines of this node are in {timelines_engine(store)}")
            base.close()
            return remade_stores(root, log, progress, redis=redis)[:2]
        part = open_timelines(address, base)
    except BaseException:
        base.close()
        raise
    try:
        if _was_filled(part, store, log, node_name(root)) or not _needs_remake(part, store, base, log):
            return store, over(base, part)
        require_whole_log(log, f"the timelines of this node are not in {address}")
    except BaseException:
        part.close()
        base.close()
        raise
    part.close()
    base.close()
    store, base, part, _ = _remade(address, root, log, progress, redis)
    return store, over(base, part)


def rebuild_engines(settings: EngineSettings, root: Path, progress: Progress = None) -> int:
    """Make all stores of a stopped node again from its log. Returns how many records made no sense."""
    address = timelines_address(settings)
    if address is None:
        return rebuild_stores(root, progress)

    def remake(log: NodeLog) -> int:
        CassandraTimelines(address, lambda _: {}).close()  # before anything is thrown away: does it answer?
        redis = open_redis(root, remembered(root).store)
        _, base, part, skipped = _remade(address, root, log, progress, redis)
        part.close()
        base.close()
        return skipped

    return rebuild_stores(root, remake=remake)


def engines_of_replica(settings: EngineSettings, name: str) -> tuple[EngineSettings, str]:
    """The engines of one of several replicas, and what stands before its keys in Redis. Raises ``ConfigError``.

    Every replica applies the log itself, so it has rows of its own also where an engine is shared: a prefix in Redis,
    and a keyspace in Cassandra, both made from its name. Asks no engine.
    """
    timelines = timelines_address(settings)
    if settings.store == EMBEDDED and timelines is None:
        return settings, ""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a replica keeps rows in shared engines under its name: give it one of up to 32 small letters, digits and "
            f"-, with replication.name, not {name!r}"
        )
    if settings.store != EMBEDDED:
        RedisAddress.parse(settings.store)
        _require("valkey", "redis", settings.store)
    if timelines is not None:
        _require("cassandra", "cassandra", settings.timelines)
        keyspace = f"{timelines.keyspace}_{name.replace('-', '_')}"
        if len(keyspace) > KEYSPACE_MAX:
            raise ConfigError(
                f"the keyspace of {name} would be {keyspace}, and Cassandra takes names of up to {KEYSPACE_MAX} "
                "characters: choose a shorter one"
            )
        settings = replace(settings, timelines=urlsplit(settings.timelines)._replace(path=f"/{keyspace}").geturl())
    return settings, f"pixiu-{name}:"


def _require(package: str, extra: str, place: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(f"{place} needs the package {package}; install it with: {how_to_install(extra)}")


def open_timelines(address: Address, base: NodeStores, *, is_patient: bool = False) -> CassandraTimelines:
    """Timelines in Cassandra; the content of their rows comes from the bodies of ``base``."""
    return CassandraTimelines(address, base.bodies.get, is_patient=is_patient)


def over(base: NodeStores, part: CassandraTimelines) -> MixedStores:
    """The stores of a node, with their timelines in Cassandra."""
    if isinstance(base, MixedStores):
        return base.over(part, part)
    return MixedStores(base, [base, part], timelines=part)


def timelines_address(settings: EngineSettings) -> Address | None:
    """Where Cassandra is; None for embedded timelines. Raises ``ConfigError``."""
    if settings.timelines == EMBEDDED:
        return None
    if settings.timelines.startswith(SCHEME):
        return Address.parse(settings.timelines)
    raise ConfigError(f"timelines must be {EMBEDDED} or {SCHEME}HOST[:PORT]…, not {settings.timelines!r}")


def _was_filled(part: CassandraTimelines, store: RocksKeyValue, log: NodeLog, node: str) -> bool:
    """Has the pipeline filled it from this node's log, to its end? Then it is ours, and goes on from there."""
    through = part.link.filled_by(node)
    if through is None:
        return False
    part.link.note_filled(node, None)
    if timelines_engine(store) != EMBEDDED or not 0 < through == part.applied(Lane.TIMELINES) <= log.committed:
        return False
    note_timelines_engine(store, CASSANDRA)
    return True


def _needs_remake(part: CassandraTimelines, store: RocksKeyValue, base: NodeStores, log: NodeLog) -> bool:
    """Is it empty, or were the timelines elsewhere? Raises ``CorruptData`` if it seems to be somebody else's."""
    known, applied = part.applied(Lane.TIMELINES), base.applied(Lane.TIMELINES)
    if known > applied and timelines_engine(store) != FILLING:
        keyspace = part.link.address.keyspace
        raise CorruptData(
            f"keyspace {keyspace} knows event {known}, and the stores of this node event {applied} of {log.committed}: "
            "it is of another log, or the stores are older than it. Name another keyspace, or empty this one and make "
            "all of it again from the log (pixiu rebuild)"
        )
    noted = timelines_engine(store)
    if noted in (CASSANDRA, FILLING):
        return noted == FILLING or (bool(applied) and not part.has_position)
    if part.has_position:
        keyspace = part.link.address.keyspace
        raise CorruptData(
            f"keyspace {keyspace} has timelines already, up to event {known}, and those of this node were not there. "
            "Name another keyspace, or empty this one and make all of it again from the log (pixiu rebuild)"
        )
    if not applied:
        note_timelines_engine(store, CASSANDRA)
    return bool(applied)


def _remade(
    address: Address, root: Path, log: NodeLog, progress: Progress, redis: RedisStores | None
) -> tuple[RocksKeyValue, NodeStores, CassandraTimelines, int]:
    """Everything anew. What has no position of ours is not emptied: rows that others have written there stay."""
    parts: list[CassandraTimelines] = []

    def mixed(store: RocksKeyValue, base: NodeStores) -> MixedStores:
        part = open_timelines(address, base, is_patient=True)
        parts.append(part)
        note_timelines_engine(store, FILLING)
        if part.has_position:
            part.clear()
        return over(base, part)

    try:
        store, base, skipped = remade_stores(root, log, progress, redis=redis, mixed=mixed)
    except BaseException:
        for part in parts:
            part.close()
        raise
    part = parts[0]
    part.is_patient = False
    note_timelines_engine(store, CASSANDRA)
    return store, base, part, skipped
