"""The life of a replica that keeps routes, as routers and brokers have it: ``Lifecycle`` with its hands.

It registers, subscribes to every source that its partition needs, takes a snapshot of each, applies what came
meanwhile, and only then says Running (E8, E9). Afterwards it keeps its sources: one that has changed, or from which
something is missing, is asked for all of it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.lifecycle import Apply, Leave, Lifecycle, Load, Phase, Register, SetRunning, Subscribe
from pixiu.machines.links.messages import News, Reach, Routes
from pixiu.machines.links.news import NewsRules, NewsSink
from pixiu.machines.view import PeerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.endpoint import Endpoint
    from pixiu.links.member import Member
    from pixiu.machines.lifecycle import Command
    from pixiu.machines.links.messages import StreamKey
    from pixiu.machines.links.news import Snapshot
    from pixiu.machines.routes import Digest, RouteRow
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Replica"]

log = logging.getLogger(__name__)

TICK_MS = 100


class Replica:
    """One replica and its sources."""

    def __init__(
        self,
        member: Member,
        endpoint: Endpoint,
        clock: Clock,
        scheduler: Scheduler,
        *,
        wanted: Callable[[], dict[int, StreamKey] | None],
        apply: Callable[[list[RouteRow]], object],
        merge: Callable[[int, Snapshot], object],
        digest: Callable[[int, StreamKey], Digest],
        rules: NewsRules | None = None,
    ) -> None:
        """``wanted`` names the sources by boot id, None while that is not known; the others do what they say."""
        self.life: Lifecycle[list[RouteRow]] = Lifecycle([])
        self.sinks: dict[int, NewsSink] = {}
        self.stray: Callable[[int], StreamKey | None] = lambda _boot: None
        """Asked of a source that speaks without being wanted: which stream it would be, or None."""
        self.when_running: Callable[[], object] = lambda: None
        self._member = member
        self._endpoint = endpoint
        self._clock = clock
        self._scheduler = scheduler
        self._wanted = wanted
        self._apply = apply
        self._merge = merge
        self._digest = digest
        self._rules = rules or NewsRules()
        self._attempt = -1
        self._named: dict[int, StreamKey] = {}
        self._names: frozenset[str] = frozenset()
        self._loading: set[int] = set()
        self._timer: Timer | None = None
        member.registered = lambda replica: self._run(self.life.registered(replica))
        member.session_lost = lambda: self._run(self.life.session_lost())
        endpoint.on(News, self._news)
        endpoint.on(Reach, self._reach)
        endpoint.on(Routes, self._routes)

    def start(self) -> None:
        """Begin: as soon as it is known who is needed."""
        self._tick()

    def drain(self) -> None:
        """Others see it first; ``stop`` comes when they had the time."""
        self._run(self.life.drain())

    def stop(self) -> None:
        """It is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._run(self.life.stop())

    def look(self) -> None:
        """Who is needed may have changed."""
        wanted = self._wanted()
        if wanted is None:
            return
        for boot, key in wanted.items():
            sink = self.sinks.get(boot)
            if sink is None or sink.key != key:
                self.sinks[boot] = NewsSink(key, self._rules)
        for boot in [boot for boot in self.sinks if boot not in wanted]:
            del self.sinks[boot]
        if wanted != self._named:
            self._named, self._names = wanted, frozenset(_name(boot, key) for boot, key in wanted.items())
        names = self._names
        if self.life.phase is Phase.DOWN and self._attempt < 0:
            self._attempt = 0
            self.life.sources_changed(names)
            self._run(self.life.start())
        else:
            self._run(self.life.sources_changed(names))
            self._loaded()

    # What sources say.

    def _news(self, boot: int, news: News) -> None:
        sink = self._sink(boot, news.key)
        rows = sink.news(news) if sink is not None else []
        if rows:
            self._run(self.life.heard(rows))

    def _reach(self, boot: int, reach: Reach) -> None:
        sink = self._sink(boot, reach.key)
        if sink is not None:
            # What is queued is not in the table yet, so until it runs there is nothing to compare.
            sink.reach(reach, self._digest(boot, reach.key) if self.life.takes_work else reach.digest)
            self._run(self.life.subscribed(_name(boot, sink.key), reach.position))
            self._say(boot, sink)

    def _routes(self, boot: int, routes: Routes) -> None:
        sink = self._sink(boot, routes.key)
        snapshot = sink.page(routes) if sink is not None else None
        if snapshot is not None:
            self._merge(boot, snapshot)
            self._loading.discard(boot)
            self._loaded()

    def _sink(self, boot: int, key: StreamKey) -> NewsSink | None:
        sink = self.sinks.get(boot)
        if sink is None:
            wanted = self.stray(boot)
            if wanted is not None:
                sink = self.sinks[boot] = NewsSink(wanted, self._rules)
        return sink if sink is not None and sink.key == key else None

    def _loaded(self) -> None:
        """All that is needed is here."""
        if self.life.phase is Phase.LOADING and not self._loading & self.sinks.keys():
            self._run(self.life.loaded(self._attempt))

    # What the life wants.

    def _run(self, commands: list[Command[list[RouteRow]]]) -> None:
        for command in commands:
            if isinstance(command, Register):
                self._register(command.state)
            elif isinstance(command, Subscribe):
                for boot, sink in self.sinks.items():
                    self._say(boot, sink)
            elif isinstance(command, Load):
                self._attempt = command.attempt
                self._loading = {
                    boot for boot, sink in self.sinks.items() if _name(boot, sink.key) in command.positions
                }
                for boot in self._loading:
                    self.sinks[boot].ask()
                    self._say(boot, self.sinks[boot])
                self._loaded()
            elif isinstance(command, Apply):
                for rows in command.news:
                    self._apply(rows)
                self._run(self.life.applied())
            elif isinstance(command, SetRunning):
                self._set_state(PeerState.RUNNING)
                log.info("running", extra={"role": self._member.role, "partition": self._member.partition})
                self.when_running()
            elif isinstance(command, Leave):
                self._member.leave(lambda: None)

    def _register(self, state: str) -> None:
        """The machine registers for a state; an entry that is there is changed."""
        self._set_state(PeerState(state))
        if not self._member.path:
            self._member.register()

    def _set_state(self, state: PeerState) -> None:
        self._endpoint.state = state
        self._member.set_state(state)

    def _tick(self) -> None:
        self._timer = self._scheduler.after(TICK_MS, self._tick)
        self.look()
        for boot, sink in self.sinks.items():
            self._say(boot, sink)

    def _say(self, boot: int, sink: NewsSink) -> None:
        for message in sink.due(self._clock.monotonic_us() // 1000):
            self._endpoint.send(boot, message)


def _name(boot: int, key: StreamKey) -> str:
    return f"{boot:x} {key.name}"
