"""The life of a replica that keeps routes: register, load, replay, run, drain (broker, router, relay).

To miss nothing between registering and running, a replica does not hope to be noticed in time (E8). It subscribes to
every source of news that its partition needs, waits until each has said from where on it sends, takes a snapshot that
reaches at least as far, and replays what it has queued since::

    Down ─▶ Registering ─▶ Init ─────▶ Loading ─────▶ Replaying ─▶ Running ─▶ Draining ─▶ Down
              register     subscribe    snapshot at      queue        serve     let others
              as Init      to sources   their positions  in order               see it first

News is queued until the replay and applied from then on; work is refused with the state until Running; heartbeats are
answered in every state. A lost registry session costs a new number, never the data.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Apply",
    "Command",
    "Leave",
    "Lifecycle",
    "Load",
    "Phase",
    "Register",
    "SetRunning",
    "Subscribe",
]

News = TypeVar("News")
QUEUE_MAX = 1_000_000
"""News that a replica queues while it loads. At the bound it begins to load again: the next snapshot has all of it."""


class Phase(Enum):
    """Where a replica stands."""

    DOWN = "Down"
    REGISTERING = "Registering"
    INIT = "Init"
    LOADING = "Loading"
    REPLAYING = "Replaying"
    RUNNING = "Running"
    DRAINING = "Draining"


class Register(NamedTuple):
    """Register in the registry, as this state."""

    state: str


class Subscribe(NamedTuple):
    """Ask these sources for their news, and for the position from which it comes; and no others any more."""

    sources: frozenset[str]


class Load(NamedTuple):
    """Read a snapshot that has everything up to these positions, by source."""

    positions: dict[str, int]
    attempt: int
    """Comes back with the snapshot: older ones are not taken."""


class Apply(NamedTuple, Generic[News]):
    """Apply news, in this order."""

    news: list[News]


class SetRunning(NamedTuple):
    """Say in the registry that work may come."""


class Leave(NamedTuple):
    """Remove the registration."""


Command = Register | Subscribe | Load | Apply[News] | SetRunning | Leave


class Lifecycle(Generic[News]):
    """One replica. Events in, commands out."""

    def __init__(self, sources: Iterable[str], *, queue_max: int = QUEUE_MAX) -> None:
        """``sources`` are who must send their news: all router partitions that carry this partition's rooms."""
        self.phase = Phase.DOWN
        self.replica: int | None = None
        self._sources = frozenset(sources)
        self._positions: dict[str, int] = {}
        self._queue: list[News] = []
        self._queue_max = queue_max
        self._attempt = 0
        self._is_registered = False

    @property
    def takes_work(self) -> bool:
        """May it be given work? One that drains finishes what still comes."""
        return self.phase in (Phase.RUNNING, Phase.DRAINING)

    def start(self) -> list[Command[News]]:
        """Begin."""
        assert self.phase is Phase.DOWN, "started already"
        self.phase = Phase.REGISTERING
        return [Register("Init")]

    def registered(self, replica: int) -> list[Command[News]]:
        """The registry has given it a number. After a lost session it is another one, and the data stays."""
        if self.phase is Phase.DOWN:
            return [Leave()]
        self.replica = replica
        self._is_registered = True
        if self.phase is Phase.REGISTERING:
            return self._begin()
        return []

    def session_lost(self) -> list[Command[News]]:
        """The registration is gone. It registers again as what it is, and goes on with what it has."""
        if self.phase is Phase.DOWN:
            return []
        self._is_registered = False
        self.replica = None
        return [Register("Running" if self.phase is Phase.RUNNING else "Init")]

    def sources_changed(self, sources: Iterable[str]) -> list[Command[News]]:
        """Others carry its rooms from now on: a count has doubled, a source has been replaced.

        While it runs the new source tells what was missed (by its numbers); before that the load begins again.
        """
        new = frozenset(sources)
        if new == self._sources:
            return []
        self._sources = new
        if self.phase in (Phase.INIT, Phase.LOADING, Phase.REPLAYING):
            return self._begin()
        if self.phase is Phase.RUNNING:
            return [Subscribe(new)]
        return []

    def subscribed(self, source: str, position: int) -> list[Command[News]]:
        """A source sends from this position on. When all do, the snapshot can be taken."""
        if self.phase is not Phase.INIT or source not in self._sources:
            return []
        self._positions[source] = position
        if len(self._positions) < len(self._sources):
            return []
        self.phase = Phase.LOADING
        return [Load(dict(self._positions), self._attempt)]

    def heard(self, news: News) -> list[Command[News]]:
        """News has come: queued until everything before it is there."""
        if self.phase in (Phase.RUNNING, Phase.DRAINING):
            return [Apply([news])]
        if self.phase in (Phase.DOWN, Phase.REGISTERING):
            return []
        self._queue.append(news)
        if len(self._queue) > self._queue_max:
            return self._begin()
        return []

    def loaded(self, attempt: int) -> list[Command[News]]:
        """The snapshot is in. What was queued comes after it."""
        if self.phase is not Phase.LOADING or attempt != self._attempt:
            return []
        self.phase = Phase.REPLAYING
        queue, self._queue = self._queue, []
        return [Apply(queue)] if queue else self.applied()

    def load_failed(self, attempt: int) -> list[Command[News]]:
        """No snapshot: begin again, with what the sources say then."""
        return self._begin() if self.phase is Phase.LOADING and attempt == self._attempt else []

    def applied(self) -> list[Command[News]]:
        """Everything handed out so far is applied. What came meanwhile is next; then it runs."""
        if self.phase is not Phase.REPLAYING:
            return []
        if self._queue:
            queue, self._queue = self._queue, []
            return [Apply(queue)]
        self.phase = Phase.RUNNING
        return [SetRunning()]

    def drain(self) -> list[Command[News]]:
        """Leave in order: others see it first, and send nothing new. ``drained`` comes when they had the time."""
        if self.phase is not Phase.RUNNING:
            return self.stop()
        self.phase = Phase.DRAINING
        return [Register("Draining")]

    def stop(self) -> list[Command[News]]:
        """It is over."""
        was, self.phase = self.phase, Phase.DOWN
        self._queue = []
        return [] if was is Phase.DOWN else [Leave()]

    def _begin(self) -> list[Command[News]]:
        """Subscribe anew. What is queued stays: positions only rise, and applying twice changes nothing."""
        self.phase = Phase.INIT
        self._attempt += 1
        self._positions = {}
        if len(self._queue) > self._queue_max:
            self._queue = []
        if not self._sources:
            self.phase = Phase.LOADING
            return [Load({}, self._attempt)]
        return [Subscribe(self._sources)]
