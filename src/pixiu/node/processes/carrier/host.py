"""A partition of the users on its real backends: the stores of one replica, the cluster's queue for the log.

It applies the whole log and keeps what its users need. One life of it: it follows; if its turn comes, it serves; and
when it may serve no more, it ends, and another life begins with what its stores have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.backends.embedded.layout import LAYOUT
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.tantivy.searches import ThreadedSearches
from pixiu.machines.snapshots import Head
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.ids import SNOWFLAKE_EPOCH_MS
from pixiu.model.partitions import Share
from pixiu.model.pixiu_pb2 import Record, Traces
from pixiu.node.auditing import take_books
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.messaging import Messaging, Place
from pixiu.node.notifications import make_notifications
from pixiu.node.processes.carrier.administration import CarrierAdministration
from pixiu.node.processes.carrier.group_rooms import GroupRooms
from pixiu.node.processes.carrier.snapshots import Giving
from pixiu.node.processes.carrier.stores import is_wide, made_by, not_wide, note_loss
from pixiu.ports.log import MAIN, TASKS
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.audit import Audit
from pixiu.roles.carrier.flips import forget_users, moved_away
from pixiu.roles.gateway import LiveActions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pixiu.backends.queue_log import RemoteLog
    from pixiu.backends.redis.sessions import RedisSessions
    from pixiu.config import Settings
    from pixiu.config.search import SearchSettings
    from pixiu.node.processes.carrier.engines import ReplicaStores
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import LogRecord
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.sessions import Sessions
    from pixiu.queue.client import Client
    from pixiu.roles.carrier.audit import AuditReport

__all__ = ["CarrierHost"]

log = logging.getLogger(__name__)

PARTITION_BITS = 8
SESSIONS_SHIFT = 12
NOTE_MS = 1_000
"""How often it is noted how far tasks are finished."""
RETRY_SECONDS = 0.2
CATCH_UP_SECONDS = 2.0
"""How long a refusal waits for the log's newest records, which may change it."""
DRAIN_SECONDS = 2.0
CLEAN_USERS, CLEAN_MS, CLEAN_AGAIN_MS = 50, 2, 500
"""Users that are forgotten in one turn, and the time between turns."""
REDIS_BEAT_MS, REDIS_LOOK_BEATS = 100, 10
"""Between two writes of who is connected; every so many beats Redis is looked at, whoever asks it."""
NEAR_EVENTS = 2_000
"""As far as this behind counts as caught up."""


