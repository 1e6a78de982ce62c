"""The log of a node: its own queue's, or a Kafka's.

A data directory notes which log its stores were made from (``log.json``), so that a command on a stopped node finds it,
and a node is never started on another one by mistake: the stores would take its events for known, and skip them.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pixiu.config import Settings
from pixiu.config.engines import EMBEDDED
from pixiu.model.errors import ConfigError
from pixiu.ports.log import Log
from pixiu.ports.stores import Lane
from pixiu.queue.log import EngineLog
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.files import write_durably
from pixiu.runtime.log_note import NOTE, noted_log, read_note
from pixiu.runtime.scheduler import LoopScheduler, NoScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.backends.kafka.log import KafkaLog
    from pixiu.backends.kafka.topics import Identity
    from pixiu.model.errors import PixiuError
    from pixiu.ports.log import LogRecord
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.stores import Stores
    from pixiu.queue.engine import Engine

__all__ = [
    "NodeLog",
    "check_log",
    "is_kafka",
    "kafka_log",
    "look_at_kafka",
    "make_kafka_log",
    "make_log",
    "note_log",
    "noted_log",
    "noted_settings",
    "stopped_kafka",
    "stopped_log",
]


class NodeLog(Log, Protocol):
    """What a node needs of its log, beyond what the roles do."""

    def open(self, done: Callable[[PixiuError | None], object], *, applied: int = 0, finished: int = 0) -> None:
        """Make it ready. The stores have applied it through one event, tasks are finished through another."""
        ...

    def stand_by(self, applied: int) -> None:
        """Follow what its leader writes, from behind an event, until it is opened here."""
        ...

    def connect(self) -> None:
        """Make it ready for reading alone; blocks."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Whether another node took the log over after this node opened it. This node must not write then."""
        ...

    @property
    def unread(self) -> int:
        """About how many committed events have not reached this node, which stands by."""
        ...

    def position(self, topic: str, name: bytes) -> int:
        """How far a named reader has come in a topic, as the log says; 0 if it says nothing."""
        ...

    def set_position(self, topic: str, name: bytes, event_id: int) -> None:
        """Write that into the log, without waiting."""
        ...

    @property
    def is_busy(self) -> bool:
        """Does anything wait to be written?"""
        ...

    @property
    def first_event_id(self) -> int:
        """The oldest event that it still has."""
        ...

    @property
    def epoch(self) -> int:
        """Of the numbers that inboxes have which are made from it; 0 for the node's own log."""
        ...

    def when_flushed(self, call: Callable[[], object]) -> None:
        """Call when everything that was asked for is committed or refused."""
        ...

    def problems(self) -> list[str]:
        """Why it takes nothing; none if all is well."""
        ...

    def scan(self, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """Every record through here, from the oldest on."""
        ...

    def scan_after(self, after: int, through: int, batch: int) -> Iterator[list[LogRecord]]:
        """As ``scan``, from behind an event."""
        ...

    def find(self, message_id: int) -> LogRecord | None:
        """The record with this number."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def is_kafka(settings: Settings) -> bool:
    """Is the log a Kafka's? Raises ``ConfigError`` for what is no log at all."""
    if settings.engines.log == EMBEDDED:
        return False
    if not settings.engines.log.startswith("kafka://"):
        raise ConfigError(f"engines.log is {EMBEDDED!r} or kafka://HOST:PORT, not {settings.engines.log!r}")
    return True


def make_log(
    settings: Settings,
    engine: Engine,
    scheduler: Scheduler,
    root: Path,
    *,
    name: str,
    known: Identity | None = None,
) -> NodeLog:
    """The log that the settings name, not open yet. ``known``: which log in Kafka it must be."""
    noted = read_note(root)
    if not is_kafka(settings):
        if noted is not None:
            raise ConfigError(
                f"the stores in {root} were made from {noted['log']}: start with --set log={noted['log']}, or on "
                "another data directory"
            )
        return EngineLog(engine)
    loop = asyncio.get_running_loop()
    thread = LoopScheduler(loop)
    return kafka_log(
        settings, scheduler, thread, noted if known is None else known._asdict(), name=name,
        closed=lambda: loop.run_in_executor(None, thread.close),
    )  # fmt: skip


def stopped_log(root: Path, engine: Engine, *, takes_any: bool = False) -> NodeLog:
    """The log of a node that does not run, for reading. ``takes_any``: also one that is not what it was."""
    return EngineLog(engine) if read_note(root) is None else stopped_kafka(root, takes_any=takes_any)


def noted_settings(root: Path) -> Settings:
    """Settings with the log that a data directory has noted."""
    settings, noted = Settings(), read_note(root)
    if noted is None:
        return settings
    return replace(
        settings,
        engines=replace(settings.engines, log=noted["log"]),
        kafka=replace(settings.kafka, client=noted["client"]),
    )


def stopped_kafka(root: Path, *, takes_any: bool = False) -> KafkaLog:
    """The log in Kafka of a node that does not run, for reading."""
    nothing, noted = NoScheduler(), read_note(root)
    known = None if takes_any else noted
    log = kafka_log(noted_settings(root), nothing, nothing, known, name="", closed=lambda: None)
    log.connect()
    return log


def look_at_kafka(settings: Settings, noted: dict[str, str] | None, is_stopped: Callable[[], bool]) -> Identity | None:
    """Which log is there now; None: none yet, and it can be made. Raises why it could not be had; blocks.

    Whoever ``is_stopped`` waits two seconds more at most.
    """
    nothing = NoScheduler()
    log = kafka_log(settings, nothing, nothing, noted, name="", closed=lambda: None)
    try:
        return log.check_identity(is_stopped)
    finally:
        log.close()


def make_kafka_log(settings: Settings) -> Identity:
    """Create the topics of the log that are missing, and return which log it is; blocks."""
    from pixiu.backends.kafka.address import client_options, parse_address
    from pixiu.backends.kafka.topics import Topics

    topics = Topics(parse_address(settings.engines.log), client_options(settings.kafka.client))
    topics.make(copies=settings.kafka.copies, min_insync=settings.kafka.min_insync)
    return topics.made_identity()


def kafka_log(
    settings: Settings,
    scheduler: Scheduler,
    thread: Scheduler,
    noted: dict[str, str] | None,
    *,
    name: str,
    closed: Callable[[], object],
) -> KafkaLog:
    """The log in Kafka that the settings name, not open yet."""
    from pixiu.backends.kafka.address import client_options, parse_address

    address, options = parse_address(settings.engines.log), client_options(settings.kafka.client)
    from pixiu.backends.kafka.log import KafkaLog
    from pixiu.backends.kafka.topics import Identity

    known = None if noted is None else Identity(noted["cluster_id"], noted["topic_id"])
    return KafkaLog(
        address, options, settings.kafka, SystemClock(), scheduler, thread, known=known, name=name,
        token=os.urandom(8).hex(), node_id=settings.queue.node_id, keys_max=settings.queue.keys_max, closed=closed,
    )  # fmt: skip


def check_log(log: NodeLog, root: Path, stores: Stores) -> None:
    """Refuse stores that were made from another log, before it is written to."""
    applied = max(stores.applied(lane) for lane in Lane)
    if not isinstance(log, EngineLog) and read_note(root) is None and applied:
        raise ConfigError(
            f"the stores in {root} were made from this node's own log, through event {applied}: a log in Kafka has "
            "other events. Start on another data directory"
        )


def note_log(log: NodeLog, root: Path, settings: Settings | None = None) -> None:
    """Note which log the stores are made from."""
    if isinstance(log, EngineLog):
        return
    identity = getattr(log, "identity", None)
    assert identity is not None, "the log is open"
    noted = read_note(root)
    if settings is not None:
        words = {"log": settings.engines.log, "client": settings.kafka.client}
    else:
        assert noted is not None, "a stopped node has noted its log"
        words = {"log": noted["log"], "client": noted.get("client", "")}
    found = {**words, "cluster_id": identity.cluster_id, "topic_id": identity.topic_id}
    if found != noted:
        write_durably(root / NOTE, json.dumps(found), mode=0o600)
