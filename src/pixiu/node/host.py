"""Messaging on its real backends: RocksDB for the stores, the queue's engine for the log, asyncio for time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pixiu.backends.embedded.sessions import EmbeddedSessions, next_life
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.tantivy.searches import ThreadedSearches
from pixiu.config.engines import EMBEDDED
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, CorruptData, Gone, PixiuError, Unavailable
from pixiu.model.ids import SNOWFLAKE_EPOCH_MS
from pixiu.model.pixiu_pb2 import Record, Traces
from pixiu.node.auditing import take_books
from pixiu.node.engines import engines_of_replica, ready_engines
from pixiu.node.logs import check_log, is_kafka, make_log, note_log
from pixiu.node.messaging import Messaging, Place
from pixiu.node.notifications import make_notifications
from pixiu.node.remembered import node_name, open_redis, remember
from pixiu.ports.log import MAIN, TASKS, TASKS_READER
from pixiu.ports.stores import Lane
from pixiu.queue.log import EngineLog
from pixiu.roles.carrier.audit import AUDIT_BATCH, Audit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from pixiu.backends.kafka.topics import Identity
    from pixiu.backends.redis.routes import RedisRoutes
    from pixiu.backends.redis.sessions import RedisSessions
    from pixiu.backends.redis.stores import RedisStores
    from pixiu.config import Settings
    from pixiu.config.engines import EngineSettings
    from pixiu.node.door import Door
    from pixiu.node.logs import NodeLog
    from pixiu.node.stores import NodeStores
    from pixiu.ports.clock import Clock
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.ports.log import LogRecord
    from pixiu.ports.routes import Routes
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.sessions import Sessions
    from pixiu.queue.engine import Engine
    from pixiu.roles.carrier.audit import AuditReport
    from pixiu.roles.carrier.cut import Cut

__all__ = ["MessagingHost", "Opened", "Replica", "open_stores"]

DRAIN_SECONDS = 5.0
REDIS_BEAT_SECONDS = 0.1
"""Between two writes of who is connected."""
REDIS_LOOK_SECONDS = 1.0
"""Between two looks whether Redis is there."""
SETTLE_SECONDS = 0.01
"""Between two looks whether a commit was possible."""
SESSION_SHIFT = 12
"""Session ids of a replica begin at the milliseconds since the epoch of ids, times 2^12."""
NOTE_TASKS_MS = 1_000

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replica:
    """What a node needs when it is one of several replicas of a log."""

    name: str
    """Unique among the replicas. Stores in shared engines are kept under it."""
    may_serve: Callable[[], bool]
    """Does this replica lead the log, with its lease, at this moment?"""
    log: Identity | None = None
    """Which log in Kafka is the shard's; None if the replicas copy the log themselves."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The stores of a host."""

    store: KeyValue
    """What is in the data directory."""
    stores: NodeStores
    redis: RedisStores | None = None


def open_stores(settings: EngineSettings, root: Path, log: NodeLog, replica: str = "") -> Opened:
    """The stores of a data directory, brought up to the log where they have to be rebuilt. Blocks meanwhile.

    ``replica`` is the name of one of several that may share an engine; a node alone has none.
    """
    engines, prefix = engines_of_replica(settings, replica) if replica else (settings, "")
    redis = open_redis(root, engines.store, prefix=prefix)
    try:
        store, stores = ready_engines(engines, root, log, _remaking(), redis=redis)
        remember(root, settings)
    except BaseException:
        if redis is not None:
            redis.close()
        raise
    return Opened(store, stores, redis)


