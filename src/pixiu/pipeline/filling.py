"""An engine of others, empty until now, filled from the log: Redis with the stores, Cassandra with the timelines.

The log becomes embedded stores first, in bulk (``rebuilding``); their rows then go to the engine, table by table, in
the form that the backend's own commits have. Users, contacts and groups are applied to Redis by the carrier's own code,
as everywhere. The node may run meanwhile: it takes the engine over when it is started with it, and applies what came
since.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.mixed import MixedStores
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError
from pixiu.node.remembered import node_name, open_redis
from pixiu.pipeline.rebuilding import STORES, SourceLog, apply_rosters, rebuild_store
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.apply_trim import last_trimmed, put_last

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Tell = Callable[[str], object]

__all__ = ["Filled", "fill_engine", "is_engine"]

CASSANDRA, REDIS = "cassandra://", ("redis:", "rediss:", "redis+", "rediss+")


@dataclass(frozen=True, slots=True)
class Filled:
    """What a filling has done."""

    engine: str
    through: int
    rows: int


def is_engine(target: str) -> bool:
    """Is it the address of an engine, and no folder?"""
    return "://" in target


def fill_engine(
    spark: Callable[[], SparkSession],
    data: Path,
    target: str,
    work: Path,
    *,
    index_folder: Path | None = None,
    tell: Tell = lambda text: None,
    made: Path | None = None,
) -> Filled:
    """Fill the engine at ``target``. Raises ``Conflict`` where it is not empty, before anything is computed.

    ``made`` is a folder of stores that were made before, to be brought up to the log; without one they are made below
    ``work``, and removed when they are not needed any more.
    """
    if target.startswith(CASSANDRA):
        pour = _check_cassandra(data, target)
    elif target.startswith(REDIS):
        pour = _check_redis(data, target)
    else:
        raise ConfigError(f"--to is a folder, redis://… or cassandra://…, not {target!r}")
    folder = made or work / f"filling-{secrets.token_hex(4)}"
    try:
        done = rebuild_store(spark, data, folder, index_folder=index_folder, tell=tell)
        tell(f"stores through event {done.through} are made; writing them to {target.partition('://')[0]}")
        rows = pour(folder / STORES, index_folder, tell)
    finally:
        if made is None:
            shutil.rmtree(folder, ignore_errors=True)
    return Filled(target.partition("://")[0], done.through, rows)


def _check_cassandra(data: Path, target: str) -> Callable[[Path, Path | None, Tell], int]:
    from pixiu.backends.cassandra.address import Address
    from pixiu.backends.cassandra.bulk import check_empty, fill

    address, node = Address.parse(target), node_name(data)
    check_empty(address, node)

    def pour(root: Path, index_folder: Path | None, tell: Tell) -> int:
        del index_folder
        store = RocksKeyValue(root, options=LARGE)
        stores = EmbeddedStores(store)
        try:
            through = stores.applied(Lane.TIMELINES)
            return fill(
                address,
                node,
                store,
                stores.bodies,
                through,
                lambda table, rows: tell(f"{table}: {counted(rows, 'row')}"),
            )
        finally:
            stores.close()

    return pour


def _check_redis(data: Path, target: str) -> Callable[[Path, Path | None, Tell], int]:
    from pixiu.backends.redis.address import RedisAddress
    from pixiu.backends.redis.bulk import check_empty, fill

    check_empty(RedisAddress.parse(target))

    def pour(root: Path, index_folder: Path | None, tell: Tell) -> int:
        redis = open_redis(data, target)
        assert redis is not None, "the address is one of Redis"
        store = RocksKeyValue(root, options=LARGE)
        stores = EmbeddedStores(store)
        try:
            redis.clear()  # what a filling that did not end has left
            redis.note_filling()
            redis.commit({})
            through = stores.applied(Lane.INBOXES)
            log = SourceLog(data, index_folder, through=through)
            newest, cuts = apply_rosters(log, MixedStores(redis, [redis], timelines=stores.timelines))
            for group in cuts:  # what their members had read was counted from rows that are no more
                if last := last_trimmed(stores, group):
                    put_last(redis, group, last)
                for member in stores.groups.members(group):
                    redis.groups.put_member(group, member)
            rows = fill(redis, store, newest, lambda table, count: tell(f"{table}: {counted(count, 'row')}"))
            redis.note_layout()
            redis.commit(dict.fromkeys(Lane, through))
            return rows
        finally:
            stores.close()
            redis.close()

    return pour
