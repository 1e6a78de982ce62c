"""Who else is there: what the registry lists of some roles, held against their heartbeats.

A watch of the registry is a hint to read again, and the same is read every ``poll_ms``, so a hint that never comes
costs time and nothing else (M1). Heartbeats go to every instance; ``View`` decides who is usable (table 2.4).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pixiu.links.member import CLEAN_AT, COUNT_KEY
from pixiu.machines.links.messages import Beat, BeatBack
from pixiu.machines.split import Counts, SplitPhase
from pixiu.machines.view import Instance, PeerState, View, ViewRules
from pixiu.model.errors import PixiuError
from pixiu.ports.registry import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.endpoint import Endpoint
    from pixiu.ports.clock import Clock
    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Directory", "DirectoryRules", "PeerInfo", "RoleView"]

log = logging.getLogger(__name__)

TICKS_PER_BEAT = 4
REFRESH_MS = 50


class DirectoryRules(NamedTuple):
    """Times, in milliseconds."""

    view: ViewRules = ViewRules()
    poll_ms: int = 60_000
    grace_ms: int = 180_000
    """How long a partition keeps what has moved away from it."""


class PeerInfo(NamedTuple):
    """What the registry says of an instance."""

    role: str
    partition: int
    replica: int
    boot: int
    address: str
    name: str
    big: int = 0
    """Of a gateway: it has joined the big rooms of this many versions of their record."""


class RoleView:
    """The instances of one role, by partition. A role whose instances are all alike (proxy, gateway) has one, 0."""

    def __init__(self, role: str, rules: DirectoryRules, clock: Clock) -> None:
        self.role = role
        self.counts = Counts(grace_ms=rules.grace_ms)
        self.is_read = False
        self.peers: dict[int, PeerInfo] = {}
        """By boot id, everyone who is known: listed, or heard from until a moment ago."""
        self._rules = rules
        self._clock = clock
        self._views: dict[int, View] = {}
        self._boots: dict[tuple[int, int], int] = {}
        self._keys: dict[int, list[tuple[int, int]]] = {}
        self._usable: dict[int, tuple[int, list[int]]] = {}
        self._swept = -1

    @property
    def stamp(self) -> int:
        """Another number whenever somebody else may be known or usable."""
        return sum([view.stamp for view in self._views.values()])

    def usable(self, partition: int = 0) -> list[int]:
        """The boot ids of those who may get work, by their replica numbers (X05). The list is not to be changed."""
        view = self._views.get(partition)
        if view is None:
            return []
        found = self._usable.get(partition)
        if found is None or found[0] != view.stamp:
            boots = [self._boots[partition, replica] for replica in view.usable()]
            found = self._usable[partition] = (view.stamp, boots)
        return found[1]

    def known(self, partition: int = 0) -> list[int]:
        """The boot ids of all, those who are still starting included."""
        view = self._views.get(partition)
        return [] if view is None else [self._boots[partition, replica] for replica in view.known()]

    @property
    def partitions(self) -> list[int]:
        """Partitions with at least one instance."""
        return sorted(partition for partition, view in self._views.items() if view.known())

    def weights(self, partition: int = 0) -> dict[int, float]:
        """Shares of the usable ones, by boot id."""
        view = self._views.get(partition)
        if view is None:
            return {}
        weights = view.weights(self._clock.monotonic_us() / 1000)
        return {self._boots[partition, replica]: weight for replica, weight in weights.items()}

    def cheaper(self, one: int, other: int, in_flight: dict[int, int]) -> int:
        """Of two usable ones, given by boot id, the one that has less to do and does it faster."""
        costs = [(self.cost(boot, in_flight.get(boot, 0)), boot) for boot in (one, other)]
        return min(costs)[1]

    def cost(self, boot: int, in_flight: int = 0) -> float:
        """How dear it is to give one work."""
        info = self.peers.get(boot)
        view = self._views.get(info.partition) if info is not None else None
        peer = view.peer(info.replica) if view is not None and info is not None else None
        return float("inf") if peer is None else peer.cost(in_flight)

    def rows(self) -> list[dict[str, object]]:
        """What is known of each, for people."""
        found: list[dict[str, object]] = []
        for partition, view in sorted(self._views.items()):
            for replica in view.known():
                peer, info = view.peer(replica), self.peers[self._boots[partition, replica]]
                assert peer is not None
                found.append({
                    "role": self.role, "partition": partition, "replica": replica, "name": info.name,
                    "address": info.address, "state": peer.instance.state.value, "standing": peer.standing.value,
                    "success": round(peer.success, 3), "rtt_ms": round(peer.rtt_ms, 3),
                })  # fmt: skip
        return found

    # What the directory tells.

    def listed(self, folder: Folder, now_ms: float) -> tuple[list[PeerInfo], list[PeerInfo]]:
        """What the registry lists. Returns who has come and who is gone."""
        instances: dict[int, dict[int, Instance]] = {partition: {} for partition in self._views}
        fresh: dict[int, PeerInfo] = {}
        count, version, grace_left_ms = self.counts.count, self.counts.version, 0
        for path, entry in folder.items():
            if path == "partition_num":
                given = entry.data.get(COUNT_KEY)
                count, version = (given, entry.version) if isinstance(given, int) else (count, version)
                clean_at_ms = entry.data.get(CLEAN_AT)
                grace_left_ms = clean_at_ms - self._clock.now_ms() if isinstance(clean_at_ms, int) else 0
                continue
            info = self._info(path, entry.data)
            if info is None:
                continue
            fresh[info.boot] = max(fresh.get(info.boot, info), info, key=lambda each: each.replica)
            instance = Instance(info.address, PeerState(entry.data["state"]))
            instances.setdefault(info.partition, {})[info.replica] = instance
            self._boots[info.partition, info.replica] = info.boot
        for partition, listed in instances.items():
            if partition not in self._views:
                self._views[partition] = View(self._rules.view)
            self._views[partition].listed(listed, now_ms)
        self.is_read = True
        try:
            self.counts.seen(count, version, list(instances), int(now_ms), grace_left_ms=grace_left_ms)
        except ValueError as error:
            log.error("a partition count makes no sense", extra={"role": self.role, "reason": str(error)})
        come = [info for boot, info in fresh.items() if boot not in self.peers]
        self.peers.update(fresh)
        return come, self.sweep()

    def sweep(self) -> list[PeerInfo]:
        """Forget those whom no view knows any more. Returns them."""
        stamp = self.stamp
        if stamp == self._swept:
            return []
        self._swept = stamp
        live = [(partition, replica) for partition, view in self._views.items() for replica in view.known()]
        if len(live) == len(self._boots) and len(self._keys) == len(self.peers):
            return []
        self._boots = {key: self._boots[key] for key in live}
        self._keys = {}
        for key, boot in self._boots.items():
            self._keys.setdefault(boot, []).append(key)
        gone = [info for boot, info in self.peers.items() if boot not in self._keys]
        for info in gone:
            del self.peers[info.boot]
        return gone

    def due(self, now_ms: float) -> list[tuple[int, int]]:
        """Heartbeats to send now: boot id and number."""
        return [
            (self._boots[partition, replica], number)
            for partition, view in self._views.items()
            for replica, number in view.due(now_ms)
            if (partition, replica) in self._boots
        ]

    def replied(self, boot: int, back: BeatBack, now_ms: float) -> bool:
        """A heartbeat was answered. True if somebody is usable now who was not.

        A process may be listed twice for a moment, while the entry of its old session has not gone.
        """
        is_new = False
        for partition, replica in self._keys.get(boot, ()):
            view = self._views[partition]
            peer = view.peer(replica)
            was_usable = peer is not None and peer.is_usable
            view.replied(replica, back.number, back.state, now_ms)
            is_new |= peer is not None and peer.is_usable != was_usable
        return is_new

    def registry_lost(self) -> None:
        """The list stays as it is."""
        for view in self._views.values():
            view.registry_lost()

    def _info(self, path: str, data: object) -> PeerInfo | None:
        """An entry as we need it; None for what is none."""
        folder, _, last = path.rpartition("/")
        try:
            assert isinstance(data, dict)
            partition = int(folder.removeprefix("partition"))
            boot = int(data["boot"], 16)
            PeerState(data["state"])
            name, big = str(data.get("name") or path), data.get("big")
            big = big if isinstance(big, int) else 0
            return PeerInfo(self.role, partition, int(last), boot, str(data["address"]), name, big)
        except (ValueError, KeyError, TypeError, AssertionError):
            return None


class Directory:
    """Follows some roles."""

    def __init__(
        self,
        registry: Registry,
        endpoint: Endpoint,
        clock: Clock,
        scheduler: Scheduler,
        root: str,
        rules: DirectoryRules,
    ) -> None:
        self.when_come: list[Callable[[PeerInfo], object]] = []
        self.when_gone: list[Callable[[PeerInfo], object]] = []
        self.when_changed: list[Callable[[], object]] = []
        """Something is different: who is there, who is usable, how many partitions there are."""
        self._registry = registry
        self._endpoint = endpoint
        self._clock = clock
        self._scheduler = scheduler
        self._root = root
        self._rules = rules
        self._roles: dict[str, RoleView] = {}
        self._timer: Timer | None = None
        self._is_stopped = False
        self._shape: object = None
        self._stamps: list[tuple[int, SplitPhase, int]] = []
        self._refreshed: set[str] = set()
        endpoint.on(BeatBack, self._replied)
        registry.when_session(self._session)

    def follow(self, role: str) -> RoleView:
        """Know this role from now on."""
        if role not in self._roles:
            self._roles[role] = RoleView(role, self._rules, self._clock)
        return self._roles[role]

    def start(self) -> None:
        """Read, watch, poll and send heartbeats."""
        for role in self._roles:
            self._registry.watch(f"{self._root}/{role}", lambda role=role: self._read(role))  # type: ignore[misc]
            self._poll(role)
        self._tick()

    def stop(self) -> None:
        """No more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def refresh(self, role: str) -> None:
        """Somebody knows better: read again, soon."""
        if role not in self._refreshed:
            self._refreshed.add(role)
            self._scheduler.after(REFRESH_MS, partial(self._refresh, role))

    def _refresh(self, role: str) -> None:
        self._refreshed.discard(role)
        self._read(role)

    @property
    def is_read(self) -> bool:
        """Has every role been read once?"""
        return all(role.is_read for role in self._roles.values())

    def rows(self) -> list[dict[str, object]]:
        """Everyone, for people."""
        return [row for role in self._roles.values() for row in role.rows()]

    # Steps.

    def _now_ms(self) -> float:
        return self._clock.monotonic_us() / 1000

    def _poll(self, role: str) -> None:
        if not self._is_stopped:
            self._read(role)
            self._scheduler.after(self._rules.poll_ms, lambda: self._poll(role))

    def _read(self, role: str) -> None:
        if not self._is_stopped:
            self._registry.read(f"{self._root}/{role}", lambda found: self._found(role, found))

    def _found(self, role: str, found: Folder | PixiuError) -> None:
        view = self._roles[role]
        if self._is_stopped:
            return
        if isinstance(found, PixiuError):
            view.registry_lost()
            self._scheduler.after(self._rules.view.heartbeat_ms, lambda: None if view.is_read else self._read(role))
            return
        come, gone = view.listed(found, self._now_ms())
        for info in view.peers.values():
            self._endpoint.know(info.boot, info.address)
        for info in come:
            log.info("a peer has come", extra={"peer": info.name, "address": info.address})
            for call in self.when_come:
                call(info)
        self._gone(gone)
        self._beat(view)
        self._look()

    def _gone(self, gone: list[PeerInfo]) -> None:
        for info in gone:
            log.info("a peer is gone", extra={"peer": info.name, "address": info.address})
            self._endpoint.forget(info.boot)
            for call in self.when_gone:
                call(info)

    def _tick(self) -> None:
        if self._is_stopped:
            return
        for view in self._roles.values():
            self._beat(view)
            self._gone(view.sweep())
        self._look()
        self._timer = self._scheduler.after(self._rules.view.heartbeat_ms / TICKS_PER_BEAT, self._tick)

    def _beat(self, view: RoleView) -> None:
        for boot, number in view.due(self._now_ms()):
            self._endpoint.send(boot, Beat(number))

    def _replied(self, boot: int, back: BeatBack) -> None:
        for view in self._roles.values():
            if boot in view.peers:
                if view.replied(boot, back, self._now_ms()):
                    self._look()
                return

    def _look(self) -> None:
        """Tell of changes, if there are any."""
        stamps = [(view.counts.count, view.counts.phase, view.stamp) for view in self._roles.values()]
        if stamps == self._stamps:
            return
        self._stamps = stamps
        shape = [
            (role, view.counts.count, view.counts.phase, [(each, view.usable(each)) for each in view.partitions])
            for role, view in self._roles.items()
        ]
        if shape != self._shape:
            self._shape = shape
            for call in self.when_changed:
                call()

    def _session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            for role in self._roles:
                self._read(role)
        else:
            for view in self._roles.values():
                view.registry_lost()
