"""What goes wrong in a world of replicated journals, and how it all heals.

Single blows (a crash, a freeze, a cut link) and a few compound ones, named for the race they provoke: chance
alone would need thousands of seeds to line those up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import State
from pixiu.testing.replication.environment import SESSION_TIMEOUT_MS, TAKEOVER_MS
from pixiu.testing.simulated_registry import REGISTRY

if TYPE_CHECKING:
    from pixiu.testing.replication.environment import Blow
    from pixiu.testing.replication.process import SimulatedProcess
    from pixiu.testing.replication.world import World

__all__ = ["Nemesis"]

HOUR_MS = 3_600_000


class Nemesis:
    """Strikes a world as its script says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_healing = False

    def strike(self, blow: Blow) -> None:
        """One blow of the script."""
        names = list(self._world.nodes)
        hit = [names[index] for index in blow.nodes]
        node = self._world.nodes[hit[0]]
        self._world.note("blow", blow.kind, *hit)
        match blow.kind:
            case "crash":
                self.crash(node, blow.for_ms)
            case "crash-all":
                for each in self._world.nodes.values():
                    self.crash(each, blow.for_ms * self._world.rng.random())
            case "freeze":
                if node.is_up and not node.is_frozen:
                    node.freeze()
                    self._world.simulation.after(blow.for_ms, node.thaw)
            case "split":
                self._split(hit, [name for name in names if name not in hit], blow.for_ms, both_ways=True)
            case "deafen":
                self._split(hit, [name for name in names if name not in hit], blow.for_ms, both_ways=False)
            case "exile":
                self._split(hit, [REGISTRY], blow.for_ms, both_ways=self._world.rng.random() < 0.7)
            case "outage":
                self._split(names, [REGISTRY], blow.for_ms, both_ways=True)
            case "slow":
                node.slow_ms = self._world.rng.choice((100.0, 2_000.0))
                self._world.simulation.after(blow.for_ms, self._set, node, "slow_ms", 0.0)
            case "disk":
                node.flush_factor = 15.0
                self._world.simulation.after(blow.for_ms, self._set, node, "flush_factor", 1.0)
            case "trim":
                self._trim_all()
            case "reset":
                self._reset_streams()
            case "orphan":
                # One follower falls behind, and then the leader is gone.
                self._split(hit, [name for name in names if name not in hit], blow.for_ms, both_ways=True)
                self._world.simulation.after(blow.for_ms * 0.9, self._crash_leaders, blow.for_ms)
            case "strand":
                # One follower is away for so long that retention removes what it needs.
                self._split(hit, [name for name in names if name not in hit], 900 + blow.for_ms, both_ways=True)
                self._world.simulation.after(890 + blow.for_ms, self._trim_all)
            case "failover":
                self._world.operator.fail_over(blow.for_ms)
            case "pause":
                # The registry answers no request, then all of them; some sessions may be over by then.
                self._pause_registry(blow.for_ms)
            case "bereft":
                # A follower dies while the registry is away, so that no replica can remove it from the in-sync set.
                self._pause_registry(blow.for_ms)
                self._world.simulation.after(blow.for_ms * 0.2, self._crash_if_up, node, blow.for_ms * 0.5)
            case "skew":
                node.set_clock_rate(self._world.rng.uniform(0.9, 1.1))
                node.wall_jump_ms = -HOUR_MS if node.wall_jump_ms > 0 else HOUR_MS  # somebody sets the wall clock
            case _:
                self._strike_leaders(blow, hit)

    def _strike_leaders(self, blow: Blow, hit: list[str]) -> None:
        """Blows against whoever leads at that moment."""
        after, leaders = self._world.simulation.after, self._leaders()
        match blow.kind:
            case "bounce":
                for each in leaders:
                    self.crash(each, 5 + blow.for_ms * 0.03)
            case "dethrone":
                # A leader that serves on and does not know that the registry has given it up.
                names = [each.name for each in leaders]
                self._split(names, [REGISTRY], SESSION_TIMEOUT_MS + blow.for_ms, both_ways=True)
            case "doze":
                # A leader that stands still while another takes over, and goes on with all that was on its way to it.
                for each in leaders:
                    if not each.is_frozen:
                        each.freeze()
                        after(2 * TAKEOVER_MS + blow.for_ms, each.thaw)
            case "stumble":
                # The leader's disk is slow, and its followers connect anew while it is behind its own stream.
                for each in leaders:
                    each.flush_factor = 15.0
                    after(blow.for_ms, self._set, each, "flush_factor", 1.0)
                for moment in range(20, blow.for_ms, 60):
                    after(moment, self._reset_streams)
            case "suspend":
                # The leader's machine sleeps; its clock counts the time.
                for each in leaders:
                    if not each.is_frozen:
                        each.freeze()
                        after(TAKEOVER_MS + blow.for_ms, each.wake, TAKEOVER_MS + blow.for_ms)
            case "unheard":
                # Followers that hear nothing from their leader, and everybody else as ever.
                for each in leaders:
                    self._split([each.name], self._followers(), blow.for_ms, both_ways=self._world.rng.random() < 0.5)
            case "relapse":
                # A follower is cut from its leader, and restarted while its promise holds.
                for each in leaders:
                    names = [name for name in hit if name != each.name]
                    self._split([each.name], names, TAKEOVER_MS + blow.for_ms, both_ways=True)
                    for name in names:
                        self._world.simulation.after(20, self._crash_if_up, self._world.nodes[name], 5)
            case "late-claim":
                # The registry pauses when a claim arrives, and decides it when the leader is there again.
                frozen = [each for each in leaders if not each.is_frozen]
                for each in frozen:
                    each.freeze()
                    after(3 * TAKEOVER_MS, each.thaw)
                self._world.registry.when_claimed = lambda: self._claimed(frozen, blow.for_ms)
            case "stranger":
                # A replica of another cluster, with a higher epoch.
                for each in leaders:
                    self._world.stranger(each, "stranger", each.replica.epoch + self._world.rng.choice((1, 1_000)))
            case "ghost":
                # An older incarnation of a follower, with an empty disk.
                for each in leaders:
                    for name in self._followers():
                        self._world.stranger(each, name, each.replica.epoch)
            case "leave":
                # The leader hands over in order, and comes back later.
                for each in leaders:
                    each.leave()
                    after(300, self._end_left, each, each.incarnation, blow.for_ms)
            case _:
                raise AssertionError(blow.kind)

    def _leaders(self) -> list[SimulatedProcess]:
        return [node for node in self._world.nodes.values() if node.is_up and node.replica.state is State.LEADING]

    def _followers(self) -> list[str]:
        leaders = self._leaders()
        return [name for name, node in self._world.nodes.items() if node not in leaders]

    def _pause_registry(self, for_ms: float) -> None:
        if not self._is_healing:
            self._world.registry.pause()
            self._world.simulation.after(for_ms, self._resume_registry, self._world.rng.random() < 0.5)

    def _resume_registry(self, expire: bool) -> None:
        self._world.registry.resume(expire=expire)

    def _crash_if_up(self, node: SimulatedProcess, for_ms: float) -> None:
        if not self._is_healing:
            self.crash(node, for_ms)

    def _claimed(self, frozen: list[SimulatedProcess], for_ms: int) -> None:
        rng, after = self._world.rng, self._world.simulation.after
        self._world.registry.when_claimed = None
        self._pause_registry(500 + for_ms)
        for each in frozen:
            after(rng.uniform(1, 100), each.thaw)
        if rng.random() < 0.5:
            for moment in (20, 120, 240):
                after(moment, self._crash_claiming)

    def _crash_claiming(self) -> None:
        for node in self._world.nodes.values():
            if node.is_up and not node.is_frozen and node.replica.has_claim:
                self._crash_if_up(node, 5)

    def _crash_leaders(self, for_ms: int) -> None:
        if not self._is_healing:
            for node in self._leaders():
                self.crash(node, for_ms)

    def _trim_all(self) -> None:
        for node in self._world.nodes.values():
            node.trim()

    def _reset_streams(self) -> None:
        for node in self._world.nodes.values():
            if node.is_up:
                node.reset_streams()

    def _set(self, node: SimulatedProcess, attribute: str, value: float) -> None:
        setattr(node, attribute, value)

    def crash(self, node: SimulatedProcess, for_ms: float) -> None:
        """Crash a node that is up, and start it again later."""
        if node.is_up:
            node.crash()
            self._world.simulation.after(for_ms, self._restart, node)

    def _end_left(self, node: SimulatedProcess, incarnation: int, for_ms: float) -> None:
        """A process that has left ends; in a healed world it is started again at once."""
        if node.incarnation == incarnation:
            self.crash(node, 1 if self._is_healing else for_ms)

    def _restart(self, node: SimulatedProcess) -> None:
        if not node.is_up:
            node.start()

    def _split(self, left: list[str], right: list[str], for_ms: float, *, both_ways: bool) -> None:
        pairs = [(a, b) for a in left for b in right]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        else:
            pairs = [(b, a) for a, b in pairs] if self._world.rng.random() < 0.5 else pairs
        for source, target in pairs:
            self._world.network.cut(source, target)
            self._world.simulation.after(for_ms, self._world.network.mend, source, target)

    def heal(self) -> None:
        """Everything behaves from now on. What is down comes back; what is up stays up, or a stall would be hidden."""
        self._world.note("heal")
        self._is_healing = True
        self._world.environment.calm()
        self._world.registry.when_claimed = None
        self._world.registry.resume()
        self._world.registry.watch_loss = self._world.registry.stale_ms = 0.0
        self._world.network.cuts.clear()
        for node in self._world.nodes.values():
            node.slow_ms, node.flush_factor = 0.0, 1.0
            if not node.is_up:
                node.start()
            elif node.is_frozen:
                node.thaw()
