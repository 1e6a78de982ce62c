"""A broker as one of many: the rooms of its partition, news of them from routers, talk from proxies.

``Broker`` does the work, here is what makes it a replica: it loads and follows the routes of its partition, takes talk
only when it has all of them, and tells proxies when a room is not its own.

What live talk of one publisher overtook is dropped: its ids rise, and order is promised, arrival is not. Reliable talk
is confirmed when every gateway has it; one that comes again after that is confirmed at once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from pixiu.links.bigrooms import BigRoomKeeper
from pixiu.links.replica import Replica
from pixiu.machines.dedup import Seen
from pixiu.machines.links.messages import (
    TO_BROKER,
    Declined,
    RoomAck,
    RoomFrame,
    Settled,
    SliceSettled,
    StreamKey,
    Talk,
)
from pixiu.machines.links.packing import MESSAGE_BYTES_MAX
from pixiu.machines.routes import RouteTable
from pixiu.machines.scheduling import Priority
from pixiu.model.errors import Overloaded, PixiuError
from pixiu.model.partitions import (
    PROBE_ROOMS_BEGIN,
    SLICE_ROOMS_BEGIN,
    is_slice,
    owns,
    partition_of,
    replica_of,
    router_partitions,
)
from pixiu.ports.routes import Route
from pixiu.roles.broker.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.rooms import RoomSettings
    from pixiu.links.bigrooms import BigRooms
    from pixiu.links.directory import Directory, PeerInfo
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.member import Member
    from pixiu.machines.links.news import NewsRules, Snapshot
    from pixiu.machines.room_link import Frame
    from pixiu.machines.routes import Digest, RouteRow
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.broker.broker import RoomRow

__all__ = ["ClusterBroker"]

log = logging.getLogger(__name__)

ORDER_MAX = 200_000
"""Publishers in rooms whose last live id is remembered; of one that was forgotten nothing is taken for late."""
WAITING_MAX = 100_000
"""Reliable messages for which somebody waits; who was forgotten asks again."""
RETRY_MS = 100
LOOK_MS = 1_000
"""So often the registry is asked for gateways that have talk coming and are not known."""
RELAY = "relay "
"""The places of relays are called so, and a partition."""
SETTLE_MS = 10_000
"""When gateways have joined the slices of a room, all brokers know it by then: news is repaired within seconds."""


class ClusterBroker:
    """One replica of one partition."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        member: Member,
        clock: Clock,
        scheduler: Scheduler,
        settings: RoomSettings,
        *,
        node_id: int,
        rules: NewsRules | None = None,
        report: Callable[[RoomRow], object] = lambda _row: None,
        bigs: BigRooms | None = None,
        settle_ms: int = SETTLE_MS,
        lasts_ms: int = 240_000,
        by_relay: bool = False,
    ) -> None:
        """``bigs``: the rooms that are big; with it, this broker sees to it that those become big which have to.

        ``settle_ms`` and ``lasts_ms`` are those of ``BigRoomKeeper``. ``by_relay``: what is said goes to one replica of
        each partition of the relays, which know where users are.
        """
        self.table = RouteTable()
        self.late = 0
        """Live messages that were overtaken on their way here."""
        self.foreign = 0
        """Messages for rooms of other partitions."""
        self.no_relay = 0
        """Frames for which no relay was there; what is reliable in them goes again."""
        self.early = 0
        """Messages that came before it was running."""
        self.broker = Broker(
            _NoRoutes(), clock, scheduler, settings, self._push,
            report=self._reported, node_id=node_id, frame_bytes_max=MESSAGE_BYTES_MAX, lists_sessions=by_relay,
            is_full=lambda: endpoint.is_full,
        )  # fmt: skip
        self.broker.when_settled = self._settled
        self._report = report
        self._presence_ms = settings.presence_ms
        self._endpoint = endpoint
        self._directory = directory
        self._clock = clock
        self._member = member
        self._partition = member.partition
        self._order: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._waiting: OrderedDict[tuple[int, int], list[tuple[int, int]]] = OrderedDict()
        self._done = Seen(window_ms=settings.dedup_ms, count_max=settings.dedup_count)
        self._brokers = directory.follow("broker")
        self._routers = directory.follow("router")
        self._gateways = directory.follow("gateway")
        self._relays = directory.follow("relay") if by_relay else None
        self._relay_count = self._look_ms = 0
        if self._relays is not None:
            directory.when_changed.append(self._regroup)
        self._was_gone: set[int] = set()
        self.keeper: BigRoomKeeper | None = None
        if bigs is not None:
            self.keeper = BigRoomKeeper(
                bigs, self._brokers, self._gateways, clock, scheduler, partition=self._partition,
                settle_ms=settle_ms, lasts_ms=lasts_ms,
                members_max=settings.big_members, deliveries_max=settings.big_deliveries,
            )  # fmt: skip
        self.replica = Replica(
            member, endpoint, clock, scheduler,
            wanted=self._sources, apply=self._apply, merge=self._merge, digest=self._digest, rules=rules,
        )  # fmt: skip
        directory.when_changed.append(self.replica.look)
        directory.when_gone.append(self._gone)
        directory.when_come.append(self._come)
        endpoint.when_free.append(self.broker.freed)
        endpoint.on(Talk, self._talk)
        endpoint.on(RoomAck, self._acked)

    def start(self) -> None:
        """Begin."""
        self.replica.start()
        if self.keeper is not None:
            self.keeper.start()

    def stop(self) -> None:
        """Send what has gathered."""
        self.broker.stop()
        if self.keeper is not None:
            self.keeper.stop()

    def _reported(self, row: RoomRow) -> None:
        if row.number >= PROBE_ROOMS_BEGIN:
            return  # of nobody
        self._report(row)
        if self.keeper is not None and self.replica.life.takes_work:
            self.keeper.report(row.room, row.number, row.members, row.deliveries * 1000 / self._presence_ms)

    # Routes.

    def _sources(self) -> dict[int, StreamKey] | None:
        """One router of each partition that carries its rooms; None while one is missing (E17)."""
        if not self._directory.is_read or self._brokers.counts.version < 0 or self._routers.counts.version < 0:
            return None
        self._clean()
        count = self._brokers.counts.kept_count
        key = StreamKey(TO_BROKER, self._partition % count, count)
        found: dict[int, StreamKey] = {}
        for partition in router_partitions(self._partition, count, self._routers.counts.count):
            usable = self._routers.usable(partition)
            if usable:
                found[replica_of(self._endpoint.boot, usable)] = key
            elif not self.replica.life.takes_work:
                return None
        # One that runs keeps what it has while no router can be reached.
        return found or None

    def _apply(self, rows: list[RouteRow]) -> None:
        count = self._brokers.counts.kept_count
        for row in rows:
            if owns(self._partition, row.room, count):
                self._follow(self.table.apply(row))

    def _merge(self, boot: int, snapshot: Snapshot) -> None:
        count = self._brokers.counts.kept_count
        rows = [row for row in snapshot.rows if owns(self._partition, row.room, count)]
        self._follow(self.table.snapshot(rows, snapshot.marks, *self._shared(boot)))
        for gateway in self.table.gateways():
            # Neither the router nor the registry knows it: it died, and an older snapshot had brought it back.
            if gateway not in snapshot.marks and gateway not in self._gateways.peers:
                self._follow(self.table.purge(gateway))

    def _shared(self, boot: int) -> tuple[int, int]:
        """The rooms that a router speaks for: those of its own partition."""
        info = self._routers.peers.get(boot)
        count = self._routers.counts.count
        return (0, 1) if info is None else (info.partition % count, count)

    def _digest(self, boot: int, key: StreamKey) -> Digest:
        return self.table.digest(key.partition, key.partitions, of=self._shared(boot))

    def _follow(self, changed: list[RouteRow]) -> None:
        for row in changed:
            try:
                piece = row.room if row.room >= SLICE_ROOMS_BEGIN else 0
                if row.is_in:
                    route = Route(row.user, row.session_id, self._place(row), row.version)
                    self.broker.entered(row.name, route, piece=piece)
                else:
                    self.broker.left(row.name, row.session_id, row.version, piece=piece)
            except PixiuError as error:
                log.warning("a route was refused", extra={"room": row.name, "reason": str(error)})

    def _place(self, row: RouteRow) -> str:
        """Where talk for a session goes: its gateway, or the relays that have its user."""
        if self._relays is None:
            return f"{row.gateway:x}"
        return f"{RELAY}{partition_of(row.user, self._relays.counts.count)}"

    def _regroup(self) -> None:
        """The relays have doubled: their users are in other places."""
        assert self._relays is not None
        if self._relays.counts.count != self._relay_count:
            self._relay_count = self._relays.counts.count
            self._follow(list(self.table.rows()))

    def _clean(self) -> None:
        """The grace of a doubling is over: nobody sends talk of rooms that have moved any more (E19)."""
        if self._brokers.counts.cleans(self._clock.monotonic_us() // 1000):
            gone = self.table.keep(self._partition, self._brokers.counts.count)
            log.info("cleaned after a doubling", extra={"routes": len(gone)})
            self._follow(gone)

    def _gone(self, info: PeerInfo) -> None:
        if info.role == "gateway":
            self._was_gone.add(info.boot)
            self._follow(self.table.purge(info.boot))
            if self._relays is None:
                self.broker.gateway_gone(f"{info.boot:x}")

    def _come(self, info: PeerInfo) -> None:
        """One that was taken for dead and is not: what it has is asked for again."""
        if info.role == "gateway" and info.boot in self._was_gone:
            self._was_gone.discard(info.boot)
            for sink in self.replica.sinks.values():
                sink.ask()

    # Talk.

    def _talk(self, proxy: int, talk: Talk) -> None:
        counts = self._brokers.counts
        if talk.room >= PROBE_ROOMS_BEGIN:
            talk = talk._replace(body=self._endpoint.stamp("broker", talk.body))
        if not self.replica.life.takes_work:
            self.early += 1
            self._decline(proxy, talk, "not_running")
        elif not owns(self._partition, talk.room, counts.kept_count):
            self.foreign += 1
            declined = Declined(talk.publisher, talk.message_id, "not_owner", RETRY_MS, counts.count, counts.version)
            self._endpoint.send(proxy, declined)
        elif talk.is_reliable:
            self._reliable(proxy, talk)
        elif self._is_in_order(talk):
            self.broker.passed_on(talk.room, talk.message_id, talk.body, is_reliable=False)
        else:
            self.late += 1

    def _reliable(self, proxy: int, talk: Talk) -> None:
        message_id, now_ms = talk.message_id, self._clock.monotonic_us() // 1000
        if self._done.has(message_id, talk.room, now_ms):
            self._confirm(proxy, talk.publisher, talk.room, message_id)
            return
        try:
            is_heard = self.broker.passed_on(talk.room, message_id, talk.body, is_reliable=True)
        except Overloaded as error:
            self._decline(proxy, talk, error.code, error.retry_after_ms)
            return
        if not is_heard:  # nobody is there: everyone has it
            self._confirm(proxy, talk.publisher, talk.room, message_id)
            return
        waiting = self._waiting.setdefault((talk.room, message_id), [])
        if (proxy, talk.publisher) not in waiting:
            waiting.append((proxy, talk.publisher))
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)

    def _settled(self, messages: list[tuple[int, int]]) -> None:
        now_ms = self._clock.monotonic_us() // 1000
        for room, message_id in messages:
            self._done.mark(message_id, room, now_ms)
            for proxy, publisher in self._waiting.pop((room, message_id), ()):
                self._confirm(proxy, publisher, room, message_id)

    def _confirm(self, proxy: int, publisher: int, room: int, message_id: int) -> None:
        """Every gateway has it."""
        ids = (message_id,)
        self._endpoint.send(proxy, SliceSettled(publisher, room, ids) if is_slice(room) else Settled(publisher, ids))

    def _decline(self, proxy: int, talk: Talk, code: str, retry_after_ms: int = RETRY_MS) -> None:
        self._endpoint.send(proxy, Declined(talk.publisher, talk.message_id, code, retry_after_ms, 0, 0))

    def _is_in_order(self, talk: Talk) -> bool:
        key = (talk.publisher, talk.room)
        last = self._order.pop(key, 0)
        self._order[key] = max(last, talk.message_id)
        if len(self._order) > ORDER_MAX:
            self._order.popitem(last=False)
        return talk.message_id > last

    def _acked(self, boot: int, message: RoomAck) -> None:
        place = f"{boot:x}"
        if self._relays is not None:
            info = self._relays.peers.get(boot)
            if info is None:
                return
            place = f"{RELAY}{info.partition}"
        self.broker.acked(place, message.ack)

    def _push(self, gateway: str, frames: list[Frame]) -> None:
        if self._relays is None:
            boot = int(gateway, 16)
            if boot not in self._gateways.peers:
                self._look_for_gateways()
        else:
            usable = self._relays.usable(int(gateway.removeprefix(RELAY)))
            if not usable:
                self.no_relay += len(frames)
                return
            boot = replica_of(self._endpoint.boot, usable)
        for frame in frames:
            self._endpoint.send(boot, RoomFrame(frame), Priority.CHAT)

    def _look_for_gateways(self) -> None:
        """Routers know one that the registry's hint has not told of, or told late: nobody there would hear anything."""
        now_ms = self._clock.monotonic_us() // 1000
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._directory.refresh("gateway")


class _NoRoutes:
    """``Routes`` for a broker whose routes are in a ``RouteTable`` beside it."""

    def enter(self, room: int, route: Route) -> bool:
        return True

    def leave(self, room: int, session_id: int, version: int) -> bool:
        return True

    def of(self, room: int) -> list[Route]:
        return []

    def count(self, room: int) -> int:
        return 0

    def drop_gateway(self, gateway: str) -> int:
        return 0
