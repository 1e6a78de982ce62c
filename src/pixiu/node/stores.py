"""The messaging stores of a data directory, opened; and of a node that does not run, rebuilt and audited.

Stores are derived, so there is no upgrade from one layout to the next: stores of another layout than this program's are
made again from the log when a node starts. They get the number of their layout when all of it is there, so a crash in
between begins anew. The same is done when timelines move from one engine to another (``pixiu.node.engines``).
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.layout import LAYOUT, META, number
from pixiu.backends.embedded.sessions import LIFE
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.config.engines import EMBEDDED
from pixiu.model.errors import Gone, NotFound, PixiuError, Unavailable
from pixiu.node.logs import note_log, noted_log, stopped_log
from pixiu.node.remembered import open_redis, remembered
from pixiu.node.stopped import engine_without_loop, open_dumped
from pixiu.ports.stores import Lane
from pixiu.queue.log import EngineLog
from pixiu.queue.storage.snapshot import STORES_DUMP
from pixiu.roles.carrier.audit import AUDIT_BATCH, Audit
from pixiu.roles.carrier.cut import take_cut
from pixiu.roles.carrier.rebuild import rebuild as rebuild_from_log
from pixiu.runtime.backup import restored_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.backends.redis.stores import RedisStores
    from pixiu.node.logs import NodeLog
    from pixiu.roles.carrier.audit import AuditReport
    from pixiu.roles.carrier.cut import Cut

__all__ = [
    "NodeStores",
    "audit_stopped",
    "cut_stopped",
    "open_stores",
    "ready_stores",
    "rebuild_stores",
    "remade_stores",
    "stopped_messaging",
]

STORES_FOLDER = "stores"
_LAYOUT = META + b"layout"
_TIMELINES = META + b"engine:timelines"
"""Which engine has the timelines; the one of this very store where nothing is noted."""
_PARTS = META + b"parts"
"""There if these stores hold a part only: the rest is with another engine."""


NodeStores = EmbeddedStores | MixedStores
"""The stores of a node: all in the data directory, or some with engines of others."""


def open_stores(root: Path) -> tuple[RocksKeyValue, EmbeddedStores]:
    """The messaging stores of a data directory, whatever their layout is."""
    store = open_dumped(
        root / STORES_FOLDER,
        root / STORES_DUMP,
        lambda path: RocksKeyValue(path, options=LARGE, made_again=f"pixiu rebuild --data {root}"),
    )
    if store.get(_LAYOUT) is None and next(store.dump(), None) is None:
        store.write([(_LAYOUT, number.pack(LAYOUT))])
    return store, EmbeddedStores(store)


def timelines_engine(store: RocksKeyValue) -> str:
    """The engine that has the timelines of these stores."""
    return (store.get(_TIMELINES) or EMBEDDED.encode()).decode()


def note_timelines_engine(store: RocksKeyValue, engine: str) -> None:
    """From here on it is this one."""
    if timelines_engine(store) != engine:
        store.write([(_TIMELINES, engine.encode())])


def ready_stores(
    root: Path,
    log: NodeLog,
    progress: Callable[[int, int], object] | None = None,
    *,
    redis: RedisStores | None = None,
) -> tuple[RocksKeyValue, NodeStores]:
    """The messaging stores of a data directory, made again from the log where they have another layout.

    With ``redis``, what is in the data directory are timelines alone; whoever goes back to having all there makes all
    again.
    """
    store, stores = open_stores(root)
    found = store.get(_LAYOUT)
    is_whole = store.get(_PARTS) is None or redis is not None
    engine = timelines_engine(store)
    if found == number.pack(LAYOUT) and is_whole:
        opened = stores if redis is None else _with_redis(store, stores, redis, log)
        if not _is_fresh_from_backup(root, opened, log):
            return store, opened
        stores.close()
    else:
        stores.close()
        what = f"have layout {int.from_bytes(found or b'', 'big') or 1} and this program's is {LAYOUT}"
        require_whole_log(log, f"the stores {what if is_whole else 'hold timelines alone'}")
    store, remade, _ = remade_stores(root, log, progress, redis=redis)
    note_timelines_engine(store, engine)
    return store, remade


def _is_fresh_from_backup(root: Path, stores: NodeStores, log: NodeLog) -> bool:
    """Have stores nothing yet of a log that was restored? Then they are made from it in silence, as by a rebuild.

    A carrier that catches up would take every message for a new one, and have people notified of it again.
    """
    if not isinstance(log, EngineLog) or not restored_through(root) or any(stores.applied(lane) for lane in Lane):
        return False
    return log.first_event_id == 1 and log.committed > 0


def require_whole_log(log: NodeLog, why: str) -> None:
    """Raise ``Gone`` where the stores cannot be made again. The log can be read from here on."""
    log.connect()
    first = log.first_event_id
    if first > 1:
        raise Gone(
            f"{why}: they would be made again from the log, but that begins with event {first}. Restore a backup "
            "(pixiu restore)"
        )


def _with_redis(store: RocksKeyValue, stores: EmbeddedStores, redis: RedisStores, log: NodeLog) -> MixedStores:
    """Rosters, inboxes and counts in Redis; what it does not have yet comes from the log when the lanes start."""
    from pixiu.backends.redis.layout import LAYOUT as REDIS_LAYOUT

    store.write([(_PARTS, b"timelines")])
    try:
        log.connect()
        first = log.first_event_id
    except NotFound:  # a Kafka's that the first start makes
        first = 1
    redis.log_begins = lambda: log.first_event_id
    if redis.layout not in (0, REDIS_LAYOUT):
        redis.clear()
    redis.note_layout()
    mixed = MixedStores(redis, [redis, stores], timelines=stores.timelines)
    needed = min(mixed.applied(lane) for lane in Lane) + 1
    if needed < first:
        raise Gone(
            f"Redis knows events through {needed - 1}, and the log begins with event {first}. Restore Redis from its "
            "own backup, or the node from one of its (pixiu restore)"
        )
    return mixed


def rebuild_stores(
    root: Path,
    progress: Callable[[int, int], object] | None = None,
    *,
    remake: Callable[[NodeLog], int] | None = None,
) -> int:
    """Make the messaging stores of a stopped node again from its log. Returns how many records made no sense.

    ``remake`` does it where some of them are in another engine.
    """
    first = min((int(path.stem) for path in (root / "queue" / "journal").glob("*.log")), default=1)
    if first > 1:
        raise Gone(f"the journal begins with event {first}: what came before was removed by retention")
    engine = engine_without_loop(root)
    engine.recover()
    redis = None
    try:
        log = stopped_log(root, engine, takes_any=True)
        try:
            if log.committed and log.first_event_id > 1:
                raise Gone(f"the log begins with event {log.first_event_id}: what came before was removed")
            if remake is not None:
                skipped = remake(log)
            else:
                redis = open_redis(root, remembered(root).store)
                _, stores, skipped = remade_stores(root, log, progress, redis=redis)
                stores.close()
            note_log(log, root)
        finally:
            log.close()
    finally:
        if redis is not None:
            redis.close()
        engine.stop()
    return skipped


def remade_stores(
    root: Path,
    log: NodeLog,
    progress: Callable[[int, int], object] | None,
    *,
    redis: RedisStores | None = None,
    mixed: Callable[[RocksKeyValue, NodeStores], MixedStores] | None = None,
) -> tuple[RocksKeyValue, NodeStores, int]:
    """Throw the stores away, and make them again; also returns how many records made no sense.

    ``mixed`` lays other engines over the new stores; the caller closes these.

    What became of tasks is not in the log. Their lane's position is kept: nobody is notified again of what is long
    past, and a scheduled send that was refused when it was due is not tried once more. Sessions go on being numbered
    above those of every life before.
    """
    finished, kept = _not_in_the_log(root)
    shutil.rmtree(root / STORES_FOLDER, ignore_errors=True)
    store = RocksKeyValue(root / STORES_FOLDER, options=LARGE)
    store.write(kept)
    stores: NodeStores = EmbeddedStores(store)
    try:
        if redis is not None:
            redis.clear()
            stores = _with_redis(store, EmbeddedStores(store), redis, log)
        stores.commit({Lane.TASKS: min(finished, log.committed)})
        stores.flush()
        whole = stores if mixed is None else mixed(store, stores)
        skipped = rebuild_from_log(log, whole, progress)
        whole.flush()
        store.write([(_LAYOUT, number.pack(LAYOUT))])
        stores.flush()
    except BaseException:
        stores.close()
        raise
    return store, stores, skipped


def _not_in_the_log(root: Path) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Where the tasks' lane is, and rows to keep; nothing if the stores cannot be read.

    To do a task again is better than not to do it, except where they came with a backup: those were done before.
    """
    restored = 0 if noted_log(root) else restored_through(root)
    try:
        store, stores = open_stores(root)
    except PixiuError:
        return restored, []
    try:
        life = store.get(LIFE)
        return max(stores.applied(Lane.TASKS), restored), [] if life is None else [(LIFE, life)]
    finally:
        stores.close()


