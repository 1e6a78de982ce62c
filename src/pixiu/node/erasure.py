"""Erasing a user from a node that does not run, and blanking the journal of any node: leader, follower, running or not.

The report says where was looked, what was found and blanked there, and what remains until when: an erasure that nobody
can check is a promise only.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.config import Settings
from pixiu.model.counted import counted
from pixiu.model.redaction import erased_user, redacted
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.logs import noted_settings, stopped_kafka
from pixiu.node.remembered import remembered
from pixiu.node.stopped import open_store
from pixiu.node.stores import STORES_FOLDER
from pixiu.ports.log import MAIN
from pixiu.queue.log import EngineLog
from pixiu.queue.storage.journal import Journal
from pixiu.queue.storage.redact import RedactionReport, erased_users, finish_redaction, redact
from pixiu.queue.storage.state import State
from pixiu.queue.storage.topics import Topics
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.log_note import noted_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pixiu.node.host import MessagingHost
    from pixiu.node.logs import NodeLog
    from pixiu.ports.files import Files
    from pixiu.queue.storage.redact import Redactable

__all__ = [
    "Place",
    "StoppedQueue",
    "erase_stopped",
    "places_of_journal",
    "places_of_stores",
    "redact_running",
    "redact_stopped",
]


READ_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """One place that was searched."""

    place: str
    searched: str
    """What of it was looked at."""
    found: int
    removed: int
    remains: str = ""
    """What stays there and until when; empty if nothing does."""

    def as_json(self) -> dict[str, Any]:
        """A row of the report."""
        return asdict(self)


class StoppedQueue:
    """The files of a queue that nobody runs, opened as they are: nothing is recovered, nothing is cut."""

    def __init__(self, root: Path) -> None:
        settings = Settings()
        self.store = open_store(root)
        self.files: Files = SystemFiles(root)
        self.journal = Journal(self.files, segment_bytes=settings.journal.segment_bytes)
        self.topics = Topics(
            self.files, self.store, segment_bytes=settings.topics.segment_bytes, open_max=settings.queue.open_topics_max
        )
        self.state = State(self.store, self.topics)

    def close(self) -> None:
        """Let go of everything."""
        for segment in self.journal.segments:
            segment.close()
        self.store.close()


def redact_stopped(
    root: Path,
    progress: Callable[[int], object] = lambda messages: None,
    *,
    reached: Callable[[str], object] = lambda point: None,
) -> RedactionReport:
    """Blank what erased users wrote in the journal, the topic logs and the stores' files of a stopped node.

    Doing it again finds nothing. The caller holds the directory's lock. A log in Kafka is searched instead, and the
    report says what stays there.
    """
    if noted_log(root):
        log = stopped_kafka(root)
        try:
            found = look_in_kafka(log, progress)
        finally:
            log.close()
        _compact_stores(root)
        return found
    queue = StoppedQueue(root)
    try:
        report = _run(queue, progress, reached)
        queue.store.compact()
    finally:
        queue.close()
    reached("stores")
    _compact_stores(root)
    return report


def _run(queue: Redactable, progress: Callable[[int], object], reached: Callable[[str], object]) -> RedactionReport:
    was_unfinished = finish_redaction(queue.files)
    report = RedactionReport()
    *_, users = erased_users(queue)
    for report in redact(queue, users, is_stopped=True, reached=reached):
        progress(report.messages)
    report.finished_before = was_unfinished
    return report


def _compact_stores(root: Path) -> None:
    """What the stores have deleted is still in their files until these are written anew."""
    folder = root / STORES_FOLDER
    if folder.is_dir():
        store = RocksKeyValue(folder, options=LARGE)
        try:
            store.compact()
        finally:
            store.close()


async def redact_running(host: MessagingHost) -> RedactionReport:
    """The same on a node that runs, a piece at a time between other work."""
    if not isinstance(host.log, EngineLog):
        found_there = await asyncio.to_thread(look_in_kafka, host.log)
        await _compact(host, [host.store])
        return found_there
    queue = host.engine
    users: list[int] = []
    for found in erased_users(queue):
        users = found
        await asyncio.sleep(0)
    report = RedactionReport()
    for step in redact(queue, users, is_stopped=False):
        report = step
        await asyncio.sleep(0)
    queue.windows.clear()
    await _compact(host, [queue.state.store, host.store])
    return report


async def _compact(host: MessagingHost, stores: Sequence[object]) -> None:
    await host.settled()  # what the erasure removed from the stores is not there for the compaction
    for store in stores:
        if isinstance(store, RocksKeyValue):
            await asyncio.to_thread(store.compact)


def look_in_kafka(log: NodeLog, progress: Callable[[int], object] = lambda messages: None) -> RedactionReport:
    """What a log in Kafka holds of users who were erased, and for how long: Kafka changes no record.

    Reads the whole log twice, since an erasure comes behind what it erases; blocks.
    """
    from pixiu.backends.kafka.log import KafkaLog

    assert isinstance(log, KafkaLog), "there is no other log"
    report = RedactionReport(log=str(log.address), kept_for=log.kept_for())
    after, through = log.first_event_id - 1, log.committed
    users: dict[int, None] = {}
    for records in log.scan_after(after, through, READ_RECORDS):
        for record in records:
            if record.topic == MAIN and (user := erased_user(record.payload)):
                users[user] = None
    report.users = list(users)
    if not users:
        return report
    for records in log.scan_after(after, through, READ_RECORDS):
        for record in records:
            report.records += 1
            report.kept += redacted(record.topic, record.payload, record.message_id, users) is not None
        progress(report.kept)
    return report


def erase_stopped(
    root: Path, user: str, progress: Callable[[int], object] = lambda messages: None
) -> tuple[dict[str, Any], RedactionReport]:
    """Erase a user of a node that does not run: from the log and the stores, then from the bytes of the journal."""

    async def erase() -> dict[str, Any]:
        noted = noted_settings(root)
        settings = replace(noted, engines=replace(noted.engines, store=remembered(root).store))
        async with EmbeddedNode(root, settings=settings) as node:
            return await node.act(None, "erase_user", user=user)

    erased = asyncio.run(erase())
    with DataDirectory.open(root):
        return erased, redact_stopped(root, progress)


def places_of_stores(erased: dict[str, Any]) -> list[Place]:
    """What an erasure found in the stores, store by store."""
    found, remains = erased["found"], erased["remains"]
    names = {
        "profile": ("users", "the profile"),
        "contacts": ("contacts", "both sides of the user's contacts"),
        "blocks": ("contacts", "whom the user blocks"),
        "push_tokens": ("push_tokens", "where the user's phones are told"),
        "groups": ("groups", "memberships"),
        "timeline_rows": ("timelines", "the user's own timeline"),
        "private_messages": ("bodies", "private messages that the user wrote"),
        "group_messages": ("bodies", "group messages that the user wrote"),
        "inbox_entries": ("inboxes", "what waited for the user"),
        "unread_counts": ("unread", "the user's counts"),
        "scheduled": ("schedules", "sends that waited for their time"),
    }
    return [
        Place(f"store {store}", what, found[key], found[key] - remains[key], f"{remains[key]}" if remains[key] else "")
        for key, (store, what) in names.items()
    ]


def places_of_journal(report: dict[str, Any]) -> list[Place]:
    """What a redaction found in the files of the queue; ``report`` is a ``RedactionReport`` as JSON has it."""
    if report.get("log"):
        searched = f"{counted(report['records'], 'record')} of {report['log']}: Kafka changes none"
        main, *others = report["kept_for"].items()
        kept = int(report["kept"])
        return [
            Place(f"topic {main[0]}", searched, kept, 0, main[1] if kept else ""),
            *(Place(f"topic {name}", "copies of some of them", 0, 0, words) for name, words in others if kept),
        ]
    messages, in_topics, delays = report["messages"], report["topic_messages"], report["delays"]
    return [
        Place("journal", counted(report["segments"], "segment"), messages, messages),
        Place("topic logs", counted(report["topic_files"], "file"), in_topics, in_topics),
        Place("delays", "records that wait for their time", delays, delays),
    ]