class CarrierHost:
    """One life of one replica of a partition."""

    def __init__(
        self,
        client: Client,
        queue: RemoteLog,
        opened: ReplicaStores,
        clock: Clock,
        scheduler: Scheduler,
        settings: Settings,
        *,
        partitions: int,
        may_serve: Callable[[], bool],
        creates_users: bool = False,
    ) -> None:
        """``opened`` are its stores; from here on they are this one's to close.

        ``partitions``: how many there are, fewer than the stores were made for while it waits for the flip.
        ``may_serve``: whether the lease is held at this moment. Two nodes never have the same ``queue.node_id``.
        """
        self._client = client
        self._log = queue
        self._clock = clock
        self._scheduler = scheduler
        self._flip = asyncio.Event()
        self._unclean: list[int] = []
        self._is_cleaning = False
        self._share = share = opened.share
        self._name = f"carrier-{share.partition}"
        self._noted = self._performed = 0
        self._timer: Timer | None = None
        self._session_count = (clock.now_ms() - SNOWFLAKE_EPOCH_MS) << SESSIONS_SHIFT
        self._is_closed = False
        self.is_serving = False
        """Has it everything that it takes to serve?"""
        notifications, self._provider = make_notifications(settings, clock, scheduler)
        self._searches = _searches(settings.search)
        self._store, self.stores, self._redis = opened.store, opened.stores, opened.redis
        self._shown: RedisSessions | None = None
        self.left_behind = asyncio.Event()
        """Set when the log begins behind what is applied here: only a snapshot helps."""
        queue.when_gone = self.left_behind.set
        self.messaging = Messaging(
            queue, self.stores, self._opened_sessions(), clock, scheduler, settings,
            notifications=notifications, gateway=self._name, creates_users=creates_users, searches=self._searches,
            place=Place(self._share, partitions, may_serve, self._new_session_id),
        )  # fmt: skip
        self.messaging.when_flipped = self._flipped
        context = self.messaging.proxy.context
        self.hub = GatewayHub(self.messaging, context.directory, clock, scheduler, settings.gateway)
        relay = self.messaging.relay
        LiveActions(
            self.hub, context, scheduler, tell=relay.tell, is_present=relay.is_present, knows=self.messaging.serves,
            turns=self.messaging.proxy.turns,
        )  # fmt: skip
        self._unsure: list[Callable[[], object]] = []
        self._catching_up: asyncio.Task[None] | None = None
        self._audits: set[asyncio.Task[AuditReport]] = set()
        self.hub.catch_up = self._catch_up
        self.giving = Giving(self._store, scheduler, commit=self.messaging.carrier.commit, head=self._head)
        """For replicas that are left behind."""
        if opened.engines:
            self.giving.refusal = f"the stores of this replica are in {opened.engines}: it gives no snapshots"
        self._administration = CarrierAdministration(self.messaging, queue, client)
        self.hub.administer = self._administration.ask
        self.group_rooms = GroupRooms(self.hub, self.messaging, clock, scheduler, settings.rooms, share.partition)

    def _opened_sessions(self) -> Sessions:
        """Sessions of this life; a Redis that has the stores shows them too."""
        if self._redis is None:
            return MemorySessions(numbers_after=self._session_count)
        from pixiu.backends.redis.sessions import RedisSessions

        redis = self._redis
        self._shown = shown = RedisSessions(redis.client, redis.keys_of, numbers_after=self._session_count)

        def begun() -> None:
            shown.write_all_again()
            note_loss(self._store, is_lost=False)

        redis.when_begun = begun
        redis.when_lost = lambda: self._scheduler.soon(self._go_back)
        return shown

    def _go_back(self) -> None:
        if self._is_closed or self._redis is None:
            return
        if self._redis.is_to_clear:  # also if this life ends before that is done
            note_loss(self._store, is_lost=True)
        self.messaging.go_back()

    @property
    def hindrance(self) -> str:
        """Why this replica cannot serve as another one might: an engine of its own; empty if nothing is wrong."""
        problems = self.stores.problems()
        if problems:
            return problems[0]
        return "its stores are made again from the log" if self.messaging.is_going_back else ""

    def _look_after_redis(self, beat: int) -> None:
        """Now and then: show who is connected, and see whether Redis is there when nobody asks it."""
        if self._is_closed or self._redis is None or self._shown is None:
            return
        self._shown.write()
        if beat % REDIS_LOOK_BEATS == 0:
            self._redis.look()
        self._scheduler.after(REDIS_BEAT_MS, lambda: self._look_after_redis(beat + 1))

    def _new_session_id(self) -> int:
        """Unlike any of an earlier life, of another replica, and of another partition."""
        self._session_count += 1
        return self._session_count << PARTITION_BITS | self._share.partition

    # Life.

    def follow(self) -> None:
        """Begin to apply the log from where the stores are."""
        self.messaging.follow()
        if self._redis is not None:
            self._look_after_redis(0)
        if self.messaging.carrier.flips.count > self._share.count:  # an earlier life has not got round to it
            self._flipped()
        elif is_wide(self._store):  # a snapshot of the partition that this one comes of
            self._let_go([user for user in self.stores.users.all() if not self._share(user)])

    @property
    def behind(self) -> int:
        """How many events the log has, as its leader said last, that are not applied here."""
        return max(self._log.leader_committed - self.messaging.carrier.applied_all, 0)

    @property
    def is_near(self) -> bool:
        """Has it applied about as much as there is?"""
        return not self._log.problem and self.behind < NEAR_EVENTS and not self.stores.problems()

    async def serve(self) -> None:
        """Apply everything that was committed before now, then serve. Cancelled when the lease is over."""
        await self.applied()
        while self._share.partition >= self.messaging.partitions:  # of a new half: from the flip on
            self._flip.clear()
            await self._flip.wait()
        began = self.messaging.carrier.flips.began(self._share.partition)
        tasks_after = max(await self._tasks_after(), began)
        await self._log.learn_scheduled()
        # From now: replicas begin their lives at about one time, and their turns one behind the other.
        self._session_count = max(self._session_count, (self._clock.now_ms() - SNOWFLAKE_EPOCH_MS) << SESSIONS_SHIFT)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.proxy.schedules.forget()
        self.messaging.serve(tasks_after, lambda: None if ready.done() else ready.set_result(None))
        await ready
        self.hub.start()
        self.is_serving = True
        self._note()

    async def applied(self) -> None:
        """Wait until the stores hold everything that is committed now: a record of our own is behind all of it."""
        fence = Record(at=self._clock.now_ms(), traces=Traces()).SerializeToString()
        while True:
            try:
                event_id = await self._publish(fence)
                break
            except Unavailable as error:
                log.warning("the log takes nothing yet", extra={"reason": str(error)})
                await asyncio.sleep(RETRY_SECONDS)
        there: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messaging.carrier.when_applied(event_id, lambda: None if there.done() else there.set_result(None))
        await there

    def _catch_up(self, call: Callable[[], object]) -> None:
        """Call when everything that is committed now is applied here; all who ask meanwhile wait for one answer."""
        self._unsure.append(call)
        if self._catching_up is None:
            self._catching_up = asyncio.get_running_loop().create_task(self._answer_unsure())

    async def _answer_unsure(self) -> None:
        try:
            while self._unsure:
                calls, self._unsure = self._unsure, []
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CATCH_UP_SECONDS):
                        await self.applied()
                for call in calls:
                    call()
        finally:
            self._catching_up = None

    async def _publish(self, payload: bytes) -> int:
        waiting: asyncio.Future[int | PixiuError] = asyncio.get_running_loop().create_future()
        self._log.publish(MAIN, payload, lambda result: None if waiting.done() else waiting.set_result(result))
        result = await waiting
        if isinstance(result, PixiuError):
            raise result
        return result

    async def _tasks_after(self) -> int:
        """How far whoever served before had finished the tasks of this partition."""
        for row in await self._client.positions(TASKS):
            if row.subscriber == self._name:
                return row.event_id
        return 0

    def _note(self) -> None:
        """Now and then: how far tasks are finished, for whoever serves next. A lost note costs a repeated task."""
        self._timer = self._scheduler.after(NOTE_MS, self._note)
        carrier = self.messaging.carrier
        finished, performed = carrier.applied(Lane.TASKS), carrier.counters.tasks
        if performed == self._performed or finished <= self._noted:
            return
        self._performed, self._noted = performed, finished
        task = asyncio.get_running_loop().create_task(self._client.set_position(TASKS, self._name, finished))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def close(self) -> None:
        """End this life: sessions are closed, what is applied becomes durable."""
        self.is_serving = False
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._catching_up, *self._audits):
            if task is not None:
                task.cancel()
        self._administration.stop()
        self.hub.stop()
        self.giving.stop()
        self.group_rooms.stop()
        self.messaging.stop()
        if self._searches is not None:
            self._searches.close()
        await self._log.drained(DRAIN_SECONDS)
        if self._provider is not None:
            await self._provider.close()
        if self._shown is not None:
            self._shown.close()
        try:
            self.stores.flush()
        except PixiuError as error:  # what an engine that is down has missed is in the log
            log.warning("stores not flushed", extra={"reason": str(error)})
        self.stores.close()
        await self._log.close()

    # Doubling.

    def _flipped(self) -> None:
        """There are more partitions: whoever is elsewhere now is forgotten here, a few at a time."""
        self._flip.set()
        if self._is_closed:
            return
        try:
            users = self.stores.users.all()
        except Unavailable as error:
            log.warning("cannot see who is elsewhere now", extra={"reason": str(error)})
            self._scheduler.after(CLEAN_AGAIN_MS, self._flipped)
            return
        gone = moved_away(users, self._share, self.messaging.partitions, is_wide=is_wide(self._store))
        log.info("flipped", extra={"partitions": self.messaging.partitions, "users_elsewhere": len(gone)})
        self._let_go(gone)

    def _let_go(self, users: list[int]) -> None:
        self._unclean = users
        if not self._is_cleaning:
            self._is_cleaning = True
            self._scheduler.soon(self._clean)

    def _clean(self) -> None:
        if self._is_closed:
            return
        if self.messaging.carrier.is_cutting:
            self._scheduler.after(CLEAN_AGAIN_MS, self._clean)
            return
        some, self._unclean = self._unclean[:CLEAN_USERS], self._unclean[CLEAN_USERS:]
        try:
            forget_users(self.stores, some)
        except Unavailable as error:
            log.warning("could not forget users", extra={"reason": str(error)})
            self._unclean = some + self._unclean
            self._scheduler.after(CLEAN_AGAIN_MS, self._clean)
            return
        if some:
            self._scheduler.after(CLEAN_MS, self._clean)
            return
        # Written down before anybody may say that it is done: a crash, or a snapshot, would bring them back for good.
        if not self.messaging.carrier.commit(has_more=True):
            self._scheduler.after(CLEAN_AGAIN_MS, self._clean)
            return
        self._is_cleaning = False
        self._share = Share(self._share.partition, max(self.messaging.partitions, self._share.count))
        self._store.write([made_by(self._share)])
        not_wide(self._store)

    def _head(self) -> Head:
        """What the store holds. Behind a flip it has no more than the new count gives it."""
        applied = min(self.stores.applied(lane) for lane in (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES))
        count = max(self._share.count, self.messaging.partitions)
        return Head(LAYOUT, self._share.partition, count, applied)

    def problems(self) -> list[str]:
        """Why it does not get on; none if all is well."""
        problem = self._log.problem
        return [*([f"log: {problem}"] if problem else []), *self.messaging.problems()]

    # Proof.

    async def audit(self, *, at_least: int = 0, before: int | None = None) -> AuditReport:
        """The books of this partition: what waits and what was said, in its stores, against the log.

        Raises ``Unavailable`` when this life of the carrier ends meanwhile: nothing is applied any more, and whoever
        waited for it would wait for ever.
        """
        auditing = asyncio.ensure_future(self._audit(at_least, before))
        self._audits.add(auditing)
        try:
            return await auditing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Unavailable("this carrier's turn ended while it took its books; ask again") from None
        finally:
            self._audits.discard(auditing)

    async def _audit(self, at_least: int, before: int | None) -> AuditReport:
        self.messaging.relay.write_rows()
        await self.applied()
        share = Share(self._share.partition, self.messaging.partitions)
        with self.messaging.carrier.cutting(share) as cutting:
            for _ in cutting.slices():
                await asyncio.sleep(0)
        audit = Audit(MemoryStores(), at_least=at_least, before=before, owns=share)
        return await take_books(audit, cutting.cut, self.stores, scan=self._scan, reach=self._reach)

    def _scan(self, after: int, through: int) -> AsyncIterator[list[LogRecord]]:
        return self._log.scan(through, after)

    async def _reach(self) -> int:
        await self.applied()
        return self.messaging.carrier.applied_all


def _searches(settings: SearchSettings) -> ThreadedSearches | None:
    """The index that a pipeline makes beside the log; None unless the settings say where."""
    if not settings.data:
        return None
    return ThreadedSearches(Path(settings.data), asyncio.get_running_loop().call_soon_threadsafe, settings)
