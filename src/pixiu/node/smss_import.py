"""``pixiu queue import``: a stopped smss server's data as the queue of an empty data directory, event ids kept."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import Conflict, NotFound, PixiuError, Unavailable
from pixiu.node.stopped import open_store
from pixiu.queue.engine import Engine
from pixiu.queue.smss import BaseTopic, SmssIntake, add_base_topics, check_record
from pixiu.queue.storage.record import Kind
from pixiu.queue.storage.topics import check_name
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.files import SystemFiles, flush_folders
from pixiu.runtime.scheduler import NoScheduler
from pixiu.runtime.smss_files import SmssFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.config import Settings

__all__ = ["Imported", "import_smss"]

IMPORTING = "importing"
"""Where the queue is made; it is moved into place when it is whole."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    topics: int
    messages: int
    delayed: int
    """Delayed messages that are not due yet, or fall due at the next start."""
    first_event_id: int
    last_event_id: int
    skipped: int
    """Messages and topics that Pixiu cannot serve; each is in the log."""
    without_create: tuple[str, ...]
    """Topics whose creation is no longer in the binlog: their lifetime is unknown, and they are permanent now."""
    cut_off: str
    """Where the binlog ends inside a record; empty if it does not."""


@dataclass(slots=True)
class _Found:
    """What a first look at the binlog found."""

    first_event_id: int = 0
    last_event_id: int = 0
    created_ms: int = 0
    created: set[bytes] | None = None
    used: set[bytes] | None = None
    """Topics that have a record before any create of theirs."""


def import_smss(source: Path, data: Path, settings: Settings, advance: Callable[[int], object]) -> Imported:
    """Make the queue of ``data``, which must have none. Nothing is visible there until everything is.

    Raises ``NotFound`` or ``CorruptData`` for what is not a whole smss directory, ``Conflict`` if ``data`` has a log.
    """
    files = SmssFiles(source)
    if (data / "queue" / "journal").exists():
        raise Conflict(f"{data} has a log already: event ids can be kept only in an empty data directory; use another")
    size = files.journal_bytes
    found = _look(files, settings.queue.payload_bytes_max)
    root = data / IMPORTING
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    # Nothing counts before the move, and the end flushes everything.
    settings = replace(settings, journal=replace(settings.journal, flush="none"))
    engine = Engine(settings, SystemFiles(root), open_store(root), SystemClock(), NoScheduler())
    try:
        engine.recover()
        imported = _fill(engine, files, found, advance)
    finally:
        engine.stop()
    if files.journal_bytes != size:
        shutil.rmtree(root)
        raise Unavailable(f"{source} has changed meanwhile: stop smss first, or follow it (pixiu queue serve --follow)")
    flush_folders(root)
    (root / "queue").rename(data / "queue")
    root.rmdir()
    flush_folders(data)
    return imported


def _look(files: SmssFiles, payload_bytes_max: int) -> _Found:
    """Check every record before anything is written."""
    created: set[bytes] = set()
    used: set[bytes] = set()
    found = _Found(created=created, used=used)
    for block in files.blocks():
        record = check_record(block, payload_bytes_max=payload_bytes_max)
        if not found.first_event_id:
            found.first_event_id, found.created_ms = record.event_id, record.write_ms
        found.last_event_id = record.event_id
        if record.kind == Kind.CREATE:
            created.add(record.topic)
        elif record.topic not in created:
            used.add(record.topic)
    if not found.first_event_id:
        raise NotFound(f"there is no record in {files.root / 'binlog'}: nothing to import")
    return found


def _fill(engine: Engine, files: SmssFiles, found: _Found, advance: Callable[[int], object]) -> Imported:
    assert found.created is not None and found.used is not None
    without_create, messages, skipped = _add_older(engine, files, found)
    intake = SmssIntake(engine)
    for block in files.blocks():
        intake.add(block)
        advance(len(block))
    intake.commit()
    return Imported(
        topics=sum(1 for _ in engine.topics.listed()),
        messages=messages + intake.messages,
        delayed=sum(1 for _ in engine.state.delays.after(0)),
        first_event_id=found.first_event_id,
        last_event_id=intake.last_event_id,
        skipped=skipped + intake.skipped,
        without_create=tuple(name.decode(errors="replace") for name in without_create),
        cut_off=files.torn,
    )


def _add_older(engine: Engine, files: SmssFiles, found: _Found) -> tuple[list[bytes], int, int]:
    """Topics from before the binlog begins, and their messages of that time, which only topic files have.

    A topic's number is the id of its first message, or an unused id before the binlog.
    """
    first = found.first_event_id
    assert found.created is not None and found.used is not None
    older: dict[bytes, tuple[BaseTopic, Path]] = {}
    free = first - 1
    skipped = 0
    for name, folder in files.topics():
        oldest = next(files.messages(folder, before=first), None)
        if oldest is None and name in found.created and name not in found.used:
            continue
        try:
            check_name(name)
        except PixiuError:
            skipped += 1
            continue
        if oldest is not None:
            topic = BaseTopic(name, oldest.event_id, oldest.time_ms, 0)
        elif free > 0:
            topic, free = BaseTopic(name, free, found.created_ms, 0), free - 1
        else:
            continue
        older[name] = topic, folder
    add_base_topics(engine, [topic for topic, _ in older.values()])
    count = 0
    for name, (_, folder) in older.items():
        topic_now = engine.topics.get(name)
        assert topic_now is not None
        log = engine.topics.log_of(topic_now)
        for each in files.messages(folder, before=first):
            if split_messages(each.message) is None:
                skipped += 1
                continue
            log.append(each.event_id, [each.message], each.time_ms)
            engine.topics.dirty[topic_now.create_event_id] = topic_now
            count += 1
    return list(older), count, skipped
