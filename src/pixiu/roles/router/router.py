"""One router replica: it knows who is in the rooms of its partition, and tells brokers.

Gateways are the truth. Every replica subscribes to every gateway, for the rooms of its partition, and to each of them
it is a receiver like any other: what is missing is asked for, what differs is found by digests. So replicas need not
forward to each other, and a router that starts loads from the gateways themselves, not from a store that may lag (E9).

Brokers subscribe with their partition and how many there are, so clusters of brokers with different counts can ask the
same routers. A gateway that is gone from the registry, and silent, is gone with everyone in it (E10).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.links.replica import Replica
from pixiu.machines.links.messages import FROM_GATEWAY, TO_BROKER, AskRoutes, StreamKey, Want
from pixiu.machines.links.news import NewsRules, NewsSource, by_count, flushed, sources_of
from pixiu.machines.routes import RouteTable
from pixiu.model.partitions import owns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.links.directory import Directory, PeerInfo
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.member import Member
    from pixiu.machines.links.news import ByCount, Snapshot
    from pixiu.machines.routes import Digest, RouteRow
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["Router"]

log = logging.getLogger(__name__)

STREAMS_MAX = 4_096
"""Streams to brokers: one for each partition and count that asks. Those that nobody reads go first."""


class Router:
    """One replica of one partition."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        member: Member,
        clock: Clock,
        scheduler: Scheduler,
        *,
        new_life: Callable[[], int],
        patience_ms: int = 5_000,
        rules: NewsRules | None = None,
    ) -> None:
        """``new_life`` gives numbers that rise, also from one start to the next.

        ``patience_ms``: so long a start waits for a gateway that is listed and says nothing.
        """
        self.table = RouteTable()
        self._endpoint = endpoint
        self._clock = clock
        self._scheduler = scheduler
        self._directory = directory
        self._partition = member.partition
        self._new_life = new_life
        self._patience_ms = patience_ms
        self._rules = rules or NewsRules()
        self._since_ms: int | None = None
        self._streams: dict[StreamKey, NewsSource] = {}
        self._by_count: ByCount = {}  # the same
        self._is_near = False
        self._gateways = directory.follow("gateway")
        self._routers = directory.follow("router")
        self.replica = Replica(
            member, endpoint, clock, scheduler,
            wanted=self._sources, apply=self._applied, merge=self._merged,
            digest=lambda boot, _key: self.table.digest_of(boot), rules=self._rules,
        )  # fmt: skip
        self.replica.stray = self._stray
        directory.when_gone.append(self._gone)
        directory.when_changed.append(self.replica.look)
        endpoint.on(Want, self._want)
        endpoint.on(AskRoutes, self._ask)

    def start(self) -> None:
        """Begin."""
        self.replica.start()

    # Gateways.

    @property
    def _key(self) -> StreamKey:
        """The rooms of this partition: of a new one that is not counted yet, those of its twin (E18)."""
        count = self._routers.counts.kept_count
        return StreamKey(FROM_GATEWAY, self._partition % count, count)

    def _sources(self) -> dict[int, StreamKey] | None:
        if not self._directory.is_read:
            return None
        now_ms = self._clock.monotonic_us() // 1000
        if self._routers.counts.cleans(now_ms):
            self.table.keep(self._partition, self._routers.counts.count)  # untold: they have moved, nobody has left
        if self._since_ms is None:
            self._since_ms = now_ms
        for gateway in self.table.gateways():
            if gateway not in self._gateways.peers:  # it died while what it had said was still queued
                self.table.purge(gateway)
        is_patient = now_ms - self._since_ms < self._patience_ms
        usable = set(self._gateways.usable())
        key = self._key
        needed = self._gateways.known() if is_patient else [boot for boot in self._gateways.known() if boot in usable]
        return dict.fromkeys({*needed, *(boot for boot in self.replica.sinks if boot in self._gateways.peers)}, key)

    def _stray(self, boot: int) -> StreamKey | None:
        """A gateway speaks that is not known: the registry's hint was lost, or is late. Look."""
        if boot in self._gateways.peers:
            return self._key
        self._directory.refresh("gateway")
        return None

    def _gone(self, info: PeerInfo) -> None:
        if info.role == "gateway":
            # Brokers are not told: they see it themselves, and should it come back, its rows have the same versions.
            self.replica.sinks.pop(info.boot, None)
            self.table.purge(info.boot)

    def _applied(self, rows: list[RouteRow]) -> None:
        count = self._routers.counts.kept_count
        mine = [row for row in rows if owns(self._partition, row.room, count)]
        self._tell([changed for row in mine for changed in self.table.apply(row)])

    def _merged(self, boot: int, snapshot: Snapshot) -> None:
        key = self._key
        changed = self.table.snapshot(snapshot.rows, snapshot.marks, key.partition, key.partitions)
        self._tell(sorted(changed, key=lambda row: row.version))

    # Brokers.

    def _tell(self, rows: Iterable[RouteRow]) -> None:
        """What has changed goes to every stream that has the room."""
        for row in rows:
            for stream in sources_of(self._by_count, row.room):
                stream.tell(row)
        if self._streams and not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._flush)

    def _flush(self) -> None:
        self._is_near = False
        for boot, news in flushed(self._streams.values(), self._clock.monotonic_us() // 1000):
            self._endpoint.send(boot, news)

    def _want(self, boot: int, want: Want) -> None:
        if want.key.kind == TO_BROKER and self.replica.life.takes_work:
            self._flush()
            stream, now_ms = self._stream(want.key), self._clock.monotonic_us() // 1000
            for message in stream.wanted(boot, want, self._digest(want.key), now_ms):
                self._endpoint.send(boot, message)

    def _ask(self, boot: int, ask: AskRoutes) -> None:
        if ask.key.kind == TO_BROKER and self.replica.life.takes_work:
            self._flush()
            rows = list(self.table.rows(ask.key.partition, ask.key.partitions))
            marks = [(gateway, sink.marks.get(gateway, 0)) for gateway, sink in self.replica.sinks.items()]
            for page in self._stream(ask.key).pages(ask, rows, marks):
                self._endpoint.send(boot, page)

    def _stream(self, key: StreamKey) -> NewsSource:
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= STREAMS_MAX:
                now_ms = self._clock.monotonic_us() // 1000
                self._streams = {key: each for key, each in self._streams.items() if each.sinks(now_ms)}
            stream = self._streams[key] = NewsSource(key, self._new_life(), self._rules)
            self._by_count = by_count(self._streams.values())
        return stream

    def _digest(self, key: StreamKey) -> Digest:
        """Of the rooms that are its own by the newest count: in a grace it has more, and so may others."""
        count = self._routers.counts.count
        return self.table.digest(key.partition, key.partitions, of=(self._partition % count, count))
