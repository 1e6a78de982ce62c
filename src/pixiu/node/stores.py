"""The messaging stores of a data directory, opened; and of a node that does not run, rebuilt and audited."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.errors import Gone, PixiuError
from pixiu.node.stopped import engine_without_loop
from pixiu.ports.stores import Lane
from pixiu.queue.log import EngineLog
from pixiu.roles.carrier.audit import AUDIT_BATCH, Audit, take_cut
from pixiu.roles.carrier.rebuild import rebuild as rebuild_from_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.roles.carrier.audit import AuditReport, Cut

__all__ = ["audit_stopped", "cut_stopped", "open_stores", "rebuild_stores"]

STORES_FOLDER = "stores"


def open_stores(root: Path) -> tuple[RocksKeyValue, EmbeddedStores]:
    """The messaging stores of a data directory."""
    store = RocksKeyValue(root / STORES_FOLDER, options=LARGE)
    return store, EmbeddedStores(store)


def rebuild_stores(root: Path, progress: Callable[[int, int], object] | None = None) -> int:
    """Make the messaging stores of a stopped node again from its log. Returns how many records made no sense.

    What became of tasks is not in the log. Their lane's position is kept: nobody is notified again of what is long
    past, and a scheduled send that was refused when it was due is not tried once more.
    """
    first = min((int(path.stem) for path in (root / "queue" / "journal").glob("*.log")), default=1)
    if first > 1:
        raise Gone(f"the journal begins with event {first}: what came before was removed by retention")
    finished = _tasks_finished_through(root)
    shutil.rmtree(root / STORES_FOLDER, ignore_errors=True)
    with _stopped_messaging(root) as (log, stores):
        stores.commit({Lane.TASKS: min(finished, log.committed)})
        stores.flush()
        skipped = rebuild_from_log(log, stores, progress)
        stores.flush()
    return skipped


def _tasks_finished_through(root: Path) -> int:
    """Of the stores that are there; 0 if they cannot be read: to do a task again is better than not to do it."""
    try:
        _, stores = open_stores(root)
    except PixiuError:
        return 0
    try:
        return stores.applied(Lane.TASKS)
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
    with _stopped_messaging(root) as (log, stores):
        rebuild_from_log(log, stores, progress)
        cut = take_cut(stores, log.committed)
        audit = Audit(MemoryStores(), at_least=at_least, before=before)
        for records in log.scan(cut.event_id, AUDIT_BATCH):
            for record in records:
                audit.take(record)
            if progress is not None and records:
                progress(records[-1].event_id, cut.event_id)
        return audit.close(cut)


def cut_stopped(root: Path, progress: Callable[[int, int], object] | None = None) -> Cut:
    """What waits in the stores of a node that does not run, brought up to the end of its log first."""
    with _stopped_messaging(root) as (log, stores):
        rebuild_from_log(log, stores, progress)
        return take_cut(stores, log.committed)


@contextmanager
def _stopped_messaging(root: Path) -> Iterator[tuple[EngineLog, EmbeddedStores]]:
    engine = engine_without_loop(root)
    engine.recover()
    _, stores = open_stores(root)
    try:
        yield EngineLog(engine), stores
    finally:
        stores.close()
        engine.stop()