class MessagingHost:
    """The messaging roles of this process over its log and its stores, from start to stop.

    A standalone node calls ``start``. A replica calls ``follow``, which applies the log and sends nothing to clients,
    and ``serve`` when it becomes the leader. A replica that loses the lead closes its host and creates a new one.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        settings: Settings,
        root: Path,
        *,
        creates_users: bool = False,
        name: str = "",
        replica: Replica | None = None,
        opened: Opened | None = None,
    ) -> None:
        """``name`` is the node's public name. ``opened`` are its stores; the default opens those of ``root``."""
        self.engine = engine
        """The node's queue. Its journal is the log, unless that is in Kafka."""
        self._settings = settings
        self.root = root
        self.log: NodeLog = make_log(
            settings, engine, scheduler, root, name=name or root.resolve().name,
            known=None if replica is None else replica.log,
        )  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked_at = 0.0
        self._searches = ThreadedSearches(Path(settings.search.data or root), self._on_loop, settings.search)
        notifications, self._provider = make_notifications(settings, engine.clock, scheduler)
        self._scheduler = scheduler
        self._replica = replica
        self._session_base = 0
        self._tasks_noted = 0
        self._note_timer: Timer | None = None
        self._is_stopped = False
        self._waiting: set[asyncio.Future[Any]] = set()
        """Work that ends with this host."""
        if opened is None:
            opened = open_stores(settings.engines, root, self.log, "" if replica is None else replica.name)
        self.store, self.stores = opened.store, opened.stores
        self._redis = redis = opened.redis
        self._sessions: RedisSessions | None = None
        self._shown_routes: RedisRoutes | None = None
        self.routes: Routes = MemoryRoutes()
        """Who listens in which room."""
        self._beat: asyncio.TimerHandle | None = None
        try:
            check_log(self.log, root, self.stores)
            self.messaging = Messaging(
                self.log,
                self.stores,
                self._opened_sessions(),
                engine.clock,
                scheduler,
                settings,
                notifications=notifications,
                creates_users=creates_users,
                is_writer_busy=lambda: self.log.is_busy,
                searches=self._searches,
                place=None if replica is None else Place(replica.may_serve, self._new_session_id),
            )
        except BaseException:
            self.stores.close()
            raise
        try:
            self.door = self._made_door()
        except BaseException:
            self.stores.close()
            raise
        self._holds = [] if is_kafka(settings) else [self._needed_from]
        engine.retention_holds.extend(self._holds)
        if replica is not None and isinstance(self.stores, EmbeddedStores):
            engine.dump_stores = self._dump
        if redis is not None:
            redis.when_lost = lambda: scheduler.soon(self.messaging.go_back)

    def _made_door(self) -> Door | None:
        """Where actions come in from a Redis stream; None unless the settings name one."""
        url = self._settings.door.redis
        if not url:
            return None
        store = self._settings.engines.store
        if url == "store" and store == EMBEDDED:
            raise ConfigError("door.redis is store, and the stores are in no Redis: name one, as redis://HOST:PORT")
        try:
            from pixiu.backends.redis.address import RedisAddress
            from pixiu.node.door import Door
        except ImportError as error:
            needed = f"door.redis needs the package valkey ({error}); install it with: {how_to_install('redis')}"
            raise ConfigError(needed) from error
        address = RedisAddress.parse(store if url == "store" else url)
        settings, clock = self._settings.door, self.engine.clock
        return Door(address, node_name(self.root), settings, self.messaging, clock, lambda: not self.problems())

    def problems(self) -> list[str]:
        """Why messaging should get no traffic, the door apart; none if all is well."""
        return [*self.messaging.problems(), *self.log.problems()]

    def door_problems(self) -> list[str]:
        """Why no actions come from the Redis stream; none if all is well, or there is no door."""
        return [] if self.door is None else self.door.problems()

    @property
    def redis_round_trips(self) -> int:
        """How often Redis was asked; 0 without one."""
        return 0 if self._redis is None else self._redis.client.round_trips

    def _opened_sessions(self) -> Sessions:
        """Sessions since this start; a Redis that has the stores shows them too.

        Their numbers rise over restarts. A replica numbers by the clock: its store does not know how far the leader
        before it has counted.
        """
        self._session_base = _session_base(self.engine.clock)
        if self._redis is None:
            if self._replica is None:
                return EmbeddedSessions(self.store)
            return MemorySessions(numbers_after=self._session_base)
        from pixiu.backends.redis.routes import RedisRoutes
        from pixiu.backends.redis.sessions import RedisSessions

        client, keys = self._redis.client, self._redis.keys_of
        base = next_life(self.store) if self._replica is None else self._session_base
        self._sessions = sessions = RedisSessions(client, keys, numbers_after=base)
        self.routes = self._shown_routes = routes = RedisRoutes(client, keys)

        def write_all_again() -> None:
            sessions.write_all_again()
            routes.write_all_again()

        self._redis.when_begun = write_all_again
        return sessions

    def _new_session_id(self) -> int:
        self._session_base += 1
        return self._session_base

    def _look_after_redis(self) -> None:
        """Now and then: show who is connected and listens, and see whether Redis is there when nobody asks it."""
        assert self._redis is not None and self._sessions is not None and self._loop is not None
        self._sessions.write()
        if self._shown_routes is not None:
            self._shown_routes.write()
        now = self._loop.time()
        if now - self._looked_at >= REDIS_LOOK_SECONDS:
            self._looked_at = now
            self._redis.look()
        self._beat = self._loop.call_later(REDIS_BEAT_SECONDS, self._look_after_redis)

    def _on_loop(self, call: Callable[[], object]) -> None:
        """From another thread; nobody asks before the start."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

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
        """Open Pixiu's topics, let the stores catch up with the log, and serve: a node alone."""
        await self._open_log()
        self._check_log()
        note_log(self.log, self.root, self._settings)
        self._begin()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.start(lambda: ready.set_result(None))
        await ready
        self._open_door()

    def _dump(self) -> Iterator[tuple[bytes, bytes]]:
        """A snapshot of the stores, for a replica that lags too far behind to follow the log."""
        self.messaging.carrier.commit()
        return self.store.dump()

    def follow(self) -> None:
        """Apply the log from where the stores are, as this replica's copy of it grows.

        Raises ``Gone`` if its copy begins behind what the stores have applied.
        """
        applied, first = min(self.stores.applied(lane) for lane in Lane if lane is not Lane.TASKS), 0
        if isinstance(self.log, EngineLog) and self.engine.journal.last_event_id:
            first = self.log.first_event_id
        if applied + 1 < first:
            raise Gone(
                f"the stores of this replica have applied event {applied}, and its log begins with event {first}. "
                "Stores in Redis or Cassandra are not copied from another replica: restore them from a backup of their "
                "own, or start this replica with embedded stores in an empty data directory"
            )
        self.log.stand_by(applied)
        note_log(self.log, self.root, self._settings)
        self._begin()
        self.messaging.follow()

    async def serve(self) -> None:
        """Apply everything that was committed before now, then serve. Cancel it when the lease ends.

        The log is led, so a record of our own is behind all that other leaders have committed.
        """
        await self._open_log()
        await self._fence()
        self._check_log()
        note_log(self.log, self.root, self._settings)
        # Replicas start at about one time, and serve one after the other.
        self._session_base = max(self._session_base, _session_base(self.engine.clock))
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.proxy.schedules.forget()
        self.messaging.serve(
            self.log.position(TASKS, TASKS_READER), lambda: None if ready.done() else ready.set_result(None)
        )
        await ready
        self._open_door()
        self._note_tasks()

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.messaging.cursors.begin(self.log.epoch)
        if self._redis is not None and self._beat is None:
            self._look_after_redis()

    def _open_door(self) -> None:
        if self.door is not None:
            self.door.start(asyncio.get_running_loop())

    async def _open_log(self) -> None:
        opened: asyncio.Future[PixiuError | None] = asyncio.get_running_loop().create_future()
        applied = min(self.stores.applied(lane) for lane in Lane if lane is not Lane.TASKS)
        self.log.open(
            lambda error: None if opened.done() else opened.set_result(error),
            applied=applied, finished=self.stores.applied(Lane.TASKS),
        )  # fmt: skip
        error = await opened
        if error is not None:
            raise error

    async def _fence(self) -> None:
        """Append a record that changes nothing, and wait until it is applied. Raises why the log takes none."""
        loop = asyncio.get_running_loop()
        record = Record(at=self.engine.clock.now_ms(), traces=Traces()).SerializeToString()
        published: asyncio.Future[int | PixiuError] = loop.create_future()
        self.log.publish(MAIN, record, lambda result: None if published.done() else published.set_result(result))
        event_id = await published
        if isinstance(event_id, PixiuError):
            raise event_id
        applied: asyncio.Future[None] = loop.create_future()
        self.messaging.carrier.when_applied(event_id, lambda: None if applied.done() else applied.set_result(None))
        await applied

    def _note_tasks(self) -> None:
        """Every second, put into the log how far tasks are finished. A lost note costs a repeated task."""
        carrier = self.messaging.carrier
        if carrier.counters.tasks != self._tasks_noted:
            self._tasks_noted = carrier.counters.tasks
            self.log.set_position(TASKS, TASKS_READER, carrier.applied(Lane.TASKS))
        self._note_timer = self._scheduler.after(NOTE_TASKS_MS, self._note_tasks)

    @property
    def behind(self) -> int:
        """About how many committed events the stores have not applied."""
        return self.messaging.carrier.behind + self.log.unread

    def _check_log(self) -> None:
        """Stores that are ahead of the log would take its next records for known, and skip them."""
        applied, committed = max(self.stores.applied(lane) for lane in Lane), self.log.committed
        if applied > committed:
            raise CorruptData(
                f"the stores know event {applied}, and the log ends with event {committed}: it was replaced, or has "
                "lost its end. Make the stores again from it (pixiu rebuild)"
            )

    async def stop(self) -> None:
        """Close sessions, and commit what is applied. Audits and other work that waits for this host end."""
        self._is_stopped = True
        for work in self._waiting:
            work.cancel()
        if self._note_timer is not None:
            self._note_timer.cancel()
        if self.door is not None:
            await self.door.stop()
        self.messaging.stop()
        self._searches.close()
        if self._beat is not None:
            self._beat.cancel()
        if self._sessions is not None:
            self._sessions.close()
        if self._shown_routes is not None:
            self._shown_routes.close()
        is_leading = self._replica is not None and self._replica.may_serve()
        if is_kafka(self._settings) or is_leading:  # the writer of a node alone is drained by its owner
            flushed = asyncio.Event()
            self.log.when_flushed(flushed.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(flushed.wait(), DRAIN_SECONDS)
        if self._provider is not None:
            await self._provider.close()

    def close(self) -> None:
        """Let go of the log and the stores. What an engine that is down has missed is in the log.

        The writer of a node alone must be idle.
        """
        self.log.close()
        self.engine.dump_stores = None
        for hold in self._holds:
            self.engine.retention_holds.remove(hold)
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
        self.log.when_flushed(lambda: None if flushed.done() else flushed.set_result(None))
        await flushed

    async def applied(self) -> None:
        """Wait until the stores hold everything that is committed."""
        await self.written()
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.carrier.when_applied(
            self.log.committed, lambda: None if caught_up.done() else caught_up.set_result(None)
        )
        await caught_up

    async def _while_running(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that would wait for ever once this host has stopped. Raises ``Unavailable`` then."""
        task = asyncio.ensure_future(work)
        self._waiting.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_stopped and task.cancelled():
                raise Unavailable("the messaging of this node has stopped; ask again") from None
            raise
        finally:
            self._waiting.discard(task)

    async def settled(self) -> None:
        """Wait until the stores hold it on disk, too. Raises ``Unavailable`` if this host stops."""
        await self._while_running(self._settled())

    async def _settled(self) -> None:
        end = self.log.committed
        await self.applied()
        while min(self.stores.applied(lane) for lane in (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)) < end:
            self.messaging.carrier.commit()
            await asyncio.sleep(SETTLE_SECONDS)
        self.stores.flush()

    async def cut(self) -> Cut:
        """What waits in the stores now, once they hold everything that is committed.

        Raises ``Unavailable`` if this host stops.
        """
        return await self._while_running(self._cut())

    async def _cut(self) -> Cut:
        await self.applied()
        with self.messaging.carrier.cutting() as cutting:
            for _ in cutting.slices():
                await asyncio.sleep(0)
        return cutting.cut

    async def audit(self, *, at_least: int = 0, before: int | None = None) -> AuditReport:
        """Take a cut now, replay the log up to it, a batch at a time, between other work, and compare.

        Raises ``Unavailable`` if this host stops.
        """
        return await self._while_running(self._audit(Audit(MemoryStores(), at_least=at_least, before=before)))

    async def _audit(self, audit: Audit) -> AuditReport:
        return await take_books(audit, await self._cut(), self.stores, scan=self._scan, reach=self._reach)

    async def _scan(self, after: int, through: int) -> AsyncIterator[list[LogRecord]]:
        # From the beginning by ``scan``, which says what retention has removed of it.
        log = self.log
        batches = log.scan_after(after, through, AUDIT_BATCH) if after else log.scan(through, AUDIT_BATCH)
        if isinstance(log, EngineLog):
            for records in batches:
                yield records
                await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()  # a broker that is slow must not stop the loop, which renews the lease
        while (found := await loop.run_in_executor(None, next, batches, None)) is not None:
            yield found

    async def _reach(self) -> int:
        await self.applied()
        return self.messaging.carrier.applied_all


def _session_base(clock: Clock) -> int:
    return (clock.now_ms() - SNOWFLAKE_EPOCH_MS) << SESSION_SHIFT


def _remaking() -> Callable[[int, int], None]:
    """Says now and then how far a start is that has to make the stores again."""
    said = 0

    def progress(event_id: int, last: int) -> None:
        nonlocal said
        if event_id * 20 // last > said:
            said = event_id * 20 // last
            log.info("making the stores again from the log", extra={"event_id": event_id, "last": last})

    return progress