def audit_stopped(
    root: Path,
    progress: Callable[[int, int], object] | None = None,
    *,
    at_least: int = 0,
    before: int | None = None,
) -> AuditReport:
    """Audit a node that does not run. Its stores are first brought up to the end of the log, as a start would do."""
    with stopped_messaging(root) as (log, stores):
        rebuild_from_log(log, stores, progress)
        cut = take_cut(stores, log.committed)
        audit = Audit(MemoryStores(), at_least=at_least, before=before)
        for records in log.scan(cut.event_id, AUDIT_BATCH):
            for record in records:
                audit.take(record)
            if progress is not None and records:
                progress(records[-1].event_id, cut.event_id)
        audit.close(cut)
        for _ in audit.histories(stores).comparing():
            pass  # nothing lies behind the cut, and nobody else has a turn
        return audit.report


def cut_stopped(root: Path, progress: Callable[[int, int], object] | None = None) -> Cut:
    """What waits in the stores of a node that does not run, brought up to the end of its log first."""
    with stopped_messaging(root) as (log, stores):
        rebuild_from_log(log, stores, progress)
        return take_cut(stores, log.committed)


@contextmanager
def stopped_messaging(root: Path) -> Iterator[tuple[NodeLog, NodeStores]]:
    """Log and stores of a node that does not run; the stores may be behind the log."""
    engine = engine_without_loop(root)
    engine.recover()
    redis = None
    try:
        log = stopped_log(root, engine)
        try:
            redis = open_redis(root, remembered(root).store)
            store, stores = ready_stores(root, log, redis=redis)
            try:
                if timelines_engine(store) != EMBEDDED:
                    raise Unavailable(
                        f"the timelines of {root} are in {timelines_engine(store)}: start its node, and ask that"
                    )
                yield log, stores
            finally:
                stores.close()
        finally:
            log.close()
    finally:
        if redis is not None:
            redis.close()
        engine.stop()
