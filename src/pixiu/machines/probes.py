"""Probes: messages of nobody that go every way there is, and what they say of it.

A *path* is a proxy, a partition of the brokers, and which of its replicas (the first, second, … that the proxy prefers
for a room). A probe on each of them goes out on a timer, is stamped by everyone who handles it, and comes back to who
sent it. One that does not come back in time is a failure of its path; several in a row are an alarm.

An alarm names what is broken: a proxy or a broker, if every path through it fails and those around it do not; the way
between the two, if only that fails; or everything.

Times are the sender's own: from when a probe left to when it was back. What each process kept it is the difference of
two readings of that process's clock. Clocks of two machines are never compared (E48).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.metric import quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PROBE_ROLES", "Alarm", "Hop", "Path", "ProbeRules", "Probes", "read_probe", "stamped", "write_probe"]

PROBE_ROLES = ("proxy", "broker", "relay")
PATHS_MAX = 4_096
"""Paths that are probed; more are left out, and counted."""
SAMPLES = 200
"""Of each path, the newest: their share of successes, and their times."""

_HEAD = Struct(">4sQQ")
_HOP = Struct(">BQQQI")
_MAGIC = b"PXPR"


class Path(NamedTuple):
    """One way through the cluster."""

    proxy: int
    partition: int
    copy: int
    """Which of the brokers that the proxy prefers."""


class Hop(NamedTuple):
    """What one process wrote into a probe."""

    role: str
    boot: int
    came_us: int
    left_us: int
    """By its own clock."""
    waiting: int
    """Messages that waited there."""


class Alarm(NamedTuple):
    """Something is broken."""

    kind: str
    """``proxy``, ``broker``, ``way`` (between the two) or ``all``."""
    proxy: int
    broker: int
    """0 where it is not about one."""
    paths: int
    """How many fail."""


class ProbeRules(NamedTuple):
    """Times in milliseconds."""

    interval_ms: int = 1_000
    late_ms: int = 500
    """A probe that is not back by then has failed."""
    failures: int = 3
    """So many in a row are an alarm."""


class _PathState:
    __slots__ = ("broker", "failures", "results", "times_ms")

    def __init__(self) -> None:
        self.broker = 0
        self.failures = 0
        self.results: deque[bool] = deque(maxlen=SAMPLES)
        self.times_ms: deque[float] = deque(maxlen=SAMPLES)


class Probes:
    """All paths. Time is an argument."""

    def __init__(self, rules: ProbeRules | None = None) -> None:
        self.rules = rules or ProbeRules()
        self.sent = 0
        self.came = 0
        self.lost = 0
        self.left_out = 0
        """Paths beyond the bound."""
        self._paths: dict[Path, _PathState] = {}
        self._under_way: OrderedDict[int, tuple[Path, float]] = OrderedDict()

    def known(self, paths: Iterable[Path]) -> None:
        """The paths that there are now."""
        found = sorted(set(paths))
        self.left_out = max(len(found) - PATHS_MAX, 0)
        found = found[:PATHS_MAX]
        self._paths = {path: self._paths.get(path) or _PathState() for path in found}

    @property
    def paths(self) -> list[Path]:
        """All that are probed."""
        return list(self._paths)

    def left(self, number: int, path: Path, now_ms: float) -> None:
        """A probe is on its way."""
        self.sent += 1
        self._under_way[number] = (path, now_ms)

    def back(self, number: int, hops: list[Hop], now_ms: float) -> None:
        """A probe is back; one that is known no more was late, or is a repeat."""
        found = self._under_way.pop(number, None)
        if found is None:
            return
        path, left_ms = found
        state = self._paths.get(path)
        if state is None:
            return
        self.came += 1
        state.failures = 0
        state.results.append(True)
        state.times_ms.append(now_ms - left_ms)
        brokers = [hop.boot for hop in hops if hop.role == "broker"]
        if brokers:
            state.broker = brokers[0]

    def look(self, now_ms: float) -> None:
        """Those that are late have failed."""
        while self._under_way:
            number, (path, left_ms) = next(iter(self._under_way.items()))
            if now_ms - left_ms < self.rules.late_ms:
                return
            del self._under_way[number]
            state = self._paths.get(path)
            if state is not None:
                self.lost += 1
                state.failures += 1
                state.results.append(False)

    def alarms(self) -> list[Alarm]:
        """What is broken now, the widest first."""
        bad = {path for path, state in self._paths.items() if state.failures >= self.rules.failures}
        if not bad:
            return []
        if len(bad) == len(self._paths):
            return [Alarm("all", 0, 0, len(bad))]
        found: list[Alarm] = []
        named: set[Path] = set()
        for proxy in sorted({path.proxy for path in bad}):
            mine = {path for path in self._paths if path.proxy == proxy}
            if mine <= bad:
                found.append(Alarm("proxy", proxy, 0, len(mine)))
                named |= mine
        for broker in sorted({self._paths[path].broker for path in bad - named}):
            mine = {path for path, state in self._paths.items() if state.broker == broker}
            if broker and mine - named <= bad:
                found.append(Alarm("broker", 0, broker, len(mine & bad)))
                named |= mine
        rest: dict[tuple[int, int], int] = {}
        for path in bad - named:
            way = (path.proxy, self._paths[path].broker)
            rest[way] = rest.get(way, 0) + 1
        return found + [Alarm("way", proxy, broker, count) for (proxy, broker), count in sorted(rest.items())]

    def rows(self) -> list[dict[str, object]]:
        """Every path: who is on it, its share of successes, its times in milliseconds."""
        return [
            {
                "proxy": path.proxy, "partition": path.partition, "copy": path.copy, "broker": state.broker,
                "probes": len(state.results),
                "success": round(sum(state.results) / len(state.results), 4) if state.results else None,
                "p50_ms": quantile_of(state.times_ms, 0.5), "p99_ms": quantile_of(state.times_ms, 0.99),
                "failing": state.failures >= self.rules.failures,
            }
            for path, state in self._paths.items()
        ]  # fmt: skip


def write_probe(boot: int, number: int) -> bytes:
    """A probe as it leaves."""
    return _HEAD.pack(_MAGIC, boot, number)


def stamped(body: bytes, hop: Hop) -> bytes:
    """A probe as it leaves somebody who has handled it."""
    return body + _HOP.pack(PROBE_ROLES.index(hop.role), hop.boot, hop.came_us, hop.left_us, hop.waiting)


def read_probe(body: bytes) -> tuple[int, int, list[Hop]] | None:
    """Who sent it, its number, and who has handled it; None if it is no probe."""
    try:
        magic, boot, number = _HEAD.unpack_from(body)
        if magic != _MAGIC:
            return None
        hops = []
        for role, *rest in _HOP.iter_unpack(body[_HEAD.size :]):
            hops.append(Hop(PROBE_ROLES[role], *rest))
    except (error, IndexError):
        return None
    return boot, number, hops
