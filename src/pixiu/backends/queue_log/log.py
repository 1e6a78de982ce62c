"""``ports.log.Log`` over the network: the elected leader of a queue, found through the registry.

::

    log = RemoteLog(Client("zk://…", key=secret))
    await log.open()                      # its topics are there, and what is scheduled is known
    log.follow(after, receive)            # from now on read() has what has come
    await log.close()

What is committed, as this end knows it, is what has come: ``committed`` and ``read`` agree at every moment, and both
may lag behind the leader. Who must not lag appends a record and waits until it has come.

An append with a key is safe to repeat, and is repeated when the leader changes. Of one without, and of ``publish`` and
``schedule``, the error may be ``FateUnknown``: then nobody knows whether it was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pixiu.backends.queue_log.buffer import BUFFER_BYTES_MAX, LogBuffer, decoded
from pixiu.machines.queue_wire import Message, pack
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.log_answers import decode_scheduled, decode_topic_rows
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import Conflict, Gone, NotFound, PixiuError, RemoteProtocolError, Unavailable
from pixiu.ports.log import NOTIFY, SCHEDULE, TASKS, TOPICS, Appended, LogRecord, Scheduled
from pixiu.queue.storage.messages import body_of, is_numbered, number_and_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pixiu.machines.queue_wire.responses import AppendAnswer
    from pixiu.queue.client import Client
    from pixiu.queue.client.feed import Feed

__all__ = ["TOPICS", "RemoteLog"]

log = logging.getLogger(__name__)

PAGE = 2_000
RETRY_MS = 500
SCAN_BATCHES_MAX = 16
"""Batches of a scan that wait for whoever scans."""
SCAN_REFUSALS_MAX = 5
"""A log that refuses so often to be read at one place (a damaged record) is given up; another may lead before that."""


class _Page:
    """Records of one topic that memory does not have: all behind ``after``, through ``through``."""

    __slots__ = ("after", "is_asked", "records", "through")

    def __init__(self, after: int) -> None:
        self.after = after
        self.through = after
        self.records: list[LogRecord] = []
        self.is_asked = False


class RemoteLog:
    """The log of a cluster. One follower."""

    def __init__(self, client: Client, *, buffer_bytes_max: int = BUFFER_BYTES_MAX) -> None:
        """``client`` has shown the node's key, and is closed by whoever made it."""
        self._client = client
        self._buffer = LogBuffer(bytes_max=buffer_bytes_max)
        self._feed: Feed | None = None
        self._receive: Callable[[], object] = lambda: None
        self._pages: dict[str, _Page] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = 0
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.problem = "not followed yet"
        """Why nothing comes; empty if all is well."""
        self.when_gone: Callable[[], object] = lambda: None
        """Told when the log begins behind what was asked for: retention has removed what comes next."""

    # Life.

    async def open(self) -> None:
        """Create Pixiu's topics where they are missing, and learn what is scheduled. Raises ``Unavailable``."""
        for topic in TOPICS:
            try:
                await self._client.topic_info(topic)
            except NotFound:
                with contextlib.suppress(Conflict):  # somebody else was faster
                    await self._client.create_topic(topic)
        await self.learn_scheduled()

    async def learn_scheduled(self) -> None:
        """Read what waits for its time. Needed once; what changes behind it is in the log."""
        found: dict[int, Scheduled] = {}
        for topic in (SCHEDULE, NOTIFY, TASKS):
            after = 0
            while True:
                request = wire.encode_scheduled(topic.encode(), after=after, limit=PAGE)
                rows = decode_scheduled(await self._client.ask(topic, request, "reading what is scheduled"))
                for event_id, due, payload in rows:
                    said = b"".join(map(body_of, split_messages(payload) or []))
                    found[event_id] = Scheduled(event_id, due, topic, said)
                if len(rows) < PAGE:
                    break
                after = rows[-1][0]
        self._buffer.scheduled = found

    async def drained(self, seconds: float) -> None:
        """Wait until everything that was written is answered, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def close(self) -> None:
        """Follow no more."""
        if self._feed is not None:
            await self._feed.close()
            self._feed = None
        for task in list(self._tasks):
            task.cancel()

    # Writing.

    @property
    def committed(self) -> int:
        """The newest committed event id that has come here."""
        return self._buffer.reached

    @property
    def leader_committed(self) -> int:
        """What the leader said last that it has committed."""
        return max(self._told, self._buffer.reached)

    def append(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[Appended | PixiuError], object],
        *,
        key: bytes = b"",
        unless_after: int = 0,
    ) -> None:
        """Append a numbered record, unless ``key`` was appended behind event ``unless_after``."""

        def answered(answer: AppendAnswer | PixiuError) -> None:
            self._answered()
            if isinstance(answer, PixiuError):
                done(answer)
            else:
                done(Appended(answer.event_id, answer.message_id, answer.repeat))

        self._asked()
        self._client.post_append(topic, payload, answered, key=key, unless_after=unless_after)

    def publish(self, topic: str, payload: bytes, done: Callable[[int | PixiuError], object] | None = None) -> None:
        """Append a record without a number; ``done`` is told its event id."""
        self._asked()

        def answered(result: int | PixiuError) -> None:
            self._answered()
            if done is not None:
                done(result)

        request = wire.encode_pub(topic.encode(), pack([Message.of(payload)]), want_event_id=True)
        self._client.post(topic, request, f"publishing to {topic}", answered)

    def schedule(
        self, topic: str, payload: bytes, due: int, done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """Publish at ``due``; ``done`` is told the schedule_id, which is the event id of the delay."""

        def answered(result: int | PixiuError) -> None:
            if not isinstance(result, PixiuError) and result > self._buffer.reached:
                self._buffer.scheduled[result] = Scheduled(result, due, topic, payload)
            if done is not None:
                done(result)

        request = wire.encode_schedule(topic.encode(), pack([Message.of(payload)]), due=max(due, 0))
        self._client.post(topic, request, f"scheduling for {topic}", answered)

    def unschedule(self, schedule_id: int, done: Callable[[bool | PixiuError], object]) -> None:
        """Drop a record that waits; ``done`` is told whether it did."""

        def answered(result: int | PixiuError) -> None:
            if isinstance(result, NotFound):
                done(False)
            elif isinstance(result, PixiuError):
                done(result)
            else:
                self._buffer.scheduled.pop(schedule_id, None)
                done(True)

        self._client.post(SCHEDULE, wire.encode_cancel_delay(schedule_id), "dropping what is scheduled", answered)

    def _asked(self) -> None:
        self._outstanding += 1
        self._idle.clear()

    def _answered(self) -> None:
        self._outstanding -= 1
        if not self._outstanding:
            self._idle.set()

    # Reading.

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits for a topic, by due time."""
        found = [each for each in self._buffer.scheduled.values() if each.topic == topic]
        return sorted(found, key=lambda each: (each.due, each.schedule_id))

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Call ``receive`` whenever more has come."""
        self._receive = receive
        self._buffer.begin(after)
        self._feed = self._client.feed(lambda: self._buffer.reached, self._came, self._failed)

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Records of Pixiu's topics behind ``after``; none only when there is none up to ``committed``.

        For who has fallen out of memory the log is followed anew from there; until it has come again, ``committed``
        is where that is.
        """
        buffer = self._buffer
        if not buffer.has(after):
            buffer.begin(after)
            if self._feed is not None:
                self._feed.restart()
        found = buffer.read(after, limit)
        if self._feed is not None:
            self._feed.pause(is_paused=buffer.is_full)
        return found

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first.

        Raises ``Unavailable`` while a page is fetched that memory does not have: ask again a little later.
        """
        found = self._buffer.topic(topic, after, limit)
        if found is not None:
            self._pages.pop(topic, None)
            return found
        page = self._pages.get(topic)
        if page is None or not page.after <= after <= page.through:
            page = self._pages[topic] = _Page(after)
        rows = [record for record in page.records if record.event_id > after]
        since = self._buffer.topic_since(topic)
        is_joined = since is not None and page.through >= since
        if is_joined:
            rows += self._buffer.topic(topic, page.through, limit) or []
        if len(rows) < limit and not is_joined and page.through < self.committed:
            self._fetch(topic, page)
            raise Unavailable(f"a page of {topic} is on its way", retry_after_ms=RETRY_MS)
        page.records = [record for record in page.records if record.event_id > after]
        page.after = after
        return rows[:limit]

    async def scan(self, through: int, after: int = 0) -> AsyncIterator[list[LogRecord]]:
        """Every record of Pixiu's topics behind ``after`` and through here, in batches, beside whoever follows.

        Raises ``Gone`` where retention has removed the beginning: what follows makes no sense without it.
        """
        batches: asyncio.Queue[list[LogRecord] | PixiuError | None] = asyncio.Queue()
        reached = after

        def came(_commit_event_id: int, frames: bytes) -> None:
            nonlocal reached
            records: list[LogRecord] = []
            for last, _, rows in decoded(frames, reached):
                if last > reached:
                    records += [row for row in rows if row.event_id <= through]
                    reached = last
            batches.put_nowait(records)
            feed.pause(is_paused=batches.qsize() >= SCAN_BATCHES_MAX)
            if reached >= through:
                batches.put_nowait(None)

        stuck_at, refusals = -1, 0

        def failed(error: PixiuError | None) -> None:
            nonlocal stuck_at, refusals
            if error is None or isinstance(error, Unavailable):
                return  # it may come back
            refusals = refusals + 1 if stuck_at == reached else 1
            stuck_at = reached
            if isinstance(error, Gone | NotFound | RemoteProtocolError) or refusals >= SCAN_REFUSALS_MAX:
                batches.put_nowait(error)

        if after >= through:
            return
        feed = self._client.feed(lambda: reached, came, failed)
        try:
            while (batch := await batches.get()) is not None:
                if isinstance(batch, PixiuError):
                    raise batch
                feed.pause(is_paused=False)
                yield batch
        finally:
            await feed.close()

    # What comes.

    def _came(self, commit_event_id: int, frames: bytes) -> None:
        self._told = max(self._told, commit_event_id)
        if not self._buffer.take(frames):
            return
        if self._buffer.is_full and self._feed is not None:
            self._feed.pause(is_paused=True)
        self._receive()

    def _failed(self, error: PixiuError | None) -> None:
        self.problem = "" if error is None else str(error)
        if isinstance(error, Gone):
            self.when_gone()

    def _fetch(self, topic: str, page: _Page) -> None:
        if page.is_asked:
            return
        page.is_asked = True

        async def fetch() -> None:
            request = wire.encode_read_topic(topic.encode(), after=page.through, limit=PAGE)
            try:
                told, rows = decode_topic_rows(await self._client.ask(topic, request, f"reading {topic}"))
            except PixiuError as error:
                log.warning("could not read a topic", extra={"topic": topic, "reason": str(error)})
            else:
                page.records += [_record(topic, *row) for row in rows]
                page.through = rows[-1][0] if len(rows) == PAGE else max(told, page.through)
            finally:
                page.is_asked = False

        task = asyncio.get_running_loop().create_task(fetch())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _record(topic: str, event_id: int, at: int, message: bytes) -> LogRecord:
    message_id, key = number_and_key(message) if is_numbered(message) else (0, b"")
    return LogRecord(event_id, message_id, topic, body_of(message), key, at)
