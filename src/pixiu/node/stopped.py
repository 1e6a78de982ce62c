"""The queue of a node that does not run: opened, rebuilt, copied."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.config import Settings
from pixiu.model.errors import Gone
from pixiu.queue.engine import Engine
from pixiu.queue.storage.damage import require_sound_journal
from pixiu.queue.storage.snapshot import (
    COMPLETE,
    DUMP_FOLDER,
    INCOMING,
    STORES_DUMP,
    load_dump,
    snapshot_messages,
)
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles, flush_folders
from pixiu.runtime.scheduler import NoScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


__all__ = ["engine_without_loop", "open_dumped", "open_store", "rebuild", "require_whole_journal", "stopped_snapshot"]


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
        if (incoming / STORES_DUMP).exists():
            shutil.rmtree(root / STORES_DUMP, ignore_errors=True)
            (incoming / STORES_DUMP).rename(root / STORES_DUMP)
            flush_folders(root)
        (root / COMPLETE).unlink()
    shutil.rmtree(incoming, ignore_errors=True)
    return open_dumped(
        queue / "state",
        root / DUMP_FOLDER,
        lambda path: RocksKeyValue(path, made_again=f"pixiu queue verify --repair --data {root}"),
    )


def open_dumped(path: Path, dump: Path, opened: Callable[[Path], RocksKeyValue]) -> RocksKeyValue:
    """The store in a folder; where there is a dump of a store, that takes its place first."""
    loaded = dump.with_name(f"{dump.name}.loaded")
    shutil.rmtree(loaded, ignore_errors=True)
    if not dump.exists():
        return opened(path)
    shutil.rmtree(path, ignore_errors=True)
    store = opened(path)
    for piece in sorted(dump.iterdir()):
        load_dump(piece.read_bytes(), store)
    store.flush()
    dump.rename(loaded)
    flush_folders(dump.parent)
    shutil.rmtree(loaded)
    return store


def rebuild(root: Path) -> None:
    """Make store, topic logs and indexes of a stopped queue again from its journal, if all of that can be read."""
    require_whole_journal(root)
    require_sound_journal(SystemFiles(root))
    for derived in (DUMP_FOLDER, "queue/state", "queue/topics"):  # a restored queue still has its store as a dump
        shutil.rmtree(root / derived, ignore_errors=True)
    engine = engine_without_loop(root)
    engine.recover()
    engine.stop()


def require_whole_journal(root: Path) -> None:
    """Raise ``Gone`` where retention has removed the journal's beginning: nothing can be made again from it."""
    first = min((int(path.stem) for path in (root / "queue" / "journal").glob("*.log")), default=1)
    if first > 1:
        raise Gone(
            f"the journal begins with event {first}, since retention removed what came before: topics cannot be made "
            "again from it. Restore a backup (pixiu restore), or copy from a follower (pixiu queue serve --follow)"
        )


def stopped_snapshot(root: Path) -> Iterator[bytes]:
    """The messages of a snapshot of a queue that nobody runs; the directory is locked meanwhile."""
    with DataDirectory.open(root):
        engine = engine_without_loop(root)
        engine.recover()
        try:
            yield from snapshot_messages(engine)
        finally:
            engine.stop()


def engine_without_loop(root: Path) -> Engine:
    """A queue for work that needs no event loop."""
    store = open_store(root)
    return Engine(Settings(), SystemFiles(root), store, SystemClock(), NoScheduler())
