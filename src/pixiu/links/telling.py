"""What a gateway tells others of its sessions: one table, numbered, to everyone who asks for a part of it.

Gateways have two: who is in which room, for routers; and who is here, for relays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.machines.links.messages import StreamKey
from pixiu.machines.links.news import NewsRules, NewsSource, by_count, flushed, sources_of
from pixiu.machines.routes import RouteTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.directory import RoleView
    from pixiu.links.endpoint import Endpoint
    from pixiu.machines.links.messages import AskRoutes, Want
    from pixiu.machines.links.news import ByCount
    from pixiu.machines.routes import RouteRow
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["Telling"]

AGAIN_MS = (10, 20)


class Telling:
    """One table of a gateway, and its streams of news."""

    def __init__(
        self,
        kind: int,
        endpoint: Endpoint,
        listeners: RoleView,
        clock: Clock,
        scheduler: Scheduler,
        *,
        new_life: Callable[[], int],
        rules: NewsRules,
    ) -> None:
        """``kind`` of its streams; ``listeners`` is the role that should ask for them."""
        self.table = RouteTable()
        self.kind = kind
        self.version = 0
        """Of the newest change."""
        self._endpoint = endpoint
        self._listeners = listeners
        self._clock = clock
        self._scheduler = scheduler
        self._new_life = new_life
        self._rules = rules
        self._streams: dict[StreamKey, NewsSource] = {}
        self._by_count: ByCount = {}  # the same
        self._is_near = False

    def next_version(self) -> int:
        """Of a change that is told now."""
        self.version += 1
        return self.version

    def tell(self, row: RouteRow, *, is_hedged: bool) -> None:
        """A change. ``is_hedged``: no later news would repair its loss soon, so it goes three times (X37)."""
        self.table.apply(row)
        for stream in sources_of(self._by_count, row.room):
            stream.tell(row)
            if is_hedged:
                number = stream.position
                for pause_ms in AGAIN_MS:
                    self._scheduler.after(pause_ms, partial(self._again, stream.key, number))
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._flush)

    def offer(self) -> None:
        """Those who are known here and have not asked may not know of this gateway yet."""
        now_ms = self._clock.monotonic_us() // 1000
        asked = {boot for stream in self._streams.values() for boot in stream.sinks(now_ms)}
        count = self._listeners.counts.count
        for boot, info in self._listeners.peers.items():
            if boot not in asked:
                key = StreamKey(self.kind, info.partition % count, count)
                self._endpoint.send(boot, self._stream(key).reach(self.table.digest(key.partition, count)))

    def want(self, boot: int, want: Want) -> None:
        """Somebody says what it has."""
        self._flush()
        digest = self.table.digest(want.key.partition, want.key.partitions)
        for message in self._stream(want.key).wanted(boot, want, digest, self._clock.monotonic_us() // 1000):
            self._endpoint.send(boot, message)

    def ask(self, boot: int, ask: AskRoutes) -> None:
        """Somebody needs all of it."""
        self._flush()
        rows = list(self.table.rows(ask.key.partition, ask.key.partitions))
        for page in self._stream(ask.key).pages(ask, rows, [(self._endpoint.boot, self.version)]):
            self._endpoint.send(boot, page)

    # Steps.

    def _flush(self) -> None:
        self._is_near = False
        for boot, news in flushed(self._streams.values(), self._clock.monotonic_us() // 1000):
            self._endpoint.send(boot, news)

    def _again(self, key: StreamKey, number: int) -> None:
        stream = self._streams.get(key)
        news = stream.numbered(number) if stream is not None else None
        if stream is not None and news is not None:
            for boot in stream.sinks(self._clock.monotonic_us() // 1000):
                self._endpoint.send(boot, news)

    def _stream(self, key: StreamKey) -> NewsSource:
        stream = self._streams.get(key)
        if stream is None:
            now_ms = self._clock.monotonic_us() // 1000
            self._streams = {each: source for each, source in self._streams.items() if source.sinks(now_ms)}
            stream = self._streams[key] = NewsSource(key, self._new_life(), self._rules)
            self._by_count = by_count(self._streams.values())
        return stream
