"""The data of a node that does not run: opened, rebuilt, copied."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.config import Settings
from pixiu.model.errors import Gone, PixiuError
from pixiu.ports.stores import Lane
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.queue.snapshot import COMPLETE, DUMP_FOLDER, INCOMING, load_dump, snapshot_messages
from pixiu.roles.carrier.audit import AUDIT_BATCH, Audit, take_cut
from pixiu.roles.carrier.rebuild import rebuild as rebuild_from_log
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles, flush_folders
from pixiu.runtime.scheduler import NoScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.roles.carrier.audit import AuditReport

__all__ = ["audit_stopped", "open_store", "open_stores", "rebuild", "rebuild_stores", "stopped_snapshot"]

STORES_FOLDER = "stores"


def open_stores(root: Path) -> tuple[RocksKeyValue, EmbeddedStores]:
    """The messaging stores of a data directory."""
    store = RocksKeyValue(root / STORES_FOLDER, options=LARGE)
    return store, EmbeddedStores(store)


def open_store(root: Path) -> RocksKeyValue:
    """The store of a data directory; a snapshot that has arrived whole is moved into place first.

    Every step can be repeated after a crash: the old queue goes only while the new one still lies in ``incoming``, and
    a dump that was loaded gets another name before it is removed.
    """
    incoming, queue = root / INCOMING, root / "queue"
    if (root / COMPLETE).exists():
        if (incoming / "queue").exists():
            shutil.rmtree(queue, ignore_errors=True)
            (incoming / "queue").rename(queue)
            flush_folders(root)
        (root / COMPLETE).unlink()
    shutil.rmtree(incoming, ignore_errors=True)
    dump, loaded = root / DUMP_FOLDER, root / f"{DUMP_FOLDER}.loaded"
    shutil.rmtree(loaded, ignore_errors=True)
    if dump.exists():
        shutil.rmtree(queue / "state", ignore_errors=True)
    store = RocksKeyValue(queue / "state")
    if dump.exists():
        for piece in sorted(dump.iterdir()):
            load_dump(piece.read_bytes(), store)
        store.flush()
        dump.rename(loaded)
        flush_folders(queue)
        shutil.rmtree(loaded)
    return store


def rebuild(root: Path) -> None:
    """Make store, topic logs and indexes of a stopped queue again from its journal."""
    first = min((int(path.stem) for path in (root / "queue" / "journal").glob("*.log")), default=1)
    if first > 1:
        raise Gone(
            f"the journal begins with event {first}, since retention removed what came before: topics cannot be made "
            "again from it. Restore a backup (pixiu restore), or copy from a follower (pixiu queue serve --follow)"
        )
    shutil.rmtree(root / "queue" / "state", ignore_errors=True)
    shutil.rmtree(root / "queue" / "topics", ignore_errors=True)
    engine = _engine_without_loop(root)
    engine.recover()
    engine.stop()


def stopped_snapshot(root: Path) -> Iterator[bytes]:
    """The messages of a snapshot of a queue that nobody runs; the directory is locked meanwhile."""
    with DataDirectory.open(root):
        engine = _engine_without_loop(root)
        engine.recover()
        try:
            yield from snapshot_messages(engine)
        finally:
            engine.stop()


def _engine_without_loop(root: Path) -> Engine:
    store = open_store(root)
    return Engine(Settings(), SystemFiles(root), store, SystemClock(), NoScheduler())


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


@contextmanager
def _stopped_messaging(root: Path) -> Iterator[tuple[EngineLog, EmbeddedStores]]:
    engine = _engine_without_loop(root)
    engine.recover()
    _, stores = open_stores(root)
    try:
        yield EngineLog(engine), stores
    finally:
        stores.close()
        engine.stop()
