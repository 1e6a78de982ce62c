"""The stores of one replica of a partition, with the engines that its settings name.

Every replica applies the log by itself, so it has stores of its own, also where an engine is shared: in Redis a prefix
before every key, in Cassandra a keyspace, both made from its name::

    carrier-0-1     pixiu-carrier-0-1:u:7     chatdata_carrier_0_1

What no other engine has is in the folder, and so is a note of which engines these are. When that changes, or the
partition does, everything is made again from the log: counts, references and rows must be of one origin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.layout import LAYOUT as REDIS_LAYOUT
from pixiu.config.engines import EMBEDDED
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, CorruptData
from pixiu.node.engines import open_timelines, over, timelines_address
from pixiu.node.processes.carrier.stores import begun_anew, has_loss, note_loss, opened
from pixiu.node.remembered import open_redis
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.backends.cassandra.address import Address
    from pixiu.backends.redis.stores import RedisStores
    from pixiu.config.engines import EngineSettings
    from pixiu.model.partitions import Share
    from pixiu.node.processes.carrier.stores import StoreHome
    from pixiu.node.stores import NodeStores
    from pixiu.ports.keyvalue import KeyValue

__all__ = ["ALL_EMBEDDED", "ReplicaEngines", "ReplicaStores", "open_replica", "replica_engines"]

KEYSPACE_MAX = 48
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
REDIS, CASSANDRA = "redis", "cassandra"


@dataclass(frozen=True, slots=True)
class ReplicaEngines:
    """Which engines a replica has its stores in, beside its folder."""

    store: str = EMBEDDED
    """Where Redis is."""
    prefix: str = ""
    """Before all of its keys there."""
    timelines: Address | None = None
    """Where Cassandra is, with a keyspace that nobody else has."""

    @property
    def note(self) -> str:
        """For the folder: the kinds of engines; empty if there are none."""
        kinds = [REDIS] if self.store != EMBEDDED else []
        return " ".join([*kinds, *([CASSANDRA] if self.timelines is not None else [])])


ALL_EMBEDDED = ReplicaEngines()


@dataclass(frozen=True, slots=True)
class ReplicaStores:
    """The stores of one life of a replica."""

    store: KeyValue
    """What is in the folder."""
    share: Share
    """Whose records are in them."""
    stores: NodeStores
    redis: RedisStores | None = None
    engines: str = ""
    """Their kinds; empty if everything is in the folder."""


def replica_engines(settings: EngineSettings, name: str) -> ReplicaEngines:
    """What the settings say, for the replica of this name. Raises ``ConfigError``; asks no engine."""
    timelines = timelines_address(settings)
    if settings.store == EMBEDDED and timelines is None:
        return ALL_EMBEDDED
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a carrier with engines of others has its stores there under its name: give it one of its own, of up to 32 "
            f"small letters, digits and -, with replication.name, not {name!r}"
        )
    if settings.store != EMBEDDED:
        RedisAddress.parse(settings.store)
        _require("valkey", "redis", settings.store)
    if timelines is not None:
        _require("cassandra", "cassandra", str(timelines))
        keyspace = f"{timelines.keyspace}_{name.replace('-', '_')}"
        if len(keyspace) > KEYSPACE_MAX:
            raise ConfigError(
                f"the keyspace of {name} would be {keyspace}, and Cassandra has names of up to {KEYSPACE_MAX} "
                "characters: take a shorter one"
            )
        timelines = replace(timelines, keyspace=keyspace)
    return ReplicaEngines(settings.store, f"pixiu-{name}:", timelines)


def _require(package: str, extra: str, place: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(f"{place} needs the package {package}; install it with: {how_to_install(extra)}")


def open_replica(home: StoreHome, share: Share, engines: ReplicaEngines, root: Path) -> ReplicaStores:
    """The stores of a replica whose data directory is ``root``; blocks while engines are asked.

    Raises ``Unavailable`` while one of them is down, ``Conflict`` or ``CorruptData`` where one has stores of somebody
    else.
    """
    redis = open_redis(root, engines.store, prefix=engines.prefix)
    try:
        return _opened(home, share, engines, redis)
    except BaseException:
        if redis is not None:
            redis.close()
        raise


def _opened(home: StoreHome, share: Share, engines: ReplicaEngines, redis: RedisStores | None) -> ReplicaStores:
    def empty(noted: str) -> None:
        """What was made before, from another part of the log or beside other engines, goes."""
        if engines.timelines is not None:
            _empty_keyspace(engines.timelines, is_ours=CASSANDRA in noted.split())
        if redis is not None:
            redis.clear()

    store, made_for = opened(home, share, engines=engines.note, empty=empty)
    stores = _laid_over(store, redis, engines.timelines)
    if stores is None:
        made_for = share
        store = begun_anew(home, store, share, engines=engines.note, empty=empty)
        stores = _laid_over(store, redis, engines.timelines)
        assert stores is not None, "nothing is applied yet"
    return ReplicaStores(store, made_for, stores, redis, engines.note)


def _laid_over(store: KeyValue, redis: RedisStores | None, timelines: Address | None) -> NodeStores | None:
    """All engines as one. None if Cassandra was emptied, and only a new beginning brings them together again."""
    try:
        embedded = EmbeddedStores(store)
        base: NodeStores = embedded
        if redis is not None:
            if redis.layout not in (0, REDIS_LAYOUT) or has_loss(store):
                redis.clear()
                note_loss(store, is_lost=False)
            redis.note_layout()
            base = MixedStores(redis, [redis, embedded], timelines=embedded.timelines)
        if timelines is None:
            return base
        part = open_timelines(timelines, base)
    except BaseException:
        store.close()
        raise
    if part.has_position or not base.applied(Lane.TIMELINES):
        return over(base, part)
    part.close()
    return None


def _empty_keyspace(address: Address, *, is_ours: bool) -> None:
    part = CassandraTimelines(address, lambda _: {})
    try:
        if not part.has_position:
            return
        if not is_ours:
            raise CorruptData(
                f"keyspace {address.keyspace} has timelines already, and those of this carrier were not there. Name "
                "another keyspace, or drop this one: all of it is made again from the log"
            )
        part.clear()
    finally:
        part.close()
