"""Messaging on its real backends: RocksDB for the stores, the queue's engine for the log, asyncio for time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pixiu.backends.embedded.sessions import EmbeddedSessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.phones.notifications import Closable, PhoneNotifications
from pixiu.backends.tantivy.searches import ThreadedSearches
from pixiu.model.errors import CorruptData, PixiuError
from pixiu.node.engines import ready_engines
from pixiu.node.logs import check_log, is_kafka, make_log, note_log
from pixiu.node.messaging import Messaging
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.audit import AUDIT_BATCH, Audit, take_cut
from pixiu.roles.horn.providers import LoggedNotifications, NoNotifications
from pixiu.runtime.webhook import WebhookNotifications

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.node.logs import NodeLog
    from pixiu.ports.notifications import Notifications
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.engine import Engine
    from pixiu.roles.carrier.audit import AuditReport, Cut

__all__ = ["MessagingHost", "replay_audit"]

DRAIN_SECONDS = 5.0
SETTLE_SECONDS = 0.01
"""Between two looks whether a commit was possible."""

log = logging.getLogger(__name__)


class MessagingHost:
    """The roles of this process, from start to stop."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        settings: Settings,
        root: Path,
        *,
        creates_users: bool = False,
        name: str = "",
    ) -> None:
        """``name`` is what others are told of this node."""
        self.engine = engine
        """The node's queue. Its journal is the log, unless that is in Kafka."""
        self._settings = settings
        self.root = root
        self.log: NodeLog = make_log(settings, engine, scheduler, root, name=name or root.resolve().name)
        self._provider: Closable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._searches = ThreadedSearches(root, self._on_loop, settings.search)
        notifications = self._notifications(scheduler)
        self.store, self.stores = ready_engines(settings.engines, root, self.log, _remaking())
        try:
            check_log(self.log, root, self.stores)
            self.messaging = Messaging(
                self.log,
                self.stores,
                EmbeddedSessions(self.store),
                engine.clock,
                scheduler,
                settings,
                notifications=notifications,
                creates_users=creates_users,
                is_writer_busy=lambda: self.log.is_busy,
                searches=self._searches,
            )
        except BaseException:
            self.stores.close()
            raise
        if not is_kafka(settings):
            engine.retention_holds.append(self._needed_from)

    def _on_loop(self, call: Callable[[], object]) -> None:
        """From another thread; nobody asks before the start."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    def _notifications(self, scheduler: Scheduler) -> Notifications:
        horn = self._settings.horn
        if horn.provider == "webhook":
            self._provider = self._webhook()
            return self._provider
        if horn.provider == "phones":
            webhook = self._webhook() if horn.webhook_url else None
            self._provider = PhoneNotifications(self._engine.clock, self._settings.phones, webhook)
            return self._provider
        return LoggedNotifications(scheduler) if horn.provider == "log" else NoNotifications(scheduler)

    def _webhook(self) -> WebhookNotifications:
        horn = self._settings.horn
        loop = asyncio.get_running_loop()
        return WebhookNotifications(loop, horn.webhook_url, timeout_ms=horn.webhook_timeout_ms)

    def _needed_from(self) -> int:
        """The oldest event that the stores would ask for after the machine was lost: behind what is on the disk."""
        needed = min(self.stores.applied(lane) for lane in Lane) + 1
        try:
            self.stores.flush()
        except PixiuError as error:
            log.warning("stores not flushed, the journal is kept", extra={"reason": str(error)})
            return 0
        return needed

    async def start(self) -> None:
        """Open Pixiu's topics, and let the stores catch up with the log."""
        self._loop = loop = asyncio.get_running_loop()
        opened: asyncio.Future[PixiuError | None] = loop.create_future()
        applied = min(self.stores.applied(lane) for lane in Lane if lane is not Lane.TASKS)
        self.log.open(
            lambda error: None if opened.done() else opened.set_result(error),
            applied=applied, finished=self.stores.applied(Lane.TASKS),
        )  # fmt: skip
        error = await opened
        if error is not None:
            raise error
        self._check_log()
        note_log(self.log, self.root, self._settings)
        ready: asyncio.Future[None] = loop.create_future()
        self.messaging.start(lambda: ready.set_result(None))
        await ready

    def _check_log(self) -> None:
        """Stores that are ahead of the log would take its next records for known, and skip them."""
        applied, committed = max(self.stores.applied(lane) for lane in Lane), self.log.committed
        if applied > committed:
            raise CorruptData(
                f"the stores know event {applied}, and the log ends with event {committed}: it was replaced, or has "
                "lost its end. Make the stores again from it (pixiu rebuild)"
            )

    async def stop(self) -> None:
        """Close sessions, commit and close the stores."""
        self.messaging.stop()
        self._searches.close()
        if is_kafka(self._settings):  # the queue is drained by whoever owns it
            flushed = asyncio.Event()
            self.log.when_flushed(flushed.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(flushed.wait(), DRAIN_SECONDS)
        if self._provider is not None:
            await self._provider.close()

    def close(self) -> None:
        """Let go of the stores; the writer must be idle. What an engine that is down has missed is in the log."""
        self.log.close()
        try:
            self.stores.flush()
        except PixiuError as error:
            log.warning("stores not flushed", extra={"reason": str(error)})
        self.stores.close()

    async def written(self) -> None:
        """Wait until what clients have just acked is in the log."""
        await asyncio.sleep(0)  # on its way to the relay
        self.messaging.relay.write_rows()
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.log.when_flushed(lambda: flushed.set_result(None))
        await flushed

    async def applied(self) -> None:
        """Wait until the stores hold everything that is committed."""
        await self.written()
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.carrier.when_applied(self.log.committed, lambda: caught_up.set_result(None))
        await caught_up

    async def settled(self) -> None:
        """Wait until the stores hold it on disk, too."""
        end = self.log.committed
        await self.applied()
        while min(self.stores.applied(lane) for lane in (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)) < end:
            self.messaging.carrier.commit()
            await asyncio.sleep(SETTLE_SECONDS)
        self.stores.flush()

    async def cut(self) -> Cut:
        """What waits in the stores now, once they hold everything that is committed."""
        await self.applied()
        return take_cut(self.stores, self.messaging.carrier.applied(Lane.INBOXES))

    async def audit(self, *, at_least: int = 0, before: int | None = None) -> AuditReport:
        """Take a cut now, then replay the log up to it, a batch at a time, between other work."""
        for report in replay_audit(self.log, await self.cut(), at_least=at_least, before=before):
            if report is not None:
                return report
            await asyncio.sleep(0)
        raise AssertionError("an audit ends with a report")


def _remaking() -> Callable[[int, int], None]:
    """Says now and then how far a start is that has to make the stores again."""
    said = 0

    def progress(event_id: int, last: int) -> None:
        nonlocal said
        if event_id * 20 // last > said:
            said = event_id * 20 // last
            log.info("making the stores again from the log", extra={"event_id": event_id, "last": last})

    return progress


def replay_audit(
    log: NodeLog, cut: Cut, *, at_least: int = 0, before: int | None = None
) -> Iterator[AuditReport | None]:
    """Replay the log up to a cut; yields None between batches, and the report at the end."""
    audit = Audit(MemoryStores(), at_least=at_least, before=before)
    for records in log.scan(cut.event_id, AUDIT_BATCH):
        for record in records:
            audit.take(record)
        yield None
    yield audit.close(cut)
